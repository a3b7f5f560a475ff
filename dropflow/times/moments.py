"""The states of all drops at any moment of a session, from the times of its attempts and its present states.

An application is in WRITING from when its first attempt is ready until its last one is committed. Data are in WRITING
from when their first producer begins, and complete when the last one is committed. The journal has no times, and drops
without attempts have none either: those that were skipped, cancelled or taken along are settled when the last of what
they depend on is, and data without producers at the beginning. What is released or deleted now was COMPLETED before.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import levels
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import UNKNOWN_STATE, DropState
from dropflow.times.attempts import AttemptColumns

_OPEN = (DropState.INITIALIZED, DropState.WRITING)
_GONE = (DropState.EXPIRED, DropState.DELETED)
_Seconds = npt.NDArray[np.float64]
_UNKNOWN = -1
"""Row of the cause of a drop without one, and size of a content that is not there."""
_PASSED_ON = (DropState.ERROR, DropState.CANCELLED)
_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Moments:
    """When each drop began and was settled, in seconds since the epoch; infinity if it has not yet.

    Attributes
    ----------
    begun, settled : float64 arrays, shape (drops,)
    last : uint8 array
        The state of each drop from then on; 255 if it is not known.
    start, end : float
        Times of the first and the last change.
    """

    begun: _Seconds
    settled: _Seconds
    last: npt.NDArray[np.uint8]
    start: float
    end: float

    def at(self, time: float) -> npt.NDArray[np.uint8]:
        """Return the state of each drop at a time; after `end`, the present states."""
        if time >= self.end:
            return self.last.copy()
        states = np.where(self.begun <= time, DropState.WRITING.value, DropState.INITIALIZED.value).astype(np.uint8)
        done = self.settled <= time
        states[done] = np.where(np.isin(self.last[done], _GONE), DropState.COMPLETED.value, self.last[done])
        states[self.last == UNKNOWN_STATE] = UNKNOWN_STATE
        return states


def moments_of(graph: PhysicalGraph, attempts: AttemptColumns, states: npt.NDArray[np.uint8]) -> Moments:
    """Return when the drops of a session changed their states.

    Parameters
    ----------
    states : uint8 array
        The present state of each drop; 255 if its node did not answer.
    """
    count = graph.drops
    begun, settled = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(begun, attempts.drop, attempts.ready)
    np.maximum.at(settled, attempts.drop, attempts.committed)
    start, end = attempts.start, attempts.end
    is_app = graph.kinds[graph.template] == Kind.APP
    into, has_times = graph.predecessors, np.zeros(count, np.bool_)
    has_times[attempts.drop] = True
    open_now = np.isin(states, _OPEN)
    settled[~has_times] = start
    # In the order of the graph, since what has no attempt follows from what it depends on.
    level = levels(graph)
    order = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[order], np.arange(int(level.max(initial=-1)) + 2))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[first:last]
        rows = rows[~has_times[rows]]
        lengths = into.ptr[rows + 1] - into.ptr[rows]
        rows, lengths = rows[lengths > 0], lengths[lengths > 0]
        if not len(rows):
            continue
        offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        before = into.neighbour[np.repeat(into.ptr[rows] - offsets, lengths) + np.arange(int(lengths.sum()))]
        settled[rows] = np.maximum.reduceat(settled[before], offsets)
        began = np.minimum.reduceat(begun[before], offsets)
        begun[rows] = np.where(is_app[rows], settled[rows], began)
    begun[(states == DropState.INITIALIZED)] = np.inf
    settled[open_now] = np.inf
    return Moments(begun=begun, settled=settled, last=states.copy(), start=start, end=end)


# The root causes of the drops in ERROR at a moment, from the times of attempts and the graph.
#
# A drop with a failed attempt is its own cause. Any other one in ERROR has the cause of that predecessor, in ERROR or
# cancelled, which was settled first. The core takes the predecessor whose event it handled first, so that a drop behind
# several causes may count for another one of them; the sums are the same.


def failed_at(attempts: AttemptColumns, drops: int, time: float) -> npt.NDArray[np.bool_]:
    """Return which drops had a failed attempt by then."""
    has_failed = np.zeros(drops, np.bool_)
    has_failed[attempts.drop[attempts.failed & (attempts.committed <= time)]] = True
    return has_failed


def causes_at(
    graph: PhysicalGraph, attempts: AttemptColumns, moments: Moments, states: npt.NDArray[np.uint8], time: float
) -> _Rows:
    """Return the row of the root cause of each drop that is in ERROR in `states`, those of the moment; else -1."""
    causes = np.full(graph.drops, _UNKNOWN, np.int64)
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
    causes[~in_error] = _UNKNOWN
    return causes


def size_at(graph: PhysicalGraph, attempts: AttemptColumns, time: float) -> _Rows:
    """Return the size of the content of each data drop by then, as far as attempts recorded it; else -1.

    An attempt has the bytes of all its outputs: they are the size of a content without another output or producer.
    """
    sizes = np.full(graph.drops, _UNKNOWN, np.int64)
    rows = np.flatnonzero(~attempts.failed & (attempts.committed <= time))
    drops = attempts.drop[rows]
    out, into = graph.successors, graph.predecessors
    is_only = np.diff(out.ptr)[drops] == 1
    rows, drops = rows[is_only], drops[is_only]
    target = out.neighbour[out.ptr[drops]]
    is_only = np.diff(into.ptr)[target] == 1
    sizes[target[is_only]] = attempts.records["written"][rows[is_only]]
    return sizes
