"""All runners, with real threads and real processes."""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.execution.chains import is_not_begun
from dropflow.execution.content_location import Handle
from dropflow.execution.interfaces import Runner
from dropflow.execution.statistics import SessionResult
from dropflow.execution.tasks import AttemptResult, Input, Task
from dropflow.graph.physical import PhysicalGraph
from dropflow.runners.in_process import InlineRunner
from dropflow.runners.worker_messages import Buffer, ReceivedContents, SentContents, Tasks, frame
from dropflow.runners.worker_pool import WorkerPool
from dropflow.states import DropState, SessionState
from dropflow.testing.attempts import ScriptedExecutor
from dropflow.testing.conformance import FakeRepository
from dropflow.testing.drawing import draw
from tests.processes import gone
from tests.runners.scripted_runners import make, session_of, spec_of
from tests.virtual_clock import VirtualClock

WIDE = ", ".join(f"a{number} -> B{number} -> c{number}" for number in range(40))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No process, file descriptor or thread outlives its runner."""
    me = psutil.Process()
    files, threads = me.num_fds(), threading.active_count()
    before = set(me.children(recursive=True))  # multiprocessing keeps one, once other tests have used it
    yield
    assert gone([*set(me.children(recursive=True)) - before])
    assert me.num_fds() <= files
    assert threading.active_count() <= threads


@pytest.mark.slow
def test_two_runners_as_one_give_the_result_of_each(tmp_path: Path) -> None:
    """What every runner gives: `tests/runners/external/test_conformance.py` has the others."""
    graph = draw(WIDE, B7={"component": "fail", "tries": 2})
    result = session_of(graph, make("mixed", graph, tmp_path), tmp_path).run()

    assert result.status is SessionState.FAILED
    assert result.states == {"COMPLETED": 118, "ERROR": 2, "SKIPPED": 0}
    assert [(failure.drop, failure.attempts) for failure in result.failures] == [("drawing_B7_0", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "said"), [("kill", "SIGKILL"), ("exit", "ended with status 7")])
def test_the_death_of_a_worker_fails_only_its_attempt(script: str, said: str, tmp_path: Path) -> None:
    """A worker that is killed, or exits, fails its current attempt; all others complete in its replacement."""
    graph = draw(WIDE, B7={"component": script})
    result = session_of(graph, make("processes", graph, tmp_path), tmp_path).run()

    assert result.states == {"COMPLETED": 118, "ERROR": 2, "SKIPPED": 0}
    assert said in result.failures[0].text
    assert result.failures[0].code == "DF202"


@pytest.mark.slow
def test_a_worker_that_dies_each_time_uses_up_no_tries(tmp_path: Path) -> None:
    """An attempt whose worker dies is repeated as often as faults of the infrastructure are, whatever its tries."""
    graph = draw("A -> b", A={"component": "kill", "tries": 7})
    result = session_of(graph, make("processes", graph, tmp_path), tmp_path).run()

    assert [failure.attempts for failure in result.failures] == [2]


@pytest.mark.slow
def test_workers_run_in_processes_of_their_own(tmp_path: Path) -> None:
    """Applications do not run in the session's process."""
    graph = draw("A -> b", A={"component": "pid"})
    session = session_of(graph, make("processes", graph, tmp_path), tmp_path)
    session.run()
    repository: FakeRepository = session._repository  # type: ignore[assignment]

    assert int(repository.results["drawing_b_0"].body) != os.getpid()


def _cancelled(graph: PhysicalGraph, runner: Runner, directory: Path) -> SessionResult:
    """Run in another thread, and cancel as soon as the first attempt is with the runner."""
    session = session_of(graph, runner, directory)
    submitted = threading.Event()
    submit: Callable[[Sequence[object]], None] = runner.submit  # type: ignore[assignment]

    def note(tasks: Sequence[object]) -> None:
        submit(tasks)
        submitted.set()

    runner.submit = note  # type: ignore[method-assign]
    results: list[SessionResult] = []
    owner = threading.Thread(target=lambda: results.append(session.run()))
    owner.start()
    assert submitted.wait(60)
    session.cancel()
    owner.join(60)
    assert not owner.is_alive()
    return results[0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "script"), [("processes", "hang"), ("mixed", "hang")])
def test_a_cancel_stops_what_runs(kind: str, script: str, tmp_path: Path) -> None:
    """A cancel ends the session even if an attempt waits, or ignores its abort."""
    graph = draw("A -> b", A={"component": script})
    result = _cancelled(graph, make(kind, graph, tmp_path), tmp_path)

    assert result.status is SessionState.CANCELLED


@pytest.mark.slow
def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    """A runner may be closed twice, started or not."""
    runner = make("processes", draw("A"), tmp_path)
    started: list[AttemptResult] = []
    runner.start(started.extend)
    runner.close()
    runner.close()

    assert started == []


def test_a_closed_pool_takes_no_commands(tmp_path: Path) -> None:
    """A session that ends after its node has closed the worker processes closes its runner without an error."""
    pool = WorkerPool(1, logs=tmp_path)
    runner = pool.runner(spec_of(draw("A"), tmp_path))
    runner.start(lambda _: None)
    pool.close()
    runner.submit(())

    assert not pool.command(lambda _: None)
    assert tuple(runner.give_back()) == ()
    runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixed", "inline"])
