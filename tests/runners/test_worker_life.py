"""Worker processes that print, fork, die and cannot be started: with real processes."""

import contextlib
import os
import re
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from dropflow.execution.drop_log import DropLog
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.host.descendants import WORKER_VARIABLE
from dropflow.runners.worker_pool import StartBackoff, WorkerPool
from tests.runners.pool_thread import seen, until
from tests.runners.scripted_runners import Answers

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20


class Functions:
    """Attempts that call Python functions in the workers of a pool; each function is given as its source."""

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
        """Submit attempts; their drops are numbered from `first`."""
        tasks = [
            Task(first + at, 1, self.names.index(name), f"{name}_{first + at}", ()) for at, name in enumerate(names)
        ]
        self.runner.submit(tasks)

    def run(self, *names: str, first: int = 0) -> list[AttemptResult]:
        """Run attempts and return their results."""
        self.submit(*names, first=first)
        return self.answers.wait(*range(first, first + len(names)))

    def log(self, oid: str) -> str:
        """Return the log of a drop."""
        path = self.directory / "logs" / f"{oid}.log"
        return path.read_text(errors="replace") if path.exists() else ""


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    """Two workers with the real executor."""
    found = WorkerPool(2, logs=tmp_path)
    yield found
    found.close()


def text_of(result: AttemptResult) -> str:
    """Return why an attempt failed."""
    assert result.failure is not None
    return result.failure.text


def below_workers() -> set[int]:
    """Return the workers of this process and all processes that these have started, also daemons."""
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
    """What compiled code and child programs write to descriptors 1 and 2 is in the log of the attempt."""
    bodies = {
        f"n{number}": f"os.write(1, b'raw {number}\\n'); os.system('echo child {number} >&2')" for number in range(9)
    }
    work = Functions(pool, tmp_path / "s", **bodies, c="import ctypes\nctypes.CDLL(None).printf(b'from C\\n')")
    results = work.run(*bodies, "c")

    assert [result.failure for result in results] == [None] * 10
    assert [work.log(f"n{number}_{number}") for number in range(9)] == [f"raw {n}\nchild {n}\n" for n in range(9)]
    assert work.log("c_9") == "from C\n"


def test_output_to_descriptors_is_bounded_and_has_its_end(pool: WorkerPool, tmp_path: Path) -> None:
    """Of a large output to descriptor 1, a bounded part with the end is kept, on disk and in memory."""
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
        assert re.search(r"xxthe end($|\n\S+ ERROR the worker process was killed by signal 6 \(SIGABRT\).*\n$)", log)
        assert "bytes left out" in log
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < MEGABYTE


def test_closed_descriptors_are_reopened(pool: WorkerPool, tmp_path: Path) -> None:
    """After an attempt that closes its standard output, the next one has it again."""
    work = Functions(pool, tmp_path / "s", close="os.close(1); os.close(2)", say="os.write(1, b'here')")
    for number in range(0, 8, 2):
        work.run("close", first=number)
        work.run("say", first=number + 1)

    assert [work.log(f"say_{number}") for number in range(1, 8, 2)] == ["here"] * 4


