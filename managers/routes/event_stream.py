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

from dropflow.clock import Clock, SystemClock
from dropflow.rest.session_changes import change_between
from dropflow.rest.session_records import SessionDetail
from dropflow.rest.sse import ServerSentEvent, format_event
from managers.api import Manager
from managers.routes.event_loop import follow

__all__ = ["session_events"]

_WAIT = 1.0
_PACE = 0.1
"""Shortest time between events, in seconds: people do not read faster."""


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
    return follow(reader, closing, pace=_PACE, is_gone=is_gone, clock=clock or SystemClock())


class _SessionReader:
    """What one client has seen of a session."""

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
        self._detail = self._manager.watch(self._detail.session, version=self._detail.version, seconds=_WAIT)

    def event(self, name: str, data: object) -> bytes:
        """Return an event."""
        return format_event(ServerSentEvent(name, str(self._detail.version), msgspec.json.encode(data)))
