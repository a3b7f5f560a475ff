"""Cores of several nodes, each with its slice, that tell each other over a wire without order, are together as one."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.core import Core
from dropflow.engine.events import (
    NO_CAUSE,
    Abort,
    Action,
    Assemble,
    Assembled,
    Begin,
    Failed,
    Finish,
    Finished,
    Lost,
    Release,
    Reported,
    Run,
    Tell,
    foreign,
    row_of_foreign,
)
from dropflow.engine.invariants import check
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slicing import Slice, slice_by_place
from dropflow.states import DropState, SessionState
from dropflow.testing import oracle
from dropflow.testing.drawing import draw, row
from dropflow.testing.strategies import graphs

BOOM = Failure(code="DF105", kind="ValueError", text="boom", retryable=True)
GONE = Failure(code="DF220", kind="NodeLost", text="node b is lost")


@dataclass
class Node:
    """One node: its slice, its core, and what it was told or has run and has not taken in."""

    piece: Slice
    core: Core
    waiting: list[Reported | Finished | Failed | Assembled]
    released: list[int]


class Cluster:
    """Nodes that carry out their cores' actions at once, and tell each other in whatever order `chance` has it."""

    def __init__(
        self,
        graph: PhysicalGraph,
        chance: random.Random,
        *,
        fails: Mapping[int, int] | None = None,
        leaves_out: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.fails, self.leaves_out = fails or {}, leaves_out or {}
        self.chance = chance
        self.runs: list[int] = []
        self.nodes = {
            name: Node(piece, Core(piece.graph, remote=piece.ghosts.tolist()), [], [])
            for name, piece in slice_by_place(graph).items()
        }

    def run(self) -> None:
        """Begin everywhere, at different times, and go on until nothing is on its way."""
        late = list(self.nodes.values())
        self.chance.shuffle(late)
        while late or any(node.waiting for node in self.nodes.values()):
            if late and (self.chance.random() < 0.3 or not any(node.waiting for node in self._begun(late))):
                self.step(late.pop(), Begin())
                continue
            node = self.chance.choice([node for node in self._begun(late) if node.waiting])
            self.step(node, node.waiting.pop(self.chance.randrange(len(node.waiting))))

    def _begun(self, late: Sequence[Node]) -> list[Node]:
        return [node for node in self.nodes.values() if not any(node is other for other in late)]

    def step(self, node: Node, event: Begin | Reported | Finished | Failed | Assembled) -> None:
        """One event."""
        for action in node.core.handle([event]):
            self.act(node, action)
        check(node.core)

    def act(self, node: Node, action: Action) -> None:
        """Carry out one action."""
        rows = node.piece.drop
        if isinstance(action, Run):
            drop = int(rows[action.drop])
            self.runs.append(drop)
            skipped = tuple(
                here for other in self.leaves_out.get(drop, ()) if (here := node.piece.local(other)) is not None
            )
            does_fail = self.fails.get(drop, 0) >= action.attempt
            failed, finished = Failed(action.drop, action.attempt, BOOM), Finished(action.drop, action.attempt, skipped)
            node.waiting.append(failed if does_fail else finished)
        elif isinstance(action, Assemble):
            node.waiting.append(Assembled(action.drop))
        elif isinstance(action, Tell):
            self.tell(node, action)
        elif isinstance(action, Release):
            node.released.append(int(rows[action.drop]))
        else:
            assert isinstance(action, Finish), action

    def tell(self, node: Node, action: Tell) -> None:
        """Pass it to all nodes with a neighbour of the drop, in the rows of their slices."""
        out = node.piece.graph
        drop = action.drop
        after, before = out.successors, out.predecessors
        near = {*after.neighbour[after.ptr[drop] : after.ptr[drop + 1]].tolist()}
        near |= {*before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()}
        homes = {out.places[out.part[other]] for other in near} - {node.piece.node}
        assert homes
        whole = int(node.piece.drop[drop])
        cause = action.cause
        cause = int(node.piece.drop[cause]) if cause >= 0 else NO_CAUSE if cause == NO_CAUSE else row_of_foreign(cause)
        for home in homes:
            there = self.nodes[home].piece
            skipped = (there.local(int(node.piece.drop[other])) for other in action.skipped)
            known = tuple(other for other in skipped if other is not None and there.is_own[other])
            here = there.local(cause) if cause >= 0 else None
            told = NO_CAUSE if cause == NO_CAUSE else foreign(cause) if here is None else here
            local = there.local(whole)
            assert local is not None
            self.nodes[home].waiting.append(Reported(local, action.state, told, action.attempt, known))

    def states(self) -> dict[int, DropState]:
        """State of every drop, from the node that it lives on."""
        return {
            int(node.piece.drop[own]): node.core.state(int(own))
            for node in self.nodes.values()
            for own in np.flatnonzero(node.piece.is_own)
        }


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - Hypothesis owns the seed


def _patient(graph: PhysicalGraph) -> PhysicalGraph:
    """The graph with applications that wait for all their inputs: then the order of events changes nothing."""
    templates = tuple(msgspec.structs.replace(template, effective_inputs=-1) for template in graph.templates)
    return replace(graph, templates=templates)


def _placed(graph: PhysicalGraph, chance: random.Random, nodes: int) -> PhysicalGraph:
    part = np.array([chance.randrange(nodes) for _ in range(graph.drops)], dtype=np.int32)
    return replace(graph, part=part, places=tuple(f"n{at}" for at in range(nodes)))


@given(graphs(), st.integers(0, 2**32), st.integers(2, 4))
def test_many_nodes_come_to_what_the_rules_say(graph: PhysicalGraph, seed: int, nodes: int) -> None:
    """However a graph is cut and whatever order news takes, every drop ends as it must, run by one node; all end."""
    graph = _patient(graph)
    chance = _chance(seed)
    fails = {drop: chance.randrange(3) for drop in range(graph.drops) if chance.random() < 0.3}
    out = graph.successors
    leaves_out = {
        drop: [other for other in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist() if chance.random() < 0.5]
        for drop in range(graph.drops)
        if chance.random() < 0.3 and graph.templates[graph.template[drop]].kind
    }
    cluster = Cluster(_placed(graph, chance, nodes), chance, fails=fails, leaves_out=leaves_out)
    cluster.run()
    wanted = oracle.outcome(graph, fails=fails, leaves_out=leaves_out)

    assert cluster.states() == dict(enumerate(wanted))
    assert all(node.core.status.is_terminal for node in cluster.nodes.values())
    assert max((cluster.runs.count(drop) for drop in cluster.runs), default=0) <= 3


@given(graphs(), st.integers(0, 2**32), st.integers(2, 4))
def test_contents_are_released_where_they_are_and_where_they_were_fetched(
    graph: PhysicalGraph, seed: int, nodes: int
) -> None:
    """Where all goes well every data drop with consumers is released on its node and on each node that has some."""
    chance = _chance(seed)
    cluster = Cluster(_placed(graph, chance, nodes), chance)
    cluster.run()
    for node in cluster.nodes.values():
        here = node.piece.graph
        read = [
            int(node.piece.drop[drop])
            for drop in range(here.drops)
            if not here.templates[here.template[drop]].kind
            and here.successors.ptr[drop + 1] > here.successors.ptr[drop]
            and node.core.state(drop) is DropState.COMPLETED
        ]
        assert sorted(node.released) == sorted(read)


def _two(text: str, there: str) -> tuple[PhysicalGraph, Slice, Core]:
    """A drawing with one drop on another node, and the core of this one."""
    graph = draw(text)
    part = np.array([int(drop == row(graph, there)) for drop in range(graph.drops)], dtype=np.int32)
    piece = slice_by_place(replace(graph, part=part, places=("a", "b")))["a"]
    return piece.graph, piece, Core(piece.graph, remote=piece.ghosts.tolist())


def test_a_node_goes_on_until_nobody_elsewhere_needs_what_it_has() -> None:
    """A session does not end on a node while a consumer elsewhere is not settled."""
    graph, _, core = _two("a -> B", "B")
    core.handle([Begin()])
    told = core.handle([Finished(row(graph, "a"), 1)])

    assert Tell(row(graph, "a"), DropState.COMPLETED, NO_CAUSE, 1) in told
    assert core.status is SessionState.RUNNING
    end = core.handle([Reported(row(graph, "B"), DropState.COMPLETED)])
    assert end == [Release(row(graph, "a")), Finish(SessionState.FINISHED)]


def test_an_output_skipped_elsewhere_is_skipped_here() -> None:
    """What a Branch on another node leaves out is SKIPPED, and what it did not leave out COMPLETES."""
    graph, _, core = _two("a -> B -> x, B -> y", "B")
    core.handle([Begin(), Finished(row(graph, "a"), 1)])
    core.handle([Reported(row(graph, "B"), DropState.COMPLETED, NO_CAUSE, 1, (row(graph, "x"),))])

    assert core.state(row(graph, "x")) is DropState.SKIPPED
    assert core.state(row(graph, "y")) is DropState.COMPLETED


def test_a_foreign_cause_is_kept() -> None:
    """An error that started at a drop of which nothing is here keeps the row of that drop in the whole graph."""
    graph, _, core = _two("x -> A -> b", "x")
    core.handle([Begin()])
    core.handle([Reported(row(graph, "x"), DropState.ERROR, foreign(77))])

    assert {row_of_foreign(cause) for cause in core.causes.values()} == {77}


def test_a_lost_node_ends_the_session() -> None:
    """What runs is aborted, what is not settled is CANCELLED, and the session is FAILED."""
    graph, _, core = _two("x -> A -> b, C -> d", "x")
    core.handle([Begin()])
    actions = core.handle([Lost("b", GONE)])

    assert actions == [Abort(row(graph, "C"), 1), Finish(SessionState.FAILED)]
    assert core.state(row(graph, "A")) is DropState.CANCELLED


@pytest.mark.parametrize("state", [DropState.COMPLETED, DropState.ERROR])
def test_news_that_comes_twice_counts_once(state: DropState) -> None:
    """The second report of a drop is refused."""
    graph, _, core = _two("x -> A -> b", "x")
    core.handle([Begin()])
    news = Reported(row(graph, "x"), state)
    core.handle([news])
    core.handle([news])

    assert core.refused == 1
    assert core.abroad == 0
