"""The end of sessions whose members are lost, cut off or started again while it is told."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from managers.machine_calls import Answered
from managers.messages import AdoptView, ProposeView
from managers.node.events import ContinueSession
from managers.recovery.records import ViewDecision
from managers.recovery.vote import SendToPeer
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan


def _cluster(seed: int, directory: Path, nodes: int) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, islands=1, nodes=nodes, workload=Workload(seconds=0.2))
    assert cluster.wait_for_nodes()
    return cluster


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("asks", ["session", "sessions"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_session_is_over_although_a_node_died_before_its_island_asked(
    tmp_path: Path, *, fails: bool, asks: str, is_restarted: bool
) -> None:
    """The nodes agree how each part ended; island and master report that of a node that does not answer any more.

    Also if that node is the only one where drops failed, and if the master was started again since.
    """
    workload = Workload(seconds=0.2, fails=lambda _, node: fails and node == "n1-3")
    cluster = SimulatedCluster(4, tmp_path, islands=1, nodes=3, workload=workload)
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(_fan(8, parts=3), "s"), Answered)
    cluster.simulation.wait(0.3)
    island = cluster.islands["i1"].process
    before = cluster.call("session", url=cluster.top, session="s")
    assert isinstance(before, Answered)
    assert before.value.status == "RUNNING"
    island.pause()
    cluster.simulation.wait(20.0)
    status = "FAILED" if fails else "FINISHED"
    (lost,) = [name for name, own in _statuses(cluster).items() if own == status][-1:]
    assert not fails or list(_statuses(cluster).values()).count("FAILED") == 1
    whole: Counter[str] = Counter()
    for node in cluster.nodes.values():
        whole.update(node.sessions["s"].info().states)
    cluster.nodes[lost].process.crash()
    island.resume()
    if is_restarted:
        cluster.master.process.crash()
        cluster.start_master()
    cluster.simulation.wait(5.0)

    for url in (cluster.top, "http://i1:8000"):
        answer = cluster.call(asks, url=url, **({"session": "s"} if asks == "session" else {}))
        assert isinstance(answer, Answered)
        found = answer.value if asks == "session" else answer.value[0]
        assert (found.status, found.unknown, found.states) == (status, (), whole)
        assert found.settled == found.drops == found.counts.total == found.counts.settled


def test_a_session_is_cancelled_although_a_node_died_before_its_island_asked(tmp_path: Path) -> None:
    """If most of its nodes have cancelled it, the others cannot go on: island and master report it as CANCELLED."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, nodes=3, workload=Workload(seconds=5.0))
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(_fan(8, parts=3), "s"), Answered)
    cluster.simulation.wait(2.0)
    island = cluster.islands["i1"].process
    island.pause()
    cluster.nodes["n1-3"].process.crash()
    for name in ("n1-1", "n1-2"):
        url = cluster.nodes[name].url
        assert isinstance(cluster.call("cancel", url=url, session="s", reason="", grace=1.0), Answered)
    cluster.simulation.wait(20.0)
    assert _statuses(cluster) == {"n1-1": "CANCELLED", "n1-2": "CANCELLED", "n1-3": "RUNNING"}
    island.resume()
    cluster.simulation.wait(5.0)

    answer = cluster.call("session", session="s")
    assert isinstance(answer, Answered)
    assert (answer.value.status, answer.value.unknown) == ("CANCELLED", ())
    assert answer.value.settled == answer.value.drops == answer.value.counts.settled


def _is_end(action: Any, kind: type[AdoptView] | type[ProposeView]) -> bool:
    """Return whether a node tells another one that the session is over, or proposes that."""
    if not isinstance(action, SendToPeer) or not isinstance(action.message, kind):
        return False
    return msgspec.msgpack.decode(action.message.decision, type=ViewDecision).is_over


def _statuses(cluster: SimulatedCluster) -> dict[str, str]:
    return {name: node.sessions["s"].info().status for name, node in cluster.nodes.items() if "s" in node.sessions}


def test_no_drops_run_again_after_some_members_ended_the_session(tmp_path: Path) -> None:
    """If the first member dies after it told one of four others that the session is over, no later view begins.

    Also not if that one cannot be reached: the others know that the end may have been decided.
    """
    cluster = _cluster(1, tmp_path, nodes=5)
    told: list[str] = []
    views: list[str] = []

    def watch(node: str, action: Any) -> None:
        if isinstance(action, ContinueSession):
            views.append(node)
        if _is_end(action, AdoptView) and node == "n1-1":
            told.append(action.peer)
            if len(told) == 2:
                cluster.nodes[node].process.crash()
                for other in ("n1-3", "n1-4", "n1-5"):
                    cluster.network.block(told[0], other)

    cluster.on_action = watch
    assert isinstance(cluster.submit(_fan(8, parts=5), "s"), Answered)
    cluster.simulation.wait(100.0)

    assert len(told) == 2
    assert views == []
    assert set(_statuses(cluster).values()) - {"RUNNING"} == {"FINISHED"}
    assert {name for name, status in _statuses(cluster).items() if status == "FINISHED"} >= {"n1-3", "n1-4", "n1-5"}


def test_a_member_that_missed_the_end_learns_of_it_from_nodes_that_were_started_again(tmp_path: Path) -> None:
    """The others ended the session and were started again: they answer from their directories."""
    cluster = _cluster(2, tmp_path, nodes=3)

    def watch(node: str, action: Any) -> None:
        if _is_end(action, AdoptView) and node == "n1-1" and action.peer == "n1-3":
            for other in ("n1-1", "n1-2"):
                cluster.network.block("n1-3", other)

    cluster.on_action = watch
    assert isinstance(cluster.submit(_fan(8, parts=3), "s"), Answered)
    cluster.simulation.wait(10.0)
    assert _statuses(cluster) == {"n1-1": "FINISHED", "n1-2": "FINISHED", "n1-3": "RUNNING"}
    for name in ("n1-1", "n1-2"):
        cluster.nodes[name].process.crash()
        cluster.start_node(name)
        cluster.network.unblock("n1-3", name)
    cluster.simulation.wait(30.0)

    assert _statuses(cluster) == {"n1-1": "FINISHED", "n1-2": "FINISHED", "n1-3": "FINISHED"}


def test_a_node_that_was_killed_with_its_part_finished_does_not_end_the_session(tmp_path: Path) -> None:
    """Its next process does not know whether the session is over, and does not answer the members that go on."""
    cluster = _cluster(3, tmp_path, nodes=3)
    assert isinstance(cluster.submit(_fan(8, parts=3), "s"), Answered)
    cluster.simulation.wait(0.5)
    cluster.nodes["n1-2"].process.crash()
    cluster.start_node("n1-2")
    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert (ended.status, ended.view, ended.states) == ("FINISHED", 1, {"COMPLETED": 36})
