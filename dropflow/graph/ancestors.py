"""The drops that a drop was made from, back to the roots, with their distances."""

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph

__all__ = ["ancestors"]

_NARROW = 48
"""Fewer drops at one distance are followed one by one: operations on whole arrays would cost more."""


def ancestors(graph: PhysicalGraph, drop: int) -> tuple[IntColumn, IntColumn]:
    """Return a drop and all drops upstream of it, nearest first, and how many edges each is away.

    Drops at the same distance are in the order of their rows.
    """
    seen = np.zeros(graph.drops, np.bool_)
    seen[drop] = True
    frontier = np.array([drop], np.int32)
    rows, away = [frontier], [0]
    while len(frontier):
        frontier = _few_before(graph, frontier, seen) if len(frontier) < _NARROW else _before(graph, frontier, seen)
        rows.append(frontier)
        away.append(away[-1] + 1)
    return np.concatenate(rows), np.repeat(np.array(away, np.int32), [len(part) for part in rows])


def _few_before(graph: PhysicalGraph, frontier: IntColumn, seen: npt.NDArray[np.bool_]) -> IntColumn:
    # Elements of a memoryview are plain ints, and much faster to read than elements of an array.
    ptr, neighbour, known = graph.predecessors.ptr.data, graph.predecessors.neighbour.data, seen.data
    found = set()
    for drop in frontier.tolist():
        for row in range(ptr[drop], ptr[drop + 1]):
            before = neighbour[row]
            if not known[before]:
                known[before] = True
                found.add(before)
    return np.array(sorted(found), np.int32)


def _before(graph: PhysicalGraph, frontier: IntColumn, seen: npt.NDArray[np.bool_]) -> IntColumn:
    begin, end = graph.predecessors.ptr[frontier], graph.predecessors.ptr[frontier + 1]
    count = end - begin
    edges = np.arange(int(count.sum()), dtype=np.int64) + np.repeat(begin - (np.cumsum(count) - count), count)
    reached = np.unique(graph.predecessors.neighbour[edges])
    found: IntColumn = reached[~seen[reached]].astype(np.int32)
    seen[found] = True
    return found
