"""Attempts run in the session's own thread, one after another: the simplest runner, and the cheapest."""

import threading
from collections.abc import Sequence

from dropflow.engine.api import AttemptResult, Executor, ResultSink, StreamOpened, Task
from dropflow.errors import CancelledRunError

__all__ = ["InlineRunner"]

_NOTHING = (-1, -1)
_WINDOW = 64
"""Small, so that the session processes a cancel and publishes statistics between batches."""


class InlineRunner:
    """Runs each task as it is submitted.

    Parameters
    ----------
    executor : Executor
        Runs one attempt; closed with the runner.
    """

    window = _WINDOW

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._deliver: ResultSink | None = None
        self._current = _NOTHING
        self._interrupted = False
        self._thread = 0

    def start(self, deliver: ResultSink) -> None:
        """Remember where results go.

        Streams are not passed on: an attempt that could read one would run after the attempt that writes it.
        """
        self._deliver = deliver

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run `tasks` and deliver their results."""
        results: list[StreamOpened | AttemptResult] = []
        self._thread = threading.get_ident()
        try:
            for task in tasks:
                if self._interrupted:
                    break
                self._current = task.drop, task.attempt
                results.append(self._executor.execute(task))
            self._current = _NOTHING
        except CancelledRunError:
            # Raised by `interrupt` between attempts: the session is being cancelled and needs no result.
            self._current = _NOTHING
        if results and self._deliver is not None:
            self._deliver(results)

    @property
    def busy(self) -> int:
        """One while an attempt runs."""
        return int(self._current != _NOTHING)

    def abort(self, drop: int, attempt: int) -> None:
        """Stop an attempt if it is the one that runs."""
        if (drop, attempt) == self._current:
            self._executor.abort(drop, attempt)

    def interrupt(self) -> None:
        """Stop the attempt that runs, and run no others: meanwhile the session cannot read its inbox.

        Raises
        ------
        CancelledRunError
            Called from a signal handler during an attempt, in its thread: this stops code that only computes, too.
        """
        self._interrupted = True
        if self._current != _NOTHING:
            self._executor.abort(*self._current)
            if self._thread == threading.get_ident():
                raise CancelledRunError("the session is cancelled")

    def close(self) -> None:
        """Close the executor."""
        self._executor.close()
