"""Attempts run in the session's own thread, one after another: the simplest place, and the cheapest."""

import threading
from collections.abc import Callable, Sequence

from dropflow.engine.api import Executor, Outcome, Task
from dropflow.errors import CancelledRunError

__all__ = ["InlineRunner"]

_WINDOW = 64
"""Small, so that a cancel and the statistics come through between batches."""


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
        self._deliver: Callable[[Sequence[Outcome]], None] | None = None
        self._current = -1
        self._interrupted = False
        self._thread = 0

    def start(self, deliver: Callable[[Sequence[Outcome]], None]) -> None:
        """Remember where outcomes go."""
        self._deliver = deliver

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run `tasks` and deliver their outcomes."""
        outcomes: list[Outcome] = []
        self._thread = threading.get_ident()
        try:
            for task in tasks:
                if self._interrupted:
                    break
                self._current = task.drop
                outcomes.append(self._executor.execute(task))
            self._current = -1
        except CancelledRunError:
            # Raised by `interrupt` beside an attempt; the session is being cancelled and waits for nothing.
            self._current = -1
        if outcomes and self._deliver is not None:
            self._deliver(outcomes)

    def abort(self, drop: int) -> None:
        """Stop the attempt of `drop` if it is the one that runs."""
        if drop == self._current:
            self._executor.abort(drop)

    def interrupt(self) -> None:
        """Run nothing more, and stop what runs: while it does, its thread cannot read the inbox.

        Raises
        ------
        CancelledRunError
            Called on top of a running attempt, from a signal handler: so even code that only computes stops.
        """
        self._interrupted = True
        if self._current >= 0:
            self._executor.abort(self._current)
            if self._thread == threading.get_ident():
                raise CancelledRunError("the session is cancelled")

    def close(self) -> None:
        """Close the executor."""
        self._executor.close()
