"""Watching sessions at the children while somebody watches them here.

However many people watch a session, each child that holds a part of it has one thread that waits for its news; it ends
some time after the last of them has left.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from dropflow.clock import Clock
from dropflow.errors import DropflowError
from dropflow.rest.schema import SessionDetail
from managers.composite.children import ChildView
from managers.composite.fanout import Fanout

__all__ = ["Followers"]

_LINGER = 10.0
"""Seconds after the last watcher has left: people come back at once when they poll."""
_LONGEST = 5.0
"""Seconds that one question waits at a child."""
_THREADS = 64
"""Sessions that are followed at one child at a time; the news of others comes with its heartbeats."""
_SHORTEST = 0.1
"""Seconds between two questions, however fast the news."""


class Followers:
    """The threads that wait for news.

    Parameters
    ----------
    clock : Clock
        To tell when the last watcher left.
    heard : callable
        Gets the child and what it told, whenever there is something new.
    """

    def __init__(self, clock: Clock, heard: Callable[[ChildView, SessionDetail], None]) -> None:
        self._clock = clock
        self._heard = heard
        self._fanout = Fanout(clock, limit=_THREADS)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watchers: Counter[str] = Counter()
        self._left: dict[str, float] = {}
        self._running: set[tuple[str, str]] = set()

    @contextmanager
    def watching(self, session: str) -> Iterator[None]:
        """Somebody watches this session until the context ends."""
        with self._lock:
            self._watchers[session] += 1
        try:
            yield
        finally:
            with self._lock:
                self._watchers[session] -= 1
                self._left[session] = self._clock.monotonic()
                if not self._watchers[session]:
                    del self._watchers[session]

    def follow(self, session: str, children: Iterable[tuple[ChildView, int]]) -> None:
        """See to it that each of these children is asked for news after the version that goes with it."""
        for child, version in children:
            key = (session, child.url)
            with self._lock:
                if key in self._running or self._closed.is_set():
                    continue
                self._running.add(key)
            if not self._fanout.spawn(child.url, partial(self._run, session, child, version)):
                # So many sessions are watched there that this one has to wait for the next heartbeat.
                with self._lock:
                    self._running.discard(key)

    def close(self) -> None:
        """Ask no more. Idempotent."""
        self._closed.set()
        self._fanout.close()

    def _run(self, session: str, child: ChildView, version: int) -> None:
        try:
            while self._is_wanted(session):
                detail = child.manager.watch(session, version=version, seconds=_LONGEST)
                if detail.version != version:
                    self._heard(child, detail)
                version = detail.version
                if detail.is_over:
                    return
                self._closed.wait(_SHORTEST)
        except DropflowError:
            # Whether the child is away, or has forgotten the session, is for others to find out.
            return
        finally:
            with self._lock:
                self._running.discard((session, child.url))

    def _is_wanted(self, session: str) -> bool:
        if self._closed.is_set():
            return False
        with self._lock:
            if session in self._watchers:
                return True
            if self._clock.monotonic() - self._left.get(session, 0.0) < _LINGER:
                return True
            self._left.pop(session, None)
            return False