def test_a_runner_that_is_held_starts_nothing(kind: str, tmp_path: Path) -> None:
    """Attempts that are submitted meanwhile, or were before, run after it; an aborted one is answered."""
    graph = draw(", ".join(f"A{number}" for number in range(30)))
    answered: list[AttemptResult] = []
    runner = make(kind, graph, tmp_path)
    runner.start(answered.extend)  # type: ignore[arg-type]
    runner.hold(is_held=True)
    tasks = [Task(drop, 1, 0, f"d{drop}", ()) for drop in range(30)]
    runner.submit(tasks[:20])
    runner.abort(3, 1)
    runner.submit(tasks[20:])
    until = threading.Event()
    assert not until.wait(0.2)
    before = [result.drop for result in answered if result.drop != 3]
    runner.hold(is_held=False)
    runner.submit(())
    assert any(len(answered) == 30 or until.wait(0.01) for _ in range(6000))
    runner.close()

    assert before == []
    assert sorted(result.drop for result in answered) == list(range(30))
    assert [result.drop for result in answered if result.failure is not None] == [3]


def test_a_batch_in_this_thread_ends_after_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session records results between batches: a crash loses those of a second, and the attempt that runs."""
    clock = VirtualClock()
    monkeypatch.setattr("dropflow.runners.in_process.SystemClock", lambda: clock)
    executor = ScriptedExecutor(spec_of(draw("A"), tmp_path))
    monkeypatch.setattr(executor, "execute", lambda task: clock.advance(0.4) or AttemptResult(task.drop, task.attempt))
    runner, answered = InlineRunner(executor), list[AttemptResult]()
    runner.start(answered.extend)  # type: ignore[arg-type]
    runner.submit([Task(drop, 1, 0, f"d{drop}", ()) for drop in range(6)])
    begun = [result.failure is None for result in answered]
    runner.close()

    assert begun == [True] * 3 + [False] * 3
    assert all(is_not_begun(result) for result in answered[3:])
    assert runner.window == 1


# Contents that many attempts read: sent to a worker once, and there for each of them.


_MOST = 100


def _handle(letter: str, size: int) -> Handle:
    return Handle(body=letter.encode() * size, size=size)


_HANDLES = [_handle(letter, size) for letter in "ab" for size in (0, 1, 30, 60, 120)]
_INPUTS = st.builds(
    lambda drop, handle, is_reread: Input(drop, f"g_{drop}", 0, 0, DropState.COMPLETED, handle, is_reread),
    st.integers(0, 4),
    st.sampled_from([*_HANDLES, None, Handle(kind="shm", location="/dev/shm/x", size=50)]),  # noqa: S108 - not opened
    st.booleans(),
)
_TASKS = st.builds(lambda inputs: Task(0, 1, 0, "g_0", (0,), tuple(inputs)), st.lists(_INPUTS, max_size=4))
_STEPS = st.lists(st.tuples(st.integers(0, 1), st.lists(_TASKS, max_size=3)), max_size=12)


def _task(*handles: Handle, is_reread: bool = True) -> Task:
    inputs = [Input(row, f"g_{row}", 0, 0, DropState.COMPLETED, one, is_reread) for row, one in enumerate(handles)]
    return Task(9, 1, 0, "g_9", (0,), tuple(inputs))


def _received(message: Tasks) -> Tasks:
    buffer, (ours, theirs) = Buffer(), socket.socketpair()
    with ours, theirs:
        ours.sendall(frame(message))
        assert buffer.receive(theirs)
    (body,) = buffer.frames()
    return msgspec.msgpack.decode(body, type=Tasks)


@given(steps=_STEPS)
def test_a_worker_gets_the_attempts_that_were_given(steps: list[tuple[int, list[Task]]]) -> None:
    """Whatever is sent, closed or removed to make room, the worker has each attempt with all its contents."""
    sent, received = SentContents(_MOST), ReceivedContents(_MOST)
    for runner, tasks in steps:
        if not tasks:
            sent.forget(runner)
            received.forget(runner)
        message = _received(Tasks(runner, 0, sent.without_known(runner, tasks)))
        assert list(received.with_known(runner, message.tasks)) == tasks


def test_a_content_is_sent_once() -> None:
    """The second attempt that reads a content is sent without its bytes, and one of another runner with them."""
    sent, content = SentContents(), _handle("a", 5000)
    first, second = sent.without_known(1, [_task(content), _task(content)])
    assert first == _task(content)
    assert len(frame(Tasks(1, 0, (second,)))) < 200
    assert sent.without_known(2, [_task(content)]) == (_task(content),)


def test_a_content_that_few_read_is_not_kept() -> None:
    """What is not marked is sent with each attempt, and holds no memory in the pool or the worker."""
    sent, task = SentContents(), _task(_handle("a", 5000), is_reread=False)
    assert sent.without_known(1, [task, task]) == (task, task)


def test_a_new_content_of_a_drop_is_sent() -> None:
    """A drop that ran again has another content, which the worker gets."""
    sent, received = SentContents(), ReceivedContents()
    for letter in "aba":
        task = _task(_handle(letter, 5000))
        assert list(received.with_known(1, sent.without_known(1, [task]))) == [task]
