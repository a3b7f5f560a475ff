"""What is left of a session is the same in its process and in its directory, and so is how it continues."""

import heapq
import random
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.engine.api import AttemptResult, Handle, Task
from dropflow.engine.content_table import ContentTable, kept_drops
from dropflow.engine.continuation import FrozenSession, Restart, continuation_of
from dropflow.engine.drop_table import DropTable
from dropflow.engine.journal import Journal, JournalHeader, replay
from dropflow.engine.recovery import has_attempts, must_run_again
from dropflow.failure import Failure
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import digest
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import whole_slice
from dropflow.graph.templates import Kind
from dropflow.sessions.stopped import StoppedSession
from dropflow.states import DropState
from dropflow.testing.drawing import draw, row
from dropflow.testing.strategies import graphs
from tests.engine.test_session_steps import Driver

BOOM = Failure(code="DF105", kind="ValueError", text="boom", retryable=True)
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


@settings(max_examples=60, deadline=None)
@given(graphs(most=12), st.integers(0, 2**32))
def test_a_session_continues_alike_in_its_process_and_from_its_directory(graph: PhysicalGraph, seed: int) -> None:
    """Attempts fail, have infrastructure faults, skip outputs, and write nothing to some drops; some still run."""
    chance = random.Random(seed)  # noqa: S311 - to be the same each time
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
            skips=lambda task: [one.drop for one in task.outputs if one.drop in skipped],
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
