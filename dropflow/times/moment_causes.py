"""The root causes of the drops in ERROR at a moment, from the times of attempts and the graph.

A drop with a failed attempt is its own cause. Any other one in ERROR has the cause of that predecessor, in ERROR or
cancelled, which was settled first. The engine takes the predecessor whose event it handled first, so that a drop behind
several causes may count for another one of them; the sums are the same.
"""

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import levels
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState
from dropflow.times.attempts import AttemptColumns
from dropflow.times.moments import Moments

__all__ = ["causes_at", "failed_at", "size_at"]

_NONE = -1
_PASSED_ON = (DropState.ERROR, DropState.CANCELLED)
_Rows = npt.NDArray[np.int64]


def failed_at(attempts: AttemptColumns, drops: int, time: float) -> npt.NDArray[np.bool_]:
    """Return which drops had a failed attempt by then."""
    found = np.zeros(drops, np.bool_)
    found[attempts.drop[attempts.failed & (attempts.committed <= time)]] = True
    return found


def causes_at(
    graph: PhysicalGraph, attempts: AttemptColumns, moments: Moments, states: npt.NDArray[np.uint8], time: float
) -> _Rows:
    """Return the row of the root cause of each drop that is in ERROR in `states`, those of the moment; else -1."""
    causes = np.full(graph.drops, _NONE, np.int64)
    in_error = states == DropState.ERROR
    if not in_error.any():
        return causes
    own = in_error & failed_at(attempts, graph.drops, time)
    causes[own] = np.flatnonzero(own)
    cancelled = states == DropState.CANCELLED
    causes[cancelled] = np.flatnonzero(cancelled)
    first = np.where(np.isin(states, _PASSED_ON), moments.settled, np.inf)
    into, level = graph.predecessors, levels(graph)
    rows = np.flatnonzero(in_error & ~own)
    rows = rows[np.argsort(level[rows], kind="stable")]
    for some in np.split(rows, np.flatnonzero(np.diff(level[rows])) + 1):
        causes[some] = some
        after = some[into.ptr[some + 1] > into.ptr[some]]
        if not len(after):
            continue
        lengths = into.ptr[after + 1] - into.ptr[after]
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        before = into.neighbour[np.repeat(into.ptr[after] - starts, lengths) + np.arange(int(lengths.sum()))]
        earliest = np.minimum.reduceat(first[before], starts)
        # The first of each group that is the earliest one of it.
        is_it = np.flatnonzero((first[before] == np.repeat(earliest, lengths)) & np.isfinite(first[before]))
        groups, at = np.unique(np.searchsorted(starts, is_it, side="right") - 1, return_index=True)
        causes[after[groups]] = causes[before[is_it[at]]]
    causes[~in_error] = _NONE
    return causes


def size_at(graph: PhysicalGraph, attempts: AttemptColumns, time: float) -> _Rows:
    """Return the size of the content of each data drop by then, as far as attempts recorded it; else -1.

    An attempt has the bytes of all its outputs: they are the size of a content without another output or producer.
    """
    sizes = np.full(graph.drops, _NONE, np.int64)
    rows = np.flatnonzero(~attempts.failed & (attempts.committed <= time))
    drops = attempts.drop[rows]
    out, into = graph.successors, graph.predecessors
    is_only = np.diff(out.ptr)[drops] == 1
    rows, drops = rows[is_only], drops[is_only]
    target = out.neighbour[out.ptr[drops]]
    is_only = np.diff(into.ptr)[target] == 1
    sizes[target[is_only]] = attempts.records["written"][rows[is_only]]
    return sizes
