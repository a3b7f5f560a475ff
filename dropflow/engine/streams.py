"""The contents that a session knows of while they are still being written, by data drop and attempt of the producer.

The core takes in news after the session has seen them, so a drop can have a new stream before the old one is withdrawn.
"""

from collections.abc import Callable

from dropflow.engine.api import Handle

__all__ = ["Streams"]


class Streams:
    """Streams by drop and attempt.

    Parameters
    ----------
    discard : callable
        Removes what a stream needed beside its content, when nobody is to read from it any more.
    """

    def __init__(self, discard: Callable[[Handle], None]) -> None:
        self._discard = discard
        self._streams: dict[int, dict[int, Handle]] = {}

    def __bool__(self) -> bool:
        return bool(self._streams)

    def add(self, drop: int, attempt: int, stream: Handle) -> None:
        """Remember a stream."""
        self._streams.setdefault(drop, {})[attempt] = stream

    def find(self, drop: int, attempt: int) -> Handle | None:
        """The stream of a drop that this attempt writes."""
        return self._streams.get(drop, {}).get(attempt)

    def forget(self, drop: int, attempt: int) -> None:
        """Discard one stream, if it is known."""
        attempts = self._streams.get(drop, {})
        if attempt in attempts:
            self._discard(attempts.pop(attempt))
            if not attempts:
                del self._streams[drop]

    def forget_all(self, drop: int) -> None:
        """Discard all streams of a drop."""
        for stream in self._streams.pop(drop, {}).values():
            self._discard(stream)
