"""The drops that are reached from others along edges: what they were made from, or what depends on them."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import Adjacency, IntColumn

__all__ = ["reached"]

_NARROW = 48
"""Fewer drops at one distance are followed one by one: operations on whole arrays would cost more."""

_Mask = npt.NDArray[np.bool_]


def reached(edges: Adjacency, starts: Iterable[int], may_pass: _Mask | None = None) -> tuple[IntColumn, IntColumn]:
    """Return drops and all that are reached from them, nearest first, and how many edges each is away.

    Drops at the same distance are in the order of their rows.

    Parameters
    ----------
    edges : Adjacency
        The predecessors of a graph lead to what drops were made from, its successors to what depends on them.
    starts : iterable of int
        The drops to begin with.
    may_pass : bool array, shape (drops,), optional
        Which of the other drops are reached, and lead on; all unless given.
    """
    seen = np.zeros(len(edges.ptr) - 1, np.bool_) if may_pass is None else ~may_pass
    frontier = np.array(sorted(set(starts)), np.int32)
    seen[frontier] = True
    rows, away = [frontier], [0]
    while len(frontier):
        frontier = _few_next(edges, frontier, seen) if len(frontier) < _NARROW else _next(edges, frontier, seen)
        rows.append(frontier)
        away.append(away[-1] + 1)
    return np.concatenate(rows), np.repeat(np.array(away, np.int32), [len(part) for part in rows])


def _few_next(edges: Adjacency, frontier: IntColumn, seen: _Mask) -> IntColumn:
    # Elements of a memoryview are plain ints, and much faster to read than elements of an array.
    ptr, neighbour, known = edges.ptr.data, edges.neighbour.data, seen.data
    found = set()
    for drop in frontier.tolist():
        for row in range(ptr[drop], ptr[drop + 1]):
            near = neighbour[row]
            if not known[near]:
                known[near] = True
                found.add(near)
    return np.array(sorted(found), np.int32)


def _next(edges: Adjacency, frontier: IntColumn, seen: _Mask) -> IntColumn:
    begin = edges.ptr[frontier]
    count = edges.ptr[frontier + 1] - begin
    rows = np.arange(int(count.sum()), dtype=np.int64) + np.repeat(begin - (np.cumsum(count) - count), count)
    near = np.unique(edges.neighbour[rows])
    found: IntColumn = near[~seen[near]].astype(np.int32)
    seen[found] = True
    return found
