"""Threads that fetch contents from other nodes, and counts of the contents that a session has received."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from dropflow.data.storage_errors import storage_errors
from dropflow.errors import Interrupted
from dropflow.times.octets import RECEIVED_FILE, NodeReceipts, PeerReceipts
from managers.links import Sink, TransferResult, WantedContent

_T = TypeVar("_T")
_MANY_RECEIPTS = 256
"""Counts of single jobs, above which those of jobs that are done are added up."""


class PendingFetch(msgspec.Struct, frozen=True):
    """A fetch that a job waits for: the content, the receiver of its bytes, and the timeout for the next bytes.

    The `timeout` is in seconds; None waits without end.
    """

    wanted: WantedContent
    sink: Sink
    timeout: float | None
    give_up: Callable[[], bool]


FetchJob = Generator[PendingFetch, TransferResult, None]
"""Yields fetches, and continues with the result or the error of each. Raises no other errors."""


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
        Maximum number of threads for one peer.
    """

    def __init__(self, links: ContentFetcher, threads: int = 16, per_peer: int = 4) -> None:
        self._links = links
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")
        self._per_peer = per_peer
        # Guards the counts below, which sessions and the pool's threads change. A queue would need its own thread that
        # does nothing but count.
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[Callable[[], object]]] = {}
        self._closed = False
        self._pool.submit(bool)  # begins the first thread, so that there is one if the system refuses others later

    def submit(self, peer: str, job: FetchJob) -> None:
        """Carry out `job`, which fetches from `peer`, when a thread is free; do nothing after `close`."""
        self.run(peer, partial(_carry_out, self._links, peer, job))

    def run(self, peer: str, call: Callable[[], object]) -> None:
        """Call `call`, which waits for `peer`, when a thread is free; do nothing after `close`."""
        with self._lock:
            if self._closed:
                return
            if self._busy[peer] >= self._per_peer:
                self._waiting.setdefault(peer, deque()).append(call)
                return
            self._busy[peer] += 1
            self._submit(peer, call)

    def close(self) -> None:
        """Begin no more jobs; running ones end by themselves. Idempotent."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, peer: str, call: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the system has no thread left: the call is in the queue of those that are there
            self._pool.submit(self._run, peer, call)

    def _run(self, peer: str, call: Callable[[], object]) -> None:
        try:
            call()
        finally:
            with self._lock:
                waiting = self._waiting.get(peer)
                if waiting:
                    # Behind the calls for other peers that wait for a thread, so that peers take turns.
                    self._submit(peer, waiting.popleft())
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


# Counts of contents from other nodes: in messages, fetched, and as streams.


def write_receipts(directory: Path, receipts: NodeReceipts) -> None:
    """Write the counts of contents from other nodes to the session directory, if there are any.

    Raises
    ------
    StorageError
        The directory cannot be written.
    """
    if receipts.received:
        with storage_errors("write", directory / RECEIVED_FILE):
            (directory / RECEIVED_FILE).write_bytes(msgspec.json.encode(receipts))


class _Receipt:
    """Counts of the contents that one job has received from a peer so far. Written by the thread of the job only."""

    __slots__ = ("contents", "is_done", "peer", "shared_contents", "shared_size", "size")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.contents = self.size = self.shared_contents = self.shared_size = 0
        self.is_done = False


class Receipts:
    """Counts of the contents that one session has received, by peer. All but `receiving` is for the session's thread.

    Parameters
    ----------
    before : NodeReceipts
        The counts when the session was stopped.
    """

    def __init__(self, before: NodeReceipts) -> None:
        self._totals = {total.node: total for total in before.received}
        self._receipts: deque[_Receipt] = deque()

    def receiving(
        self, peer: str, size: int | None, fetch: Generator[PendingFetch, TransferResult, _T]
    ) -> Generator[PendingFetch, TransferResult, _T]:
        """Carry out `fetch`, and count the bytes as they arrive, in any thread.

        If a content of `size` bytes comes without a transfer, it was read in place; None if that is impossible.
        """
        receipt = _Receipt(peer)
        self._receipts.append(receipt)
        has_transfer = False
        try:
            pending = next(fetch)
            while True:
                has_transfer = True
                try:
                    result = yield _counted(pending, receipt)
                except BaseException as error:  # noqa: BLE001 - the fetch handles it
                    pending = fetch.throw(error)
                else:
                    receipt.contents += 1
                    pending = fetch.send(result)
        except StopIteration as end:
            if not has_transfer and size is not None:
                receipt.shared_contents, receipt.shared_size = 1, size
            value: _T = end.value
            return value
        finally:
            fetch.close()
            receipt.is_done = True

    def arrived(self, peer: str, size: int) -> None:
        """Count a content that came in a message."""
        before = self._totals.get(peer) or PeerReceipts(node=peer)
        self._totals[peer] = msgspec.structs.replace(before, contents=before.contents + 1, size=before.size + size)

    def fold(self) -> None:
        """Replace the counts of jobs that are done by their sums, if there are many."""
        if len(self._receipts) > _MANY_RECEIPTS:
            self._fold()

    def read(self, node: str) -> NodeReceipts:
        """Return the counts so far for `node`, the name of this node."""
        self._fold()
        totals = dict(self._totals)
        for receipt in tuple(self._receipts):
            _add(totals, receipt)
        return NodeReceipts(node=node, received=tuple(total for _, total in sorted(totals.items())))

    def _fold(self) -> None:
        for _ in range(len(self._receipts)):
            receipt = self._receipts.popleft()
            if receipt.is_done:
                _add(self._totals, receipt)
            else:
                self._receipts.append(receipt)


def _counted(pending: PendingFetch, receipt: _Receipt) -> PendingFetch:
    """Return a fetch whose bytes are counted."""
    sink = pending.sink

    def count(offset: int, data: memoryview) -> None:
        receipt.size += len(data)
        sink(offset, data)

    return msgspec.structs.replace(pending, sink=count)


def _add(totals: dict[str, PeerReceipts], receipt: _Receipt) -> None:
    if not (receipt.contents or receipt.size or receipt.shared_contents):
        return
    before = totals.get(receipt.peer) or PeerReceipts(node=receipt.peer)
    totals[receipt.peer] = PeerReceipts(
        node=receipt.peer,
        contents=before.contents + receipt.contents,
        size=before.size + receipt.size,
        shared_contents=before.shared_contents + receipt.shared_contents,
        shared_size=before.shared_size + receipt.shared_size,
    )
