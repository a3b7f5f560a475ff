"""Chains that run as one unit, against `--no-fuse` and against futures: microseconds per application.

Two shapes: chains of ten no-op applications side by side, and one chain of all of them. Each is run in two worker
processes, fused and with ``--no-fuse``, which gives each application to a worker by itself. What is measured is from
the begin of the first attempt to the commit of the last one, as the session has recorded it: journal, tasks, execution,
commits, the core, and not the start of the workers. Fused, not fused and the reference alternate; best of three, each
in a process of its own.

Reference in the same run: `concurrent.futures.ProcessPoolExecutor` with one future per application, in which each
future of a chain is submitted when the one before it is done. Usage: ``python benchmarks/fusion.py [SIZE ...]``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from dropflow.graph.physical import PhysicalGraph, without_fusion
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.times.octets import TIMES_FILE, read_times
from tests.regular_graphs import chain, chains

SIZES = (1_000, 10_000, 100_000)
LENGTH = 10
WORKERS = 2
REPEATS = 3


def nothing(number: int) -> int:
    """What a no-op application does."""
    return number


def graph_of(shape: str, drops: int) -> PhysicalGraph:
    """Return the graph of a shape."""
    return chain(drops) if shape == "one chain" else chains(drops, LENGTH)


def seconds_of_run(graph: PhysicalGraph) -> float:
    """Return how long the attempts of a run take together."""
    with tempfile.TemporaryDirectory() as directory:
        result = local_run.run(graph, Path(directory), RunOptions(runner="processes", workers=WORKERS))
        times = read_times(Path(directory) / TIMES_FILE)
    if result.states["COMPLETED"] != graph.drops:
        raise SystemExit(f"the run failed: {result}")
    begun = times["ready"] + times["waited"] + times["queued"]
    return float((begun + times["ran"] + times["committed"]).max() - begun.min())


def seconds_of_futures(shape: str, apps: int) -> float:
    """Return how long the futures take, without the start of the workers."""
    lengths = [apps] if shape == "one chain" else [LENGTH] * (apps // LENGTH)
    with ProcessPoolExecutor(WORKERS) as pool:
        pool.submit(nothing, 0).result()
        started = time.perf_counter()
        done: SimpleQueue[Future[int]] = SimpleQueue()
        for number in range(len(lengths)):
            pool.submit(nothing, number).add_done_callback(done.put)
        for _ in range(apps):
            number = done.get().result()
            lengths[number] -= 1
            if lengths[number]:
                pool.submit(nothing, number).add_done_callback(done.put)
        return time.perf_counter() - started


def measure(kind: str, shape: str, drops: int) -> float:
    """Return the microseconds per application of one run."""
    graph = graph_of(shape, drops)
    apps = graph.drops // 2
    if kind == "futures":
        return seconds_of_futures(shape, apps) / apps * 1e6
    return seconds_of_run(graph if kind == "fused" else without_fusion(graph)) / apps * 1e6


def main() -> None:
    """Measure all shapes and sizes, each in a process of its own, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", metavar="SIZE", nargs="*", type=int, default=SIZES, help="numbers of applications")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, shape, apps = given.one
        print(measure(kind, shape, int(apps)))
        return
    rows = []
    for shape in ("chains of ten", "one chain"):
        for size in given.sizes:
            best: dict[str, float] = {}
            for _ in range(REPEATS):
                for kind in ("fused", "no_fuse", "futures"):
                    command = [sys.executable, __file__, "--one", kind, shape, str(size)]
                    found = float(subprocess.check_output(command))
                    best[kind] = min(best.get(kind, found), found)
            rows.append(
                {
                    "shape": shape,
                    "drops": graph_of(shape, size).drops,
                    **{f"{kind}_us_per_app": round(found, 1) for kind, found in best.items()},
                    "no_fuse_over_fused": round(best["no_fuse"] / best["fused"], 2),
                    "futures_over_fused": round(best["futures"] / best["fused"], 2),
                }
            )
    print(json.dumps({"benchmark": "fusion", "workers": WORKERS, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
