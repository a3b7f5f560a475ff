"""Room for what a peer has not dealt with: senders wait here, and nowhere else."""

import threading
from collections.abc import Callable

from dropflow.errors import DropflowError, LinkError

__all__ = ["SendWindow"]


class SendWindow:
    """Bytes that may be on their way to one peer. Thread-safe.

    Parameters
    ----------
    peer : str
        Name, for messages.
    limit : int
        Bytes. A message larger than that may pass when nothing else is on its way.
    """

    def __init__(self, peer: str, limit: int) -> None:
        self._peer = peer
        self._limit = limit
        self._changed = threading.Condition()
        self._taken = 0
        self._waiting = 0
        self._error: DropflowError | None = None

    @property
    def taken(self) -> int:
        """Bytes on their way."""
        return self._taken

    @property
    def waiting(self) -> int:
        """Senders that wait for room."""
        return self._waiting

    def take(
        self, size: int, *, timeout: float | None, give_up: Callable[[], bool] | None, urgent: bool = False
    ) -> None:
        """Wait for room for `size` bytes, and take it; who is `urgent` takes it whether it is there or not.

        Raises
        ------
        LinkError
            There was no room within `timeout` seconds, or `give_up` said so after a `nudge`.
        DropflowError
            The error with which the window was shut.
        """
        with self._changed:
            if self._error is None and (urgent or self._fits(size)):
                self._taken += size
                return
            self._waiting += 1
            try:
                done = self._changed.wait_for(lambda: self._may_go(size, give_up), timeout)
            finally:
                self._waiting -= 1
            if self._error is not None:
                raise self._error
            if not self._fits(size):
                why = "the sender gave up waiting" if done else f"it took nothing for {timeout:g} s"
                hint = "look whether that node is overloaded, stopped or out of reach"
                raise LinkError(f"node {self._peer!r} is {self._taken:,} bytes behind: {why}", hint=hint)
            self._taken += size

    def give(self, size: int) -> None:
        """Give back room."""
        with self._changed:
            self._taken -= size
            if self._waiting:
                self._changed.notify_all()

    def fits(self, size: int) -> bool:
        """Whether `take` would not wait."""
        with self._changed:
            return self._error is not None or self._fits(size)

    def nudge(self) -> None:
        """Let all waiting senders ask again whether to give up."""
        with self._changed:
            self._changed.notify_all()

    def shut(self, error: DropflowError) -> None:
        """From now on, raise `error` at every sender."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def open(self) -> None:
        """Undo `shut`."""
        with self._changed:
            self._error = None

    def _fits(self, size: int) -> bool:
        return self._taken == 0 or self._taken + size <= self._limit

    def _may_go(self, size: int, give_up: Callable[[], bool] | None) -> bool:
        return self._error is not None or self._fits(size) or (give_up is not None and give_up())
