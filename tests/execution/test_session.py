"""The session: the order of effects, its journal, and its reports."""

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadFileError, StorageError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.events import Action, Event, Finished
from dropflow.execution.inbox import Inbox
from dropflow.execution.journal import Journal, JournalHeader, read, replay
from dropflow.execution.session import Instrument
from dropflow.execution.statistics import SessionResult, Statistics
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState, SessionState
from dropflow.testing.conformance import FakeRepository
from dropflow.testing.drawing import draw, row
from tests.execution.sessions import FakeRunner, build_session
from tests.strategies import graphs
from tests.virtual_clock import VirtualClock

BOOM = Failure(code="DF105", kind="ValueError", text="boom", hint="correct it")


def success(task: Task) -> AttemptResult:
    """Return a result whose outputs have the id of their producer as content."""
    part = Handle(body=task.oid.encode())
    return AttemptResult(task.drop, task.attempt, {output.drop: part for output in task.outputs})


def run(graph: PhysicalGraph, repository: FakeRepository, runner: FakeRunner, **options: object) -> SessionResult:
    """Run a session with checks after every step."""
    session = build_session(
        graph,
        repository,
        runner,
        clock=VirtualClock(),
        check_invariants=True,
        **options,  # type: ignore[arg-type]
    )
    return session.run()


def test_contents_are_committed_before_consumers_start() -> None:
    """A consumer's task carries the committed content of its input."""
    graph = draw("A -> x -> B -> y")
    repository, seen = FakeRepository(), []

    def answer(task: Task) -> AttemptResult:
        seen.append((task.oid, [each.handle for each in task.inputs]))
        if task.inputs:
            assert row(graph, "x") in repository.committed
        return success(task)

    result = run(graph, repository, FakeRunner(answer))

    assert result.status is SessionState.FINISHED
    assert seen == [("drawing_A_0", []), ("drawing_B_0", [Handle(body=b"drawing_A_0")])]
    assert list(repository.results) == ["drawing_y_0"]


def test_persistent_content_with_consumers_is_kept() -> None:
    """Content that is to persist is kept as a result, like that of a leaf."""
    repository = FakeRepository()
    run(draw("A -> x -> B -> y", x={"persist": True}), repository, FakeRunner(success))

    assert sorted(repository.results) == ["drawing_x_0", "drawing_y_0"]


def test_a_commit_that_fails_is_a_failure_of_the_attempt() -> None:
    """If data cannot be stored, the application that wrote it ends in ERROR, and no consumer starts."""
    graph = draw("A -> x -> B")
    repository = FakeRepository({row(graph, "x"): StorageError("the disk is full", hint="make room")})
    result = run(graph, repository, FakeRunner(success))

    assert result.status is SessionState.FAILED
    assert [(failure.drop, failure.text, failure.count) for failure in result.failures] == [
        ("drawing_A_0", "the disk is full", 3)
    ]


def test_a_leaf_that_cannot_be_kept_is_a_failure_of_the_attempt() -> None:
    """A session is FINISHED only if every leaf is kept; otherwise it is FAILED, with the reason as a root cause."""
    graph = draw("A -> x")
    repository = FakeRepository(fail_to_keep={row(graph, "x"): StorageError("the disk is full", hint="make room")})
    result = run(graph, repository, FakeRunner(success))

    assert result.status is SessionState.FAILED
    assert [(failure.drop, failure.text, failure.hint) for failure in result.failures] == [
        ("drawing_A_0", "the disk is full", "make room")
    ]


def test_a_leaf_is_kept_when_it_completes() -> None:
    """A leaf is on the disk before consumers start, so that a crash does not lose it."""
    graph = draw("A -> x, A -> a -> B -> y")
    repository = FakeRepository()

    def answer(task: Task) -> AttemptResult:
        if task.oid == "drawing_B_0":
            assert list(repository.results) == ["drawing_x_0"]
        return success(task)

    assert run(graph, repository, FakeRunner(answer)).status is SessionState.FINISHED


