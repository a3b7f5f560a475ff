"""Reading of EAGLE's V4 files: nodes, fields and edges are objects by id, and embedded applications are nodes."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from dropflow.problems import Problem
from translator.formats.configurations import read_configurations
from translator.formats.detect import Family
from translator.formats.fields import read_fields
from translator.formats.json_access import Json, description_of, objects, position, text, truth, unescape
from translator.formats.node_records import ApplicationRecord, NodeRecord, Records
from translator.logical import LogicalLink, Role

__all__ = ["read_v4"]


def read_v4(document: Json, problems: list[Problem]) -> Records:
    """Read a document with `nodes` and `edges`; see `translator.formats.ojs.read_ojs`."""
    nodes = {unescape(pointer.rpartition("/")[2]): (pointer, raw) for pointer, raw in objects(document, "nodes")}
    names = {text(raw, "id"): id_ for id_, (_, raw) in reversed(nodes.items())} | {id_: id_ for id_ in nodes}
    claims = dict(_embedded(nodes, names))
    embedded = {id_: claim for id_, claim in claims.items() if claim[0] not in claims}
    applications: dict[str, list[ApplicationRecord]] = {}
    for id_, (construct, role) in embedded.items():
        application = _application(id_, role, *nodes[id_], problems)
        applications.setdefault(construct, []).append(application)
    plain = tuple(
        replace(
            _node(id_, raw, names.get(text(raw, "parentId"), text(raw, "parentId")), pointer, problems),
            applications=tuple(
                sorted(applications.get(id_, ()), key=lambda application: application.role is Role.OUTPUT)
            ),
        )
        for id_, (pointer, raw) in nodes.items()
        if id_ not in embedded
    )
    configurations, active = read_configurations(document, lambda name: names.get(str(name), str(name)))
    return Records(
        family=Family.V4,
        nodes=plain,
        links=tuple(_link(raw, names, pointer) for pointer, raw in objects(document, "edges")),
        configurations=configurations,
        active_configuration=active,
        steps=("objects by id were read as lists",),
        description=description_of(document),
    )


def _embedded(nodes: dict[str, tuple[str, Json]], names: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, Role]]]:
    """Yield each embedded application with its construct and role: first as applications give them, then constructs."""
    for id_, (_, raw) in nodes.items():
        construct = names.get(text(raw, "embedId"), id_)
        if construct != id_:
            yield id_, (construct, Role.INPUT)
    for id_, (_, raw) in nodes.items():
        for attribute, role in (("outputApplicationId", Role.OUTPUT), ("inputApplicationId", Role.INPUT)):
            application = names.get(text(raw, attribute), id_)
            if application != id_:
                yield application, (id_, role)


def _application(id_: str, role: Role, pointer: str, raw: Json, problems: list[Problem]) -> ApplicationRecord:
    return ApplicationRecord(
        role=role,
        id=id_,
        name=text(raw, "name"),
        category=text(raw, "category"),
        fields=read_fields(raw, "fields", pointer=pointer, owner=id_, problems=problems),
        pointer=pointer,
        description=text(raw, "description"),
    )


def _node(id_: str, raw: Json, parent: str, pointer: str, problems: list[Problem]) -> NodeRecord:
    return NodeRecord(
        id=id_,
        name=text(raw, "name"),
        category=text(raw, "category"),
        category_type=text(raw, "categoryType"),
        parent=parent or None,
        fields=read_fields(raw, "fields", pointer=pointer, owner=id_, problems=problems),
        pointer=pointer,
        position=position(raw),
        description=text(raw, "description"),
    )


def _link(raw: Json, names: Mapping[str, str], pointer: str) -> LogicalLink:
    source, target = text(raw, "srcNodeId"), text(raw, "destNodeId")
    return LogicalLink(
        source=names.get(source, source),
        target=names.get(target, target),
        source_port=text(raw, "srcPortId"),
        target_port=text(raw, "destPortId"),
        loop_aware=truth(raw.get("loopAware")) is True,
        closes_loop=truth(raw.get("closesLoop")) is True,
        streaming=truth(raw.get("isStream")) is True,
        pointer=pointer,
    )
