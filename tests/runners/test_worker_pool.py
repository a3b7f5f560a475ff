"""A pool of worker processes that several sessions share."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dropflow import translate
from dropflow.clock import SystemClock
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.execution.session import Session
from dropflow.execution.statistics import SessionResult, Statistics
from dropflow.execution.tasks import Output, Task
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template
from dropflow.runners.in_process import ThreadRunner
from dropflow.runners.worker_pool import WorkerPool
from dropflow.states import SessionState
from dropflow.stopping import GRACE_SECONDS
from dropflow.testing.attempts import ScriptedExecutor
from dropflow.testing.conformance import FakeRepository
from dropflow.testing.drawing import draw
from tests.drawn_graphs import app, data
from tests.drawn_graphs import draw as draw_nodes
from tests.execution.sessions import build_session
from tests.runners.pool_thread import seen, until
from tests.runners.scripted_runners import FACTORY, Answers

WIDE = ", ".join(f"a{number} -> B{number} -> c{number}" for number in range(20))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """Two workers for all tests of this module."""
    with closing(WorkerPool(2, logs=tmp_path_factory.mktemp("workers"), factory=FACTORY)) as found:
        found.start()
        yield found


@pytest.fixture
def pool(workers: WorkerPool) -> WorkerPool:
    """The two workers, once they have nothing to do."""
    until(workers, lambda pool: [worker.is_started and worker.is_idle for worker in pool._workers] == [True, True])
    return workers


def _session(
    graph: PhysicalGraph,
    pool: WorkerPool,
    directory: Path,
    on_statistics: Callable[[Statistics], None] | None = None,
    runner: Runner | None = None,
) -> Session:
    for name in ("files", "logs"):
        (directory / name).mkdir(parents=True)
    spec = ExecutorSpec(session="s", directory=str(directory), templates=graph.templates, links=graph.links)
    return build_session(
        graph,
        FakeRepository(),
        runner or pool.runner(spec),
        directory=str(directory),
        clock=SystemClock(),
        on_statistics=on_statistics,
    )


def _start(session: Session, results: list[SessionResult]) -> threading.Thread:
    thread = threading.Thread(target=lambda: results.append(session.run()))
    thread.start()
    return thread


def _pids(session: Session) -> set[bytes]:
    repository: FakeRepository = session._repository  # type: ignore[assignment]
    return {handle.body for handle in repository.results.values()}


@pytest.mark.slow
def test_sessions_share_the_same_processes(pool: WorkerPool, tmp_path: Path) -> None:
    """Sessions, one after another or at the same time, use the same processes of the pool."""
    graph = draw(WIDE, **{f"B{number}": {"component": "pid"} for number in range(20)})
    sessions = [_session(graph, pool, tmp_path / f"s{number}") for number in range(6)]
    results: list[SessionResult] = []
    for group in (sessions[:1], sessions[1:]):
        for thread in [_start(session, results) for session in group]:
            thread.join(60)

    assert [result.status for result in results] == [SessionState.FINISHED] * 6
    assert len(set().union(*(_pids(session) for session in sessions))) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("place", ["", "site-packages"])
def test_a_module_that_was_edited_runs_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A worker that has loaded it is replaced when the next session begins, also if it was installed anew.

    Without a change it is not.
    """
    module = tmp_path / place / "edited.py"
    module.parent.mkdir(exist_ok=True)
    monkeypatch.setenv("PYTHONPATH", str(module.parent))
    nodes = [app("Value", "dlg.apps.pyfunc.PyFuncApp", encoding="utf-8", func_name="edited.value"), data("out")]
    graph = translate(draw_nodes(tmp_path / "g.graph", nodes, "Value > out")).graph
    found = []
    with closing(WorkerPool(1, logs=tmp_path)) as pool:
        for number, text in enumerate(("one", "two again", "")):
            if text:
                # With another size: the cache of Python compares it and the second of the change.
                source = f"import os\ndef value():\n    return f'{text.split()[0]} {{os.getpid()}}'  # {text}\n"
                module.unlink(missing_ok=True)
                module.write_text(source)
            session = _session(graph, pool, tmp_path / f"s{number}")
            assert session.run().status is SessionState.FINISHED
            (body,) = _pids(session)
            found.append(body.decode().split())

    assert [text for text, _ in found] == ["one", "two", "two"]
    assert found[0][1] != found[1][1] == found[2][1]


