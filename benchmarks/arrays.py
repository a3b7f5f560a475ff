"""Computes dask arrays and data frames of about 1k, 10k and 100k tasks on dropflow and others; prints one JSON object.

Programs and systems are those of `array_programs.py` and `array_systems.py`: the tasks one after another without a
scheduler, which is their own work; dropflow in threads of one process, in two worker processes, and on two nodes;
dask's threads; dask.distributed with two processes, and as on two nodes (a scheduler, and two workers with a nanny
each); Ray with two workers (left out if they are not installed: ``pip install distributed ray xarray
'dask[dataframe]'``). All get the same tasks, not fused by dask, and have computed a small graph before. dropflow runs
chains of them as one unit only with ``--fuse``, as it does by default for users; without it, the cost of each task is
measured. Each measurement has fresh processes, and one system runs at a time.

Memory is the peak of the sum over all processes of a system, the client included, as PSS, sampled ten times a second:
as a whole, and above what they had before the computation. Bytes moved are the contents that nodes, or workers of
dask.distributed, got from each other; Ray does not tell them. Nodes of dropflow on one machine read larger contents
where they lie; these count as moved.

With ``--translation``, only the way to the first task is measured: translation, pickles, and `dask.order`, which dask's
own schedulers call before it.

    python benchmarks/arrays.py [--sizes 1000 10000] [--side 8] [--programs rechunk] [--systems threads] [--limit 120]
"""

import argparse
import importlib.util
import json
import os
import platform
import selectors
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import dask
import psutil
from array_programs import PROGRAMS, graph_of
from array_systems import SYSTEMS
from dask.order import order
from process_memory import MemorySampler

from dropflow.dask.portable import portable
from dropflow.dask.translate import translate

SIZES = (1_000, 10_000, 100_000)
_NEEDS = {"dask.distributed": "distributed", "dask.distributed nodes": "distributed", "Ray": "ray"}
_START_SECONDS = 120.0
_SAME = 1e-6


def most_held(nodes: Mapping[Hashable, Any], wanted: set[Hashable], place: Mapping[Hashable, int]) -> int:
    """Return how many values one worker holds at a time that runs the tasks in an order."""
    uses = dict.fromkeys(nodes, 0)
    for node in nodes.values():
        for key in node.dependencies:
            uses[key] += 1
    held = most = 0
    for key in sorted(nodes, key=place.__getitem__):
        held += 1
        most = max(most, held)
        for other in nodes[key].dependencies:
            uses[other] -= 1
            held -= not uses[other] and other not in wanted
    return most


def best(function: Callable[[], object], repeat: int) -> float:
    """Return the least time of several calls, in seconds."""
    found = []
    for _ in range(repeat):
        started = time.perf_counter()
        function()
        found.append(time.perf_counter() - started)
    return round(min(found), 4)


def translation(program: str, tasks: int, side: int, repeat: int) -> dict[str, Any]:
    """Return the figures of a program until its first task."""
    nodes, keys = graph_of(program, tasks, side)
    made = translate(nodes, keys, {}, runs_constants=True)
    priority = made.graph.priority
    assert priority is not None
    ours = {key: -int(priority[row]) for row, key in enumerate(made.keys[: made.tasks])}
    theirs = order(nodes)
    first = -len(nodes)
    return {
        "program": program,
        "tasks": made.tasks,
        "templates": len(made.graph.templates),
        "translate_s": best(lambda: translate(nodes, keys, {}, runs_constants=True), repeat),
        "pickles_s": best(lambda: portable(made), repeat),
        "dask_order_s": best(lambda: order(nodes), repeat),
        "held": most_held(nodes, set(keys), {key: ours.get(key, first) for key in nodes}),
        "held_dask_order": most_held(nodes, set(keys), theirs),
    }


