"""Corrections of the file of a logical graph that need no decision: each is what the translator assumes anyway.

=======  ====================================================================================
finding  correction
=======  ====================================================================================
LG031    the category of a node gets its current name
LG042    an edge that appears more than once is removed
LG061    an edge from the end to the start of a loop is marked as closing it
LG062    an edge is not loop-aware, or does not close a loop, where that has no effect
LG063    an edge into a loop at a port with a carry is marked as loop-aware
LG094    numbers that are written as text become numbers
=======  ====================================================================================
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dropflow.engine.parameters import Unusable, convert_field, is_empty
from dropflow.problems import Problem
from translator.formats.json_access import unescape
from translator.formats.vocabulary import UNDECIDED, canonical_category
from translator.logical import LogicalGraph, NodeKind

__all__ = ["Fix", "fixed"]

_NUMBERS = ("Integer", "Float", "Boolean")


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
    found: list[Fix] = []
    removed: list[str] = []
    for one in problems:
        if one.code == "LG042":
            removed.append(one.where)
            found.append(Fix(code=one.code, where=one.where, text="the second of two equal edges was removed"))
        elif one.code in _EDGES:
            text = _EDGES[one.code](_at(made, one.where), one)
            found += [Fix(code=one.code, where=one.where, text=text)] if text else []
        elif one.code == "LG031" and one.where.endswith("/category"):
            found += _categories(made)
        elif one.code == "LG094":
            found += _numbers(made, graph)
    for where in sorted(set(removed), key=_position, reverse=True):
        _remove(made, where)
    return made, tuple({(fix.code, fix.where): fix for fix in found}.values())


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
    found = []
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
            found.append(Fix(code="LG031", where=where, text=f"category {old!r} became {new!r}"))
    return found


def _class_of(node: dict[str, Any]) -> str:
    """Return the class of a node, on which the category of general applications depends."""
    fields = node.get("fields")
    fields = list(fields.values()) if isinstance(fields, dict) else fields
    for field in fields if isinstance(fields, list) else []:
        if isinstance(field, dict) and str(field.get("name", "")).lower().replace("_", "") in ("dropclass", "appclass"):
            return str(field.get("value") or "")
    return ""


def _numbers(document: Any, graph: LogicalGraph) -> list[Fix]:
    found = []
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
                found.append(Fix(code="LG094", where=field.pointer, text=text))
    return found
