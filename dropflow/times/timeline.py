"""All that follows from the attempts of a session: lanes, waits, gaps, and the statistics that are shown."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.times.attempts import AttemptColumns, last_attempts, planned_seconds
from dropflow.times.octets import pack_columns
from dropflow.times.statistics import (
    NO_TIMES,
    AttemptProfile,
    CriticalStep,
    LaneUse,
    NodeProfile,
    NodeTraffic,
    TimesStatistics,
)

WAITED_FOR = ("beginning", "data", "repetition", "worker")
"""Reasons why an attempt waited: only the beginning of the session; data; a next attempt of its drop; a worker."""
_Indices = npt.NDArray[np.int64]
_Seconds = npt.NDArray[np.float64]
GAP_KINDS = ("data", "message", "worker")
"""Reasons why a lane was idle in a piece of a gap."""
_MOST_PAIRS = 10_000
"""Pairs of nodes whose moved bytes are listed, those that moved most first."""


# The rows of a timeline: a lane for each worker process, and as many as are needed for attempts without one.


@dataclass(frozen=True)
class Lanes:
    """Lanes, those of a node together.

    Attributes
    ----------
    lane : int32 array, shape (attempts,)
        Lane of each attempt.
    node : int32 array, shape (lanes,)
        Index of the node of each lane.
    worker : int64 array, shape (lanes,)
        Number of the worker process of each lane; 0 for attempts without one.
    number : int64 array, shape (lanes,)
        Position among the lanes of its node, from 0.
    """

    lane: npt.NDArray[np.int32]
    node: npt.NDArray[np.int32]
    worker: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.node)


def lanes_of(attempts: AttemptColumns) -> Lanes:
    """Return a lane for each attempt: that of its worker process, or else the lowest that is free when it begins."""
    position = np.zeros(len(attempts), np.int64)
    without = np.flatnonzero(attempts.worker == 0)
    for node in np.unique(attempts.node[without]).tolist():
        here = without[attempts.node[without] == node]
        position[here] = _lowest_free(attempts.began[here], attempts.ended[here])
    keys = np.stack([attempts.node.astype(np.int64), attempts.worker, position])
    lane_keys, lane = np.unique(keys, axis=1, return_inverse=True)
    node = lane_keys[0].astype(np.int32)
    first = np.searchsorted(node, node)
    return Lanes(
        lane=lane.reshape(-1).astype(np.int32),
        node=node,
        worker=lane_keys[1],
        number=np.arange(len(node)) - first,
    )


def _lowest_free(began: npt.NDArray[np.float64], ended: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the lowest number that no interval has which still goes on, for each interval in the order of begins."""
    order = np.lexsort((ended, began))
    lanes = np.zeros(len(began), np.int64)
    starts, ends = began[order], ended[order]
    if (starts[1:] >= np.maximum.accumulate(ends)[:-1]).all():
        return lanes
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    numbers, used = [], 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            number = heapq.heappop(free)
        else:
            number, used = used, used + 1
        heapq.heappush(busy, (end, number))
        numbers.append(number)
    lanes[order] = numbers
    return lanes


# What each attempt waited for, the critical path of a session as it was executed, and the slack of every attempt.
#
# An attempt begins when the last of three has happened: its inputs are there; an earlier attempt of its drop has
# failed; and, if it was ready before that, another attempt has ended, which had its lane or, if its lane was free, what
# it needed on its node. The one that happened last is what it waited for. The critical path follows these from the
# attempt that ended last back to the beginning.
#
# The slack of an attempt is how much later it could have ended without the session ending later, if all attempts took
# as long as they did, and those that waited for a worker still ran on it in the same order. On the critical path it is
# zero. (Kelley and Walker 1959, with the order of the workers as further edges.)

BEGINNING, DATA, REPETITION, WORKER = range(4)


