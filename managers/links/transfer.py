"""The asking end of the data plane: one transfer of the content of a drop.

A transfer asks for ranges, a few ahead of what has arrived; what it asked for and has not been used yet is its credit,
so that it needs no more memory than that however slow its user is. The size of the ranges follows the speed at which
they arrive. After a reconnect it asks again for what is missing.
"""

import threading
import zlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from dropflow.errors import DropflowError, GoneError, LinkError
from managers.links.settings import LinkSettings
from managers.links.wire import Buffer, view
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed

__all__ = ["Sink", "Transfer", "TransferResult"]

_QUICK, _SLOW = 0.05, 0.5
"""Seconds for one range: below, ask for larger ones; above, for smaller ones."""


class Sink(Protocol):
    """Where fetched bytes go; called in order, by the thread that fetches."""

    def __call__(self, offset: int, data: memoryview, /) -> object:
        """Take the bytes from `offset` on; `data` is read-only and may be kept."""
        ...


class TransferResult(msgspec.Struct, frozen=True):
    """A transfer that is complete: bytes, and the CRC-32 of them all (0 if none was expected)."""

    size: int
    checksum: int


class Transfer:
    """One transfer. `asks`, `take` and `again` belong to the I/O thread, `run` to the thread that wants the bytes.

    Parameters
    ----------
    request : int
        Names the transfer.
    peer, session, drop, attempt, producer :
        Which content, and who has it.
    size : int or None
        Bytes of the content, if they are known.
    checksum : int or None
        CRC-32 of the content, if it is known: then it is checked at the end.
    check : bool
        Whether to check the CRC-32 of each chunk when that of the whole is not known.
    settings : LinkSettings
        Sizes.
    """

    def __init__(
        self,
        request: int,
        *,
        peer: str,
        session: str,
        drop: int,
        attempt: int,
        producer: int,
        size: int | None,
        checksum: int | None,
        check: bool,
        settings: LinkSettings,
    ) -> None:
        self.request = request
        self.peer = peer
        self._what = (session, drop, attempt, producer)
        self._size = size
        self._checksum = checksum
        self._check = check and checksum is None
        self._settings = settings
        self._length = settings.chunk_first
        self._asked = 0
        self._outstanding: deque[tuple[int, int, float]] = deque()
        self._arrived: deque[tuple[Chunk, Buffer]] = deque()
        self._position = 0
        self._ended = False
        self._error: DropflowError | None = None
        self._changed = threading.Condition()

    def asks(self, now: float) -> list[Fetch]:
        """The ranges to ask for now."""
        session, drop, attempt, producer = self._what
        fetches = []
        with self._changed:
            while not self._ended and len(self._outstanding) + len(self._arrived) < self._ahead():
                fetch = Fetch(self.request, session, drop, attempt, self._asked, self._length, self._check, producer)
                if self._size is not None and self._size > self._asked:
                    fetch = msgspec.structs.replace(fetch, length=min(self._length, self._size - self._asked))
                self._outstanding.append((self._asked, fetch.length, now))
                self._asked += fetch.length
                fetches.append(fetch)
                if self._size is not None and self._asked >= self._size:
                    break
        return fetches

    def again(self) -> None:
        """Note that what was asked for will not come: the connection broke."""
        with self._changed:
            if self._outstanding:  # a range that is longer than the connections live would never arrive
                self._length = max(self._length // 2, self._settings.chunk_least)
            self._outstanding.clear()
            if not self._ended:
                self._asked = self._position

    def take(self, packet: Chunk | ContentGone | FetchFailed, raw: Buffer, now: float) -> None:
        """Take what the other end sent."""
        with self._changed:
            match packet:
                case ContentGone():
                    self._error = GoneError(packet.reason, where=self._where())
                case FetchFailed():
                    self._error = packet.failure.as_error()
                case Chunk():
                    self._take_chunk(packet, raw, now)
            self._changed.notify_all()

    def fail(self, error: DropflowError) -> None:
        """End the transfer with `error`."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def nudge(self) -> None:
        """Let the waiting thread ask again whether to give up."""
        with self._changed:
            self._changed.notify_all()

    def run(
        self,
        sink: Sink,
        *,
        more: Callable[["Transfer"], None],
        timeout: float | None,
        give_up: Callable[[], bool] | None,
        wait: Callable[[Callable[[], bool], float | None], bool] | None = None,
    ) -> TransferResult:
        """Pass the content to `sink` as it arrives, to its end.

        `more` is called whenever there is credit to ask for more. `wait` replaces waiting for another thread.
        """
        running = size = 0
        while True:
            chunk, raw = self._next(timeout, give_up, wait)
            data = view(raw).toreadonly()
            if chunk.checksum >= 0 and zlib.crc32(data) != chunk.checksum:
                raise LinkError(f"bytes from {chunk.offset:,} on arrived damaged", where=self._where())
            if self._checksum is not None:
                running = zlib.crc32(data, running)
            sink(chunk.offset, data)
            size += len(data)
            if chunk.last:
                break
            more(self)
        if self._checksum is not None and running != self._checksum:
            text = f"the content has CRC-32 {running:08x}, not {self._checksum:08x}"
            raise LinkError(text, where=self._where(), hint="it was changed after it was committed, or in memory")
        return TransferResult(size, running)

    def _next(
        self,
        timeout: float | None,
        give_up: Callable[[], bool] | None,
        wait: Callable[[Callable[[], bool], float | None], bool] | None,
    ) -> tuple[Chunk, Buffer]:
        def ready() -> bool:
            return bool(self._arrived or self._error) or (give_up is not None and give_up())

        if wait is not None:
            wait(ready, timeout)
        with self._changed:
            if wait is None:
                self._changed.wait_for(ready, timeout)
            if self._arrived:
                return self._arrived.popleft()
            if self._error is not None:
                raise self._error
            gave_up = give_up is not None and give_up()
        why = "the reader gave up waiting" if gave_up else f"nothing came for {timeout or 0:g} s"
        raise LinkError(f"node {self.peer!r} does not send: {why}", where=self._where())

    def _take_chunk(self, chunk: Chunk, raw: Buffer, now: float) -> None:
        if not self._outstanding or chunk.offset != self._outstanding[0][0]:
            return  # an answer to what was asked before a reconnect
        offset, length, asked = self._outstanding.popleft()
        if len(raw) > length or (not raw and not chunk.last):
            self._error = LinkError(f"{len(raw):,} bytes came for {length:,}", where=self._where())
            return
        self._arrived.append((chunk, raw))
        self._position = offset + len(raw)
        self._ended = chunk.last
        if chunk.total >= 0:
            self._size = chunk.total
        if self._ended:
            self._outstanding.clear()
        elif len(raw) < length:  # still growing, or the other end keeps its ranges short
            self._outstanding.clear()
            self._asked = self._position
        elapsed = now - asked
        if elapsed < _QUICK:
            self._length = min(2 * self._length, self._settings.chunk_most)
        elif elapsed > _SLOW:
            self._length = max(self._length // 2, self._settings.chunk_least)

    def _ahead(self) -> int:
        """Ranges to have on their way: one until the size is known, for the answer may be shorter than the range."""
        if self._size is None:
            return 1
        return self._settings.ahead if self._asked < self._size else 0 if self._asked else 1

    def _where(self) -> str:
        session, drop, *_ = self._what
        return f"drop {drop} of session {session} on node {self.peer}"
