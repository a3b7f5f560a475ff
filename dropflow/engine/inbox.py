"""Where a session's owner learns what happened: many put, one drains."""

from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

__all__ = ["Inbox"]

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue that is emptied in one go. Its reader is woken, and never polls."""

    def __init__(self) -> None:
        # Written in C: with a threading.Event, both ends hold the interpreter for as long as all else a message needs.
        self._batches: SimpleQueue[tuple[T, ...]] = SimpleQueue()

    def put(self, items: Iterable[T]) -> None:
        """Add items, from any thread or from a signal handler."""
        batch = tuple(items)
        if batch:
            self._batches.put(batch)

    def drain(self, timeout: float | None = None) -> list[T]:
        """Everything that was put since the last call, in order; waits while there is nothing.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait at most; an empty answer means that they are over.
        """
        try:
            taken = [*self._batches.get(timeout=timeout)]
            while not self._batches.empty():  # nobody else takes
                taken += self._batches.get_nowait()
        except Empty:
            return []
        return taken
