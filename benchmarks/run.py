"""Whole runs of no-op drops on this machine: microseconds per drop, inline and in worker processes.

The graph is one memory drop, then as many no-op applications with a memory drop each. What is measured is everything
from the session directory to the summary: making the runner (with processes: starting two workers), the journal, tasks,
execution, commits, the core. A fresh process per measurement, best of three.

References in the same run: a plain call of a no-op function per application (inline), and `concurrent.futures.
ProcessPoolExecutor` with one future per application (processes). Usage: ``python benchmarks/run.py [SIZE ...]``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from tests.regular_graphs import fan

SIZES = (1_000, 10_000, 100_000)
WORKERS = 2
REPEATS = 3


def nothing(_: int) -> None:
    """What a no-op application does."""


def measure(runner: str, drops: int) -> dict[str, float]:
    """Seconds of one run, and of its reference."""
    graph = fan(drops)
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        result = local_run.run(graph, Path(directory), RunOptions(runner=runner, workers=WORKERS))
        seconds = time.perf_counter() - started
    if result.states["COMPLETED"] != graph.drops:
        raise SystemExit(f"the run failed: {result}")
    started = time.perf_counter()
    if runner == "inline":
        for number in range(drops // 2):
            nothing(number)
    else:
        with ProcessPoolExecutor(WORKERS) as pool:
            for future in [pool.submit(nothing, number) for number in range(drops // 2)]:
                future.result()
    return {"seconds": seconds, "reference": time.perf_counter() - started, "drops": graph.drops}


def main() -> None:
    """Measure all sizes, each in a process of its own, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", metavar="SIZE", nargs="*", type=int, default=SIZES, help="numbers of drops")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]))))
        return
    rows = []
    for runner in ("inline", "processes"):
        for size in given.sizes:
            command = [sys.executable, __file__, "--one", runner, str(size)]
            runs = [json.loads(subprocess.check_output(command)) for _ in range(REPEATS)]
            best = min(runs, key=lambda run: run["seconds"])
            reference = min(run["reference"] for run in runs)
            rows.append(
                {
                    "runner": runner,
                    "drops": best["drops"],
                    "us_per_drop": round(best["seconds"] / best["drops"] * 1e6, 2),
                    "reference_us_per_drop": round(reference / best["drops"] * 1e6, 3),
                    "ratio": round(best["seconds"] / reference, 2),
                }
            )
    print(json.dumps({"benchmark": "run", "workers": WORKERS, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