@dataclass(frozen=True)
class Waits:
    """The reasons why attempts waited; -1 stands for no attempt.

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
    last = last_attempts(attempts, graph.drops)
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
    freers = np.where(on_lane, previous, last)
    return np.where((freers >= 0) & (attempts.ended[freers] > attempts.ready), freers, -1)


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
    previous = np.full(len(group), -1, np.int64)
    same = group[order][1:] == group[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _ranks(attempts: AttemptColumns) -> _Indices:
    """Return the position of each attempt in the order of their begins."""
    ranks = np.empty(len(attempts), np.int64)
    ranks[np.lexsort((attempts.committed, attempts.began))] = np.arange(len(attempts))
    return ranks


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
    end, rank, last = attempts.end, _ranks(attempts), last_attempts(attempts, graph.drops)
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
    for row in np.argsort(-rank).tolist():
        drop, bound = drops[row], latest[row]
        if is_last[row]:
            for output in outputs[out_ptr[drop] : out_ptr[drop + 1]]:
                bound = min(bound, data[output])
        latest[row] = bound
        begin = bound - took[row]
        other = back[row]
        if other >= 0 and ranks[other] < ranks[row]:
            latest[other] = min(latest[other], begin)
        other = worker[row]
        if other >= 0 and ranks[other] < ranks[row]:
            latest[other] = min(latest[other], begin + late[other])
        for source in in_drops[in_ptr[drop] : in_ptr[drop + 1]]:
            data[source] = min(data[source], begin)
    return np.maximum(np.array(latest) - attempts.committed, 0.0)


def _path(attempts: AttemptColumns, before: _Indices) -> _Indices:
    if not len(attempts):
        return np.zeros(0, np.int64)
    back = before.tolist()
    steps = [int(np.lexsort((attempts.began, attempts.committed))[-1])]
    while back[steps[-1]] >= 0:
        steps.append(back[steps[-1]])
    return np.array(steps[::-1], np.int64)


# Why workers were idle: the time between two attempts of a lane, in up to three pieces.
#
# Until the last input of the next attempt was committed, its lane waited for data. From then until the attempt was
# ready, it waited for a message: the drop's node had no event yet, or the data were on their way. From then until it
# began, it waited for a worker: other attempts were before it, its needs did not fit, or the session was paused.


@dataclass(frozen=True)
class Gaps:
    """Idle time of lanes before their attempts.

    Attributes
    ----------
    begin : float64 array, shape (attempts,)
        When the lane became free; for the first attempt of a lane, when the session began.
    seconds : float64 array, shape (attempts, 3)
        Length of the pieces, by `GAP_KINDS`, in this order in time.
    tail : float64 array, shape (lanes,)
        Seconds from the last attempt of a lane to the end of the session: nothing was left for it.
    """

    begin: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    tail: npt.NDArray[np.float64]


def gaps_of(attempts: AttemptColumns, lanes: Lanes, waits: Waits) -> Gaps:
    """Return the gaps between the attempts of each lane, explained."""
    known = waits.previous >= 0
    begin = np.where(known, attempts.ended[waits.previous], attempts.start)
    begin = np.minimum(begin, attempts.began)
    ready = np.clip(attempts.ready, begin, attempts.began)
    # What comes again waits for its repetition, and not for a message about its inputs.
    inputs = np.where(attempts.attempt > 1, ready, waits.inputs)
    there = np.clip(inputs, begin, ready)
    seconds = np.stack([there - begin, ready - there, attempts.began - ready], axis=1)
    tail = np.full(len(lanes), attempts.end)
    last = np.full(len(lanes), -np.inf)
    np.maximum.at(last, lanes.lane, attempts.ended)
    return Gaps(begin, seconds, np.maximum(tail - last, 0.0))


# What the attempts of each logical node took: times, processor time, memory and bytes, from their records.


def profile(graph: PhysicalGraph, records: npt.NDArray[Any]) -> tuple[NodeProfile, ...]:
    """Return what the attempts of each logical node took, those that took most together first.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph of the session.
    records : array of `dropflow.times.octets.RECORD`
        Its attempts, of all nodes.
    """
    profiles = _profiles(graph, records)
    return tuple(sorted(profiles, key=lambda node: (-node.seconds, node.name)))


def slowest(graph: PhysicalGraph, attempts: AttemptColumns, most: int) -> tuple[AttemptProfile, ...]:
    """Return the attempts that ran longest, the longest first, with their nodes."""
    rows = np.argsort(-attempts.records["ran"], kind="stable")[:most]
    pairs = zip(described(graph, attempts.records[rows]), attempts.node[rows].tolist(), strict=True)
    return tuple(msgspec.structs.replace(attempt, node=attempts.nodes[node]) for attempt, node in pairs)


def described(graph: PhysicalGraph, records: npt.NDArray[Any]) -> tuple[AttemptProfile, ...]:
    """Return the attempts of some records."""
    return tuple(
        AttemptProfile(
            drop=oid(graph, int(record["drop"])),
            attempt=abs(int(record["attempt"])),
            failed=bool(record["attempt"] < 0),
            waited=float(record["waited"] + record["queued"]),
            ran=float(record["ran"]),
            began=float(record["ready"] + record["waited"] + record["queued"]),
            name=graph.templates[int(graph.template[int(record["drop"])])].name,
            row=int(record["drop"]),
            worker=int(record["worker"]),
            processor=float(record["processor"]),
            memory=int(record["memory"]),
            read=int(record["read"]),
            written=int(record["written"]),
        )
        for record in records
    )


def _profiles(graph: PhysicalGraph, records: npt.NDArray[Any]) -> Iterator[NodeProfile]:
    if not len(records):
        return
    template_of = graph.template[records["drop"]]
    order = np.argsort(template_of, kind="stable")
    rows, first = np.unique(template_of[order], return_index=True)
    planned = planned_seconds(graph)
    for row, group in zip(rows.tolist(), np.split(records[order], first[1:]), strict=True):
        template = graph.templates[row]
        ran = group["ran"].astype(np.float64)
        median, p95 = np.quantile(ran, (0.5, 0.95)).tolist()
        yield NodeProfile(
            name=template.name,
            key=template.key,
            category=template.category,
            attempts=len(group),
            failed=int(np.count_nonzero(group["attempt"] < 0)),
            seconds=float(ran.sum()),
            median=median,
            p95=p95,
            longest=float(ran.max()),
            waited=float(np.median(group["waited"])),
            queued=float(np.median(group["queued"])),
            waited_p95=float(np.quantile(group["waited"] + group["queued"], 0.95)),
            planned=planned[row],
            processor=float(group["processor"].sum(dtype=np.float64)),
            memory=int(group["memory"].max()),
            read=int(group["read"].sum(dtype=np.float64)),
            written=int(group["written"].sum(dtype=np.float64)),
        )


@dataclass(frozen=True)
class Analysis:
    """The attempts of a session, and what follows from them."""

    graph: PhysicalGraph
    attempts: AttemptColumns
    lanes: Lanes
    waits: Waits
    gaps: Gaps


def analyse(graph: PhysicalGraph, attempts: AttemptColumns) -> Analysis:
    """Return what follows from the attempts of a session."""
    lanes = lanes_of(attempts)
    waits = waits_of(graph, attempts, lanes)
    return Analysis(graph, attempts, lanes, waits, gaps_of(attempts, lanes, waits))


def statistics_of(
    analysis: Analysis,
    *,
    most: int = 10,
    most_steps: int = 100,
    missing: tuple[str, ...] = (),
    traffic: tuple[NodeTraffic, ...] = (),
    uncounted: tuple[str, ...] = (),
) -> TimesStatistics:
    """Return the statistics of a session.

    Parameters
    ----------
    most : int
        How many of the slowest attempts.
    most_steps : int
        How many steps of the critical path.
    missing : tuple of str
        Nodes that did not answer.
    traffic : tuple of NodeTraffic
        Contents and bytes that were moved between nodes; the first 10,000 pairs are kept.
    uncounted : tuple of str
        Nodes that received contents which `traffic` may lack.
    """
    attempts, path = analysis.attempts, analysis.waits.path
    ran = attempts.ended - attempts.began
    freed = _freed(analysis)
    waited = attempts.began - freed
    moved = np.where(
        np.isin(analysis.waits.kind, (DATA, REPETITION)), np.clip(attempts.ready, freed, attempts.began) - freed, 0
    )
    on_path = ran[path] + waited[path]
    longest = np.sort(np.argsort(-on_path, kind="stable")[:most_steps])
    return TimesStatistics(
        attempts=len(attempts),
        failed=int(np.count_nonzero(attempts.failed)),
        began=attempts.start,
        ended=attempts.end,
        templates=profile(analysis.graph, attempts.records),
        slowest=slowest(analysis.graph, attempts, most),
        critical=tuple(
            _step(analysis, step, float(waited[step]), float(moved[step])) for step in path[longest].tolist()
        ),
        critical_steps=len(path),
        critical_ran=float(ran[path].sum()),
        critical_waited=float(waited[path].sum()),
        critical_moved=float(moved[path].sum()),
        lanes=_lane_uses(analysis),
        traffic=traffic[:_MOST_PAIRS],
        missing=missing,
        uncounted=uncounted,
    )


def profiles_of(
    graph: PhysicalGraph,
    attempts: AttemptColumns,
    *,
    missing: tuple[str, ...] = (),
    traffic: tuple[NodeTraffic, ...] = (),
    uncounted: tuple[str, ...] = (),
) -> TimesStatistics:
    """Return the statistics that do not follow from what attempts waited for; see `statistics_of`."""
    return msgspec.structs.replace(
        NO_TIMES,
        attempts=len(attempts),
        failed=int(np.count_nonzero(attempts.failed)),
        began=attempts.start,
        ended=attempts.end,
        templates=profile(graph, attempts.records),
        traffic=traffic[:_MOST_PAIRS],
        missing=missing,
        uncounted=uncounted,
    )


def lane_name(worker: int, number: int) -> str:
    """Return the name of a lane on its node."""
    return f"worker {worker}" if worker else f"thread {number + 1}"


def pack_analysis(analysis: Analysis) -> bytes:
    """Return what a page draws besides the records: a section with a row for each attempt, in the order of the records.

    The header names the nodes with the number of their attempts, and the logical nodes; ``template`` has the logical
    node of each attempt. ``planned_begin`` and ``planned_end`` are seconds after the first attempt was ready, if the
    graph has a plan.
    """
    attempts, waits = analysis.attempts, analysis.waits
    critical = np.zeros(len(attempts), np.uint8)
    critical[waits.path] = 1
    header = {
        "nodes": attempts.nodes,
        "counts": np.bincount(attempts.node, minlength=len(attempts.nodes)).tolist(),
        "templates": [
            {"name": template.name, "key": template.key, "category": template.category, "planned": seconds}
            for template, seconds in zip(analysis.graph.templates, planned_seconds(analysis.graph), strict=True)
        ],
    }
    inputs = np.where(np.isfinite(waits.inputs), waits.inputs - attempts.ready, np.nan)
    columns: dict[str, npt.NDArray[Any]] = {
        "template": analysis.graph.template[attempts.drop].astype("<u4"),
        "before": waits.before.astype("<i4"),
        "slack": waits.slack.astype("<f4"),
        "inputs": inputs.astype("<f4"),
        "kind": waits.kind.astype("|u1"),
        "critical": critical,
    }
    if analysis.graph.planned is not None:
        for name, times in zip(("planned_begin", "planned_end"), analysis.graph.planned, strict=True):
            columns[name] = times[attempts.drop].astype("<f4")
    return pack_columns(header, columns)


def _freed(analysis: Analysis) -> npt.NDArray[np.float64]:
    """Return when what each attempt waited for had happened; when it was ready, if it waited for nothing else."""
    attempts, waits = analysis.attempts, analysis.waits
    is_worker = waits.kind == WORKER
    freed = np.where(is_worker, attempts.ended[waits.before], attempts.committed[waits.before])
    return np.minimum(np.where(waits.before >= 0, freed, attempts.ready), attempts.began)


def _step(analysis: Analysis, row: int, waited: float, moved: float) -> CriticalStep:
    graph, attempts = analysis.graph, analysis.attempts
    drop = int(attempts.drop[row])
    return CriticalStep(
        drop=oid(graph, drop),
        name=graph.templates[int(graph.template[drop])].name,
        node=attempts.nodes[int(attempts.node[row])],
        attempt=int(attempts.attempt[row]),
        waited_for=WAITED_FOR[int(analysis.waits.kind[row])],
        waited=waited,
        moved=moved,
        ran=float(attempts.ended[row] - attempts.began[row]),
        began=float(attempts.began[row]),
        row=drop,
    )


def _lane_uses(analysis: Analysis) -> tuple[LaneUse, ...]:
    attempts, lanes = analysis.attempts, analysis.lanes
    count = np.bincount(lanes.lane, minlength=len(lanes))
    busy = np.bincount(lanes.lane, attempts.ended - attempts.began, minlength=len(lanes))
    idle = {
        kind: np.bincount(lanes.lane, analysis.gaps.seconds[:, column], minlength=len(lanes))
        for column, kind in enumerate(GAP_KINDS)
    }
    late = _late(analysis)
    return tuple(
        LaneUse(
            node=attempts.nodes[int(lanes.node[lane])],
            lane=lane_name(int(lanes.worker[lane]), int(lanes.number[lane])),
            attempts=int(count[lane]),
            busy=float(busy[lane]),
            **{kind: float(seconds[lane]) for kind, seconds in idle.items()},
            rest=float(analysis.gaps.tail[lane]),
            late=None if late is None or np.isnan(late[lane]) else float(late[lane]),
        )
        for lane in range(len(lanes))
    )


def _late(analysis: Analysis) -> npt.NDArray[np.float64] | None:
    """Return how much later each lane ended than its attempts were to end, or NaN; None without a plan."""
    if analysis.graph.planned is None:
        return None
    attempts, lane = analysis.attempts, analysis.lanes.lane
    planned, ended = (np.full(len(analysis.lanes), -np.inf) for _ in range(2))
    ends = analysis.graph.planned[1][attempts.drop].astype(np.float64)
    has_plan = np.isfinite(ends)
    np.maximum.at(planned, lane[has_plan], ends[has_plan])
    np.maximum.at(ended, lane, attempts.ended - attempts.start)
    return np.where(np.isfinite(planned), ended - planned, np.nan)
