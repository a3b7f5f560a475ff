"""Computation of dask graphs in worker processes of this machine.

Each graph is a session in a temporary directory; the worker processes are shared by all sessions of a scheduler.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import dask

from dropflow.clock import Clock, SystemClock
from dropflow.dask.callbacks import CallbackInstrument
from dropflow.dask.chunk_sources import DirectoryChunks
from dropflow.dask.lost_chunks import LostChunksError, ask_sessions, chunk_inputs, compute_again, persisted_chunks
from dropflow.dask.persist import ChunkPlace, PersistedChunk, PersistedSession, close_all
from dropflow.dask.portable import portable
from dropflow.dask.translate import TranslatedGraph
from dropflow.dask_tasks.logged_exceptions import exception_in_log, without_exceptions
from dropflow.dask_tasks.value_encoding import read_value
from dropflow.data.read import open_content
from dropflow.data.repository import LocalRepository, MemoryLimitedRepository
from dropflow.errors import InternalError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.events import Event, Failed
from dropflow.execution.session import Instrument, Session, Watch
from dropflow.failure import Failure
from dropflow.formatting import last_lines
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.runners.make_runner import make_runner
from dropflow.runners.worker_pool import WorkerPool
from dropflow.sessions.make_session import make_session
from dropflow.states import DropState

_Result = TypeVar("_Result")


# Failures of tasks in other processes, as the exceptions that they were.


def task_error(failure: Failure, log: bytes, drop: str, node: str = "") -> BaseException:
    """Return what a task has raised, with its traceback and the end of its log as notes.

    Parameters
    ----------
    failure : Failure
        The failure, for the case that the exception is not in the log.
    log : bytes
        Log of the drop, or its end.
    drop : str
        Id of the application drop.
    node : str
        Where it ran, if that is another machine or process of managers.
    """
    logged = exception_in_log(log)
    error = failure.as_error() if logged is None else logged
    text = last_lines(without_exceptions(log).replace(failure.detail.strip().encode() or b"\0", b""))
    with suppress(Exception):  # the class of the exception may be anything
        error.add_note(f"raised by {drop}{f' on {node}' if node else ''}")
        if logged is not None and failure.detail:
            error.add_note(failure.detail)
        add_log(error, text)
    return error


def add_log(error: BaseException, text: str) -> None:
    """Add the last lines of a log to the notes of an exception, if there are some."""
    if text.strip():
        error.add_note(f"the end of its log:\n{text.strip()}")


class WorkerProcesses:
    """Worker processes for dask graphs. They start with the first graph, and end when this is closed or collected.

    Chunks of persisted collections stay in the directories of their sessions until nothing refers to them.

    Parameters
    ----------
    workers : int
        How many.
    memory_limit : int, optional
        Bytes of values that are in memory at a time, for each graph; others are in files.
    recompute : bool
        Whether persisted chunks that are lost are computed again.
    """

    def __init__(self, workers: int, memory_limit: int | None = None, *, recompute: bool = True) -> None:
        self.workers = workers
        self._recompute = recompute
        self._memory_limit = memory_limit
        root = Path(tempfile.mkdtemp(prefix="dropflow-dask-", dir=dask.config.get("temporary-directory", None)))
        self._root = root
        self._numbers = count()
        self._pool = pool = WorkerPool(workers, logs=root)
        self._end = weakref.finalize(self, _end, pool, root)
        self.chunks = DirectoryChunks(str(root))
        """The sessions with chunks of persisted collections."""
        self._remover = _DirectoryRemover(root)
        self._persisted: weakref.WeakSet[PersistedSession] = weakref.WeakSet()

    def close(self) -> None:
        """End the processes, and remove the directory with all chunks of persisted collections; idempotent."""
        close_all(self._persisted, "the worker processes that had it have ended")
        self._end()

    def compute(self, tasks: TranslatedGraph, instrument: CallbackInstrument | None) -> Mapping[Hashable, Any]:
        """Return the values of the results of a graph, by key.

        Parameters
        ----------
        tasks : TranslatedGraph
            A graph without constants (``runs_constants``).
        instrument : CallbackInstrument, optional
            Calls callbacks.

        Raises
        ------
        AppError
            A task, or its value, cannot be pickled.
        GoneError
            A persisted chunk that a task reads was released.
        BaseException
            The exception of a task, or of a callback.
        """
        directory = self._directory()
        try:
            return self._run(tasks, instrument, directory, _loaded)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def persist(
        self, tasks: TranslatedGraph, instrument: CallbackInstrument | None
    ) -> Mapping[Hashable, PersistedChunk]:
        """Compute the results of a graph, leave them in its directory, and return references to them, by key.

        Parameters and exceptions are those of `compute`.
        """
        return persisted_chunks(tasks, self._leave(tasks, instrument), self._leave if self._recompute else None)

    def _leave(self, tasks: TranslatedGraph, instrument: CallbackInstrument | None = None) -> PersistedSession:
        """Compute the results of a graph, and leave them in its directory."""
        directory = self._directory()
        try:
            handles = self._run(tasks, instrument, directory, _content)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        places = {
            drop: ChunkPlace(
                oid(tasks.graph, drop),
                "",
                str(Path(handles[key].location).relative_to(directory)),
                handles[key].size,
                handles[key].checksum,
            )
            for key, drop in tasks.results.items()
        }
        made = PersistedSession(self.chunks, directory.name, places, self._remover)
        self._persisted.add(made)
        return made

    def _find(self, chunks: Collection[PersistedChunk]) -> None:
        """Compute chunks again whose files are not there any more.

        Raises
        ------
        GoneError
            One cannot be computed again.
        """

        def check(session: PersistedSession, rows: Collection[int]) -> None:
            self.chunks.check(session.name, {row: session.places[row] for row in rows})

        try:
            ask_sessions([(chunk, chunk.where) for chunk in chunks], check)
        except LostChunksError as error:
            compute_again(error)

    def _directory(self) -> Path:
        return self._root / f"dask-{next(self._numbers)}"

    def _run(
        self,
        tasks: TranslatedGraph,
        instrument: CallbackInstrument | None,
        directory: Path,
        result: "Callable[[Session, int, Hashable], _Result]",
    ) -> dict[Hashable, _Result]:
        """Return the `result` of each wanted key of a graph, executed in a directory."""
        self._find(chunk_inputs(tasks).values())
        clock, graph = SystemClock(), portable(tasks, is_elsewhere=False)
        repository = self._repository(directory, clock, graph)
        failed = _FirstFailure()
        instruments: tuple[Instrument, ...] = (failed,) if instrument is None else (failed, instrument)
        try:
            runner = make_runner(
                graph, repository.workspace, workers=self.workers, pool=self._pool, folder=_working_directory()
            )
            session = make_session(graph, repository, runner, clock=clock, watch=Watch(instruments=instruments))
            failed.session = session
            if instrument is not None:
                instrument.content, instrument.on_error = session.content, failed.end
            try:
                session.advance()
            finally:
                session.close()
            if failed.error is not None:
                raise failed.error
            if failed.drop is not None:
                raise _error(session, graph, failed.drop, tasks.keys[failed.drop])
            return {key: result(session, drop, key) for key, drop in tasks.results.items()}
        finally:
            failed.forget()
            repository.close()

    def _repository(self, directory: Path, clock: Clock, graph: PhysicalGraph) -> LocalRepository:
        if self._memory_limit is None:
            return LocalRepository(directory, directory.name, clock, graph)
        return MemoryLimitedRepository(directory, directory.name, clock, graph, limit=self._memory_limit)


class _FirstFailure(Instrument):
    """Ends a session when a drop is in ERROR, or with an exception of a callback."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.drop: int | None = None
        self.error: BaseException | None = None

    def on_events(self, events: Sequence[Event]) -> None:
        session = self.session
        if session is None or self.drop is not None:
            return
        for event in events:
            # An attempt whose process died is repeated, and its drop not in ERROR.
            if isinstance(event, Failed) and session.core.drops.states[event.drop] == DropState.ERROR:
                self.drop = event.drop
                session.freeze()
                return

    def end(self, error: BaseException) -> None:
        """End the session with an exception, unless it has one."""
        if self.error is None and self.session is not None:
            self.error = error
            self.session.freeze()

    def forget(self) -> None:
        """Forget session and exception: the traceback refers to the session, and that to this object."""
        self.session = self.error = None


