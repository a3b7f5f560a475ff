"""Sessions of several nodes on virtual time: faults of the network, their end, and the vote of a witness."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dropflow.data.repository import LocalRepository
from dropflow.execution.session import Watch
from dropflow.execution.statistics import SessionResult
from dropflow.graph.physical import PhysicalGraph
from dropflow.runners.make_runner import make_runner
from dropflow.runners.runner_choice import RunnerChoice
from dropflow.sessions.make_session import make_session
from dropflow.states import SessionState
from managers.links import ContentSource, LinkSettings, ReceivedMessage
from managers.machine_calls import Answered, Unanswered
from managers.messages import AdoptView, Events, ProposeView
from managers.node import contents
from managers.node.decisions.events import ContinueSession
from managers.node.exchange import NodeExchange
from managers.recovery.records import ViewDecision
from managers.recovery.vote import SendToPeer
from managers.simulation import (
    NetworkFaults,
    SessionDriver,
    SessionInbox,
    SimulatedCluster,
    SimulatedFetchPool,
    SimulatedLinks,
    SimulatedNetwork,
    Simulation,
)
from managers.simulation.simulated_node import SimulatedFileWatcher, Workload
from tests.graph.shapes import slice_by_place
from tests.managers.simulation.faults import DisturbanceRates, Disturbances
from tests.managers.simulation.graphs import fan
from tests.nightly import nightly
from tests.regular_graphs import relay


class Node:
    """One node: its links and the session on its slice."""

    def __init__(self, graph: PhysicalGraph, name: str, network: SimulatedNetwork, directory: Path) -> None:
        piece = slice_by_place(graph)[name]
        simulation = network.simulation
        self.results: list[SessionResult] = []
        self.links = SimulatedLinks(
            name,
            network,
            on_message=self._on_message,
            open_content=self._open,
            on_room=self._on_room,
            settings=LinkSettings(window=2_000),
        )
        repository = LocalRepository(directory / name, "s", simulation, piece.graph)
        pool, watcher = SimulatedFetchPool(self.links), SimulatedFileWatcher(self.links.process)
        resources = SimpleNamespace(
            clock=simulation, links=self.links, fetch_pool=pool, stream_pool=pool, file_watcher=watcher, in_place=False
        )
        self.exchange = NodeExchange(
            piece,
            session="s",
            epoch=1,
            resources=resources,
            workspace=repository.workspace,
        )
        inbox = SessionInbox()
        self._session = make_session(
            piece.graph,
            repository,
            make_runner(piece.graph, repository.workspace, RunnerChoice("inline")),
            clock=simulation,
            exchange=self.exchange,
            inbox=inbox,
            watch=Watch(check_invariants=True),
        )
        self.driver = SessionDriver(self.links.process, self._session, inbox, self.exchange, self._on_stop)

    def _on_stop(self, error: Exception | None) -> None:
        assert error is None
        self._session.close()
        self.results.append(self._session.result())

    def _on_room(self) -> None:
        self.driver.wake()

    def _on_message(self, received: ReceivedMessage) -> None:
        assert isinstance(received.message, Events)
        self.exchange.receive(received.peer, received.message)

    def _open(self, session: str, drop: int, attempt: int, producer: int) -> ContentSource:
        assert session == "s"
        return self.exchange.source(drop, attempt, producer)


def _run(directory: Path, seed: int, parts: int) -> tuple[Simulation, list[SessionResult]]:
    """Run a chain of applications on `parts` nodes, while the network and the processes are disturbed."""
    simulation = Simulation(seed)
    network = SimulatedNetwork(simulation, NetworkFaults(lose=0.05, duplicate=0.05, reorder=0.05, cut=0.01))
    graph = replace(relay(40, parts), places=("a", "b", "c")[:parts])
    nodes = {name: Node(graph, name, network, directory) for name in slice_by_place(graph)}
    for node in nodes.values():
        for other in nodes.values():
            if node is not other:
                node.links.connect(other.links.name, other.links.address)
    Disturbances(
        network,
        [node.links.process for node in nodes.values()],
        DisturbanceRates(cuts=1.0, blocks=0.5, pauses=0.5),
    )
    for node in nodes.values():
        node.driver.start()
    simulation.run(lambda: all(node.results for node in nodes.values()))
    return simulation, [result for node in nodes.values() for result in node.results]


@pytest.mark.slow
@pytest.mark.parametrize("inline", [0, 4096])
@pytest.mark.parametrize("seed", [0, *nightly(*range(1, 5))])
def test_sessions_finish_on_a_faulty_network(
    seed: int, inline: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain over three nodes finishes, with inline and with fetched contents."""
    monkeypatch.setattr(contents, "MOST_IN_EVENT", inline)
    simulation, results = _run(tmp_path, seed, 3)

    assert [result.status for result in results] == [SessionState.FINISHED] * 3, simulation


