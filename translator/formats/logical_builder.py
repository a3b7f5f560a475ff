"""The logical graph from the records of a file: kinds, canonical names, applications as nodes, links to them."""

from collections.abc import Iterator, Mapping

from dropflow.problems import Problem, Severity
from translator.formats.embedded_apps import (
    Applications,
    application_nodes,
    end_on_applications,
    is_usable,
    spare_ports,
)
from translator.formats.field_names import canonical_fields
from translator.formats.fields import merge_ports
from translator.formats.link_ports import name_ports
from translator.formats.node_kinds import Nature, natures
from translator.formats.node_records import NodeRecord, Records
from translator.formats.vocabulary import CONTROL
from translator.logical import LogicalGraph, LogicalLink, LogicalNode, NodeKind
from translator.problem_codes import problem

__all__ = ["assemble"]


def assemble(records: Records, name: str, problems: list[Problem]) -> LogicalGraph:
    """Make the logical graph of a file.

    Parameters
    ----------
    records : Records
        The content of the file.
    name : str
        Name of the graph.
    problems : list of Problem
        Gets the findings.
    """
    kinds = natures(records, problems)
    taken = {record.id for record in records.nodes}
    applications: dict[str, tuple[LogicalNode, ...]] = {}
    nodes: list[LogicalNode] = []
    for record in records.nodes:
        node = _node(record, kinds[record.id])
        nodes.append(node)
        if node.kind is NodeKind.CONSTRUCT and node.id not in applications:
            applications[node.id] = tuple(application_nodes(record, node.fields, taken))
            nodes.extend(applications[node.id])
    by_id = {node.id: node for node in reversed(nodes)}
    links = _links(records, applications, by_id, problems)
    return LogicalGraph(
        name=name,
        family=records.family.value,
        nodes=tuple(nodes),
        links=tuple(name_ports(link, by_id) for link in links),
        configurations=records.configurations,
        active_configuration=records.active_configuration,
        description=records.description,
    )


def _node(record: NodeRecord, nature: Nature) -> LogicalNode:
    category, kind = nature
    fields = record.fields
    if kind is NodeKind.CONSTRUCT:
        fields = merge_ports(fields, spare_ports(record))
    else:
        for application in record.applications:
            fields = merge_ports(fields, (field for field in application.fields if field.is_port))
    return LogicalNode(
        id=record.id,
        name=record.name or record.id,
        category=category,
        kind=kind,
        parent=record.parent,
        key=record.id,
        fields=canonical_fields(fields, category, kind, record.switches),
        pointer=record.pointer,
        position=record.position,
        description=record.description,
    )


def _links(
    records: Records, applications: Applications, by_id: Mapping[str, LogicalNode], problems: list[Problem]
) -> Iterator[LogicalLink]:
    parents = {record.id: record.parent for record in records.nodes}
    renamed = {
        application.id: record.id
        for record in records.nodes
        for application in record.applications
        if application.id and application.id not in by_id and not is_usable(application)
    }
    for link in records.links:
        silent = [by_id[end] for end in (link.source, link.target) if end in by_id and _is_silent(by_id[end])]
        if silent:
            problems.append(_dropped(link, silent[0]))
        else:
            yield end_on_applications(link, applications, parents, renamed)


def _is_silent(node: LogicalNode) -> bool:
    return node.kind in (NodeKind.NOTE, NodeKind.GLOBALS)


def _dropped(link: LogicalLink, node: LogicalNode) -> Problem:
    if node.category in CONTROL:
        text = f"{node.category} nodes are not used any more: {node.name!r} and its edge are ignored"
        return problem("LG031", text, where=link.pointer)
    return problem(
        "LG003",
        f"an edge ends on {node.category} {node.name!r}, which has no drops; the edge is ignored",
        where=link.pointer,
        severity=Severity.WARNING,
    )
