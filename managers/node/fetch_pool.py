"""Threads that fetch contents from other nodes."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

import msgspec

from dropflow.errors import Interrupted
from managers.links import Sink, TransferResult, WantedContent

__all__ = ["ContentFetcher", "FetchJob", "FetchPool", "JobPool", "JobThreads", "PendingFetch"]


class PendingFetch(msgspec.Struct, frozen=True):
    """A fetch that a job waits for: which content, where its bytes go, and how many seconds to wait for the next.

    A `timeout` of None waits without end.
    """

    wanted: WantedContent
    sink: Sink
    timeout: float | None
    give_up: Callable[[], bool]


FetchJob = Generator[PendingFetch, TransferResult, None]
"""Yields fetches, and continues with the result of each, or with its error. Does not raise other errors."""


class ContentFetcher(Protocol):
    """Carries out fetches, as `managers.links.Links` does."""

    def fetch(
        self, peer: str, wanted: WantedContent, sink: Sink, /, *, timeout: float | None, give_up: Callable[[], bool]
    ) -> TransferResult:
        """Fetch a content and pass it to `sink`."""
        ...


class JobPool(Protocol):
    """Carries out jobs, as `FetchPool` and `JobThreads` do."""

    def submit(self, peer: str, job: FetchJob) -> None:
        """Carry out `job`, which fetches from `peer`."""
        ...


class FetchPool:
    """Carries out jobs that fetch from a peer, a few for each peer at a time, in their order.

    No peer can occupy all threads.

    Parameters
    ----------
    links : ContentFetcher
        Fetches.
    threads : int
        Maximum number of threads; they are started when they are needed.
    per_peer : int
        Maximum number of them for one peer.
    """

    def __init__(self, links: ContentFetcher, threads: int = 16, per_peer: int = 4) -> None:
        self._links = links
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")
        self._per_peer = per_peer
        # Guards the counts below, which sessions and the pool's threads change. a queue would need its own thread
        # that does nothing but count.
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[Callable[[], object]]] = {}
        self._closed = False

    def submit(self, peer: str, job: FetchJob) -> None:
        """Carry out `job`, which fetches from `peer`, when a thread is free; after `close`, never."""
        self.run(peer, partial(_carry_out, self._links, peer, job))

    def run(self, peer: str, call: Callable[[], object]) -> None:
        """Call `call`, which waits for `peer`, when a thread is free; after `close`, never."""
        with self._lock:
            if self._closed:
                return
            if self._busy[peer] >= self._per_peer:
                self._waiting.setdefault(peer, deque()).append(call)
                return
            self._busy[peer] += 1
            self._pool.submit(self._run, peer, call)

    def close(self) -> None:
        """Begin no more jobs; running ones end by themselves. Idempotent."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, peer: str, call: Callable[[], object]) -> None:
        try:
            call()
        finally:
            with self._lock:
                waiting = self._waiting.get(peer)
                if waiting:
                    # Behind the calls for other peers that wait for a thread, so that peers take turns.
                    self._pool.submit(self._run, peer, waiting.popleft())
                else:
                    self._waiting.pop(peer, None)
                    self._busy[peer] -= 1
                    if not self._busy[peer]:
                        del self._busy[peer]


class JobThreads:
    """Carries out each job in a thread of its own.

    Parameters
    ----------
    links : ContentFetcher
        Fetches.
    """

    def __init__(self, links: ContentFetcher) -> None:
        self._links = links

    def submit(self, peer: str, job: FetchJob) -> None:
        """Begin to carry out `job`.

        Raises
        ------
        RuntimeError
            The system has no thread left.
        """
        threading.Thread(target=_carry_out, args=[self._links, peer, job], name=f"fetch-{peer}", daemon=True).start()


def _carry_out(links: ContentFetcher, peer: str, job: FetchJob) -> None:
    try:
        pending = next(job)
        while True:
            try:
                result = links.fetch(
                    peer, pending.wanted, pending.sink, timeout=pending.timeout, give_up=pending.give_up
                )
            except (Exception, Interrupted) as error:  # noqa: BLE001 - also what the sink raises: the job handles it
                pending = job.throw(error)
            else:
                pending = job.send(result)
    except StopIteration:
        pass
