"""Nodes join and leave sessions that run, in real processes: the results are those of one process."""

import signal
from pathlib import Path

import pytest

from dropflow.api.records import DropQuery
from dropflow.api.requests import DrainRequest
from dropflow.errors import NotFoundError
from tests.e2e.cluster import (
    PATIENT,
    Cluster,
    content,
    expected_end,
    finished,
    pipeline,
    scattered,
    submit,
    underway,
    until,
)

pytestmark = pytest.mark.slow

_SHAPE = {"width": 12, "length": 6}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the result of the pipeline in one process."""
    return expected_end(tmp_path_factory.mktemp("alone") / "session", **_SHAPE)


def test_a_node_joins_a_session_that_runs_and_another_is_drained(tmp_path: Path, expected: bytes) -> None:
    """A fourth node that is started in the middle of a run of three runs some of its drops.

    The session goes on without the drained node and computes nothing again, and its process ends with status 0.
    """
    with Cluster(tmp_path, times=PATIENT) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        island = cluster.island(*nodes)
        master = cluster.client(cluster.master(island))
        submit(master, scattered(pipeline(seconds=1.0, **_SHAPE), ["a", "b", "c"], 3), "s")
        assert underway(master, "s", 5)
        cluster.client(island).add_child(cluster.node("d").ready["url"])
        assert until(lambda: master.drops("s", DropQuery(node="d", state="COMPLETED")).total >= 1)
        with pytest.raises(NotFoundError, match="node z is not below"):
            master.drain("z")
        reply = master.drain("b", DrainRequest(grace=60.0))
        assert [(one.session, one.text) for one in reply.sessions] == [("s", "it goes to a, c, d")]
        assert nodes[1].process.wait(60.0) == 0
        assert not (tmp_path / "state" / "dropflow" / "b" / "sessions" / "s").exists()
        detail = finished(master, "s", 90.0)

        assert (detail.status, detail.states, detail.recomputed) == ("FINISHED", {"COMPLETED": 146}, 0)
        assert detail.members == ("a", "c", "d")
        assert any("node d has joined" in note for note in detail.notes)
        assert any("node b has left, as was asked for" in note for note in detail.notes)
        assert content(master, "s") == expected


@pytest.mark.exhaustive
def test_a_session_is_rebalanced(tmp_path: Path, expected: bytes) -> None:
    """What one node has not begun goes to two that stand by, and the result is the same."""
    with Cluster(tmp_path, times=PATIENT) as cluster:
        island = cluster.client(cluster.island(*cluster.nodes("a", "b", "c")))
        submit(island, scattered(pipeline(seconds=0.5, **_SHAPE), ["a"], 3), "s")
        assert underway(island, "s", 5)
        assert island.rebalance("s").status == "RUNNING"
        detail = finished(island, "s", 90.0)

        assert (detail.status, detail.states) == ("FINISHED", {"COMPLETED": 146})
        assert sorted(detail.nodes) == ["a", "b", "c"]
        assert all(island.drops("s", DropQuery(node=node, state="COMPLETED")).total >= 20 for node in "abc")
        assert content(island, "s") == expected


@pytest.mark.exhaustive
def test_a_node_that_gets_a_signal_gives_its_sessions_away(tmp_path: Path, expected: bytes) -> None:
    """SIGTERM drains it within the time that it has for that."""
    with Cluster(tmp_path) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        island = cluster.client(cluster.island(*nodes))
        submit(island, scattered(pipeline(seconds=0.5, **_SHAPE), ["a", "b", "c"], 3), "s")
        assert underway(island, "s", 10)
        nodes[0].process.send_signal(signal.SIGTERM)
        assert nodes[0].process.wait(60.0) == 0
        detail = finished(island, "s", 90.0)

        assert (detail.status, detail.states, detail.recomputed) == ("FINISHED", {"COMPLETED": 146}, 0)
        assert detail.members == ("b", "c")
        assert content(island, "s") == expected


@pytest.mark.exhaustive
def test_a_second_signal_ends_a_node_that_drains(tmp_path: Path) -> None:
    """It does not wait for the attempts that run, and the others go on as after a loss."""
    with Cluster(tmp_path) as cluster:
        nodes = [cluster.node(name, "--drain-seconds", 600) for name in "abc"]
        island = cluster.client(cluster.island(*nodes))
        submit(island, scattered(pipeline(seconds=3.0, width=4, length=2), ["a", "b", "c"], 3), "s")
        assert underway(island, "s", 3)
        nodes[1].process.send_signal(signal.SIGTERM)
        assert until(lambda: any(node.name == "b" and node.state == "draining" for node in island.nodes()))
        nodes[1].process.send_signal(signal.SIGTERM)
        assert nodes[1].process.wait(20.0) == 128 + signal.SIGTERM
        assert finished(island, "s", 90.0).status == "FINISHED"
