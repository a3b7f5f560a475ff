"""Sessions that go on after the loss of nodes, in clusters on virtual time."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dropflow.api.requests import ResumeRequest, SubmitQuery
from dropflow.errors import ConflictError, LinkError, NotFoundError
from managers.machine_calls import Answered, Unanswered
from managers.membership import LOST_AFTER
from managers.node.hosted_session import HostedSession
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.history import Committed
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.graphs import fan, rows
from tests.managers.simulation.simulated_disks import SimulatedDisks
from tests.nightly import nightly


def _cluster(seed: int, directory: Path, seconds: float = 1.0) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, workload=Workload(seconds=seconds))
    assert cluster.wait_for_nodes()
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("after", [2.0, *nightly(0.1, 8.0)])
def test_a_session_survives_the_loss_of_a_node(after: float, tmp_path: Path) -> None:
    """Whenever one of six nodes is lost, the session finishes on the others, with every drop completed."""
    cluster = _cluster(1, tmp_path)
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
    cluster.simulation.wait(after)
    cluster.nodes["n1-2"].process.crash()

    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})


@pytest.mark.slow
def test_users_see_what_was_lost_and_what_ran_again(tmp_path: Path) -> None:
    """A note names the lost node and how much moved; the explanation of a drop that ran again names the loss."""
    cluster = _cluster(3, tmp_path)
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
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
    assert {detail.reason for detail in known} == {f"node n1-2 was lost ({why})"}


@pytest.mark.slow
@pytest.mark.parametrize(("is_dark", "least", "most"), [(False, 3.0, 5.0), (True, 15.0, 17.0)])
def test_a_refused_connection_says_more_than_silence(is_dark: int, least: float, most: float, tmp_path: Path) -> None:
    """If only the process of a node ended, its host refuses connections, and the others go on much sooner."""
    cluster = _cluster(4, tmp_path, seconds=12.0)
    cluster.submit(fan(8), "s")
    cluster.simulation.wait(2.0)
    if is_dark:
        cluster.network.dark.add("n1-2")
    cluster.nodes["n1-2"].process.crash()
    began = cluster.simulation.time
    here = cluster.nodes["n1-1"].sessions["s"]
    while here.info().view == 0 and cluster.simulation.time < began + 20.0:
        cluster.simulation.wait(0.1)

    assert least <= cluster.simulation.time - began <= most


@pytest.mark.slow
def test_a_node_that_was_cut_off_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    """When it can be reached again, it removes its part of the session, which runs on elsewhere."""
    cluster = _cluster(2, tmp_path, seconds=12.0)
    cluster.submit(fan(8), "s")
    _cut_off("n1-3", cluster, seconds=20.0)
    cluster.simulation.wait(22.0)

    assert "s" not in cluster.nodes["n1-3"].sessions
    assert cluster.nodes["n1-1"].sessions["s"].info().view == 1
    ended = cluster.finish("s", seconds=400.0)
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})


@pytest.mark.slow
def test_a_node_that_was_cut_off_leaves_although_the_candidate_is_lost(tmp_path: Path) -> None:
    """Any voter of the present view tells a voter of an earlier one about it, also after the end of the session."""
    cluster = _cluster(3, tmp_path, seconds=12.0)
    cluster.submit(fan(8), "s")
    _cut_off("n1-3", cluster, seconds=80.0)
    cluster.simulation.wait(20.0)
    cluster.nodes["n1-1"].process.crash()
    cluster.simulation.wait(100.0)

    assert "s" not in cluster.nodes["n1-3"].sessions
    ended = cluster.finish("s", seconds=400.0)
    assert ended is not None
    assert (ended.status, ended.view, ended.states) == ("FINISHED", 2, {"COMPLETED": 36})


@pytest.mark.slow
def test_others_go_on_without_a_node_that_cannot_continue(tmp_path: Path) -> None:
    """If the disk of a member is full when the next view begins, its part counts as lost, and the others finish."""
    disks = SimulatedDisks(tmp_path, Random(0))
    with disks:
        cluster = _cluster(4, tmp_path, seconds=12.0)
        cluster.submit(fan(8), "s")
        cluster.nodes["n1-1"].process.crash()
        disks.fill("n1-3")
        ended = cluster.finish("s", seconds=400.0)

        failed = cluster.nodes["n1-3"].sessions["s"].info()
        assert failed.status == "FAILED"
        assert "No space left on device" in failed.text
        other = cluster.nodes["n1-2"].sessions["s"].detail()
    assert ended is not None
    assert (other.status, other.view) == ("FINISHED", 2)
    assert any("node n1-3 is lost (the session failed on node n1-3" in note for note in other.notes)


@pytest.mark.slow
def test_a_node_that_cannot_continue_stops_its_attempts(tmp_path: Path) -> None:
    """They end with its part, before the contents that they read are removed; others finish the session."""
    disks = SimulatedDisks(tmp_path, Random(0))
    with disks:
        cluster = _cluster(4, tmp_path, seconds=60.0)
        cluster.submit(fan(8), "s")
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


@pytest.mark.slow
def test_a_node_that_promised_commits_nothing_when_it_leaves(tmp_path: Path) -> None:
    """Results that came while its session was stopped for a report are discarded when others go on without it."""
    cluster = _cluster(2, tmp_path, seconds=12.0)
    cluster.submit(fan(8), "s")
    _cut_off("n1-3", cluster, seconds=30.0)
    cluster.simulation.wait(16.0)
    hosted = cluster.nodes["n1-3"].sessions["s"]
    assert isinstance(hosted, HostedSession)
    assert hosted.session.is_frozen
    cluster.simulation.wait(30.0)

    assert "s" not in cluster.nodes["n1-3"].sessions
    late = [record for record in cluster.recorder.history if record.node == "n1-3" and isinstance(record, Committed)]
    assert not [record for record in late if record.time > 16.0]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_drop_that_was_cancelled_alone_stays_so_after_losses(tmp_path: Path) -> None:
    """Of a node that goes on, and of one that is lost: it does not run again, and the session fails because of it."""
    cluster = _cluster(4, tmp_path, seconds=12.0)
    cluster.submit(fan(8), "s")
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


# Sessions whose drops move although no node is lost, in clusters on virtual time.


def _seconds(directory: Path, *, rebalance: bool, is_automatic: bool = False) -> float:
    directory.mkdir()
    workload = Workload(seconds=2.0, slowness={"n1-2": 6.0})
    cluster = SimulatedCluster(5, directory, islands=1, workload=workload)
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(rows(36, 3), "s", join=is_automatic), Answered)
    cluster.simulation.wait(12.0)
    if rebalance:
        assert isinstance(cluster.call("rebalance", session="s"), Answered)
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 144})
    assert (ended.view > 0) == (rebalance or is_automatic)
    if rebalance:
        assert "drops had not begun and move to n1-1 (" in ended.notes[-1]
    return ended.seconds


@pytest.mark.slow
def test_a_rebalance_relieves_a_slow_node(tmp_path: Path) -> None:
    """What it has not begun goes to the others, which are faster, so that the session ends much sooner."""
    assert _seconds(tmp_path / "with", rebalance=True) < 0.7 * _seconds(tmp_path / "without", rebalance=False)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_session_with_a_slow_node_is_rebalanced_by_itself(tmp_path: Path) -> None:
    """The manager that deployed a session has it rebalanced when one node would end much later than the others."""
    automatic = _seconds(tmp_path / "with", rebalance=False, is_automatic=True)

    assert automatic < 0.75 * _seconds(tmp_path / "without", rebalance=False)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("island", ["i1", *nightly("i2")])
def test_a_node_that_comes_takes_its_share(island: str, tmp_path: Path) -> None:
    """A node that is started in the middle of a session becomes a member, gets drops, and runs some of them."""
    cluster = SimulatedCluster(6, tmp_path, workload=Workload(seconds=2.0), nodes=3)
    late = f"n{island[1:]}-3"
    cluster.nodes[late].process.crash()
    cluster.simulation.wait(20.0)
    graph = rows(100, 3)
    assert isinstance(cluster.submit(replace(graph, places=("n1-1", "n1-2", "n2-1")), "s"), Answered)
    cluster.simulation.wait(5.0)
    assert "s" not in cluster.nodes["n2-2"].sessions
    cluster.start_node(late)
    ended = cluster.finish("s", seconds=1000.0)

    assert ended is not None
    assert (ended.status, ended.states, ended.view) == ("FINISHED", {"COMPLETED": 400}, 1)
    assert late in ended.members
    assert "n2-2" not in ended.members, "it was there when the session was submitted"
    assert any(f"node {late} has joined; " in note for note in ended.notes)
    done = cluster.nodes[late].sessions["s"].info().states
    assert done.get("COMPLETED", 0) >= 20


@pytest.mark.slow
def test_a_session_on_one_node_gets_another_one(tmp_path: Path) -> None:
    """The second node runs a part of it; the session survives the loss of the first one then, and keeps its start."""
    cluster = SimulatedCluster(6, tmp_path, workload=Workload(seconds=2.0), islands=1, nodes=2)
    cluster.nodes["n1-2"].process.crash()
    cluster.simulation.wait(20.0)
    assert isinstance(cluster.submit(rows(40, 1), "s"), Answered)
    cluster.simulation.wait(5.0)
    started = cluster.nodes["n1-1"].sessions["s"].info().started
    cluster.start_node("n1-2")
    cluster.simulation.wait(15.0)
    cluster.nodes["n1-1"].process.crash()
    ended = cluster.finish("s", seconds=1000.0)

    assert ended is not None
    assert (ended.status, ended.states, ended.view, ended.members) == ("FINISHED", {"COMPLETED": 160}, 2, ("n1-2",))
    assert any("node n1-2 has joined; " in note for note in ended.notes)
    assert (ended.started, ended.seconds) == (started, pytest.approx(ended.finished - started))


@pytest.mark.slow
def test_a_session_whose_members_all_joined_it_is_resumed(tmp_path: Path) -> None:
    """It goes on at once, and its time begins when it is resumed."""
    cluster = SimulatedCluster(6, tmp_path, workload=Workload(seconds=2.0), islands=1, nodes=2)
    cluster.nodes["n1-2"].process.crash()
    cluster.simulation.wait(20.0)
    assert isinstance(cluster.submit(rows(40, 1), "s"), Answered)
    cluster.simulation.wait(5.0)
    cluster.start_node("n1-2")
    cluster.simulation.wait(15.0)
    cluster.nodes["n1-1"].process.crash()
    cluster.simulation.wait(30.0)
    assert isinstance(cluster.call("cancel", session="s", reason="", grace=0.0), Answered)
    assert cluster.finish("s", seconds=100.0) is not None
    resumed = cluster.simulation.now()
    assert isinstance(cluster.call("resume", session="s", request=ResumeRequest()), Answered)
    ended = cluster.finish("s", seconds=1000.0)

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 160})
    assert ended.started == pytest.approx(resumed, abs=5.0)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_node_that_was_lost_comes_back(tmp_path: Path) -> None:
    """A member that is killed and started again joins as empty; what its former process had is not used."""
    cluster = SimulatedCluster(7, tmp_path, workload=Workload(seconds=2.0), islands=1, nodes=4)
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(rows(120, 4), "s"), Answered)
    cluster.simulation.wait(5.0)
    cluster.nodes["n1-3"].process.crash()
    cluster.simulation.wait(3.0)
    cluster.start_node("n1-3")
    ended = cluster.finish("s", seconds=1000.0)

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 480})
    assert ended.members == ("n1-1", "n1-2", "n1-4", "n1-3")
    assert cluster.nodes["n1-3"].sessions["s"].info().states.get("COMPLETED", 0) >= 20


@pytest.mark.slow
def test_sessions_can_be_kept_from_growing(tmp_path: Path) -> None:
    """With `join` off, a node that comes is not added."""
    cluster = SimulatedCluster(6, tmp_path, workload=Workload(seconds=1.0), islands=1, nodes=4)
    cluster.nodes["n1-4"].process.crash()
    cluster.simulation.wait(20.0)
    options = SubmitQuery(session="s", join=False)
    assert isinstance(cluster.call("submit", graph=rows(60, 3), options=options), Answered)
    cluster.simulation.wait(2.0)
    cluster.start_node("n1-4")
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    assert (ended.status, ended.view) == ("FINISHED", 0)


@pytest.mark.slow
def test_a_session_that_is_over_is_not_rebalanced(tmp_path: Path) -> None:
    """The request is refused, at a node and through its managers."""
    cluster = SimulatedCluster(5, tmp_path, islands=1)
    assert cluster.wait_for_nodes()
    cluster.submit(rows(3, 3), "s")
    cluster.finish("s")
    for url in ("http://n1-1:8000", "http://i1:8000", "http://master:8002"):
        answer = cluster.call("rebalance", url=url, session="s")
        assert isinstance(answer, Unanswered)
        assert isinstance(answer.error, ConflictError)
        assert "is FINISHED" in answer.error.text


# Nodes that are lost or stopped while a session is deployed: it runs on those that are left, or nowhere.


@pytest.mark.slow
@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("has_master", [False, True])
@pytest.mark.parametrize("is_placed", [True, *nightly(False)])
def test_the_answer_to_a_submission_is_definite_although_a_node_is_lost_meanwhile(
    tmp_path: Path, *, stops: bool, has_master: bool, is_placed: bool
) -> None:
    """Soon after a node counts as lost, the session runs on the other nodes, or is refused and left nowhere.

    A repeated submission gets the same answer, and a node that was only stopped keeps nothing either.
    """
    for seed in range(3):
        chance = random.Random(seed)
        directory = tmp_path / str(seed)
        directory.mkdir()
        cluster = SimulatedCluster(
            seed, directory, islands=1, nodes=3, has_master=has_master, workload=Workload(seconds=0.5)
        )
        assert cluster.wait_for_nodes()
        graph = fan(4, parts=3)
        graph = replace(graph, places=tuple(cluster.nodes)) if is_placed else graph
        lost = cluster.nodes[chance.choice(list(cluster.nodes))]
        cluster.simulation.call_later(chance.uniform(0.0, 0.012), lost.process.pause if stops else lost.process.crash)
        began = cluster.simulation.time
        options = SubmitQuery(session="s", request_id="r")
        answer = cluster.call("submit", graph=graph, options=options)
        assert cluster.simulation.time - began < LOST_AFTER + 10.0
        others = [node for node in cluster.nodes.values() if node is not lost]
        if isinstance(answer, Answered):
            detail = cluster.finish("s", seconds=60.0)
            assert detail is not None
            assert detail.status == "FINISHED"
            continue
        assert is_placed
        assert lost.name in str(answer.error)
        cluster.simulation.wait(1.0)
        assert not any("s" in node.sessions for node in others)
        looked_up = cluster.call("session", session="s")
        assert isinstance(looked_up, Unanswered)
        assert isinstance(looked_up.error, NotFoundError)
        again = cluster.call("submit", graph=graph, options=options)
        assert isinstance(again, Unanswered)
        assert not isinstance(again.error, LinkError)
        if stops:
            lost.process.resume()
            cluster.simulation.wait(30.0)
            assert "s" not in lost.sessions
