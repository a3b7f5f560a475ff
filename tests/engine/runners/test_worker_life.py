"""Worker processes that print, fork, die and cannot be started: with real processes."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from dropflow.engine.api import AttemptResult, ExecutorSpec, Task
from dropflow.engine.drop_log import DropLog
from dropflow.engine.runners.descendants import WORKER_VARIABLE
from dropflow.engine.runners.pool import WorkerPool
from dropflow.engine.runners.start_backoff import StartBackoff
from dropflow.graph.templates import Argument, Kind, Template
from tests.engine.runners.test_pool import Answers, seen, until

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20


class Functions:
    """Attempts that call Python functions in the workers of a pool, each given as source of its body."""

    def __init__(self, pool: WorkerPool, directory: Path, **bodies: str) -> None:
        for name in ("files", "logs"):
            (directory / name).mkdir(parents=True)
        self.names = list(bodies)
        self.directory = directory
        templates = tuple(self._template(name, body) for name, body in bodies.items())
        spec = ExecutorSpec(session="s", directory=str(directory), templates=templates, links=(), log_limit=100_000)
        self.answers = Answers()
        self.runner = pool.runner(spec)
        self.runner.start(self.answers.deliver)

    @staticmethod
    def _template(name: str, body: str) -> Template:
        source = "import os, subprocess, sys, time\ndef f():\n" + "\n".join(
            "    " + line for line in dedent(body).strip().splitlines()
        )
        fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=source))
        return Template(key=name, name=name, kind=Kind.APP, component="dlg.apps.pyfunc.PyFuncApp", arguments=fields)

    def submit(self, *names: str, first: int = 0) -> None:
        """Hand over attempts; their drops are counted from `first`."""
        tasks = [
            Task(first + at, 1, self.names.index(name), f"{name}_{first + at}", ()) for at, name in enumerate(names)
        ]
        self.runner.submit(tasks)

    def run(self, *names: str, first: int = 0) -> list[AttemptResult]:
        """The results of attempts."""
        self.submit(*names, first=first)
        return self.answers.wait(*range(first, first + len(names)))

    def log(self, oid: str) -> str:
        """The log of a drop."""
        path = self.directory / "logs" / f"{oid}.log"
        return path.read_text(errors="replace") if path.exists() else ""


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    """Two workers with the real executor."""
    found = WorkerPool(2, logs=tmp_path)
    yield found
    found.close()


def text_of(result: AttemptResult) -> str:
    """Why an attempt failed."""
    assert result.failure is not None
    return result.failure.text


def below_workers() -> set[int]:
    """Processes that this process has started as workers, and all that those have started, wherever they are now."""
    found = set()
    for process in psutil.process_iter():
        try:
            name = process.environ().get(WORKER_VARIABLE, "")
            if name.startswith(f"{os.getpid()}-") and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


# What they print.


def test_what_compiled_code_prints_is_in_the_log_of_its_drop(pool: WorkerPool, tmp_path: Path) -> None:
    """Descriptors 1 and 2, of the process and of programs that inherit them, belong to the attempt that has them."""
    bodies = {
        f"n{number}": f"os.write(1, b'raw {number}\\n'); os.system('echo child {number} >&2')" for number in range(9)
    }
    work = Functions(pool, tmp_path / "s", **bodies, c="import ctypes\nctypes.CDLL(None).printf(b'from C\\n')")
    results = work.run(*bodies, "c")

    assert [result.failure for result in results] == [None] * 10
    assert [work.log(f"n{number}_{number}") for number in range(9)] == [f"raw {n}\nchild {n}\n" for n in range(9)]
    assert work.log("c_9") == "from C\n"


def test_output_past_python_is_bounded_and_its_end_is_kept(pool: WorkerPool, tmp_path: Path) -> None:
    """However much is written to descriptor 1: what is kept on disk and in memory is small, and has the end."""
    flood = f"for _ in range(64):\n    os.write(1, b'x' * {MEGABYTE})\nos.write(1, b'the end')"
    work = Functions(pool, tmp_path / "s", flood=flood, die=flood + "\nos.abort()", calm="pass")
    work.run("calm")
    before = psutil.Process().memory_info().rss
    assert work.run("flood", first=1)[0].failure is None
    dead = work.run("die", first=2)

    assert psutil.Process().memory_info().rss - before < 30 * MEGABYTE
    assert "SIGABRT" in text_of(dead[0])
    assert text_of(dead[0]).endswith("xxx the end"[4:])
    for log in (work.log("flood_1"), work.log("die_2")):
        assert log.endswith("the end")
        assert "bytes left out" in log
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < MEGABYTE


def test_descriptors_that_were_closed_are_mended(pool: WorkerPool, tmp_path: Path) -> None:
    """An attempt that closes its standard output does not take that of the next one away."""
    work = Functions(pool, tmp_path / "s", close="os.close(1); os.close(2)", say="os.write(1, b'here')")
    for number in range(0, 8, 2):
        work.run("close", first=number)
        work.run("say", first=number + 1)

    assert [work.log(f"say_{number}") for number in range(1, 8, 2)] == ["here"] * 4


def test_what_a_worker_prints_outside_of_attempts_has_a_file(pool: WorkerPool, tmp_path: Path) -> None:
    """It is in worker-<n>.log, and bounded too."""
    later = "import threading\nthreading.Timer(0.1, os.write, (1, b'afterwards')).start()"
    work = Functions(pool, tmp_path / "s", later=later)
    work.run("later")
    until(pool, lambda pool: any(worker.output.by_attempt for worker in pool._workers))
    pool.close()

    assert [path.read_text() for path in tmp_path.glob("worker-*.log")] == ["afterwards"]


# How they start.


def test_the_death_of_idle_workers_is_no_failed_start(pool: WorkerPool, tmp_path: Path) -> None:
    """However many idle workers die, new ones take their place, and the pool goes on."""
    work = Functions(pool, tmp_path / "s", fine="pass")
    for number in range(2):
        assert work.run("fine", first=number)[0].failure is None
        until(pool, lambda pool: len(pool._workers) == 2 and all(worker.is_started for worker in pool._workers))
        old = seen(pool, lambda pool: [worker.process.pid for worker in pool._workers])
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        until(pool, lambda pool, old=old: not {w.process.pid for w in pool._workers} & set(old))  # type: ignore[misc]

    assert work.run("fine", first=10)[0].failure is None


def test_starts_that_fail_are_told_and_tried_again(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts fail with what the process printed; once a start succeeds, all is forgotten."""
    monkeypatch.setattr("dropflow.engine.runners.start_backoff._LONGEST_PAUSE", 0.1)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    work = Functions(pool, tmp_path / "s", fine="pass")
    text = text_of(work.run("fine")[0])
    monkeypatch.delenv("PYTHONHOME")
    until(pool, lambda pool: len(pool._workers) == 2 and all(worker.is_started for worker in pool._workers))

    assert "worker processes cannot be started, 3 starts failed in a row" in text
    assert "No module named 'encodings'" in text
    assert work.run("fine", first=1)[0].failure is None


