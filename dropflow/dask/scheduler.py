"""The scheduler that dask calls: ``get``, and the context in which collections are computed by dropflow."""

import contextvars
import os
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import dask
from dask.core import convert_legacy_graph, flatten

from dropflow.clock import SystemClock
from dropflow.dask.callbacks import CallbackInstrument, active_callbacks
from dropflow.dask.explain import switch
from dropflow.dask.fused_chains import with_fused_chains
from dropflow.dask.layer_volumes import layer_volumes
from dropflow.dask.object_contents import ObjectHandle, ObjectRepository
from dropflow.dask.task_executor import TaskExecutor
from dropflow.dask.translate import TranslatedGraph, translate
from dropflow.dask.worker_processes import WorkerProcesses
from dropflow.engine.api import Runner
from dropflow.engine.runners.inline import InlineRunner
from dropflow.engine.runners.threads import ThreadRunner
from dropflow.engine.session import Session
from dropflow.errors import BadParameterError, InternalError
from dropflow.graph.chains import follower_column, without_fusion
from dropflow.graph.text_ids import oid

if TYPE_CHECKING:
    from dropflow.dask.remote_sessions import RemoteSessions

__all__ = ["RUNNERS", "Scheduler", "get", "scheduler"]

RUNNERS = ("threads", "inline", "processes")
"""Where tasks run: in threads of this process, one after another in the thread that calls, or in worker processes."""


class Scheduler:
    """Executes dask graphs, on this machine or on managers. As a context manager, it ends its worker processes.

    Parameters
    ----------
    runner : str, optional
        On this machine, one of `RUNNERS`; by default the first.
    workers : int, optional
        Number of threads or processes; by default dask's configuration ``num_workers``, or else one per core that this
        process may use.
    to : str, optional
        Address of a manager (node, island or master): each computation is a session there.
    token : str, optional
        Token of the manager; by default that of ``DROPFLOW_TOKEN``, or what this host knows of the manager.
    key : path, optional
        The cluster key, where there is no token.
    algorithm : str
        The algorithm that places the graph on nodes, as in ``dropflow submit --algorithm``.
    keep : bool
        Whether sessions stay at the manager. Otherwise they are deleted when the values are here.
    progress : bool
        Whether a notebook or a terminal shows the progress of a session of a manager.
    fuse_enabled : bool, optional
        Whether chains of tasks run as one unit; by default ``dropflow.fuse_enabled`` of dask's configuration, or True.

    Raises
    ------
    BadParameterError
        There is no such runner, the number of workers is not positive, or runner or workers are given for a manager.
    """

    def __init__(
        self,
        *,
        runner: str | None = None,
        workers: int | None = None,
        to: str | None = None,
        token: str | None = None,
        key: str | os.PathLike[str] | None = None,
        algorithm: str = "breadth_first",
        keep: bool = False,
        progress: bool = True,
        fuse_enabled: bool | None = None,
    ) -> None:
        if runner is not None and runner not in RUNNERS:
            raise BadParameterError(
                f"there is no runner {runner!r} for dask graphs", hint=f"one of {', '.join(RUNNERS)}"
            )
        if to is not None and (runner, workers) != (None, None):
            raise BadParameterError(
                f"runner and workers are those of the nodes at {to}", hint="leave them out, or leave out 'to'"
            )
        self._runner = runner or RUNNERS[0]
        self._workers = _checked(workers)
        self._fuse_enabled = fuse_enabled
        self._remote: RemoteSessions | None = None
        if to is not None:
            # The client is not needed on this machine.
            from dropflow.dask import remote_sessions  # noqa: PLC0415

            self._remote = remote_sessions.RemoteSessions(
                to, token=token, key=key, algorithm=algorithm, keep=keep, progress=progress
            )
        self._lock = threading.Lock()
        """Guards the worker processes: several threads may compute at a time."""
        self._processes: WorkerProcesses | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes, if there are any. The next computation starts new ones. Idempotent."""
        with self._lock:
            processes, self._processes = self._processes, None
        if processes is not None:
            processes.close()

    def get(
        self,
        dsk: Any,
        keys: Any,
        *,
        num_workers: int | None = None,
        callbacks: Any = None,
        fuse_enabled: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the values of keys of a dask graph; this is what dask calls.

        Parameters
        ----------
        dsk : mapping, or object with ``__dask_graph__``
            The graph.
        keys : key, or list of keys and lists
            What is wanted.
        num_workers : int, optional
            Number of threads of this computation. Worker processes keep their number: it is that of the first one.
        callbacks : sequence, optional
            As in dask; by default those that are registered.
        fuse_enabled : bool, optional
            As in `Scheduler`, for this computation.
        **kwargs
            Options of other schedulers, and of collections, which dask passes to all. They are ignored.

        Returns
        -------
        object
            The value; a tuple of values for a list.

        Raises
        ------
        BadGraphError
            A key is not in the graph, or tasks wait for each other.
        BaseException
            What a task has raised, with a note that names its drop.
        """
        del kwargs
        is_fused = switch("fuse_enabled", self._fuse_enabled if fuse_enabled is None else fuse_enabled)
        wanted = list(flatten([keys]))
        nodes = convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        with active_callbacks(callbacks) as found:
            travels = self._remote is not None or self._runner == "processes"
            if travels and is_fused and not found:  # callbacks get the keys of all tasks
                # One task in the place of a chain: what goes from one of its tasks to the next is not pickled.
                nodes = with_fused_chains(nodes, wanted)
            tasks = translate(nodes, wanted, layer_volumes(dsk), runs_constants=travels)
            if not is_fused:
                tasks = replace(tasks, graph=without_fusion(tasks.graph))
            instrument = CallbackInstrument(found, nodes, tasks) if found else None
            values = self._execute(tasks, self._threads(num_workers), instrument)
        return _nested(keys, values)

    def _threads(self, asked: int | None) -> int:
        found = _checked(asked) or self._workers or _checked(dask.config.get("num_workers", None))
        return found or len(os.sched_getaffinity(0))

    def _execute(
        self, tasks: TranslatedGraph, workers: int, instrument: CallbackInstrument | None
    ) -> Mapping[Hashable, Any]:
        """Return the values of the results of a graph, by key."""
        has_failed = True
        try:
            if instrument is not None:
                instrument.begin()
            if self._remote is not None:
                values = self._remote.compute(tasks)
            elif self._runner == "processes":
                values = self._pool(workers).compute(tasks, instrument)
            else:
                values = _Computation(tasks, self._runner, workers, instrument).run()
            has_failed = False
        finally:
            if instrument is not None:
                instrument.end(has_failed=has_failed)
        return values

    def _pool(self, workers: int) -> WorkerProcesses:
        with self._lock:
            if self._processes is None:
                self._processes = WorkerProcesses(workers)
            return self._processes


