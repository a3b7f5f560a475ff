"""The scheduler that dask calls: ``get``, and the context in which collections are computed by dropflow."""

import contextvars
import os
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import dask
from dask.core import convert_legacy_graph, flatten

from dropflow.clock import SystemClock
from dropflow.dask.callbacks import CallbackInstrument, active_callbacks
from dropflow.dask.layer_volumes import layer_volumes
from dropflow.dask.object_contents import ObjectHandle, ObjectRepository
from dropflow.dask.task_executor import TaskExecutor
from dropflow.dask.translate import TranslatedGraph, translate
from dropflow.engine.api import Runner
from dropflow.engine.runners.inline import InlineRunner
from dropflow.engine.runners.threads import ThreadRunner
from dropflow.engine.session import Session
from dropflow.errors import BadParameterError, InternalError
from dropflow.graph.chains import follower_column
from dropflow.graph.text_ids import oid

__all__ = ["RUNNERS", "Scheduler", "get", "scheduler"]

RUNNERS = ("threads", "inline")
"""Where tasks run: in threads of this process, or one after another in the thread that calls."""


class Scheduler:
    """Executes dask graphs in this process.

    Parameters
    ----------
    runner : str
        One of `RUNNERS`.
    workers : int, optional
        Number of threads; by default dask's configuration ``num_workers``, or else one per core that this process may
        use.

    Raises
    ------
    BadParameterError
        There is no such runner, or the number of threads is not positive.
    """

    def __init__(self, *, runner: str = "threads", workers: int | None = None) -> None:
        if runner not in RUNNERS:
            raise BadParameterError(
                f"there is no runner {runner!r} for dask graphs", hint=f"one of {', '.join(RUNNERS)}"
            )
        self._runner = runner
        self._workers = _checked(workers)

    def get(self, dsk: Any, keys: Any, *, num_workers: int | None = None, callbacks: Any = None, **kwargs: Any) -> Any:
        """Return the values of keys of a dask graph; this is what dask calls.

        Parameters
        ----------
        dsk : mapping, or object with ``__dask_graph__``
            The graph.
        keys : key, or list of keys and lists
            What is wanted.
        num_workers : int, optional
            Number of threads of this computation.
        callbacks : sequence, optional
            As in dask; by default those that are registered.
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
        wanted = list(flatten([keys]))
        nodes = convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        with active_callbacks(callbacks) as found:
            tasks = translate(nodes, wanted, layer_volumes(dsk))
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
        computation = _Computation(tasks, self._runner, workers, instrument)
        has_failed = True
        try:
            if instrument is not None:
                instrument.begin()
            values = computation.run()
            has_failed = False
        finally:
            if instrument is not None:
                instrument.end(has_failed=has_failed)
        return values


class _Computation:
    """The session of one graph. The first exception of a task ends it."""

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
def scheduler(*, runner: str = "threads", workers: int | None = None) -> Iterator[Scheduler]:
    """Have dropflow compute all collections of dask meanwhile, in all threads of this process.

    Parameters
    ----------
    runner, workers
        As in `Scheduler`.

    Examples
    --------
    >>> import dask.array as da
    >>> import dropflow.dask
    >>> with dropflow.dask.scheduler():
    ...     int(da.ones((4, 4), chunks=2).sum().compute())
    16
    """
    made = Scheduler(runner=runner, workers=workers)
    with dask.config.set(scheduler=made.get):
        yield made