def test_bash_reads_no_bashrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bash that an attempt starts reads no ~/.bashrc, also if the process of the pool was started over ssh."""
    (tmp_path / ".bashrc").write_text("echo read\n")
    for name, text in {"HOME": str(tmp_path), "SSH_CLIENT": "192.0.2.1 50000 22", "SHLVL": "0"}.items():
        monkeypatch.setenv(name, text)
    pool = WorkerPool(1, logs=tmp_path)
    try:
        work = Functions(pool, tmp_path / "s", say="os.system('exec bash -c \"echo ran\"')")
        work.run("say")
    finally:
        pool.close()

    assert work.log("say_0") == "ran\n"


def test_what_a_worker_prints_outside_of_attempts_has_a_file(pool: WorkerPool, tmp_path: Path) -> None:
    """Output outside of attempts is in worker-<n>.log, and bounded too."""
    later = "import threading\nthreading.Timer(0.1, os.write, (1, b'afterwards')).start()"
    work = Functions(pool, tmp_path / "s", later=later)
    work.run("later")
    until(pool, lambda pool: any(worker.output.by_attempt for worker in pool._workers))
    pool.close()

    assert [path.read_text() for path in tmp_path.glob("worker-*.log")] == ["afterwards"]


# How they start.


def test_the_death_of_idle_workers_is_no_failed_start(pool: WorkerPool, tmp_path: Path) -> None:
    """Idle workers that die are replaced, any number of times."""
    work = Functions(pool, tmp_path / "s", fine="pass")
    for number in range(2):
        assert work.run("fine", first=number)[0].failure is None
        until(pool, lambda pool: len(pool._workers) == 2 and all(worker.is_started for worker in pool._workers))
        old = seen(pool, lambda pool: [worker.process.pid for worker in pool._workers])
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        until(pool, lambda pool, old=old: not {w.process.pid for w in pool._workers} & set(old))  # type: ignore[misc]

    assert work.run("fine", first=10)[0].failure is None


def test_failed_starts_are_reported_and_repeated(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While starts fail, attempts fail with what the process printed; after a start that succeeds, they run."""
    monkeypatch.setattr("dropflow.runners.worker_pool._LONGEST_PAUSE_SECONDS", 0.1)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    work = Functions(pool, tmp_path / "s", fine="pass")
    text = text_of(work.run("fine")[0])
    monkeypatch.delenv("PYTHONHOME")
    until(pool, lambda pool: len(pool._workers) == 2 and all(worker.is_started for worker in pool._workers))

    assert "worker processes cannot be started, 6 starts failed in a row" in text
    assert "No module named 'encodings'" in text
    assert work.run("fine", first=1)[0].failure is None


