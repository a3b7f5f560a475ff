"""Clusters on this machine: deployment, throughput, latency and encryption. Prints one JSON object.

The graph is as many triples memory -> no-op application -> memory as fit, the first of each on one node and the rest on
the next, so that with several nodes half of the edges cross. Measured:

* ``deploy``: seconds from a graph in memory until every node runs its slice, and drops per second of the run, through
  the REST interface of ``dropflow up`` with 1, 2 and 4 nodes;
* ``local``: the same graph in one process (`dropflow.local`), the reference;
* ``curve``: drops per second on two nodes with a cluster key and without, of the largest graph up to 100,000 drops;
* ``hop``: microseconds from the start of an application on one node to the start of the next one, which waits for its
  output, on the other: commit, message, task and hand-over. The same chain on one node says what of it the links cost;
* ``daliuge``: a graph of the same shape on DALiuGE, with ``--daliuge``: installed from the package index into a virtual
  environment of its own (see ``cluster_daliuge.py``). Where that cannot be had, the output says so.

Run: ``python benchmarks/cluster.py [--sizes 10000,100000,1000000] [--nodes 1,2,4] [--daliuge]``.
"""

import argparse
import json
import multiprocessing
import os
import pickle
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
from dataclasses import replace
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cluster_daliuge import measure as daliuge

from dropflow import local
from dropflow.clock import SystemClock
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slicing import dump_slice, slice_by_place
from dropflow.rest.client import Client
from dropflow.testing.shapes import relay, triples
from managers.deployment import Deployment, Place, pack, unpack
from managers.keys import ClusterKey, create
from managers.node.manager import NodeManager

# Through the commands, as people use it -------------------------------------------------------------------------------


@contextmanager
def _up(nodes: int) -> Iterator[Client]:
    """The master of ``dropflow up``."""
    with tempfile.TemporaryDirectory() as root:
        key = Path(root) / "keys" / "cluster.key"
        create(key)
        command = [sys.executable, "-m", "dropflow", "up", "--nodes", str(nodes), "--port", "0"]
        process = subprocess.Popen(
            [*command, "--root", f"{root}/up", "--key", str(key), "--log-level", "warning"], stdout=subprocess.PIPE
        )
        try:
            line = process.stdout.readline() if process.stdout is not None else b""
            if not line:
                raise SystemExit("dropflow up did not start; why is said above")
            ready = json.loads(line)
            with Client(ready["master"], token=ready["token"], timeout=120.0) as client:
                yield client
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def managed(drops: int, nodes: int, repeats: int) -> dict[str, float]:
    """Deployment and run of one graph on so many nodes; the medians, the first run aside (it starts the workers)."""
    graph = triples(drops, nodes)
    deploy, run = [], []
    with _up(nodes) as client:
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
    """The same graph by `dropflow.local`, with worker processes as a node has them, and inline."""
    graph = triples(drops, 1)
    report: dict[str, float] = {}
    for runner in ("processes", "inline"):
        with tempfile.TemporaryDirectory() as directory:
            start = time.perf_counter()
            result = local.run(graph, directory=Path(directory), runner=runner)
            if result.states.get("COMPLETED") != graph.drops:
                raise SystemExit(f"the run failed: {result}")
            report[f"{runner}_drops_per_s"] = round(graph.drops / (time.perf_counter() - start))
    return report


# Node managers alone, with a key or without ---------------------------------------------------------------------------


def _node(pipe: Connection, name: str, root: Path, key: ClusterKey | None) -> None:
    """A node manager that takes orders from a pipe: a deployment to prepare and run."""
    manager = NodeManager(name, root=root, key=key)
    pipe.send(Place(name, manager.links_address, manager.info().incarnation))
    while data := pipe.recv():
        deployment = unpack(data)
        manager.prepare(deployment, seconds=60.0)
        pipe.send(None)
        pipe.recv()
        manager.start(deployment.session, deployment.epoch)
        detail = manager.session(deployment.session)
        while not detail.finished:
            detail = manager.watch(deployment.session, version=detail.version, seconds=30.0)
        results = root / "sessions" / deployment.session / "results"
        pipe.send((detail, {file.name: file.read_bytes() for file in results.iterdir()} if results.exists() else {}))
        pipe.recv()
        manager.delete(deployment.session)
    manager.close()


