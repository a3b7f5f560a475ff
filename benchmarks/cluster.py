"""Clusters on this machine: deployment, throughput and encryption. Prints one JSON object.

The graph is as many triples memory -> no-op application -> memory as fit, the first of each on one node and the rest on
the next, so that with several nodes half of the edges cross. Measured:

* ``deploy``: seconds from a graph in memory until every node runs its slice, and drops per second of the run, through
  the REST interface of ``dropflow up`` with 1, 2 and 4 nodes;
* ``local``: the same graph in one process (`dropflow.sessions.local_run`), the reference;
* ``curve``: drops per second on two nodes with a cluster key and without, of the largest graph up to 100,000 drops;
* ``daliuge``: a graph of the same shape on DALiuGE, with ``--daliuge``: installed from the package index into a
  separate virtual environment (see ``cluster_daliuge.py``). If that fails, the output has the reason.

Run: ``python benchmarks/cluster.py [--sizes 10000,100000,1000000] [--nodes 1,2,4] [--daliuge]``.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster_daliuge import measure as daliuge
from cluster_nodes import nodes

from dropflow.api.client import Client
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from managers.keys import ClusterKey, create
from tests.regular_graphs import triples

# Through the commands, as users run them ------------------------------------------------------------------------------


@contextmanager
def up(nodes: int, *, workers: int | None = None) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    """Run ``dropflow up``; the client is of its master, and the process is that of the command."""
    with tempfile.TemporaryDirectory() as root:
        key = Path(root) / "keys" / "cluster.key"
        create(key)
        command = [sys.executable, "-m", "dropflow", "up", "--nodes", str(nodes), "--port", "0"]
        command += [] if workers is None else ["--workers", str(workers)]
        process = subprocess.Popen(
            [*command, "--root", f"{root}/up", "--key", str(key), "--log-level", "warning"], stdout=subprocess.PIPE
        )
        try:
            line = process.stdout.readline() if process.stdout is not None else b""
            if not line:
                raise SystemExit("dropflow up did not start; see its error above")
            ready = json.loads(line)
            with Client(ready["master"], token=ready["token"], timeout=120.0) as client:
                yield client, process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def managed(drops: int, nodes: int, repeats: int) -> dict[str, float]:
    """Measure deployment and run of one graph; medians without the first run, which starts the workers."""
    graph = triples(drops, nodes)
    deploy, run = [], []
    with up(nodes) as (client, _):
        for turn in range(repeats + 1):
            start = time.perf_counter()
            session = client.submit(triples(min(drops, 3000), nodes) if turn == 0 else graph).session
            deployed = time.perf_counter() - start
            deque(client.events(session), maxlen=0)
            detail = client.session(session)
            if detail.status != "FINISHED":
                raise SystemExit(f"the session on {nodes} nodes ended {detail.status}: {detail.text}")
            if turn:
                deploy.append(deployed)
                run.append(detail.seconds)
            client.delete(session)
    seconds = statistics.median(run)
    return {
        "nodes": nodes,
        "drops": graph.drops,
        "deploy_s": round(statistics.median(deploy), 3),
        "run_s": round(seconds, 3),
        "drops_per_s": round(graph.drops / seconds),
    }


def alone(drops: int) -> dict[str, float]:
    """Measure the same graph by `dropflow.sessions.local_run`, in worker processes (as on a node) and inline."""
    graph = triples(drops, 1)
    report: dict[str, float] = {}
    for runner in ("processes", "inline"):
        with tempfile.TemporaryDirectory() as directory:
            start = time.perf_counter()
            result = local_run.run(graph, Path(directory), RunOptions(runner=runner))
            if result.states.get("COMPLETED") != graph.drops:
                raise SystemExit(f"the run failed: {result}")
            report[f"{runner}_drops_per_s"] = round(graph.drops / (time.perf_counter() - start))
    return report


# Node managers alone, with a key or without ---------------------------------------------------------------------------


def curve(drops: int, key: ClusterKey, repeats: int) -> dict[str, float]:
    """Measure drops per second on two nodes, with a key and without, in turns."""
    graph = triples(drops, 2)
    seconds: dict[str, list[float]] = {"encrypted": [], "plain": []}
    with nodes(2, key) as encrypted, nodes(2, None) as plain:
        for turn in range(repeats + 1):
            for name, cluster in (("encrypted", encrypted), ("plain", plain)):
                run = cluster.run(triples(3000, 2) if turn == 0 else graph)
                if turn:
                    seconds[name].append(run.seconds)
    report: dict[str, float] = {
        f"{name}_drops_per_s": round(graph.drops / statistics.median(taken)) for name, taken in seconds.items()
    }
    report["ratio"] = round(report["encrypted_drops_per_s"] / report["plain_drops_per_s"], 2)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000", help="drops, with commas between")
    parser.add_argument("--nodes", default="1,2,4", help="numbers of nodes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--daliuge", action="store_true", help="measure DALiuGE, too")
    parser.add_argument("--daliuge-sizes", default="3000,30000", help="drops, with commas between")
    parser.add_argument("--daliuge-python", metavar="PYTHON", help="an interpreter that has it")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    report: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "managed": [],
        "local": [],
    }
    for size in sizes:
        report["local"].append({"drops": size, **alone(size)})
        for count in map(int, options.nodes.split(",")):
            report["managed"].append(managed(size, count, options.repeats))
    with tempfile.TemporaryDirectory() as directory:
        key = create(Path(directory) / "keys" / "cluster.key")
        report["curve"] = curve(min(max(sizes), 100_000), key, options.repeats)
    if options.daliuge:
        graphs = [triples(int(size), nodes) for size in options.daliuge_sizes.split(",") for nodes in (1, 2)]
        report["daliuge"] = daliuge(graphs, options.daliuge_python)
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
