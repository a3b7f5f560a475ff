"""The side of a session in a worker of an engine, with a thread in place of worker processes."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dropflow.errors import DropflowError, StorageError, WorkerDiedError
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.execution.tasks import ResultSink, Task
from dropflow.runners.engine import Batch, BatchAnswer, decode_answer, decode_answers, encode
from dropflow.runners.external_host import LEASE_SECONDS, Host, look, probe_file
from dropflow.runners.in_process import ThreadRunner
from dropflow.runners.worker_pool import PooledRunner, WorkerPool
from dropflow.testing.attempts import ScriptedExecutor
from dropflow.testing.drawing import draw
from tests.e2e.cluster import until
from tests.virtual_clock import VirtualClock

GRAPH = draw("A, H", H={"component": "hang"})
HANGS = next(row for row, template in enumerate(GRAPH.templates) if template.component == "hang")
TRACKED = draw("T", T={"component": "track"})


class CountedClock(VirtualClock):
    """A clock that a test advances, and that counts how often it is read."""

    reads = 0

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        self.reads += 1
        return super().monotonic()

    def is_read_again(self) -> bool:
        """Wait until the host has looked twice, so at least once after what was done before; False if it does not."""
        before = self.reads
        return until(lambda: self.reads >= before + 2)


class Hosted:
    """A host with one thread, and the batches that were sent to it."""

    def __init__(self, directory: Path) -> None:
        spec = ExecutorSpec(session="s", directory=str(directory), templates=GRAPH.templates, links=GRAPH.links)
        self.clock = CountedClock()
        self.host = Host(spec, workers=1, name="w", factory="", open_runner=self._open, clock=self.clock)
        self.runner: ThreadRunner | None = None
        self.answers: list[BatchAnswer] = []
        self.errors: list[DropflowError] = []
        self.threads: list[threading.Thread] = []

    def _open(self, spec: ExecutorSpec) -> tuple[Runner, Callable[[], None]]:
        self.runner = ThreadRunner(ScriptedExecutor(spec), threads=1)
        return self.runner, self.runner.close

    def send(self, number: int, *templates: int) -> None:
        """Send a batch with attempts of these templates, whose drops are the number and the position."""

        def run() -> None:
            tasks = tuple(Task(10 * number + at, 1, row, "d", ()) for at, row in enumerate(templates))
            try:
                self.answers.append(decode_answer(self.host.run(encode(Batch(number, tasks)))))
            except DropflowError as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def runs(self, drop: int) -> bool:
        """Whether an attempt runs."""
        return self.runner is not None and drop in self.runner.running


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    """A host that is closed at the end."""
    made = Hosted(tmp_path)
    yield made
    made.host.close()
    for thread in made.threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.slow
def test_what_has_not_begun_is_returned_and_the_rest_is_answered(hosted: Hosted) -> None:
    """A recall answers for all batches there; an abort ends what runs."""
    hosted.send(1, HANGS, 1 - HANGS, 1 - HANGS)
    assert until(lambda: hosted.runs(10))
    assert decode_answers(hosted.host.recall([7])) == []
    (answer,) = decode_answers(hosted.host.recall([1]))
    assert ([task.drop for task in answer.returned], answer.results) == ([11, 12], ())
    hosted.host.abort([(10, 1)], 0.0)
    assert until(lambda: bool(hosted.answers))

    assert [(result.drop, result.failure.kind) for result in hosted.answers[0].results if result.failure] == [
        (10, "Aborted")
    ]
    assert [task.drop for task in hosted.answers[0].returned] == [11, 12]


@pytest.mark.slow
def test_an_attempt_that_is_aborted_before_it_comes_is_stopped(hosted: Hosted) -> None:
    """Messages go around the queue of an engine, so they may be earlier than a batch."""
    hosted.host.abort([(10, 1)], 0.0)
    hosted.host.discard(2)
    hosted.send(1, HANGS)
    hosted.send(2, 1 - HANGS)
    assert until(lambda: len(hosted.answers) + len(hosted.errors) == 2)

    assert hosted.answers[0].number == 1
    assert "the batch was stopped on the worker w" in str(hosted.errors[0])


@pytest.mark.slow
def test_a_batch_that_is_discarded_is_answered_with_an_error(hosted: Hosted) -> None:
    """Its attempts are stopped, and others run after it."""
    hosted.send(1, HANGS)
    assert until(lambda: hosted.runs(10))
    hosted.host.discard(1)
    assert until(lambda: len(hosted.errors) == 1)
    hosted.send(2, 1 - HANGS)
    assert until(lambda: len(hosted.answers) == 1)


def test_a_host_that_is_closed_takes_nothing(hosted: Hosted) -> None:
    """Batches are answered with an error, also by a host that is closed twice."""
    hosted.host.close()
    hosted.host.close()
    hosted.send(1, 1 - HANGS)
    assert until(lambda: len(hosted.errors) == 1)


@pytest.mark.slow
def test_a_host_whose_session_is_silent_stops_its_attempts(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease ends without a message: the process of the session was killed. Each message prolongs it."""
    monkeypatch.setattr("dropflow.runners.external_host.LEASE_SECONDS", 0.01)
    hosted.send(1, HANGS)
    assert until(lambda: hosted.runs(10))
    for _ in range(3):
        hosted.clock.advance(0.009)
        hosted.host.ping()
        assert hosted.clock.is_read_again()
    assert hosted.runs(10)
    hosted.clock.advance(0.011)

    assert until(lambda: len(hosted.errors) == 1)
    assert "the batch was stopped on the worker w" in str(hosted.errors[0])
    assert until(lambda: not hosted.runs(10))


