"""Runs attempts in this process: in the session's own thread, which costs least, or in a pool of threads."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dropflow.clock import SystemClock
from dropflow.errors import InternalError, WorldError
from dropflow.execution.chains import LONG_SECONDS, largest_needs, members, not_begun, rest_not_begun, with_input
from dropflow.execution.interfaces import Executor, Runner
from dropflow.execution.priority_queue import ANSWER_SECONDS, PriorityQueue, should_await_successors
from dropflow.execution.tasks import AttemptResult, ResultSink, StreamOpened, Task, discard_results
from dropflow.failure import Failure, summary_of
from dropflow.graph.templates import ResourceNeeds, Template, needs_of
from dropflow.host.memory import host_memory
from dropflow.runners.capacity import Capacity
from dropflow.stopping import GRACE_SECONDS

_FAILURE = Failure(code=WorldError.code, kind="Aborted", text="the attempt was aborted before it began")
_NOTHING = (-1, -1)
_WINDOW = 64
"""Attempts in a batch. Small, so that the session processes a cancel and publishes statistics between batches."""
_BATCH_SECONDS = 1.0
"""Seconds after which a batch ends early. The session records results between batches, so a crash loses no more."""
_CLOSE_SECONDS = 1.0
"""Seconds that all threads together may take to end."""
_PLAIN = ResourceNeeds()

# The result of an attempt that was aborted before it began.


def aborted(drop: int, attempt: int) -> AttemptResult:
    """Return the result of an attempt that was aborted: a session counts one result for each attempt."""
    return AttemptResult(drop, attempt, failure=_FAILURE)


class InlineRunner:
    """Runs each task as it is submitted.

    Parameters
    ----------
    executor : Executor
        Runs one attempt; closed with the runner.
    """

    def __init__(self, executor: Executor) -> None:
        self.window = _WINDOW
        self._executor = executor
        self._clock = SystemClock()
        self._ends = 0.0
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
        """Run `tasks` and deliver their results. When they have taken long, the rest is answered as not begun."""
        results: list[StreamOpened | AttemptResult] = []
        self._kept += tasks
        self._ends = self._clock.monotonic() + _BATCH_SECONDS
        try:
            while self._kept and (self._is_interrupted or not self._is_held):
                task = self._kept.popleft()
                results += not_begun(members(task)) if results and self._is_late else self._run(task)
        finally:
            self._current = _NOTHING
        if results:
            self.window = 1 if self._is_late else min(2 * self.window, _WINDOW)
        if results and self._deliver is not None:
            self._deliver(results)

    def _run(self, task: Task) -> list[AttemptResult]:
        """Return the results of an attempt and of its followers."""
        results = [self._execute(task)]
        for done, follower in enumerate(task.then):
            following = None if self._is_held or self._is_late else with_input(follower, results[-1])
            if following is None:
                return results + not_begun(task.then[done:])
            results.append(self._execute(following))
        return results

    @property
    def _is_late(self) -> bool:
        return self._clock.monotonic() >= self._ends

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
        """Stop an attempt if it runs now, or answer it if it is held."""
        if (drop, attempt) == self._current:
            self._executor.abort(drop, attempt, grace)
        held = next((task for task in self._kept if (task.drop, task.attempt) == (drop, attempt)), None)
        if held is not None and self._deliver is not None:
            self._kept.remove(held)
            self._deliver([aborted(drop, attempt), *not_begun(held.then)])

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`. Attempts that were submitted before run in the next `submit`."""
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


# Two runners as one: tasks of templates that only wait run in threads, the others in worker processes.


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
        """Return the attempts that wait in either runner."""
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


