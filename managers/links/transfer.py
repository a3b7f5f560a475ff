"""The requesting end of the data plane: transfers of the contents of drops, as pure state machines.

A transfer requests ranges, a few ahead of what has arrived. Ranges that were requested and are not consumed yet are its
credit, so a slow consumer needs no more memory than that. The size of the ranges follows the speed at which they
arrive. After a reconnect, the transfer requests what is missing again.
"""

import zlib
from collections import deque
from typing import Protocol

import msgspec

from dropflow.errors import DropflowError, GoneError, LinkError
from managers.links.actions import FailTransfer, PassChunk
from managers.links.link_settings import LinkSettings
from managers.links.packing import Buffer, view
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed

_QUICK, _SLOW = 0.05, 0.5
"""Seconds for one range: below, request larger ones; above, smaller ones."""


class Sink(Protocol):
    """Consumer of fetched bytes; called in order."""

    def __call__(self, offset: int, data: memoryview, /) -> object:
        """Take the bytes from `offset` on; `data` is read-only and may be kept."""
        ...


class WantedContent(msgspec.Struct, frozen=True, kw_only=True):
    """A content to fetch.

    Attributes
    ----------
    session, drop :
        Which drop.
    attempt : int
        The attempt that wrote the content; 0 for the committed content.
    producer : int
        The application of the peer whose part of the drop is wanted; -1 for the content of the drop.
    size : int or None
        Bytes, if they are known: then the first ranges are requested immediately.
    checksum : int or None
        CRC-32 of the whole, if it is known: it is checked at the end.
    check : bool
        Whether to check the CRC-32 of each chunk when that of the whole is not known.
    """

    session: str
    drop: int
    attempt: int = 0
    producer: int = -1
    size: int | None = None
    checksum: int | None = None
    check: bool = True


class TransferResult(msgspec.Struct, frozen=True):
    """A complete transfer: bytes, and their CRC-32 (0 if none was expected)."""

    size: int
    checksum: int


