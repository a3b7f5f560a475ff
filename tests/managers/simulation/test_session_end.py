"""The end of sessions whose members are lost, cut off or started again while it is told."""

from pathlib import Path
from typing import Any

import msgspec

from managers.machine_calls import Answered
from managers.messages import AdoptView, ProposeView
from managers.node.events import ContinueSession, SendToPeer
from managers.recovery.records import ViewDecision
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan


def _cluster(seed: int, directory: Path, nodes: int) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, islands=1, nodes=nodes, workload=Workload(seconds=0.2))
    assert cluster.wait_for_nodes()
    return cluster


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
