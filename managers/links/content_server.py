"""The answering end of the data plane: reads what peers ask for, in a thread of its own.

Requests carry all they need, so there is nothing to clean up when a peer goes away; sources stay open for a while
because the next range is usually asked for soon. A range of content that is still growing waits until there is more.
"""

import mmap
import os
import threading
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dropflow.clock import Clock
from dropflow.errors import GoneError, StorageError
from dropflow.failure import Failure
from managers.links.settings import LinkSettings
from managers.links.wire import Buffer, Frames, view
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed, encode

__all__ = ["BufferSource", "ContentOpener", "ContentServer", "ContentSource", "FileSource", "SourceCache"]

_PARKED = 10_000
"""Ranges that may wait for content that is still growing."""

_SOURCES = 256
"""Sources kept open."""


class ContentSource(Protocol):
    """Content that can be fetched. Used by one thread."""

    @property
    def size(self) -> int | None:
        """Bytes; None while the content is growing."""
        ...

    def read(self, offset: int, length: int) -> Buffer:
        """Up to `length` bytes from `offset` on; nothing beyond the end, or beyond what there is so far."""
        ...

    def close(self) -> None:
        """Give back what it holds. Buffers handed out stay good."""
        ...


ContentOpener = Callable[[str, int, int, int], ContentSource]
"""ContentSource of (session, drop, attempt, producer).

Raises `GoneError` for what was released, `StorageError` for what is broken.
"""


class BufferSource:
    """Content in memory; ranges are views of it."""

    def __init__(self, content: Buffer) -> None:
        self._content = view(content)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._content)

    def read(self, offset: int, length: int) -> Buffer:
        """View of a range."""
        return self._content[offset : offset + length]

    def close(self) -> None:
        """Nothing to give back."""


