"""Translates and computes dask arrays of about 1k, 10k and 100k tasks; prints one JSON object.

The arrays are computed as they are, without dask's fusion, so that the number of tasks is known. Chunks are small: it
is the cost of a task that is measured. The references are of the same run: `dask.order`, which dask's own schedulers
call before the first task, for the translation; dask's threaded and synchronous schedulers for the computation.

With ``--processes``, values travel instead: worker processes, and two nodes with one worker each, against
dask.distributed with two processes of one thread (``pip install distributed``). All get the same tasks, without fusion.
Processes and nodes are started before.

    python benchmarks/arrays.py [--sizes 1000 10000] [--repeat 3] [--processes]
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
from dask.core import convert_legacy_graph, flatten
from dask.order import order

from dropflow.dask import Scheduler
from dropflow.dask.translate import translate

SIZES = (1_000, 10_000, 100_000)
_SIDE = 8  # rows and columns of a chunk


def programs(tasks: int) -> Iterator[tuple[str, Any]]:
    """Yield the name of each program, and an array of about this number of tasks."""

    def ones(chunks: int) -> Any:
        return da.ones((chunks * _SIDE, chunks * _SIDE), chunks=_SIDE)

    side = max(2, int((tasks / 4.3) ** 0.5))
    yield "chain and sum", ((ones(side) + 1) * 2).sum()
    yield "x + x.T", (ones(side) + ones(side).T).sum()
    yield "rechunk", ones(max(2, int((tasks / 4.7) ** 0.5))).rechunk(_SIDE * 3 // 2).sum()
    cube = max(2, int((tasks / 1.3) ** (1 / 3)))
    yield "tensordot", da.tensordot(ones(cube), ones(cube), axes=1).sum()


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


def best(function: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Return the least wall-clock time, and the least processor time, of several calls, in seconds."""
    found = []
    for _ in range(repeat):
        wall, processor = time.perf_counter(), time.process_time()
        function()
        found.append((time.perf_counter() - wall, time.process_time() - processor))
    return round(min(one for one, _ in found), 4), round(min(one for _, one in found), 4)


def measure(name: str, array: Any, repeat: int) -> dict[str, Any]:
    """Return the figures of one program."""
    with dask.config.set({"optimization.fuse.active": False}):
        nodes = convert_legacy_graph(dict(array.__dask_graph__()))
    keys = list(flatten(array.__dask_keys__()))
    made = translate(nodes, keys, {})
    ours = {key: -int(made.graph.priority[row]) for row, key in enumerate(made.keys[: made.tasks])}
    theirs = order(nodes)
    first = -len(nodes)
    report: dict[str, Any] = {"program": name, "tasks": made.tasks, "templates": len(made.graph.templates)}
    translated, _ = best(lambda: translate(nodes, keys, {}), repeat)
    ordered, _ = best(lambda: order(nodes), repeat)
    report["translate_s"], report["dask_order_s"] = translated, ordered
    report["held"] = most_held(nodes, set(keys), {key: ours.get(key, first) for key in nodes})
    report["held_dask_order"] = most_held(nodes, set(keys), theirs)
    places: dict[str, Any] = {
        "dropflow_threads": Scheduler().get,
        "dropflow_inline": Scheduler(runner="inline").get,
        "dask_threads": dask.threaded.get,
        "dask_sync": dask.get,
    }
    for place, get in places.items():
        wall, processor = best(lambda get=get: get(nodes, keys), repeat)
        report[place] = {"seconds": wall, "us_per_task": round(1e6 * wall / made.tasks, 1), "processor_s": processor}
    report["threads_ratio"] = round(report["dropflow_threads"]["seconds"] / report["dask_threads"]["seconds"], 2)
    return report


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Start an island with two nodes of one worker, and yield a scheduler for it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.e2e.cluster import Cluster  # noqa: PLC0415 - only with --processes, and after the line above

    with tempfile.TemporaryDirectory() as home, Cluster(Path(home)) as cluster:
        nodes = [cluster.node(name, "--workers", 1) for name in ("one", "two")]
        island = cluster.island(*nodes)
        yield Scheduler(to=island.ready["url"], token=island.ready["token"], progress=False)


def distributed() -> Any:
    """Return a client of dask.distributed with two worker processes."""
    try:
        from distributed import Client  # noqa: PLC0415 - only for the comparison
    except ImportError:
        sys.exit("--processes needs dask.distributed: pip install distributed")
    return Client(n_workers=2, threads_per_worker=1, dashboard_address=None)


def measure_processes(sizes: Sequence[int], repeat: int, only: str) -> list[dict[str, Any]]:
    """Return the figures of all programs where values travel."""
    found = []
    with Scheduler(runner="processes", workers=2) as processes, two_nodes() as nodes, distributed() as client:
        places: dict[str, Callable[..., Any]] = {
            "dropflow_processes": partial(processes.get, fuse_enabled=False),
            "dropflow_nodes": partial(nodes.get, fuse_enabled=False),
            "dask_distributed": client.get,
        }
        for get in places.values():
            get({"x": (abs, -1), "y": (abs, -2)}, ["x", "y"])
        for size in sizes:
            for name, array in programs(size):
                if only not in name:
                    continue
                tasks = convert_legacy_graph(dict(array.__dask_graph__()))
                keys = list(flatten(array.__dask_keys__()))
                report: dict[str, Any] = {"program": name, "tasks": len(tasks)}
                for place, get in places.items():
                    wall, _ = best(lambda get=get, tasks=tasks, keys=keys: get(tasks, keys), repeat)
                    report[place] = {"seconds": wall, "us_per_task": round(1e6 * wall / len(tasks), 1)}
                for place in ("dropflow_processes", "dropflow_nodes"):
                    ratio = report["dask_distributed"]["seconds"] / report[place]["seconds"]
                    report[f"distributed_by_{place.removeprefix('dropflow_')}"] = round(ratio, 2)
                found.append(report)
    return found


def main() -> None:
    """Measure all programs and print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of tasks")
    parser.add_argument("--repeat", type=int, default=3, help="how often each is measured; the best counts")
    parser.add_argument("--program", default="", help="a part of the name of the programs to measure")
    parser.add_argument("--processes", action="store_true", help="where values travel")
    chosen = parser.parse_args()
    if chosen.processes:
        found = measure_processes(chosen.sizes, chosen.repeat, chosen.program)
    else:
        found = [
            measure(name, array, chosen.repeat)
            for size in chosen.sizes
            for name, array in programs(size)
            if chosen.program in name
        ]
    machine = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "dask": dask.__version__}
    print(json.dumps({"arrays": found, "machine": machine}, indent=2))


if __name__ == "__main__":
    main()
