"""The side of a session in a worker of an engine: it runs the batches that come there in worker processes of dropflow.

The worker of the engine waits in `Host.run` until the attempts of a batch are answered. It does not run them itself:
they need a process that may be killed, with its own working directory, and with the output of one attempt only.

A host without a message for `LEASE_SECONDS` stops its attempts: the process of its session was killed.
"""

import contextlib
import os
import platform
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.errors import ConflictError, MissingDependencyError, StorageError, WorkerDiedError
from dropflow.execution.chains import members
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.execution.tasks import AttemptResult, StreamOpened, Task
from dropflow.failure import summary_of
from dropflow.runners.carried_contents import OwnDirectory
from dropflow.runners.engine import AttemptKey, Batch, BatchAnswer, Piece, decode_batch, encode
from dropflow.runners.in_process import aborted
from dropflow.runners.worker_pool import WorkerPool
from dropflow.version import __version__

LEASE_SECONDS = 60.0
"""Seconds without a message of its session, after which a host stops its attempts."""
PYTHON = platform.python_version()
_DISCARD_SECONDS = 0.5
"""Seconds that attempts may clean up whose batch is discarded."""
_MOST_STOPPED = 10_000
"""Stopped attempts and batches that are remembered, as they may come after the message that stops them."""
_HINT = f"install dropflow {__version__} in the environment of the workers"
_NO_MODULE = re.compile(r"No module named '?[\w.]+'?")
_SHOWN_WORKERS = 3
"""Workers in a message."""
_PROBE_TOKEN_BYTES = 16
"""Random bytes in a file by which a worker shows that it reads the directory of the session."""


class HostView(msgspec.Struct, frozen=True):
    """Facts about the host of a worker of an engine, before it runs anything.

    Attributes
    ----------
    version : str
        Version of dropflow there.
    host : str
        Name of its host.
    problem : str
        Why it cannot use the session directory; empty if it can.
    alias : str
        The name that its operator gave it.
    python : str
        Version of Python there.
    """

    version: str
    host: str
    problem: str
    alias: str = ""
    python: str = PYTHON


def look(probe: str, token: str, alias: str = "") -> HostView:
    """Return whether a worker can use the session directory: it reads the file `probe`, and writes one beside it.

    Parameters
    ----------
    probe : str
        Path of a file that the session has written into its private directory.
    token : str
        Content of that file.
    alias : str
        The name that the operator of the engine gave the worker.
    """
    problem = ""
    try:
        if Path(probe).read_text(encoding="utf-8") != token:
            problem = f"{probe} is another file there"
        else:
            own = Path(f"{probe}-{socket.gethostname()}-{os.getpid()}")
            own.write_text(token, encoding="utf-8")
            own.unlink()
    except OSError as error:
        problem = f"{error.filename or probe}: {error.strerror or error}"
    return HostView(__version__, socket.gethostname(), problem, alias)


class _Work:
    """A batch that runs on this host."""

    def __init__(self, batch: Batch) -> None:
        self.number = batch.number
        self.open = {(member.drop, member.attempt) for task in batch.tasks for member in members(task)}
        self.results: list[AttemptResult] = []
        self.returned: list[Task] = []
        self.over = threading.Event()


