"""Run the steps of `recovery.py` on Dask; called by it. Prints one line of JSON.

Run: ``python benchmarks/recovery_dask.py LOG STAGES BRANCHES SECONDS KILL``, in an environment with ``distributed``.
"""

import json
import os
import signal
import sys
import time

from distributed import Client, LocalCluster, SchedulerPlugin
from recovery_work import Log, Shape, step, values

_MOST_SECONDS = 300.0


class Losses(SchedulerPlugin):  # type: ignore[misc]
    """Notes when the scheduler removes a worker."""

    def __init__(self) -> None:
        self.moments: list[int] = []

    def remove_worker(self, *_: object, **__: object) -> None:
        """Note the moment."""
        self.moments.append(time.monotonic_ns())


def main() -> None:
    """Run, and print what was measured."""
    path, stages, branches, seconds, kill = sys.argv[1:]
    shape = Shape(int(stages), int(branches), float(seconds))
    log = Log(path)
    graph = {}
    for number in range(shape.steps):
        stage, branch = divmod(number, shape.branches)
        before = [f"s{stage - 1}-{at}" for at in (branch, (branch + 1) % shape.branches)] if stage else []
        graph[f"s{stage}-{branch}"] = (step, path, shape.seconds, number, shape.branches, before)
    last = [f"s{shape.stages - 1}-{branch}" for branch in range(shape.branches)]
    with (
        LocalCluster(n_workers=4, threads_per_worker=2, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        losses = Losses()
        cluster.scheduler.add_plugin(losses)
        client.gather(client.map(abs, range(100)))
        processes = client.run(os.getpid)
        started = time.monotonic_ns()
        futures = client.get(graph, last, sync=False)
        killed = 0
        if int(kill):
            log.wait(shape.steps, _MOST_SECONDS)
            killed = time.monotonic_ns()
            os.kill(min(processes.values()), signal.SIGKILL)
        results = client.gather(futures)
        ended = time.monotonic_ns()
        report = {"run_s": round((ended - started) / 1e9, 3), "same_result": list(results) == values(shape)}
        if killed and losses.moments:
            report["killed_ns"] = killed
            report["kill_to_detected_s"] = round((losses.moments[0] - killed) / 1e9, 3)
            report["detected_to_end_s"] = round((ended - losses.moments[0]) / 1e9, 3)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