@pytest.mark.slow
def test_the_first_batch_is_a_message(hosted: Hosted) -> None:
    """It may come long after the host was made, and begins the lease."""
    hosted.clock.advance(10 * LEASE_SECONDS)
    hosted.send(1, 1 - HANGS)
    assert until(lambda: len(hosted.answers) + len(hosted.errors) == 1)
    assert [result.drop for result in hosted.answers[0].results] == [10]


@pytest.mark.slow
def test_a_batch_whose_host_is_closed_before_its_submit_ends(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt that reaches a closed runner does not begin, and the batch is answered with an error."""
    submit = ThreadRunner.submit

    def closed_first(runner: ThreadRunner, tasks: Sequence[Task]) -> None:
        hosted.host.close()
        submit(runner, tasks)

    monkeypatch.setattr(ThreadRunner, "submit", closed_first)
    hosted.send(1, HANGS)
    assert until(lambda: len(hosted.errors) == 1)
    assert "the batch was stopped on the worker w" in str(hosted.errors[0])
    assert not hosted.runs(10)


@pytest.mark.slow
def test_worker_processes_begin_nothing_after_a_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a batch that comes to a host while it is closed leaves no attempt behind."""
    (tmp_path / "files").mkdir()
    spec = ExecutorSpec(session="s", directory=str(tmp_path), templates=TRACKED.templates, links=TRACKED.links)
    pool = WorkerPool(1, logs=tmp_path, factory="dropflow.testing.attempts:build")
    host = Host(spec, workers=1, name="w", factory="", open_runner=lambda one: (pool.runner(one), pool.close))
    submit = PooledRunner.submit

    def closed_first(runner: PooledRunner, tasks: Sequence[Task]) -> None:
        host.close()
        submit(runner, tasks)

    monkeypatch.setattr(PooledRunner, "submit", closed_first)
    with pytest.raises(WorkerDiedError, match="was stopped on the worker w"):
        host.run(encode(Batch(1, (Task(0, 1, 0, "d", ()),))))
    assert not (tmp_path / "files" / "track").exists()


def test_a_worker_looks_for_the_session_directory(tmp_path: Path) -> None:
    """It reads the file of the session, and writes one; what it finds has the reason if that is not possible."""
    with probe_file(str(tmp_path)) as (path, token):
        assert look(path, token).problem == ""
        assert "is another file there" in look(path, "other").problem
    assert "No such file" in look(path, token).problem
    assert [*(tmp_path / "tmp").iterdir()] == []
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="session directory cannot be written"), probe_file(str(tmp_path / "file")):
        pass


class _Refused(ThreadRunner):
    """A runner whose threads the system refuses."""

    def start(self, deliver: ResultSink) -> None:
        del deliver
        raise RuntimeError("can't start new thread")


@pytest.mark.slow
def test_a_runner_that_did_not_start_gets_no_batches(tmp_path: Path) -> None:
    """The batch is lost, and repeated; the next one starts a new runner."""
    hosted = Hosted(tmp_path)
    kinds = [ThreadRunner, _Refused]

    def opened(spec: ExecutorSpec) -> tuple[Runner, Callable[[], None]]:
        runner = kinds.pop()(ScriptedExecutor(spec), threads=1)
        return runner, runner.close

    hosted.host._open_runner = opened
    with pytest.raises(RuntimeError, match="can't start"):
        hosted.host.run(encode(Batch(1, (Task(10, 1, 0, "d", ()),))))
    hosted.send(2, 0)

    assert until(lambda: len(hosted.answers) == 1)
    hosted.host.close()
