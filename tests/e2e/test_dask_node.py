"""A node that stands for a Dask cluster: a real scheduler and workers, each a process that the test may kill."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec
import psutil
import pytest

from dropflow.api.drop_records import DropQuery
from dropflow.errors import DropflowError
from tests.e2e.cluster import (
    PATIENT,
    Cluster,
    content,
    expected_end,
    finished,
    is_whole,
    load,
    pipeline,
    placed,
    submit,
    underway,
    until,
)
from tests.processes import ended_with_this_process, environment, gone, run
from tests.streaming_graphs import line

pytest.importorskip("distributed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class DaskCluster:
    """A scheduler, and workers with one thread each, stopped when the context ends.

    Parameters
    ----------
    home : Path
        Their files.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stack = ExitStack()
        self._stack.enter_context(ended_with_this_process(home))
        self.scheduler = self.start_scheduler("0")
        file = home / "scheduler.json"
        assert until(lambda: is_whole(file))
        self.address = str(msgspec.json.decode(file.read_bytes())["address"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_scheduler(self, port: str) -> "subprocess.Popen[bytes]":
        """Start a scheduler."""
        return self._start("scheduler", "--port", port, "--scheduler-file", str(self._home / "scheduler.json"))

    def start_worker(self) -> "subprocess.Popen[bytes]":
        """Start a worker."""
        return self._start("worker", self.address, "--no-nanny", "--nthreads", "1", "--memory-limit", "1GB")

    def _start(self, *options: str) -> "subprocess.Popen[bytes]":
        log = self._stack.enter_context((self._home / "dask.log").open("ab"))
        command = [sys.executable, "-m", "dask", *options, "--host", "127.0.0.1", "--no-dashboard"]
        started = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._home, env=environment(self._home))
        self._stack.callback(kill, started)
        return started


_ADAPTIVE = """
from distributed import LocalCluster
options = {"threads_per_worker": 1, "memory_limit": "1GB", "dashboard_address": None, "worker_dashboard_address": None}
with LocalCluster(n_workers=0, **options) as cluster:
    cluster.adapt(minimum=0, maximum=4)
    print(cluster.scheduler_address, flush=True)
    input()
"""


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_an_adaptive_cluster_grows_and_shrinks_with_the_work(tmp_path: Path) -> None:
    """From no workers to several and back, as work waits; a node has its capacity, and sessions go on."""
    shape = {"width": 4, "length": 3}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    adaptive = subprocess.Popen([sys.executable, "-c", _ADAPTIVE], cwd=tmp_path, env=environment(tmp_path), **pipes)  # type: ignore[call-overload]
    with ExitStack() as stack:
        stack.enter_context(ended_with_this_process(tmp_path))
        stack.enter_context(adaptive)
        stack.callback(kill, adaptive)
        cluster = stack.enter_context(Cluster(tmp_path, times=PATIENT))
        address = adaptive.stdout.readline().decode().strip()
        client = cluster.client(cluster.node("dask", "--runner", f"dask={address}", "--workers", 8))
        sizes = [load(client).workers]
        for session in ("one", "two"):
            submit(client, pipeline(seconds=3.0, **shape), session)
            assert until(lambda: load(client).workers > 1, 200)
            found = finished(client, session, 200.0)
            assert until(lambda: load(client).workers == 0, 200)
            assert (found.status, found.failures) == ("FINISHED", ())
            assert content(client, session) == expected_end(tmp_path / f"alone-{session}", **shape)

    assert sizes == [0]


def kill(started: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Kill a process, if it has not ended, and return its former children."""
    if started.poll() is not None:
        return []
    children = psutil.Process(started.pid).children(recursive=True)
    started.kill()
    started.wait()
    return children


@pytest.mark.exhaustive
def test_a_node_stands_for_a_dask_cluster(tmp_path: Path) -> None:
    """It has the capacity of the cluster, and its sessions go on after the loss of a worker with the same result.

    It refuses graphs with streams. Without the scheduler it has no capacity, and other nodes run what was placed there;
    it comes back by itself.
    """
    shape = {"width": 3, "length": 6}
    with DaskCluster(tmp_path) as dask, Cluster(tmp_path, times=PATIENT) as cluster:
        workers = [dask.start_worker(), dask.start_worker()]
        node = cluster.node("dask", "--runner", f"dask={dask.address}", "--workers", 8)
        client = cluster.client(cluster.island(node, cluster.node("here")))
        assert until(lambda: (load(client).workers, load(client).memory) == (2, 2_000_000_000))

        with pytest.raises(DropflowError, match="has no streams"):
            submit(client, placed(line("echo made", "cat", (0, 0, 0)), {}, "dask"), "streams")
        submit(client, placed(pipeline(seconds=0.5, **shape), {"S0-3": "here", "d0-3": "here"}, "dask"), "one")
        assert underway(client, "one", 6)
        children = kill(workers[0])
        one = finished(client, "one", 120.0)
        oids = [drop.oid for drop in client.drops("one", DropQuery(limit=100)).drops]
        reasons = [reason for oid in oids for reason in client.drop("one", oid).reasons]
        fewer = until(lambda: load(client).workers == 1)
        dask.start_worker()
        more = until(lambda: load(client).workers == 2)

        kill(dask.scheduler)
        away = until(lambda: load(client).workers == 0)
        submit(client, placed(pipeline(**shape), {"S0-3": "here"}, "dask"), "two")
        two = finished(client, "two", 120.0)
        dask.start_scheduler(dask.address.rpartition(":")[2])
        dask.start_worker()
        back = until(lambda: load(client).workers > 0)

        assert (one.status, one.failures, one.states) == ("FINISHED", (), {"COMPLETED": one.drops})
        assert any("has left the cluster" in reason for reason in reasons), reasons
        assert content(client, "one") == content(client, "two") == expected_end(tmp_path / "alone", **shape)
        assert (fewer, more, away, back) == (True, True, True, True)
        assert (two.status, two.members) == ("FINISHED", ("here",))
        assert "there is no Dask scheduler that answers" in str(two.notes)
        assert gone(children)


def test_a_node_without_its_dask_cluster_does_not_start(tmp_path: Path) -> None:
    """It names the address and what to give; a runner that a node cannot use is refused."""
    silent = run(tmp_path, "node", "--port", 0, "--links-port", 0, "--runner", "dask=tcp://127.0.0.1:1")
    refused = [run(tmp_path, "node", "--runner", runner) for runner in ("inline", "dask", "nothing")]

    assert (silent.returncode, "error DF220" in silent.stderr) == (3, True), silent.stderr
    assert "there is no Dask scheduler that answers" in silent.stderr
    assert "'dask scheduler' prints" in silent.stderr
    assert [done.returncode for done in refused] == [2, 2, 2]


@pytest.mark.exhaustive
def test_a_session_whose_scheduler_is_lost_is_tried_again(tmp_path: Path) -> None:
    """It fails with the reason; when a scheduler is at that address again, it goes on with what it had completed."""
    shape = {"width": 2, "length": 8}
    with DaskCluster(tmp_path) as dask, Cluster(tmp_path, times=PATIENT) as cluster:
        dask.start_worker()
        client = cluster.client(cluster.node("dask", "--runner", f"dask={dask.address}", "--workers", 8))
        assert until(lambda: load(client).workers == 1)
        submit(client, pipeline(seconds=0.5, **shape), "s")
        assert underway(client, "s", 4)
        kill(dask.scheduler)
        failed = finished(client, "s", 180.0)
        dask.start_scheduler(dask.address.rpartition(":")[2])
        dask.start_worker()
        assert until(lambda: load(client).workers > 0)
        client.retry("s")
        again = finished(client, "s", 120.0)

        assert (failed.status, "Dask cannot be used any more" in str(failed.failures)) == ("FAILED", True), failed
        assert (again.status, again.failures) == ("FINISHED", ())
        assert any("failed drops tried again" in note and " 0 drops kept" not in note for note in again.notes)
        assert content(client, "s") == expected_end(tmp_path / "alone", **shape)
