"""A runner whose attempts take virtual time: no thread, no process, no waiting."""

from collections import deque
from collections.abc import Callable, Sequence

from dropflow.clock import Clock
from dropflow.engine.api import AttemptResult, Handle, ResultSink, Task
from dropflow.engine.runners.aborted import aborted
from dropflow.failure import Failure

__all__ = ["SimulatedRunner"]

_EMPTY = Handle(kind="null")


class SimulatedRunner:
    """Implements `dropflow.engine.api.Runner` for a session that is stepped in one thread.

    Parameters
    ----------
    clock : Clock
        Virtual time.
    call_at : callable
        Calls a function at a time of `clock.monotonic()`, in the thread that steps the session.
    duration : callable
        Returns the seconds that an attempt takes.
    failure : callable, optional
        Returns why an attempt of a drop fails, or None if it succeeds.
    content : callable, optional
        Returns the content that a task writes to one of its outputs, by the row of the output; empty by default.
    workers : int
        How many attempts run at a time; others wait in the order in which they were submitted.
    """

    def __init__(
        self,
        clock: Clock,
        call_at: Callable[[float, Callable[[], None]], object],
        *,
        duration: Callable[[Task], float] = lambda _: 1.0,
        failure: Callable[[int, int], Failure | None] = lambda _drop, _attempt: None,
        content: Callable[[Task, int], Handle] = lambda _task, _drop: _EMPTY,
        workers: int = 4,
    ) -> None:
        self.window = 2 * workers
        self._clock = clock
        self._call_at = call_at
        self._duration = duration
        self._failure = failure
        self._content = content
        self._workers = workers
        self._waiting: deque[Task] = deque()
        self._running: dict[tuple[int, int], Task] = {}
        self._deliver: ResultSink = lambda _: None

    @property
    def busy(self) -> int:
        """How many attempts run."""
        return len(self._running)

    def start(self, deliver: ResultSink) -> None:
        """Remember where results go."""
        self._deliver = deliver

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue attempts, and begin as many as there are workers."""
        self._waiting += tasks
        self._begin()

    def abort(self, drop: int, attempt: int) -> None:
        """End an attempt now; it is answered as one that was aborted."""
        task = self._running.pop((drop, attempt), None)
        if task is None:
            task = next((task for task in self._waiting if (task.drop, task.attempt) == (drop, attempt)), None)
            if task is None:
                return
            self._waiting.remove(task)
        self._deliver([aborted(task)])
        self._begin()

    def interrupt(self) -> None:
        """Do nothing: the session is stepped by its driver, and aborts follow."""

    def close(self) -> None:
        """Forget all attempts."""
        self._waiting.clear()
        self._running.clear()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._workers:
            task = self._waiting.popleft()
            self._running[task.drop, task.attempt] = task
            self._call_at(self._clock.monotonic() + self._duration(task), lambda task=task: self._end(task))  # type: ignore[misc]

    def _end(self, task: Task) -> None:
        # An attempt that was aborted, or whose session is over, does not run any more.
        if self._running.pop((task.drop, task.attempt), None) is None:
            return
        failure = self._failure(task.drop, task.attempt)
        written = [output.drop for output in task.outputs] if task.outputs or task.inputs else [task.drop]
        handles = {} if failure is not None else {drop: self._content(task, drop) for drop in written}
        self._deliver([AttemptResult(task.drop, task.attempt, handles, failure=failure)])
        self._begin()