def test_an_attempt_whose_leaf_cannot_be_kept_is_retried() -> None:
    """Keeping a leaf is part of the attempt: if the disk has room at the second try, the session finishes."""
    graph = draw("A -> x", A={"tries": 2})
    repository = FakeRepository()
    full = StorageError("the disk is full")
    full.retryable = True
    keep, tries = repository.keep_result, iter([full, None])

    def once_full(*arguments: object) -> Handle:
        error = next(tries)
        if error is not None:
            del repository.committed[row(graph, "x")]
            raise error
        return keep(*arguments)  # type: ignore[arg-type]

    repository.keep_result = once_full  # type: ignore[method-assign]

    assert run(graph, repository, FakeRunner(success)).status is SessionState.FINISHED


def test_an_attempt_commits_all_of_its_outputs_or_none() -> None:
    """If one output cannot be stored, the others are removed, committed or not."""
    graph = draw("A -> x, A -> y, A -> z, A -> w, B -> w")
    repository = FakeRepository({row(graph, "y"): StorageError("the disk is full")})
    result = run(graph, repository, FakeRunner(success))

    assert result.status is SessionState.FAILED
    assert repository.revoked == [Handle(body=b"drawing_A_0")]
    assert repository.discarded == [Handle(body=b"drawing_A_0")] * 3
    assert row(graph, "x") not in repository.committed


def test_a_session_whose_directory_vanished_is_failed() -> None:
    """A session is FAILED if its directory is gone at the end, though all drops completed."""
    result = run(draw("A -> x"), FakeRepository(vanished=StorageError("the directory is gone")), FakeRunner(success))

    assert result.status is SessionState.FAILED
    assert [failure.text for failure in result.failures] == ["the directory is gone"]


def test_parts_are_assembled_in_the_order_of_the_producers() -> None:
    """The content of a shared drop is in the order of its producers, whichever finishes first."""
    graph = draw("A -> x, B -> x")
    repository, runner = FakeRepository(), FakeRunner()
    session = build_session(graph, repository, runner, clock=VirtualClock())
    owner = threading.Thread(target=session.run)
    submitted = threading.Event()
    runner.submit = lambda tasks: (runner.tasks.extend(tasks), submitted.set())  # type: ignore[method-assign,assignment,return-value]
    owner.start()
    assert submitted.wait(60)
    first, second = runner.take("drawing_A_0", "drawing_B_0")
    runner.deliver([success(second), success(first)])
    owner.join(60)
    runner.expect_nothing()

    assert [part.body for part in repository.assembled[row(graph, "x")]] == [b"drawing_A_0", b"drawing_B_0"]


def test_the_parts_of_a_late_attempt_are_discarded() -> None:
    """The result of an attempt that is no longer current commits nothing."""
    graph = draw("A -> x", A={"tries": 2})
    repository = FakeRepository()
    retryable = Failure(code="DF202", kind="WorkerDiedError", text="died", retryable=True)

    class Runner(FakeRunner):
        def submit(self, tasks: object) -> None:
            (task,) = tasks  # type: ignore[misc]
            if task.attempt == 1:
                late = AttemptResult(task.drop, 1, {row(graph, "x"): Handle(body=b"late")})
                self.deliver([AttemptResult(task.drop, 1, failure=retryable), late])
            else:
                self.deliver([success(task)])

    result = run(graph, repository, Runner())

    assert result.status is SessionState.FINISHED
    assert repository.discarded == [Handle(body=b"late")]
    assert repository.committed[row(graph, "x")] == (2, Handle(body=b"drawing_A_0"))


def test_failures_are_reported_by_root_cause() -> None:
    """There is one report per root cause, with the number of its victims; the larger one is first."""
    graph = draw("A -> a -> C -> c, B -> b")

    def answer(task: Task) -> AttemptResult:
        return AttemptResult(task.drop, task.attempt, failure=BOOM)

    result = run(graph, FakeRepository(), FakeRunner(answer))

    assert [(failure.drop, failure.count) for failure in result.failures] == [("drawing_A_0", 4), ("drawing_B_0", 2)]
    assert result.failures[0].hint == "correct it"
    assert result.states["ERROR"] == 6


