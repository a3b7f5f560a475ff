"""Nodes that give their sessions away before they end, in clusters on virtual time."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dropflow.api.requests import DrainReply, DrainRequest, SubmitQuery
from dropflow.api.session_records import SessionDetail
from dropflow.errors import NotFoundError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from managers.machine_calls import Answered, Unanswered
from managers.node.hosted_session import HostedSession
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.history import Committed
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.graphs import rows
from tests.managers.simulation.random_losses import draw_graph, draw_workload
from tests.managers.simulation.trial_checks import kept_contents, states_of
from tests.nightly import nightly


def _content(size: int) -> Workload:
    return Workload(seconds=2.0, content=lambda task, drop: f"{task.oid}/{drop}".encode() * size)


def _started(cluster: SimulatedCluster, graph: PhysicalGraph, seconds: float) -> None:
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(graph, "s"), Answered)
    cluster.simulation.wait(seconds)


def _drain(cluster: SimulatedCluster, node: str, grace: float, **more: bool) -> DrainReply:
    url = f"http://{node}:8000" if more else ""
    answer = cluster.call("drain", url=url, node=node, request=DrainRequest(grace=grace), **more)
    assert isinstance(answer, Answered), answer
    reply: DrainReply = answer.value
    return reply


def _is_drained(cluster: SimulatedCluster, node: str, seconds: float) -> bool:
    return isinstance(cluster.call("drained", url=f"http://{node}:8000", timeout=seconds), Answered)


def _finished(cluster: SimulatedCluster) -> SessionDetail:
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    return ended


def _commits(cluster: SimulatedCluster) -> Counter[str]:
    """Return how often each content was committed."""
    return Counter(record.drop for record in cluster.recorder.history if isinstance(record, Committed))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, *nightly(1000)])
@pytest.mark.parametrize("node", ["n1-1", *nightly("n1-2")])
def test_a_node_that_drains_leaves_without_a_loss(node: str, size: int, tmp_path: Path) -> None:
    """Its session goes on without it: no attempt ran twice, nothing was committed twice, and results are elsewhere."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, workload=_content(size))
    _started(cluster, rows(60, 3), 12.0)
    reply = _drain(cluster, node, 100.0)
    others = [name for name in ("n1-1", "n1-2", "n1-3") if name != node]
    assert [(session.session, session.text) for session in reply.sessions] == [("s", f"it goes to {', '.join(others)}")]
    assert _is_drained(cluster, node, 50.0)
    assert "s" not in cluster.nodes[node].sessions
    cluster.nodes[node].process.crash()
    ended = _finished(cluster)

    assert (ended.status, ended.states, ended.recomputed) == ("FINISHED", {"COMPLETED": 240}, 0)
    assert ended.members == tuple(others)
    assert set(_commits(cluster).values()) == {1}
    assert set(cluster.recorder.starts.values()) == {1}
    assert any(f"node {node} has left, as was asked for" in note for note in ended.notes)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, *nightly(1000)])
@pytest.mark.parametrize("node", ["n1-1", *nightly("n1-2")])
def test_a_node_with_a_paused_session_leaves_at_once(node: str, size: int, tmp_path: Path) -> None:
    """It does not wait until others go on with what it has made; they do when the session continues."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, workload=_content(size))
    _started(cluster, rows(60, 3), 12.0)
    assert isinstance(cluster.call("pause", session="s"), Answered)
    cluster.simulation.wait(20.0)
    _drain(cluster, node, 1000.0)
    assert _is_drained(cluster, node, 50.0)
    cluster.nodes[node].process.crash()
    cluster.simulation.wait(20.0)
    paused = cluster.call("session", session="s")
    assert isinstance(paused, Answered)
    assert paused.value.status == "PAUSED"
    assert isinstance(cluster.call("unpause", session="s"), Answered)
    ended = _finished(cluster)

    assert (ended.status, ended.states, ended.recomputed) == ("FINISHED", {"COMPLETED": 240}, 0)
    assert set(_commits(cluster).values()) == {1}
    assert set(cluster.recorder.starts.values()) == {1}


@pytest.mark.slow
def test_attempts_that_do_not_end_in_time_run_again(tmp_path: Path) -> None:
    """What has completed stays, and the session finishes."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, workload=Workload(seconds=20.0, slowness={"n1-2": 100.0}))
    _started(cluster, rows(12, 3), 60.0)
    before = _commits(cluster)
    _drain(cluster, "n1-2", 30.0)
    assert _is_drained(cluster, "n1-2", 31.0)
    assert "s" not in cluster.nodes["n1-2"].sessions
    cluster.nodes["n1-2"].process.crash()
    ended = _finished(cluster)

    assert (ended.status, ended.states, ended.recomputed) == ("FINISHED", {"COMPLETED": 48}, 0)
    assert before
    assert set(_commits(cluster).values()) == {1}


