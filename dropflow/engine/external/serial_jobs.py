"""Jobs in a few threads. Those with one key run one after another, in their order."""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["SerialJobs"]


class SerialJobs:
    """Runs jobs.

    Parameters
    ----------
    threads : int
        How many jobs run at a time.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="content")
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}
        self._is_closed = False

    def add(self, key: Hashable, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, after those that were added with the same key; not after `close`."""
        with self._lock:
            if self._is_closed:
                return
            if key in self._waiting:
                self._waiting[key].append(job)
                return
            self._waiting[key] = deque([job])
            self._pool.submit(self._run, key)

    def close(self) -> None:
        """Forget the jobs that wait, and wait for those that run."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
        self._pool.shutdown(cancel_futures=True)

    def _run(self, key: Hashable) -> None:
        """Run the first job of a key, and have the next one run."""
        with self._lock:
            jobs = self._waiting.get(key)
            job = jobs.popleft() if jobs else None
        try:
            if job is not None:
                job()
        finally:
            with self._lock:
                if self._waiting.get(key):
                    self._pool.submit(self._run, key)
                else:
                    self._waiting.pop(key, None)
