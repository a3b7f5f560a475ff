"""Attempts run in the session's own thread, one after another: the simplest place, and the cheapest."""

from collections.abc import Callable, Sequence

from dropflow.engine.api import Executor, Outcome, Task

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

    def start(self, deliver: Callable[[Sequence[Outcome]], None]) -> None:
        """Remember where outcomes go."""
        self._deliver = deliver

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run `tasks` and deliver their outcomes."""
        outcomes = []
        for task in tasks:
            if self._interrupted:
                break
            self._current = task.drop
            outcomes.append(self._executor.execute(task))
        self._current = -1
        if outcomes and self._deliver is not None:
            self._deliver(outcomes)

    def abort(self, drop: int) -> None:
        """Stop the attempt of `drop` if it is the one that runs."""
        if drop == self._current:
            self._executor.abort(drop)

    def interrupt(self) -> None:
        """Run nothing more, and stop what runs: while it does, its thread cannot read the inbox."""
        self._interrupted = True
        if self._current >= 0:
            self._executor.abort(self._current)

    def close(self) -> None:
        """Close the executor."""
        self._executor.close()
