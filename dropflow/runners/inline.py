"""Attempts run in the session's own thread, one after another: the simplest runner, and the cheapest."""

from collections import deque
from collections.abc import Mapping, Sequence

from dropflow.engine.api import (
    AttemptResult,
    Executor,
    ResultSink,
    Runner,
    StreamOpened,
    Task,
    not_begun,
    rest_not_begun,
    with_input,
)
from dropflow.errors import WorldError
from dropflow.failure import Failure
from dropflow.stopping import GRACE_SECONDS

__all__ = [
    "InlineRunner",
    "MixedRunner",
    "aborted",
]


# The result of an attempt that was aborted before it began.

_FAILURE = Failure(code=WorldError.code, kind="Aborted", text="the attempt was aborted before it began")


def aborted(drop: int, attempt: int) -> AttemptResult:
    """Return the result of an attempt that was aborted: a session counts one result for each attempt."""
    return AttemptResult(drop, attempt, failure=_FAILURE)


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


# Two runners as one: tasks of templates that only wait run in threads, the others in worker
# processes.


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