def test_a_cancel_ends_a_session_whose_work_never_ends() -> None:
    """Cancelling from another thread ends the session, and aborts what runs."""
    graph = draw("A -> x")
    runner = FakeRunner()
    session = build_session(graph, FakeRepository(), runner, clock=VirtualClock())
    results: list[SessionResult] = []
    owner = threading.Thread(target=lambda: results.append(session.run()))
    owner.start()
    session.cancel("enough")
    owner.join(60)

    assert results[0].status is SessionState.CANCELLED
    assert runner.closed


def test_the_runner_gets_no_more_tasks_than_its_window() -> None:
    """No more tasks are built than the runner has room for."""
    graph = draw(", ".join(f"A{number}" for number in range(50)))
    most = 0

    class Runner(FakeRunner):
        def submit(self, tasks: object) -> None:
            nonlocal most
            most = max(most, len(tasks))  # type: ignore[arg-type]
            super().submit(tasks)  # type: ignore[arg-type]

    result = run(graph, FakeRepository(), Runner(success, window=7))

    assert result.states["COMPLETED"] == 50
    assert most == 7


def test_an_instrument_that_raises_is_removed() -> None:
    """An instrument that raises does not stop the session; a note says that it was removed."""

    class Broken(Instrument):
        def on_actions(self, actions: object) -> None:
            raise RuntimeError(actions)

    result = run(draw("A -> x"), FakeRepository(), FakeRunner(success), instruments=[Broken()])

    assert result.status is SessionState.FINISHED
    assert "Broken was removed" in result.notes[0]


def test_instruments_see_every_event_and_action() -> None:
    """Instruments are called with all events and actions of the core, in order."""
    seen: list[Event | Action] = []

    class Camera(Instrument):
        def on_events(self, events: object) -> None:
            seen.extend(events)  # type: ignore[arg-type]

        def on_actions(self, actions: object) -> None:
            seen.extend(actions)  # type: ignore[arg-type]

    run(draw("A -> x"), FakeRepository(), FakeRunner(success), instruments=[Camera()])

    assert [type(each).__name__ for each in seen] == ["Begin", "Run", "Finished", "Finish"]


def test_the_last_statistics_are_those_of_the_end() -> None:
    """The last statistics have the final states, by logical node."""
    seen: list[Statistics] = []
    run(draw("A -> x"), FakeRepository(), FakeRunner(success), on_statistics=seen.append)

    assert seen[-1].settled == seen[-1].drops == 2
    assert [node.counts[DropState.COMPLETED] for node in seen[-1].nodes] == [1, 1]


@settings(max_examples=50, deadline=None)
@given(graph=graphs(), failing=st.sets(st.integers(0, 13)))
def test_a_journal_replays_to_the_same_state(
    graph: PhysicalGraph, failing: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Replaying a journal through a fresh core gives every drop its state."""
    path = tmp_path_factory.mktemp("journal") / "journal.dfj"
    journal = Journal(path, JournalHeader("s", "", 0.0))

    def answer(task: Task) -> AttemptResult:
        return AttemptResult(task.drop, task.attempt, failure=BOOM) if task.drop in failing else success(task)

    session = build_session(
        graph,
        FakeRepository(),
        FakeRunner(answer),
        clock=VirtualClock(),
        journal=journal,
    )
    session.run()
    again = replay(graph, path).core

    assert again.status is session.core.status
    assert again.drops.states == session.core.drops.states


def test_an_incomplete_journal_is_read_up_to_its_last_entry(tmp_path: Path) -> None:
    """An incomplete last entry is ignored; damage in the middle is an error."""
    path = tmp_path / "journal.dfj"
    journal = Journal(path, JournalHeader("s", "", 0.0))
    run(draw("A -> x"), FakeRepository(), FakeRunner(success), journal=journal)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])

    assert len(list(read(path)[1])) == 1
    path.write_bytes(whole[:34] + bytes([whole[34] ^ 255]) + whole[35:])
    with pytest.raises(BadFileError, match="damaged"):
        list(read(path)[1])


def test_a_journal_has_the_locations_of_contents(tmp_path: Path) -> None:
    """Each content is recorded with its size and checksum, and with a path relative to the session directory."""
    path = tmp_path / "journal.dfj"
    journal = Journal(path, JournalHeader("s", "", 0.0))
    here = Handle(kind="file", location=f"{tmp_path}/files/x", size=3, checksum=7)
    large = Handle(body=b"x" * 2000, size=2000)
    elsewhere = Handle(kind="directory", location="/elsewhere", size=9)
    small = Handle(body=b"abc", size=3, checksum=5, text=True)
    journal.append([], {0: here, 1: large, 2: elsewhere, 3: small, 4: Handle(kind="null")})
    journal.close()
    moved = tmp_path / "moved"
    ((entry,),) = [tuple(read(path)[1])]
    found = {drop: record.in_directory(moved) for drop, record in entry.contents.items()}

    assert found == {
        0: msgspec.structs.replace(here, location=f"{moved}/files/x"),
        1: None,
        2: elsewhere,
        3: small,
        4: Handle(kind="null"),
    }


def test_a_journal_on_a_full_disk_is_completed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that did not fit on a full disk are written when there is room, without a gap."""
    path = tmp_path / "journal.dfj"
    journal = Journal(path, JournalHeader("s", "", 0.0))
    write, room = os.pwrite, iter([5, 0, 0, 1 << 20, 1 << 20])

    def pwrite(file: int, data: bytearray, offset: int) -> int:
        free = next(room)
        if not free:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:free], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    for drop in range(3):
        with suppress(StorageError):
            journal.append([Finished(drop, 1)])
    journal.close()

    assert [event.drop for entry in read(path)[1] for event in entry.events if isinstance(event, Finished)] == [0, 1, 2]


