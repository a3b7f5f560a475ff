"""A queue with many writers and one reader, which takes everything that is there."""

from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue whose reader takes all items together. The reader is woken, and does not poll."""

    def __init__(self) -> None:
        # SimpleQueue is written in C: waking the reader through a threading.Event doubles the cost of a message.
        self._batches: SimpleQueue[tuple[T, ...]] = SimpleQueue()

    def put(self, items: Iterable[T]) -> None:
        """Add items, from any thread or from a signal handler."""
        batch = tuple(items)
        if batch:
            self._batches.put(batch)

    def drain(self, timeout: float | None = None) -> list[T]:
        """Return everything that was put since the last call, in order; wait while there is nothing.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait at most; the list is empty if they have passed.
        """
        try:
            taken = [*self._batches.get(timeout=timeout)]
            while not self._batches.empty():  # there is no other reader
                taken += self._batches.get_nowait()
        except Empty:
            return []
        return taken