@pytest.mark.slow
def test_what_a_node_tells_others_is_in_its_journal_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that crashes after it told that a drop is settled knows that when it is started again."""
    cluster = SimulatedCluster(1, tmp_path, islands=1, nodes=3, has_master=False)
    assert cluster.wait_for_nodes()
    send, told = SimulatedLinks.send, []

    def checked(self: SimulatedLinks, peer: str, message: Any, **options: Any) -> None:
        if isinstance(message, Events):
            hosted = cluster.nodes[self.name].sessions["s"]
            known = hosted.directory.replay(hosted.piece).core.drops.states
            drops, states, _, _ = message.columns()
            for drop, state in zip(drops.tolist(), states.tolist(), strict=True):
                row = hosted.piece.local(drop)
                if row is not None and hosted.piece.is_own[row]:
                    told.append(known[row] == state)
        send(self, peer, message, **options)

    monkeypatch.setattr(SimulatedLinks, "send", checked)
    assert isinstance(cluster.submit(fan(3, parts=3), "s"), Answered)
    detail = cluster.finish("s")

    assert detail is not None
    assert detail.status == "FINISHED"
    assert told
    assert all(told)


# The end of sessions whose members are lost, cut off or started again while it is told.


def _cluster(seed: int, directory: Path, nodes: int) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, islands=1, nodes=nodes, workload=Workload(seconds=0.2))
    assert cluster.wait_for_nodes()
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("fails", [True, *nightly(False)])
@pytest.mark.parametrize("asks", ["session", *nightly("sessions")])
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
    assert isinstance(cluster.submit(fan(8, parts=3), "s"), Answered)
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
    states: Counter[str] = Counter()
    for node in cluster.nodes.values():
        states.update(node.sessions["s"].info().states)
    cluster.nodes[lost].process.crash()
    island.resume()
    if is_restarted:
        cluster.master.process.crash()
        cluster.start_master()
    cluster.simulation.wait(5.0)

    for url in (cluster.top, "http://i1:8000"):
        answer = cluster.call(asks, url=url, **({"session": "s"} if asks == "session" else {}))
        assert isinstance(answer, Answered)
        info = answer.value if asks == "session" else answer.value[0]
        assert (info.status, info.unknown, info.states) == (status, (), states)
        assert info.settled == info.drops == info.counts.total == info.counts.settled


@pytest.mark.slow
def test_a_session_is_cancelled_although_a_node_died_before_its_island_asked(tmp_path: Path) -> None:
    """If most of its nodes have cancelled it, the others cannot go on: island and master report it as CANCELLED."""
    cluster = SimulatedCluster(5, tmp_path, islands=1, nodes=3, workload=Workload(seconds=5.0))
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(fan(8, parts=3), "s"), Answered)
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


@pytest.mark.slow
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
    assert isinstance(cluster.submit(fan(8, parts=5), "s"), Answered)
    cluster.simulation.wait(100.0)

    assert len(told) == 2
    assert views == []
    assert set(_statuses(cluster).values()) - {"RUNNING"} == {"FINISHED"}
    assert {name for name, status in _statuses(cluster).items() if status == "FINISHED"} >= {"n1-3", "n1-4", "n1-5"}


@pytest.mark.slow
def test_a_member_that_missed_the_end_learns_of_it_from_nodes_that_were_started_again(tmp_path: Path) -> None:
    """The others ended the session and were started again: they answer from their directories."""
    cluster = _cluster(2, tmp_path, nodes=3)

    def watch(node: str, action: Any) -> None:
        if _is_end(action, AdoptView) and node == "n1-1" and action.peer == "n1-3":
            for other in ("n1-1", "n1-2"):
                cluster.network.block("n1-3", other)

    cluster.on_action = watch
    assert isinstance(cluster.submit(fan(8, parts=3), "s"), Answered)
    cluster.simulation.wait(10.0)
    assert _statuses(cluster) == {"n1-1": "FINISHED", "n1-2": "FINISHED", "n1-3": "RUNNING"}
    for name in ("n1-1", "n1-2"):
        cluster.nodes[name].process.crash()
        cluster.start_node(name)
        cluster.network.unblock("n1-3", name)
    cluster.simulation.wait(30.0)

    assert _statuses(cluster) == {"n1-1": "FINISHED", "n1-2": "FINISHED", "n1-3": "FINISHED"}


@pytest.mark.slow
def test_a_node_that_was_killed_with_its_part_finished_does_not_end_the_session(tmp_path: Path) -> None:
    """Its next process does not know whether the session is over, and does not answer the members that go on."""
    cluster = _cluster(3, tmp_path, nodes=3)
    assert isinstance(cluster.submit(fan(8, parts=3), "s"), Answered)
    cluster.simulation.wait(0.5)
    cluster.nodes["n1-2"].process.crash()
    cluster.start_node("n1-2")
    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert (ended.status, ended.view, ended.states) == ("FINISHED", 1, {"COMPLETED": 36})


# Sessions on two nodes, with the vote of the manager that deployed them, on virtual time.


def _witness_cluster(seed: int, directory: Path, nodes: int = 2, seconds: float = 1.0) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, directory, islands=1, nodes=nodes, workload=Workload(seconds=seconds))
    assert cluster.wait_for_nodes()
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("above", ["i1", "master"])
@pytest.mark.parametrize("parts", [1, 2])
def test_one_of_two_nodes_goes_on(above: str, parts: int, tmp_path: Path) -> None:
    """Island and master vote for what they deployed, also if all drops were on the lost node."""
    cluster = _witness_cluster(1, tmp_path)
    url = cluster.islands["i1"].url if above == "i1" else cluster.master.url
    assert isinstance(cluster.submit(fan(8, parts), "s", url=url), Answered)
    cluster.simulation.wait(2.0)
    cluster.nodes["n1-1"].process.crash()
    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert (ended.status, ended.view, ended.members) == ("FINISHED", 1, ("n1-2",))
    assert ended.states == {"COMPLETED": 36}


@pytest.mark.slow
def test_two_nodes_go_on_without_their_witness(tmp_path: Path) -> None:
    """The loss of the witness changes nothing, and no view, if no manager is left to replace it."""
    cluster = _witness_cluster(2, tmp_path)
    assert isinstance(cluster.submit(fan(8, 2), "s"), Answered)
    cluster.master.process.crash()
    cluster.islands["i1"].process.crash()
    cluster.simulation.wait(60.0)

    infos = [node.sessions["s"].info() for node in cluster.nodes.values()]
    assert [(info.status, info.view) for info in infos] == [("FINISHED", 0), ("FINISHED", 0)]


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [1, *nightly(0)])
def test_one_node_without_its_witness_waits_and_fails_in_the_end(restarts: int, tmp_path: Path) -> None:
    """It says what it waits for, until when, and what ends that. A master that was started again is no witness."""
    cluster = _witness_cluster(3, tmp_path)
    assert isinstance(cluster.submit(fan(8, 2), "s"), Answered)
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


@pytest.mark.slow
def test_a_session_that_shrank_to_two_nodes_survives_one_more_loss(tmp_path: Path) -> None:
    """The witness has no vote beside three members, and has one beside the two that are left."""
    cluster = _witness_cluster(4, tmp_path, nodes=3, seconds=8.0)
    assert isinstance(cluster.submit(fan(8, 3), "s"), Answered)
    for number, name in enumerate(("n1-1", "n1-3")):
        cluster.simulation.wait(2.0)
        cluster.nodes[name].process.crash()
        cluster.simulation.wait(20.0)
        assert cluster.nodes["n1-2"].sessions["s"].info().view == number + 1
    ended = cluster.finish("s", seconds=400.0)

    assert ended is not None
    assert (ended.status, ended.members, ended.states) == ("FINISHED", ("n1-2",), {"COMPLETED": 36})


@pytest.mark.slow
def test_a_minority_goes_on_when_that_is_forced(tmp_path: Path) -> None:
    """It is refused while there is a majority. Then one of three nodes goes on alone; both are shown."""
    cluster = _witness_cluster(6, tmp_path, nodes=3, seconds=8.0)
    assert isinstance(cluster.submit(fan(8, 3), "s"), Answered)
    refused = cluster.call("force_continue", session="s")
    assert isinstance(refused, Unanswered)
    assert "session 's' has a majority: 3 of 3 voters are not lost" in str(refused.error)
    for name in ("n1-1", "n1-3"):
        cluster.nodes[name].process.crash()
    cluster.simulation.wait(30.0)
    node = cluster.nodes["n1-2"]
    waiting = node.sessions["s"].info().text
    finding = node.sessions["s"].finding
    answer = cluster.call("force_continue", session="s")
    ended = cluster.finish("s", seconds=400.0)

    assert waiting.startswith("waiting for a majority: 1 of 3 voters answer, 2 are needed; silent: n1-1, n1-3. ")
    assert finding == f"session 's': {waiting}"
    assert isinstance(answer, Answered)
    assert ended is not None
    assert (ended.status, ended.members, ended.states) == ("FINISHED", ("n1-2",), {"COMPLETED": 36})
    assert "no majority of its voters was needed, as was asked for" in ended.notes[-1]


@pytest.mark.slow
def test_the_witness_forgets_sessions_that_ended(tmp_path: Path) -> None:
    """Nothing stays in its memory of sessions that finished, were cancelled, or were deleted."""
    cluster = _witness_cluster(5, tmp_path)
    for name in ("finished", "cancelled", "deleted"):
        assert isinstance(cluster.submit(fan(4, 2), name), Answered)
    votes = cluster.master.owner.machine._witness
    assert len(votes) == 3
    cluster.call("cancel", session="cancelled", reason="enough", grace=1.0)
    cluster.call("delete", session="deleted")
    cluster.simulation.wait(60.0)

    assert len(votes) == 0


@pytest.mark.slow
def test_a_node_without_drops_does_not_finish_for_others_that_are_lost(tmp_path: Path) -> None:
    """A session whose voters never answer fails, also on a node where nothing is left to do."""
    cluster = _witness_cluster(5, tmp_path)
    assert isinstance(cluster.submit(fan(8, 1), "s"), Answered)
    cluster.simulation.wait(2.0)
    cluster.master.process.crash()
    cluster.nodes["n1-1"].process.crash()
    cluster.simulation.wait(700.0)
    ended = cluster.nodes["n1-2"].sessions["s"].info()

    assert ended.status == "FAILED"
    assert "too few nodes answered to go on without it" in ended.text


@pytest.mark.slow
@pytest.mark.parametrize("above", ["i1", "master"])
def test_a_lost_witness_is_replaced(above: str, tmp_path: Path) -> None:
    """The island is one again when it was started again, and replaces a master; then one of two nodes may be lost."""
    cluster = _witness_cluster(7, tmp_path, seconds=8.0)
    url = cluster.islands["i1"].url if above == "i1" else cluster.master.url
    assert isinstance(cluster.submit(fan(8, 2), "s", url=url), Answered)
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
