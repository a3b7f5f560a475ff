"""Counts what a session receives from other nodes: contents in messages, fetched contents, and streams."""

from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import msgspec

from dropflow.data.storage_errors import storage_errors
from dropflow.times.octets import RECEIVED_FILE, NodeReceipts, PeerReceipts
from managers.links import TransferResult
from managers.node.fetch_pool import PendingFetch

__all__ = ["Receipts", "write_receipts"]

_T = TypeVar("_T")
_MANY = 256


def write_receipts(directory: Path, receipts: NodeReceipts) -> None:
    """Write what a session has received from other nodes to its directory, if there is anything.

    Raises
    ------
    StorageError
        The directory cannot be written.
    """
    if receipts.received:
        with storage_errors("write", directory / RECEIVED_FILE):
            (directory / RECEIVED_FILE).write_bytes(msgspec.json.encode(receipts))


class _Receipt:
    """What one job has received from a peer so far. Written by the thread of the job only."""

    __slots__ = ("contents", "is_done", "peer", "shared_contents", "shared_size", "size")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.contents = self.size = self.shared_contents = self.shared_size = 0
        self.is_done = False


class Receipts:
    """What one session has received, by peer. All but `receiving` is for the session's thread.

    Parameters
    ----------
    before : NodeReceipts
        What it had received when it was stopped.
    """

    def __init__(self, before: NodeReceipts) -> None:
        self._totals = {one.node: one for one in before.received}
        self._receipts: deque[_Receipt] = deque()

    def receiving(
        self, peer: str, size: int | None, fetch: Generator[PendingFetch, TransferResult, _T]
    ) -> Generator[PendingFetch, TransferResult, _T]:
        """Carry out `fetch`, and count the bytes as they arrive, in any thread.

        A content of `size` bytes that comes without a transfer was read where it is; None if that cannot be.
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
            found: _T = end.value
            return found
        finally:
            fetch.close()
            receipt.is_done = True

    def arrived(self, peer: str, size: int) -> None:
        """Count a content that came in a message."""
        before = self._totals.get(peer) or PeerReceipts(node=peer)
        self._totals[peer] = msgspec.structs.replace(before, contents=before.contents + 1, size=before.size + size)

    def fold(self) -> None:
        """Keep only the sums of jobs that are done, if there are many."""
        if len(self._receipts) > _MANY:
            self._fold()

    def read(self, node: str) -> NodeReceipts:
        """Return what was received so far by `node`, which has the session."""
        self._fold()
        totals = dict(self._totals)
        for receipt in tuple(self._receipts):
            _add(totals, receipt)
        return NodeReceipts(node=node, received=tuple(one for _, one in sorted(totals.items())))

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