class _Nodes:
    """So many node managers, each in a process of its own."""

    def __init__(self, count: int, key: ClusterKey | None, root: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_node, args=(theirs, f"node{number}", root / f"node{number}", key))
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        self.places = tuple(pipe.recv() for pipe in self.pipes)
        self._sessions = 0

    def run(self, graph: PhysicalGraph) -> tuple[float, dict[str, bytes]]:
        """Seconds of a run, and what it left."""
        self._sessions += 1
        placed = replace(graph, places=tuple(place.node for place in self.places))
        pieces = {node: b"".join(dump_slice(piece)) for node, piece in slice_by_place(placed).items()}
        for place, pipe in zip(self.places, self.pipes, strict=True):
            deployment = Deployment(
                session=f"s{self._sessions}",
                epoch=1,
                graph=graph.name,
                drops=graph.drops,
                created=SystemClock().now(),
                places=self.places,
                slices={place.node: pieces[place.node]},
            )
            pipe.send(pack(deployment))
        self._all()
        answers = self._all()
        results: dict[str, bytes] = {}
        for detail, files in answers:
            if detail.status != "FINISHED":
                raise SystemExit(f"the session ended {detail.status}: {detail.text}")
            results.update(files)
        ended = max(detail.finished for detail, _ in answers)
        return ended - min(detail.started for detail, _ in answers), results

    def close(self) -> None:
        """Stop them."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(30)

    def _all(self) -> list[Any]:
        """What each says when it is so far; then all go on."""
        answers = [pipe.recv() for pipe in self.pipes]
        for pipe in self.pipes:
            pipe.send(True)
        return answers


@contextmanager
def _nodes(count: int, key: ClusterKey | None) -> Iterator[_Nodes]:
    with tempfile.TemporaryDirectory() as root:
        nodes = _Nodes(count, key, Path(root))
        try:
            yield nodes
        finally:
            nodes.close()


def curve(drops: int, key: ClusterKey, repeats: int) -> dict[str, float]:
    """Drops per second on two nodes, with a key and without, by turns."""
    graph = triples(drops, 2)
    seconds: dict[str, list[float]] = {"encrypted": [], "plain": []}
    with _nodes(2, key) as encrypted, _nodes(2, None) as plain:
        for turn in range(repeats + 1):
            for name, nodes in (("encrypted", encrypted), ("plain", plain)):
                taken, _ = nodes.run(triples(3000, 2) if turn == 0 else graph)
                if turn:
                    seconds[name].append(taken)
    report: dict[str, float] = {
        f"{name}_drops_per_s": round(graph.drops / statistics.median(taken)) for name, taken in seconds.items()
    }
    report["ratio"] = round(report["encrypted_drops_per_s"] / report["plain_drops_per_s"], 2)
    return report


def hops(count: int, key: ClusterKey) -> dict[str, Any]:
    """Microseconds from start to start along a chain: between two nodes, with a key and without, and on one."""
    report: dict[str, Any] = {}
    for name, parts, secret in (("one_node", 1, None), ("two_nodes_plain", 2, None), ("two_nodes_encrypted", 2, key)):
        with _nodes(parts, secret) as nodes:
            nodes.run(triples(300, parts))
            _, results = nodes.run(relay(count, parts))
        times = sorted(pickle.loads(body) for body in results.values())  # noqa: S301 - written by this very program
        if len(times) != count:
            raise SystemExit(f"{len(times)} of {count} times were written")
        micros = sorted((after - before) / 1e3 for before, after in pairwise(times))
        report[name] = {
            "median_us": round(statistics.median(micros)),
            "p99_us": round(micros[int(len(micros) * 0.99)]),
        }
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000", help="drops, with commas between")
    parser.add_argument("--nodes", default="1,2,4", help="numbers of nodes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hops", type=int, default=1000, help="length of the chain for latency")
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
        for nodes in map(int, options.nodes.split(",")):
            report["managed"].append(managed(size, nodes, options.repeats))
    with tempfile.TemporaryDirectory() as directory:
        key = create(Path(directory) / "keys" / "cluster.key")
        report["curve"] = curve(min(max(sizes), 100_000), key, options.repeats)
        report["hop"] = hops(options.hops, key)
    if options.daliuge:
        graphs = [triples(int(size), nodes) for size in options.daliuge_sizes.split(",") for nodes in (1, 2)]
        report["daliuge"] = daliuge(graphs, options.daliuge_python)
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
