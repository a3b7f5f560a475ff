"""Waits for new lines of a log, for a request that asks for those after a cursor."""

from collections.abc import Callable

import msgspec

from dropflow.clock import SystemClock
from dropflow.logs.records import LogPage, LogQuery
from dropflow.rest.server.stream_slots import StreamSlots

__all__ = ["page_with_lines"]

_PACE = 0.3
"""Seconds between two looks at the files of a log."""
_LAST_LINES = 0.6
"""Seconds after the end in which the last lines come."""


def page_with_lines(
    read: Callable[[LogQuery], LogPage],
    query: LogQuery,
    streams: StreamSlots,
    is_gone: Callable[[], bool],
    has_ended: Callable[[], bool] = lambda: False,
) -> LogPage:
    """Return a page of a log, once it has a line or the seconds of the query are over.

    Parameters
    ----------
    read : callable
        Returns a page without waiting.
    streams : StreamSlots
        Limits the requests that wait.
    is_gone : callable
        Whether the client has closed its connection.
    has_ended : callable
        Whether nothing more is written.

    Raises
    ------
    HttpError
        503: too many requests wait.
    """
    # Children do not wait: each level of managers would add its own time.
    once = msgspec.structs.replace(query, seconds=0.0)
    page = read(once)
    if not query.seconds or not query.is_forward or page.lines:
        return page
    with streams.slot():
        clock = SystemClock()
        end = clock.monotonic() + query.seconds
        # The time that the children take to answer counts too: the client waits no longer than it asked for.
        is_over = False
        while not page.lines and clock.monotonic() < end and not is_gone():
            if not is_over and has_ended():
                is_over, end = True, min(end, clock.monotonic() + _LAST_LINES)
            if streams.closing.wait(_PACE):
                break
            # What was searched already is not searched again.
            page = read(msgspec.structs.replace(once, after=page.newer or query.after))
        return page
