"""The states of the drops of a session as server-sent events: those of all drops, then what changes, then the end.

========= ================================================================================================
event     data
========= ================================================================================================
whole     ``states``: one octet for each drop of the graph, by row, in base64; 255 for a drop whose node did not answer
change    ``drops`` (uint32, little-endian) and ``states`` (uint8), in base64
trouble   an error: why nothing comes at the moment
gone      the session was deleted
end       empty: the session is over; close the stream
========= ================================================================================================

`managers.state_hub.StateHub` reads a session once for all of its watchers, and encodes each event once. A client that
reconnects with ``Last-Event-ID`` gets the changes that it has missed, if they are still known.
"""

from collections.abc import Callable, Generator
from threading import Event as Signal

from dropflow.clock import Clock, SystemClock
from managers.routes.event_loop import follow
from managers.state_hub import UNSEEN, StateHub, WatchedStates, in_base64, state_event

__all__ = ["state_events"]

_PACE = 0.2
"""Shortest time between two events, in seconds."""


def state_events(
    hub: StateHub,
    session: str,
    closing: Signal,
    *,
    last: str = "",
    is_gone: Callable[[], bool] = bool,
    clock: Clock | None = None,
) -> Generator[bytes] | None:
    """Return the events of the states of a session, until it is over or the server closes.

    Parameters
    ----------
    hub : StateHub
        Of the server.
    session : str
        Name of the session.
    closing : threading.Event
        Set when the server closes.
    last : str
        ``Last-Event-ID`` of the request.
    is_gone : callable
        Returns whether the client has closed the connection, which ends the events within about a second.
    clock : Clock, optional
        For the times of heartbeats.

    Returns
    -------
    generator of bytes or None
        None if the client has seen the end already. The answer is then 204, because browsers reconnect otherwise.

    Raises
    ------
    NotFoundError
        There is no such session.
    """
    found = hub.refresh(session, UNSEEN, seconds=0.0)
    if found.is_over and last == found.event_id(found.events.last):
        return None
    reader = _StateReader(hub, session, found, last)
    return follow(reader, closing, pace=_PACE, is_gone=is_gone, clock=clock or SystemClock())


class _StateReader:
    """What one client has seen of a session."""

    def __init__(self, hub: StateHub, session: str, found: WatchedStates, last: str) -> None:
        self._hub = hub
        self._session = session
        self._found = found
        name, _, number = last.partition(".")
        is_known = name == found.name and number.isdecimal() and found.events.before <= int(number)
        self._seen = int(number) if is_known else -1
        self.is_over = False

    @property
    def event_id(self) -> str:
        """The id of the last event that the client has."""
        return self._found.event_id(self._seen)

    def new(self) -> list[bytes]:
        """Return the events that the client does not have."""
        found, new = self._found, []
        self.is_over, events = found.is_over, found.events  # in this order: after the end there are no events
        if self._seen < 0:
            self._seen = events.last
            new.append(state_event("whole", self.event_id, {"states": in_base64(found.states.tobytes())}))
        else:
            new += events.after(self._seen)
            self._seen = events.last
        if self.is_over:
            new.append(state_event("end", self.event_id, {}))
        return new

    def wait(self) -> None:
        """Wait about a second for further events."""
        after = self._hub.refresh(self._session, self._seen)
        if after.name != self._found.name or after.events.before > self._seen:
            self._seen = -1
        self._found = after

    def event(self, name: str, data: object) -> bytes:
        """Return an event; a client that has seen ``gone`` cannot go on from it."""
        return state_event(name, "" if name == "gone" else self.event_id, data)
