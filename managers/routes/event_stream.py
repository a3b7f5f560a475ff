"""A session as server-sent events: the whole session first, then each change, then the end.

========= ================================================================================================
event     data
========= ================================================================================================
session   a whole `SessionDetail`: the first event, and again if a change cannot describe the difference
change    only the fields that differ; ``logical`` has only the logical nodes that differ, by their ``key``
end       empty: the session is over; close the stream
========= ================================================================================================

The id of an event is the version of the session. A client that reconnects with ``Last-Event-ID`` gets the whole
session, or nothing until the next change if it has the present version.
"""

from collections.abc import Callable, Generator
from threading import Event as Signal

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, NotFoundError
from dropflow.rest.error_body import to_body
from dropflow.rest.schema import SessionDetail
from dropflow.rest.session_changes import change_between
from dropflow.rest.sse import ServerSentEvent, format_event, heartbeat
from managers.api import Manager

__all__ = ["session_events"]

_WAIT = 1.0
_PACE = 0.1
"""Shortest time between events, in seconds: people do not read faster."""
_HEARTBEAT = 15.0


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
    return _events(manager, detail, closing, seen=seen, is_gone=is_gone, clock=clock or SystemClock())


def _events(
    manager: Manager, detail: SessionDetail, closing: Signal, *, seen: bool, is_gone: Callable[[], bool], clock: Clock
) -> Generator[bytes]:
    # Without an event, a comment opens the stream.
    yield heartbeat() if seen else _event("session", detail, detail)
    sent = clock.monotonic()
    while not detail.is_over:
        if closing.wait(_PACE) or is_gone():
            return
        try:
            after = manager.watch(detail.session, version=detail.version, seconds=_WAIT)
        except NotFoundError as error:
            yield _event("gone", detail, to_body(error))
            break
        except DropflowError as error:
            # A child that cannot be reached now may be reached later; the client shows why nothing changes.
            yield _event("trouble", detail, to_body(error))
            if closing.wait(_WAIT):
                return
            continue
        if after.version != detail.version or after.epoch != detail.epoch:
            change = change_between(detail, after)
            yield _event("session", after, after) if change is None else _event("change", after, change)
            detail, sent = after, clock.monotonic()
        elif clock.monotonic() - sent >= _HEARTBEAT:
            yield heartbeat()
            sent = clock.monotonic()
    yield _event("end", detail, {})


def _event(name: str, detail: SessionDetail, data: object) -> bytes:
    return format_event(ServerSentEvent(name, str(detail.version), msgspec.json.encode(data)))
