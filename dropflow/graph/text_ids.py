"""Text ids of drops, computed on demand.

An `oid` is ``<prefix>_<template key>_<iid>``; the `iid` is the drop's index tuple with the root level 0 in front,
joined by dashes: ``0-1-3`` is copy 3 inside copy 1. Graphs of other programs keep their own ids.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from dropflow.errors import AmbiguousError, NotFoundError
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Template
from dropflow.ids import DropId
from dropflow.states import DropState

_FEW_ROWS = 16
"""Drops up to which ids are made one by one, and not by columns."""
_MOST_CANDIDATES = 5000
"""Ids that are compared with an unknown one for a suggestion."""
_SHORT_CHARACTERS = 4
"""Characters of the id of a logical node in the short form of a text id."""
SHOWN = 3
"""Most drops that the error for an ambiguous text shows."""


def oid(graph: PhysicalGraph, drop: int) -> str:
    """Return the text id of a drop."""
    if graph.oids is not None:
        return graph.oids[drop]
    template = graph.templates[graph.template[drop]]
    return f"{graph.prefix}_{template.key}_{instance_iid(template, int(graph.instance[drop]))}"


def oids(graph: PhysicalGraph, drops: Iterable[int]) -> list[str]:
    """Return the text ids of many drops, in their order; much faster than one by one."""
    rows = drops if isinstance(drops, np.ndarray) else np.fromiter(drops, dtype=np.int32)
    if graph.oids is not None:
        names = graph.oids
        return [names[row] for row in rows.tolist()]
    if len(rows) <= _FEW_ROWS:
        return [oid(graph, row) for row in rows.tolist()]
    template = graph.template[rows]
    cuts = np.flatnonzero(template[1:] != template[:-1]) + 1
    if len(cuts) * _FEW_ROWS > len(rows) and len(cuts) >= len(graph.templates):
        order = np.argsort(template, kind="stable")
        texts = np.empty(len(rows), dtype=object)
        texts[order] = oids(graph, rows[order])
        return cast(list[str], texts.tolist())
    # Runs of one template: the beginning of the ids is made once for each run.
    instance = graph.instance[rows]
    spelled: list[str] = []
    for start, stop in pairwise([0, *cuts.tolist(), len(rows)]):
        shared = graph.templates[template[start]]
        spelled += _run(f"{graph.prefix}_{shared.key}_0", shared.shape, instance[start:stop])
    return spelled


def _run(head: str, shape: tuple[int, ...], instance: IntColumn) -> list[str]:
    if not shape:
        return [head] * len(instance)
    if len(shape) == 1:
        return [f"{head}-{number}" for number in instance.tolist()]
    # Outer indices repeat: the text of each of their combinations is made once.
    outer, inner = np.divmod(instance, shape[-1])
    known: dict[int, str] = {}
    distinct = np.unique(outer)
    known.update(zip(distinct.tolist(), _run(head, shape[:-1], distinct), strict=True))
    return [f"{known[before]}-{last}" for before, last in zip(outer.tolist(), inner.tolist(), strict=True)]


def index_of(graph: PhysicalGraph, drop: int) -> tuple[int, ...]:
    """Return the index tuple of a drop: one index for each axis of its template, outermost first."""
    return _index(graph.templates[graph.template[drop]].shape, int(graph.instance[drop]))


def iid(graph: PhysicalGraph, drop: int) -> str:
    """Return the instance id of a drop: ``0``, then its index tuple, joined by dashes."""
    return instance_iid(graph.templates[graph.template[drop]], int(graph.instance[drop]))


def label(graph: PhysicalGraph, drop: int) -> str:
    """Return what people call a drop: the name of its logical node, and its index if it has one."""
    name, index = graph.templates[graph.template[drop]].name, "-".join(map(str, index_of(graph, drop)))
    return f"{name} {index}" if index else name


def instance_iid(template: Template, instance: int) -> str:
    """Return the instance id of an instance of a template."""
    if not template.shape:
        return "0"
    inner = ""
    for size in reversed(template.shape[1:]):
        instance, last = divmod(instance, size)
        inner = f"-{last}{inner}"
    return f"0-{instance}{inner}"


def _index(shape: Sequence[int], instance: int) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        instance, last = divmod(instance, size)
        index.append(last)
    return tuple(reversed(index))


def row_of(graph: PhysicalGraph, oid: str) -> int | None:
    """Return the row of the drop with this text id, or None."""
    if graph.oids is not None:
        try:
            return graph.oids.index(oid)
        except ValueError:
            return None
    tail = oid.rpartition("_")[2]
    for row in _templates_of(graph, oid):
        instance = _parse(graph.templates[row].shape, tail)
        rows = np.flatnonzero((graph.template == row) & (graph.instance == instance))
        if len(rows):
            return int(rows[0])
    return None


def drop_of(graph: PhysicalGraph, oid: str) -> DropId:
    """Return the drop with a text id.

    Raises
    ------
    NotFoundError
        No drop has this id. The hint has the nearest ids.
    """
    row = row_of(graph, oid)
    if row is not None:
        return DropId(row)
    if graph.oids is not None:
        raise _unknown(graph, oid, _some(graph.oids))
    rows = _templates_of(graph, oid)
    if rows:
        last = np.flatnonzero(np.isin(graph.template, rows))[-1:]
        close = oids(graph, last.astype(np.int32))
        raise NotFoundError(f"there is no drop {oid!r}", hint=f"its last instance is {close[0]}" if close else "")
    first = np.unique(graph.template, return_index=True)[1][:_MOST_CANDIDATES]
    raise _unknown(graph, oid, oids(graph, first.astype(np.int32)))


def _templates_of(graph: PhysicalGraph, oid: str) -> list[int]:
    """Return the templates whose drops have ids that begin as `oid` does."""
    head = oid.rpartition("_")[0]
    return [row for row, template in enumerate(graph.templates) if f"{graph.prefix}_{template.key}" == head]


def find_drop(graph: PhysicalGraph, text: str, states: Sequence[int] | npt.NDArray[np.uint8] = b"") -> DropId:
    """Return the drop whose text id is `text`, the only one whose id ends in it, or the only one with this name.

    Parameters
    ----------
    states : bytes or uint8 array, shape (drops,)
        `DropState` of every drop, for errors; empty if it is not known.

    Raises
    ------
    NotFoundError
        There is no such drop.
    AmbiguousError
        There are several. The hint names some of them, those in ERROR first.
    """
    try:
        return drop_of(graph, text)
    except NotFoundError:
        # Makes every id of the graph.
        ending = [row for row, name in enumerate(oids(graph, range(graph.drops))) if name.endswith(text)]
        matches = ending or drops_named(graph, text).tolist()
        if len(matches) == 1:
            return DropId(matches[0])
        if not matches:
            raise
    what = "end in" if ending else "are named"
    failed = [row for row in matches if states[row] == DropState.ERROR] if len(states) else []
    first = list(dict.fromkeys((*failed[:SHOWN], *matches[:SHOWN])))[:SHOWN]
    candidates = []
    for row in first:
        # Ids of other programs do not end in the index, so that a name with it finds nothing.
        name = label(graph, row) if graph.oids is None else graph.templates[graph.template[row]].name
        state = DropState(int(states[row])).name if len(states) else ""
        candidates.append(candidate(name, oid(graph, row), state))
    raise ambiguous(text, len(matches), candidates, what=what)


def find_drops(graph: PhysicalGraph, text: str, states: Sequence[int] | npt.NDArray[np.uint8] = b"") -> list[int]:
    """Return the drop that `find_drop` finds, or all drops of the logical node with this name, ascending.

    Raises
    ------
    NotFoundError, AmbiguousError
        As `find_drop`; several drops of one node are not ambiguous.
    """
    try:
        return [find_drop(graph, text, states)]
    except AmbiguousError:
        drops = _drops_of_node(graph, text)
        if not len(drops):
            raise
        return cast(list[int], drops.tolist())


def drops_named(graph: PhysicalGraph, text: str) -> IntColumn:
    """Return the drops that a person may mean by a name, ascending; case only matters between several nodes.

    That is the name of a logical node, for all of its drops, or that name and the indices of one drop behind it, as
    the pages write them: ``Measure``, ``Measure 3``, ``Measure_0-3``.
    """
    of_node = _drops_of_node(graph, text)
    if len(of_node):
        return of_node
    wanted = text.casefold()
    matches: list[int] = []
    for separator in (" ", "_"):
        head, _, tail = wanted.rpartition(separator)
        if not head or not tail:
            continue
        rows = _drops_of_node(graph, head)
        ends = (f"_{tail}", f"_0-{tail}")
        pairs = zip(rows.tolist(), oids(graph, rows), strict=True)
        matches += [row for row, name in pairs if name.casefold().endswith(ends)]
    return np.unique(np.array(matches, dtype=np.int32))


def _drops_of_node(graph: PhysicalGraph, name: str) -> IntColumn:
    """Return the drops of the logical nodes with this name, ascending; case only matters between several nodes."""
    wanted = name.casefold()
    rows = [row for row, template in enumerate(graph.templates) if template.name.casefold() == wanted]
    rows = [row for row in rows if graph.templates[row].name == name] or rows
    return np.flatnonzero(np.isin(graph.template, rows)).astype(np.int32)


def ambiguous(text: str, count: int, candidates: Sequence[str], *, what: str = "end in") -> AmbiguousError:
    """Return the error for an id that is the end of `count` ids, or the name of so many drops, with `candidates`."""
    more = "" if count <= len(candidates) else " or another"
    hint = f"give the name with its index, or the whole id: {' or '.join(candidates)}{more}"
    return AmbiguousError(f"{count} drops {what} {text!r}", hint=hint)


def candidate(name: str, oid: str, state: str = "") -> str:
    """Return how the error for an ambiguous text shows a drop: its `label`, id and state."""
    return f"{name!r} ({oid}, {state})" if state else f"{name!r} ({oid})"


def _parse(shape: tuple[int, ...], tail: str) -> int:
    """Return the instance with an instance id, or -1."""
    pieces = tail.split("-")
    if len(pieces) != len(shape) + 1 or pieces[0] != "0":
        return -1
    instance = 0
    for piece, size in zip(pieces[1:], shape, strict=True):
        # No leading zeros or signs: every drop has exactly one id.
        if not piece.isdecimal() or len(piece) > len(str(size)) or str(int(piece)) != piece or int(piece) >= size:
            return -1
        instance = instance * size + int(piece)
    return instance


def _some(names: Sequence[str]) -> Sequence[str]:
    step = max(1, len(names) // _MOST_CANDIDATES)
    return names[::step]


def _unknown(graph: PhysicalGraph, oid: str, candidates: Sequence[str]) -> NotFoundError:
    close = _near_names(graph, oid) or get_close_matches(oid, candidates, n=SHOWN, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"graph {graph.name} has {graph.drops} drops"
    return NotFoundError(f"there is no drop {oid!r}", hint=hint)


def _near_names(graph: PhysicalGraph, text: str) -> list[str]:
    """Return how the drops of logical nodes are named that a person may mean by `text`; at most `SHOWN` nodes.

    Of a node with several drops, these are its first and its last one.
    """
    nodes: dict[str, int] = {}
    for row, template in enumerate(graph.templates):
        nodes.setdefault(template.name.casefold(), row)
    wanted = text.casefold()
    if not wanted:
        return []
    head = wanted.rstrip("0123456789-").rstrip(" _")
    begins = [name for name in nodes if name.startswith(wanted)]
    near = [head] if head in nodes else begins or get_close_matches(head, nodes, n=SHOWN, cutoff=0.7)
    shown: list[str] = []
    for name in near[:SHOWN]:
        rows = np.flatnonzero(graph.template == nodes[name])
        if len(rows):
            first, last = (repr(label(graph, int(row))) for row in (rows[0], rows[-1]))
            shown.append(first if first == last else f"{first} to {last}")
    return shown


def human_key(oid: str) -> str:
    """Return a short form of a text id for people: without prefix, and with four characters of the node's id."""
    pieces = oid.split("_", 2)
    if len(pieces) == 1:
        return oid
    return "_".join((pieces[1][:_SHORT_CHARACTERS], *pieces[2:]))
