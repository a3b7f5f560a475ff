"""Run the steps of `recovery.py` on Ray; called by it. Prints one line of JSON.

Run: ``python benchmarks/recovery_ray.py LOG STAGES BRANCHES SECONDS KILL``, in an environment with ``ray``.
"""

import json
import sys
import time

import ray
from ray.cluster_utils import Cluster
from recovery_work import Log, Shape, step, values

_MOST_SECONDS = 300.0


@ray.remote(num_cpus=1)
def remote_step(log: str, seconds: float, number: int, branches: int, *inputs: int) -> int:
    """Do one step."""
    return step(log, seconds, number, branches, inputs)


def main() -> None:
    """Run, and print what was measured."""
    path, stages, branches, seconds, kill = sys.argv[1:]
    shape = Shape(int(stages), int(branches), float(seconds))
    log = Log(path)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    members = [cluster.add_node(num_cpus=2) for _ in range(4)]
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    ray.get([remote_step.remote("", 0.2, 0, 1) for _ in range(16)])
    started = time.monotonic_ns()
    futures: list[ray.ObjectRef] = []
    for number in range(shape.steps):
        stage, branch = divmod(number, shape.branches)
        first = (stage - 1) * shape.branches
        before = [futures[first + at] for at in (branch, (branch + 1) % shape.branches)] if stage else []
        futures.append(remote_step.remote(path, shape.seconds, number, shape.branches, *before))
    last = futures[-shape.branches :]
    del futures
    killed = 0
    if int(kill):
        log.wait(shape.steps, _MOST_SECONDS)
        killed = time.monotonic_ns()
        cluster.remove_node(members[0], allow_graceful=False)
    results = ray.get(last)
    ended = time.monotonic_ns()
    report = {"run_s": round((ended - started) / 1e9, 3), "same_result": results == values(shape)}
    if killed:
        report["killed_ns"] = killed
        report["kill_to_end_s"] = round((ended - killed) / 1e9, 3)
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
