"""Sessions of several nodes in one thread, on virtual time, over a simulated network."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dropflow.data.repository import LocalRepository
from dropflow.engine.session import Watch
from dropflow.engine.statistics import SessionResult
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_by_place
from dropflow.runners.choice import make_runner
from dropflow.sessions.factory import make_session
from dropflow.states import SessionState
from dropflow.testing.drawing import relay
from managers.links import ContentSource, LinkSettings, ReceivedMessage
from managers.machine_calls import Answered
from managers.messages import Events
from managers.node import contents
from managers.node.exchange import NodeExchange
from managers.simulation import (
    DisturbanceRates,
    Disturbances,
    NetworkFaults,
    SessionDriver,
    SessionInbox,
    SimulatedCluster,
    SimulatedFetchPool,
    SimulatedLinks,
    SimulatedNetwork,
    Simulation,
)
from tests.managers.simulation.test_cluster import _fan
from tests.nightly import nightly


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
        self.exchange = NodeExchange(
            piece,
            session="s",
            epoch=1,
            links=self.links,
            fetch_pool=SimulatedFetchPool(self.links),
            workspace=repository.workspace,
            clock=simulation,
            in_place=False,
        )
        inbox = SessionInbox()
        self._session = make_session(
            piece.graph,
            repository,
            make_runner(piece.graph, repository.workspace, "inline"),
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


@pytest.mark.parametrize("inline", [0, 4096])
@pytest.mark.parametrize("seed", [0, *nightly(*range(1, 5))])
def test_sessions_finish_on_a_faulty_network(
    seed: int, inline: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain over three nodes finishes, with inline and with fetched contents."""
    monkeypatch.setattr(contents, "INLINE", inline)
    simulation, results = _run(tmp_path, seed, 3)

    assert [result.status for result in results] == [SessionState.FINISHED] * 3, simulation


def test_the_same_seed_gives_the_same_session(tmp_path: Path) -> None:
    """Runs with the same seed send the same packets at the same times; another seed gives another run."""
    first, second, other = (_run(tmp_path / str(number), seed, 2)[0] for number, seed in enumerate((1, 1, 2)))

    assert (first.digest, first.events, first.time) == (second.digest, second.events, second.time)
    assert first.digest != other.digest


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
    assert isinstance(cluster.submit(_fan(3, parts=3), "s"), Answered)
    detail = cluster.finish("s")

    assert detail is not None
    assert detail.status == "FINISHED"
    assert told
    assert all(told)
