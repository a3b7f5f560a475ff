"""Attempts run in threads of this process: for work that waits, and for code that releases the GIL."""

import threading
from collections.abc import Sequence
from queue import SimpleQueue

from dropflow.clock import SystemClock
from dropflow.engine.api import AttemptResult, Executor, ResultSink, StreamOpened, Task
from dropflow.engine.runners.aborted import aborted
from dropflow.errors import InternalError
from dropflow.exception_text import summary_of
from dropflow.failure import Failure
from dropflow.stopping import GRACE_SECONDS

__all__ = ["ThreadRunner"]

_CLOSE_SECONDS = 1.0
"""How long all threads together may take to end."""


class ThreadRunner:
    """A fixed number of threads that share one queue.

    Parameters
    ----------
    executor : Executor
        Shared by the threads; closed with the runner.
    threads : int
        How many attempts run at a time.
    """

    def __init__(self, executor: Executor, *, threads: int) -> None:
        self.window = 4 * threads
        self._executor = executor
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: set[tuple[int, int]] = set()
        self._running: dict[tuple[int, int], threading.Thread] = {}
        self._closed = False
        self._may_start = threading.Event()
        self._may_start.set()
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
        with self._lock:
            self._waiting.update((task.drop, task.attempt) for task in tasks)
        for task in tasks:
            self._queue.put(task)

    @property
    def busy(self) -> int:
        """How many attempts threads run."""
        return len(self._running)

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Remove an attempt from the queue, and answer it; or stop it if it can be stopped."""
        with self._lock:
            is_waiting = (drop, attempt) in self._waiting
            self._waiting.discard((drop, attempt))
            is_running = (drop, attempt) in self._running
        if is_running:
            self._executor.abort(drop, attempt, grace)
        elif is_waiting:
            # A thread may come to it only after a long time.
            self._deliver([aborted(drop, attempt)])

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`."""
        if is_held:
            self._may_start.clear()
        else:
            self._may_start.set()

    def interrupt(self) -> None:
        """Do nothing: the session's thread is free to process its cancel, and aborts follow."""

    def close(self) -> None:
        """Stop the attempts that can be stopped and end the threads; idempotent.

        A thread whose attempt cannot be stopped (it waits or computes outside of Python) is left behind as a daemon.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True  # from now on no attempt begins
            self._may_start.set()
            running, threads = tuple(self._running), tuple(self._threads)
        for drop, attempt in running:
            self._executor.abort(drop, attempt)
        for _ in threads:
            self._queue.put(None)
        deadline = self._clock.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - self._clock.monotonic()))
        self._executor.close()

    def _thread(self) -> threading.Thread:
        return threading.Thread(target=self._work, name="runner", daemon=True)

    def _give_up(self, overdue: AttemptResult) -> None:
        """Deliver the result of an attempt that cannot be stopped, and replace its thread."""
        with self._lock:
            stuck = self._running.pop((overdue.drop, overdue.attempt), None)
            if stuck is None or self._closed:
                return
            self._threads.remove(stuck)
            other = self._thread()
            self._threads.append(other)
            other.start()
        self._deliver([overdue])

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            key = (task.drop, task.attempt)
            self._may_start.wait()
            with self._lock:
                if self._closed:
                    return
                is_wanted = key in self._waiting
                self._waiting.discard(key)
                if is_wanted:
                    self._running[key] = threading.current_thread()
            if is_wanted:
                result = self._run(task)
                with self._lock:
                    if self._running.pop(key, None) is None:
                        return  # it took too long, and another thread has replaced this one
                self._deliver([result])

    def _run(self, task: Task) -> AttemptResult:
        try:
            return self._executor.execute(task)
        except BaseException as error:  # noqa: BLE001 - the session waits for this result
            failure = Failure.of(InternalError(f"the attempt could not be run: {summary_of(error)}"))
            return AttemptResult(task.drop, task.attempt, failure=failure)


def _discard(_: Sequence[StreamOpened | AttemptResult]) -> None:
    """Stand in for the sink of a runner that has not been started."""
