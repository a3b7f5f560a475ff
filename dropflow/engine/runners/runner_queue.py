"""The attempts of one session that wait for a worker of a pool."""

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from dropflow.engine.api import AttemptResult, ExecutorSpec, ResultSink, Task
from dropflow.engine.chained_tasks import LONG_SECONDS, largest_needs, members, not_begun, rest_not_begun
from dropflow.engine.runners.aborted import aborted
from dropflow.engine.runners.expected_seconds import ExpectedSeconds
from dropflow.engine.runners.worker_process import needs_own_worker
from dropflow.engine.time_limit import time_limit
from dropflow.failure import Failure
from dropflow.graph.resource_needs import ResourceNeeds, needs_of

__all__ = ["RunnerQueue"]

_ANSWER_SECONDS = 0.05
"""How long to wait for a session that takes a result: it has other things to do, too."""


class RunnerQueue:
    """What the pool's thread has of a runner: its attempts that wait, and where their results go.

    Parameters
    ----------
    number : int
        Of the runner, unique in the pool.
    spec : ExecutorSpec
        What workers build its executor from.
    deliver : ResultSink
        Takes results.
    """

    def __init__(self, number: int, spec: ExecutorSpec, deliver: ResultSink) -> None:
        self.number = number
        self.spec = spec
        self.deliver = deliver
        self.limits = tuple(time_limit(template) for template in spec.templates)
        self._needs = tuple(needs_of(template) for template in spec.templates)
        self.expected = ExpectedSeconds(spec.templates)
        """How long its attempts take."""
        self.pending: deque[Task] = deque()
        self.suspects: deque[Task] = deque()
        """Attempts that wait for a process that no other attempt has used."""
        self._held: list[Task] | None = None
        """Attempts that wait while none may be started; None while they may."""
        self.running: Mapping[int, int] = {}
        """The drops whose attempts workers are at, and the numbers of these; replaced as a whole, for other threads."""
        self.broken: Failure | None = None
        """Why none of its attempts can be run."""
        self.not_before = -math.inf
        """When its attempts may be given to workers: the session may be about to add a more urgent one."""
        self.is_leaving = False
        self.has_left = threading.Event()
        """Set when no worker has an attempt of it any more, after it was closed."""

    def add(self, tasks: Sequence[Task]) -> None:
        """Add attempts."""
        self.not_before = -math.inf
        if self._held is not None and self.broken is None:
            self._held += tasks
            return
        suspects = [task for task in tasks if self.runs_alone(task)]
        self.suspects.extend(suspects)
        self.pending.extend([task for task in tasks if not self.runs_alone(task)] if suspects else tasks)
        if self.pending and any(task.priority for task in (self.pending[0], *tasks)):
            self.pending = deque(sorted(self.pending, key=lambda task: -task.priority))
        if self.broken is not None:
            self.fail_pending(self.broken)

    def put_first(self, task: Task) -> None:
        """Put back an attempt that has not begun, before all others."""
        if self._held is not None:
            self._held.insert(0, task)
            return
        (self.suspects if self.runs_alone(task) else self.pending).appendleft(task)

    def runs_alone(self, task: Task) -> bool:
        """Return whether an attempt waits apart from the others: it must have a process that no other has used."""
        return task.is_suspect

    def hold(self, *, is_held: bool) -> None:
        """Keep the attempts from workers while `is_held`."""
        if is_held and self._held is None:
            self._held = [*self.suspects, *self.pending]
            self.suspects.clear()
            self.pending.clear()
        elif not is_held and self._held is not None:
            tasks, self._held = self._held, None
            self.add(tasks)

    def give_back(self) -> tuple[Task, ...]:
        """Forget all attempts that wait, and return them; those that follow them are answered as not begun."""
        tasks = self._remove_all()
        if rest := rest_not_begun(tasks):
            self.deliver(rest)
        return tasks

    def await_successors(self, seconds: float, now: float) -> None:
        """Give no attempt to a worker until the session has taken the result of one that took so many seconds.

        A successor of it may be more urgent than all that wait. After a short attempt, that is not worth the time.
        """
        if seconds >= LONG_SECONDS and self.pending and (self.pending[0].priority or self.pending[-1].priority):
            self.not_before = now + _ANSWER_SECONDS

    @property
    def is_waiting(self) -> bool:
        """Whether attempts wait."""
        return bool(self.pending or self.suspects)

    def abort(self, drop: int, attempt: int) -> None:
        """Remove and answer an attempt if it waits, with those that follow it."""
        for queue in (self.suspects, self.pending, [] if self._held is None else self._held):
            for position, task in enumerate(queue):
                chain = members(task)
                at = next((at for at, one in enumerate(chain) if (one.drop, one.attempt) == (drop, attempt)), None)
                if at is not None:
                    if at:
                        queue[position] = msgspec.structs.replace(task, then=chain[1:at])
                    else:
                        del queue[position]
                    self.deliver([aborted(drop, attempt), *not_begun(chain[at + 1 :])])
                    return

    def clear(self) -> None:
        """Forget all attempts that wait."""
        self.pending.clear()
        self.suspects.clear()
        if self._held is not None:
            self._held = []

    def _remove_all(self) -> tuple[Task, ...]:
        tasks = (*self.suspects, *self.pending, *(self._held or ()))
        self.clear()
        return tasks

    @property
    def needs_own_worker(self) -> bool:
        """Whether the attempt that waits first is to have a worker to itself."""
        return bool(self.pending) and self._is_alone(self.pending[0])

    def _is_alone(self, task: Task) -> bool:
        return needs_own_worker(task) or not self.needs_of(task).are_plain

    def needs_of(self, task: Task) -> ResourceNeeds:
        """Return what a task takes: what its template declares, or the most that one of a chain does."""
        if not task.then:
            return self._needs[task.template]
        return largest_needs(self._needs[one.template] for one in members(task))

    def take(self, most: int, seconds: float) -> list[Task]:
        """Remove and return the first attempts that wait, at least one.

        They end before one that needs a worker to itself, or that takes long, and after `most`, or when they are
        expected to take so many `seconds` together. A chain counts as all its attempts, and is not divided.
        """
        expected = self.expected.together
        tasks = [self.pending.popleft()]
        count, spent = 1 + len(tasks[0].then), expected(members(tasks[0]))
        while self.pending and count < most and not self._is_alone(self.pending[0]):
            spent += expected(members(self.pending[0]))
            if spent > seconds:
                break
            tasks.append(self.pending.popleft())
            count += 1 + len(tasks[-1].then)
        return tasks

    def fail_pending(self, failure: Failure) -> None:
        """Answer everything that waits with a failure."""
        tasks = self._remove_all()
        results: list[AttemptResult] = []
        for task in tasks:
            results += [AttemptResult(task.drop, task.attempt, failure=failure), *not_begun(task.then)]
        if results:
            self.deliver(results)
