"""Streams of contents that are still being written, by data drop and attempt of the producer.

The session sees a new stream before the core withdraws the old one, so a drop can have two for a moment.
"""

from collections.abc import Callable

from dropflow.engine.api import Handle

__all__ = ["OpenStreams"]


class OpenStreams:
    """Streams by drop and attempt.

    Parameters
    ----------
    discard : callable
        Removes what a stream needed beside its content, once it has no readers.
    """

    def __init__(self, discard: Callable[[Handle], None]) -> None:
        self._discard = discard
        self._streams: dict[int, dict[int, Handle]] = {}

    def add(self, drop: int, attempt: int, stream: Handle) -> None:
        """Add a stream."""
        self._streams.setdefault(drop, {})[attempt] = stream

    def find(self, drop: int, attempt: int) -> Handle | None:
        """Return the stream of a drop that this attempt writes, or None."""
        return self._streams.get(drop, {}).get(attempt)

    def remove(self, drop: int, attempt: int) -> None:
        """Discard one stream, if there is one."""
        attempts = self._streams.get(drop, {})
        if attempt in attempts:
            self._discard(attempts.pop(attempt))
            if not attempts:
                del self._streams[drop]

    def remove_all(self, drop: int) -> None:
        """Discard all streams of a drop."""
        for stream in self._streams.pop(drop, {}).values():
            self._discard(stream)
