"""The differences of two logical graphs in meaning: what was added, removed or changed, however the files look.

Nodes are matched by id, then by category, name and construct. Layout, order and old spellings make no difference,
because both graphs are compared in the one model that all files become.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind

_Edge = tuple[str, str, str, str, bool, bool, bool]


class LogicalDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference of two graphs.

    Attributes
    ----------
    change : str
        ``added``, ``removed`` or ``changed``.
    what : str
        ``node``, ``field``, ``edge`` or ``configuration``.
    where : str
        Name of the node, edge or configuration; of a field the node, a dot and the field.
    old, new : Any
        The values before and after, if they have one.
    text : str
        The difference in words.
    """

    change: str
    what: str
    where: str
    old: Any = None
    new: Any = None
    text: str


_ATTRIBUTES: tuple[tuple[str, Callable[[Field], Any]], ...] = (
    ("type", lambda field: field.type),
    ("encoding", lambda field: field.encoding),
    ("usage", lambda field: field.usage),
    ("kind of parameter", lambda field: field.parameter_type),
)


def differences(old: LogicalGraph, new: LogicalGraph) -> tuple[LogicalDifference, ...]:
    """Return the differences of two graphs: nodes, their fields, edges, and configurations."""
    pairs = _matched(old, new)
    return (
        *_nodes(old, new, pairs),
        *_edges(old, new, pairs),
        *_configurations(old, new),
    )


def _matched(old: LogicalGraph, new: LogicalGraph) -> dict[str, str]:
    """Return the id in the new graph of each node of the old one that is in both."""
    ours = {node.id: node for node in old.nodes if _counts(node)}
    theirs = {node.id: node for node in new.nodes if _counts(node)}
    pairs = {id_: id_ for id_, node in ours.items() if id_ in theirs and theirs[id_].kind is node.kind}
    taken = set(pairs.values())
    free: dict[tuple[str, str, str], list[str]] = {}
    for id_, node in theirs.items():
        if id_ not in taken:
            free.setdefault(_likeness(new, node), []).append(id_)
    for id_, node in ours.items():
        alike = free.get(_likeness(old, node), []) if id_ not in pairs else []
        if alike:
            pairs[id_] = alike.pop(0)
    return pairs


def _counts(node: LogicalNode) -> bool:
    return node.kind is not NodeKind.NOTE


def _likeness(graph: LogicalGraph, node: LogicalNode) -> tuple[str, str, str]:
    around = graph.by_id.get(node.parent or node.embedded_in or "")
    return node.category, node.app_name or node.name, around.name if around is not None else ""


def _named(graph: LogicalGraph, id_: str) -> str:
    node = graph.by_id.get(id_)
    if node is None:
        return id_
    construct = graph.by_id.get(node.embedded_in or "")
    return node.name if construct is None else f"{construct.name}/{node.app_name or node.role.value}"


def _nodes(old: LogicalGraph, new: LogicalGraph, pairs: Mapping[str, str]) -> Iterator[LogicalDifference]:
    for node in old.nodes:
        if _counts(node) and node.id not in pairs:
            name = _named(old, node.id)
            yield LogicalDifference(
                change="removed", what="node", where=name, text=f"{node.category} {name!r} was removed"
            )
    known = set(pairs.values())
    for node in new.nodes:
        if _counts(node) and node.id not in known:
            name = _named(new, node.id)
            inside = f" in {_named(new, node.parent)!r}" if node.parent else ""
            yield LogicalDifference(
                change="added", what="node", where=name, text=f"{node.category} {name!r} was added{inside}"
            )
    for id_, other in pairs.items():
        yield from _changed_node(old, new, old.by_id[id_], new.by_id[other], pairs)


def _changed_node(
    old: LogicalGraph, new: LogicalGraph, before: LogicalNode, after: LogicalNode, pairs: Mapping[str, str]
) -> Iterator[LogicalDifference]:
    name = _named(new, after.id)
    if before.name != after.name and before.embedded_in is None:
        text = f"{before.category} {before.name!r} is called {after.name!r} now"
        yield LogicalDifference(change="changed", what="node", where=name, old=before.name, new=after.name, text=text)
    if before.category != after.category:
        text = f"the category of {name!r} changed from {before.category} to {after.category}"
        yield LogicalDifference(
            change="changed", what="node", where=name, old=before.category, new=after.category, text=text
        )
    if pairs.get(before.parent or "", before.parent) != after.parent:
        places = [
            _named(old, before.parent) if before.parent else "",
            _named(new, after.parent) if after.parent else "",
        ]
        words = [f"{place!r}" if place else "the top level" for place in places]
        text = f"{name!r} moved from {words[0]} to {words[1]}"
        yield LogicalDifference(change="changed", what="node", where=name, old=places[0], new=places[1], text=text)
    yield from _fields(name, _own(old, before), _own(new, after))


def _own(graph: LogicalGraph, node: LogicalNode) -> dict[str, Field]:
    """Return the fields of a node by name, without those that an application has from its construct."""
    construct = graph.by_id.get(node.embedded_in or "")
    shared = {} if construct is None else construct.by_id
    return {name: field for name, field in node.by_name.items() if field.id not in shared}


