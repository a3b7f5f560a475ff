"""All that follows from the attempts of a session: lanes, waits, gaps, and the statistics that are shown."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.times.attempts import AttemptColumns
from dropflow.times.by_template import profile, slowest
from dropflow.times.gaps import GAP_KINDS, Gaps, gaps_of
from dropflow.times.lanes import Lanes, lanes_of
from dropflow.times.octets import pack_columns
from dropflow.times.planned import planned_seconds
from dropflow.times.statistics import NO_TIMES, CriticalStep, LaneUse, NodeTraffic, TimesStatistics
from dropflow.times.waits import DATA, REPETITION, WAITED_FOR, WORKER, Waits, waits_of

__all__ = [
    "Analysis",
    "CriticalStep",
    "LaneUse",
    "TimesStatistics",
    "analyse",
    "lane_name",
    "pack_analysis",
    "profiles_of",
    "statistics_of",
]

_MOST_PAIRS = 10_000


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
    found: Analysis,
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
        What was moved between nodes; the first 10,000 pairs are kept.
    uncounted : tuple of str
        Nodes that received contents which `traffic` may lack.
    """
    attempts, path = found.attempts, found.waits.path
    ran = attempts.ended - attempts.began
    freed = _freed(found)
    waited = attempts.began - freed
    moved = np.where(
        np.isin(found.waits.kind, (DATA, REPETITION)), np.clip(attempts.ready, freed, attempts.began) - freed, 0
    )
    on_path = ran[path] + waited[path]
    longest = np.sort(np.argsort(-on_path, kind="stable")[:most_steps])
    return TimesStatistics(
        attempts=len(attempts),
        failed=int(np.count_nonzero(attempts.failed)),
        began=attempts.start,
        ended=attempts.end,
        templates=profile(found.graph, attempts.records),
        slowest=slowest(found.graph, attempts.records, most),
        critical=tuple(_step(found, one, float(waited[one]), float(moved[one])) for one in path[longest].tolist()),
        critical_steps=len(path),
        critical_ran=float(ran[path].sum()),
        critical_waited=float(waited[path].sum()),
        critical_moved=float(moved[path].sum()),
        lanes=_lane_uses(found),
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


def pack_analysis(found: Analysis) -> bytes:
    """Return what a page draws besides the records: a section with a row for each attempt, in the order of the records.

    The header names the nodes with the number of their attempts, and the logical nodes; ``template`` has the logical
    node of each attempt. ``planned_begin`` and ``planned_end`` are seconds after the first attempt was ready, if the
    graph has a plan.
    """
    attempts, waits = found.attempts, found.waits
    critical = np.zeros(len(attempts), np.uint8)
    critical[waits.path] = 1
    header = {
        "nodes": attempts.nodes,
        "counts": np.bincount(attempts.node, minlength=len(attempts.nodes)).tolist(),
        "templates": [
            {"name": one.name, "key": one.key, "category": one.category, "planned": seconds}
            for one, seconds in zip(found.graph.templates, planned_seconds(found.graph), strict=True)
        ],
    }
    inputs = np.where(np.isfinite(waits.inputs), waits.inputs - attempts.ready, np.nan)
    columns: dict[str, npt.NDArray[Any]] = {
        "template": found.graph.template[attempts.drop].astype("<u4"),
        "before": waits.before.astype("<i4"),
        "slack": waits.slack.astype("<f4"),
        "inputs": inputs.astype("<f4"),
        "kind": waits.kind.astype("|u1"),
        "critical": critical,
    }
    if found.graph.planned is not None:
        for name, times in zip(("planned_begin", "planned_end"), found.graph.planned, strict=True):
            columns[name] = times[attempts.drop].astype("<f4")
    return pack_columns(header, columns)


def _freed(found: Analysis) -> npt.NDArray[np.float64]:
    """Return when what each attempt waited for had happened; when it was ready, if it waited for nothing else."""
    attempts, waits = found.attempts, found.waits
    is_worker = waits.kind == WORKER
    freed = np.where(is_worker, attempts.ended[waits.before], attempts.committed[waits.before])
    return np.minimum(np.where(waits.before >= 0, freed, attempts.ready), attempts.began)


def _step(found: Analysis, one: int, waited: float, moved: float) -> CriticalStep:
    graph, attempts = found.graph, found.attempts
    drop = int(attempts.drop[one])
    return CriticalStep(
        drop=oid(graph, drop),
        name=graph.templates[int(graph.template[drop])].name,
        node=attempts.nodes[int(attempts.node[one])],
        attempt=int(attempts.attempt[one]),
        waited_for=WAITED_FOR[int(found.waits.kind[one])],
        waited=waited,
        moved=moved,
        ran=float(attempts.ended[one] - attempts.began[one]),
        began=float(attempts.began[one]),
        row=drop,
    )


def _lane_uses(found: Analysis) -> tuple[LaneUse, ...]:
    attempts, lanes = found.attempts, found.lanes
    count = np.bincount(lanes.lane, minlength=len(lanes))
    busy = np.bincount(lanes.lane, attempts.ended - attempts.began, minlength=len(lanes))
    idle = {
        kind: np.bincount(lanes.lane, found.gaps.seconds[:, column], minlength=len(lanes))
        for column, kind in enumerate(GAP_KINDS)
    }
    late = _late(found)
    return tuple(
        LaneUse(
            node=attempts.nodes[int(lanes.node[lane])],
            lane=lane_name(int(lanes.worker[lane]), int(lanes.number[lane])),
            attempts=int(count[lane]),
            busy=float(busy[lane]),
            **{kind: float(seconds[lane]) for kind, seconds in idle.items()},
            rest=float(found.gaps.tail[lane]),
            late=None if late is None or np.isnan(late[lane]) else float(late[lane]),
        )
        for lane in range(len(lanes))
    )


def _late(found: Analysis) -> npt.NDArray[np.float64] | None:
    """Return how much later each lane ended than its attempts were to end, or NaN; None without a plan."""
    if found.graph.planned is None:
        return None
    attempts, lane = found.attempts, found.lanes.lane
    planned, ended = (np.full(len(found.lanes), -np.inf) for _ in range(2))
    ends = found.graph.planned[1][attempts.drop].astype(np.float64)
    has_plan = np.isfinite(ends)
    np.maximum.at(planned, lane[has_plan], ends[has_plan])
    np.maximum.at(ended, lane, attempts.ended - attempts.start)
    return np.where(np.isfinite(planned), ended - planned, np.nan)