def test_failed_starts_do_not_fail_later_attempts(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that are submitted after failed starts wait for the next start, and fail only if it fails too."""
    monkeypatch.setattr("dropflow.runners.worker_pool._FIRST_PAUSE_SECONDS", 10.0)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    work = Functions(pool, tmp_path / "s", fine="pass")
    texts = [text_of(work.run("fine", first=number)[0]) for number in range(2)]
    monkeypatch.delenv("PYTHONHOME")

    assert work.run("fine", first=2)[0].failure is None
    assert "6 starts failed in a row" in texts[0]
    assert "7 starts failed in a row" in texts[1]


def test_workers_that_end_before_their_first_attempt_are_failed_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If building the executor ends the process, attempts fail after a few starts."""
    (tmp_path / "deadly.py").write_text("import os\ndef build(spec): os._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    deadly = WorkerPool(2, logs=tmp_path, factory="deadly:build")
    try:
        text = text_of(Functions(deadly, tmp_path / "s", fine="pass").run("fine")[0])
    finally:
        deadly.close()

    assert "worker processes cannot be started" in text
    assert "ended with status 7" in text


@pytest.mark.parametrize("place", ["'/'", "gone"])
def test_the_next_attempt_begins_in_the_directory_of_the_session(place: str, tmp_path: Path) -> None:
    """An application that changes the working directory changes it for itself, also if it removes the other one."""
    away = f"import tempfile\nwith tempfile.TemporaryDirectory() as gone:\n    os.chdir({place})"
    with contextlib.closing(WorkerPool(1, logs=tmp_path)) as pool:
        work = Functions(pool, tmp_path / "s", away=away, here="os.write(1, os.getcwd().encode())")
        work.run("here", "away", "here")

        assert [work.log(f"here_{drop}") for drop in (0, 2)] == [f"{tmp_path}/s/files"] * 2


def test_the_next_attempt_makes_files_with_the_usual_modes(tmp_path: Path) -> None:
    """An application that changes the umask changes it for itself."""
    modes = "open('made', 'w').close()\nos.write(1, str(os.stat('made').st_mode).encode())\nos.unlink('made')"
    with contextlib.closing(WorkerPool(1, logs=tmp_path)) as pool:
        work = Functions(pool, tmp_path / "s", closed="os.umask(0o777)", modes=modes)
        work.run("modes", "closed", "modes")

        assert work.log("modes_0") == work.log("modes_2")


def test_the_next_attempt_prints_to_its_own_log(tmp_path: Path) -> None:
    """An application that replaces the standard streams takes them from no later attempt of its worker process."""
    with contextlib.closing(WorkerPool(1, logs=tmp_path)) as pool:
        work = Functions(pool, tmp_path / "s", silent="sys.stdout = sys.stderr = None", loud="print('loud')")
        work.run("silent", "loud")

        assert work.log("loud_1") == "loud\n"


def test_the_next_attempt_logs_to_its_own_log(tmp_path: Path) -> None:
    """An application that configures logging anew takes the records of no later attempt of its worker process."""
    anew = "import logging\nlogging.basicConfig(force=True, filename='mine.log')"
    with contextlib.closing(WorkerPool(1, logs=tmp_path)) as pool:
        work = Functions(pool, tmp_path / "s", anew=anew, loud="import logging\nlogging.warning('loud')")
        work.run("anew", "loud")

        assert work.log("loud_1").endswith(" WARNING root: loud\n")


def test_a_worker_ends_although_its_attempt_has_replaced_the_streams(pool: WorkerPool, tmp_path: Path) -> None:
    """A worker that loses its pool ends by itself, whatever an attempt has put in place of standard output."""
    stay = "while True:\n    try:\n        time.sleep(0.01)\n    except BaseException:\n        pass"
    work = Functions(pool, tmp_path / "s", stay=f"sys.stdout = None\nopen('begun', 'w').close()\n{stay}")
    work.submit("stay")
    until(pool, lambda _: (tmp_path / "s" / "files" / "begun").exists())
    (busy,) = seen(pool, lambda pool: [worker for worker in pool._workers if worker.assigned])
    busy.link.shutdown(socket.SHUT_WR)

    assert "ended with status 0" in text_of(work.answers.wait(0)[0])


def test_a_session_that_cannot_be_sent_fails_alone(pool: WorkerPool, tmp_path: Path) -> None:
    """Its attempts have the reason. Those of other sessions run in the same workers."""
    other = Functions(pool, tmp_path / "other", body="pass")
    broken = Functions(pool, tmp_path / os.fsdecode(b"\xe9t\xe9"), body="pass")

    assert "surrogates not allowed" in text_of(broken.run("body")[0])
    assert other.run("body")[0].failure is None


def test_a_session_directory_that_is_gone_fails_its_attempts(pool: WorkerPool, tmp_path: Path) -> None:
    """Attempts fail because the directory cannot be entered; their workers live on."""
    work = Functions(pool, tmp_path / "s", fine="pass")
    shutil.rmtree(tmp_path / "s")
    text = text_of(work.run("fine")[0])
    other = Functions(pool, tmp_path / "t", fine="pass")

    assert "the working directory of the session cannot be entered: No such file or directory" in text
    assert other.run("fine")[0].failure is None


def test_a_process_that_the_system_refuses_is_a_failed_start(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the system refuses a process, memory or a descriptor, the pool tries again."""
    monkeypatch.setattr("dropflow.runners.worker_pool._LONGEST_PAUSE_SECONDS", 0.1)
    refusals = iter(range(7))

    def refuse(*_: object, **__: object) -> None:
        if next(refusals, None) is not None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("dropflow.runners.worker_process.socket.socketpair", _after(refuse))
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
    """The pause doubles up to a limit, for as many starts as fail; after six in a row there is a failure.

    A success resets both.
    """
    starts = StartBackoff()
    pauses = []
    for _ in range(2000):
        assert (starts.failure is None) == (starts.failed < 6)
        starts.note_failure("ended with status 1", 100.0)
        pauses.append(round(starts.not_before - 100.0, 1))
    starts.note_success()

    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses[-1] == 30.0
    assert (starts.failed, starts.not_before, starts.failure) == (0, 0.0, None)


def test_attempts_that_wait_shorten_the_pause() -> None:
    """While attempts wait and there is no process, the next start is tried within a second."""
    starts = StartBackoff()
    for _ in range(12):
        starts.note_failure("ended with status 1", 100.0)
    for now in (100.5, 101.0):
        starts.shorten_pause(now)

    assert starts.not_before == 101.5


# How they end.

SLEEP = "sleep 98765"
_STARTS = {
    "background": f"os.system('{SLEEP} &')",
    "session": f"os.system('setsid {SLEEP} &')",
    "fork": "pid = os.fork()\nif not pid:\n    time.sleep(98765)",
    "daemon": "if not os.fork():\n    os.setsid()\n"
    "    os.fork() or os.execlp('sleep', 'sleep', '98765')\n    os._exit(0)",
}
_ENDS = ("os._exit(7)", "return", "raise ValueError")
_OFTEN = {("background", "return"), ("session", "os._exit(7)"), ("fork", "raise ValueError"), ("daemon", "os._exit(7)")}
"""Each start and each end once; `make exhaustive` has all pairs."""


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(start, end, marks=[] if (start, end) in _OFTEN else pytest.mark.exhaustive)
        for start in _STARTS
        for end in _ENDS
    ],
)
def test_descendants_end_with_their_attempt(start: str, end: str, pool: WorkerPool, tmp_path: Path) -> None:
    """Background commands, new sessions, forks and daemons end, whether the worker dies or the attempt ends."""
    note = f"time.sleep(0.05)\n{end}"
    work = Functions(pool, tmp_path / "s", leave=f"{_STARTS[start]}\n{note}")
    result = work.run("leave")[0]

    found = below_workers()
    assert found <= set(seen(pool, lambda pool: [worker.process.pid for worker in pool._workers]))
    if end == "os._exit(7)":
        assert "ended with status 7" in text_of(result)


def test_a_forked_child_does_not_continue_the_attempt(pool: WorkerPool, tmp_path: Path) -> None:
    """A forked child that returns or raises in the application ends there; the result is that of its parent."""
    body = "pid = os.fork()\nif not pid:\n    raise SystemExit(3)\nassert os.waitpid(pid, 0)[1] == 3 << 8"
    work = Functions(pool, tmp_path / "s", fork=body)
    results = work.run(*["fork"] * 6)

    assert [result.failure for result in results] == [None] * 6
    assert len(work.answers.results) == 6


def test_a_worker_that_closes_all_descriptors_is_replaced(pool: WorkerPool, tmp_path: Path) -> None:
    """Its attempt fails, because the worker cannot send the result; the next one runs in a new worker."""
    work = Functions(pool, tmp_path / "s", close="os.closerange(0, 1000)", fine="pass")

    failure = work.run("close")[0].failure
    assert failure is not None
    assert failure.code == "DF202", "it is killed, or leaves by itself: which of the two is chance"
    assert work.run("fine", first=1)[0].failure is None


def test_workers_end_with_the_process_of_their_pool(tmp_path: Path) -> None:
    """Workers end when the process of their pool is killed, even if another process holds its end of the socket."""
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    source = f"""
        import os, threading, time
        from pathlib import Path
        from tests.runners.test_worker_life import Functions, WorkerPool, seen, until
        pool = WorkerPool(1, logs=Path({str(tmp_path)!r}))
        work = Functions(pool, Path({str(tmp_path / "s")!r}), fine="pass")
        work.run("fine")
        if not os.fork():
            time.sleep(98765)
        print(seen(pool, lambda pool: pool._workers[0].process.pid), flush=True)
        time.sleep(98765)
    """
    with subprocess.Popen(
        [sys.executable, "-c", dedent(source)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        worker, forked = (
            psutil.Process(pid),
            [child for child in psutil.Process(process.pid).children() if child.pid != pid],
        )
        process.kill()
        psutil.wait_procs([worker], timeout=60)
        gone = not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
        for child in forked:
            child.kill()

    assert gone


def test_the_log_of_a_drop_is_continued(tmp_path: Path) -> None:
    """Text that is added after an attempt has closed its log is appended."""
    for text in (b"one\n", b"two\n"):
        log = DropLog(str(tmp_path), "drop", 1024)
        log.write_bytes(text)
        log.close()

    assert (tmp_path / "drop.log").read_text() == "one\ntwo\n"


# When they are stopped.


@pytest.mark.parametrize("where", ["python", "outside"])
def test_a_stopped_worker_is_killed(
    where: str, pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt of a worker that stays stopped by a signal fails with that reason; others complete."""
    monkeypatch.setattr("dropflow.runners.worker_process._STOPPED_SECONDS", 0.2)
    monkeypatch.setattr("dropflow.runners.worker_process._CHECK_SECONDS", 0.05)
    # The second holds the interpreter while it is stopped.
    body = (
        "os.kill(os.getpid(), 19)" if where == "python" else "import ctypes\ngetattr(ctypes.PyDLL(None), 'raise')(19)"
    )
    work = Functions(pool, tmp_path / "s", stop=body, fine="pass")
    text = text_of(work.run("stop", "fine", "fine", "fine")[0])

    assert "was stopped by a signal and did not continue for 0.2 s" in text
    assert work.run("fine", first=10)[0].failure is None


def _started(pool: WorkerPool) -> list[int]:
    """Return the process ids of the two workers, once both take attempts."""
    until(pool, lambda pool: len(pool._workers) == 2 and all(worker.is_started for worker in pool._workers))
    return seen(pool, lambda pool: [worker.process.pid for worker in pool._workers])


def _stop(*pids: int) -> None:
    """Stop processes, and wait until they are stopped."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
            threading.Event().wait(0.001)


def test_a_command_does_not_wait_until_many_workers_are_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel, and the first attempts, come before the start of thousands of processes."""
    program = tmp_path / "program"  # a process that imports nothing
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    pool = WorkerPool(500, logs=tmp_path)
    pool.start()
    started = seen(pool, lambda pool: len(pool._workers))
    pool.close()

    assert started <= 24


def test_a_stopped_worker_gets_no_attempts(pool: WorkerPool, tmp_path: Path) -> None:
    """A worker that was stopped while it was idle gets no attempts: others run them."""
    work = Functions(pool, tmp_path / "s", fine="pass")
    stopped = _started(pool)[0]
    _stop(stopped)
    results = work.run(*["fine"] * 20)

    assert [result.failure for result in results] == [None] * 20
    assert stopped in seen(pool, lambda pool: [worker.process.pid for worker in pool._workers])


def test_all_stopped_workers_are_found(pool: WorkerPool, tmp_path: Path) -> None:
    """If all workers are stopped, attempts wait with the pool, and run when one continues."""
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
    monkeypatch.setattr("dropflow.runners.worker_process._STOPPED_SECONDS", 0.2)
    monkeypatch.setattr("dropflow.runners.worker_process._CHECK_SECONDS", 0.05)
    work = Functions(pool, tmp_path / "s", fine="pass")
    pids = _started(pool)
    _stop(*pids)

    assert work.run("fine")[0].failure is None
    until(pool, lambda pool: not {worker.process.pid for worker in pool._workers} & set(pids))


def test_a_busy_worker_is_not_killed(pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose code holds the interpreter for long, without heartbeats, is not killed."""
    monkeypatch.setattr("dropflow.runners.worker_process._STOPPED_SECONDS", 0.1)
    monkeypatch.setattr("dropflow.runners.worker_process._CHECK_SECONDS", 0.05)
    work = Functions(pool, tmp_path / "s", busy="import ctypes\nctypes.PyDLL(None).usleep(900_000)")

    assert work.run("busy")[0].failure is None


def test_the_pool_does_not_count_its_own_pauses(pool: WorkerPool, tmp_path: Path) -> None:
    """After a pause of the pool's own process (SIGSTOP, a suspended machine), no worker is overdue."""
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


def test_a_worker_that_cannot_be_killed_is_replaced(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attempt fails with that reason, other attempts run, and the pool closes without waiting for it."""
    for name, seconds in {"_CHECK_SECONDS": 0.05, "_STOPPED_SECONDS": 0.2, "_UNKILLABLE_SECONDS": 0.2}.items():
        monkeypatch.setattr(f"dropflow.runners.worker_process.{name}", seconds)
    # A stopped process that no signal is sent to stands in for one that waits for the kernel.
    monkeypatch.setattr("dropflow.runners.worker_process.end_worker", lambda *_: None)
    work = Functions(pool, tmp_path / "s", stop="os.kill(os.getpid(), 19)", fine="pass")
    work.submit("stop")
    until(pool, lambda pool: any(worker.killed_since is not None for worker in pool._workers))
    stopped = seen(pool, lambda pool: [each.process for each in pool._workers if each.killed_since is not None])
    text = text_of(work.answers.wait(0)[0])
    fine = work.run(*["fine"] * 20, first=1)
    pool.close()
    was_there = stopped[0].poll() is None
    for process in stopped:
        process.kill()
        process.wait()

    assert was_there
    assert "was stopped by a signal" in text
    assert [result.failure for result in fine] == [None] * 20