@pytest.mark.slow
def test_a_cancelled_session_does_not_disturb_others(pool: WorkerPool, tmp_path: Path) -> None:
    """The worker of an attempt that ignores its abort is killed; other sessions finish."""
    stubborn = _session(draw("A -> b", A={"component": "deaf"}), pool, tmp_path / "stubborn")
    results: list[SessionResult] = []
    one = _start(stubborn, results)
    stubborn.call(lambda live: live.core.drops.running)
    other: list[SessionResult] = []
    two = _start(_session(draw(WIDE), pool, tmp_path / "other"), other)
    stubborn.cancel()
    one.join(60)
    two.join(60)

    assert [result.status for result in results + other] == [SessionState.CANCELLED, SessionState.FINISHED]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["processes", "threads"])
def test_no_more_attempts_run_than_there_are_workers(pool: WorkerPool, tmp_path: Path, place: str) -> None:
    """Of 20 ready attempts, two run, four wait for a worker, and the others wait with the session."""
    graph = draw(WIDE, **{f"B{number}": {"component": "hang"} for number in range(20)})
    seen = threading.Event()

    def look(found: Statistics) -> None:
        if (found.attempts.running, found.attempts.queued, found.attempts.ready) == (2, 4, 14):
            seen.set()

    runner = None
    if place == "threads":
        spec = ExecutorSpec(session="s", directory="", templates=graph.templates, links=graph.links)
        runner = ThreadRunner(ScriptedExecutor(spec), threads=2)
    session = _session(graph, pool, tmp_path / "s", look, runner)
    session.runner.window = 6
    results: list[SessionResult] = []
    thread = _start(session, results)
    was_seen = seen.wait(60)
    session.cancel()
    thread.join(60)

    assert was_seen, session.attempts()
    assert [result.status for result in results] == [SessionState.CANCELLED]


@pytest.mark.slow
def test_a_result_that_cannot_be_sent_is_a_failure(pool: WorkerPool, tmp_path: Path) -> None:
    """An attempt fails with the reason if its result cannot be encoded."""
    result = _session(draw("A -> b, C -> d", A={"component": "mumble"}), pool, tmp_path / "s").run()

    assert result.states == {"COMPLETED": 2, "ERROR": 2, "SKIPPED": 0}
    assert "cannot be sent: UnicodeEncodeError" in result.failures[0].text


@pytest.mark.slow
def test_a_result_that_cannot_be_read_costs_its_worker_only(pool: WorkerPool, tmp_path: Path) -> None:
    """Its attempt has infrastructure faults until it is given up; other sessions go on."""
    result = _session(draw("A -> b", A={"component": "garble"}), pool, tmp_path / "s").run()
    other = _session(draw(WIDE), pool, tmp_path / "other").run()

    assert "sent an invalid message: Expected `int`, got `float`" in result.failures[0].text
    assert other.status is SessionState.FINISHED


