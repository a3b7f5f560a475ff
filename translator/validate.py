"""Checks of a logical graph without index spaces: references, containers, ports and names.

`translator.unroll.outline` checks what depends on levels and sizes: multiplicities, loops, gathers, cycles.
"""

import copy
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from typing import Any

import msgspec

from dropflow.failure import Problem, Severity
from dropflow.formatting import did_you_mean
from dropflow.graph.components import Unusable, convert_field, is_empty
from translator.formats.json_document import unescape
from translator.formats.vocabulary import UNDECIDED, canonical_category
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind
from translator.options import ValidateOptions
from translator.problem_codes import problem

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
_MOST_COMPARED = 10_000
"""Comparisons of an unknown id with the known ones, for suggestions in one graph."""
_UNTYPED = frozenset({"", "Object", "Unknown", "UNIDENTIFIED", "String", "Event"})
_NUMBERS = ("Integer", "Float", "Boolean")


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
    return tuple(
        islice(chain(_duplicates(graph), _containers(graph), _links(graph), _clashes(graph), _namesakes(graph)), limit)
    )


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


def _namesakes(graph: LogicalGraph) -> Iterator[Problem]:
    for node in graph.nodes:
        if len(node.by_name) == len(node.fields):
            continue
        writes = {field.name for field in node.fields if field.usage in _WRITES and node.kind is NodeKind.APP}
        for field in node.fields:
            used = node.by_name[field.name].effective
            if field.is_port or field.effective in (None, ""):
                continue
            if field.effective != used:
                text = f"parameter {field.name!r} of node {node.name!r} has the values {used!r:.60} and "
                text += f"{field.effective!r:.60}; the former is used"
            elif field.name in writes:
                text = f"parameter {field.name!r} of node {node.name!r} has the name of an output port; "
                text += f"a function does not get its value {used!r:.60}"
            else:
                continue
            yield problem("LG111", text, where=field.pointer or node.pointer, hint="rename or delete one of the fields")


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
        self.left = _MOST_COMPARED // max(len(self.known), 1)

    def hint(self, missing: str) -> str:
        """Return a hint with the nearest id; empty if no id is near, or the limit is reached."""
        self.left -= 1
        return did_you_mean(missing, self.known) if missing and self.left >= 0 else ""


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
    """Return whether the types of two ports fit, as in EAGLE: one type is a prefix of the other."""
    going_type, coming_type = going.type, coming.type
    if "Object" in (going_type, coming_type) or going_type in _UNTYPED or coming_type in _UNTYPED:
        return True
    return going_type.startswith(coming_type) or coming_type.startswith(going_type)


# Corrections of the file of a logical graph that need no decision: each is what the translator assumes anyway.
#
# =======  ====================================================================================
# finding  correction
# =======  ====================================================================================
# LG031    the category of a node gets its current name
# LG042    an edge that appears more than once is removed
# LG061    an edge from the end to the start of a loop is marked as closing it
# LG062    an edge is not loop-aware, or does not close a loop, where that has no effect
# LG063    an edge into a loop at a port with a carry is marked as loop-aware
# LG094    numbers that are written as text become numbers
# =======  ====================================================================================


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """One correction: the finding that it removes, its place, and what was changed."""

    code: str
    where: str
    text: str


def fixed(document: Any, graph: LogicalGraph, problems: Iterable[Problem]) -> tuple[Any, tuple[Fix, ...]]:
    """Return a document with corrections of its findings, and the list of them. The given document is not changed.

    Parameters
    ----------
    document : Any
        The parsed file.
    graph : LogicalGraph
        The graph as it was read, with pointers into the document.
    problems : iterable of Problem
        The findings about it.
    """
    made = copy.deepcopy(document)
    fixes: list[Fix] = []
    removed: list[str] = []
    for finding in problems:
        if finding.code == "LG042":
            removed.append(finding.where)
            fixes.append(Fix(code=finding.code, where=finding.where, text="the second of two equal edges was removed"))
        elif finding.code in _EDGES:
            text = _EDGES[finding.code](_at(made, finding.where), finding)
            fixes += [Fix(code=finding.code, where=finding.where, text=text)] if text else []
        elif finding.code == "LG031" and finding.where.endswith("/category"):
            fixes += _categories(made)
        elif finding.code == "LG094":
            fixes += _numbers(made, graph)
    for where in sorted(set(removed), key=_position, reverse=True):
        _remove(made, where)
    return made, tuple({(fix.code, fix.where): fix for fix in fixes}.values())


