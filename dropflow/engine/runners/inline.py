"""Attempts run in the session's own thread, one after another: the simplest runner, and the cheapest."""

from collections import deque
from collections.abc import Mapping, Sequence

from dropflow.engine.api import AttemptResult, Executor, ResultSink, StreamOpened, Task
from dropflow.engine.chained_tasks import not_begun, rest_not_begun, with_input
from dropflow.engine.runners.aborted import aborted
from dropflow.stopping import GRACE_SECONDS

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
        self._is_interrupted = self._is_held = False
        self._kept: deque[Task] = deque()

    def start(self, deliver: ResultSink) -> None:
        """Remember where results go.

        Streams are not passed on: an attempt that could read one would run after the attempt that writes it.
        """
        self._deliver = deliver

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run `tasks` and deliver their results."""
        results: list[StreamOpened | AttemptResult] = []
        self._kept += tasks
        try:
            while self._kept and (self._is_interrupted or not self._is_held):
                results += self._run(self._kept.popleft())
        finally:
            self._current = _NOTHING
        if results and self._deliver is not None:
            self._deliver(results)

    def _run(self, task: Task) -> list[AttemptResult]:
        """Return the results of an attempt and of those that follow it."""
        results = [self._execute(task)]
        for done, follower in enumerate(task.then):
            following = None if self._is_held else with_input(follower, results[-1])
            if following is None:
                return results + not_begun(task.then[done:])
            results.append(self._execute(following))
        return results

    def _execute(self, task: Task) -> AttemptResult:
        if self._is_interrupted:
            return aborted(task.drop, task.attempt)
        self._current = task.drop, task.attempt
        return self._executor.execute(task)

    @property
    def running(self) -> Mapping[int, int]:
        """The drop whose attempt runs, if there is one."""
        current = self._current
        return {} if current == _NOTHING else {current[0]: 0}

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Stop an attempt if it is the one that runs."""
        if (drop, attempt) == self._current:
            self._executor.abort(drop, attempt, grace)

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`. Those that were submitted before run in the next `submit`."""
        self._is_held = is_held

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that wait and have not begun. They are not answered; those that follow them are."""
        tasks = tuple(self._kept)
        self._kept.clear()
        rest = rest_not_begun(tasks)
        if rest and self._deliver is not None:
            self._deliver(rest)
        return tasks

    def interrupt(self) -> None:
        """Stop the attempt that runs, and run no others: meanwhile the session cannot read its inbox.

        May be called from any thread, and from a signal handler. Code that waits in the system or computes outside of
        Python stops when its call returns, or when a signal ends that.
        """
        self._is_interrupted = True
        current = self._current
        if current != _NOTHING:
            self._executor.abort(*current)

    def close(self) -> None:
        """Close the executor."""
        self._executor.close()
