"""A core that is interrupted at any moment, loses contents, and continues from known states."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import kept_drops
from dropflow.execution.decisions.continuation import (
    FrozenSession,
    Restart,
    continuation_of,
    has_attempts,
    must_run_again,
)
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.drop_table import DropTable
from dropflow.execution.decisions.events import (
    Abort,
    Accept,
    Action,
    Assemble,
    Assembled,
    Begin,
    Event,
    Failed,
    Finish,
    Finished,
    KnownStates,
    Opened,
    Publish,
    Release,
    Run,
)
from dropflow.execution.decisions.invariants import check
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import whole_slice
from dropflow.graph.templates import Kind
from dropflow.states import DropState, SessionState
from tests.execution.decisions.core_cluster import BOOM

N, C, E, S = DropState.INITIALIZED, DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED


def known_states(
    graph: PhysicalGraph,
    drops: DropTable,
    reset: npt.NDArray[np.bool_],
    contents: Collection[int],
    *,
    repeated: Collection[int] = (),
    retried: Collection[int] = (),
) -> KnownStates:
    """Return the states with which a session continues after its process ended, with these contents left."""
    states = np.frombuffer(bytes(drops.states), dtype=np.uint8).copy()
    states[~np.isin(states, (C, E, S))] = N
    is_repeated = np.zeros(graph.drops, dtype=np.bool_)
    is_repeated[list(repeated)] = True
    before = FrozenSession(
        drops=drops,
        states=states.tobytes(),
        contents={drop: Handle() for drop in contents},
        aborted=frozenset(drops.running),
    )
    restart = Restart(reset=reset, repeated=is_repeated, retried=retried, reason="test")
    return continuation_of(before, whole_slice(graph), restart).known


class World:
    """One core with the contents that its drops have; what an attempt results in is a function of its drop."""

    def __init__(
        self,
        graph: PhysicalGraph,
        chance: random.Random,
        *,
        fails: Mapping[int, int] | None = None,
        leaves_out: Mapping[int, Sequence[int]] | None = None,
        streams: Sequence[int] = (),
    ) -> None:
        self.graph, self.chance, self.streams = graph, chance, streams
        self.fails, self.leaves_out = Counter(fails or {}), leaves_out or {}
        self.kept = kept_drops(graph)
        self.contents: set[int] = set()
        self.runs: Counter[int] = Counter()
        """Attempts that ended, by drop, since the last interruption."""
        self.allowed: set[int] = set(range(graph.drops))
        """Drops that may run."""
        self.begin(Begin())

    def begin(self, event: Begin) -> None:
        """Begin a fresh core."""
        self.core = Core(self.graph, streams=self.streams)
        self.parts: set[tuple[int, int]] = set()
        self.skipped: dict[int, tuple[int, ...]] = {} if event.known is None else dict(event.known.skipped)
        self.running: list[Run] = []
        self.early: dict[int, Event] = {}
        self.journal: list[Event] = []
        self.runs.clear()
        self.handle([event])

    def handle(self, events: list[Event]) -> None:
        """Process events and everything that follows at once."""
        while events:
            self.journal += events
            actions = self.core.handle(events)
            check(self.core)
            events = [event for action in actions for event in self.act(action)]

    def act(self, action: Action) -> list[Event]:
        """Carry out one action; return the events that follow at once."""
        if isinstance(action, Run):
            self.running.append(action)
        elif isinstance(action, Abort):
            self.running = [run for run in self.running if run.drop != action.drop]
            self.early.pop(action.drop, None)
        elif isinstance(action, Accept):
            return self.ended(self.early.pop(action.drop)) if action.drop in self.early else []
        elif isinstance(action, Release) and not self.kept[action.drop]:
            self.contents.discard(action.drop)
        elif isinstance(action, Assemble):
            writers = {other for other in self.inputs(action.drop) if self.core.drops.state(other) is C}
            writers -= {other for other in writers if action.drop in self.skipped.get(other, ())}
            assert {(other, action.drop) for other in writers} <= self.parts, "all parts are there"
            self.contents.add(action.drop)
            return [Assembled(action.drop)]
        else:
            assert isinstance(action, Finish | Publish | Release) or self.streams
        return []

    def inputs(self, drop: int) -> list[int]:
        """Return the predecessors of a drop."""
        before = self.graph.predecessors
        found: list[int] = before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
        return found

    def outputs(self, drop: int) -> list[int]:
        """Return the successors of a drop."""
        after = self.graph.successors
        found: list[int] = after.neighbour[after.ptr[drop] : after.ptr[drop + 1]].tolist()
        return found

    def step(self, drop: int | None = None) -> None:
        """End, or open an output of, one of the attempts that run: that of `drop`, or any."""
        at = self.chance.randrange(len(self.running))
        if drop is not None:
            at = next(at for at, run in enumerate(self.running) if run.drop == drop)
        run = self.running[at]
        is_app = self.graph.templates[self.graph.template[run.drop]].kind is Kind.APP
        if is_app and self.streams and self.outputs(run.drop) and self.chance.random() < 0.5:
            self.handle([Opened(self.chance.choice(self.outputs(run.drop)), run.drop, run.attempt)])
            return
        del self.running[at]
        event: Event = Finished(run.drop, run.attempt, tuple(self.leaves_out.get(run.drop, ())))
        if self.fails[run.drop] > 0:
            event = Failed(run.drop, run.attempt, BOOM)
        if self.core.streaming.is_ahead(run.drop):
            self.early[run.drop] = event
        else:
            self.handle(self.ended(event))

    def ended(self, event: Event) -> list[Event]:
        """Commit what an attempt wrote, whose inputs must be there; return its event."""
        assert isinstance(event, Finished | Failed)
        drop = event.drop
        assert drop in self.allowed, f"drop {drop} runs although its outcome is known"
        self.runs[drop] += 1
        is_app = self.graph.templates[self.graph.template[drop]].kind is Kind.APP
        lacking = [data for data in self.inputs(drop) if self.core.drops.state(data) is C and data not in self.contents]
        assert not lacking, f"application {drop} runs without the contents of {lacking}"
        if isinstance(event, Failed):
            self.fails[drop] -= 1
            return [event]
        self.skipped[drop] = event.skipped
        for target in self.outputs(drop) if is_app else [drop]:
            if self.core.drops.state(target).is_terminal or target in event.skipped:
                continue
            if is_app and len(self.inputs(target)) > 1:
                self.parts.add((drop, target))
            else:
                self.contents.add(target)
        return [event]

    def play(self, steps: int = 1_000_000) -> None:
        """Step until the end, or so many times."""
        while self.running and steps:
            self.step()
            steps -= 1

    def interrupt(self, lost: Collection[int], *, retried: Collection[int] = ()) -> set[int]:
        """End the process, lose contents, and begin again from the journal. Returns the drops that were reset.

        Drops in ERROR because of those in `retried` have to settle again.
        """
        replayed = Core(self.graph, streams=self.streams)
        replayed.handle(self.journal)
        assert replayed.drops.states == self.core.drops.states
        self.contents -= set(lost)
        available = np.zeros(self.graph.drops, dtype=np.bool_)
        available[list(self.contents)] = True
        parts = [(app, data) for app, chosen in self.skipped.items() for data in chosen]
        causes = replayed.drops.error_causes()
        repeated = [drop for drop, cause in causes.items() if cause in retried]
        states = bytearray(replayed.drops.states)
        for drop in repeated:
            states[drop] = N
        reset = must_run_again(self.graph, states, available, kept=self.kept, parts=parts)
        failed = [drop for drop in retried if has_attempts(self.graph)[drop]]
        known = known_states(self.graph, replayed.drops, reset, self.contents, repeated=repeated, retried=failed)
        self.allowed = {drop for drop in range(self.graph.drops) if known.states[drop] == N}
        self.begin(msgspec.msgpack.decode(msgspec.msgpack.encode(Begin(known)), type=Begin))
        return set(np.flatnonzero(reset).tolist())

    def states(self) -> list[DropState]:
        """Return the states of all drops."""
        return [self.core.drops.state(drop) for drop in range(self.graph.drops)]

    def check_end(self) -> None:
        """Check that the session is over, with all results."""
        assert self.core.status in (SessionState.FINISHED, SessionState.FAILED)
        results = {drop for drop, flag in enumerate(self.kept) if flag and self.core.drops.state(drop) is C}
        assert results <= self.contents


def outcomes(graph: PhysicalGraph, data: st.DataObject) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Draw how often each drop fails, and what it skips."""
    out = graph.successors
    fails = {drop: data.draw(st.sampled_from([0, 0, 0, 1, 2])) for drop in range(graph.drops)}
    leaves_out = {}
    for drop in range(graph.drops):
        targets = out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist()
        if targets and graph.templates[graph.template[drop]].kind is Kind.APP and data.draw(st.booleans()):
            leaves_out[drop] = data.draw(st.lists(st.sampled_from(targets), unique=True))
    return fails, leaves_out
