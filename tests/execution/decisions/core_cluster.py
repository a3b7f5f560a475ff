"""Cores of several nodes, each with a slice, that exchange events without order."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import (
    NO_CAUSE,
    NO_PRODUCER,
    Abort,
    Accept,
    Action,
    Assemble,
    Assembled,
    Begin,
    Failed,
    Finish,
    Finished,
    Opened,
    Publish,
    Release,
    Reported,
    Run,
    Withdraw,
    Withdrawn,
    foreign,
    row_of_foreign,
)
from dropflow.execution.decisions.invariants import check
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, slice_for
from dropflow.states import DropState
from tests.graph.shapes import slice_by_place

BOOM = Failure(code="DF105", kind="ValueError", text="boom", retryable=True)
News = Reported | Finished | Failed | Assembled | Opened | Withdrawn


@dataclass
class Node:
    """One node: its slice, its core, and the events that its core has not processed yet.

    `early` are results that came before the inputs were complete, as a session keeps them.
    """

    piece: Slice
    core: Core
    waiting: list[News]
    released: list[int]
    early: dict[int, Finished | Failed]


def _shuffled(graph: PhysicalGraph, piece: Slice, chance: random.Random) -> Slice:
    """Return the slice with its rows in the order of the graph or, as often, in any order."""
    rows = piece.drop.tolist()
    if chance.random() < 0.5:
        chance.shuffle(rows)
    return slice_for(graph, piece.node, first=np.array(rows, dtype=np.int32))


class CoreCluster:
    """Nodes that carry out the actions of their cores and send each other events, in an order drawn from `chance`."""

    def __init__(
        self,
        graph: PhysicalGraph,
        chance: random.Random,
        *,
        fails: Mapping[int, int] | None = None,
        leaves_out: Mapping[int, Sequence[int]] | None = None,
        streams: Sequence[int] = (),
    ) -> None:
        self.fails, self.leaves_out = Counter(fails or {}), leaves_out or {}
        self.chance = chance
        self.streams = frozenset(streams)
        self.runs: list[int] = []
        self.done: dict[int, int] = {}
        self.read: dict[tuple[int, int], dict[int, int]] = {}
        self.nodes = {
            name: Node(piece, Core(piece.graph, remote=piece.ghosts.tolist(), streams=streams), [], [], {})
            for name, piece in (
                (name, _shuffled(graph, piece, chance)) for name, piece in slice_by_place(graph).items()
            )
        }

    def run(self) -> None:
        """Begin on all nodes, at different times, and step until no event waits."""
        late = list(self.nodes.values())
        self.chance.shuffle(late)
        while late or any(node.waiting for node in self.nodes.values()):
            if late and (self.chance.random() < 0.3 or not any(node.waiting for node in self._begun(late))):
                self.step(late.pop(), Begin())
                continue
            node = self.chance.choice([node for node in self._begun(late) if node.waiting])
            self.step(node, self.next(node))

    def next(self, node: Node) -> News:
        """Remove one of the waiting events; those about streams keep their order, and come before later reports."""
        chosen = self.chance.randrange(len(node.waiting))
        if self._is_from_another_node(node, node.waiting[chosen]):
            of_streams = (at for at, news in enumerate(node.waiting[:chosen]) if not isinstance(news, Reported))
            chosen = next((at for at in of_streams if self._is_from_another_node(node, node.waiting[at])), chosen)
        return node.waiting.pop(chosen)

    def _is_from_another_node(self, node: Node, news: News) -> bool:
        """Return whether an event came from another node."""
        if isinstance(news, Opened):
            return news.producer == NO_PRODUCER or news.producer in node.core.drops.remote
        return isinstance(news, Reported | Withdrawn)

    def _begun(self, late: Sequence[Node]) -> list[Node]:
        return [node for node in self.nodes.values() if not any(node is other for other in late)]

    def step(self, node: Node, event: Begin | News) -> None:
        """Process one event."""
        if isinstance(event, Finished | Failed) and node.core.drops.is_current(event.drop, event.attempt):
            if node.core.streaming.is_ahead(event.drop):
                node.early[event.drop] = event
                return
            drop = int(node.piece.drop[event.drop])
            self.fails[drop] -= isinstance(event, Failed)
            if isinstance(event, Finished):
                self.done[drop] = event.attempt
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
            does_fail = self.fails.get(drop, 0) > 0
            node.waiting += self.opened(node, action)
            self.read[drop, action.attempt] = self.reading(node, action.drop)
            failed, finished = Failed(action.drop, action.attempt, BOOM), Finished(action.drop, action.attempt, skipped)
            node.waiting.append(failed if does_fail else finished)
        elif isinstance(action, Assemble):
            node.waiting.append(Assembled(action.drop))
        elif isinstance(action, Publish) and not action.state.is_terminal:
            self.send_stream_event(node, action)
        elif isinstance(action, Publish):
            self.send_report(node, action)
        elif isinstance(action, Accept):
            if action.drop in node.early:
                node.waiting.append(node.early.pop(action.drop))
        elif isinstance(action, Abort):
            node.early.pop(action.drop, None)
        elif isinstance(action, Release):
            node.released.append(int(rows[action.drop]))
        else:
            assert isinstance(action, Finish | Withdraw), action

    def opened(self, node: Node, run: Run) -> list[News]:
        """Return the events of the outputs that an attempt opens."""
        graph = node.piece.graph
        if not self.streams or not graph.templates[graph.template[run.drop]].kind:
            return []
        after = graph.successors
        targets = after.neighbour[after.ptr[run.drop] : after.ptr[run.drop + 1]].tolist()
        return [Opened(target, run.drop, run.attempt) for target in targets if self.chance.random() < 0.8]

    def reading(self, node: Node, app: int) -> dict[int, int]:
        """Return the open inputs of an application, with the attempt that writes each."""
        before = node.piece.graph.predecessors
        inputs = before.neighbour[before.ptr[app] : before.ptr[app + 1]].tolist()
        return {
            int(node.piece.drop[data]): attempt
            for data in inputs
            if (attempt := node.core.streaming.open_attempt(data))
        }

    def send_stream_event(self, node: Node, action: Publish) -> None:
        """Send an event about a stream to the nodes of the consumers, or to the node of the drop."""
        here = node.piece.graph
        whole = int(node.piece.drop[action.drop])
        after, before = here.successors, here.predecessors
        if node.piece.is_own[action.drop]:
            near = after.neighbour[after.ptr[action.drop] : after.ptr[action.drop + 1]].tolist()
            homes = {here.places[here.part[other]] for other in near} - {node.piece.node}
            source = NO_PRODUCER
        else:
            homes = {here.places[here.part[action.drop]]}
            source = int(node.piece.drop[before.neighbour[before.ptr[action.drop]]])
        for home in homes:
            there = self.nodes[home].piece
            local = there.local(whole)
            producer = NO_PRODUCER if source == NO_PRODUCER else there.local(source)
            assert local is not None
            assert producer is not None
            opened = action.state is DropState.WRITING
            self.nodes[home].waiting.append(
                Opened(local, producer, action.attempt) if opened else Withdrawn(local, action.attempt)
            )

    def send_report(self, node: Node, action: Publish) -> None:
        """Send the state of a settled drop to all nodes with a neighbour of it, in the rows of their slices."""
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
            reported = NO_CAUSE if cause == NO_CAUSE else foreign(cause) if here is None else here
            local = there.local(whole)
            assert local is not None
            self.nodes[home].waiting.append(Reported(local, action.state, reported, action.attempt, known))

    def states(self) -> dict[int, DropState]:
        """Return the state of every drop, from its own node."""
        return {
            int(node.piece.drop[own]): node.core.drops.state(int(own))
            for node in self.nodes.values()
            for own in np.flatnonzero(node.piece.is_own)
        }


def patient(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph without effective inputs: then final states do not depend on the order of events."""
    templates = tuple(msgspec.structs.replace(template, effective_inputs=-1) for template in graph.templates)
    return replace(graph, templates=templates)


def faults(graph: PhysicalGraph, chance: random.Random, share: float) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return how often a share of the drops fail, and which outputs a share of the applications leave out."""
    fails = {drop: chance.randrange(3) for drop in range(graph.drops) if chance.random() < share}
    out = graph.successors
    leaves_out = {
        drop: [other for other in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist() if chance.random() < 0.5]
        for drop in range(graph.drops)
        if chance.random() < share and graph.templates[graph.template[drop]].kind
    }
    return fails, leaves_out


def placed(graph: PhysicalGraph, chance: random.Random, nodes: int) -> PhysicalGraph:
    """Return the graph with each drop on one of the nodes."""
    part = np.array([chance.randrange(nodes) for _ in range(graph.drops)], dtype=np.int32)
    return replace(graph, part=part, places=tuple(f"n{at}" for at in range(nodes)))
