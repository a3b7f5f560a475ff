"""Where a session's owner learns what happened: many put, one drains."""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["Inbox"]

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue that is emptied in one go. Its reader is woken, and never polls."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._filled = threading.Event()

    def put(self, items: Iterable[T]) -> None:
        """Add items, from any thread or from a signal handler."""
        self._items.extend(items)
        self._filled.set()

    def drain(self, timeout: float | None = None) -> list[T]:
        """Everything that was put since the last call, in order; waits while there is nothing.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait at most; an empty answer means that they are over.
        """
        self._filled.wait(timeout)
        # Cleared before the items are taken: what is put from here on sets it again.
        self._filled.clear()
        taken = []
        while self._items:
            taken.append(self._items.popleft())
        return taken