class FileSource:
    """Content of a committed file, in shared memory or on a disk; ranges are views of its mapping.

    Raises
    ------
    StorageError
        The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._size = os.fstat(file.fileno()).st_size
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size else b""
        except OSError as error:
            raise StorageError(f"the content cannot be read: {error.strerror}", where=str(path)) from error
        self._view = memoryview(mapped)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    def read(self, offset: int, length: int) -> Buffer:
        """View of a range."""
        return self._view[offset : offset + length]

    def close(self) -> None:
        """Let go of the mapping; it goes when the last view of it has gone."""
        self._view = memoryview(b"")


class SourceCache:
    """Sources that are open, and the answers read from them. Used by one thread.

    Parameters
    ----------
    reader : ContentOpener
        Opens content.
    settings : LinkSettings
        How long a source that nobody asks for stays open.
    clock : Clock
        Time.
    """

    def __init__(self, reader: ContentOpener | None, settings: LinkSettings, clock: Clock) -> None:
        self._reader = reader
        self._idle = settings.source_idle
        self._clock = clock
        self._sources: OrderedDict[tuple[str, int, int, int], tuple[ContentSource, float]] = OrderedDict()

    def answer(self, fetch: Fetch) -> Frames | None:
        """SendReply to a request for one range; None if there is nothing to say before the content has grown."""
        try:
            return self._range(self._source(fetch), fetch)
        except GoneError as error:
            return (encode(ContentGone(fetch.request, error.text)),)
        except Exception as error:  # noqa: BLE001 - whatever a reader raises is the asking end's answer
            return (encode(FetchFailed(fetch.request, Failure.of(error))),)

    def forget(self, session: str, drop: int | None = None) -> None:
        """Close what is open of a session, or of one drop of it."""
        for key in [key for key in self._sources if key[0] == session and drop in (None, key[1])]:
            self._sources.pop(key)[0].close()

    def close_idle(self) -> float | None:
        """Close what nobody asked for lately; seconds until the next is due."""
        now = self._clock.monotonic()
        while self._sources:
            key, (source, used) = next(iter(self._sources.items()))
            if used + self._idle > now:
                return used + self._idle - now
            del self._sources[key]
            source.close()
        return None

    def close(self) -> None:
        """Close everything."""
        while self._sources:
            self._sources.popitem()[1][0].close()

    def _range(self, source: ContentSource, fetch: Fetch) -> Frames | None:
        size = source.size  # asked before reading: what is read cannot be less than this says
        data = source.read(fetch.offset, fetch.length)
        if size is None and not len(data):
            return None
        is_last = size is not None and fetch.offset + len(data) >= size
        if not len(data) and not is_last:
            raise StorageError(f"nothing could be read from byte {fetch.offset:,} on")
        checksum = zlib.crc32(data) if fetch.check else -1
        chunk = Chunk(fetch.request, fetch.offset, -1 if size is None else size, is_last, checksum)
        return encode(chunk), data

    def _source(self, fetch: Fetch) -> ContentSource:
        key = (fetch.session, fetch.drop, fetch.attempt, fetch.producer)
        known = self._sources.pop(key, None)
        if known is not None:
            source = known[0]
        elif self._reader is not None:
            source = self._reader(*key)
        else:
            raise GoneError(f"drop {fetch.drop} of session {fetch.session!r} is not here")
        self._sources[key] = (source, self._clock.monotonic())
        if len(self._sources) > _SOURCES:
            self._sources.popitem(last=False)[1][0].close()
        return source


class ContentServer:
    """Answers `Fetch` packets.

    Parameters
    ----------
    name : str
        For the thread.
    reader : ContentOpener or None
        Opens content; called in the thread of this server. None has no content.
    reply : callable
        Takes a route and the frames to send there; may be called from any thread.
    settings : LinkSettings
        How long sources stay open.
    clock : Clock
        Time.
    """

    def __init__(
        self,
        name: str,
        reader: ContentOpener | None,
        reply: Callable[[bytes, Frames], None],
        settings: LinkSettings,
        clock: Clock,
    ) -> None:
        self._name = name
        self._cache = SourceCache(reader, settings, clock)
        self._reply = reply
        self._changed = threading.Condition()
        self._requests: deque[tuple[bytes, Fetch]] = deque()
        self._parked: list[tuple[bytes, Fetch]] = []
        self._forgotten: list[tuple[str, int | None]] = []
        self._thread: threading.Thread | None = None
        self._growths = 0
        self._closing = False

    def put(self, route: bytes, fetch: Fetch) -> None:
        """Answer `fetch` soon. The thread starts with the first request."""
        with self._changed:
            if self._closing:
                return
            self._requests.append((route, fetch))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"data-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify()

    def grown(self, session: str, drop: int) -> None:
        """Content has grown, or ended: answer the ranges that wait for it."""
        with self._changed:
            self._growths += 1
            rest: list[tuple[bytes, Fetch]] = []
            for item in self._parked:
                is_that = (item[1].session, item[1].drop) == (session, drop)
                (self._requests if is_that else rest).append(item)
            self._parked = rest
            self._changed.notify()

    def forget(self, session: str, drop: int | None = None) -> None:
        """Close what is open of a session, or of one drop of it: it was released or replaced."""
        with self._changed:
            self._forgotten.append((session, drop))
            if drop is None:
                self._parked = [item for item in self._parked if item[1].session != session]
            self._changed.notify()

    def close(self) -> None:
        """StopSession; idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closing or self._requests or self._forgotten):
                    self._changed.wait(self._cache.close_idle())
                if self._closing:
                    break
                forgotten, self._forgotten = self._forgotten, []
                request = self._requests.popleft() if self._requests else None
            for session, drop in forgotten:
                self._cache.forget(session, drop)
            if request is not None:
                self._serve(*request)
        self._cache.close()

    def _serve(self, route: bytes, fetch: Fetch) -> None:
        growths = self._growths
        frames = self._cache.answer(fetch)
        if frames is not None:
            self._reply(route, frames)
            return
        with self._changed:
            if growths != self._growths:  # it may have grown since it was read
                self._requests.append((route, fetch))
                return
            self._parked.append((route, fetch))
            excess = self._parked.pop(0) if len(self._parked) > _PARKED else None
        if excess is not None:
            failure = Failure(code="DF220", kind="LinkError", text="too many readers wait for growing content")
            self._reply(excess[0], (encode(FetchFailed(excess[1].request, failure)),))
