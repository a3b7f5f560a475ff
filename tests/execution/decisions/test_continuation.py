"""What runs again after a loss, in a session that is over, and when a session continues."""

import heapq
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.errors import ConflictError
from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import ContentTable, kept_drops
from dropflow.execution.decisions.continuation import (
    FrozenSession,
    Restart,
    continuation_of,
    has_attempts,
    must_run_again,
)
from dropflow.execution.decisions.drop_table import DropTable
from dropflow.execution.decisions.events import Action, Assemble, Begin, Event, Finished
from dropflow.execution.journal import Journal, JournalHeader, replay
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.failure import Failure
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import digest
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import whole_slice
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid
from dropflow.sessions.retry import RepeatedDrops, drops_to_repeat
from dropflow.sessions.stopped import StoppedSession
from dropflow.states import DropState
from dropflow.testing.drawing import draw, row
from tests.execution.decisions.core_cluster import BOOM
from tests.execution.decisions.interrupted_core import World, known_states, outcomes
from tests.execution.sessions import Driver
from tests.regular_graphs import chain
from tests.strategies import expected_states, graphs

N, C, E, S = DropState.INITIALIZED, DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED


def reset_of(graph: PhysicalGraph, states: bytes, available: set[int], parts: set[tuple[int, int]]) -> set[int]:
    """Return the drops that must run again, as a set."""
    column = np.zeros(graph.drops, dtype=np.bool_)
    column[list(available)] = True
    found = must_run_again(graph, states, column, kept=kept_drops(graph), parts=parts)
    return set(np.flatnonzero(found).tolist())


def is_sufficient(
    graph: PhysicalGraph, states: bytes, available: set[int], parts: set[tuple[int, int]], reset: set[int]
) -> bool:
    """Return whether all drops settle with all results there if only these and the unsettled drops run, one by one."""
    before = graph.predecessors
    settled = {drop for drop in range(graph.drops) if states[drop] in (C, E, S)} - reset
    completes = {drop for drop in range(graph.drops) if states[drop] not in (E, S)}
    contents, written = available & settled, set(parts)
    progress = True
    while progress:
        progress = False
        for drop in set(range(graph.drops)) - settled:
            inputs = set(before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist())
            if not inputs <= settled:
                continue
            is_app = graph.templates[graph.template[drop]].kind is Kind.APP
            has = contents if is_app else {other for other in inputs if (other, drop) in written}
            if not inputs & completes <= has:
                continue
            settled.add(drop)
            progress = True
            if is_app:
                written |= {(drop, other) for other in range(graph.drops)}
            else:
                contents.add(drop)
    results = {drop for drop, flag in enumerate(kept_drops(graph)) if flag} & completes
    return len(settled) == graph.drops and results <= contents


@st.composite
def situations(draw: st.DrawFn, most: int) -> tuple[PhysicalGraph, bytes, set[int], set[tuple[int, int]]]:
    """Draw a graph, states that can occur in it, available contents, and available parts of unsettled drops."""
    graph = draw(graphs(most=most))
    before = graph.predecessors
    states: list[DropState] = []
    for drop in range(graph.drops):  # rows are in topological order
        inputs = [states[other] for other in before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()]
        choices = [C, C, C, E, S, N] if N not in inputs else [N]
        states.append(draw(st.sampled_from(choices)))
    available = {drop for drop in range(graph.drops) if states[drop] is C and draw(st.booleans())}
    pairs = [
        (other, drop)
        for drop in range(graph.drops)
        for other in before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
        if states[other] is C and states[drop] is N
    ]
    parts = set(draw(st.lists(st.sampled_from(pairs), max_size=3))) if pairs else set()
    return graph, bytes(states), available, parts


@settings(max_examples=150, deadline=None)
@given(situations(most=14))
def test_what_runs_again_is_sufficient(situation: tuple[PhysicalGraph, bytes, set[int], set[tuple[int, int]]]) -> None:
    """If only the reset and the unsettled drops run, every drop settles and every result is there."""
    graph, states, available, parts = situation
    reset = reset_of(graph, states, available, parts)

    assert all(states[drop] == C for drop in reset)
    assert not reset & available & {drop for drop in range(graph.drops) if graph.templates[drop].kind is Kind.DATA}
    assert is_sufficient(graph, states, available, parts, reset)


