"""Settings of users: finds the field for ``NODE.PARAM``, and reports names without a field or with several."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from dropflow.engine.parameters import fold
from dropflow.problems import Problem
from translator.logical import LogicalGraph, LogicalNode, NodeKind
from translator.problem_codes import problem

__all__ = ["GLOBAL", "Address", "Setting", "addresses_of", "resolve_setting", "split_settings"]

Address = tuple[str, int]
"""A field: the id of its node, and its index among the fields of the node."""

GLOBAL = "global"
"""Name of the node in settings of global variables."""

_LISTED = 12


class Setting(NamedTuple):
    """A setting of a user. Node and parameter may have dots, so all ways to split ``NODE.PARAM`` are tried."""

    target: str
    value: Any

    @property
    def parameter(self) -> str:
        """The name after ``global.``."""
        return self.target.partition(".")[2]


def addresses_of(graph: LogicalGraph, node: LogicalNode, field_id: str) -> list[Address]:
    """Return the addresses of a field of `node`, or shared with it.

    A construct and its first application share the fields of the construct. A field that only an application has can
    also be set on the construct.
    """
    construct = graph.by_id.get(node.embedded_in or node.id, node)
    group = (construct, *graph.embedded.get(construct.id, ()))
    if field_id not in construct.by_id and field_id in node.by_id:
        group = (node,)
    return [(holder.id, place) for holder in group for place, field in enumerate(holder.fields) if field.id == field_id]


def split_settings(settings: Mapping[str, Any] | Sequence[str], problems: list[Problem]) -> Iterator[Setting]:
    """Yield settings from a mapping, or from texts ``NODE.PARAM=VALUE``. Other texts are a finding ``LG100``.

    A name without a node is that of a parameter of the graph: ``n=4`` means ``global.n=4``.
    """
    if isinstance(settings, Mapping):
        for target, value in settings.items():
            yield Setting(target if "." in target else f"{GLOBAL}.{target}", value)
        return
    for text in settings:
        target, sign, value = text.partition("=")
        if sign and "." in target.strip().strip("."):
            yield Setting(target.strip(), value)
        elif sign and target.strip().isidentifier():
            yield Setting(f"{GLOBAL}.{target.strip()}", value)
        else:
            hint = "write NODE.PARAM=VALUE, for example 'Scatter.num_of_copies=4', or global.NAME=VALUE"
            problems.append(problem("LG100", f"the setting {text!r} has no parameter of a node", where=text, hint=hint))


def resolve_setting(graph: LogicalGraph, setting: Setting, problems: list[Problem]) -> list[Address] | None:
    """Return the addresses of the field of a setting, with all its copies.

    Returns
    -------
    list of Address, or None
        Empty, with a finding ``LG100``, if there is no such field or several; None for a global variable.
    """
    readings = [
        (setting.target[:place], setting.target[place + 1 :])
        for place, character in enumerate(setting.target)
        if character == "."
    ]
    named = False
    for node_name, parameter in readings:
        nodes = [node for node in _selectable(graph) if node_name in _names(node, graph)]
        named = named or bool(nodes)
        found = [(node, place) for node in nodes for place in _fields(node, parameter)]
        owners = {node.embedded_in or node.id for node, _ in found}
        if len(owners) == 1:
            node, place = found[0]
            return addresses_of(graph, node, node.fields[place].id)
        if owners:
            problems.append(_ambiguous(setting, found))
            return []
    if setting.target.startswith(f"{GLOBAL}.") and not named:
        return None
    problems.append(_unknown(graph, setting, readings))
    return []


def _selectable(graph: LogicalGraph) -> Iterator[LogicalNode]:
    return (node for node in graph.nodes if node.kind is not NodeKind.NOTE)


def _names(node: LogicalNode, graph: LogicalGraph) -> tuple[str, ...]:
    if node.embedded_in is None:
        return node.id, node.name
    construct = graph.by_id.get(node.embedded_in)
    around = f"{construct.name}/{node.app_name}" if construct else node.app_name
    return node.id, node.name, node.app_name, around


def _fields(node: LogicalNode, parameter: str) -> list[int]:
    """Return the index of the field with the name or id `parameter`, else ignoring case and separators."""
    named = [place for place, field in enumerate(node.fields) if parameter in (field.name, field.id)]
    if not named:
        folded = fold(parameter)
        named = [place for place, field in enumerate(node.fields) if fold(field.name) == folded]
    plain = [place for place in named if not node.fields[place].is_port]
    return (plain or named)[:1]


def _ambiguous(setting: Setting, found: list[tuple[LogicalNode, int]]) -> Problem:
    ids = ", ".join(node.id for node, _ in found[:_LISTED])
    text = f"{len(found)} nodes have a parameter {setting.target!r}"
    return problem("LG100", text, where=setting.target, hint=f"name the node by its id, one of {ids}")


def _unknown(graph: LogicalGraph, setting: Setting, readings: list[tuple[str, str]]) -> Problem:
    for node_name, parameter in readings:
        nodes = [node for node in _selectable(graph) if node_name in _names(node, graph)]
        if nodes:
            names = sorted({field.name for node in nodes for field in node.fields if field.usage == "NoPort"})
            text = f"node {node_name!r} has no parameter {parameter!r}"
            return problem("LG100", text, where=setting.target, hint=_did_you_mean(parameter, names))
    node_name = readings[-1][0] if readings else setting.target
    names = sorted({name for node in _selectable(graph) for name in _names(node, graph)[1:] if name})
    text = f"the graph has no node {node_name!r}"
    return problem("LG100", text, where=setting.target, hint=_did_you_mean(node_name, names))


def _did_you_mean(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    listed = ", ".join(map(repr, known[:_LISTED])) + (", ..." if len(known) > _LISTED else "")
    return f"there are {listed}" if known else "there are none"
