"""Sessions that go on after the loss of nodes, in clusters on virtual time."""

from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from managers.machine_calls import Answered
from managers.node.hosted_session import HostedSession
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.history import Committed
from managers.simulation.simulated_disks import SimulatedDisks
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan

pytestmark = pytest.mark.slow


def _cluster(seed: int, directory: Path, seconds: float = 1.0) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, workload=Workload(seconds=seconds))
    assert cluster.wait_for_nodes()
    return cluster


@pytest.mark.parametrize("after", [0.1, 2.0, 8.0])
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
    why = "its host refuses connections, silent for 4 s"
    assert ended.notes[-1].startswith(f"node n1-2 is lost ({why}): 6 drops go to ")
    assert "completed drops run again because their contents were lost" in ended.notes[-1]
    known = [
        session.known for node in cluster.nodes.values() for session in [node.sessions["s"].session] if session.known
    ]
    assert {one.reason for one in known} == {f"node n1-2 was lost ({why})"}


@pytest.mark.parametrize(("is_dark", "least", "most"), [(False, 3.0, 5.0), (True, 15.0, 17.0)])
def test_a_refused_connection_says_more_than_silence(is_dark: int, least: float, most: float, tmp_path: Path) -> None:
    """If only the process of a node ended, its host refuses connections, and the others go on much sooner."""
    cluster = _cluster(4, tmp_path, seconds=12.0)
    cluster.submit(_fan(8), "s")
    cluster.simulation.wait(2.0)
    if is_dark:
        cluster.network.dark.add("n1-2")
    cluster.nodes["n1-2"].process.crash()
    began = cluster.simulation.time
    here = cluster.nodes["n1-1"].sessions["s"]
    while here.info().view == 0 and cluster.simulation.time < began + 20.0:
        cluster.simulation.wait(0.1)

    assert least <= cluster.simulation.time - began <= most


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


def test_others_go_on_without_a_node_that_cannot_continue(tmp_path: Path) -> None:
    """If the disk of a member is full when the next view begins, its part counts as lost, and the others finish."""
    disks = SimulatedDisks(tmp_path, Random(0))  # noqa: S311 - not for secrets
    with disks:
        cluster = _cluster(4, tmp_path, seconds=12.0)
        cluster.submit(_fan(8), "s")
        cluster.nodes["n1-1"].process.crash()
        disks.fill("n1-3")
        ended = cluster.finish("s", seconds=400.0)

        failed = cluster.nodes["n1-3"].sessions["s"].info()
        assert failed.status == "FAILED"
        assert "No space left on device" in failed.text
        other = cluster.nodes["n1-2"].sessions["s"].detail()
    assert ended is not None
    assert (other.status, other.view) == ("FINISHED", 2)
    assert any("node n1-3 is lost (the engine of node n1-3 failed" in note for note in other.notes)


def test_a_node_that_cannot_continue_stops_its_attempts(tmp_path: Path) -> None:
    """They end with its part, before the contents that they read are removed; others finish the session."""
    disks = SimulatedDisks(tmp_path, Random(0))  # noqa: S311 - not for secrets
    with disks:
        cluster = _cluster(4, tmp_path, seconds=60.0)
        cluster.submit(_fan(8), "s")
        hosted = cluster.nodes["n1-3"].sessions["s"]
        assert isinstance(hosted, HostedSession)
        while not hosted.session.runner.running:
            cluster.simulation.wait(1.0)
        cluster.nodes["n1-1"].process.crash()
        disks.fill("n1-3")
        while not hosted.state.is_terminal:
            assert hosted.session.runner.running
            cluster.simulation.wait(0.1)
        assert not hosted.session.runner.running


def test_a_node_that_promised_commits_nothing_when_it_leaves(tmp_path: Path) -> None:
    """Results that came while its session was stopped for a report are discarded when others go on without it."""
    cluster = _cluster(2, tmp_path, seconds=12.0)
    cluster.submit(_fan(8), "s")
    _cut_off("n1-3", cluster, seconds=30.0)
    cluster.simulation.wait(16.0)
    hosted = cluster.nodes["n1-3"].sessions["s"]
    assert isinstance(hosted, HostedSession)
    assert hosted.session.is_frozen
    cluster.simulation.wait(30.0)

    assert "s" not in cluster.nodes["n1-3"].sessions
    late = [one for one in cluster.recorder.history if one.node == "n1-3" and isinstance(one, Committed)]
    assert not [one for one in late if one.time > 16.0]


@pytest.mark.exhaustive
def test_a_drop_that_was_cancelled_alone_stays_so_after_losses(tmp_path: Path) -> None:
    """Of a node that goes on, and of one that is lost: it does not run again, and the session fails because of it."""
    cluster = _cluster(4, tmp_path, seconds=12.0)
    cluster.submit(_fan(8), "s")
    cluster.simulation.wait(1.0)
    for node in ("n1-2", "n1-3"):
        hosted = cluster.nodes[node].sessions["s"]
        assert isinstance(hosted, HostedSession)
        hosted.session.cancel_drop(int(np.flatnonzero(hosted.piece.is_own)[-1]), "a test")
    cluster.simulation.wait(5.0)
    cluster.nodes["n1-2"].process.crash()
    ended = cluster.finish("s", seconds=400.0)

    assert ended is not None
    assert (ended.status, ended.view, ended.states["CANCELLED"]) == ("FAILED", 1, 2)
    assert sum(ended.states.values()) == 36


def _cut_off(node: str, cluster: SimulatedCluster, seconds: float) -> None:
    for other in cluster.nodes:
        cluster.network.block(node, other)
        cluster.simulation.call_later(seconds, partial(cluster.network.unblock, node, other))
