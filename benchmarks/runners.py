"""What each runner costs: microseconds per application, empty and of a millisecond, at two sizes.

Independent applications, each with its data drop, two at a time, on every runner in the same run: inline, threads,
worker processes, Dask (in this process, and two worker processes of a cluster that is there) and Ray. What is measured
is from the begin of the first attempt to the commit of the last one, as the session has recorded it; the rest of the
run, mostly the start of workers and the end of the session, is given apart. The applications of a millisecond sleep, so
that other programs on the machine disturb less. Each measurement is in a process of its own; best of the repeats.

References in the same run: the same function, a task for each call, on Dask (``Client.map``) and on Ray alone. Runners
whose package is not installed are left out.

Usage: ``python benchmarks/runners.py [SIZE ...] [--repeats N] [--only RUNNER ...]``.
"""

import argparse
import importlib.util
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dropflow.graph.physical import PhysicalGraph
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.times.octets import TIMES_FILE, read_times
from tests.regular_graphs import fan

SIZES = (1_000, 10_000)
WORKERS = 2
KINDS = {
    "inline": "dropflow",
    "threads": "dropflow",
    "processes": "dropflow",
    "dask": "distributed",
    "dask cluster": "distributed",
    "ray": "ray",
    "Dask alone": "distributed",
    "Ray alone": "ray",
}


def work(milliseconds: float) -> None:
    """What an application does."""
    if milliseconds:
        time.sleep(milliseconds / 1000)  # noqa: TID251 - the work


def graph_of(size: int, milliseconds: float) -> PhysicalGraph:
    """Return a graph of `size` independent applications."""
    return fan(2 * size, seconds=milliseconds / 1000)


def run(kind: str, size: int, milliseconds: float, address: str = "") -> tuple[float, float]:
    """Return the seconds of the attempts, and of the rest of the run."""
    graph = graph_of(size, milliseconds)
    runner = f"dask={address}" if address else kind
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        result = local_run.run(graph, Path(directory), RunOptions(runner=runner, workers=WORKERS))
        whole = time.perf_counter() - began
        times = read_times(Path(directory) / TIMES_FILE)
    if result.states["COMPLETED"] != graph.drops:
        raise SystemExit(f"the run failed: {result}")
    start = times["ready"] + times["waited"] + times["queued"]
    apps = times["drop"] > 0  # the root data drop is attempted before the workers are there
    seconds = float((start + times["ran"] + times["committed"]).max() - start[apps].min())
    return seconds, whole - seconds


def run_on_cluster(kind: str, size: int, milliseconds: float) -> tuple[float, float]:
    """Return the same for a Dask cluster of two processes that is there; or of Dask alone."""
    from distributed import Client, LocalCluster  # noqa: PLC0415 - not for other runners

    with LocalCluster(
        n_workers=WORKERS,
        threads_per_worker=1,
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        silence_logs=logging.CRITICAL,
    ) as cluster:
        if kind == "dask cluster":
            return run("", size, milliseconds, cluster.scheduler_address)
        with Client(cluster) as client:
            client.gather(client.map(work, [0.0] * WORKERS, pure=False))
            began = time.perf_counter()
            client.gather(client.map(work, [milliseconds] * size, pure=False))
            return time.perf_counter() - began, 0.0


def run_on_ray(size: int, milliseconds: float) -> tuple[float, float]:
    """Return the seconds of tasks of Ray."""
    import ray  # noqa: PLC0415 - not for other runners

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, configure_logging=False)
    task = ray.remote(work)
    ray.get([task.remote(0.0) for _ in range(10 * WORKERS)])
    began = time.perf_counter()
    ray.get([task.remote(milliseconds) for _ in range(size)])
    seconds = time.perf_counter() - began
    ray.shutdown()
    return seconds, 0.0


def measure(kind: str, size: int, milliseconds: float) -> tuple[float, float]:
    """Return the seconds of the attempts, and of the rest."""
    if kind in ("dask cluster", "Dask alone"):
        return run_on_cluster(kind, size, milliseconds)
    return run_on_ray(size, milliseconds) if kind == "Ray alone" else run(kind, size, milliseconds)


def best(kind: str, size: int, milliseconds: float, repeats: int) -> tuple[float, float]:
    """Return the best of several measurements, each in a process of its own."""
    found = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--one", kind, str(size), str(milliseconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(
                f"{kind}, {size} of {milliseconds} ms ended with {done.returncode}:\n{done.stderr[-4000:]}"
            )
        found.append(tuple(json.loads(done.stdout.splitlines()[-1])))
    return min(seconds for seconds, _ in found), min(rest for _, rest in found)


def main() -> None:
    """Measure, and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    rows = []
    for milliseconds in (0.0, 1.0):
        for size in options.sizes:
            row: dict[str, object] = {"milliseconds": milliseconds, "applications": size}
            base = 0.0
            for kind in sorted(options.only, key=lambda one: one != "processes"):  # first: the others refer to it
                if importlib.util.find_spec(KINDS[kind]) is None:
                    continue
                seconds, rest = best(kind, size, milliseconds, options.repeats)
                base = base or seconds
                row[kind] = {
                    "us_per_application": round(1e6 * seconds / size, 1),
                    "ratio": round(seconds / base, 2),
                    "rest_s": round(rest, 2),
                }
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    print(json.dumps({"runners": rows, "workers": WORKERS}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
    else:
        main()
