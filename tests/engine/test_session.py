"""The session: effects in the right order, and reports that tell."""

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.engine.api import Handle, Outcome, Task
from dropflow.engine.events import Action, Event
from dropflow.engine.instruments import Instrument
from dropflow.engine.journal import Journal, JournalHeader, read, replay
from dropflow.engine.reports import SessionResult
from dropflow.engine.session import Session
from dropflow.engine.statistics import Statistics
from dropflow.errors import BadFileError, StorageError
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState, SessionState
from dropflow.testing.clock import VirtualClock
from dropflow.testing.drawing import draw, row
from dropflow.testing.recorder import FakeKeeper, FakeRunner
from dropflow.testing.strategies import graphs

BOOM = Failure(code="DF105", kind="ValueError", text="boom", hint="mend it")


def success(task: Task) -> Outcome:
    """Every output gets the id of the drop that wrote it."""
    part = Handle(body=task.oid.encode())
    return Outcome(task.drop, task.attempt, {output.drop: part for output in task.outputs})


def run(graph: PhysicalGraph, keeper: FakeKeeper, runner: FakeRunner, **options: object) -> SessionResult:
    """Run a session with checks after every step."""
    session = Session(
        graph,
        keeper,
        runner,
        session="s",
        directory="/nowhere",
        clock=VirtualClock(),
        check_invariants=True,
        **options,  # type: ignore[arg-type]
    )
    return session.run()


def test_contents_are_committed_before_consumers_start() -> None:
    """A consumer's task carries the committed content of its input."""
    graph = draw("A -> x -> B -> y")
    keeper, seen = FakeKeeper(), []

    def answer(task: Task) -> Outcome:
        seen.append((task.oid, [each.handle for each in task.inputs]))
        if task.inputs:
            assert row(graph, "x") in keeper.committed
        return success(task)

    result = run(graph, keeper, FakeRunner(answer))

    assert result.status is SessionState.FINISHED
    assert seen == [("drawing_A_0", []), ("drawing_B_0", [Handle(body=b"drawing_A_0")])]
    assert list(keeper.results) == ["drawing_y_0"]


def test_what_is_to_persist_is_kept_though_it_was_read() -> None:
    """Content that its keeper does not let go is a result, like that of a leaf."""
    keeper = FakeKeeper()
    run(draw("A -> x -> B -> y", x={"persist": True}), keeper, FakeRunner(success))

    assert sorted(keeper.results) == ["drawing_x_0", "drawing_y_0"]


def test_a_commit_that_fails_is_a_failure_of_the_attempt() -> None:
    """Data that cannot be stored is an ERROR of the application that wrote it, and nothing starts on it."""
    graph = draw("A -> x -> B")
    keeper = FakeKeeper({row(graph, "x"): StorageError("the disk is full", hint="make room")})
    result = run(graph, keeper, FakeRunner(success))

    assert result.status is SessionState.FAILED
    assert [(failure.drop, failure.text, failure.count) for failure in result.failures] == [
        ("drawing_A_0", "the disk is full", 3)
    ]


def test_parts_are_put_together_in_the_order_of_the_producers() -> None:
    """Whoever finishes first, the content of a shared drop is in the order of its producers."""
    graph = draw("A -> x, B -> x")
    keeper, runner = FakeKeeper(), FakeRunner()
    session = Session(graph, keeper, runner, session="s", directory="/nowhere", clock=VirtualClock())
    owner = threading.Thread(target=session.run)
    submitted = threading.Event()
    runner.submit = lambda tasks: (runner.tasks.extend(tasks), submitted.set())  # type: ignore[method-assign,assignment,return-value]
    owner.start()
    assert submitted.wait(10)
    first, second = runner.take("drawing_A_0", "drawing_B_0")
    runner.deliver([success(second), success(first)])
    owner.join(10)
    runner.expect_nothing()

    assert [part.body for part in keeper.assembled[row(graph, "x")]] == [b"drawing_A_0", b"drawing_B_0"]


def test_a_late_attempt_is_refused_and_its_parts_thrown_away() -> None:
    """The result of an attempt that is no longer current commits nothing."""
    graph = draw("A -> x", A={"tries": 2})
    keeper = FakeKeeper()
    retryable = Failure(code="DF202", kind="WorkerDiedError", text="died", retryable=True)

    class Runner(FakeRunner):
        def submit(self, tasks: object) -> None:
            (task,) = tasks  # type: ignore[misc]
            if task.attempt == 1:
                late = Outcome(task.drop, 1, {row(graph, "x"): Handle(body=b"late")})
                self.deliver([Outcome(task.drop, 1, failure=retryable), late])
            else:
                self.deliver([success(task)])

    result = run(graph, keeper, Runner())

    assert result.status is SessionState.FINISHED
    assert keeper.discarded == [Handle(body=b"late")]
    assert keeper.committed[row(graph, "x")] == (2, Handle(body=b"drawing_A_0"))


