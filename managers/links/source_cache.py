"""Open sources of content, and the answers read from them."""

import zlib
from collections import OrderedDict

from dropflow.clock import Clock
from dropflow.errors import GoneError, StorageError
from dropflow.failure import Failure
from managers.links.content_source import ContentOpener, ContentSource
from managers.links.packing import Frames
from managers.links.settings import LinkSettings
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed, encode

__all__ = ["SourceCache"]

_SOURCES = 256
"""Number of sources that are kept open."""


class SourceCache:
    """Keeps sources open for a while, since the next range is usually requested soon. Used by one thread.

    Parameters
    ----------
    open_content : ContentOpener or None
        Opens content; with None there is no content.
    settings : LinkSettings
        How long an unused source stays open.
    clock : Clock
        Time.
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
