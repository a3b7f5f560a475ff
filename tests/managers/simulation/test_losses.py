"""Sessions that go on after the loss of nodes, in clusters on virtual time."""

from functools import partial
from pathlib import Path

import pytest

from managers.machine_calls import Answered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan


def _cluster(seed: int, directory: Path, seconds: float = 1.0) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, workload=Workload(seconds=seconds))
    assert cluster.wait_for_nodes()
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.1, 1.0, 2.0, 4.0, 8.0])
def test_a_session_survives_the_loss_of_a_node(after: float, tmp_path: Path) -> None:
    """Whenever one of six nodes is lost, the session finishes on the others, with every drop completed."""
    cluster = _cluster(1, tmp_path)
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    cluster.simulation.wait(after)
    cluster.nodes["n1-2"].process.crash()

    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})


def test_users_see_what_was_lost_and_what_ran_again(tmp_path: Path) -> None:
    """A note names the lost node and how much moved; the explanation of a drop that ran again names the loss."""
    cluster = _cluster(3, tmp_path)
    assert isinstance(cluster.submit(_fan(8), "s"), Answered)
    cluster.simulation.wait(2.0)
    cluster.nodes["n1-2"].process.crash()
    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert ended.notes[-1].startswith("node n1-2 is lost (silent for 15 s): 6 drops go to ")
    assert "completed drops run again because their contents were lost" in ended.notes[-1]
    known = [
        session.known for node in cluster.nodes.values() for session in [node.sessions["s"].session] if session.known
    ]
    assert {one.reason for one in known} == {"node n1-2 was lost (silent for 15 s)"}


@pytest.mark.slow
def test_a_node_that_was_cut_off_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    """When it can be reached again, it removes its part of the session, which runs on elsewhere."""
    cluster = _cluster(2, tmp_path, seconds=12.0)
    cluster.submit(_fan(8), "s")
    _cut_off("n1-3", cluster, seconds=20.0)
    cluster.simulation.wait(22.0)

    assert "s" not in cluster.nodes["n1-3"].sessions
    assert cluster.nodes["n1-1"].sessions["s"].info().view == 1
    ended = cluster.finish("s", seconds=400.0)
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})


def test_a_node_that_was_cut_off_leaves_although_the_candidate_is_lost(tmp_path: Path) -> None:
    """Any voter of the present view tells a voter of an earlier one about it, also after the end of the session."""
    cluster = _cluster(3, tmp_path, seconds=12.0)
    cluster.submit(_fan(8), "s")
    _cut_off("n1-3", cluster, seconds=80.0)
    cluster.simulation.wait(20.0)
    cluster.nodes["n1-1"].process.crash()
    cluster.simulation.wait(100.0)

    assert "s" not in cluster.nodes["n1-3"].sessions
    ended = cluster.finish("s", seconds=400.0)
    assert ended is not None
    assert (ended.status, ended.view, ended.states) == ("FINISHED", 2, {"COMPLETED": 36})


def _cut_off(node: str, cluster: SimulatedCluster, seconds: float) -> None:
    for other in cluster.nodes:
        cluster.network.block(node, other)
        cluster.simulation.call_later(seconds, partial(cluster.network.unblock, node, other))
