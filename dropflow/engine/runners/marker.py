"""A page of memory that a worker process shares with its pool: its current and last attempt, and its heartbeats.

The pool reads it when the worker is dead, stopped, or too busy to answer on its socket.
"""

import mmap
import struct

__all__ = ["IDLE", "Marker"]

IDLE = -1
"""In place of the number of an attempt: the worker has none."""

# Native alignment: each field is written and read by one instruction, so a reader never sees half of a write.
_NUMBER = struct.Struct("@q")
_BEAT = struct.Struct("@Q")
_BEAT_AT = 8
_LAST_AT = 16


class Marker:
    """Both sides of the page.

    Parameters
    ----------
    descriptor : int
        Of a file of `SIZE` zero bytes; may be closed afterwards.
    """

    SIZE = mmap.PAGESIZE

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, self.SIZE)

    @property
    def current(self) -> int:
        """Number of the attempt that the worker is at, or was at when it died; `IDLE` for none."""
        return int(_NUMBER.unpack_from(self._page, 0)[0])

    @current.setter
    def current(self, number: int) -> None:
        _NUMBER.pack_into(self._page, 0, number)

    @property
    def last(self) -> int:
        """Number of the last attempt that the worker began; `IDLE` for none."""
        return int(_NUMBER.unpack_from(self._page, _LAST_AT)[0])

    def clear(self) -> None:
        """Write that no attempt has begun yet."""
        self.current = IDLE
        _NUMBER.pack_into(self._page, _LAST_AT, IDLE)

    def begin(self, number: int) -> None:
        """Make an attempt the current one, and the last that was begun."""
        _NUMBER.pack_into(self._page, _LAST_AT, number)
        _NUMBER.pack_into(self._page, 0, number)

    @property
    def beats(self) -> int:
        """How often the worker's heartbeat thread has run."""
        return int(_BEAT.unpack_from(self._page, _BEAT_AT)[0])

    def beat(self) -> None:
        """Increment the number of heartbeats."""
        _BEAT.pack_into(self._page, _BEAT_AT, self.beats + 1)

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()
