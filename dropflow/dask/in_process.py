"""Computation of dask graphs in this process, where values are objects."""

import contextvars
from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any

from dropflow.clock import SystemClock
from dropflow.dask.callbacks import CallbackInstrument
from dropflow.dask.object_contents import ObjectHandle, ObjectRepository
from dropflow.dask.printed_text import collecting
from dropflow.dask.task_executor import TaskExecutor
from dropflow.dask.task_failure import add_log
from dropflow.dask.translate import TranslatedGraph
from dropflow.dask.value_memory import ValueMemory, value_of
from dropflow.engine.api import Runner
from dropflow.engine.runners.inline import InlineRunner
from dropflow.engine.runners.threads import ThreadRunner
from dropflow.engine.session import Session
from dropflow.errors import InternalError
from dropflow.graph.chains import follower_column
from dropflow.graph.text_ids import oid
from dropflow.notebook import last_lines

__all__ = ["Computation"]


class Computation:
    """The session of one graph in this process. The first exception of a task ends it."""

    def __init__(
        self,
        tasks: TranslatedGraph,
        runner: str,
        workers: int,
        instrument: CallbackInstrument | None,
        memory: ValueMemory | None,
    ) -> None:
        self._tasks = tasks
        clock = SystemClock()
        executor = TaskExecutor(tasks, clock, contextvars.copy_context(), self._note_error, memory)
        place: Runner = InlineRunner(executor) if runner == "inline" else ThreadRunner(executor, threads=workers)
        self._error: BaseException | None = None
        self._session = Session(
            tasks.graph,
            ObjectRepository(tasks.results.values(), _nothing if memory is None else memory.release),
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
            with collecting():
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
            values[key] = value_of(handle.value)
        return values

    def _note_error(self, drop: int, error: BaseException, printed: str) -> None:
        """End the computation because a task has raised. Called in its thread."""
        if self._error is None:
            with suppress(Exception):  # the class of the exception may be anything
                error.add_note(f"raised by {oid(self._tasks.graph, drop)}, task {self._tasks.keys[drop]!r} of dask")
                add_log(error, last_lines(printed.encode(errors="replace")))
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """End the computation with an exception, unless it has one. Called in any thread."""
        if self._error is None:
            self._error = error
            self._session.freeze()


def _nothing(drop: int) -> None:
    """Do nothing when a value is released."""