def test_failures_are_reported_by_root_cause() -> None:
    """Two causes, however many drops they took along; the most harmful first."""
    graph = draw("A -> a -> C -> c, B -> b")

    def answer(task: Task) -> Outcome:
        return Outcome(task.drop, task.attempt, failure=BOOM)

    result = run(graph, FakeKeeper(), FakeRunner(answer))

    assert [(failure.drop, failure.count) for failure in result.failures] == [("drawing_A_0", 4), ("drawing_B_0", 2)]
    assert result.failures[0].hint == "mend it"
    assert result.states["ERROR"] == 6


def test_a_cancel_ends_a_session_whose_work_never_ends() -> None:
    """Cancelling from another thread ends the session at once, and stops what runs."""
    graph = draw("A -> x")
    runner = FakeRunner()
    session = Session(graph, FakeKeeper(), runner, session="s", directory="/nowhere", clock=VirtualClock())
    results: list[SessionResult] = []
    owner = threading.Thread(target=lambda: results.append(session.run()))
    owner.start()
    session.cancel("enough")
    owner.join(10)

    assert results[0].status is SessionState.CANCELLED
    assert runner.closed


def test_the_runner_never_has_more_than_it_wants() -> None:
    """Ready drops wait as integers: no more tasks are made than the runner has room for."""
    graph = draw(", ".join(f"A{number}" for number in range(50)))
    most = 0

    class Runner(FakeRunner):
        def submit(self, tasks: object) -> None:
            nonlocal most
            most = max(most, len(tasks))  # type: ignore[arg-type]
            super().submit(tasks)  # type: ignore[arg-type]

    result = run(graph, FakeKeeper(), Runner(success, window=7))

    assert result.states["COMPLETED"] == 50
    assert most == 7


def test_an_instrument_that_raises_is_removed() -> None:
    """An observer cannot stop what it watches; the session says that it was removed."""

    class Broken(Instrument):
        def on_actions(self, actions: object) -> None:
            raise RuntimeError(actions)

    result = run(draw("A -> x"), FakeKeeper(), FakeRunner(success), instruments=[Broken()])

    assert result.status is SessionState.FINISHED
    assert "Broken was removed" in result.notes[0]


def test_instruments_see_every_event_and_action() -> None:
    """What goes in and out of the core passes by the instruments."""
    seen: list[Event | Action] = []

    class Camera(Instrument):
        def on_events(self, events: object) -> None:
            seen.extend(events)  # type: ignore[arg-type]

        def on_actions(self, actions: object) -> None:
            seen.extend(actions)  # type: ignore[arg-type]

    run(draw("A -> x"), FakeKeeper(), FakeRunner(success), instruments=[Camera()])

    assert [type(each).__name__ for each in seen] == ["Begin", "Run", "Finished", "Finish"]


def test_statistics_end_with_the_last_picture() -> None:
    """Whoever watches gets a picture of the end, by logical node."""
    seen: list[Statistics] = []
    run(draw("A -> x"), FakeKeeper(), FakeRunner(success), on_statistics=seen.append)

    assert seen[-1].settled == seen[-1].drops == 2
    assert [node.counts[DropState.COMPLETED] for node in seen[-1].nodes] == [1, 1]


@settings(max_examples=50, deadline=None)
@given(graph=graphs(), failing=st.sets(st.integers(0, 13)))
def test_a_journal_replays_to_the_same_state(
    graph: PhysicalGraph, failing: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Feeding a journal to a fresh core gives every drop its state again."""
    path = tmp_path_factory.mktemp("journal") / "journal.dfj"
    journal = Journal(path, JournalHeader("s", "", 0.0))

    def answer(task: Task) -> Outcome:
        return Outcome(task.drop, task.attempt, failure=BOOM) if task.drop in failing else success(task)

    session = Session(
        graph,
        FakeKeeper(),
        FakeRunner(answer),
        session="s",
        directory="/nowhere",
        clock=VirtualClock(),
        journal=journal,
    )
    session.run()
    again = replay(graph, path)

    assert again.status is session.core.status
    assert [again.state(drop) for drop in range(graph.drops)] == [
        session.core.state(drop) for drop in range(graph.drops)
    ]


def test_a_torn_journal_is_read_up_to_the_tear(tmp_path: Path) -> None:
    """What a crash left half written is left out; damage in the middle is an error."""
    path = tmp_path / "journal.dfj"
    journal = Journal(path, JournalHeader("s", "", 0.0))
    run(draw("A -> x"), FakeKeeper(), FakeRunner(success), journal=journal)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])

    assert len(list(read(path)[1])) == 1
    path.write_bytes(whole[:30] + bytes([whole[30] ^ 255]) + whole[31:])
    with pytest.raises(BadFileError, match="damaged"):
        list(read(path)[1])


def test_a_foreign_file_is_no_journal(tmp_path: Path) -> None:
    """Another file gives one clear error."""
    path = tmp_path / "journal.dfj"
    path.write_text("hello")

    with pytest.raises(BadFileError, match="no journal"):
        read(path)
