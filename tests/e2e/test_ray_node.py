"""A node that stands for a Ray cluster: a real head and nodes, each processes that the test may kill."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import psutil
import pytest

from tests.e2e.cluster import PATIENT, Cluster, content, expected_end, finished, load, pipeline, submit, underway, until
from tests.processes import ended_with_this_process, environment, run

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'"),
]


class RayCluster:
    """A head without processors, and nodes with two each, ended when the context ends."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stack = ExitStack()
        self._stack.enter_context(ended_with_this_process(home))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.head = self._start("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false")
        assert until(lambda: "Ray runtime started" in (home / "ray.log").read_text(), 120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_node(self) -> "subprocess.Popen[bytes]":
        """Start a node."""
        return self._start(f"--address={self.address}", "--num-cpus=2")

    def _start(self, *options: str) -> "subprocess.Popen[bytes]":
        log = self._stack.enter_context((self._home / "ray.log").open("ab"))
        # Any ports: by default, two nodes of one machine take the same.
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        command += ["--node-ip-address=127.0.0.1", "--min-worker-port=0", "--max-worker-port=0", *options]
        # Ray asks for tokens by itself where it finds one in the home directory.
        variables = {
            **environment(self._home),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "RAY_AUTH_MODE": "disabled",
        }
        started = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._home, env=variables)
        self._stack.callback(kill, started)
        return started


def kill(started: "subprocess.Popen[bytes]") -> None:
    """End a node of Ray with all that runs there, as if its power had failed."""
    if started.poll() is None:
        for each in (*psutil.Process(started.pid).children(recursive=True), psutil.Process(started.pid)):
            each.send_signal(signal.SIGKILL)
        started.wait()


def test_a_node_stands_for_a_ray_cluster(tmp_path: Path) -> None:
    """It has the capacity of the cluster, from none on; sessions share it, and go on after the loss of a node."""
    shape, long = {"width": 3, "length": 6}, {"width": 3, "length": 48}
    with RayCluster(tmp_path) as ray, Cluster(tmp_path, times=PATIENT) as cluster:
        client = cluster.client(cluster.node("dask", "--runner", f"ray={ray.address}", "--workers", 8))
        first = load(client).workers
        submit(client, pipeline(seconds=0.5, **long), "one")
        node = ray.start_node()
        assert until(lambda: load(client).workers == 2, 120)
        assert underway(client, "one", 6)
        submit(client, pipeline(seconds=0.5, **shape), "two")
        assert underway(client, "two", 2)
        both = client.session("one").status
        kill(node)
        gone = until(lambda: load(client).workers == 0, 120)
        ray.start_node()
        found = [finished(client, name, 240.0) for name in ("one", "two")]

        assert (first, both, gone) == (0, "RUNNING", True)
        for name, one, drawn in zip(("one", "two"), found, (long, shape), strict=True):
            assert (one.status, one.failures, one.states) == ("FINISHED", (), {"COMPLETED": one.drops})
            assert content(client, name) == expected_end(tmp_path / f"alone-{name}", **drawn)


def test_a_node_without_its_ray_cluster_does_not_start(tmp_path: Path) -> None:
    """It names the address and what to give."""
    silent = run(tmp_path, "node", "--port", 0, "--links-port", 0, "--runner", "ray=127.0.0.1:1")

    assert (silent.returncode, "error DF220" in silent.stderr) == (3, True), silent.stderr
    assert "there is no Ray cluster that answers" in silent.stderr
