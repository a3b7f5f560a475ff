"""Contents that are read while they are written: the files of a stream, and its writing end.

A stream is a directory beside a file that grows, on the node where it is written::

    <name>.stream/content       link to the file
                  end           once it has ended: where it is, or will be, and its size
                  <n>.reader    a FIFO that wakes a reader
                  <n>.at        position of that reader: eight bytes
                  writer        a FIFO that wakes the writer

The content itself is kept whole, on disk: a reader that starts late, or starts again, finds all of it. Readers wait for
the writer, and the writer waits for its readers: it is never more than `AHEAD` bytes ahead of the slowest, which
therefore finds its data in the page cache. The writer waits only for readers that make progress. A reader that has not
moved for `PATIENCE` seconds may be waiting for data that this writer has yet to write elsewhere; it is ignored until it
moves again. So streams cannot deadlock a graph (the deadlock of bounded channels: Parks, *Bounded Scheduling of Process
Networks*, PhD thesis, Berkeley 1995, chapter 4).

Waiting threads are woken through their FIFOs; nothing polls.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.data.storage_errors import storage_errors
from dropflow.data.stream_reader import POSITION
from dropflow.data.wake_fifo import WakeFifo, wake
from dropflow.engine.api import Handle

__all__ = ["AHEAD", "PATIENCE", "StreamPublisher"]

AHEAD = 64 << 20
"""Bytes that a writer may be ahead of its slowest reader."""

PATIENCE = 10.0
"""Seconds that a writer waits for a reader that does not move."""

_STEP = 1 << 20


class StreamPublisher:
    """The writing end of a stream: wakes its readers, and waits for those that are far behind.

    Used by one thread, except for `wake` and `stop_waiting`.

    Parameters
    ----------
    folder : str
        Directory of the stream; must not exist.
    path : str
        The file that grows.
    check : callable
        Raises an exception to end a wait.
    clock : Clock
        Measures `PATIENCE`.

    Raises
    ------
    StorageError
        The directory cannot be made, or its file system has no FIFOs.
    """

    def __init__(self, folder: str, path: str, check: Callable[[], None], clock: Clock | None = None) -> None:
        self._folder = folder
        self._check = check
        self._clock = clock or SystemClock()
        self._seen = 0
        self._unwaited: dict[str, int] = {}
        self._ignores_readers = False
        with storage_errors("make the stream", folder):
            Path(folder).mkdir(parents=True)
            Path(folder, "content").symlink_to(path)
            self._fifo = WakeFifo(f"{folder}/writer")

    def grown(self, size: int) -> None:
        """Announce that the file has `size` bytes. Waits while that is too far ahead of a reader that makes progress.

        Raises
        ------
        StorageError
            The readers cannot be woken.
        """
        with storage_errors("wake the readers of", self._folder):
            self._wake_readers()
            if not self._ignores_readers and size - self._seen > AHEAD - _STEP:
                self._seen = self._pace(size)

    def end(self, content: Handle) -> None:
        """Announce that the file is complete, and will be committed as `content`.

        Raises
        ------
        StorageError
            The readers cannot be woken.
        """
        with storage_errors("end the stream", self._folder):
            with contextlib.suppress(FileNotFoundError):  # the stream was removed
                temporary = Path(self._folder, "end.new")
                temporary.write_bytes(msgspec.msgpack.encode(content))
                temporary.replace(Path(self._folder, "end"))
            self._wake_readers()
        self._fifo.close()

    def stop_waiting(self) -> None:
        """Do not wait for readers any more. May be called from any thread."""
        self._ignores_readers = True
        self._fifo.wake()

    def wake(self) -> None:
        """Call `check` again in a waiting thread. May be called from any thread."""
        self._fifo.wake()

    def close(self) -> None:
        """Close the stream without an end. Readers wait until they are stopped. Idempotent."""
        self._fifo.close()

    def _wake_readers(self) -> None:
        for name in self._names(".reader"):
            wake(f"{self._folder}/{name}")

    def _pace(self, size: int) -> int:
        """Wait for readers that make progress. Returns the position of the slowest of them."""
        since: dict[str, tuple[int, float]] = {}
        while True:
            places = self._places()
            behind = {name: place for name, place in places.items() if size - place > AHEAD}
            if self._ignores_readers or not behind:
                return min(places.values(), default=size)
            now = self._clock.monotonic()
            since = {name: _since(place, now, since.get(name)) for name, place in behind.items()}
            lost = {
                name: place
                for name, (place, began) in since.items()
                if now - began >= PATIENCE or not wake(f"{self._folder}/{name.removesuffix('.at')}.reader")
            }
            if lost:
                self._unwaited |= lost
                continue
            # Called before each wait: a stop before it is seen here, and a later one wakes the wait.
            self._check()
            self._fifo.wait(min(began for _, began in since.values()) + PATIENCE - now)

    def _places(self) -> dict[str, int]:
        """Return the positions of the readers that the writer waits for."""
        found = ((name, self._position(name)) for name in self._names(".at"))
        return {name: place for name, place in found if place is not None and self._unwaited.get(name) != place}

    def _names(self, suffix: str) -> list[str]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - on the path of every write
        except FileNotFoundError:
            return []  # the stream was removed
        return [name for name in names if name.endswith(suffix)]

    def _position(self, name: str) -> int | None:
        """Return the position of a reader; None if it is closed, or has not begun."""
        try:
            with open(f"{self._folder}/{name}", "rb") as stream:  # noqa: PTH123 - as above
                data = stream.read(POSITION.size)
        except FileNotFoundError:
            return None
        return int(POSITION.unpack(data)[0]) if len(data) == POSITION.size else None


def _since(place: int, now: float, before: tuple[int, float] | None) -> tuple[int, float]:
    """Return the position of a reader, and the time since when it is there."""
    return before if before is not None and before[0] == place else (place, now)
