"""Two runners as one: tasks of templates that only wait run in threads, the others in worker processes."""

from collections.abc import Mapping, Sequence

from dropflow.engine.api import ResultSink, Runner, Task
from dropflow.stopping import GRACE_SECONDS

__all__ = ["MixedRunner"]


class MixedRunner:
    """Routes tasks by template.

    Parameters
    ----------
    waiting, computing : Runner
        The two runners.
    waits : sequence of bool
        By template, whether its tasks run in `waiting`.
    """

    def __init__(self, *, waiting: Runner, computing: Runner, waits: Sequence[bool]) -> None:
        self._waiting = waiting
        self._computing = computing
        self._waits = tuple(waits)
        self.window = waiting.window + computing.window

    def start(self, deliver: ResultSink) -> None:
        """Start both runners."""
        self._waiting.start(deliver)
        self._computing.start(deliver)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Submit each task to its runner."""
        waiting = [task for task in tasks if self._waits[task.template]]
        if waiting:
            self._waiting.submit(waiting)
        if len(waiting) < len(tasks) or not tasks:
            self._computing.submit([task for task in tasks if not self._waits[task.template]])

    @property
    def running(self) -> Mapping[int, int]:
        """The drops whose attempts run in either runner."""
        return {**self._waiting.running, **self._computing.running}

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Stop an attempt in either runner."""
        self._waiting.abort(drop, attempt, grace)
        self._computing.abort(drop, attempt, grace)

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts in either runner while `is_held`."""
        self._waiting.hold(is_held=is_held)
        self._computing.hold(is_held=is_held)

    def give_back(self) -> Sequence[Task]:
        """Return what waits in either runner."""
        return (*self._waiting.give_back(), *self._computing.give_back())

    def interrupt(self) -> None:
        """Interrupt both runners."""
        self._waiting.interrupt()
        self._computing.interrupt()

    def close(self) -> None:
        """Close both, the second even if the first fails."""
        try:
            self._waiting.close()
        finally:
            self._computing.close()
