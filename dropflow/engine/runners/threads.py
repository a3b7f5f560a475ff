"""Attempts run in threads of this process: for work that waits, and for code that releases the GIL."""

import threading
from collections.abc import Sequence

from dropflow.clock import SystemClock
from dropflow.engine.api import AttemptResult, Executor, ResultSink, StreamOpened, Task
from dropflow.engine.priority_queue import PriorityQueue
from dropflow.engine.runners.aborted import aborted
from dropflow.engine.runners.capacity import Capacity, memory_of_host
from dropflow.errors import InternalError
from dropflow.exception_text import summary_of
from dropflow.failure import Failure
from dropflow.graph.resource_needs import ResourceNeeds, needs_of
from dropflow.graph.templates import Template
from dropflow.stopping import GRACE_SECONDS

__all__ = ["ThreadRunner"]

_CLOSE_SECONDS = 1.0
"""How long all threads together may take to end."""
_PLAIN = ResourceNeeds()


class ThreadRunner:
    """A fixed number of threads that share one queue.

    The first attempt of the queue begins when the processors and the memory that it declares are free; no other one
    overtakes it.

    Parameters
    ----------
    executor : Executor
        Shared by the threads; closed with the runner.
    threads : int
        How many attempts run at a time.
    templates : sequence of Template
        Those of the session, with what their attempts declare. Without it, each takes one thread and no memory.
    """

    def __init__(self, executor: Executor, *, threads: int, templates: Sequence[Template] = ()) -> None:
        self.window = 4 * threads
        self._executor = executor
        self._capacity = Capacity(threads, memory_of_host())
        self._needs = tuple(self._capacity.admitted(needs_of(template)) for template in templates)
        # Guards the queue, the capacity and what is below. Threads wait at it for an attempt that may begin.
        self._changed = threading.Condition()
        self._queue: PriorityQueue[Task] = PriorityQueue(lambda task: task.priority)
        self._waiting: set[tuple[int, int]] = set()
        self._running: dict[tuple[int, int], tuple[threading.Thread, ResourceNeeds]] = {}
        self._closed = self._is_held = False
        self._clock = SystemClock()
        self._threads = [self._thread() for _ in range(threads)]
        self._deliver: ResultSink = _discard

    def start(self, deliver: ResultSink) -> None:
        """Start the threads."""
        self._deliver = deliver
        self._executor.on_stream_opened = lambda opened: deliver([opened])
        self._executor.on_overdue = self._give_up
        for thread in self._threads:
            thread.start()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue `tasks`."""
        with self._changed:
            self._waiting.update((task.drop, task.attempt) for task in tasks)
            self._queue.extend(tasks)
            self._changed.notify(len(tasks))

    @property
    def busy(self) -> int:
        """How many attempts threads run."""
        return len(self._running)

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Remove an attempt from the queue, and answer it; or stop it if it can be stopped."""
        with self._changed:
            is_waiting = (drop, attempt) in self._waiting
            self._waiting.discard((drop, attempt))
            is_running = (drop, attempt) in self._running
            if is_waiting:
                self._changed.notify_all()  # others may have waited behind it
        if is_running:
            self._executor.abort(drop, attempt, grace)
        elif is_waiting:
            # A thread may come to it only after a long time.
            self._deliver([aborted(drop, attempt)])

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`."""
        with self._changed:
            self._is_held = is_held
            self._changed.notify_all()

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
            self._threads.remove(stuck)
            other = self._thread()
            self._threads.append(other)
            other.start()
        self._deliver([overdue])

    def _work(self) -> None:
        while (task := self._begin()) is not None:
            result = self._run(task)
            with self._changed:
                if self._end(task.drop, task.attempt) is None:
                    return  # it took too long, and another thread has replaced this one
            self._deliver([result])

    def _begin(self) -> Task | None:
        """Wait for an attempt that may begin, and note that it does; return None when the runner is closed."""
        with self._changed:
            while not self._closed:
                task = self._first()
                needs = _PLAIN if task is None or not self._needs else self._needs[task.template]
                if task is None or self._is_held or not self._capacity.fits(needs):
                    self._changed.wait()
                    continue
                self._queue.popleft()
                self._waiting.discard((task.drop, task.attempt))
                self._running[task.drop, task.attempt] = (threading.current_thread(), needs)
                self._capacity.take(needs)
                return task
        return None

    def _first(self) -> Task | None:
        """Return the first attempt of the queue, after removing those that were aborted."""
        while self._queue:
            task = self._queue.first
            if (task.drop, task.attempt) in self._waiting:
                return task
            self._queue.popleft()
        return None

    def _end(self, drop: int, attempt: int) -> threading.Thread | None:
        """Note that an attempt has ended; return its thread, or None if it was replaced."""
        thread, needs = self._running.pop((drop, attempt), (None, _PLAIN))
        if thread is not None:
            self._capacity.free(needs)
            # The thread itself takes the next attempt. If this one took several processors, others can begin, too.
            self._changed.notify(needs.cpus - 1 + bool(needs.memory))
        return thread

    def _run(self, task: Task) -> AttemptResult:
        try:
            return self._executor.execute(task)
        except BaseException as error:  # noqa: BLE001 - the session waits for this result
            failure = Failure.of(InternalError(f"the attempt could not be run: {summary_of(error)}"))
            return AttemptResult(task.drop, task.attempt, failure=failure)


def _discard(_: Sequence[StreamOpened | AttemptResult]) -> None:
    """Stand in for the sink of a runner that has not been started."""
