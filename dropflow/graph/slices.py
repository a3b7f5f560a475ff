"""The slices of a placed graph: for each node its own drops, and a ghost of every neighbour on another node.

A slice is a physical graph like any other, so that the engine treats all edges alike: all edges of an own drop are in
it, in their order, also those to other nodes. A *ghost* represents a drop of another node. Edges between two ghosts are
left out.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import Adjacency, IntColumn, PhysicalGraph

__all__ = ["Slice", "empty_slice", "slice_by_place", "slice_for"]

_ABSENT = np.int32(-1)


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
        """Which drops belong to this node, shape (drops here,)."""
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


def empty_slice(graph: PhysicalGraph, node: str) -> Slice:
    """Return a slice without drops, for a node that will have some of a graph."""
    nowhere = replace(graph, part=_frozen(np.zeros(graph.drops, dtype=np.int32)), places=("",))
    return slice_for(nowhere, node)


def slice_by_place(graph: PhysicalGraph) -> dict[str, Slice]:
    """Return the slices of a placed graph by node, for all nodes with drops.

    Raises
    ------
    ValueError
        The graph is not placed.
    """
    slices = {node: slice_for(graph, node) for node in sorted(set(graph.places)) or [""]}
    return {node: piece for node, piece in slices.items() if piece.graph.drops}


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
    found = column.astype(np.int32, copy=False)
    found.flags.writeable = False
    return found