class _System:
    """A process that computes a program. Killed with all that it has started if it takes too long."""

    def __init__(self, *arguments: str) -> None:
        here = Path(__file__).resolve().parent
        paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(here / "array_systems.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("ARRAYS_STDERR") else subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths.rstrip(os.pathsep)},
            start_new_session=True,
        )
        self.pid = self._process.pid
        assert self._process.stdin is not None  # it is a pipe
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def begin(self) -> None:
        """Let it compute once."""
        self._input.write(b"\n")
        self._input.flush()

    def line(self, seconds: float) -> str:
        """Return its next line; empty if it has ended, or says nothing for this time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            return self._output.readline().decode() if selector.select(seconds) else ""

    def end(self) -> None:
        """End it: its input ends; what is left of it then is killed."""
        family = psutil.Process(self.pid).children(recursive=True) if self._process.poll() is None else []
        self._input.close()
        self._output.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        for one in family:
            if one.is_running():
                one.kill()


def measured(system: str, program: str, tasks: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a program on a system: the least time, and the most memory and bytes moved."""
    repeat, limit = options.repeat, options.limit
    process = _System(system, program, str(tasks), str(options.side), str(repeat), str(int(options.fuse)))
    try:
        if process.line(_START_SECONDS).strip() != "ready":
            return {"failed": "it did not start"}
        before = MemorySampler(process.pid).sample()
        found: list[dict[str, Any]] = []
        peak = 0
        for _ in range(repeat):
            with MemorySampler(process.pid) as memory:
                process.begin()
                line = process.line(limit)
            peak = max(peak, memory.peak)
            if not line:
                return {"failed": f"not within {limit:g} s", "peak_mb": peak >> 20, "above_mb": peak - before >> 20}
            found.append(json.loads(line))
        least = min(found, key=lambda one: one["seconds"])
        return {
            **least,
            "us_per_task": round(1e6 * least["seconds"] / least["tasks"], 1),
            "peak_mb": peak >> 20,
            "above_mb": peak - before >> 20,
        }
    finally:
        process.end()


def compared(systems: list[str], program: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a program on all systems, and the ratios of dropflow to the others."""
    report: dict[str, Any] = {"program": program, "tasks": size, "load": round(os.getloadavg()[0], 1)}
    for system in systems:
        found = measured(system, program, size, options)
        report[system] = found
        report["tasks"] = found.get("tasks", report["tasks"])
        print(f"{program}, {size} tasks, {system}: {found}", file=sys.stderr, flush=True)
    sums = [report[system]["sum"] for system in systems if "sum" in report[system]]
    report["same_values"] = all(abs(one - sums[0]) <= _SAME * max(1.0, abs(sums[0])) for one in sums)
    for ours, theirs in (
        ("dropflow threads", "dask threads"),
        ("dropflow processes", "dask.distributed"),
        ("dropflow nodes", "dask.distributed"),
        ("dropflow nodes", "dask.distributed nodes"),
        ("dropflow processes", "Ray"),
    ):
        mine, other = report.get(ours, {}), report.get(theirs, {})
        if "seconds" in mine and "seconds" in other:
            report[f"{theirs} / {ours}"] = {
                "seconds": round(other["seconds"] / mine["seconds"], 2),
                "above_mb": round(other["above_mb"] / max(mine["above_mb"], 1), 2),
            }
    return report


def main() -> None:
    """Measure, and print the report."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of tasks")
    parser.add_argument("--side", type=int, default=8, help="rows and columns of a chunk")
    parser.add_argument("--repeat", type=int, default=1, help="how often each is measured; the least time counts")
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=PROGRAMS, help="what is computed")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS, help="what computes")
    parser.add_argument(
        "--limit", type=float, default=120.0, help="seconds of one computation, after which it is ended"
    )
    parser.add_argument("--fuse", action="store_true", help="dropflow runs chains of tasks as one unit")
    parser.add_argument("--translation", action="store_true", help="only the way to the first task")
    chosen = parser.parse_args()
    if chosen.translation:
        found = [
            translation(program, size, chosen.side, chosen.repeat)
            for program in chosen.programs
            for size in chosen.sizes
        ]
    else:
        systems = []
        for system in chosen.systems:
            module = _NEEDS.get(system)
            if module is not None and importlib.util.find_spec(module) is None:
                print(f"{system} is left out: {module} is not installed", file=sys.stderr)
            else:
                systems.append(system)
        found = [compared(systems, program, size, chosen) for program in chosen.programs for size in chosen.sizes]
    machine = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "dask": dask.__version__}
    print(json.dumps({"arrays": found, "machine": machine}, indent=2))


if __name__ == "__main__":
    main()