@pytest.mark.slow
def test_a_node_that_drains_takes_no_sessions(tmp_path: Path) -> None:
    """It refuses to prepare a session before managers know; the graph is planned again without it, or refused.

    Later managers show it as draining, and leave it out.
    """
    cluster = SimulatedCluster(5, tmp_path, islands=1)
    assert cluster.wait_for_nodes()
    assert _drain(cluster, "n1-2", 100.0).sessions == ()
    assert _drain(cluster, "n1-2", 50.0).seconds == 50.0
    assert _drain(cluster, "n1-2", 100.0).seconds <= 50.0
    placed = replace(rows(3, 3), places=("n1-1", "n1-2", "n1-3"))
    refused = cluster.call("submit", graph=placed, options=SubmitQuery(session="placed"))
    assert isinstance(refused, Unanswered)
    assert "n1-2" in str(refused.error)
    assert not any("placed" in node.sessions for node in cluster.nodes.values())
    early = cluster.call("submit", graph=rows(3, 3), options=SubmitQuery(session="early"))
    assert isinstance(early, Answered)
    assert early.value.members == ("n1-1", "n1-3")
    cluster.simulation.wait(3.0)
    assert _states(cluster) == ["alive", "drained", "alive"]
    cluster.submit(rows(3, 3), "s")
    ended = _finished(cluster)
    assert (ended.status, ended.members) == ("FINISHED", ("n1-1", "n1-3"))
    unknown = cluster.call("drain", node="n9", request=DrainRequest())
    assert isinstance(unknown, Unanswered)
    assert isinstance(unknown.error, NotFoundError)


def _states(cluster: SimulatedCluster) -> list[str]:
    """Return the states of all nodes as the managers above show them."""
    answer = cluster.call("nodes")
    assert isinstance(answer, Answered)
    return [node.state for node in answer.value]


@pytest.mark.slow
def test_a_drained_node_is_shown_until_it_is_started_again(tmp_path: Path) -> None:
    """It is draining, then drained, also long after its process has ended; a node that dies in between is lost."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, workload=Workload(seconds=4.0))
    _started(cluster, rows(24, 3), 1.0)
    for node in ("n1-2", "n1-3"):
        _drain(cluster, node, 100.0)
    cluster.simulation.wait(2.5)
    assert _states(cluster) == ["alive", "draining", "draining"]
    cluster.nodes["n1-3"].process.crash()
    assert _is_drained(cluster, "n1-2", 100.0)
    cluster.nodes["n1-2"].process.crash()
    cluster.simulation.wait(60.0)
    assert _states(cluster) == ["alive", "drained", "lost"]
    children = cluster.call("children", url="http://i1:8000")
    assert isinstance(children, Answered)
    assert [child.state for child in children.value] == ["alive", "drained", "lost"]
    cluster.start_node("n1-2")
    cluster.simulation.wait(10.0)
    assert _states(cluster) == ["alive", "alive", "lost"]


def _alone() -> PhysicalGraph:
    graph = GraphBuilder("alone").app("a").data("b").connect("a", "b").build()
    return replace(graph, part=np.zeros(2, dtype=np.int32), places=("n1-1",))


@pytest.mark.parametrize(("seconds", "status"), [(1.0, "FINISHED"), (1000.0, "CANCELLED")])
def test_a_session_without_other_nodes_is_waited_for(seconds: float, status: str, tmp_path: Path) -> None:
    """It tells why it stays; if it has not ended in time, it is cancelled with that reason."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, nodes=1, workload=Workload(seconds=seconds))
    _started(cluster, _alone(), 0.1)
    reply = _drain(cluster, "n1-1", 40.0)
    text = "the session has no other node: it is cancelled unless it ends within 40 s"
    assert [session.text for session in reply.sessions] == [text]
    cluster.simulation.wait(0.1)
    running = cluster.call("session", url="http://n1-1:8000", session="s")
    assert isinstance(running, Answered)
    assert running.value.text == f"node n1-1 is being drained: {text}"
    assert _is_drained(cluster, "n1-1", 41.0)
    ended = _finished(cluster)
    assert ended.status == status
    if status == "CANCELLED":
        assert "the session has no other node, and it has not ended in time" in ended.text


def test_a_session_without_other_nodes_is_cancelled_when_the_process_ends(tmp_path: Path) -> None:
    """It is not waited for."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, nodes=1, workload=Workload(seconds=1000.0))
    _started(cluster, _alone(), 0.1)
    _drain(cluster, "n1-1", 40.0, is_ending=True)
    assert _is_drained(cluster, "n1-1", 20.0)
    ended = _finished(cluster)
    assert (ended.status, ended.text) == ("CANCELLED", "cancelled: node n1-1 is stopping")


@pytest.mark.slow
def test_nodes_that_all_end_together_cancel_their_session(tmp_path: Path) -> None:
    """None of them waits for another one to take the session over."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, workload=Workload(seconds=1000.0))
    _started(cluster, rows(12, 3), 5.0)
    for node in cluster.nodes:
        cluster.call_later(
            "drain",
            lambda _: None,
            url=f"http://{node}:8000",
            node=node,
            request=DrainRequest(grace=30.0),
            is_ending=True,
        )
    assert all(_is_drained(cluster, node, 40.0) for node in cluster.nodes)
    ended = _finished(cluster)
    assert ended.status == "CANCELLED"
    assert "is stopping" in ended.text