def test_failed_starts_do_not_fail_later_attempts(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that come after failed starts wait for the next start, and fail only if that fails too."""
    monkeypatch.setattr("dropflow.engine.runners.start_backoff._FIRST_PAUSE", 10.0)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    work = Functions(pool, tmp_path / "s", fine="pass")
    texts = [text_of(work.run("fine", first=number)[0]) for number in range(2)]
    monkeypatch.delenv("PYTHONHOME")

    assert work.run("fine", first=2)[0].failure is None
    assert "3 starts failed in a row" in texts[0]
    assert "4 starts failed in a row" in texts[1]


def test_workers_that_end_before_their_first_attempt_are_failed_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor that ends each process which builds it fails the attempts; they are not given out for ever."""
    (tmp_path / "deadly.py").write_text("import os\ndef build(spec): os._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    deadly = WorkerPool(2, logs=tmp_path, factory="deadly:build")
    try:
        text = text_of(Functions(deadly, tmp_path / "s", fine="pass").run("fine")[0])
    finally:
        deadly.close()

    assert "worker processes cannot be started" in text
    assert "ended with status 7" in text


def test_a_session_directory_that_is_gone_fails_its_attempts(pool: WorkerPool, tmp_path: Path) -> None:
    """Workers cannot enter it: the attempts say so, and the workers go on."""
    work = Functions(pool, tmp_path / "s", fine="pass")
    shutil.rmtree(tmp_path / "s")
    text = text_of(work.run("fine")[0])
    other = Functions(pool, tmp_path / "t", fine="pass")

    assert "the working directory of the session cannot be entered: No such file or directory" in text
    assert other.run("fine")[0].failure is None


def test_a_process_that_the_system_refuses_is_a_failed_start(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process, memory or descriptor to be had does not end the pool."""
    monkeypatch.setattr("dropflow.engine.runners.start_backoff._LONGEST_PAUSE", 0.1)
    refusals = iter(range(4))

    def refuse(*_: object, **__: object) -> None:
        if next(refusals, None) is not None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("dropflow.engine.runners.worker_process.socket.socketpair", _after(refuse))
    work = Functions(pool, tmp_path / "s", fine="pass")

    assert "Resource temporarily unavailable" in text_of(work.run("fine")[0])
    until(pool, lambda pool: bool(pool._workers))
    assert work.run("fine", first=1)[0].failure is None


def _after(check: Callable[..., None]) -> Callable[..., object]:
    import socket  # noqa: PLC0415 - the real function, before it is replaced

    real = socket.socketpair

    def call(*args: object, **named: object) -> object:
        check(*args, **named)
        return real(*args, **named)  # type: ignore[arg-type]

    return call


def test_failed_starts_wait_longer_each_time() -> None:
    """The pause doubles up to a limit; three failures in a row are told; a success forgets them."""
    starts = StartBackoff()
    pauses = []
    for _ in range(12):
        assert (starts.failure is None) == (starts.failed < 3)
        starts.note_failure("ended with status 1", 100.0)
        pauses.append(round(starts.not_before - 100.0, 1))
    starts.note_success()

    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses[-1] == 30.0
    assert (starts.failed, starts.not_before, starts.failure) == (0, 0.0, None)


def test_attempts_that_wait_shorten_the_pause() -> None:
    """While attempts wait and there is no process, the next start is tried within a second, and not put off."""
    starts = StartBackoff()
    for _ in range(12):
        starts.note_failure("ended with status 1", 100.0)
    for now in (100.5, 101.0):
        starts.shorten_pause(now)

    assert starts.not_before == 101.5


# How they end.

SLEEP = "sleep 98765"


@pytest.mark.parametrize(
    "start",
    [
        f"os.system('{SLEEP} &')",
        f"os.system('setsid {SLEEP} &')",
        "pid = os.fork()\nif not pid:\n    time.sleep(98765)",
        "if not os.fork():\n    os.setsid()\n    os.fork() or os.execlp('sleep', 'sleep', '98765')\n    os._exit(0)",
    ],
    ids=["background", "session", "fork", "daemon"],
)
@pytest.mark.parametrize("end", ["os._exit(7)", "return", "raise ValueError"])
def test_descendants_end_with_their_attempt(start: str, end: str, pool: WorkerPool, tmp_path: Path) -> None:
    """Background commands, sessions of their own, forks and daemons; whether the worker dies, succeeds or fails."""
    note = f"time.sleep(0.05)\n{end}"
    work = Functions(pool, tmp_path / "s", leave=f"{start}\n{note}")
    result = work.run("leave")[0]

    found = below_workers()
    assert found <= set(seen(pool, lambda pool: [worker.process.pid for worker in pool._workers]))
    if end == "os._exit(7)":
        assert "ended with status 7" in text_of(result)


def test_a_forked_child_that_comes_back_is_no_second_attempt(pool: WorkerPool, tmp_path: Path) -> None:
    """A child that returns or raises instead of leaving ends there: its parent's result is the attempt's."""
    body = "pid = os.fork()\nif not pid:\n    raise SystemExit(3)\nassert os.waitpid(pid, 0)[1] == 3 << 8"
    work = Functions(pool, tmp_path / "s", fork=body)
    results = work.run(*["fork"] * 6)

    assert [result.failure for result in results] == [None] * 6
    assert len(work.answers.results) == 6


def test_a_worker_that_closes_all_descriptors_is_replaced(pool: WorkerPool, tmp_path: Path) -> None:
    """It cannot tell what came of the attempt, which fails; the next one has a worker that can."""
    work = Functions(pool, tmp_path / "s", close="os.closerange(0, 1000)", fine="pass")

    failure = work.run("close")[0].failure
    assert failure is not None
    assert failure.code == "DF202", "it is killed, or leaves by itself: which of the two is chance"
    assert work.run("fine", first=1)[0].failure is None


def test_workers_end_with_the_process_of_their_pool(tmp_path: Path) -> None:
    """Also when that was killed while another process holds its end of the socket."""
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    source = f"""
        import os, threading, time
        from pathlib import Path
        from tests.engine.runners.test_worker_life import Functions, WorkerPool, seen, until
        pool = WorkerPool(1, logs=Path({str(tmp_path)!r}))
        work = Functions(pool, Path({str(tmp_path / "s")!r}), fine="pass")
        work.run("fine")
        if not os.fork():
            time.sleep(98765)
        print(seen(pool, lambda pool: pool._workers[0].process.pid), flush=True)
        time.sleep(98765)
    """
    with subprocess.Popen(
        [sys.executable, "-c", dedent(source)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        worker, forked = (
            psutil.Process(pid),
            [child for child in psutil.Process(process.pid).children() if child.pid != pid],
        )
        process.kill()
        psutil.wait_procs([worker], timeout=30)
        gone = not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
        for child in forked:
            child.kill()

    assert gone


def test_the_log_of_a_drop_is_shared_in_turn(tmp_path: Path) -> None:
    """What is added after an attempt has closed its log follows what is there."""
    for text in (b"one\n", b"two\n"):
        log = DropLog(str(tmp_path), "drop", 1024)
        log.write_bytes(text)
        log.close()

    assert (tmp_path / "drop.log").read_text() == "one\ntwo\n"


# When they are stopped.


@pytest.mark.parametrize("where", ["python", "outside"])
def test_a_stopped_worker_is_ended(
    where: str, pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt of a worker that a signal has stopped fails with that reason; the others go on."""
    monkeypatch.setattr("dropflow.engine.runners.worker_monitor._STOPPED_SECONDS", 0.2)
    monkeypatch.setattr("dropflow.engine.runners.worker_monitor._CHECK_SECONDS", 0.05)
    # The second holds the interpreter while it is stopped.
    body = (
        "os.kill(os.getpid(), 19)" if where == "python" else "import ctypes\ngetattr(ctypes.PyDLL(None), 'raise')(19)"
    )
    work = Functions(pool, tmp_path / "s", stop=body, fine="pass")
    text = text_of(work.run("stop", "fine", "fine", "fine")[0])

    assert "was stopped by a signal and did not continue for 0.2 s" in text
    assert work.run("fine", first=10)[0].failure is None


def _started(pool: WorkerPool) -> list[int]:
    """Process ids of the two workers, once both take attempts."""
    until(pool, lambda pool: len(pool._workers) == 2 and all(worker.is_started for worker in pool._workers))
    return seen(pool, lambda pool: [worker.process.pid for worker in pool._workers])


def _stop(*pids: int) -> None:
    """Stop processes, and wait until they are."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
            threading.Event().wait(0.001)


def test_a_stopped_worker_is_given_nothing(pool: WorkerPool, tmp_path: Path) -> None:
    """A worker that was stopped while it had nothing to do is seen before attempts are given out: others run them."""
    work = Functions(pool, tmp_path / "s", fine="pass")
    stopped = _started(pool)[0]
    _stop(stopped)
    results = work.run(*["fine"] * 20)

    assert [result.failure for result in results] == [None] * 20
    assert stopped in seen(pool, lambda pool: [worker.process.pid for worker in pool._workers])


def test_stopped_workers_are_found_at_once(pool: WorkerPool, tmp_path: Path) -> None:
    """If all workers are stopped, attempts wait with the pool, which sees all of them; a continued one is used."""
    work = Functions(pool, tmp_path / "s", fine="pass")
    pids = _started(pool)
    _stop(*pids)
    work.submit("fine")
    until(pool, lambda pool: all(worker.stopped_since is not None for worker in pool._workers))
    given = seen(pool, lambda pool: [len(worker.assigned) for worker in pool._workers])
    os.kill(pids[1], signal.SIGCONT)

    assert given == [0, 0]
    assert work.answers.wait(0)[0].failure is None
    assert seen(pool, lambda pool: [worker.process.pid for worker in pool._workers]) == pids


def test_workers_stopped_without_attempts_are_replaced(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that wait for stopped workers run in their replacements."""
    monkeypatch.setattr("dropflow.engine.runners.worker_monitor._STOPPED_SECONDS", 0.2)
    monkeypatch.setattr("dropflow.engine.runners.worker_monitor._CHECK_SECONDS", 0.05)
    work = Functions(pool, tmp_path / "s", fine="pass")
    pids = _started(pool)
    _stop(*pids)

    assert work.run("fine")[0].failure is None
    until(pool, lambda pool: not {worker.process.pid for worker in pool._workers} & set(pids))


def test_a_busy_worker_is_not_ended(pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that holds the interpreter for long shows no heartbeat either, but was not stopped."""
    monkeypatch.setattr("dropflow.engine.runners.worker_monitor._STOPPED_SECONDS", 0.1)
    monkeypatch.setattr("dropflow.engine.runners.worker_monitor._CHECK_SECONDS", 0.05)
    work = Functions(pool, tmp_path / "s", busy="import ctypes\nctypes.PyDLL(None).usleep(900_000)")

    assert work.run("busy")[0].failure is None


def test_the_pool_does_not_count_its_own_sleep(pool: WorkerPool, tmp_path: Path) -> None:
    """A pause of the manager itself (SIGSTOP, a suspended machine) makes no worker overdue."""
    work = Functions(pool, tmp_path / "s", fine="pass")
    work.run("fine")

    def sleep(pool: WorkerPool) -> tuple[float, float]:
        before = pool._time.now
        pool._time._read -= 3600.0  # as if the clock had gone on for an hour
        pool._time.advance(1.0)
        slept = pool._time.now - before
        pool._time.advance(None)
        return slept, pool._time.now - before

    slept, _ = seen(pool, sleep)
    assert slept < 2.0
