"""Loss of a node in the middle of a session, and what it costs to be ready for one. Prints one JSON object.

The graph has ten stages of branches (see ``recovery_work.py``): half of the drops are applications, which sleep and
compute a number from what their own branch and the next one wrote in the stage before; the other half are the results,
small numbers in memory. Each of four nodes, processes of this machine with two worker processes, has neighbouring
branches. Every step notes in a file when it starts and ends. Measured:

* ``loss``: the graph, and the graph again while a node is killed (SIGKILL) as soon as half of the steps are done. They
  sleep so long that the run takes ``--seconds`` if nothing else costs time. Seconds: from the kill until the first node
  finds the other one lost (which is ``--lost-after``, and at most a heartbeat less); from there until all have stopped,
  the next view is planned, the last node has continued in it, the next step starts, the first step runs again, and the
  session ends. ``ran_again`` counts starts of steps that were not the first, by the file; ``fewest`` is the
  least possible: attempts that were interrupted, and `must_run_again` with the states at the kill as the file has them,
  those on the lost node too. The results of both runs are compared to the same numbers computed in this process.
* ``readiness``: steps that do not sleep, in turns on three nodes that continue after a loss (``ready``), on three that
  do not (``unready``: only their `FEWEST_VOTERS` is greater), and on three that have neither a journal nor a stored
  copy of the graph (``bare``). ``cpu_s`` is the median of the processor time of the three nodes and their workers,
  ``least_cpu_s`` the least, which other programs disturb least.
  ``cpu_ratio`` is the median over the turns of that of ready nodes to that of the others in the same turn, with
  quartiles, and ``throughput_ratio`` the same for drops per second: 1 means that readiness costs nothing.
* ``decision``: `decide` with the reports of three nodes of four, half of the stages done; best of three.
* ``dask`` and ``ray``: the same steps with the same kill of one of four processes with two threads or workers each,
  with ``--others``; installed from the package index into separate virtual environments. If that fails, the
  output has the reason. Their processes see the end of a connection and do not wait; dropflow waits because a link may
  come back.

Run: ``python benchmarks/recovery.py [--sizes 1000,10000] [--parts readiness] [--others] [--quick]``.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
from cluster_nodes import Run, nodes
from recovery_app import stages
from recovery_others import measure as other
from recovery_work import Log, Record, Shape, repeats, values

from dropflow.clock import SystemClock
from dropflow.execution.content_table import kept_drops
from dropflow.execution.decisions.continuation import must_run_again
from dropflow.execution.journal import Journal
from dropflow.graph.codec import parse
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_for
from dropflow.states import DropState
from managers.deployment import Deployment, Place
from managers.node import host, hosted_session
from managers.node.decisions.view_changes import ViewChanges
from managers.node.directory import SessionDirectory
from managers.node.hosted_session import HostedSession
from managers.recovery import records
from managers.recovery.records import MemberReport, View, ViewDecision, pack_column, unpack_column
from managers.recovery.replan import decide
from managers.recovery.vote import PlanView

_NODES = 4
_WORKERS = 2
_STAGES = 10
_MOST_SECONDS = 300.0

# In the processes of the nodes ----------------------------------------------------------------------------------------


class _Seen(msgspec.Struct):
    """What a node noted: moments in monotonic nanoseconds by what happened, and the decision if it made it."""

    moments: dict[str, int] = {}
    planned: tuple[PlanView, ViewDecision] | None = None
    cpu: float = 0.0


def watch() -> Callable[[], _Seen]:
    """Start to note the steps of a change of view. Returns a function that returns the notes of one run."""
    seen = _Seen()
    before = _processor_seconds()

    def note(name: str, returned: object, *_: object) -> None:
        if returned is not False:
            seen.moments.setdefault(name, time.monotonic_ns())

    def decided(decision: ViewDecision, _graph: PhysicalGraph, plan: PlanView) -> None:
        note("planned", decision)
        seen.planned = seen.planned or (plan, decision)

    _tap(ViewChanges, "lose", lambda *found: note("detected", *found))
    _tap(hosted_session, "report_of", lambda *found: note("stopped", *found))
    _tap(host, "decide", decided)
    _tap(HostedSession, "continue_in", lambda *found: note("continued", *found))

    def notes() -> _Seen:
        nonlocal seen, before
        found, seen = seen, _Seen()
        found.cpu = _processor_seconds() - before
        before += found.cpu
        return found

    return notes


def _tap(place: Any, name: str, after: Callable[..., None]) -> None:
    """Wrap a function: call `after` with its result and its arguments."""
    original = getattr(place, name)

    def tapped(*args: Any, **options: Any) -> Any:
        answer = original(*args, **options)
        after(answer, *args)
        return answer

    setattr(place, name, tapped)


def _processor_seconds() -> float:
    """Return the processor time of this process and its workers."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def watch_unready() -> Callable[[], _Seen]:
    """Have sessions fail when a node is lost, whatever their size; then as `watch`."""
    records.FEWEST_VOTERS = sys.maxsize
    return watch()