class Host:
    """Runs the batches of one session in one process of an engine. Its methods are called from any thread.

    Parameters
    ----------
    spec : ExecutorSpec
        Specification from which its worker processes build their executor.
    workers : int
        Number of attempts that run at a time.
    name : str
        Name of the worker of the engine.
    factory : str
        ``package.module:function`` that makes an `Executor` from the spec.
    own : OwnDirectory, optional
        Its own directory, if it cannot use the session directory. It is removed with the host.
    open_runner : callable, optional
        Returns the runner for a spec, and a function that closes it; by default, a runner with a new pool.
    clock : Clock, optional
        Measures how long the session has been silent; by default the clock of the machine.
    """

    def __init__(
        self,
        spec: ExecutorSpec,
        *,
        workers: int,
        name: str,
        factory: str,
        own: OwnDirectory | None = None,
        open_runner: Callable[[ExecutorSpec], tuple[Runner, Callable[[], None]]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._own = own
        self._spec = spec if own is None else own.spec(spec)
        self._workers, self._factory = workers, factory
        self._open_runner = open_runner or self._open_pool
        self.name = name
        self._logs = Path(self._spec.directory, "logs", f"{socket.gethostname()}-{os.getpid()}")
        # Guards the attributes below: threads of the engine and the thread of the pool use them.
        self._lock = threading.Lock()
        self._close_runner: Callable[[], None] = lambda: None
        self._runner: Runner | None = None
        self._batches: dict[int, _Work] = {}
        self._work_of: dict[AttemptKey, _Work] = {}
        self._stopped: dict[AttemptKey | int, None] = {}
        """Attempts and batches that were stopped before they came here, the oldest first."""
        self._closed = threading.Event()
        self._is_watched = False
        self._clock = clock or SystemClock()
        self._pinged = self._clock.monotonic()

    def run(self, data: bytes, pieces: Sequence[Piece] = ()) -> bytes:
        """Run a batch, with its contents, and return its answer, when all its attempts are over or were taken back.

        Raises
        ------
        WorkerDiedError
            The host was closed, or the batch discarded.
        """
        batch = decode_batch(data)
        if self._own is None:
            return encode(self._run(batch, batch.tasks))
        try:
            tasks, failed = self._own.incoming(batch, pieces)
            answer = self._run(batch, tasks) if tasks else BatchAnswer(batch.number, self.name, tuple(failed))
            return encode(self._own.outgoing(answer))
        finally:
            self._own.end(batch.number)

    def _run(self, batch: Batch, tasks: Sequence[Task]) -> BatchAnswer:
        work = _Work(batch)
        with self._lock:
            if self._closed.is_set() or batch.number in self._stopped:
                raise self._lost()
            self.ping()  # before the first batch starts the watch of the lease
            runner = self._open()
            self._batches[batch.number] = work
            self._work_of.update(dict.fromkeys(work.open, work))
            stopped = [key for key in work.open if key in self._stopped]
        # Outside of the lock: a pool may wait until its thread, which takes the lock, has read earlier messages. So
        # `close` may come first. A runner that is closed begins nothing, and `close` ends the batch after it.
        try:
            runner.submit(tasks)
            for key in stopped:
                runner.abort(*key, _DISCARD_SECONDS)
        except OSError:  # it was closed meanwhile
            work.over.set()
        work.over.wait()
        with self._lock:
            self._batches.pop(batch.number, None)
            if work.open:
                raise self._lost()
            return self._answer(work)

    def abort(self, attempts: Iterable[AttemptKey], grace: float) -> None:
        """Stop attempts that are on this host, or come later."""
        with self._lock:
            runner = self._runner
            present = []
            for drop, attempt in attempts:
                if (drop, attempt) in self._work_of:
                    present.append((drop, attempt))
                else:
                    self._remember((drop, attempt))
        _abort(runner, present, grace)

    def recall(self, numbers: Iterable[int]) -> bytes:
        """Take back attempts that have not begun, if one of these batches is here; return a list of answers so far."""
        with self._lock:
            runner = self._runner
            if runner is None or self._batches.keys().isdisjoint(numbers):
                return encode([])
        # Attempts that wait with a worker process come back a moment after the hold, and are answered at the next call.
        with contextlib.suppress(OSError):  # it was closed meanwhile
            runner.hold(is_held=True)
            returned = runner.give_back()
            runner.hold(is_held=False)
            with self._lock:
                for task in returned:
                    self._take_back(task)
        with self._lock:
            answers = [self._answer(work) for work in self._batches.values()]
        if self._own is not None:  # results come with their contents, at the end
            answers = [msgspec.structs.replace(answer, results=()) for answer in answers]
        return encode(answers)

    def discard(self, number: int) -> None:
        """Stop the attempts of a batch, and do not wait for their ends."""
        with self._lock:
            work, runner = self._batches.get(number), self._runner
            if work is None:
                self._remember(number)
                return
            keys = list(work.open)
            for key in keys:
                self._work_of.pop(key, None)
            work.over.set()
        _abort(runner, keys, _DISCARD_SECONDS)

    def ping(self) -> None:
        """Note that the session is alive."""
        self._pinged = self._clock.monotonic()

    def close(self) -> None:
        """Stop everything; batches are answered with an error. Idempotent. Takes a second or two."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            runner, self._runner = self._runner, None
        if runner is not None:
            self._close_runner()
        if self._own is not None:
            self._own.close()
        with self._lock:
            for work in self._batches.values():
                work.over.set()

    def _open(self) -> Runner:
        """Return the runner, with its worker processes, which the first batch starts."""
        if self._runner is None:
            runner, self._close_runner = self._open_runner(self._spec)
            runner.start(self._take_results)
            self._runner = runner
            self._watch_session()
        return self._runner

    def _watch_session(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            threading.Thread(target=self._watch, name="session-lease", daemon=True).start()

    def _open_pool(self, spec: ExecutorSpec) -> tuple[Runner, Callable[[], None]]:
        """Return the runner of a new pool, and a function that closes the pool."""
        self._logs.mkdir(parents=True, exist_ok=True)
        pool = WorkerPool(self._workers, logs=self._logs, factory=self._factory)

        def close() -> None:
            pool.close()
            with contextlib.suppress(OSError):  # there are logs in it
                self._logs.rmdir()

        return pool.runner(spec), close

    def _watch(self) -> None:
        """Close the host when no message of its session has come for too long."""
        while (left := self._pinged + LEASE_SECONDS - self._clock.monotonic()) > 0.0:
            if self._closed.wait(left):
                return
        self.close()

    def _take_results(self, results: Sequence[StreamOpened | AttemptResult]) -> None:
        with self._lock:
            if self._closed.is_set():
                return  # the close may have ended these attempts, which does not count as their failure
            for result in results:
                if isinstance(result, AttemptResult):  # streams are refused before a session begins
                    work = self._leave((result.drop, result.attempt))
                    if work is not None:
                        work.results.append(result)

    def _take_back(self, task: Task) -> None:
        work = self._leave((task.drop, task.attempt))
        if work is None:
            return
        if (task.drop, task.attempt) in self._stopped:
            work.results.append(aborted(task.drop, task.attempt))
        else:
            # Those that follow it have been answered.
            work.returned.append(msgspec.structs.replace(task, then=()) if task.then else task)

    def _leave(self, key: AttemptKey) -> _Work | None:
        work = self._work_of.pop(key, None)
        if work is not None:
            work.open.discard(key)
            if not work.open:
                work.over.set()
        return work

    def _answer(self, work: _Work) -> BatchAnswer:
        return BatchAnswer(work.number, self.name, tuple(work.results), tuple(work.returned))

    def _remember(self, stopped: AttemptKey | int) -> None:
        self._stopped[stopped] = None
        if len(self._stopped) > _MOST_STOPPED:
            del self._stopped[next(iter(self._stopped))]

    def _lost(self) -> WorkerDiedError:
        return WorkerDiedError(f"the batch was stopped on the worker {self.name}")


def _abort(runner: Runner | None, attempts: Iterable[AttemptKey], grace: float) -> None:
    if runner is not None:
        with contextlib.suppress(OSError):  # it was closed meanwhile
            for drop, attempt in attempts:
                runner.abort(drop, attempt, grace)


# The check that all workers of an engine can use the directory of a session, before anything runs.


@contextmanager
def probe_file(directory: str) -> Iterator[tuple[str, str]]:
    """Write a file into the private directory of a session; yield its path and its content.

    Raises
    ------
    StorageError
        It cannot be written.
    """
    token = secrets.token_hex(_PROBE_TOKEN_BYTES)
    path = Path(directory, "tmp", f"probe-{token[:8]}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(token, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the session directory cannot be written: {error.strerror}", where=directory) from error
    try:
        yield str(path), token
    finally:
        path.unlink(missing_ok=True)


def refuse_other_versions(engine: str, views: Mapping[str, HostView]) -> None:
    """Raise if workers of an engine have another version of dropflow, or of Python.

    Code and objects of Python in a graph can only be read by the minor version that wrote them.

    Parameters
    ----------
    views : mapping of str to HostView
        The host of each worker.

    Raises
    ------
    ConflictError
        Some have another version.
    """
    others = {name: view.version for name, view in views.items() if view.version != __version__}
    if others:
        raise ConflictError(
            f"{_listed(others)} of {engine} have another version of dropflow than this process ({__version__})",
            hint=f"{_HINT}, or theirs here",
        )
    others = {name: view.python for name, view in views.items() if _minor(view.python) != _minor(PYTHON)}
    if others:
        raise ConflictError(
            f"{_listed(others)} of {engine} have another version of Python than this process ({PYTHON})",
            hint=f"start the workers with Python {_minor(PYTHON)}, or this command with theirs",
        )


def view_of(worker: str, answer: object, version: object = None) -> HostView:
    """Return the answer of a worker of an engine to `look`.

    Parameters
    ----------
    worker : str
        The worker, as ``Dask worker tcp://...``.
    answer : mapping or Exception
        Its answer: the fields of a `HostView`.
    version : str, optional
        Its version of dropflow, if it could be asked in another way.

    Raises
    ------
    MissingDependencyError
        It cannot import dropflow.
    ConflictError
        Its version of dropflow gives another answer.
    """
    # Engines put exceptions into others, such as `Exception("ModuleNotFoundError(...)")`. The missing package may be
    # one that dropflow needs.
    if isinstance(answer, Exception) and (missing := _NO_MODULE.search(str(answer))):
        raise MissingDependencyError(f"the {worker} cannot import dropflow: {missing[0]}", hint=_HINT) from answer
    try:
        return msgspec.convert(answer, HostView)
    except msgspec.ValidationError as error:
        text = summary_of(answer if isinstance(answer, Exception) else error).partition("\n")[0]
        has = f"has dropflow {version}, and " if isinstance(version, str) else ""
        raise ConflictError(
            f"the {worker} {has}cannot run this version of dropflow ({__version__}): {text}", hint=_HINT
        ) from error


def share_directory(views: Mapping[str, HostView]) -> bool:
    """Return whether all workers can use the session directory."""
    return not any(view.problem for view in views.values())


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _listed(texts: Mapping[str, str]) -> str:
    more = f" and {len(texts) - _SHOWN_WORKERS} more" if len(texts) > _SHOWN_WORKERS else ""
    return "; ".join(f"{name} ({text})" for name, text in sorted(texts.items())[:_SHOWN_WORKERS]) + more
