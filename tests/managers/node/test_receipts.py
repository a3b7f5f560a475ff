"""What a session received from other nodes is counted while it comes."""

from collections.abc import Generator
from typing import Any

import pytest

from dropflow.errors import LinkError
from dropflow.times.octets import NodeReceipts, PeerReceipts
from managers.links import TransferResult, WantedContent
from managers.node.fetch_pool import PendingFetch, Receipts

_BEFORE = NodeReceipts(node="a", received=(PeerReceipts(node="b", contents=1, size=10),))


def _pending(got: bytearray) -> PendingFetch:
    return PendingFetch(WantedContent(session="s", drop=1), lambda _, data: got.extend(data), None, lambda: False)


def _fetch(got: bytearray, transfers: int) -> Generator[PendingFetch, TransferResult, str]:
    for _ in range(transfers):
        yield _pending(got)
    return "done"


def _finish(job: Generator[PendingFetch, TransferResult, str], sizes: list[int], receipts: Receipts) -> list[Any]:
    """Carry out a job; return what is counted after each transfer began and the last one ended."""
    seen = []
    pending = next(job)
    try:
        for size in sizes:
            pending.sink(0, memoryview(b"x" * size))
            seen.append(receipts.read("a").received)
            pending = job.send(TransferResult(size, 0))
    except StopIteration as end:
        seen.append(end.value)
    return seen


def test_bytes_count_as_they_arrive() -> None:
    """Also those of a stream that has not ended; contents count at their end, in addition to what was known before."""
    receipts, got = Receipts(_BEFORE), bytearray()
    first, second, result = _finish(receipts.receiving("b", 7, _fetch(got, 2)), [5, 6], receipts)

    assert result == "done"
    assert len(got) == 11
    assert first == (PeerReceipts(node="b", contents=1, size=15),)
    assert second == (PeerReceipts(node="b", contents=2, size=21),)
    assert receipts.read("a") == NodeReceipts(node="a", received=(PeerReceipts(node="b", contents=3, size=21),))


def test_contents_in_messages_and_in_place_are_counted_apart() -> None:
    """What is read where it is was not moved; what cannot be in place is not counted then."""
    receipts, got = Receipts(NodeReceipts()), bytearray()
    receipts.arrived("b", 3)
    for size in (40, None):
        with pytest.raises(StopIteration, match="done"):
            next(receipts.receiving("c", size, _fetch(got, 0)))

    assert receipts.read("a").received == (
        PeerReceipts(node="b", contents=1, size=3),
        PeerReceipts(node="c", shared_contents=1, shared_size=40),
    )


def test_an_interrupted_transfer_is_no_content() -> None:
    """Its bytes were moved all the same, and its error reaches the job."""
    receipts, got = Receipts(NodeReceipts()), bytearray()
    job = receipts.receiving("b", 9, _fetch(got, 1))
    next(job).sink(0, memoryview(b"xyz"))
    with pytest.raises(LinkError, match="cut"):
        job.throw(LinkError("cut"))

    assert receipts.read("a").received == (PeerReceipts(node="b", size=3),)


def test_only_sums_are_kept_of_what_is_done() -> None:
    """However many contents come."""
    receipts, got = Receipts(NodeReceipts()), bytearray()
    for _ in range(1000):
        _finish(receipts.receiving("b", 2, _fetch(got, 1)), [2], Receipts(NodeReceipts()))
        receipts.fold()

    assert len(receipts._receipts) <= 257
    assert receipts.read("a").received == (PeerReceipts(node="b", contents=1000, size=2000),)
