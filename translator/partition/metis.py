"""Partition with METIS (G. Karypis and V. Kumar, SIAM J. Sci. Comput. 20, 1998), through pymetis.

Both of its methods run, recursive bisection and direct k-way, and the result with the better quality is used: measured,
bisection moves up to twenty times less data on scatters, and sometimes k-way is better. METIS may leave parts empty;
they are filled if there are enough drops.
"""

import heapq
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import topological_order
from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.partition.blocks import cut_evenly
from translator.partition.quality import Quality, quality_of
from translator.partition.weights import edge_volumes, loads, scaled
from translator.stage_options import PartitionOptions

__all__ = ["metis"]

_MOST_LOAD = 10_000
_MOST_VOLUME = 1_000
_LOAD_UNIT = 100
_STEP = 5.0
"""Imbalances beyond the wanted one are compared in steps of this many percent; within a step, data volume decides."""

_Wide = npt.NDArray[np.int64]


def metis(graph: PhysicalGraph, options: PartitionOptions) -> IntColumn:
    """Return the parts of all drops, shape (drops,), with about equal loads and little data between parts.

    The same graph, options and seed give the same parts. They are numbered in topological order of their first drops.
    """
    import pymetis  # noqa: PLC0415 - takes 50 ms to load

    order = topological_order(graph)
    if options.parts >= graph.drops:
        return _numbered(np.arange(graph.drops, dtype=np.int32), order)
    starts, adjacent, eweights = _undirected(graph)
    # Drops without load count a hundredth of the smallest unit, so that they are distributed, too.
    vweights = scaled(loads(graph), least=0, most=_MOST_LOAD) * _LOAD_UNIT + 1
    settings = pymetis.Options(seed=options.seed, ufactor=max(1, round(10 * options.imbalance)))
    found = []
    for recursive in (True, False):
        cut = pymetis.part_graph(
            options.parts,
            adjacency=pymetis.CSRAdjacency(starts, adjacent),
            vweights=vweights,
            eweights=eweights,
            recursive=recursive,
            options=settings,
        )
        part = _filled(graph, np.asarray(cut.vertex_part, dtype=np.int32), options.parts, order)
        found.append((_cost(quality_of(replace(graph, part=part)), options), part))
    return _numbered(min(found, key=lambda one: one[0])[1], order)


def _cost(quality: Quality, options: PartitionOptions) -> tuple[int, float, int, float]:
    excess = max(0.0, quality.imbalance - options.imbalance)
    return int(excess // _STEP), quality.volume_moved, quality.cut_edges, quality.imbalance


def _undirected(graph: PhysicalGraph) -> tuple[_Wide, _Wide, _Wide]:
    """Return starts, neighbours and edge weights with every edge in both directions, as METIS needs them."""
    out, into = graph.successors, graph.predecessors
    starts = out.ptr + into.ptr
    adjacent = np.empty(2 * graph.edges, dtype=np.int64)
    weights = np.empty(2 * graph.edges, dtype=np.int64)
    volumes = scaled(edge_volumes(graph), least=1, most=_MOST_VOLUME)
    by_link = np.ones(len(graph.links), dtype=np.int64)
    by_link[out.link] = volumes
    # The neighbours of a drop are its successors, then its predecessors.
    forth = np.arange(graph.edges) + np.repeat(into.ptr[:-1], np.diff(out.ptr))
    adjacent[forth], weights[forth] = out.neighbour, by_link[out.link]
    back = np.arange(graph.edges) + np.repeat(out.ptr[1:], np.diff(into.ptr))
    adjacent[back], weights[back] = into.neighbour, by_link[into.link]
    return starts, adjacent, weights


def _filled(graph: PhysicalGraph, part: IntColumn, parts: int, order: IntColumn) -> IntColumn:
    """Return the partition with the heaviest parts halved until no part is empty."""
    empty = np.flatnonzero(np.bincount(part, minlength=parts) == 0).tolist()
    if not empty:
        return part
    part, load = part.copy(), loads(graph)
    ordered = order[np.argsort(part[order], kind="stable")]
    groups = np.split(ordered, np.cumsum(np.bincount(part, minlength=parts))[:-1])
    heap = [(-float(load[rows].sum()), -len(rows), number) for number, rows in enumerate(groups) if len(rows) > 1]
    heapq.heapify(heap)
    for new in empty:
        _, _, old = heapq.heappop(heap)
        half = cut_evenly(load[groups[old]], 2)
        groups[new], groups[old] = groups[old][half == 1], groups[old][half == 0]
        part[groups[new]] = new
        for number in (old, new):
            rows = groups[number]
            if len(rows) > 1:
                heapq.heappush(heap, (-float(load[rows].sum()), -len(rows), number))
    return part


def _numbered(part: IntColumn, order: IntColumn) -> IntColumn:
    """Return the partition with parts numbered by their first drops in `order`."""
    names, first = np.unique(part[order], return_index=True)
    number = np.empty(int(part.max(initial=-1)) + 1, dtype=np.int32)
    number[names[np.argsort(first)]] = np.arange(len(names), dtype=np.int32)
    return number[part]
