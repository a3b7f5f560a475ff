"""The slices of a placed graph: for each node its own drops, and a ghost of every neighbour on another node.

A slice is a physical graph like any other, so that the engine treats all edges alike: all edges of an own drop are in
it, in their order, also those to other nodes. A *ghost* represents a drop of another node. Edges between two ghosts are
left out.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import Adjacency, IntColumn, PhysicalGraph

__all__ = ["Slice", "join", "slice_by_place"]


@dataclass(frozen=True)
class Slice:
    """The part of a graph that one node holds.

    Attributes
    ----------
    node : str
        Its name, one of `graph.places`.
    graph : PhysicalGraph
        Its own drops and the ghosts, in the order of the whole graph. Templates, links, parts and places are those of
        the whole graph, so that their numbers are the same on every node.
    drop : int32 array, shape (drops here,)
        Row of each drop in the whole graph, ascending.
    """

    node: str
    graph: PhysicalGraph
    drop: IntColumn

    @cached_property
    def is_own(self) -> npt.NDArray[np.bool_]:
        """Which drops belong to this node, shape (drops here,)."""
        mine = np.array([place == self.node for place in self.graph.places], dtype=np.bool_)
        return mine[self.graph.part]

    @cached_property
    def ghosts(self) -> IntColumn:
        """Rows in the graph of the slice of the drops of other nodes, ascending."""
        return np.flatnonzero(~self.is_own).astype(np.int32)

    def local(self, drop: int) -> int | None:
        """Return the row in the slice of a drop of the whole graph; None if it is not in the slice."""
        # Not np.searchsorted: it releases the GIL, which costs far more than the search of a single row.
        at = bisect_left(self._rows, drop)
        return at if at < len(self._rows) and self._rows[at] == drop else None

    @cached_property
    def _rows(self) -> Sequence[int]:
        return self.drop.data


def slice_by_place(graph: PhysicalGraph) -> dict[str, Slice]:
    """Return the slices of a placed graph by node, for all nodes with drops.

    Every drop is an own drop of one slice. Every edge is in the slices of both its ends.

    Raises
    ------
    ValueError
        The graph is not placed.
    """
    if len(graph.places) < graph.parts:
        raise ValueError(f"{graph.parts} parts are on {len(graph.places)} places: place the graph first")
    names = sorted(set(graph.places))
    number = {name: at for at, name in enumerate(names)}
    node = np.array([number[name] for name in graph.places], dtype=np.int32)[graph.part]
    out = graph.successors
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    cut = np.flatnonzero(node[source] != node[out.neighbour])
    # An edge is listed under the node of its source, and under that of its target if it is another one.
    edge = np.concatenate([np.arange(graph.edges, dtype=np.int64), cut])
    home = np.concatenate([node[source], node[out.neighbour[cut]]])
    order = np.lexsort((edge, home))
    edge, edge_ends = edge[order], _ends(home[order], len(names))
    own = np.argsort(node, kind="stable").astype(np.int32)
    own_ends = _ends(node[own], len(names))
    slices = {}
    for at, name in enumerate(names):
        mine = own[own_ends[at] : own_ends[at + 1]]
        if not len(mine):
            continue
        here = edge[edge_ends[at] : edge_ends[at + 1]]
        edges = source[here], out.neighbour[here], out.link[here]
        slices[name] = _cut_out(graph, name, mine, edges, is_elsewhere=node != at)
    return slices


def join(slices: Iterable[Slice]) -> PhysicalGraph:
    """Join slices to the whole graph, in its order.

    The drops of missing slices are missing, and the edges to them.

    Raises
    ------
    ValueError
        There are no slices.
    """
    pieces = list(slices)
    if not pieces:
        raise ValueError("nothing to join")
    rows = [np.flatnonzero(piece.is_own) for piece in pieces]
    drop = np.concatenate([piece.drop[own] for piece, own in zip(pieces, rows, strict=True)])
    order = np.argsort(drop, kind="stable")
    drop = drop[order]

    def gathered(columns: Sequence[IntColumn]) -> IntColumn:
        return _frozen(np.concatenate(columns)[order])

    source, target, link = _edges(pieces)
    is_known = np.isin(target, drop)
    source, target, link = (column[is_known] for column in (source, target, link))
    sort = np.lexsort((target, link, source))
    first = pieces[0].graph
    names = None
    if first.oids is not None:
        spelled = [name for piece, own in zip(pieces, rows, strict=True) for name in _picked(piece.graph, own)]
        names = tuple(spelled[at] for at in order.tolist())
    return replace(
        first,
        template=gathered([piece.graph.template[own] for piece, own in zip(pieces, rows, strict=True)]),
        instance=gathered([piece.graph.instance[own] for piece, own in zip(pieces, rows, strict=True)]),
        part=gathered([piece.graph.part[own] for piece, own in zip(pieces, rows, strict=True)]),
        successors=_adjacency(drop, source[sort], target[sort], link[sort]),
        oids=names,
    )


def _cut_out(
    graph: PhysicalGraph,
    name: str,
    own: IntColumn,
    edges: tuple[IntColumn, IntColumn, IntColumn],
    *,
    is_elsewhere: npt.NDArray[np.bool_],
) -> Slice:
    source, target, link = edges
    ghosts = np.unique(np.concatenate([source[is_elsewhere[source]], target[is_elsewhere[target]]]))
    rows = np.sort(np.concatenate([own, ghosts])).astype(np.int32)
    piece = replace(
        graph,
        template=_frozen(graph.template[rows]),
        instance=_frozen(graph.instance[rows]),
        part=_frozen(graph.part[rows]),
        successors=_adjacency(rows, source, target, link),
        oids=None if graph.oids is None else _picked(graph, rows),
    )
    return Slice(name, piece, _frozen(rows))


def _adjacency(rows: IntColumn, source: IntColumn, target: IntColumn, link: IntColumn) -> Adjacency:
    """Return sorted edges between drops of the whole graph as edges between `rows`."""
    ptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(np.bincount(np.searchsorted(rows, source), minlength=len(rows)), out=ptr[1:])
    ptr.flags.writeable = False
    return Adjacency(ptr, _frozen(np.searchsorted(rows, target)), _frozen(link))


def _edges(pieces: Sequence[Slice]) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return source, target and link of every edge, with rows of the whole graph; each from the slice of its source."""
    found: list[list[IntColumn]] = [[], [], []]
    for piece in pieces:
        out = piece.graph.successors
        source = np.repeat(np.arange(piece.graph.drops, dtype=np.int32), np.diff(out.ptr))
        mine = piece.is_own[source]
        for column, values in zip(
            found, (piece.drop[source[mine]], piece.drop[out.neighbour[mine]], out.link[mine]), strict=True
        ):
            column.append(values)
    source, target, link = (np.concatenate(column) for column in found)
    return source, target, link


def _picked(graph: PhysicalGraph, rows: npt.NDArray[Any]) -> tuple[str, ...]:
    names = graph.oids or ()
    return tuple(names[row] for row in rows.tolist())


def _ends(column: IntColumn, values: int) -> list[int]:
    """Return where the rows of each value start in a sorted column, and where the last ones end."""
    found: list[int] = np.searchsorted(column, np.arange(values + 1)).tolist()
    return found


def _frozen(column: npt.NDArray[Any]) -> IntColumn:
    # A copy: a view would keep the columns of all slices in memory.
    own = np.array(column, dtype=np.int32)
    own.flags.writeable = False
    return own
