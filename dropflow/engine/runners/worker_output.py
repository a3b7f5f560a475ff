"""Output that compiled code and child programs write to descriptors 1 and 2 of a worker process, without Python.

The pool reads it from a pipe and keeps the end of the output of each attempt. It belongs to the current attempt of the
worker: a worker begins the next attempt only when its pipe is empty (see `dropflow.engine.runners.worker`).
"""

import os
from collections.abc import Iterator

__all__ = ["Tail", "WorkerOutput"]

_BLOCK = 1 << 16
_PIPE = 1 << 20
"""The most bytes that a pipe holds."""
_KEPT = 1 << 16
_LAST = 2000


class Tail:
    """The last `limit` bytes of what was added, and the number of bytes before them."""

    def __init__(self, limit: int = _KEPT) -> None:
        self._limit = limit
        self._data = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self._data += data
        if len(self._data) > 2 * self._limit:  # seldom, because it moves the bytes that are kept
            self._cut()

    def content(self) -> bytes:
        """Return what is kept, after a line that says how many bytes are missing."""
        self._cut()
        note = b"[... %d bytes left out ...]\n" % self._dropped if self._dropped else b""
        return note + bytes(self._data)

    def _cut(self) -> None:
        surplus = len(self._data) - self._limit
        if surplus > 0:
            self._dropped += surplus
            del self._data[:surplus]


class WorkerOutput:
    """The reading end of the pipe of one worker process. Never blocks.

    Parameters
    ----------
    descriptor : int
        The reading end; closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.by_attempt: dict[int, Tail] = {}
        """Output by number of the attempt; `dropflow.engine.runners.marker.IDLE` outside of attempts."""
        self._last = Tail(_LAST)

    def read(self, attempt: int) -> bool:
        """Read a block as the output of `attempt`; return False if there is none."""
        try:
            block = os.read(self.descriptor, _BLOCK)
        except BlockingIOError:
            return False
        if block:
            self._last.add(block)
            tail = self.by_attempt.get(attempt)
            if tail is None:
                tail = self.by_attempt[attempt] = Tail()
            tail.add(block)
        return bool(block)

    def read_all(self, attempt: int) -> None:
        """Read what is in the pipe, and no more than it holds: children may go on writing."""
        for _ in range(_PIPE // _BLOCK):
            if not self.read(attempt):
                break

    def take(self, *, but: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Remove and yield what is kept, attempt by attempt, except for `but`."""
        for attempt in [attempt for attempt in self.by_attempt if attempt != but]:
            yield attempt, self.by_attempt.pop(attempt).content()

    @property
    def end(self) -> str:
        """The end of the output of all attempts."""
        return self._last.content()[-_LAST:].decode(errors="replace").strip()

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.descriptor)
