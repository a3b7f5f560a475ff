"""Nodes join sessions that run, in real processes: the results are those of one process."""

from pathlib import Path

import pytest

from dropflow.rest.schema import DropQuery
from tests.e2e.cluster import Cluster, content, expected_end, finished, pipeline, scattered, submit, underway

pytestmark = pytest.mark.slow

_SHAPE = {"width": 12, "length": 6}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the result of the pipeline in one process."""
    return expected_end(tmp_path_factory.mktemp("alone") / "session", **_SHAPE)


def test_a_node_joins_a_session_that_runs(tmp_path: Path, expected: bytes) -> None:
    """A fourth node that is started in the middle of a run of three runs some of its drops."""
    with Cluster(tmp_path) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        island = cluster.island(*nodes)
        master = cluster.client(cluster.master(island))
        submit(master, scattered(pipeline(seconds=1.0, **_SHAPE), ["a", "b", "c"], 3), "s")
        assert underway(master, "s", 5)
        fourth = cluster.node("d")
        cluster.client(island).add_child(fourth.ready["url"])
        detail = finished(master, "s", 90.0)

        assert (detail.status, detail.states) == ("FINISHED", {"COMPLETED": 146})
        assert set(detail.members) == {"a", "b", "c", "d"}
        assert any("node d has joined" in note for note in detail.notes)
        assert master.drops("s", DropQuery(node="d", state="COMPLETED")).total >= 1
        assert content(master, "s") == expected


def test_a_session_is_rebalanced(tmp_path: Path, expected: bytes) -> None:
    """What one node has not begun goes to two that stand by, and the result is the same."""
    with Cluster(tmp_path) as cluster:
        island = cluster.client(cluster.island(*cluster.nodes("a", "b", "c")))
        submit(island, scattered(pipeline(seconds=0.5, **_SHAPE), ["a"], 3), "s")
        assert underway(island, "s", 5)
        assert island.rebalance("s").status == "RUNNING"
        detail = finished(island, "s", 90.0)

        assert (detail.status, detail.states) == ("FINISHED", {"COMPLETED": 146})
        assert sorted(detail.nodes) == ["a", "b", "c"]
        assert all(island.drops("s", DropQuery(node=node, state="COMPLETED")).total >= 20 for node in "abc")
        assert content(island, "s") == expected
