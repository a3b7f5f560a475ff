"""What computes the programs of `arrays.py`, each in a process of its own, which it calls.

Run: ``python benchmarks/array_systems.py SYSTEM PROGRAM TASKS SIDE REPEAT FUSE``, with 1 for FUSE if dropflow is to
run chains of tasks as one unit, otherwise 0. Prints ``ready`` when the system has started and has computed a small
graph of the program, waits for a line on its standard input, and prints one line of JSON for each computation.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
from array_programs import graph_of

__all__ = ["SYSTEMS"]

_WARM = 40
"""Tasks of the graph that is computed first, so that all processes have their modules."""

Computes = Callable[..., Any]
Moved = Callable[[], int | None]


@contextmanager
def no_scheduler() -> Iterator[tuple[Computes, Moved]]:
    """Call the tasks one after another in this process: what they take by themselves."""
    yield _one_by_one, lambda: 0


def _one_by_one(graph: Mapping[Hashable, Any], keys: list[Hashable]) -> list[Any]:
    """Return the values of keys of a graph; another value is released after its last reader."""
    uses: dict[Hashable, int] = dict.fromkeys(keys, 1)
    order: list[Hashable] = []
    left = [(key, False) for key in keys]
    begun: set[Hashable] = set()
    while left:
        key, is_ready = left.pop()
        if is_ready:
            order.append(key)
        elif key not in begun:
            begun.add(key)
            left.append((key, True))
            for other in graph[key].dependencies:
                uses[other] = uses.get(other, 0) + 1
                left.append((other, False))
    values: dict[Hashable, Any] = {}
    for key in order:
        node = graph[key]
        values[key] = node({other: values[other] for other in node.dependencies})
        for other in node.dependencies:
            uses[other] -= 1
            if not uses[other]:
                del values[other]
    return [values[key] for key in keys]


@contextmanager
def threads() -> Iterator[tuple[Computes, Moved]]:
    """Dropflow in this process."""
    from dropflow.dask import Scheduler  # noqa: PLC0415 - only this system

    yield Scheduler(workers=2).get, lambda: 0


@contextmanager
def processes() -> Iterator[tuple[Computes, Moved]]:
    """Dropflow with two worker processes."""
    from dropflow.dask import Scheduler  # noqa: PLC0415 - only this system

    with Scheduler(runner="processes", workers=2) as found:
        yield found.get, lambda: 0


@contextmanager
def nodes() -> Iterator[tuple[Computes, Moved]]:
    """Dropflow with an island, and two nodes with a worker process each."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from dropflow.dask import Scheduler  # noqa: PLC0415 - only this system
    from dropflow.times.octets import read_sections  # noqa: PLC0415
    from tests.e2e.cluster import Cluster  # noqa: PLC0415 - after the line above

    with tempfile.TemporaryDirectory() as home, Cluster(Path(home)) as cluster:
        island = cluster.island(*(cluster.node(name, "--workers", 1) for name in ("one", "two")))
        client = cluster.client(island)
        found = Scheduler(to=island.ready["url"], token=island.ready["token"], progress=False, keep=True)
        moved = 0

        def count() -> int:
            """Return what all sessions have moved, and delete the last one. What is read in place counts, too."""
            nonlocal moved
            for info in client.sessions():
                sections = read_sections(client.times(info.session).chunks)
                moved += sum(one.size + one.shared_size for each in sections for one in each.received.received)
                client.delete(info.session)
            return moved

        yield found.get, count


@contextmanager
def dask_threads() -> Iterator[tuple[Computes, Moved]]:
    """Dask's scheduler with two threads."""
    import dask.threaded  # noqa: PLC0415 - only this system

    yield partial(dask.threaded.get, num_workers=2), lambda: 0


@contextmanager
def distributed() -> Iterator[tuple[Computes, Moved]]:
    """dask.distributed with two worker processes of one thread."""
    from distributed import Client  # noqa: PLC0415 - only this system

    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None, set_as_default=False) as client:
        yield client.get, lambda: sum(client.run(_sent).values())


@contextmanager
def distributed_nodes() -> Iterator[tuple[Computes, Moved]]:
    """dask.distributed as on two hosts: its commands start a scheduler, and two workers with a nanny each."""
    from distributed import Client  # noqa: PLC0415 - only this system

    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as ended:
        file = Path(home, "scheduler.json")

        def start(*arguments: str) -> None:
            process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=home)
            ended.callback(process.wait)
            ended.callback(process.terminate)

        options = ["--scheduler-file", str(file), "--no-dashboard"]
        start(sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", *options)
        for _ in range(2):
            start(sys.executable, "-m", "distributed.cli.dask_worker", "--nworkers", "1", "--nthreads", "1", *options)
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(2)
            yield client.get, lambda: sum(client.run(_sent).values())


def _sent(dask_worker: Any) -> int:
    """Return the bytes that a worker of dask.distributed has sent to others."""
    return int(dask_worker.transfer_outgoing_bytes_total)


@contextmanager
def ray() -> Iterator[tuple[Computes, Moved]]:
    """Ray with two workers, called by its scheduler for dask."""
    import ray  # noqa: PLC0415 - only this system
    from ray.util.dask import ray_dask_get  # noqa: PLC0415

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        yield ray_dask_get, lambda: None
    finally:
        ray.shutdown()


SYSTEMS: Mapping[str, Callable[[], Any]] = {
    "no scheduler": no_scheduler,
    "dropflow threads": threads,
    "dask threads": dask_threads,
    "dropflow processes": processes,
    "dropflow nodes": nodes,
    "dask.distributed": distributed,
    "dask.distributed nodes": distributed_nodes,
    "Ray": ray,
}


def main() -> None:
    """Compute, and print what was measured."""
    warnings.simplefilter("ignore")
    system, program, tasks, side, repeat, fuse = sys.argv[1:]
    dask.config.set({"dropflow.fuse_enabled": fuse == "1"})
    with contextlib.redirect_stdout(sys.stderr), SYSTEMS[system]() as (get, moved):
        get(*graph_of(program, _WARM, int(side)))
        graph, keys = graph_of(program, int(tasks), int(side))
        print("ready", file=sys.__stdout__, flush=True)
        for _ in range(int(repeat)):
            if not sys.stdin.readline():
                return
            before, started, used = moved(), time.perf_counter(), time.process_time()
            values = get(graph, keys)
            seconds = time.perf_counter() - started
            used = time.process_time() - used
            after = moved()
            report = {
                "tasks": len(graph),
                "seconds": round(seconds, 3),
                "client_processor_s": round(used, 3),
                "moved": None if before is None or after is None else after - before,
                "sum": float(sum(np.sum(np.asarray(value)) for value in values)),
            }
            del values
            print(json.dumps(report), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
