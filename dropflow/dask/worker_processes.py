"""Computation of dask graphs in worker processes of this machine.

Each graph is a session in a temporary directory; the worker processes are shared by all sessions of a scheduler.
"""

import shutil
import tempfile
import weakref
from collections.abc import Hashable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import dask

from dropflow.apps.runner_factory import make_runner
from dropflow.clock import SystemClock
from dropflow.dask.callbacks import CallbackInstrument
from dropflow.dask.portable_graph import portable
from dropflow.dask.task_failure import task_error
from dropflow.dask.translate import TranslatedGraph
from dropflow.dask.value_encoding import read_value
from dropflow.data.read_content import open_content
from dropflow.data.repository import LocalRepository
from dropflow.engine.events import Event, Failed
from dropflow.engine.instruments import Instrument
from dropflow.engine.runners.pool import WorkerPool
from dropflow.engine.session import Session
from dropflow.errors import InternalError
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.session_factory import make_session
from dropflow.states import DropState

__all__ = ["WorkerProcesses"]


class WorkerProcesses:
    """Worker processes for dask graphs. They start with the first graph, and end when this is closed or collected.

    Parameters
    ----------
    workers : int
        How many.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        root = Path(tempfile.mkdtemp(prefix="dropflow-dask-", dir=dask.config.get("temporary-directory", None)))
        self._root = root
        self._numbers = count()
        self._pool = pool = WorkerPool(workers, logs=root)
        self._end = weakref.finalize(self, _end, pool, root)

    def close(self) -> None:
        """End the processes, and remove the directory; idempotent."""
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
        BaseException
            What a task, or a callback, has raised.
        """
        directory = self._root / f"dask-{next(self._numbers)}"
        clock, graph = SystemClock(), portable(tasks)
        repository = LocalRepository(directory, directory.name, clock, graph)
        failed = _FirstFailure()
        instruments: tuple[Instrument, ...] = (failed,) if instrument is None else (failed, instrument)
        try:
            runner = make_runner(graph, repository.workspace, "processes", self.workers, pool=self._pool)
            session = make_session(graph, repository, runner, clock=clock, instruments=instruments)
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
            return {key: _loaded(session, drop, key) for key, drop in tasks.results.items()}
        finally:
            failed.forget()
            repository.close()
            shutil.rmtree(directory, ignore_errors=True)


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


def _error(session: Session, graph: PhysicalGraph, drop: int, key: Hashable) -> BaseException:
    name = oid(graph, drop)
    reports = session.reports()
    report = next((one for one in reports if one.drop == name), None)
    if report is None:
        return InternalError(f"{name} failed without a report: {'; '.join(one.text for one in reports)}")
    failure = Failure(code=report.code, kind=report.kind, text=report.text, hint=report.hint, detail=report.detail)
    log = Path(report.log).read_bytes() if report.log else b""
    return task_error(failure, log, f"{name}, task {key!r} of dask")


def _loaded(session: Session, drop: int, key: Hashable) -> Any:
    handle = session.content(drop)
    if handle is None:
        reports = "; ".join(report.text for report in session.reports())
        raise InternalError(f"the value of {key!r} is missing at the end: {reports or 'without a reason'}")
    with open_content(handle) as stream:
        return read_value(stream)


def _end(pool: WorkerPool, root: Path) -> None:
    pool.close()
    shutil.rmtree(root, ignore_errors=True)
