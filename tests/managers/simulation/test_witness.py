"""Sessions on two nodes, with the vote of the manager that deployed them, on virtual time."""

import re
from pathlib import Path

import pytest

from managers.machine_calls import Answered, Unanswered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan


def _cluster(seed: int, directory: Path, nodes: int = 2, seconds: float = 1.0) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, islands=1, nodes=nodes, workload=Workload(seconds=seconds))
    assert cluster.wait_for_nodes()
    return cluster


@pytest.mark.parametrize("above", ["i1", "master"])
@pytest.mark.parametrize("parts", [1, 2])
def test_one_of_two_nodes_goes_on(above: str, parts: int, tmp_path: Path) -> None:
    """Island and master vote for what they deployed, also if all drops were on the lost node."""
    cluster = _cluster(1, tmp_path)
    url = cluster.islands["i1"].url if above == "i1" else cluster.master.url
    assert isinstance(cluster.submit(_fan(8, parts), "s", url=url), Answered)
    cluster.simulation.wait(2.0)
    cluster.nodes["n1-1"].process.crash()
    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert (ended.status, ended.view, ended.members) == ("FINISHED", 1, ("n1-2",))
    assert ended.states == {"COMPLETED": 36}


def test_two_nodes_go_on_without_their_witness(tmp_path: Path) -> None:
    """The loss of the witness changes nothing, and no view, if no manager is left to replace it."""
    cluster = _cluster(2, tmp_path)
    assert isinstance(cluster.submit(_fan(8, 2), "s"), Answered)
    cluster.master.process.crash()
    cluster.islands["i1"].process.crash()
    cluster.simulation.wait(60.0)

    infos = [node.sessions["s"].info() for node in cluster.nodes.values()]
    assert [(info.status, info.view) for info in infos] == [("FINISHED", 0), ("FINISHED", 0)]


@pytest.mark.parametrize("restarts", [0, 1])
def test_one_node_without_its_witness_waits_and_fails_in_the_end(restarts: int, tmp_path: Path) -> None:
    """It says what it waits for, until when, and what ends that. A master that was started again is no witness."""
    cluster = _cluster(3, tmp_path)
    assert isinstance(cluster.submit(_fan(8, 2), "s"), Answered)
    cluster.master.process.crash()
    cluster.nodes["n1-2"].process.crash()
    for _ in range(restarts):
        cluster.start_master()
    cluster.simulation.wait(60.0)
    waiting = cluster.nodes["n1-1"].sessions["s"].info()
    cluster.simulation.wait(600.0)
    ended = cluster.nodes["n1-1"].sessions["s"].info()

    assert (waiting.status, ended.status) == ("RUNNING", "FAILED")
    assert re.fullmatch(
        r"waiting for a majority: 1 of 3 voters answer, 2 are needed; silent: n1-2, (i1|master)\. It fails at "
        r"[-0-9]+ [:0-9]+ UTC unless they answer; if they are stopped for good: "
        r"dropflow resume s --force",
        waiting.text,
    )
    assert "too few nodes answered to go on without it" in ended.text


def test_a_session_that_shrank_to_two_nodes_survives_one_more_loss(tmp_path: Path) -> None:
    """The witness has no vote beside three members, and has one beside the two that are left."""
    cluster = _cluster(4, tmp_path, nodes=3, seconds=8.0)
    assert isinstance(cluster.submit(_fan(8, 3), "s"), Answered)
    for number, name in enumerate(("n1-1", "n1-3")):
        cluster.simulation.wait(2.0)
        cluster.nodes[name].process.crash()
        cluster.simulation.wait(20.0)
        assert cluster.nodes["n1-2"].sessions["s"].info().view == number + 1
    ended = cluster.finish("s", seconds=400.0)

    assert ended is not None
    assert (ended.status, ended.members, ended.states) == ("FINISHED", ("n1-2",), {"COMPLETED": 36})


def test_a_minority_goes_on_when_that_is_forced(tmp_path: Path) -> None:
    """It is refused while there is a majority. Then one of three nodes goes on alone, and says so."""
    cluster = _cluster(6, tmp_path, nodes=3, seconds=8.0)
    assert isinstance(cluster.submit(_fan(8, 3), "s"), Answered)
    refused = cluster.call("force_continue", session="s")
    assert isinstance(refused, Unanswered)
    assert "session 's' has a majority: 3 of 3 voters are not lost" in str(refused.error)
    for name in ("n1-1", "n1-3"):
        cluster.nodes[name].process.crash()
    cluster.simulation.wait(30.0)
    node = cluster.nodes["n1-2"]
    waiting = node.sessions["s"].info().text
    answer = cluster.call("force_continue", session="s")
    ended = cluster.finish("s", seconds=400.0)

    assert waiting.startswith("waiting for a majority: 1 of 3 voters answer, 2 are needed; silent: n1-1, n1-3. ")
    assert isinstance(answer, Answered)
    assert ended is not None
    assert (ended.status, ended.members, ended.states) == ("FINISHED", ("n1-2",), {"COMPLETED": 36})
    assert "no majority of its voters was needed, as was asked for" in ended.notes[-1]


def test_the_witness_forgets_sessions_that_ended(tmp_path: Path) -> None:
    """Nothing stays in its memory of sessions that finished, were cancelled, or were deleted."""
    cluster = _cluster(5, tmp_path)
    for name in ("finished", "cancelled", "deleted"):
        assert isinstance(cluster.submit(_fan(4, 2), name), Answered)
    votes = cluster.master.owner.machine._witness
    assert len(votes) == 3
    cluster.call("cancel", session="cancelled", reason="enough", grace=1.0)
    cluster.call("delete", session="deleted")
    cluster.simulation.wait(60.0)

    assert len(votes) == 0


def test_a_node_without_drops_does_not_finish_for_others_that_are_lost(tmp_path: Path) -> None:
    """A session whose voters never answer fails, also on a node where nothing is left to do."""
    cluster = _cluster(5, tmp_path)
    assert isinstance(cluster.submit(_fan(8, 1), "s"), Answered)
    cluster.simulation.wait(2.0)
    cluster.master.process.crash()
    cluster.nodes["n1-1"].process.crash()
    cluster.simulation.wait(700.0)
    ended = cluster.nodes["n1-2"].sessions["s"].info()

    assert ended.status == "FAILED"
    assert "too few nodes answered to go on without it" in ended.text


@pytest.mark.parametrize("above", ["i1", "master"])
def test_a_lost_witness_is_replaced(above: str, tmp_path: Path) -> None:
    """The island is one again when it was started again, and replaces a master; then one of two nodes may be lost."""
    cluster = _cluster(7, tmp_path, seconds=8.0)
    url = cluster.islands["i1"].url if above == "i1" else cluster.master.url
    assert isinstance(cluster.submit(_fan(8, 2), "s", url=url), Answered)
    cluster.simulation.wait(2.0)
    cluster.master.process.crash()
    if above == "i1":
        cluster.islands["i1"].process.crash()
        cluster.simulation.wait(1.0)
        cluster.start_island("i1")
    cluster.simulation.wait(25.0)
    infos = [node.sessions["s"].info() for node in cluster.nodes.values()]
    assert [(info.view, info.members, info.lacks_witness) for info in infos] == [(1, ("n1-1", "n1-2"), False)] * 2
    cluster.nodes["n1-2"].process.crash()
    cluster.simulation.wait(200.0)

    ended = cluster.nodes["n1-1"].sessions["s"].info()
    assert (ended.status, ended.members, ended.states) == ("FINISHED", ("n1-1",), {"COMPLETED": 36})
