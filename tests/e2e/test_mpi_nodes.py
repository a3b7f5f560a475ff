"""MPI jobs over several node managers: Open MPI reaches the other nodes through dropflow, without ssh."""

import importlib.util
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from dropflow.api.client import Client
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import kept_together, placement_groups
from tests.apps.mpi_jobs import COMMAND, job
from tests.e2e.cluster import PATIENT, Cluster, content, finished, submit, until

pytestmark = [pytest.mark.slow]

_FOUND = shutil.which("mpirun")
needs_open_mpi = pytest.mark.skipif(
    _FOUND is None or b"Open MPI" not in subprocess.run([_FOUND, "--version"], check=False, capture_output=True).stdout,
    reason="needs mpirun of Open MPI (Debian: openmpi-bin)",
)


def over(graph: PhysicalGraph, *nodes: str) -> PhysicalGraph:
    """Return the graph with its drops on the first node, and the ranks of its jobs on all of them."""
    groups = placement_groups(graph)
    assert groups is not None
    part = kept_together(np.zeros(graph.drops, dtype=np.int32), groups, len(nodes), np.ones(graph.drops))
    return replace(graph, part=part, places=nodes)


def log_of(client: Client, session: str) -> str:
    """Return the logs of all drops of a session."""
    return b"".join(client.session_log_text(session).chunks).decode()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two nodes, and a client of one of them."""
    with Cluster(tmp_path_factory.mktemp("mpi"), times=PATIENT) as cluster:
        a, b = cluster.nodes("a", "b")
        yield cluster.client(cluster.island(a, b))


def results(client: Client, session: str) -> list[bytes]:
    """Return the contents of the files `made` of a session that is over."""
    names = [row.oid for row in client.results(session).results if row.name == "made"]
    return [content(client, session, name) for name in sorted(names)]


@needs_open_mpi
def test_jobs_over_two_nodes(client: Client) -> None:
    """Three jobs of four ranks, two on each of two nodes with too few processors, do not wait for each other."""
    submit(client, over(job(COMMAND, ranks=4, copies=3, ranks_per_node=2), "a", "b"), "three")

    assert finished(client, "three").status == "FINISHED"
    assert results(client, "three") == [b"0 of 4\n1 of 4\n2 of 4\n3 of 4\n"] * 3


@needs_open_mpi
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
def test_ranks_on_two_nodes_talk_by_mpi(client: Client) -> None:
    """Ranks of mpi4py add their numbers over both nodes, and each gets the sum."""
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank))"
    submit(client, over(job(f"{sys.executable} -c '{program}' > {{out}}", ranks=4, ranks_per_node=2), "a", "b"), "sum")

    assert finished(client, "sum").status == "FINISHED", log_of(client, "sum")
    assert results(client, "sum") == [b"6\n" * 4]


@needs_open_mpi
def test_a_failed_rank_on_another_node_fails_the_job_once(client: Client) -> None:
    """If a rank on the other node fails, all ranks end at once, in their first attempt, with its output in the log."""
    command = 'echo "words of $DROPFLOW_RANK" >&2; [ $DROPFLOW_RANK = 3 ] && exit 7; sleep 60'
    submit(client, over(job(command, ranks=4, ranks_per_node=2), "a", "b"), "failed")

    assert finished(client, "failed").status == "FAILED"
    assert "words of 3" in log_of(client, "failed")
    failures = str(client.failures("failed"))
    assert "it ended with status 7" in failures
    assert "DF202" not in failures


@needs_open_mpi
def test_a_cancelled_job_ends_on_all_nodes(client: Client, tmp_path: Path) -> None:
    """After a cancel, no rank runs any more, on neither node."""
    submit(
        client, over(job(f"echo $$ > {tmp_path}/$DROPFLOW_RANK; sleep 600", ranks=2, ranks_per_node=1), "a", "b"), "c"
    )
    assert until(lambda: all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in "01"))
    client.cancel("c")

    assert finished(client, "c").status == "CANCELLED"
    assert until(lambda: not any(psutil.pid_exists(int((tmp_path / name).read_text())) for name in "01"))


@needs_open_mpi
@pytest.mark.exhaustive
def test_a_lost_node_is_an_infrastructure_fault_of_a_job(tmp_path: Path) -> None:
    """If the node of half of the ranks is killed, the job begins again on the nodes that are left, and succeeds."""
    with Cluster(tmp_path) as cluster:
        a, b, c = cluster.nodes("a", "b", "c")
        client = cluster.client(cluster.island(a, b, c))
        wait = f"touch {tmp_path}/begun-$DROPFLOW_RANK; until [ -e {tmp_path}/go ]; do sleep 0.1; done; {COMMAND}"
        submit(client, over(job(wait, ranks=4, ranks_per_node=2), "a", "b"), "lost")
        assert until(lambda: all((tmp_path / f"begun-{rank}").exists() for rank in range(4)))
        b.stop(signal.SIGKILL)
        (tmp_path / "go").touch()
        assert finished(client, "lost", 120).status == "FINISHED"
        assert results(client, "lost") == [b"0 of 4\n1 of 4\n2 of 4\n3 of 4\n"]
