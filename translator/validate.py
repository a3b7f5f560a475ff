"""Checks of a logical graph without index spaces: references, containers, ports and names.

`translator.unroll.plan` checks what depends on levels and sizes: multiplicities, loops, gathers, cycles.
"""

from collections.abc import Generator, Iterable, Iterator
from difflib import get_close_matches
from itertools import chain, islice

from dropflow.problems import Problem, Severity
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind
from translator.problem_codes import problem
from translator.stage_options import ValidateOptions

__all__ = ["STRUCTURAL", "validate"]

STRUCTURAL = frozenset(
    {
        "oid",
        "iid",
        "lg_key",
        "rank",
        "loop_ctx",
        "proc_index",
        "name",
        "category",
        "categoryType",
        "storage",
        "weight",
        "mkn",
        "applicationArgs",
        "constraintParams",
        "componentParams",
        "fields",
        "subgraph",
        "outputs",
        "inputs",
        "streamingInputs",
        "producers",
        "consumers",
        "streamingConsumers",
        "port_map",
        "ports",
        "reprodata",
        "node",
        "island",
        "humanReadableKey",
        "id",
    }
)
"""Keys of a drop in DALiuGE's physical graphs, which a parameter of the same name overwrites there."""

_READS, _WRITES = ("InputPort", "InputOutput"), ("OutputPort", "InputOutput")
_COMPARED = 10_000
_UNTYPED = frozenset({"", "Object", "Unknown", "UNIDENTIFIED", "String", "Event"})


def validate(graph: LogicalGraph, options: ValidateOptions | None = None) -> tuple[Problem, ...]:
    """Return all problems of a graph that can be found node by node and edge by edge.

    Parameters
    ----------
    graph : LogicalGraph
        The graph with all parameters filled in.
    options : ValidateOptions, optional
        Maximal number of findings.

    Returns
    -------
    tuple of Problem
        Problems of ids, containers, edges and names, each in the order of the file.
    """
    limit = (options or ValidateOptions()).max_findings
    return tuple(islice(chain(_duplicates(graph), _containers(graph), _links(graph), _clashes(graph)), limit))


def _duplicates(graph: LogicalGraph) -> Iterator[Problem]:
    seen: dict[str, LogicalNode] = {}
    for node in graph.nodes:
        first = seen.setdefault(node.id, node)
        if first is not node:
            text = f"nodes {first.name!r} and {node.name!r} have the same id {node.id!r}"
            yield problem("LG006", text, where=node.pointer, hint="delete one of them and draw it again")


def _containers(graph: LogicalGraph) -> Iterator[Problem]:
    for node in graph.nodes:
        if node.parent is None:
            continue
        around = graph.by_id.get(node.parent)
        if around is None:
            text = f"the parent {node.parent!r} of node {node.name!r} does not exist"
            yield problem("LG004", text, where=node.pointer, hint="move the node out of its construct and in again")
        elif around.kind is not NodeKind.CONSTRUCT:
            text = f"the parent of node {node.name!r} is {around.category} {around.name!r}, which is not a construct"
            yield problem("LG004", text, where=node.pointer, hint="put it into a construct, or into none")


def _clashes(graph: LogicalGraph) -> Iterator[Problem]:
    for node in graph.nodes:
        if node.kind not in (NodeKind.DATA, NodeKind.APP):
            continue
        for field in node.fields:
            if field.name in STRUCTURAL and not field.is_port:
                text = f"parameter {field.name!r} of node {node.name!r} has the name of a structural key"
                hint = "dropflow keeps both apart; DALiuGE does not, so rename it if the graph must run there too"
                yield problem("LG110", text, where=field.pointer or node.pointer, hint=hint)


def _links(graph: LogicalGraph) -> Iterator[Problem]:
    near = _Near(graph.by_id)
    for link in graph.links:
        source, target = graph.by_id.get(link.source), graph.by_id.get(link.target)
        if source is None:
            yield _dangling(graph, link, link.source, "start", near)
        if target is None:
            yield _dangling(graph, link, link.target, "end", near)
        going = yield from _port(source, link.source_port, _WRITES, link)
        coming = yield from _port(target, link.target_port, _READS, link)
        if source and target and going and coming and not _fits(going, coming):
            text = (
                f"the edge from {source.name!r} to {target.name!r} joins port {going.name!r} of type {going.type} "
                f"to port {coming.name!r} of type {coming.type}"
            )
            yield problem("LG012", text, where=link.pointer, hint="check that the data are what the consumer expects")


def _dangling(graph: LogicalGraph, link: LogicalLink, end: str, which: str, near: "_Near") -> Problem:
    other = graph.by_id.get(link.target if which == "start" else link.source)
    at = f"the edge {'to' if which == 'start' else 'from'} {other.name!r}" if other else "an edge"
    text = f"the {which} of {at} is {f'the node {end!r}, which does not exist' if end else 'not given'}"
    return problem("LG003", text, where=link.pointer, hint=near.hint(end) or "delete the edge and draw it again")


class _Near:
    """Suggests similar ids for a limited number of names: comparing texts takes much longer than all other checks."""

    def __init__(self, known: Iterable[str]) -> None:
        self.known = list(known)
        self.left = _COMPARED // max(len(self.known), 1)

    def hint(self, missing: str) -> str:
        """Return a hint with the nearest id; empty if no id is near, or the limit is reached."""
        self.left -= 1
        found = get_close_matches(missing, self.known, 1) if missing and self.left >= 0 else []
        return f"did you mean {found[0]!r}?" if found else ""


def _port(
    node: LogicalNode | None, port: str, usages: tuple[str, ...], link: LogicalLink
) -> Generator[Problem, None, Field | None]:
    """Yield findings about one end of an edge; return its port."""
    if node is None or not port:
        return None
    field = node.by_id.get(port)
    if field is None:
        yield _missing_port(node, port, usages, link)
        return None
    if field.usage not in usages:
        way = "reads" if usages is _READS else "writes"
        text = f"an edge uses {field.name!r} of node {node.name!r} ({field.usage}) as if it {way}"
        yield problem("LG011", text, where=link.pointer, hint=f"join it to a port that {way}")
    return field


def _missing_port(node: LogicalNode, port: str, usages: tuple[str, ...], link: LogicalLink) -> Problem:
    """Return LG010 for a missing port: an error on an application, which finds its data by port, else a warning."""
    ports = ", ".join(f"{field.name!r} ({field.id})" for field in node.fields if field.usage in usages)
    only_a_name = node.kind is not NodeKind.APP
    return problem(
        "LG010",
        f"an edge {'ends' if usages is _READS else 'starts'} at port {port!r}, which node {node.name!r} does not have",
        where=link.pointer,
        hint=f"it has {ports}"
        if ports
        else f"node {node.name!r} has no port that {'reads' if usages is _READS else 'writes'}",
        severity=Severity.WARNING if only_a_name else None,
    )


def _fits(going: Field, coming: Field) -> bool:
    """Whether the types of two ports fit, as in EAGLE: one type is a prefix of the other."""
    one, other = going.type, coming.type
    if "Object" in (one, other) or one in _UNTYPED or other in _UNTYPED:
        return True
    return one.startswith(other) or other.startswith(one)