def _at(document: Any, pointer: str) -> Any:
    place = document
    try:
        for step in pointer.split("/")[1:]:
            place = place[int(step)] if isinstance(place, list) else place[unescape(step)]
    except (KeyError, IndexError, ValueError, TypeError):
        return None
    return place


def _position(pointer: str) -> tuple[str, int]:
    """Return a key that orders items of one list by their numbers."""
    head, _, tail = pointer.rpartition("/")
    return head, int(tail) if tail.isdigit() else -1


def _remove(document: Any, pointer: str) -> None:
    head, _, tail = pointer.rpartition("/")
    place = _at(document, head)
    if isinstance(place, list) and tail.isdigit() and int(tail) < len(place):
        del place[int(tail)]
    elif isinstance(place, dict):
        place.pop(unescape(tail), None)


def _closes(edge: Any, _: Problem) -> str:
    return _mark(edge, "closesLoop", value=True) and "the edge is marked as closes-loop"


def _enters_once(edge: Any, _: Problem) -> str:
    return _aware(edge, value=True) and "the edge is marked as loop-aware"


def _has_no_effect(edge: Any, finding: Problem) -> str:
    if "closes-loop" in finding.text:
        return _mark(edge, "closesLoop", value=False) and "the edge is not marked as closes-loop any more"
    return _aware(edge, value=False) and "the edge is not marked as loop-aware any more"


_EDGES: dict[str, Callable[[Any, Problem], str]] = {"LG061": _closes, "LG062": _has_no_effect, "LG063": _enters_once}


def _aware(edge: Any, *, value: bool) -> str:
    """Set the mark of a loop-aware edge: a text in files of the OJS family, a truth value in V4."""
    if isinstance(edge, dict) and "srcNodeId" in edge:
        return _mark(edge, "loopAware", value=value)
    return _mark(edge, "loop_aware", value="1" if value else "0")


def _mark(edge: Any, name: str, *, value: Any) -> str:
    if not isinstance(edge, dict) or edge.get(name) == value:
        return ""
    edge[name] = value
    return name


def _categories(document: Any) -> list[Fix]:
    fixes = []
    nodes = document.get("nodeDataArray", document.get("nodes"))
    items = nodes.items() if isinstance(nodes, dict) else enumerate(nodes if isinstance(nodes, list) else [])
    base = "/nodes" if isinstance(nodes, dict) else "/nodeDataArray"
    for key, node in items:
        old = node.get("category") if isinstance(node, dict) else None
        if not isinstance(old, str) or old in UNDECIDED:
            continue
        new = canonical_category(old, _class_of(node))
        if new != old:
            node["category"] = new
            where = f"{base}/{key}/category"
            fixes.append(Fix(code="LG031", where=where, text=f"category {old!r} became {new!r}"))
    return fixes


def _class_of(node: dict[str, Any]) -> str:
    """Return the class of a node, on which the category of general applications depends."""
    fields = node.get("fields")
    fields = list(fields.values()) if isinstance(fields, dict) else fields
    for field in fields if isinstance(fields, list) else []:
        if isinstance(field, dict) and str(field.get("name", "")).lower().replace("_", "") in ("dropclass", "appclass"):
            return str(field.get("value") or "")
    return ""


def _numbers(document: Any, graph: LogicalGraph) -> list[Fix]:
    fixes = []
    for node in graph.nodes:
        if node.kind in (NodeKind.GLOBALS, NodeKind.NOTE):
            continue
        for field in node.fields:
            if field.type not in _NUMBERS or not isinstance(field.value, str) or is_empty(field.value, field.type):
                continue
            try:
                value = convert_field(field.value, field.type)
            except Unusable:
                continue
            place = _at(document, field.pointer)
            if isinstance(place, dict) and place.get("value") == field.value:
                place["value"] = value
                text = f"{field.name} of {node.name!r} is the {field.type} {value!r}, not a text"
                fixes.append(Fix(code="LG094", where=field.pointer, text=text))
    return fixes