class _Computation:
    """The session of one graph in this process. The first exception of a task ends it."""

    def __init__(
        self, tasks: TranslatedGraph, runner: str, workers: int, instrument: CallbackInstrument | None
    ) -> None:
        self._tasks = tasks
        clock = SystemClock()
        executor = TaskExecutor(tasks, clock, contextvars.copy_context(), self._note_error)
        place: Runner = InlineRunner(executor) if runner == "inline" else ThreadRunner(executor, threads=workers)
        self._error: BaseException | None = None
        self._session = Session(
            tasks.graph,
            ObjectRepository(tasks.results.values()),
            place,
            session=tasks.graph.name,
            directory="",
            clock=clock,
            chains=follower_column(tasks.graph, [1] * len(tasks.graph.templates)),
            instruments=() if instrument is None else (instrument,),
        )
        if instrument is not None:
            instrument.content = self._session.content
            instrument.on_error = self._end

    def run(self) -> Mapping[Hashable, Any]:
        """Execute the graph, and return the values of its results by key."""
        session = self._session
        try:
            session.advance()
        finally:
            session.close()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # otherwise the traceback would refer to itself, and keep the values of this graph
        values = {}
        for key, drop in self._tasks.results.items():
            handle = session.content(drop)
            if not isinstance(handle, ObjectHandle):
                reports = "; ".join(report.text for report in session.reports())
                raise InternalError(f"the value of {key!r} is missing at the end: {reports or 'without a reason'}")
            values[key] = handle.value
        return values

    def _note_error(self, drop: int, error: BaseException) -> None:
        """End the computation because a task has raised. Called in its thread."""
        if self._error is None:
            with suppress(Exception):  # the class of the exception may be anything
                error.add_note(f"raised by {oid(self._tasks.graph, drop)}, task {self._tasks.keys[drop]!r} of dask")
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """End the computation with an exception, unless it has one. Called in any thread."""
        if self._error is None:
            self._error = error
            self._session.freeze()


def _checked(workers: int | None) -> int | None:
    if workers is not None and workers < 1:
        raise BadParameterError(
            f"the number of workers is {workers}", hint="give at least 1, or nothing for one per core"
        )
    return workers


def _nested(keys: Any, values: Mapping[Hashable, Any]) -> Any:
    return tuple(_nested(key, values) for key in keys) if isinstance(keys, list) else values[keys]


def get(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Return the values of keys of a dask graph, computed in threads: `Scheduler.get` with its defaults.

    For ``x.compute(scheduler=dropflow.dask.get)`` and ``dask.config.set(scheduler=dropflow.dask.get)``.
    """
    return Scheduler().get(dsk, keys, **kwargs)


@contextmanager
def scheduler(
    *,
    runner: str | None = None,
    workers: int | None = None,
    to: str | None = None,
    token: str | None = None,
    key: str | os.PathLike[str] | None = None,
    algorithm: str = "breadth_first",
    keep: bool = False,
    progress: bool = True,
    fuse_enabled: bool | None = None,
) -> Iterator[Scheduler]:
    """Have dropflow compute all collections of dask meanwhile, in all threads of this process.

    Parameters
    ----------
    runner, workers, to, token, key, algorithm, keep, progress, fuse_enabled
        As in `Scheduler`.

    Examples
    --------
    >>> import dask.array as da
    >>> import dropflow.dask
    >>> with dropflow.dask.scheduler():
    ...     int(da.ones((4, 4), chunks=2).sum().compute())
    16
    """
    made = Scheduler(
        runner=runner,
        workers=workers,
        to=to,
        token=token,
        key=key,
        algorithm=algorithm,
        keep=keep,
        progress=progress,
        fuse_enabled=fuse_enabled,
    )
    with made, dask.config.set(scheduler=made.get):
        yield made