def test_an_incomplete_journal_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that cannot be written does not fail the session; a note says that it is not complete."""
    journal = Journal(tmp_path / "journal.dfj", JournalHeader("s", "", 0.0))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    result = run(draw("A -> x"), FakeRepository(), FakeRunner(success), journal=journal)

    assert result.status is SessionState.FINISHED
    assert ["the journal is not complete" in note for note in result.notes] == [True]


@pytest.mark.slow
def test_any_damaged_byte_of_a_journal_is_noticed(tmp_path: Path) -> None:
    """Every byte is covered by a checksum: a damaged journal is refused, or read up to the damage at its end."""
    path = tmp_path / "journal.dfj"
    run(draw("A -> x"), FakeRepository(), FakeRunner(success), journal=Journal(path, JournalHeader("s", "", 0.0)))
    whole = path.read_bytes()
    sound = list(read(path)[1])
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            entries = list(read(path)[1])
        except BadFileError:
            continue
        assert entries == sound[:-1], position  # a damaged last frame looks like an incomplete one


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    """The error has the version of the file, and the one that can be read."""
    path = tmp_path / "journal.dfj"
    path.write_bytes(b"DFJ1 and what follows")

    with pytest.raises(BadFileError, match=r"version 1 .* reads version 2"):
        read(path)


def test_a_foreign_file_is_refused_as_journal(tmp_path: Path) -> None:
    """A file of another kind raises one error that says so."""
    path = tmp_path / "journal.dfj"
    path.write_text("hello")

    with pytest.raises(BadFileError, match="not a dropflow journal"):
        read(path)


# The inbox: no item is lost, and the items of each writer keep their order.


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=5))
def test_everything_is_drained_once_and_in_order(batches: list[list[int]]) -> None:
    """One call returns all items, in order; after that the inbox is empty."""
    inbox: Inbox[int] = Inbox()
    for batch in batches:
        inbox.put(batch)

    assert inbox.drain(0) == [item for batch in batches for item in batch]
    assert inbox.drain(0) == []


def test_a_reader_that_waits_is_woken() -> None:
    """A reader without a timeout is woken by items of other threads, and gets those of each thread in order."""
    inbox: Inbox[tuple[int, int]] = Inbox()

    def write(number: int) -> None:
        for at in range(1000):
            inbox.put([(number, at)])

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    taken: list[tuple[int, int]] = []
    while len(taken) < 4000:
        taken += inbox.drain()
    for thread in threads:
        thread.join()

    assert [[at for number, at in taken if number == mine] for mine in range(4)] == [list(range(1000))] * 4
