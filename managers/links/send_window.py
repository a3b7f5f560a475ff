"""Flow control of messages: senders wait here while a peer has too much unprocessed data.

The credit of fetched contents is separate: see `managers.links.transfer`.
"""

import threading
from collections.abc import Callable

from dropflow.errors import DropflowError

MOST_IN_FRAME = 16_384
"""Bytes up to which a message is sent in one frame; above, copying it costs more than another frame."""
FRAME_LIMIT = 8 << 20
"""Bytes of the largest frame that may be sent; ZeroMQ closes a connection that brings a larger one."""
MESSAGE_LIMIT = 1 << 30
"""Bytes of the largest message, body and raw frames together. Larger contents go through the data plane."""


class SendWindow:
    """Bytes that may be unprocessed by one peer. Thread-safe.

    Parameters
    ----------
    limit : int
        Bytes. Senders take room beyond it, and wait before they take more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Guards the counts below: any thread sends, the I/O thread returns credit. A queue would not do, because
        # several senders wait for one peer.
        self._changed = threading.Condition()
        self._used = 0
        self._waiting = 0
        self._error: DropflowError | None = None

    @property
    def used(self) -> int:
        """Bytes that are unprocessed."""
        return self._used

    @property
    def waiting(self) -> int:
        """Number of senders that wait for room."""
        return self._waiting

    def acquire(self, size: int) -> None:
        """Take room for `size` bytes, also beyond the limit.

        Raises
        ------
        DropflowError
            The error that `fail` was called with.
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            self._used += size

    def wait_for_room(self, *, give_up: Callable[[], bool]) -> None:
        """Wait while more than the limit is unprocessed; also returns on an error and when `give_up` returns true."""
        if self._used <= self._limit:
            return
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._error is not None or self._used <= self._limit or give_up())
            finally:
                self._waiting -= 1

    def release(self, size: int) -> None:
        """Return room for `size` bytes."""
        with self._changed:
            self._used -= size
            if self._waiting:
                self._changed.notify_all()

    def wake_waiting(self) -> None:
        """Make all waiting senders evaluate `give_up` again."""
        with self._changed:
            self._changed.notify_all()

    def fail(self, error: DropflowError) -> None:
        """Raise `error` in all senders from now on."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def reset(self) -> None:
        """Undo `fail`."""
        with self._changed:
            self._error = None
