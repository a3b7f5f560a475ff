"""The answering end of the data plane: reads the contents that peers request, in its own thread.

Requests are complete in themselves, so nothing has to be cleaned up when a peer goes away. A request for content that
is still growing waits until there is more.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from dropflow.clock import Clock
from dropflow.failure import Failure
from managers.links.content_source import ContentOpener
from managers.links.packing import Frames
from managers.links.settings import LinkSettings
from managers.links.source_cache import SourceCache
from managers.messages import Fetch, FetchFailed, encode

__all__ = ["ContentServer", "RangeServer"]

_MOST_WAITING = 10_000
"""Number of requests that may wait for content that is still growing."""


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
            failure = Failure(code="DF220", kind="LinkError", text="too many requests wait for growing content")
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
        Time.
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
