"""Sends what happens in a session as server-sent events, until it is over: the same for all streams of events.

A reader knows one kind of stream: what a client has not seen yet, and how to wait for more. The loop paces the events,
sends heartbeats, and reports errors that may pass as ``trouble``.
"""

from collections.abc import Callable, Generator, Sequence
from threading import Event as Signal
from typing import Protocol

from dropflow.clock import Clock
from dropflow.errors import DropflowError, NotFoundError
from dropflow.rest.error_body import to_body
from dropflow.rest.sse import heartbeat

__all__ = ["EventReader", "follow"]

_AGAIN = 1.0
"""Seconds after an error until the next attempt."""
_HEARTBEAT = 15.0


class EventReader(Protocol):
    """What one client has seen of a session."""

    @property
    def is_over(self) -> bool:
        """Whether the client has seen the end of the session."""
        ...

    def new(self) -> Sequence[bytes]:
        """Return the events that the client does not have; the last one is ``end`` if the session is over."""
        ...

    def wait(self) -> None:
        """Wait about a second for further events.

        Raises
        ------
        NotFoundError
            The session was deleted.
        DropflowError
            It cannot be read now.
        """
        ...

    def event(self, name: str, data: object) -> bytes:
        """Return an event with the id of the last one that the client has."""
        ...


def follow(
    reader: EventReader, closing: Signal, *, pace: float, is_gone: Callable[[], bool], clock: Clock
) -> Generator[bytes]:
    """Yield events, until the session is over, it is deleted, the client has gone or the server closes.

    Parameters
    ----------
    reader : EventReader
        What is sent.
    closing : threading.Event
        Set when the server closes.
    pace : float
        Shortest time between two events, in seconds.
    is_gone : callable
        Returns whether the client has closed the connection.
    clock : Clock
        For the times of heartbeats.
    """
    # Without an event, a comment opens the stream.
    yield from reader.new() or (heartbeat(),)
    sent = clock.monotonic()
    while not reader.is_over:
        if closing.wait(pace) or is_gone():
            return
        try:
            reader.wait()
        except NotFoundError as error:
            yield reader.event("gone", to_body(error))
            return
        except DropflowError as error:
            # A manager below that cannot be reached now may be reached later; the client shows why nothing changes.
            yield reader.event("trouble", to_body(error))
            if closing.wait(_AGAIN):
                return
            continue
        new = reader.new()
        yield from new
        if new or clock.monotonic() - sent >= _HEARTBEAT:
            sent = clock.monotonic()
            if not new:
                yield heartbeat()
