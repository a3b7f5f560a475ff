"""Links over real sockets, for tests."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import Any

import psutil
import pytest

from managers.keys import ClusterKey, create
from managers.links import (
    BufferSource,
    LinkChange,
    LinkEvent,
    Links,
    LinkSettings,
    ReceivedMessage,
    WantedContent,
)

HASTY = LinkSettings(heartbeat=0.1, receive_timeout=0.6, reconnect_delay=0.02, reconnect_delay_limit=0.1)
SMALL = LinkSettings(window=200_000, flight=50_000, fragment=20_000, chunk_first=20_000, chunk_most=100_000)
CONTENT = random.Random(1).randbytes(3_000_000)


def wanted_content(drop: int, **options: Any) -> WantedContent:
    """A content of session `s`."""
    return WantedContent(session="s", drop=drop, **options)


def until(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait for an effect of another thread that has no notification; return whether it happened."""
    nothing, end = threading.Event(), time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        nothing.wait(0.005)
    return True


class Inbox:
    """Records messages and changes, and waits for them."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, tuple[bytes, ...]]] = []
        self.changes: list[LinkChange] = []
        self.changed = threading.Condition()

    def take(self, delivery: ReceivedMessage) -> None:
        """Record a message."""
        frames = tuple(bytes(frame) for frame in delivery.frames)
        with self.changed:
            self.messages.append((delivery.peer, getattr(delivery.message, "reason", ""), frames))
            self.changed.notify_all()

    def note(self, change: LinkChange) -> None:
        """Record a change."""
        with self.changed:
            self.changes.append(change)
            self.changed.notify_all()

    def texts(self) -> list[str]:
        """Return the texts of the messages so far."""
        return [text for _, text, _ in self.messages]

    def wait(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait for a condition that only a message or a change can make true."""
        with self.changed:
            assert self.changed.wait_for(condition, seconds), (self.texts()[-3:], self.changes)

    def wait_event(self, event: LinkEvent) -> LinkChange:
        """Wait for a change of a link."""
        self.wait(lambda: any(change.event is event for change in self.changes))
        return next(change for change in self.changes if change.event is event)


class LinkFactory:
    """Opens links, and closes them at the end."""

    def __init__(self) -> None:
        self.opened: list[Links] = []

    def open(self, name: str, **options: object) -> tuple[Links, Inbox]:
        """Open links with their own inbox."""
        inbox = Inbox()
        links = Links(name, **{"on_message": inbox.take, "on_change": inbox.note, **options})  # type: ignore[arg-type]
        self.opened.append(links)
        return links, inbox

    def close(self) -> None:
        """Close all of them."""
        for links in self.opened:
            links.close()


@pytest.fixture
def link_factory() -> Iterator[LinkFactory]:
    """Return a maker of links, which are closed at the end."""
    link_factory = LinkFactory()
    yield link_factory
    link_factory.close()


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> ClusterKey:
    """A cluster key."""
    return create(tmp_path_factory.mktemp("keys") / "cluster.key")


@pytest.fixture(scope="session")
def warm() -> None:
    """Make pyzmq and multiprocessing open the files that they keep open, so that these are not counted as a leak."""
    resource_tracker.ensure_running()
    a = Links("a", on_message=print)
    b = Links("b", on_message=print, open_content=lambda *_: BufferSource(CONTENT))
    a.connect("b", b.address)
    a.fetch("b", wanted_content(1), lambda *_: None)
    for links in (a, b):
        links.close()


@pytest.fixture
def nothing_leaks(warm: None) -> Iterator[None]:
    """Every test leaves no more threads and file descriptors than it found."""
    del warm
    process = psutil.Process()
    files, threads = process.num_fds(), threading.active_count()
    yield
    is_clean = until(lambda: process.num_fds() <= files and threading.active_count() <= threads)
    assert is_clean, (process.num_fds() - files, threading.enumerate())
