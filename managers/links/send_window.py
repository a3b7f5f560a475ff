"""Flow control of messages: senders wait here while a peer has too much unprocessed data.

The credit of fetched contents is separate: see `managers.links.transfer`.
"""

import threading
from collections.abc import Callable

from dropflow.errors import DropflowError, LinkError

__all__ = ["SendWindow"]


class SendWindow:
    """Bytes that may be unprocessed by one peer. Thread-safe.

    Parameters
    ----------
    peer : str
        Name, for messages.
    limit : int
        Bytes. A larger message may pass when nothing else is unprocessed.
    """

    def __init__(self, peer: str, limit: int) -> None:
        self._peer = peer
        self._limit = limit
        # Guards the counts below: any thread sends, the I/O thread returns credit. A queue would not do, because a
        # sender must stop before it hands over more than the limit.
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

    def acquire(
        self, size: int, *, timeout: float | None, give_up: Callable[[], bool] | None, urgent: bool = False
    ) -> None:
        """Wait for room for `size` bytes, and take it; an `urgent` message takes it without waiting.

        Raises
        ------
        LinkError
            There was no room within `timeout` seconds, or `give_up` returned true.
        DropflowError
            The error that `fail` was called with.
        """
        with self._changed:
            if not (urgent and self._error is None):
                self._wait(lambda: self._fits(size), timeout, give_up)
            self._used += size

    def wait_for_room(self, *, give_up: Callable[[], bool] | None) -> None:
        """Wait while more than the limit is unprocessed; also returns on an error and when `give_up` returns true."""
        if self._used <= self._limit:
            return
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._error is not None or self._used <= self._limit or _is(give_up))
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

    def _wait(self, has_room: Callable[[], bool], timeout: float | None, give_up: Callable[[], bool] | None) -> None:
        if self._error is None and has_room():
            return
        self._waiting += 1
        try:
            done = self._changed.wait_for(lambda: self._error is not None or has_room() or _is(give_up), timeout)
        finally:
            self._waiting -= 1
        if self._error is not None:
            raise self._error
        if not has_room():
            why = "the sender stopped waiting" if done else f"it processed nothing for {timeout:g} s"
            hint = "check whether that node is overloaded, stopped or out of reach"
            raise LinkError(f"node {self._peer!r} is {self._used:,} bytes behind: {why}", hint=hint)

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit


def _is(give_up: Callable[[], bool] | None) -> bool:
    return give_up is not None and give_up()