def _working_directory() -> str:
    """Return the working directory of the program, where the relative paths of its tasks lead; empty if it is gone."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def _error(session: Session, graph: PhysicalGraph, drop: int, key: Hashable) -> BaseException:
    name = oid(graph, drop)
    reports = session.reports()
    report = next((candidate for candidate in reports if candidate.drop == name), None)
    if report is None:
        return InternalError(f"{name} failed without a report: {'; '.join(failed.text for failed in reports)}")
    failure = Failure(code=report.code, kind=report.kind, text=report.text, hint=report.hint, detail=report.detail)
    log = Path(report.log).read_bytes() if report.log else b""
    return task_error(failure, log, f"{name}, task {key!r} of dask")


def _content(session: Session, drop: int, key: Hashable) -> Handle:
    handle = session.content(drop)
    if handle is None:
        reports = "; ".join(report.text for report in session.reports())
        raise InternalError(f"the value of {key!r} is missing at the end: {reports or 'without a reason'}")
    return handle


def _loaded(session: Session, drop: int, key: Hashable) -> Any:
    with open_content(_content(session, drop, key)) as stream:
        return read_value(stream)


class _DirectoryRemover:
    """Removes contents and directories of sessions."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def remove_contents(self, session: str, paths: Mapping[int, str]) -> None:
        """Remove contents of a session. Readers that have mapped them keep them."""
        for path in paths.values():
            (self._root / session / path).unlink(missing_ok=True)

    def remove_sessions(self, names: Sequence[str]) -> None:
        """Remove the directories of sessions."""
        for name in names:
            shutil.rmtree(self._root / name, ignore_errors=True)


def _end(pool: WorkerPool, root: Path) -> None:
    pool.close()
    shutil.rmtree(root, ignore_errors=True)
