"""Cutting a partitioned graph into what each node holds: a graph of its own, and tables of the edges that were cut."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import Adjacency, IntColumn, PhysicalGraph

__all__ = ["Boundary", "NodeSlice", "slice_by_part"]


@dataclass(frozen=True, slots=True)
class Boundary:
    """Edges between drops of one slice and drops elsewhere, one row an edge.

    Attributes
    ----------
    drop : int32 array, shape (cut edges,)
        Row of the drop here, in the slice's own graph.
    part : int32 array, shape (cut edges,)
        Part that holds the drop at the other end.
    remote : int32 array, shape (cut edges,)
        Row of that drop in the whole graph.
    link : int32 array, shape (cut edges,)
        Link that the edge was expanded from.
    """

    drop: IntColumn
    part: IntColumn
    remote: IntColumn
    link: IntColumn

    def __len__(self) -> int:
        return len(self.drop)


@dataclass(frozen=True)
class NodeSlice:
    """What one node holds of a graph.

    Attributes
    ----------
    part : int
        Which part of the graph this is.
    graph : PhysicalGraph
        Its drops, in the order of the whole graph, and the edges among them. Templates, links and places are those of
        the whole graph, so rows of them mean the same everywhere.
    drop : int32 array, shape (drops here,)
        Row of each drop in the whole graph, ascending.
    outgoing : Boundary
        Edges to successors elsewhere, sorted by drop, then link, then remote drop.
    incoming : Boundary
        Edges from predecessors elsewhere, sorted the same way. Merged with the predecessors here by link and by row in
        the whole graph, they give the order of an application's inputs.
    """

    part: int
    graph: PhysicalGraph
    drop: IntColumn
    outgoing: Boundary
    incoming: Boundary


def slice_by_part(graph: PhysicalGraph) -> tuple[NodeSlice, ...]:
    """One slice for every part, in their order; a part without drops has an empty slice.

    Every drop is in one slice; every edge is inside one slice, or in the outgoing table of one and the incoming table
    of another.
    """
    parts = graph.parts
    by_part = np.argsort(graph.part, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(graph.part, minlength=parts))
    first = ends - np.bincount(graph.part, minlength=parts)
    local = np.empty(graph.drops, dtype=np.int32)
    local[by_part] = np.arange(graph.drops, dtype=np.int32) - first[graph.part[by_part]].astype(np.int32)

    edges = _Edges(graph, local)
    slices = []
    for part in range(parts):
        drop = _frozen(by_part[first[part] : ends[part]])
        own = replace(
            graph,
            template=_frozen(graph.template[drop]),
            instance=_frozen(graph.instance[drop]),
            part=_frozen(graph.part[drop]),
            successors=Adjacency(*edges.inside(part, len(drop))),
            oids=None if graph.oids is None else tuple(graph.oids[row] for row in drop.tolist()),
        )
        slices.append(NodeSlice(part, own, drop, edges.outgoing(part), edges.incoming(part)))
    return tuple(slices)


class _Edges:
    """The edges of a graph, sorted three times: those inside a part, and the cut ones by either end."""

    def __init__(self, graph: PhysicalGraph, local: IntColumn) -> None:
        out = graph.successors
        source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
        target, link = out.neighbour, out.link
        part = graph.part
        is_cut = part[source] != part[target]
        # Each of these sorts is stable and its input is sorted by source, link and target already.
        rows = np.flatnonzero(~is_cut)
        rows = rows[np.argsort(part[source[rows]], kind="stable")]
        self._inside = (local[source[rows]], local[target[rows]], link[rows])
        self._inside_ends = _ends(part[source[rows]], graph.parts)

        rows = np.flatnonzero(is_cut)
        rows = rows[np.argsort(part[source[rows]], kind="stable")]
        self._outgoing = (local[source[rows]], part[target[rows]], target[rows], link[rows])
        self._outgoing_ends = _ends(part[source[rows]], graph.parts)

        rows = rows[np.lexsort((source[rows], link[rows], target[rows], part[target[rows]]))]
        self._incoming = (local[target[rows]], part[source[rows]], source[rows], link[rows])
        self._incoming_ends = _ends(part[target[rows]], graph.parts)

    def inside(self, part: int, drops: int) -> tuple[npt.NDArray[np.int64], IntColumn, IntColumn]:
        """Pointers, targets and links of the edges inside a part."""
        here = slice(self._inside_ends[part], self._inside_ends[part + 1])
        source, target, link = (column[here] for column in self._inside)
        ptr = np.zeros(drops + 1, dtype=np.int64)
        np.cumsum(np.bincount(source, minlength=drops), out=ptr[1:])
        ptr.flags.writeable = False
        return ptr, _frozen(target), _frozen(link)

    def outgoing(self, part: int) -> Boundary:
        """The cut edges that start in a part."""
        here = slice(self._outgoing_ends[part], self._outgoing_ends[part + 1])
        return Boundary(*(_frozen(column[here]) for column in self._outgoing))

    def incoming(self, part: int) -> Boundary:
        """The cut edges that end in a part."""
        here = slice(self._incoming_ends[part], self._incoming_ends[part + 1])
        return Boundary(*(_frozen(column[here]) for column in self._incoming))


def _ends(part: IntColumn, parts: int) -> list[int]:
    """Where the rows of each part start, and after them where the last ones end; `part` ascends."""
    counted: list[int] = np.searchsorted(part, np.arange(parts + 1)).tolist()
    return counted


def _frozen(column: npt.NDArray[Any]) -> IntColumn:
    # A copy of its own: a view would keep the columns of all parts alive.
    own = np.array(column, dtype=np.int32)
    own.flags.writeable = False
    return own