class ThreadRunner:
    """A fixed number of threads that share one queue.

    The first attempt of the queue begins when the processors and the memory that it declares are free. No other attempt
    overtakes it.

    Parameters
    ----------
    executor : Executor
        Shared by the threads; closed with the runner.
    threads : int
        Number of attempts that run at a time.
    templates : sequence of Template
        The templates of the session, with the resources of their attempts. If it is empty, each attempt takes one
        thread and no memory.
    """

    def __init__(self, executor: Executor, *, threads: int, templates: Sequence[Template] = ()) -> None:
        self.window = 4 * threads
        self._executor = executor
        self._capacity = Capacity(threads, host_memory().limit.bytes)
        self._needs = tuple(self._capacity.admitted(needs_of(template)) for template in templates)
        # Guards the queue, the capacity and the attributes below. Threads wait here for an attempt that may begin.
        self._changed = threading.Condition()
        self._queue: PriorityQueue[Task] = PriorityQueue(lambda task: task.priority)
        self._waiting: set[tuple[int, int]] = set()
        self._running: dict[tuple[int, int], _ThreadAttempt] = {}
        self._closed = self._is_held = False
        self._answers = 0
        """Number of calls of `submit`, also with no attempts."""
        self._clock = SystemClock()
        self._threads = [self._thread() for _ in range(threads)]
        self._deliver: ResultSink = discard_results

    def start(self, deliver: ResultSink) -> None:
        """Start the threads."""
        self._deliver = deliver
        self._executor.on_stream_opened = lambda opened: deliver([opened])
        self._executor.on_overdue = self._give_up
        for thread in self._threads:
            thread.start()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue `tasks`."""
        waiting = [(member.drop, member.attempt) for task in tasks for member in members(task)]
        with self._changed:
            self._answers += 1
            if not tasks:
                self._changed.notify_all()
            self._waiting.update(waiting)
            self._queue.extend(tasks)
            self._changed.notify(len(tasks))

    @property
    def running(self) -> Mapping[int, int]:
        """The drops whose attempts threads run."""
        return {drop: 0 for drop, _ in tuple(self._running)}

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Remove an attempt from the queue, and answer it; or stop it if it can be stopped."""
        with self._changed:
            is_waiting = (drop, attempt) in self._waiting
            self._waiting.discard((drop, attempt))
            is_running = (drop, attempt) in self._running
            # Its followers are answered now, too, unless it is part of a chain that has begun.
            first = next((task for task in self._queue if (task.drop, task.attempt) == (drop, attempt)), None)
            rest = self._leave(first.then) if is_waiting and first is not None else []
            if is_waiting:
                self._changed.notify_all()  # others may have waited behind it
        if is_running:
            self._executor.abort(drop, attempt, grace)
        elif is_waiting:
            # A thread may come to it only after a long time.
            self._deliver([aborted(drop, attempt), *rest])

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`."""
        with self._changed:
            self._is_held = is_held
            self._changed.notify_all()

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that wait and have not begun. They are not answered; those that follow them are."""
        with self._changed:
            tasks = [task for task in self._queue if (task.drop, task.attempt) in self._waiting]
            self._queue.clear()
            self._waiting.difference_update((task.drop, task.attempt) for task in tasks)
            rest = self._leave([follower for task in tasks for follower in task.then])
        if rest:
            self._deliver(rest)
        return tasks

    def interrupt(self) -> None:
        """Do nothing: the session's thread is free to process its cancel, and aborts follow."""

    def close(self) -> None:
        """Stop the attempts that can be stopped and end the threads; idempotent.

        A thread whose attempt cannot be stopped (it waits or computes outside of Python) is left behind as a daemon.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True  # from now on no attempt begins
            running, threads = tuple(self._running), tuple(self._threads)
            self._changed.notify_all()
        for drop, attempt in running:
            self._executor.abort(drop, attempt)
        deadline = self._clock.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - self._clock.monotonic()))
        self._executor.close()

    def _thread(self) -> threading.Thread:
        return threading.Thread(target=self._work, name="runner", daemon=True)

    def _give_up(self, overdue: AttemptResult) -> None:
        """Deliver the result of an attempt that cannot be stopped, and replace its thread."""
        with self._changed:
            stuck = self._end(overdue.drop, overdue.attempt)
            if stuck is None or self._closed:
                return
            rest = self._leave(stuck.following)
            self._threads.remove(stuck.thread)
            other = self._thread()
            self._threads.append(other)
            other.start()
        self._deliver([overdue, *rest])

    def _work(self) -> None:
        task = self._begin()
        while task is not None:
            result = self._run(task)
            with self._changed:
                answers = self._answers
                ended = self._running.pop((task.drop, task.attempt), None)
                if ended is None:
                    return  # it took too long, and another thread has replaced this one
                task, rest = self._next(ended, result)
            self._deliver([result, *rest])
            if task is None:
                self._await_successors(result.seconds, answers)
            task = task or self._begin()

    def _await_successors(self, seconds: float, answers: int) -> None:
        """Wait until the session has taken the result of an attempt that took `seconds`."""
        with self._changed:
            waiting = () if (first := self._first()) is None else (first.priority, self._queue.least)
            if should_await_successors(seconds, *waiting):
                self._changed.wait_for(lambda: self._answers > answers or self._closed, ANSWER_SECONDS)

    def _next(self, ended: "_ThreadAttempt", result: AttemptResult) -> tuple[Task | None, list[AttemptResult]]:
        """Return the next attempt of a chain, which begins; or None, and the answers for the rest of the chain."""
        following = ended.following
        if following and not self._closed and not self._is_held and not self._should_yield(ended, following[0]):
            key = (following[0].drop, following[0].attempt)
            task = with_input(following[0], result) if key in self._waiting else None
            if task is not None:
                self._waiting.discard(key)
                self._running[key] = ended._replace(following=following[1:])
                return task, []
        self._free(ended)
        return None, self._leave(following)

    def _should_yield(self, running: "_ThreadAttempt", following: Task) -> bool:
        """Return whether a chain of long attempts should end, because an attempt of greater priority waits."""
        if self._clock.monotonic() - running.since < LONG_SECONDS:
            return False
        first = self._first()
        return first is not None and first.priority > following.priority

    def _leave(self, tasks: Sequence[Task]) -> list[AttemptResult]:
        """Return the answers for attempts of a chain that are not begun. Aborted attempts were answered before."""
        left = [task for task in tasks if (task.drop, task.attempt) in self._waiting]
        self._waiting.difference_update((task.drop, task.attempt) for task in left)
        return not_begun(left)

    def _begin(self) -> Task | None:
        """Wait for an attempt that may begin, and take its resources; return None when the runner is closed."""
        with self._changed:
            while not self._closed:
                task = self._first()
                needs = _PLAIN if task is None or not self._needs else self._needs_of(task)
                if task is None or self._is_held or not self._capacity.fits(needs):
                    self._changed.wait()
                    continue
                self._queue.popleft()
                self._waiting.discard((task.drop, task.attempt))
                running = _ThreadAttempt(threading.current_thread(), needs, task.then, self._clock.monotonic())
                self._running[task.drop, task.attempt] = running
                self._capacity.take(needs)
                if not needs.are_plain:
                    self._changed.notify_all()  # others may have waited behind it, and fit beside it
                return task
        return None

    def _needs_of(self, task: Task) -> ResourceNeeds:
        if not task.then:
            needs = self._needs[task.template]
            return needs._replace(memory=min(task.memory, self._capacity.memory)) if task.memory else needs
        return largest_needs(self._needs[member.template] for member in members(task))

    def _first(self) -> Task | None:
        """Return the first attempt of the queue, after removing those that were aborted."""
        while self._queue:
            task = self._queue.first
            if (task.drop, task.attempt) in self._waiting:
                return task
            self._queue.popleft()
        return None

    def _end(self, drop: int, attempt: int) -> "_ThreadAttempt | None":
        """Note that an attempt has ended; return its record, or None if its thread was replaced."""
        ended = self._running.pop((drop, attempt), None)
        if ended is not None:
            self._free(ended)
        return ended

    def _free(self, ended: "_ThreadAttempt") -> None:
        """Free the resources of an attempt or a chain."""
        self._capacity.free(ended.needs)
        # The thread itself takes the next attempt. If several processors are free now, other attempts can begin, too.
        self._changed.notify(ended.needs.cpus - 1 + bool(ended.needs.memory))

    def _run(self, task: Task) -> AttemptResult:
        try:
            return self._executor.execute(task)
        except BaseException as error:  # noqa: BLE001 - the session waits for this result
            failure = Failure.of(InternalError(f"the attempt could not be run: {summary_of(error)}"))
            return AttemptResult(task.drop, task.attempt, failure=failure)


class _ThreadAttempt(NamedTuple):
    """An attempt that runs: its thread, its resources, its followers, and when its chain began."""

    thread: threading.Thread
    needs: ResourceNeeds
    following: tuple[Task, ...]
    since: float