class Transfer:
    """The state of one transfer.

    Parameters
    ----------
    request : int
        Identifies the transfer.
    peer : str
        The node that has the content.
    wanted : WantedContent
        The content to fetch.
    settings : LinkSettings
        Sizes of ranges.
    """

    def __init__(self, request: int, peer: str, wanted: WantedContent, settings: LinkSettings) -> None:
        self.request = request
        self.peer = peer
        self._wanted = wanted
        self._size = wanted.size
        self._settings = settings
        self._length = settings.chunk_first
        self._requested = 0
        self._outstanding: deque[tuple[int, int, float]] = deque()
        self._unconsumed = 0
        self._position = 0
        self._ended = False

    def next_ranges(self, now: float) -> list[Fetch]:
        """Return the ranges to request now."""
        wanted = self._wanted
        check = wanted.check and wanted.checksum is None
        fetches = []
        while not self._ended and len(self._outstanding) + self._unconsumed < self._ahead():
            length = self._length
            if self._size is not None and self._size > self._requested:
                length = min(length, self._size - self._requested)
            fetches.append(
                Fetch(
                    self.request,
                    wanted.session,
                    wanted.drop,
                    wanted.attempt,
                    self._requested,
                    length,
                    check,
                    wanted.producer,
                )
            )
            self._outstanding.append((self._requested, length, now))
            self._requested += length
            if self._size is not None and self._requested >= self._size:
                break
        return fetches

    def consumed(self) -> None:
        """Note that one chunk was consumed: its credit is free again."""
        self._unconsumed -= 1

    def connection_lost(self) -> None:
        """Note that the outstanding ranges will not arrive."""
        if self._outstanding:  # a range that takes longer than connections live would never arrive
            self._length = max(self._length // 2, self._settings.chunk_least)
        self._outstanding.clear()
        if not self._ended:
            self._requested = self._position

    def receive(
        self, packet: Chunk | ContentGone | FetchFailed, raw: Buffer, now: float
    ) -> PassChunk | FailTransfer | None:
        """Handle an answer of the other end; an answer to an outdated request gives None."""
        match packet:
            case ContentGone():
                return FailTransfer(self.request, GoneError(packet.reason, where=_where(self._wanted, self.peer)))
            case FetchFailed():
                return FailTransfer(self.request, packet.failure.as_error())
            case Chunk():
                return self._receive_chunk(packet, raw, now)

    def _receive_chunk(self, chunk: Chunk, raw: Buffer, now: float) -> PassChunk | FailTransfer | None:
        if not self._outstanding or chunk.offset != self._outstanding[0][0]:
            return None  # an answer to a request from before a reconnect
        offset, length, requested = self._outstanding.popleft()
        if len(raw) > length or (not raw and not chunk.last):
            text = f"{len(raw):,} bytes came for {length:,}"
            return FailTransfer(self.request, LinkError(text, where=_where(self._wanted, self.peer)))
        self._unconsumed += 1
        self._position = offset + len(raw)
        self._ended = chunk.last
        if chunk.total >= 0:
            self._size = chunk.total
        if self._ended:
            self._outstanding.clear()
        elif len(raw) < length:  # the content is growing, or the other end keeps its ranges short
            self._outstanding.clear()
            self._requested = self._position
        elapsed = now - requested
        if elapsed < _QUICK:
            self._length = min(2 * self._length, self._settings.chunk_most)
        elif elapsed > _SLOW:
            self._length = max(self._length // 2, self._settings.chunk_least)
        return PassChunk(self.request, chunk, raw)

    def _ahead(self) -> int:
        """Return how many ranges to have in flight: one until the size is known, since the answer may be shorter."""
        if self._size is None:
            return 1
        return self._settings.ahead if self._requested < self._size else 0 if self._requested else 1


class TransferTable:
    """All transfers of one process. Methods return the requests to send, or the actions to carry out."""

    def __init__(self) -> None:
        self._transfers: dict[int, Transfer] = {}

    def __len__(self) -> int:
        return len(self._transfers)

    def add(self, transfer: Transfer) -> None:
        """Add a transfer."""
        self._transfers[transfer.request] = transfer

    def find(self, request: int) -> Transfer | None:
        """Return a transfer; None if it has ended."""
        return self._transfers.get(request)

    def remove(self, request: int) -> None:
        """Remove a transfer that has ended."""
        self._transfers.pop(request, None)

    def receive(
        self, packet: Chunk | ContentGone | FetchFailed, raw: Buffer, now: float
    ) -> PassChunk | FailTransfer | None:
        """Handle an answer of the other end."""
        transfer = self._transfers.get(packet.request)
        return None if transfer is None else transfer.receive(packet, raw, now)

    def restart(self, peer: str, now: float) -> list[Fetch]:
        """Return the requests that repeat what was outstanding when the connection to `peer` was lost."""
        fetches: list[Fetch] = []
        for transfer in self._of(peer):
            transfer.connection_lost()
            fetches += transfer.next_ranges(now)
        return fetches

    def fail(self, error: DropflowError, peer: str | None = None) -> list[FailTransfer]:
        """Fail all transfers, or those from one peer."""
        return [FailTransfer(transfer.request, error) for transfer in self._of(peer)]

    def _of(self, peer: str | None) -> list[Transfer]:
        return [transfer for transfer in self._transfers.values() if peer in (None, transfer.peer)]


class ChunkReader:
    """Passes the chunks of one transfer to a sink and checks them.

    Parameters
    ----------
    peer : str
        The node that sends them.
    wanted : WantedContent
        The content to fetch.
    sink : Sink
        Takes the bytes.
    """

    def __init__(self, peer: str, wanted: WantedContent, sink: Sink) -> None:
        self._expected = wanted.checksum
        self._where = _where(wanted, peer)
        self._sink = sink
        self._size = 0
        self._checksum = 0

    def accept(self, chunk: Chunk, raw: Buffer) -> TransferResult | None:
        """Pass on a chunk; return the result after the last one.

        Raises
        ------
        LinkError
            The chunk, or the whole, was damaged.
        """
        data = view(raw).toreadonly()
        if chunk.checksum >= 0 and zlib.crc32(data) != chunk.checksum:
            raise LinkError(f"bytes from {chunk.offset:,} on arrived damaged", where=self._where)
        if self._expected is not None:
            self._checksum = zlib.crc32(data, self._checksum)
        self._sink(chunk.offset, data)
        self._size += len(data)
        if not chunk.last:
            return None
        if self._expected is not None and self._checksum != self._expected:
            text = f"the content has CRC-32 {self._checksum:08x}, not {self._expected:08x}"
            raise LinkError(text, where=self._where, hint="it was changed after it was committed, or in memory")
        return TransferResult(self._size, self._checksum)

    def timed_out(self, peer: str, why: str) -> LinkError:
        """Return the error for a transfer that is not waited for any longer."""
        return LinkError(f"node {peer!r} does not send: {why}", where=self._where)


def _where(wanted: WantedContent, peer: str) -> str:
    return f"drop {wanted.drop} of session {wanted.session} on node {peer}"
