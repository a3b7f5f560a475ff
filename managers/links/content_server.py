"""The answering end of the data plane: reads the contents that peers request, in its own thread.

Requests are complete in themselves, so nothing has to be cleaned up when a peer goes away. A request for content that
is still growing waits until there is more.
"""

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from dropflow.clock import Clock
from dropflow.errors import GoneError, LinkError, StorageError
from dropflow.failure import Failure
from managers.links.link_settings import LinkSettings
from managers.links.packing import Buffer, Frames, view
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed, encode

_SOURCES = 256
"""Number of sources that are kept open."""
_MOST_WAITING = 10_000
"""Number of requests that may wait for content that is still growing."""


# Contents that peers can fetch: in memory, or in files.


class ContentSource(Protocol):
    """Content that can be fetched. Used by one thread."""

    @property
    def size(self) -> int | None:
        """Bytes; None while the content is growing."""
        ...

    def read(self, offset: int, length: int) -> Buffer:
        """Return up to `length` bytes from `offset` on; nothing beyond the end, or beyond what is written so far."""
        ...

    def close(self) -> None:
        """Release resources. Buffers that were returned stay valid."""
        ...


ContentOpener = Callable[[str, int, int, int], ContentSource]
"""Returns the source of (session, drop, attempt, producer).

Raises `GoneError` for released content, `StorageError` for content that cannot be read.
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
        """Return a view of a range."""
        return self._content[offset : offset + length]

    def close(self) -> None:
        """Do nothing."""


class FileSource:
    """Content of a file, in shared memory or on a disk.

    Ranges are copies: a mapping would end this process if the file was cut meanwhile, which its owner may do.

    Raises
    ------
    StorageError
        The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("rb", buffering=0)
            self._size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise StorageError(f"the content cannot be read: {error.strerror}", where=str(path)) from error

    @property
    def size(self) -> int:
        """Bytes when it was opened."""
        return self._size

    def read(self, offset: int, length: int) -> Buffer:
        """Return a range; nothing beyond what the file has now."""
        return os.pread(self._file.fileno(), max(min(length, self._size - offset), 0), offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# Open sources of content, and the answers read from them.


class SourceCache:
    """Keeps sources open for a while, since the next range is usually requested soon. Used by one thread.

    Parameters
    ----------
    open_content : ContentOpener or None
        Opens content; with None there is no content.
    settings : LinkSettings
        How long an unused source stays open.
    clock : Clock
        Tells the time.
    """

    def __init__(self, open_content: ContentOpener | None, settings: LinkSettings, clock: Clock) -> None:
        self._open_content = open_content
        self._idle = settings.source_idle
        self._clock = clock
        self._sources: OrderedDict[tuple[str, int, int, int], tuple[ContentSource, float]] = OrderedDict()

    def answer(self, fetch: Fetch) -> Frames | None:
        """Return the answer to a request for one range; None if the content must grow first."""
        try:
            return self._range(self._source(fetch), fetch)
        except GoneError as error:
            return (encode(ContentGone(fetch.request, error.text)),)
        except Exception as error:  # noqa: BLE001 - the requesting end raises it
            return (encode(FetchFailed(fetch.request, Failure.of(error))),)

    def close_content(self, session: str, drop: int | None = None) -> None:
        """Close the sources of a session, or of one drop of it."""
        for key in [key for key in self._sources if key[0] == session and drop in (None, key[1])]:
            self._sources.pop(key)[0].close()

    def close_idle(self) -> float | None:
        """Close the sources that were not used for a while; return the seconds until the next one is due."""
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
        size = source.size  # read first: what is read afterwards cannot be less than this
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
        elif self._open_content is not None:
            source = self._open_content(*key)
        else:
            raise GoneError(f"drop {fetch.drop} of session {fetch.session!r} is not on this node")
        self._sources[key] = (source, self._clock.monotonic())
        if len(self._sources) > _SOURCES:
            self._sources.popitem(last=False)[1][0].close()
        return source


class RangeServer:
    """Answers requests for ranges. Used by one thread.

    Parameters
    ----------
    cache : SourceCache
        Reads the content.
    reply : callable
        Takes a route and the frames to send there.
    """

    def __init__(self, cache: SourceCache, reply: Callable[[bytes, Frames], None]) -> None:
        self._cache = cache
        self._reply = reply
        self._waiting: list[tuple[bytes, Fetch]] = []

    def serve(self, route: bytes, fetch: Fetch) -> None:
        """Answer a request now, or when the content has grown."""
        frames = self._cache.answer(fetch)
        if frames is not None:
            self._reply(route, frames)
            return
        self._waiting.append((route, fetch))
        if len(self._waiting) > _MOST_WAITING:
            route, fetch = self._waiting.pop(0)
            failure = Failure(code=LinkError.code, kind="LinkError", text="too many requests wait for growing content")
            self._reply(route, (encode(FetchFailed(fetch.request, failure)),))

    def content_grew(self, session: str, drop: int) -> None:
        """Answer the requests that wait for this content."""
        waiting, self._waiting = self._waiting, []
        for route, fetch in waiting:
            if (fetch.session, fetch.drop) == (session, drop):
                self.serve(route, fetch)
            else:
                self._waiting.append((route, fetch))

    def close_content(self, session: str, drop: int | None = None) -> None:
        """Close a session's content, or that of one drop, which was released or replaced."""
        self._cache.close_content(session, drop)
        if drop is None:
            self._waiting = [(route, fetch) for route, fetch in self._waiting if fetch.session != session]


class ContentServer:
    """A `RangeServer` in a thread that starts with the first request. Methods are for any thread.

    Parameters
    ----------
    name : str
        For the thread.
    open_content : ContentOpener or None
        Opens content; called in the thread of this server. None means that there is no content.
    reply : callable
        Takes a route and the frames to send there; may be called from any thread.
    settings : LinkSettings
        How long sources stay open.
    clock : Clock
        Tells the time.
    """

    def __init__(
        self,
        name: str,
        open_content: ContentOpener | None,
        reply: Callable[[bytes, Frames], None],
        settings: LinkSettings,
        clock: Clock,
    ) -> None:
        self._name = name
        self._cache = SourceCache(open_content, settings, clock)
        self._server = RangeServer(self._cache, reply)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def serve(self, route: bytes, fetch: Fetch) -> None:
        """Answer `fetch` soon. Only called by the thread that owns the links."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"data-{self._name}", daemon=True)
            self._thread.start()
        self._calls.put(lambda: self._server.serve(route, fetch))

    def content_grew(self, session: str, drop: int) -> None:
        """Answer the requests that wait for content that has grown, or ended."""
        # Without a thread there is no request yet, and the first one will find what has been written before.
        if self._thread is not None:
            self._calls.put(lambda: self._server.content_grew(session, drop))

    def close_content(self, session: str, drop: int | None = None) -> None:
        """Close a session's content, or that of one drop, which was released or replaced."""
        if self._thread is not None:
            self._calls.put(lambda: self._server.close_content(session, drop))

    def close(self) -> None:
        """Stop; idempotent. Only called after the thread that owns the links has ended."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._calls.put(None)
            thread.join()

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=self._cache.close_idle())
            except Empty:
                continue
            if call is None:
                break
            call()
        self._cache.close()