@pytest.mark.slow
def test_a_node_is_lost_while_another_one_drains(tmp_path: Path) -> None:
    """The view changes once more, and the session finishes on those that are left."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, nodes=4, workload=_content(1000))
    _started(cluster, rows(60, 4), 8.0)
    _drain(cluster, "n1-2", 100.0)
    cluster.simulation.wait(0.3)
    cluster.nodes["n1-3"].process.crash()
    assert _is_drained(cluster, "n1-2", 100.0)
    assert "s" not in cluster.nodes["n1-2"].sessions
    cluster.nodes["n1-2"].process.crash()
    ended = _finished(cluster)
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 240})
    assert ended.members == ("n1-1", "n1-4")


@pytest.mark.slow
def test_a_session_without_a_majority_is_cancelled_in_time(tmp_path: Path) -> None:
    """The node cannot leave it; when its time is over, the session is cancelled with that reason."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, workload=_content(1))
    _started(cluster, rows(60, 3), 5.0)
    for other in ("n1-1", "n1-3"):
        cluster.nodes[other].process.crash()
    _drain(cluster, "n1-2", 60.0)
    assert _is_drained(cluster, "n1-2", 61.0)
    cluster.simulation.wait(1.0)
    left = cluster.nodes["n1-2"].sessions["s"].info()
    assert left.status == "CANCELLED"
    assert "node n1-2 was drained: the other nodes have not taken it over in time (waiting for a majority" in left.text


@pytest.mark.slow
def test_members_that_are_about_to_agree_are_waited_for(tmp_path: Path) -> None:
    """A session whose views take longer to compute than the time of the node goes on without it."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, workload=_content(1))
    _started(cluster, rows(60, 3), 5.0)
    for node in cluster.nodes.values():
        node.owner.job_seconds = 2.0
    _drain(cluster, "n1-2", 3.0)
    assert _is_drained(cluster, "n1-2", 60.0)
    assert "s" not in cluster.nodes["n1-2"].sessions
    cluster.nodes["n1-2"].process.crash()
    ended = _finished(cluster)
    assert (ended.status, ended.members) == ("FINISHED", ("n1-1", "n1-3"))
    assert cluster.simulation.time > 8.0


def _random_trial(seed: int, directory: Path) -> None:
    """Drain one or two of four nodes of a random session; compare with a run in which none is drained."""
    chance = random.Random(seed)
    drawn = msgspec.structs.replace(draw_graph("s", 4, chance), is_noisy=False)
    workload = msgspec.structs.replace(draw_workload({"s": drawn}, chance), seconds=0.5, stopping=0.0)
    outcomes = []
    drained = chance.sample(["n1-1", "n1-2", "n1-3", "n1-4"], chance.choice([1, 1, 2]))
    waits = [chance.choice([0.0, 0.1, 0.5, 1.0, 2.0, 4.0]) for _ in drained]
    for nodes in ([], drained):
        root = directory / f"{len(nodes)}"
        root.mkdir()
        cluster = SimulatedCluster(seed, root, islands=1, nodes=4, workload=workload)
        assert cluster.wait_for_nodes()
        assert isinstance(cluster.submit(drawn.graph, "s"), Answered)
        for node, seconds in zip(nodes, waits, strict=False):
            cluster.simulation.wait(seconds)
            _drain(cluster, node, 100.0)
        for node in nodes:
            assert _is_drained(cluster, node, 100.0)
            assert "s" not in cluster.nodes[node].sessions or cluster.nodes[node].sessions["s"].state.is_terminal
        ended = _finished(cluster)
        states: dict[int, int] = {}
        contents: dict[int, bytes] = {}
        for simulated in cluster.nodes.values():
            hosted = simulated.sessions.get("s")
            if isinstance(hosted, HostedSession):
                piece, own_states = hosted.piece, states_of(hosted)
                states |= {int(piece.drop[drop]): own_states[drop] for drop in np.flatnonzero(piece.is_own)}
                contents |= kept_contents(hosted)
        outcomes.append((ended.status, states, contents))
        assert ended.recomputed == 0
        if not drawn.has_streams:
            assert set(_commits(cluster).values()) <= {1}
    assert outcomes[0] == outcomes[1]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *nightly(*range(1, 8))])
def test_random_sessions_end_as_without_drained_nodes(seed: int, tmp_path: Path) -> None:
    """All states and results are the same, whenever nodes are drained, and no drop that had completed runs again."""
    _random_trial(seed, tmp_path)