@settings(max_examples=150, deadline=None)
@given(situations(most=9))
def test_what_runs_again_is_minimal(situation: tuple[PhysicalGraph, bytes, set[int], set[tuple[int, int]]]) -> None:
    """No proper subset of the reset drops is sufficient."""
    graph, states, available, parts = situation
    reset = reset_of(graph, states, available, parts)

    for size in range(len(reset)):
        for fewer in combinations(sorted(reset), size):
            assert not is_sufficient(graph, states, available, parts, set(fewer)), fewer


def test_nothing_runs_again_if_nothing_is_lost() -> None:
    """With all contents available nothing is reset, and what is lost but not needed is not reset either."""
    graph = draw("a -> B -> c -> D -> e")
    a, b, c, e = (row(graph, name) for name in "aBce")
    states = bytearray([N] * graph.drops)
    states[a] = states[b] = states[c] = C

    assert reset_of(graph, states, {a, c}, set()) == set()
    assert reset_of(graph, states, {c}, set()) == set()
    assert reset_of(graph, states, {a}, set()) == {b, c}
    assert reset_of(graph, states, set(), set()) == {a, b, c}
    assert reset_of(graph, bytes([C] * graph.drops), {a, c}, set()) == {e, row(graph, "D")}


def test_a_producer_of_a_shared_drop_writes_its_part_again() -> None:
    """The parts of a drop that is not complete are lost with the process, unless they are said to be available."""
    graph = draw("A -> x, B -> x")
    states = bytearray([N] * graph.drops)
    states[row(graph, "A")] = C

    assert reset_of(graph, states, set(), set()) == {row(graph, "A")}
    assert reset_of(graph, states, set(), {(row(graph, "A"), row(graph, "x"))}) == set()


@pytest.mark.parametrize("length", [10, 100_000])
def test_a_lost_chain_runs_again_from_its_last_content(length: int) -> None:
    """A chain of any length whose contents are lost runs again as a whole, without recursion."""
    graph = chain(2 * length)
    states = bytes([C] * (graph.drops - 1) + [N])

    assert len(reset_of(graph, states, set(), set())) == graph.drops - 1


# A session that is over runs again from some drops, after contents were lost, and ends as a whole new run.


REPEATED_DROPS_C, REPEATED_DROPS_E, REPEATED_DROPS_S = DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED


