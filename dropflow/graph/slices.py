"""The slices of a placed graph, and the drops that must stay together on one node.

A slice is a physical graph like any other, so that a session treats all edges alike: all edges of an own drop are in
it, in their order, also those to other nodes. A *ghost* represents a drop of another node. Edges between two ghosts are
left out.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.notes import note_processors, processors_of
from dropflow.graph.physical import Adjacency, IntColumn, PhysicalGraph
from dropflow.graph.templates import Axis, ranks_per_node

_ABSENT = np.int32(-1)
FREE = -1
"""Number of the group of a drop without constraint."""


@dataclass(frozen=True)
class Slice:
    """The part of a graph that one node holds.

    Attributes
    ----------
    node : str
        Its name, one of `graph.places`.
    graph : PhysicalGraph
        Its own drops and the ghosts. Templates, links, parts and places are those of the whole graph, so that their
        numbers are the same on every node.
    drop : int32 array, shape (drops here,)
        Row of each drop in the whole graph. In any order: a session that continues with another placement keeps the
        rows of its drops here (see `slice_for`).
    """

    node: str
    graph: PhysicalGraph
    drop: IntColumn

    @cached_property
    def is_own(self) -> npt.NDArray[np.bool_]:
        """Whether a drop belongs to this node, shape (drops here,)."""
        return _is_on(self.node, self.graph)[self.graph.part]

    @cached_property
    def ghosts(self) -> IntColumn:
        """Rows in the graph of the slice of the drops of other nodes, ascending."""
        return np.flatnonzero(~self.is_own).astype(np.int32)

    @cached_property
    def order(self) -> IntColumn:
        """Rows in the graph of the slice of all its drops, in the order of the whole graph."""
        return np.argsort(self.drop, kind="stable").astype(np.int32)

    def local(self, drop: int) -> int | None:
        """Return the row in the slice of a drop of the whole graph; None if it is not in the slice."""
        # Not np.searchsorted: it releases the GIL, which costs far more than the search of a single row.
        rows, order = self._lookup
        at = bisect_left(rows, drop)
        return order[at] if at < len(rows) and rows[at] == drop else None

    def find(self, drops: IntColumn) -> IntColumn:
        """Return the row in the slice of each of many drops of the whole graph; -1 for those not in the slice."""
        if not len(self.drop):
            return np.full(len(drops), _ABSENT, dtype=np.int32)
        rows = self._sorted
        at = np.minimum(np.searchsorted(rows, drops), len(rows) - 1)
        return np.where(rows[at] == drops, self.order[at], _ABSENT)

    @cached_property
    def _sorted(self) -> IntColumn:
        return self.drop[self.order]

    @cached_property
    def _lookup(self) -> tuple[Sequence[int], Sequence[int]]:
        """Rows in the whole graph, ascending, and those in the slice; memoryviews, whose items are Python integers."""
        return self._sorted.data, self.order.data


def slice_for(graph: PhysicalGraph, node: str, *, first: IntColumn | None = None) -> Slice:
    """Return the slice of one node of a placed graph: its own drops and their neighbours.

    Every drop of the graph is an own drop of one slice. Every edge is in the slices of both its ends.

    Parameters
    ----------
    first : int32 array, optional
        Rows of the graph that come first, in this order: those of an earlier slice of this node, from before drops
        were placed elsewhere. So each drop keeps its row in the slice. Those that are no longer own drops nor
        neighbours of own drops stay, without edges. The other rows follow, ascending.

    Raises
    ------
    ValueError
        The graph is not placed, or `first` does not consist of different rows of it.
    """
    if len(graph.places) < graph.parts:
        raise ValueError(f"{graph.parts} parts are on {len(graph.places)} places: place the graph first")
    is_own = _is_on(node, graph)[graph.part]
    out = graph.successors
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    touching = np.flatnonzero(is_own[source] | is_own[out.neighbour])
    source, target, link = source[touching], out.neighbour[touching], out.link[touching]
    is_here = is_own.copy()
    is_here[source] = True
    is_here[target] = True
    rows = _rows(is_here, first)
    local = np.empty(graph.drops, dtype=np.int32)
    local[rows] = np.arange(len(rows), dtype=np.int32)
    piece = replace(
        graph,
        template=_frozen(graph.template[rows]),
        instance=_frozen(graph.instance[rows]),
        part=_frozen(graph.part[rows]),
        successors=_adjacency(len(rows), local[source], local[target], link),
        oids=None if graph.oids is None else _picked(graph, rows),
        rank=None if (rows[1:] > rows[:-1]).all() else rows,
        priority=None if graph.priority is None else _frozen(graph.priority[rows]),
        planned=None,  # only the whole graph is compared with what is executed
    )
    return Slice(node, piece, rows)


def subgraph(graph: PhysicalGraph, rows: IntColumn) -> PhysicalGraph:
    """Return the graph of some drops, in their order, with the edges between them.

    Templates and links are those of the whole graph, so drops keep their ids.

    Parameters
    ----------
    rows : int32 array, shape (drops of the result,)
        Different rows, ascending.
    """
    local = np.full(graph.drops, _ABSENT, dtype=np.int32)
    local[rows] = np.arange(len(rows), dtype=np.int32)
    out = graph.successors
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    inside = np.flatnonzero((local[source] != _ABSENT) & (local[out.neighbour] != _ABSENT))
    return replace(
        graph,
        template=_frozen(graph.template[rows]),
        instance=_frozen(graph.instance[rows]),
        part=_frozen(np.zeros(len(rows), dtype=np.int32)),
        successors=_adjacency(len(rows), local[source[inside]], local[out.neighbour[inside]], out.link[inside]),
        oids=None if graph.oids is None else _picked(graph, rows),
        rank=None,
        priority=None if graph.priority is None else _frozen(graph.priority[rows]),
        planned=None,
        places=(),
    )


def empty_slice(graph: PhysicalGraph, node: str) -> Slice:
    """Return a slice without drops, for a node that will have some of a graph."""
    nowhere = replace(graph, part=_frozen(np.zeros(graph.drops, dtype=np.int32)), places=("",))
    return slice_for(nowhere, node)


def whole_slice(graph: PhysicalGraph) -> Slice:
    """Return the slice of a node that has all drops, wherever the graph is placed. Its columns are not copied."""
    here = np.broadcast_to(np.int32(0), graph.drops)
    return Slice("", replace(graph, part=here, places=("",)), np.arange(graph.drops, dtype=np.int32))


def _is_on(node: str, graph: PhysicalGraph) -> npt.NDArray[np.bool_]:
    """Return which parts are on a node."""
    return np.array([place == node for place in graph.places], dtype=np.bool_)


def _rows(is_here: npt.NDArray[np.bool_], first: IntColumn | None) -> IntColumn:
    """Return the rows of `first`, then the others that are here, ascending."""
    if first is None:
        return _frozen(np.flatnonzero(is_here))
    if len(first) and (first.min() < 0 or first.max() >= len(is_here) or len(np.unique(first)) < len(first)):
        raise ValueError(f"the first rows of a slice must be different rows of {len(is_here)} drops")
    others = is_here.copy()
    others[first] = False
    return _frozen(np.concatenate([first, np.flatnonzero(others)]))


def _adjacency(drops: int, source: IntColumn, target: IntColumn, link: IntColumn) -> Adjacency:
    """Return edges as CSR arrays; those of each source keep their order."""
    if not (source[1:] >= source[:-1]).all():
        order = np.argsort(source, kind="stable")
        source, target, link = source[order], target[order], link[order]
    ptr = np.zeros(drops + 1, dtype=np.int64)
    np.cumsum(np.bincount(source, minlength=drops), out=ptr[1:])
    ptr.flags.writeable = False
    return Adjacency(ptr, _frozen(target), _frozen(link))


def _picked(graph: PhysicalGraph, rows: npt.NDArray[Any]) -> tuple[str, ...]:
    names = graph.oids or ()
    return tuple(names[row] for row in rows.tolist())


def _frozen(column: npt.NDArray[Any]) -> IntColumn:
    converted = column.astype(np.int32, copy=False)
    converted.flags.writeable = False
    return converted


# Drops that must stay together on one node: of an ExclusiveForceNode, an MPI job, a service.
#
# Axes of templates have these constraints. The kind ``exclusive`` is for the content of an ExclusiveForceNode, ``mpi``
# for the ranks of a job, and ``service`` for the drops that start and stop a service. The drops of an exclusive group
# share their node with no other drop, if there are enough nodes.

_EXCLUSIVE, _MPI, _SERVICE = "exclusive", "mpi", "service"


@dataclass(frozen=True)
class PlacementGroups:
    """The groups of a graph.

    Attributes
    ----------
    group : int32 array, shape (drops,)
        Number of the group of each drop; -1 for a drop without constraint.
    names : tuple of str
        Name of the construct of each group, for messages.
    exclusive : bool array, shape (groups,)
        Whether the drops of a group share their node with no other drop.
    """

    group: IntColumn
    names: tuple[str, ...]
    exclusive: npt.NDArray[np.bool_]
    apart: tuple[range, ...] = ()
    """Groups that are to be on different nodes if there are enough: the ranks of an MPI job over several nodes."""

    @property
    def is_exclusive(self) -> npt.NDArray[np.bool_]:
        """Whether a drop is in an exclusive group, shape (drops,)."""
        return np.append(self.exclusive, False)[self.group]

    @property
    def needed(self) -> int:
        """Number of parts with which every exclusive group has a part of its own, and all other drops have one."""
        count = int(self.exclusive.sum())
        return count + int(not self.is_exclusive.all())


def placement_groups(graph: PhysicalGraph) -> PlacementGroups | None:
    """Return the groups of a graph; None if no drop has a constraint.

    Takes time only for the drops of templates that have a constraint. Of nested ExclusiveForceNodes the innermost
    counts. Groups without drops, in a part of a graph, keep their numbers.
    """
    bound = [(row, at) for row, node in enumerate(graph.templates) if (at := binding(node.axes)) is not None]
    if not bound:
        return None
    spaces: dict[str, tuple[int, tuple[Axis, ...]]] = {}
    names: list[str] = []
    exclusive: list[bool] = []
    apart: list[range] = []
    first = np.full(len(graph.templates), FREE, dtype=np.int32)
    step = np.ones(len(graph.templates), dtype=np.int32)
    ranks: dict[int, tuple[int, int]] = {}
    for row, at in bound:
        around, inside = graph.templates[row].axes[:at], graph.templates[row].axes[at:]
        if inside[0].construct not in spaces:
            spaces[inside[0].construct] = (len(names), around)
            count = jobs = prod(axis.size for axis in around)
            if together := ranks_per_node(graph.templates[row]):
                several = -(-inside[-1].size // together)
                count, ranks[row] = jobs * several, (together, several)
                apart += [range(at, at + several) for at in range(len(names), len(names) + count, several)]
            names += [inside[0].name] * count
            exclusive += [inside[0].kind == _EXCLUSIVE] * count
        start, known = spaces[inside[0].construct]
        if around == known:  # an adapter of a loop-aware edge has fewer axes: it is free
            first[row] = start
            step[row] = max(prod(axis.size for axis in inside), 1)
    group = np.full(graph.drops, FREE, dtype=np.int32)
    rows = np.flatnonzero((first != FREE)[graph.template])
    template = graph.template[rows]
    group[rows] = first[template] + graph.instance[rows] // step[template]
    for row, (together, several) in ranks.items():
        mine = rows[template == row]
        job, rank = np.divmod(graph.instance[mine], step[row])
        group[mine] = first[row] + job * several + rank // together
    group.flags.writeable = False
    return PlacementGroups(group, tuple(names), np.array(exclusive, dtype=np.bool_), tuple(apart))


def binding(axes: tuple[Axis, ...]) -> int | None:
    """Return the position of the axis that binds the drops of a template: the innermost exclusive one, else another."""
    for kind in (_EXCLUSIVE, _MPI, _SERVICE):
        positions = [position for position, axis in enumerate(axes) if axis.kind == kind]
        if positions:
            return positions[-1]
    return None


def violations(graph: PhysicalGraph, part: IntColumn) -> tuple[str, ...]:
    """Return in words which constraints a partition does not keep, one text for each construct and constraint."""
    groups = placement_groups(graph)
    if groups is None:
        return ()
    bound = np.flatnonzero(groups.group != FREE)
    parts, count = int(part.max(initial=0)) + 1, len(groups.names)
    pairs = np.unique(groups.group[bound].astype(np.int64) * parts + part[bound])
    group, place = pairs // parts, pairs % parts
    torn = np.bincount(group, minlength=count) > 1
    tenants = np.bincount(place, minlength=parts)
    tenants[np.unique(part[groups.group == FREE])] += 1
    crowded = np.zeros(count, dtype=np.bool_)
    crowded[group[groups.exclusive[group] & (tenants[place] > 1)]] = True
    return (
        *_worded(groups, torn, "have drops on several nodes, which must be on one"),
        *_worded(groups, crowded, "share a node with other drops"),
    )


def _worded(groups: PlacementGroups, wrong: npt.NDArray[np.bool_], what: str) -> list[str]:
    counts: dict[str, int] = {}
    for group in np.flatnonzero(wrong).tolist():
        counts[groups.names[group]] = counts.get(groups.names[group], 0) + 1
    return [f"{count} of {groups.names.count(name)} copies of {name!r} {what}" for name, count in counts.items()]


def kept_together(part: IntColumn, groups: PlacementGroups, parts: int, load: npt.NDArray[np.float64]) -> IntColumn:
    """Return a partition that keeps the constraints, changed as little as possible from one that does not.

    The drops of a group go where most of them are. Exclusive groups get parts of their own: those with the least load
    of other drops, which go to the part that then has the least load. One part remains for the other drops; if there
    are fewer parts than exclusive groups, these share them evenly.

    Parameters
    ----------
    part : int array, shape (drops,)
        Partition of each drop.
    groups : PlacementGroups
        The constraints.
    parts : int
        Number of parts.
    load : float array, shape (drops,)
        Load of each drop.
    """
    made = np.array(part, dtype=np.int32)
    bound = np.flatnonzero(groups.group != FREE)
    home = _majority(made[bound], groups.group[bound], parts)
    if groups.apart:
        _part_jobs(home, groups, np.bincount(made, weights=load, minlength=parts))
    made[bound] = home[groups.group[bound]]
    alone = groups.is_exclusive
    own = min(int(groups.exclusive.sum()), parts - int(not alone.all()))
    if own < 1:
        return made
    loads = np.bincount(made[~alone], weights=load[~alone], minlength=parts)
    order = np.argsort(loads, kind="stable")
    vacated, others = np.sort(order[:own]), order[own:]
    for source in vacated.tolist():
        if not len(others):
            break
        target = others[np.argmin(loads[others])]
        moving = ~alone & (made == source)
        loads[target] += loads[source]
        made[moving] = target
    place = _evenly(groups, vacated)
    made[alone] = place[groups.group[alone]]
    return made


def _majority(part: IntColumn, group: IntColumn, parts: int) -> IntColumn:
    """Return for each group the part with most of its drops, of equal ones the first."""
    groups = int(group.max(initial=-1)) + 1
    counts = np.bincount(group.astype(np.int64) * parts + part, minlength=groups * parts).reshape(groups, parts)
    best: IntColumn = np.argmax(counts, axis=1).astype(np.int32)
    return best


def _part_jobs(home: IntColumn, groups: PlacementGroups, load: npt.NDArray[Any]) -> None:
    """Change the parts of groups that are to be apart: one whose part another has gets the one with the least load."""
    for together in groups.apart:
        taken: set[int] = set()
        for group in together:
            if group < len(home) and home[group] in taken and len(taken) < len(load):
                free = [part for part in range(len(load)) if part not in taken]
                home[group] = min(free, key=load.__getitem__)
            if group < len(home):
                taken.add(int(home[group]))


def _evenly(groups: PlacementGroups, places: npt.NDArray[np.integer]) -> IntColumn:
    """Return the part of each exclusive group, in the order of their numbers; neighbours share if there are too few."""
    count = int(groups.exclusive.sum())
    number = np.cumsum(groups.exclusive) - 1
    chosen: IntColumn = places[np.minimum(number * len(places) // max(count, len(places)), len(places) - 1)]
    return chosen.astype(np.int32)


# Another placement for a graph: the same drops and edges, on other nodes.


def with_placement(graph: PhysicalGraph, part: IntColumn, places: Sequence[str]) -> PhysicalGraph:
    """Return the graph with each drop on the node ``places[part[drop]]``.

    All other columns are shared with `graph`. The nodes keep their shares of the processors; others have none.

    Parameters
    ----------
    part : int array, shape (drops,)
        Partition of each drop. Copied.
    places : sequence of str
        Name of the node of each part.

    Raises
    ------
    ValueError
        The column has another number of rows than the graph, or a part without a place.
    """
    column = np.array(part, dtype=np.int32)
    if len(column) != graph.drops:
        raise ValueError(f"the placement has {len(column)} rows for {graph.drops} drops")
    if len(column) and (column.min() < 0 or column.max() >= len(places)):
        raise ValueError(f"parts {column.min()} to {column.max()} are on {len(places)} places")
    column.flags.writeable = False
    placed = replace(graph, part=column, places=tuple(places))
    if not graph.places or not (known := processors_of(graph)):
        return placed
    shares = dict.fromkeys(places, 0)
    for place, share in zip(graph.places, known, strict=False):
        if place in shares:
            shares[place] += share
    return note_processors(placed, [shares.pop(name, 0) for name in places])
