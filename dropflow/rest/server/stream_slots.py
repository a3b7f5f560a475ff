"""A limit on the event streams and long polls that are open at a time."""

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager

from dropflow.errors import HttpError

__all__ = ["StreamSlots"]


class StreamSlots:
    """A limit on open event streams and long polls, and the signal that ends them all.

    Each holds a thread of the server. A request that finds no free slot is refused.
    """

    def __init__(self, limit: int) -> None:
        # Counts free slots for the threads of the server, which are refused rather than made to wait.
        self._free = threading.BoundedSemaphore(limit)
        self.closing = threading.Event()

    @contextmanager
    def slot(self) -> Generator[None]:
        """Hold a slot while a long poll waits.

        Raises
        ------
        HttpError
            503 when too many streams are open.
        """
        self._acquire()
        try:
            yield
        finally:
            self._free.release()

    def hold(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Return `chunks`, which hold a slot until they end or the client closes the connection.

        The result must be iterated or closed, which `dropflow.rest.server.bottle_app` does.

        Raises
        ------
        HttpError
            503 when too many streams are open.
        """
        self._acquire()
        held = self._held(chunks)
        next(held)
        return held

    def _acquire(self) -> None:
        if not self._free.acquire(blocking=False):
            raise HttpError(
                503, "too many long polls and event streams are open", hint="ask again later, or poll less often"
            )

    def _held(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield b""  # taken by `hold`: a generator that has not started would not release its slot when closed
            for chunk in chunks:
                if self.closing.is_set():
                    return
                yield chunk
        finally:
            self._free.release()