class _Values(World):
    """A core whose contents have values: what each attempt has read, and the version of its drop."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.version: Counter[int] = Counter()
        self.values: dict[int, object] = {}
        self.written: dict[tuple[int, int], object] = {}
        super().__init__(*arguments, **more)

    def ended(self, event: Event) -> list[Event]:
        """Give values to what an attempt commits."""
        before, parts = set(self.contents), set(self.parts)
        followed = super().ended(event)
        if isinstance(event, Finished):
            drop = event.drop
            read = tuple(
                self.values.get(data) if self.core.drops.state(data) is REPEATED_DROPS_C else None
                for data in self.inputs(drop)
            )
            value = drop, self.version[drop], read
            self.values.update(dict.fromkeys(self.contents - before, value))
            self.written.update(dict.fromkeys(self.parts - parts, value))
        return followed

    def act(self, action: Action) -> list[Event]:
        """Give a value to what is assembled from parts."""
        followed = super().act(action)
        if isinstance(action, Assemble):
            parts = [self.written[pair] for pair in sorted(self.parts) if pair[1] == action.drop]
            self.values[action.drop] = tuple(parts)
        return followed

    def run_again(self, again: RepeatedDrops, lost: set[int]) -> set[int]:
        """Continue with what is left, and the drops that are repeated; return what else was reset."""
        graph, drops = self.graph, self.core.drops
        self.contents -= lost | set(again.drops)
        available = np.zeros(graph.drops, dtype=np.bool_)
        available[list(self.contents)] = True
        states = bytearray(drops.states)
        for drop in again.drops:
            states[drop] = DropState.INITIALIZED
        parts = [(app, data) for app, chosen in self.skipped.items() for data in chosen]
        reset = must_run_again(graph, states, available, kept=self.kept, parts=parts)
        known = known_states(graph, drops, reset, self.contents, repeated=again.drops, retried=again.begun)
        self.allowed = {drop for drop in range(graph.drops) if known.states[drop] == DropState.INITIALIZED}
        self.begin(msgspec.msgpack.decode(msgspec.msgpack.encode(Begin(known)), type=Begin))
        return set(np.flatnonzero(reset).tolist())


def _expected_values(
    graph: PhysicalGraph, states: list[DropState], leaves_out: Mapping[int, list[int]], version: Mapping[int, int]
) -> dict[int, object]:
    """Return the value of every completed drop in a run of its own, computed recursively."""
    before = graph.predecessors
    found: dict[int, object] = {}

    def value(drop: int) -> object:
        if drop not in found:
            inputs = before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
            if graph.templates[drop].kind is Kind.APP or not inputs:
                read = tuple(value(data) if states[data] is REPEATED_DROPS_C else None for data in inputs)
                found[drop] = drop, version[drop], read
            else:
                writers = [
                    app for app in inputs if states[app] is REPEATED_DROPS_C and drop not in leaves_out.get(app, ())
                ]
                found[drop] = value(writers[0]) if len(inputs) == 1 else tuple(value(app) for app in sorted(writers))
        return found[drop]

    return {drop: value(drop) for drop in range(graph.drops) if states[drop] is REPEATED_DROPS_C}


@settings(max_examples=20, deadline=None)
@given(graphs(most=10), st.data())
def test_drops_run_again_as_in_a_whole_new_run(graph: PhysicalGraph, data: st.DataObject) -> None:
    """What is named behaves in another way from then on: fails, skips other outputs, or writes something else.

    States and contents are those of a new run in which it always did so. What does not depend on it is not touched.
    """
    _play_and_compare(graph, data)


def _play_and_compare(graph: PhysicalGraph, data: st.DataObject) -> None:
    plain = tuple(msgspec.structs.replace(template, effective_inputs=-1) for template in graph.templates)
    graph = replace(graph, templates=plain)
    fails, leaves_out = outcomes(graph, data)
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    world = _Values(graph, chance, fails=fails, leaves_out=leaves_out)
    world.play()
    names = data.draw(st.lists(st.integers(0, graph.drops - 1), min_size=1, max_size=3, unique=True))
    for _ in range(data.draw(st.integers(1, 2))):
        states = np.frombuffer(bytes(world.core.drops.states), dtype=np.uint8)
        causes = world.core.drops.error_causes()
        try:
            again = drops_to_repeat(graph, states, causes, [oid(graph, drop) for drop in names])
        except ConflictError:
            _check_refused(world, names)
            return
        former, kept = world.states(), dict(world.values)
        more_fails, more_left_out = outcomes(graph, data)
        repeated = set(again.drops)
        fails = {drop: (more_fails if drop in repeated else fails)[drop] for drop in range(graph.drops)}
        leaves_out = {
            drop: targets
            for source, is_new in ((more_left_out, True), (leaves_out, False))
            for drop, targets in source.items()
            if (drop in repeated) is is_new
        }
        world.leaves_out = leaves_out
        world.fails = Counter({drop: fails[drop] for drop in repeated})
        world.version.update(again.starts)
        lost = {drop for drop in world.contents if chance.random() < 0.4}
        reset = world.run_again(again, lost)
        assert not reset & repeated
        world.play()

        world.check_end()
        expected = expected_states(graph, fails=fails, leaves_out=leaves_out)
        values = _expected_values(graph, expected, leaves_out, world.version)
        assert world.states() == expected
        assert {drop: world.values[drop] for drop in world.contents} == {drop: values[drop] for drop in world.contents}
        for drop in set(range(graph.drops)) - repeated - reset:
            assert world.states()[drop] is former[drop]
            assert world.values.get(drop) is kept.get(drop)
            assert not world.runs[drop]


@pytest.mark.exhaustive
@settings(max_examples=1000, deadline=None)
@given(graphs(), st.data())
def test_many_drops_run_again_as_in_a_whole_new_run(graph: PhysicalGraph, data: st.DataObject) -> None:
    """The same with more and larger graphs."""
    _play_and_compare(graph, data)


def _check_refused(world: _Values, names: list[int]) -> None:
    """Check that nothing would run from one of these drops."""
    runs, causes = has_attempts(world.graph), world.core.drops.error_causes()

    def has_run(drop: int) -> bool:
        return world.core.drops.state(drop) is REPEATED_DROPS_C or causes.get(drop) == drop

    writers = [[drop] if runs[drop] else world.inputs(drop) for drop in names]
    assert any(not any(has_run(app) for app in apps) for apps in writers)


# What is left of a session is the same in its process and in its directory, and so is how it continues.


_A, _B, _C, _D = range(4)
DIED = Failure(code="DF202", kind="WorkerDiedError", text="died", retryable=True, infrastructure=True)


def stop(
    graph: PhysicalGraph,
    directory: Path,
    *,
    times: int,
    fails: Callable[[Task], Failure | None] = lambda _: None,
    skips: Callable[[Task], Collection[int]] = lambda _: (),
    omits: Collection[int] = (),
) -> tuple[FrozenSession, FrozenSession]:
    """Let a session process so many events of its runner; return what it hands over, and what its directory has.

    Attempts write to no drop of `omits`.
    """
    path = directory / "journal.dfj"
    journal = Journal(path, JournalHeader("s", digest(graph), 0.0))
    content = lambda task, _: Handle(body=task.oid.encode())  # noqa: E731
    driver = Driver(graph, {"journal": journal}, failure=fails, skips=skips, content=content)
    start = driver.runner.start

    def omit(item: object) -> object:
        if not isinstance(item, AttemptResult):
            return item
        handles = {drop: one for drop, one in item.handles.items() if drop not in omits}
        return msgspec.structs.replace(item, handles=handles)

    def begin(deliver: Callable[[Sequence[object]], None]) -> None:
        start(lambda items: deliver([omit(item) for item in items]))

    driver.runner.start = begin  # type: ignore[method-assign, assignment]
    session = driver.session
    session.begin()
    while times and driver.due and not session.is_over:
        due = heapq.heappop(driver.due)
        driver.clock.advance(max(0.0, due[0] - driver.clock.monotonic()))
        due[2]()
        session.step()
        session.step()
        times -= 1
    live = session.hand_over()
    return live, StoppedSession(directory, whole_slice(graph), replay(graph, path)).frozen


def available(graph: PhysicalGraph, left: FrozenSession) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which drops have what was written to them."""
    found = np.zeros(graph.drops, dtype=np.bool_)
    found[[*left.contents, *left.unwritten]] = True
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(graphs(most=12), st.integers(0, 2**32))
def test_a_session_continues_alike_in_its_process_and_from_its_directory(graph: PhysicalGraph, seed: int) -> None:
    """Attempts fail, have infrastructure faults, skip outputs, and write nothing to some drops; some still run."""
    chance = random.Random(seed)
    graph = replace(graph, part=np.zeros(graph.drops, dtype=np.int32), places=("n",))
    outcome = {(drop, n): chance.choice((None, None, BOOM, DIED)) for drop in range(graph.drops) for n in range(1, 9)}
    omits = [drop for drop in range(graph.drops) if chance.random() < 0.2]
    skipped = {drop for drop in range(graph.drops) if chance.random() < 0.2}
    with tempfile.TemporaryDirectory() as directory:
        live, stopped = stop(
            graph,
            Path(directory),
            times=chance.randrange(3 * graph.drops + 1),
            fails=lambda task: outcome.get((task.drop, task.attempt)),
            skips=lambda task: [output.drop for output in task.outputs if output.drop in skipped],
            omits=omits,
        )
    causes = live.drops.error_causes()
    retried = {cause for cause in causes.values() if chance.random() < 0.5 and has_attempts(graph)[cause]}
    is_repeated = np.zeros(graph.drops, dtype=np.bool_)
    is_repeated[[drop for drop, cause in causes.items() if cause in retried]] = True
    found = []
    for left in (live, stopped):
        states = np.frombuffer(left.states, dtype=np.uint8).copy()
        states[is_repeated] = DropState.INITIALIZED
        parts = [(app, drop) for app, chosen in left.drops.skipped_outputs.items() for drop in chosen]
        there = available(graph, stopped)
        reset = must_run_again(graph, states.tobytes(), there, kept=kept_drops(graph), parts=parts)
        restart = Restart(reset=reset, repeated=is_repeated, retried=retried, reason="test")
        found.append(continuation_of(left, whole_slice(graph), restart))
    here, again = found

    running = here.known.running
    states = np.frombuffer(here.known.states, dtype=np.uint8).copy()
    states[list(running)] = DropState.INITIALIZED
    assert states.tobytes() == again.known.states
    assert stopped.aborted >= {*running}
    for field in ("causes", "skipped", "reset", "reason", "faults"):
        assert getattr(here.known, field) == getattr(again.known, field), field
    for drop in set(range(graph.drops)) - stopped.aborted:
        for field in ("attempts", "uncounted_attempts"):
            assert getattr(here.known, field).get(drop) == getattr(again.known, field).get(drop), (field, drop)
    # The journal still has small contents that were released.
    assert {*here.known.lost} - stopped.released == {*again.known.lost} - stopped.released
    assert here.contents.keys() - stopped.released == again.contents.keys() - stopped.released
    assert here.failures == again.failures
    assert live.unwritten == stopped.unwritten