def watch_bare() -> Callable[[], _Seen]:
    """Have sessions write no journal and store no graph, too; then as `watch_unready`."""

    def unsaved(_: SessionDirectory, deployment: Deployment) -> PhysicalGraph:
        return parse(deployment.dfg, where=deployment.session)

    _replace(Journal, "append", lambda *_, **__: None)
    _replace(host, "_saved", unsaved)
    return watch_unready()


def _replace(place: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace a function, which must exist."""
    getattr(place, name)
    setattr(place, name, function)


# Loss of a node -------------------------------------------------------------------------------------------------------


def loss(drops: int, seconds: float, lost_after: float) -> dict[str, Any]:
    """Measure one graph without a kill and with one, on the same nodes."""
    with (
        tempfile.TemporaryDirectory() as directory,
        nodes(
            _NODES,
            None,
            watcher=watch,
            workers=_WORKERS,
            suspect_after=lost_after / 2,
            lost_after=lost_after,
            in_place=False,
        ) as found,
    ):
        shape = shape_of(drops, seconds)
        found.run(stages(shape_of(400, 0.2), _NODES))
        whole = found.run(stages(shape, _NODES))
        log = Log(f"{directory}/log")
        graph = replace(stages(shape, _NODES, log.path), places=tuple(place.node for place in found.places))
        kill = _Kill(log, shape, found.processes[0].pid or 0)
        broken = found.run(graph, interfere=kill)
        records = log.records()
    (planned, decision), *_ = [seen.planned for seen in broken.seen if seen.planned is not None]
    detected = min(seen.moments["detected"] for seen in broken.seen if "detected" in seen.moments)
    moments = {
        name: max(seen.moments[name] for seen in broken.seen if name in seen.moments)
        for name in ("stopped", "planned", "continued")
    }
    again = repeats(records)
    started = [
        record.nanoseconds for record in records if record.process > 0 and record.nanoseconds > moments["planned"]
    ]
    if again and started:
        moments |= {"next_step": started[0], "first_again": again[0].nanoseconds}
    kill_to_detected = (detected - kill.moment) / 1e9
    return {
        "drops": graph.drops,
        "steps": shape.steps,
        "step_ms": round(shape.seconds * 1e3, 2),
        "kill_to_detected_s": round(kill_to_detected, 3),
        **{f"detected_to_{name}_s": round((moment - detected) / 1e9, 3) for name, moment in moments.items()},
        "detected_to_end_s": round(broken.finished - kill.time - kill_to_detected, 3),
        "run_s": round(broken.seconds, 3),
        "without_kill_s": round(whole.seconds, 3),
        "ratio": round(broken.seconds / whole.seconds, 2),
        "ran_again": len(again),
        "ran_again_of_all": round(len(again) / shape.steps, 4),
        "decided": int((unpack_column(decision.reset, np.int32).astype(np.int32) < shape.steps).sum()),
        **fewest(graph, planned, kill, records),
        "same_result": _results(whole) == _results(broken) == sorted(values(shape)),
    }


def fewest(graph: PhysicalGraph, plan: PlanView, kill: "_Kill", records: list[Record]) -> dict[str, int]:
    """Return how many steps the lost node had begun and ended, and how many at least must run again."""
    steps = graph.drops // 2
    states, available = np.zeros(graph.drops, dtype=np.uint8), np.zeros(graph.drops, dtype=np.bool_)
    for node, encoded in plan.reports.items():
        report = msgspec.msgpack.decode(encoded, type=MemberReport)
        rows = unpack_column(report.rows, np.int32)
        is_own = np.array([graph.places[part] == node for part in graph.part[rows].tolist()], dtype=np.bool_)
        states[rows[is_own]] = unpack_column(report.states, np.uint8)[is_own]
        available[rows[is_own]] = unpack_column(report.available, np.uint8).astype(bool)[is_own]
    there = [record for record in records if abs(record.process) in kill.workers and record.nanoseconds <= kill.moment]
    ended = {one.number for one in there if one.process < 0}
    interrupted = {one.number for one in there} - ended
    done = np.array(sorted(ended), dtype=np.int64)
    states[done] = states[steps + done] = int(DropState.COMPLETED)
    reset = must_run_again(graph, states.tobytes(), available, kept=kept_drops(graph))
    return {
        "ended_on_lost_node": len(ended),
        "interrupted": len(interrupted),
        "fewest": len(interrupted) + int(reset[:steps].sum()),
    }


def shape_of(drops: int, seconds: float) -> Shape:
    """Return as many steps as half of the drops, which sleep so that all workers together take so many seconds."""
    branches = drops // 2 // _STAGES
    return Shape(_STAGES, branches, seconds * _NODES * _WORKERS / (branches * _STAGES))


class _Kill:
    """Kills a node half way, and keeps what is to be known of that moment."""

    def __init__(self, log: Log, shape: Shape, process: int) -> None:
        self._log = log
        self._shape = shape
        self._process = process
        self.moment = 0
        self.time = 0.0
        self.workers: frozenset[int] = frozenset()

    def __call__(self) -> int:
        """Kill the first node as soon as half of the steps are done: each makes two records."""
        self._log.wait(self._shape.steps, _MOST_SECONDS)
        self.workers = frozenset(child.pid for child in psutil.Process(self._process).children(recursive=True))
        self.moment, self.time = time.monotonic_ns(), SystemClock().now()
        os.kill(self._process, signal.SIGKILL)
        return 0


def _results(run: Run) -> list[int]:
    return sorted(int(body) for body in run.results.values())


# Readiness, and decisions ---------------------------------------------------------------------------------------------


def readiness(drops: int, turns: int) -> dict[str, Any]:
    """Measure runs on nodes that continue after a loss, and on nodes that do not, in turns."""
    graph = stages(shape_of(drops, 0.0), 3)
    kinds = {"ready": watch, "unready": watch_unready, "bare": watch_bare}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    cpu: dict[str, list[float]] = {name: [] for name in kinds}
    with ExitStack() as stack:
        pairs = [
            (name, stack.enter_context(nodes(3, None, watcher=watcher, workers=_WORKERS)))
            for name, watcher in kinds.items()
        ]
        for turn in range(turns + 2):
            for name, found in pairs:
                run = found.run(graph)
                if turn > 1:  # workers start in the first turns
                    seconds[name].append(run.seconds)
                    cpu[name].append(sum(seen.cpu for seen in run.seen))
            pairs = [*pairs[1:], pairs[0]]
    return {
        "drops": graph.drops,
        "turns": turns,
        "seconds": {name: round(statistics.median(found), 3) for name, found in seconds.items()},
        "cpu_s": {name: round(statistics.median(found), 3) for name, found in cpu.items()},
        "least_cpu_s": {name: round(min(found), 3) for name, found in cpu.items()},
        **{
            f"to_{name}": {
                "cpu_ratio": _ratio(cpu["ready"], cpu[name]),
                "throughput_ratio": _ratio(seconds[name], seconds["ready"]),
            }
            for name in ("unready", "bare")
        },
    }


def _ratio(first: list[float], second: list[float]) -> dict[str, Any]:
    """Return the median and the quartiles of the ratios of each turn."""
    found = [one / other for one, other in zip(first, second, strict=True)]
    low, high = np.percentile(found, [25, 75]).tolist()
    return {"median": round(statistics.median(found), 3), "quartiles": [round(low, 3), round(high, 3)]}


def decision(drops: int) -> dict[str, float]:
    """Measure the decision of a loss half way, with a graph that was only read."""
    names = tuple(f"node{number}" for number in range(_NODES))
    graph = replace(stages(shape_of(drops, 0.0), _NODES), places=names)
    steps = graph.drops // 2
    number = np.arange(graph.drops) % steps
    ends, is_data = steps // 2, np.arange(graph.drops) >= steps
    states = np.where(number < ends, int(DropState.COMPLETED), 0).astype(np.uint8)
    available = is_data & (number < ends) & (number >= ends - steps // _STAGES)
    reports = {}
    for name in names[1:]:
        piece = slice_for(graph, name)
        there = pack_column((available[piece.drop] & piece.is_own).astype(np.uint8))
        report = MemberReport(rows=pack_column(piece.drop), states=pack_column(states[piece.drop]), available=there)
        reports[name] = msgspec.msgpack.encode(report)
    view = View(0, tuple(Place(name, f"tcp://{name}", 1) for name in names))
    plan = PlanView((1, 0), view, reports, {names[0]: "killed"})
    taken = []
    for _ in range(3):
        fresh = replace(graph)  # the node that decides reads the graph from its file, so nothing is cached
        start = time.perf_counter()
        found = decide(fresh, plan)
        taken.append(time.perf_counter() - start)
    return {
        "drops": graph.drops,
        "decide_s": round(min(taken), 4),
        "us_per_drop": round(min(taken) / graph.drops * 1e6, 3),
        "reset": len(unpack_column(found.reset, np.int32)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000", help="drops, with commas between")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds that a run takes at least")
    parser.add_argument("--lost-after", type=float, default=3.0, help="seconds of silence after which a node is lost")
    parser.add_argument("--turns", type=int, default=15, help="turns of runs without a loss")
    parser.add_argument("--decisions", default="1000,10000,100000,1000000", help="drops, with commas between")
    parser.add_argument("--others", action="store_true", help="measure Dask and Ray, too")
    parser.add_argument("--dask-sizes", default="1000,10000,100000", help="drops, with commas between")
    parser.add_argument("--ray-sizes", default="1000,10000", help="drops, with commas between")
    parser.add_argument("--dask-python", metavar="PYTHON", help="an interpreter that has dask.distributed")
    parser.add_argument("--ray-python", metavar="PYTHON", help="an interpreter that has Ray")
    parser.add_argument("--parts", default="decision,loss,readiness", help="what to measure, with commas between")
    parser.add_argument("--quick", action="store_true", help="one small graph, few turns, and neither Dask nor Ray")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.decisions, options.turns = "400", "1000,10000", 2
        options.seconds, options.others = 4.0, False
    # Worker processes import the application of the graph from here.
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    sizes = [int(size) for size in options.sizes.split(",")]
    report: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "load": os.getloadavg(),
        "lost_after_s": options.lost_after,
    }
    measured: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "decision": lambda: [decision(int(size)) for size in options.decisions.split(",")],
        "loss": lambda: [loss(size, options.seconds, options.lost_after) for size in sizes],
        "readiness": lambda: [readiness(size, options.turns) for size in sizes],
    }
    report |= {part: measured[part]() for part in options.parts.split(",")}
    for name, others, python in (
        ("dask", options.dask_sizes, options.dask_python),
        ("ray", options.ray_sizes, options.ray_python),
    ):
        shapes = [shape_of(int(size), options.seconds) for size in others.split(",")]
        report[name] = (
            other(name, shapes, python) if options.others else {"available": False, "why": "only with --others"}
        )
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