def _fields(name: str, ours: Mapping[str, Field], theirs: Mapping[str, Field]) -> Iterator[LogicalDifference]:
    for key, field in ours.items():
        if key not in theirs:
            text = f"{name}.{key} ({field.effective!r:.60}) was removed"
            yield LogicalDifference(
                change="removed", what="field", where=f"{name}.{key}", old=field.effective, text=text
            )
    for key, field in theirs.items():
        where = f"{name}.{key}"
        before = ours.get(key)
        if before is None:
            text = f"{where} was added with {field.effective!r:.60}"
            yield LogicalDifference(change="added", what="field", where=where, new=field.effective, text=text)
            continue
        if not _same(before.effective, field.effective):
            text = f"{where} changed from {before.effective!r:.60} to {field.effective!r:.60}"
            yield LogicalDifference(
                change="changed", what="field", where=where, old=before.effective, new=field.effective, text=text
            )
        for what, value in _ATTRIBUTES:
            if value(before) != value(field):
                text = f"the {what} of {where} changed from {value(before)!r} to {value(field)!r}"
                yield LogicalDifference(
                    change="changed", what="field", where=where, old=value(before), new=value(field), text=text
                )


def _same(one: Any, other: Any) -> bool:
    """Return whether two values mean the same: 4 and "4" do, as do no value and an empty text."""
    if one == other and isinstance(one, bool) is isinstance(other, bool):
        return True
    return ("" if one is None else str(one)) == ("" if other is None else str(other))


def _edges(old: LogicalGraph, new: LogicalGraph, pairs: Mapping[str, str]) -> Iterator[LogicalDifference]:
    ours = Counter(_edge(old, link, pairs) for link in old.links)
    theirs = Counter(_edge(new, link, None) for link in new.links)
    for edge in (ours - theirs).elements():
        yield _edge_difference("removed", new, old, edge)
    for edge in (theirs - ours).elements():
        yield _edge_difference("added", new, new, edge)


def _edge(graph: LogicalGraph, link: LogicalLink, pairs: Mapping[str, str] | None) -> _Edge:
    """Return what an edge means: its ends in the new graph, the names of its ports, and its marks."""

    def end(id_: str) -> str:
        if pairs is None or id_ in pairs:
            return id_ if pairs is None else pairs[id_]
        node = graph.by_id.get(id_)
        return id_ if node is None or not _counts(node) else f"old:{id_}"

    def port(id_: str, field: str) -> str:
        node = graph.by_id.get(id_)
        port_field = None if node is None else node.by_id.get(field)
        return field if port_field is None else port_field.name

    return (
        end(link.source),
        port(link.source, link.source_port),
        end(link.target),
        port(link.target, link.target_port),
        link.loop_aware,
        link.closes_loop,
        link.streaming,
    )


def _edge_difference(change: str, new: LogicalGraph, own: LogicalGraph, edge: _Edge) -> LogicalDifference:
    source, out, target, into, aware, closes, streaming = edge

    def named(id_: str) -> str:
        return _named(own, id_.removeprefix("old:")) if id_.startswith("old:") else _named(new, id_)

    ends = [f"{named(id_)}.{port}" if port else named(id_) for id_, port in ((source, out), (target, into))]
    marks = [
        name for name, is_on in (("loop-aware", aware), ("closes-loop", closes), ("streaming", streaming)) if is_on
    ]
    where = " -> ".join(ends)
    added = f" ({', '.join(marks)})" if marks else ""
    return LogicalDifference(change=change, what="edge", where=where, text=f"the edge {where}{added} was {change}")


def _configurations(old: LogicalGraph, new: LogicalGraph) -> Iterator[LogicalDifference]:
    ours, theirs = ({configuration.id: configuration for configuration in graph.configurations} for graph in (old, new))
    for id_ in ours.keys() - theirs.keys():
        name = ours[id_].name or id_
        yield LogicalDifference(
            change="removed", what="configuration", where=name, text=f"configuration {name!r} was removed"
        )
    for id_ in theirs.keys() - ours.keys():
        name = theirs[id_].name or id_
        yield LogicalDifference(
            change="added", what="configuration", where=name, text=f"configuration {name!r} was added"
        )
    for id_ in sorted(ours.keys() & theirs.keys()):
        before, after = (
            {value[:2]: value[2] for value in configuration.values} for configuration in (ours[id_], theirs[id_])
        )
        if before != after:
            name = theirs[id_].name or id_
            text = f"configuration {name!r} sets other values"
            yield LogicalDifference(
                change="changed", what="configuration", where=name, old=len(before), new=len(after), text=text
            )
    if old.active_configuration != new.active_configuration:
        text = f"the active configuration changed from {old.active_configuration!r} to {new.active_configuration!r}"
        yield LogicalDifference(
            change="changed",
            what="configuration",
            where="active",
            old=old.active_configuration,
            new=new.active_configuration,
            text=text,
        )