def test_producers_that_wrote_nothing_do_not_run_again(tmp_path: Path) -> None:
    """A drop to which none of its producers wrote lacks no content, also while the session is in its process."""
    graph = draw("A -> shared, B -> shared, shared -> C -> end, a -> C")
    live, stopped = stop(graph, tmp_path, times=3, omits=[row(graph, "shared")])
    shared = row(graph, "shared")

    assert live.states[shared] == DropState.COMPLETED
    assert graph.templates[graph.template[shared]].kind is Kind.DATA
    assert live.unwritten == stopped.unwritten == {shared}
    reset = must_run_again(graph, live.states, available(graph, live), kept=kept_drops(graph))
    assert not reset.any()
    nothing = np.zeros(graph.drops, dtype=np.bool_)
    restart = Restart(reset=reset, repeated=nothing)
    assert continuation_of(live, whole_slice(graph), restart).known.lost == ()


@pytest.mark.parametrize(
    ("here", "elsewhere", "is_needed"),
    [
        (DropState.INITIALIZED, DropState.COMPLETED, True),
        (DropState.WRITING, DropState.COMPLETED, True),
        (DropState.COMPLETED, DropState.INITIALIZED, False),
        (DropState.ERROR, DropState.INITIALIZED, False),
    ],
)
def test_a_content_is_needed_until_its_consumers_here_are_settled(
    here: DropState,
    elsewhere: DropState,
    is_needed: bool,  # noqa: FBT001 - from parametrize
    tmp_path: Path,
) -> None:
    """Its owner releases it then, perhaps before another view tells of it again. Consumers elsewhere do not count."""
    builder = GraphBuilder().app("A").data("b").app("C").app("D")
    graph = builder.connect("A", "b").connect("b", "C").connect("b", "D").build()
    remote = frozenset((_A, _B, _D))
    repository = LocalRepository(tmp_path, "s", SystemClock(), graph)
    contents = ContentTable(graph, repository, remote, kept_drops(graph))
    drops = DropTable(graph, remote)
    drops.states[_C], drops.states[_D] = here, elsewhere

    assert contents.needs(drops, _B, _B) is is_needed
