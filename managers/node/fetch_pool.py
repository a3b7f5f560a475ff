"""Threads that fetch contents from other nodes: no peer can keep all of them waiting."""

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["FetchPool"]


class FetchPool:
    """Runs jobs that wait for a peer, a few for each peer at a time, in the order in which they came.

    Parameters
    ----------
    threads : int
        Most threads in all; they are started when they are needed.
    per_peer : int
        Most of them for one peer.
    """

    def __init__(self, threads: int = 16, per_peer: int = 4) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")
        self._per_peer = per_peer
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._closed = False

    def submit(self, peer: str, job: Callable[[], None]) -> None:
        """Run `job`, which waits for `peer` and does not raise, as soon as may be; after `close`, never."""
        with self._lock:
            if self._closed:
                return
            if self._busy[peer] >= self._per_peer:
                self._waiting.setdefault(peer, deque()).append(job)
                return
            self._busy[peer] += 1
            self._pool.submit(self._run, peer, job)

    def close(self) -> None:
        """Begin nothing more; what runs ends by itself. Idempotent."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, peer: str, job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            with self._lock:
                waiting = self._waiting.get(peer)
                if waiting:
                    # Behind the jobs for others that wait for a thread: peers take turns.
                    self._pool.submit(self._run, peer, waiting.popleft())
                else:
                    self._waiting.pop(peer, None)
                    self._busy[peer] -= 1
                    if not self._busy[peer]:
                        del self._busy[peer]
