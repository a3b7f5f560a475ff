"""Attempts run in a pool of threads of this process: for work that waits, and for code that releases the GIL."""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from dropflow.engine.api import Executor, Outcome, Task

__all__ = ["ThreadRunner"]


class ThreadRunner:
    """A fixed number of threads around one queue.

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
        self._dropped: set[int] = set()
        self._running: set[int] = set()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"runner-{number}", daemon=True) for number in range(threads)
        ]
        self._deliver: Callable[[Sequence[Outcome]], None] = _nowhere

    def start(self, deliver: Callable[[Sequence[Outcome]], None]) -> None:
        """Start the threads."""
        self._deliver = deliver
        for thread in self._threads:
            thread.start()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue `tasks`."""
        for task in tasks:
            self._queue.put(task)

    def abort(self, drop: int) -> None:
        """Take `drop` out of the queue, or stop what can be stopped of its attempt."""
        self._dropped.add(drop)
        if drop in self._running:
            self._executor.abort(drop)

    def interrupt(self) -> None:
        """Nothing to do: the session's thread is free to take in its cancel, and aborts follow."""

    def close(self) -> None:
        """Stop the attempts that can be stopped and end the threads; idempotent.

        A thread whose attempt cannot be stopped (Python code that computes) is left behind as a daemon.
        """
        if self._closed:
            return
        self._closed = True
        for drop in tuple(self._running):
            self._executor.abort(drop)
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=1.0)
        self._executor.close()

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            if self._closed:
                return
            if task.drop in self._dropped:
                self._dropped.discard(task.drop)
                continue
            self._running.add(task.drop)
            outcome = self._executor.execute(task)
            self._running.discard(task.drop)
            self._deliver([outcome])


def _nowhere(_: Sequence[Outcome]) -> None:
    """Deliver to nobody: the runner has not been started."""
