"""What worker processes write to their descriptors 1 and 2, past Python: compiled code, and programs that inherit them.

A pipe brings it to the pool, which keeps the end of what each attempt wrote. The attempt is the one that the worker is
at: a worker goes on to the next only when its pipe is empty (see `dropflow.engine.runners.worker`).
"""

import os
from collections.abc import Iterator

__all__ = ["Tail", "WorkerOutput"]

_BLOCK = 1 << 16
_PIPE = 1 << 20
"""Bytes that a pipe holds at most."""
_KEPT = 1 << 16
_LAST = 2000


class Tail:
    """The last `limit` bytes of what was added, and how many came before."""

    def __init__(self, limit: int = _KEPT) -> None:
        self._limit = limit
        self._data = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self._data += data
        if len(self._data) > 2 * self._limit:  # not at every call, which would move the bytes each time
            self._cut()

    def content(self) -> bytes:
        """What is kept; a line before it says how much is missing."""
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
        """What is kept of each attempt, by its number; `dropflow.engine.runners.marker.IDLE` for none."""
        self._last = Tail(_LAST)

    def read(self, attempt: int) -> bool:
        """Take in a block as the output of `attempt`; False when there is none."""
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
        """Take in what is in the pipe, at most what it holds: children that still write are not waited for."""
        for _ in range(_PIPE // _BLOCK):
            if not self.read(attempt):
                break

    def take(self, *, but: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Give away what is kept, attempt by attempt, `but` one."""
        for attempt in [attempt for attempt in self.by_attempt if attempt != but]:
            yield attempt, self.by_attempt.pop(attempt).content()

    @property
    def end(self) -> str:
        """The end of all that was written."""
        return self._last.content()[-_LAST:].decode(errors="replace").strip()

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.descriptor)
