"""What each attempt waited for, the critical path of a session as it was executed, and the slack of every attempt.

An attempt begins when the last of three has happened: its inputs are there; an earlier attempt of its drop has failed;
and, if it was ready before that, another attempt has ended, which had its lane or, if its lane was free, what it needed
on its node. The one that happened last is what it waited for. The critical path follows these from the attempt that
ended last back to the beginning.

The slack of an attempt is how much later it could have ended without the session ending later, if all attempts took as
long as they did, and those that waited for a worker still ran on it in the same order. On the critical path it is zero.
(Kelley and Walker 1959, with the order of the workers as further edges.)
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.times.attempts import AttemptColumns
from dropflow.times.lanes import Lanes

__all__ = ["BEGINNING", "DATA", "REPETITION", "WAITED_FOR", "WORKER", "Waits", "executed_path", "waits_of"]

BEGINNING, DATA, REPETITION, WORKER = range(4)
WAITED_FOR = ("beginning", "data", "repetition", "worker")
"""What an attempt waited for: only the beginning of the session; data; a next attempt of its drop; a worker."""

_Indices = npt.NDArray[np.int64]
_Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Waits:
    """What attempts waited for; -1 stands for no attempt.

    Attributes
    ----------
    inputs : float64 array, shape (attempts,)
        When the last input was committed, in seconds since the epoch; -inf without inputs that were computed.
    before : int64 array
        The attempt that it waited for: of another drop whose output it read, of its own, or of `freer`.
    kind : uint8 array
        `BEGINNING`, `DATA`, `REPETITION` or `WORKER`.
    slack : float64 array
        Seconds.
    path : int64 array
        The attempts of the critical path, the first one first.
    previous : int64 array
        The attempt before it on its lane.
    freer : int64 array
        The attempt that had its worker, or what it needed of its node, when it was ready.
    """

    inputs: _Seconds
    before: _Indices
    kind: npt.NDArray[np.uint8]
    slack: _Seconds
    path: _Indices
    previous: _Indices
    freer: _Indices


def waits_of(graph: PhysicalGraph, attempts: AttemptColumns, lanes: Lanes) -> Waits:
    """Return what the attempts of a session waited for.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph.
    attempts : AttemptColumns
        All its attempts.
    lanes : Lanes
        Where they ran.
    """
    last = _last_attempts(graph, attempts)
    inputs, producer = _last_inputs(graph, attempts, last)
    repeated = _previous_in(attempts.drop, attempts.committed)
    previous = _previous_in(lanes.lane, attempts.ended)
    freer = _freers(attempts, previous)
    happened = np.stack([inputs, attempts.committed[repeated], attempts.ended[freer]])
    before = np.stack([producer, repeated, freer])
    # Clocks of nodes differ, and drops run again after a loss: what began later was not waited for.
    rank = _ranks(attempts)
    happened[(before < 0) | (rank[before] >= rank)] = -np.inf
    kind = happened.argmax(axis=0) + 1
    kind[happened.max(axis=0) == -np.inf] = BEGINNING
    chosen = np.where(kind == BEGINNING, -1, before[kind - 1, np.arange(len(attempts))])
    free = np.where(kind == WORKER, attempts.ended[chosen], attempts.committed[chosen])
    begun = np.where(chosen >= 0, free, attempts.began)
    slack = _slack(graph, attempts, begun, repeated, freer)
    return Waits(inputs, chosen, kind.astype(np.uint8), slack, _path(attempts, chosen), previous, freer)


def executed_path(graph: PhysicalGraph, attempts: AttemptColumns, waits: Waits) -> npt.NDArray[np.int32]:
    """Return the drops of the critical path, first to last, with the data between them."""
    out, into = graph.successors, graph.predecessors
    drops: list[int] = []
    for drop in attempts.drop[waits.path].tolist():
        if drops and drop != drops[-1]:
            written = out.neighbour[out.ptr[drops[-1]] : out.ptr[drops[-1] + 1]]
            drops += np.intersect1d(written, into.neighbour[into.ptr[drop] : into.ptr[drop + 1]]).tolist()
        if not drops or drop != drops[-1]:
            drops.append(drop)
    return np.array(drops, dtype=np.int32)


def _freers(attempts: AttemptColumns, previous: _Indices) -> _Indices:
    """Return the attempt whose end each attempt waited for although it was ready, -1 for none.

    It is the one before on its lane. If the lane was free, because the attempt needed more of the node than that, it is
    the last one that had ended on the node when the attempt was given to the runner.
    """
    last = np.full(len(attempts), -1, np.int64)
    for node in range(len(attempts.nodes)):
        here = np.flatnonzero(attempts.node == node)
        ends = here[np.argsort(attempts.ended[here], kind="stable")]
        place = np.searchsorted(attempts.ended[ends], attempts.given[here], side="right") - 1
        last[here] = np.where(place >= 0, ends[place], -1)
    on_lane = (previous >= 0) & (attempts.ended[previous] > attempts.ready)
    found = np.where(on_lane, previous, last)
    return np.where((found >= 0) & (attempts.ended[found] > attempts.ready), found, -1)


def _last_attempts(graph: PhysicalGraph, attempts: AttemptColumns) -> _Indices:
    """Return the last attempt of each drop, -1 for drops without one."""
    found = np.full(graph.drops, -1, np.int64)
    order = np.argsort(attempts.committed, kind="stable")
    found[attempts.drop[order]] = order  # of several, the last one is kept
    return found


def _last_inputs(graph: PhysicalGraph, attempts: AttemptColumns, last: _Indices) -> tuple[_Seconds, _Indices]:
    """Return when the last input of each attempt was there, and which attempt made it."""
    known = last >= 0
    settled = np.full(graph.drops, -np.inf)
    settled[known] = attempts.committed[last[known]]
    maker = last.copy()
    latest, source = _latest_predecessor(graph, settled)
    made = ~known & (latest > -np.inf)  # data, by their writers
    settled[made], maker[made] = latest[made], last[source[made]]
    latest, source = _latest_predecessor(graph, settled)
    producer = np.where(source >= 0, maker[source], -1)
    drop = attempts.drop
    return latest[drop], np.where(latest[drop] > -np.inf, producer[drop], -1)


def _latest_predecessor(graph: PhysicalGraph, settled: _Seconds) -> tuple[_Seconds, _Indices]:
    """Return for each drop the greatest time of its predecessors, and the first predecessor that has it."""
    ptr, neighbour = graph.predecessors.ptr, graph.predecessors.neighbour
    latest, source = np.full(graph.drops, -np.inf), np.full(graph.drops, -1, np.int64)
    has_inputs = np.diff(ptr) > 0
    if not has_inputs.any():
        return latest, source
    values = settled[neighbour]
    latest[has_inputs] = np.maximum.reduceat(values, ptr[:-1][has_inputs])
    target = np.repeat(np.arange(graph.drops), np.diff(ptr))
    hits = np.flatnonzero(values == latest[target])[::-1]
    source[target[hits]] = neighbour[hits]  # of several, the first one is kept
    return latest, source


def _previous_in(group: npt.NDArray[np.integer], ended: _Seconds) -> _Indices:
    """Return for each attempt the one before it in its group, in the order of their ends; -1 for the first."""
    order = np.lexsort((ended, group))
    found = np.full(len(group), -1, np.int64)
    same = group[order][1:] == group[order][:-1]
    found[order[1:][same]] = order[:-1][same]
    return found


def _ranks(attempts: AttemptColumns) -> _Indices:
    """Return the position of each attempt in the order of their begins."""
    found = np.empty(len(attempts), np.int64)
    found[np.lexsort((attempts.committed, attempts.began))] = np.arange(len(attempts))
    return found


def _slack(
    graph: PhysicalGraph,
    attempts: AttemptColumns,
    begun: _Seconds,
    repeated: _Indices,
    freer: _Indices,
) -> _Seconds:
    """Return the slack of each attempt, walking from the last begin to the first.

    An attempt passes the latest time at which it could have begun to what it waited for. `latest` has it for each
    attempt, and `data` for each data drop, from which the attempts that write to it take it.

    Parameters
    ----------
    begun : float64 array
        When what each attempt waited for happened.
    repeated, freer : int64 arrays
        The attempt of the same drop before it, and the one that had its worker.
    """
    end, rank, last = attempts.end, _ranks(attempts), _last_attempts(graph, attempts)
    took = np.maximum(attempts.committed - begun, 0.0).tolist()
    # A worker is free when its attempt has ended, and not when that is committed.
    late = (attempts.committed - attempts.ended).tolist()
    latest = [end] * len(attempts)
    data = [end] * graph.drops
    is_last = (last[attempts.drop] == np.arange(len(attempts))).tolist()
    drops, ranks = attempts.drop.tolist(), rank.tolist()
    back, worker = repeated.tolist(), freer.tolist()
    out_ptr, outputs = graph.successors.ptr.tolist(), graph.successors.neighbour.tolist()
    in_ptr, in_drops = graph.predecessors.ptr.tolist(), graph.predecessors.neighbour.tolist()
    for one in np.argsort(-rank).tolist():
        drop, bound = drops[one], latest[one]
        if is_last[one]:
            for output in outputs[out_ptr[drop] : out_ptr[drop + 1]]:
                bound = min(bound, data[output])
        latest[one] = bound
        begin = bound - took[one]
        other = back[one]
        if other >= 0 and ranks[other] < ranks[one]:
            latest[other] = min(latest[other], begin)
        other = worker[one]
        if other >= 0 and ranks[other] < ranks[one]:
            latest[other] = min(latest[other], begin + late[other])
        for source in in_drops[in_ptr[drop] : in_ptr[drop + 1]]:
            data[source] = min(data[source], begin)
    return np.maximum(np.array(latest) - attempts.committed, 0.0)


def _path(attempts: AttemptColumns, before: _Indices) -> _Indices:
    if not len(attempts):
        return np.zeros(0, np.int64)
    back = before.tolist()
    found = [int(np.lexsort((attempts.began, attempts.committed))[-1])]
    while back[found[-1]] >= 0:
        found.append(back[found[-1]])
    return np.array(found[::-1], np.int64)
