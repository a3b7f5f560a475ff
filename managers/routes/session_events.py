"""A session as server-sent events: the whole session first, then each change, then the end.

========= ================================================================================================
event     data
========= ================================================================================================
session   a whole `SessionDetail`: the first event, and again if a change cannot describe the difference
change    only the fields that differ; ``logical`` has only the logical nodes that differ, by their ``key``
gone      the session was deleted; the stream is over
trouble   an error: why nothing comes at the moment
end       empty: the session is over; close the stream
========= ================================================================================================

The id of an event is the version of the session. A client that reconnects with ``Last-Event-ID`` gets the whole
session, or nothing until the next change if it has the present version.
"""

from collections.abc import Callable, Generator
from threading import Event as Signal

import msgspec

from dropflow.api.error_body import to_body
from dropflow.api.event_stream import ServerSentEvent, format_event, heartbeat
from dropflow.api.manager import Manager
from dropflow.api.session_records import SessionDetail, change_between
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, NotFoundError
from managers.state_hub import UNSEEN, StateHub, WatchedStates, in_base64, state_event

_AGAIN = 1.0
"""Seconds after an error until the next attempt."""
_HEARTBEAT_SECONDS = 15.0
"""Seconds without a change, after which a comment is sent to keep the connection open."""
_WAIT_SECONDS = 1.0
"""Seconds of one wait for another version of the session."""
_EVENT_STREAM_PACE = 0.1
"""Shortest time between events, in seconds: people do not read faster."""
_STATE_STREAM_PACE = 0.2
"""Shortest time between two events, in seconds."""
_MOST_DIGITS = 18
"""Digits of the number of an event; a client that sends more gets all states."""

# Sends what happens in a session as server-sent events, until it is over: the same for all streams of events.
#
# A reader knows one kind of stream: what a client has not seen yet, and how to wait for more. The loop paces the
# events, sends heartbeats, and reports errors that may pass as ``trouble``.


def follow(
    reader: "_SessionReader | _StateReader", closing: Signal, *, pace: float, is_gone: Callable[[], bool], clock: Clock
) -> Generator[bytes]:
    """Yield events, until the session is over, it is deleted, the client has gone or the server closes.

    Parameters
    ----------
    reader : _SessionReader or _StateReader
        Reads the events that the client does not have.
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
        if new or clock.monotonic() - sent >= _HEARTBEAT_SECONDS:
            sent = clock.monotonic()
            if not new:
                yield heartbeat()


def session_events(
    manager: Manager,
    session: str,
    closing: Signal,
    *,
    last: str = "",
    is_gone: Callable[[], bool] = bool,
    clock: Clock | None = None,
) -> Generator[bytes] | None:
    """Return the events of a session, until it is over or the server closes.

    Parameters
    ----------
    manager : Manager
        Where the session is.
    session : str
        Its name.
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
    detail = manager.session(session)
    seen = last == str(detail.version)
    if seen and detail.is_over:
        return None
    reader = _SessionReader(manager, detail, is_seen=seen)
    return follow(reader, closing, pace=_EVENT_STREAM_PACE, is_gone=is_gone, clock=clock or SystemClock())


class _SessionReader:
    """Reads the events of a session that one client does not have."""

    def __init__(self, manager: Manager, detail: SessionDetail, *, is_seen: bool) -> None:
        self._manager = manager
        self._seen = detail if is_seen else None
        self._detail = detail
        self.is_over = False

    def new(self) -> list[bytes]:
        """Return the events that the client does not have."""
        seen, detail, new = self._seen, self._detail, []
        if seen is None or (seen.version, seen.epoch) != (detail.version, detail.epoch):
            change = None if seen is None else change_between(seen, detail)
            new.append(self.event("session", detail) if change is None else self.event("change", change))
        self._seen, self.is_over = detail, detail.is_over
        if self.is_over:
            new.append(self.event("end", {}))
        return new

    def wait(self) -> None:
        """Wait about a second for another version."""
        self._detail = self._manager.watch(self._detail.session, version=self._detail.version, seconds=_WAIT_SECONDS)

    def event(self, name: str, data: object) -> bytes:
        """Return an event."""
        return format_event(ServerSentEvent(name, str(self._detail.version), msgspec.json.encode(data)))


# The states of the drops of a session as server-sent events: those of all drops, then what changes, then the end.
#
# ========= ================================================================================================
# event     data
# ========= ================================================================================================
# whole     ``states``: one octet for each drop of the graph, by row, in base64; 255 for a drop whose node did not
#           answer
# change    ``drops`` (uint32, little-endian) and ``states`` (uint8), in base64
# trouble   an error: why nothing comes at the moment
# gone      the session was deleted
# end       empty: the session is over; close the stream
# ========= ================================================================================================
#
# `managers.state_hub.StateHub` reads a session once for all of its watchers, and encodes each event once. A client that
# reconnects with ``Last-Event-ID`` gets the changes that it has missed, if they are still known.


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
        The hub of the server.
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
    watched = hub.refresh(session, UNSEEN, seconds=0.0)
    if watched.is_over and last == watched.event_id(watched.events.last):
        return None
    reader = _StateReader(hub, session, watched, last)
    return follow(reader, closing, pace=_STATE_STREAM_PACE, is_gone=is_gone, clock=clock or SystemClock())


class _StateReader:
    """Reads the changes of the states of drops that one client does not have."""

    def __init__(self, hub: StateHub, session: str, watched: WatchedStates, last: str) -> None:
        self._hub = hub
        self._session = session
        self._found = watched
        name, _, number = last.partition(".")
        is_number = number.isdecimal() and len(number) <= _MOST_DIGITS
        is_known = name == watched.name and is_number and watched.events.before <= int(number)
        self._seen = int(number) if is_known else -1
        self.is_over = False

    @property
    def event_id(self) -> str:
        """The id of the last event that the client has."""
        return self._found.event_id(self._seen)

    def new(self) -> list[bytes]:
        """Return the events that the client does not have."""
        watched, new = self._found, []
        self.is_over, events = watched.is_over, watched.events  # in this order: after the end there are no events
        if self._seen < 0:
            self._seen = events.last
            new.append(state_event("whole", self.event_id, {"states": in_base64(watched.states.tobytes())}))
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