@pytest.mark.slow
def test_a_broken_pool_fails_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an error in the pool's own code, running and later sessions fail with the reason; none waits forever."""
    with closing(WorkerPool(1, logs=tmp_path, factory=FACTORY)) as pool:
        fine = _session(draw(WIDE), pool, tmp_path / "fine").run()
        monkeypatch.setattr(pool._dispatcher, "assign", lambda _: 1 // 0)
        results: list[SessionResult] = []
        for name in ("first", "second"):
            _start(_session(draw("A -> b"), pool, tmp_path / name), results).join(60)

    assert fine.status is SessionState.FINISHED
    assert [result.status for result in results] == [SessionState.FAILED] * 2
    assert "the thread of worker processes failed: ZeroDivisionError" in results[0].failures[0].text
    assert "this is a bug of dropflow" in caplog.text


# Attempts one by one, without a session.


SCRIPTS = ("short", "hang", "deaf")


class Attempts:
    """A runner and its results; attempts are given as a script and a number, which is their drop.

    Parameters
    ----------
    make : callable
        Makes the runner from a spec.
    """

    def __init__(self, make: Callable[[ExecutorSpec], Runner], directory: Path) -> None:
        for name in ("files", "logs"):
            (directory / name).mkdir(parents=True)
        templates = tuple(Template(key=name, name=name, kind=Kind.APP, component=name) for name in SCRIPTS)
        spec = ExecutorSpec(session="s", directory=str(directory), templates=templates, links=())
        self.answers = Answers()
        self.runner = make(spec)
        self.runner.start(self.answers.deliver)

    def submit(self, *named: tuple[str, int], ahead: bool = False) -> None:
        """Submit attempts in one batch."""
        tasks = [Task(drop, 1, SCRIPTS.index(script), f"d{drop}", (), is_ahead=ahead) for script, drop in named]
        self.runner.submit(tasks)

    def abort(self, *drops: int, grace: float = GRACE_SECONDS) -> None:
        """Abort attempts."""
        for drop in drops:
            self.runner.abort(drop, 1, grace)


@pytest.fixture
def attempts(pool: WorkerPool, tmp_path: Path) -> Iterator[Attempts]:
    """Attempts in the pool."""
    found = Attempts(pool.runner, tmp_path / "one")
    yield found
    found.runner.close()


@pytest.fixture
def others(pool: WorkerPool, tmp_path: Path) -> Iterator[Attempts]:
    """Attempts of another session in the same pool."""
    found = Attempts(pool.runner, tmp_path / "two")
    yield found
    found.runner.close()


def warm(attempts: Attempts) -> None:
    """Run short attempts, so that the pool gives workers many attempts ahead."""
    drops = range(10_000, 10_200)
    attempts.submit(*(("short", drop) for drop in drops))
    attempts.answers.wait(*drops)


def expect(pool: WorkerPool, **seconds: float) -> None:
    """Have the pool expect that attempts of scripts take so long."""
    for runner in pool._dispatcher._runners.values():
        for script, each in seconds.items():
            runner.expected.note(SCRIPTS.index(script), each)


def busy(pool: WorkerPool, attempts: Attempts, *drops: int) -> None:
    """Keep one worker busy with each drop, until it is aborted."""
    for drop in drops:
        attempts.submit(("hang", drop), ahead=True)
    until(pool, lambda pool: sum(worker.current() >= 0 for worker in pool._workers) == len(drops))


@pytest.mark.slow
def test_nothing_waits_behind_an_attempt_that_reads_a_stream(pool: WorkerPool, attempts: Attempts) -> None:
    """Such an attempt may last as long as its stream: others run in other workers."""
    warm(attempts)
    attempts.submit(("hang", 1), ahead=True)
    attempts.submit(*(("short", drop) for drop in range(2, 300)))
    attempts.answers.wait(*range(2, 300))

    assert seen(pool, lambda pool: sorted(len(worker.assigned) for worker in pool._workers)) == [0, 1]
    attempts.abort(1)
    attempts.answers.wait(1)


@pytest.mark.slow
def test_nothing_waits_behind_an_attempt_that_writes_a_stream(pool: WorkerPool, attempts: Attempts) -> None:
    """An attempt that writes a stream may last as long as its readers: others run in other workers."""
    warm(attempts)
    output = Output(50, "d50", 0, 0, streams=True)
    attempts.runner.submit([Task(1, 1, SCRIPTS.index("hang"), "d1", (), outputs=(output,))])
    attempts.submit(*(("short", drop) for drop in range(2, 300)))
    attempts.answers.wait(*range(2, 300))

    assert seen(pool, lambda pool: sorted(len(worker.assigned) for worker in pool._workers)) == [0, 1]
    attempts.abort(1)


@pytest.mark.slow
def test_an_attempt_of_a_stream_gets_an_idle_worker(pool: WorkerPool, attempts: Attempts) -> None:
    """An attempt of a stream does not wait for a busy worker, perhaps that of its producer, while another is idle."""
    warm(attempts)
    seen(pool, lambda pool: expect(pool, hang=1e-6))
    attempts.submit(("hang", 1))
    until(pool, lambda pool: any(worker.current() >= 0 for worker in pool._workers))
    attempts.submit(("short", 2), ahead=True)
    attempts.answers.wait(2)
    attempts.abort(1)
    attempts.answers.wait(1)


@pytest.mark.slow
def test_an_attempt_of_a_stream_waits_for_a_worker(pool: WorkerPool, attempts: Attempts, others: Attempts) -> None:
    """While all workers are busy, an attempt of a stream is next; then both sessions get workers in turn."""
    busy(pool, attempts, 1, 2)
    attempts.submit(("short", 3), ahead=True)
    attempts.submit(("short", 4), ahead=True)
    others.submit(("short", 5))
    attempts.abort(1)
    attempts.answers.wait(1, 3, 4)
    others.answers.wait(5)
    attempts.abort(2)


@pytest.mark.slow
def test_no_result_waits_for_the_attempt_after_it(attempts: Attempts) -> None:
    """Results are sent in batches, but that of a short attempt does not wait for a long one after it."""
    warm(attempts)
    for first in range(0, 200, 10):
        one, two = range(first, first + 5), range(first + 5, first + 10)  # one half for each worker
        attempts.submit(*(("hang" if drop in (one[-1], two[-1]) else "short", drop) for drop in (*one, *two)))
        attempts.answers.wait(*one[:-1], *two[:-1])
        attempts.abort(one[-1], two[-1])
        attempts.answers.wait(one[-1], two[-1])


@pytest.mark.slow
def test_an_aborted_attempt_does_not_run_again(pool: WorkerPool, attempts: Attempts) -> None:
    """An attempt that was aborted while it waited in a worker does not run in another one when that worker dies."""
    warm(attempts)
    seen(pool, lambda pool: expect(pool, hang=10.0, deaf=1e-6))
    attempts.submit(("hang", 1))
    attempts.submit(("deaf", 2), ("short", 3), ("short", 4), ("short", 5))
    until(pool, lambda pool: sum(len(worker.assigned) for worker in pool._workers) == 5)
    attempts.abort(3, 1, 2, grace=0.0)
    results = attempts.answers.wait(1, 2, 3, 4, 5)

    assert [result.failure is None for result in results] == [False, False, False, True, True]


RUNNERS = {
    "pool": lambda pool: pool.runner,
    "threads": lambda _: lambda spec: ThreadRunner(ScriptedExecutor(spec), threads=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNNERS)
def test_an_abort_is_never_lost(kind: str, pool: WorkerPool, tmp_path: Path) -> None:
    """An attempt that is aborted directly after it was submitted ends."""
    attempts = Attempts(RUNNERS[kind](pool), tmp_path / "s")
    for drop in range(500):
        attempts.submit(("hang", drop), ahead=bool(drop % 2))
        attempts.abort(drop)
        attempts.answers.wait(drop)
    attempts.runner.close()

    assert len(attempts.answers.results) == 500


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNNERS)
@pytest.mark.parametrize("seed", range(3))
def test_every_attempt_has_one_result(kind: str, seed: int, pool: WorkerPool, tmp_path: Path) -> None:
    """Each attempt has one result, whether it is aborted before it begins, after, or not at all."""
    chance = random.Random(seed)
    attempts = Attempts(RUNNERS[kind](pool), tmp_path / "s")
    drops = list(range(300))
    unwanted = []
    for drop in drops:
        script = chance.choice(["short", "short", "short", "hang"])
        attempts.submit((script, drop), ahead=chance.random() < 0.3)
        if script == "hang" or chance.random() < 0.3:
            unwanted.append(drop)
        if chance.random() < 0.5 and unwanted:
            attempts.abort(unwanted.pop(chance.randrange(len(unwanted))))
    attempts.abort(*unwanted)
    attempts.answers.wait(*drops)
    attempts.runner.close()

    assert sorted(result.drop for result in attempts.answers.results) == drops


@pytest.mark.slow
def test_nothing_waits_behind_a_long_attempt(attempts: Attempts) -> None:
    """Attempts that wait behind a long one in a worker run in another worker that is idle."""
    warm(attempts)
    attempts.submit(("hang", 1), *(("short", drop) for drop in range(2, 300)))
    attempts.answers.wait(*range(2, 300))

    assert 1 not in {each.drop for each in attempts.answers.results}
    attempts.abort(1)
    attempts.answers.wait(1)
    drops = [each.drop for each in attempts.answers.results]
    assert len(drops) == len(set(drops)), "nothing was run twice"


@pytest.mark.slow
def test_a_worker_at_a_long_attempt_gets_no_others(attempts: Attempts) -> None:
    """Later attempts do not wait behind a long one either."""
    warm(attempts)
    attempts.submit(("hang", 1), ("short", 2))
    attempts.answers.wait(2)
    for drop in range(3, 60):
        attempts.submit(("short", drop))
        attempts.answers.wait(drop)
    attempts.abort(1)
    attempts.answers.wait(1)


@pytest.mark.slow
def test_an_aborted_and_recalled_attempt_has_one_result(attempts: Attempts) -> None:
    """An attempt that is aborted while it waits behind a long one does not begin, and has one result."""
    warm(attempts)
    attempts.submit(("hang", 1), *(("hang", drop) for drop in range(2, 40)))
    attempts.abort(*range(2, 40))
    attempts.answers.wait(*range(2, 40))
    attempts.abort(1)
    attempts.answers.wait(1)
    drops = [each.drop for each in attempts.answers.results]

    assert len(drops) == len(set(drops))


@pytest.mark.slow
def test_a_runner_closes_while_another_has_long_attempts(
    pool: WorkerPool, attempts: Attempts, others: Attempts
) -> None:
    """A runner can close although its attempts wait behind long attempts of another runner."""
    warm(attempts)
    others.submit(("hang", 1), ("hang", 2))
    attempts.submit(*(("short", drop) for drop in range(200)), *(("hang", drop) for drop in range(200, 210)))
    while seen(pool, lambda pool: sum(worker.current() >= 0 for worker in pool._workers)) < 2:
        pass
    attempts.runner.close()

    assert attempts.runner._queue.has_left.is_set()  # type: ignore[attr-defined]
    others.abort(1, 2)
    others.answers.wait(1, 2)
