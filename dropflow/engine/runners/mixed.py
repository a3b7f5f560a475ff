"""Two places in one: tasks of templates that wait go to threads, the others to worker processes."""

from collections.abc import Sequence

from dropflow.engine.api import ResultSink, Runner, Task

__all__ = ["MixedRunner"]


class MixedRunner:
    """Routes tasks by template.

    Parameters
    ----------
    waiting, computing : Runner
        The two places.
    waits : sequence of bool
        By template, whether its tasks go to `waiting`.
    """

    def __init__(self, *, waiting: Runner, computing: Runner, waits: Sequence[bool]) -> None:
        self._waiting = waiting
        self._computing = computing
        self._waits = tuple(waits)
        self.window = waiting.window + computing.window

    def start(self, deliver: ResultSink) -> None:
        """Start both places."""
        self._waiting.start(deliver)
        self._computing.start(deliver)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Send each task to its place."""
        waiting = [task for task in tasks if self._waits[task.template]]
        if waiting:
            self._waiting.submit(waiting)
        if len(waiting) < len(tasks):
            self._computing.submit([task for task in tasks if not self._waits[task.template]])

    @property
    def busy(self) -> int:
        """Attempts that run in either place."""
        return self._waiting.busy + self._computing.busy

    def abort(self, drop: int, attempt: int) -> None:
        """Stop an attempt, wherever it is."""
        self._waiting.abort(drop, attempt)
        self._computing.abort(drop, attempt)

    def interrupt(self) -> None:
        """Pass it on."""
        self._waiting.interrupt()
        self._computing.interrupt()

    def close(self) -> None:
        """Close both, the second even if the first fails."""
        try:
            self._waiting.close()
        finally:
            self._computing.close()
