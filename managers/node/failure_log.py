"""The failures of a session's drops in the log of its node, each with session, drop and attempt."""

import logging
from collections.abc import Sequence

from dropflow.engine.events import Assembled, Event, Failed
from dropflow.engine.session import Instrument
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid

__all__ = ["FailureLog"]

_log = logging.getLogger(__name__)

_MOST = 100


class FailureLog(Instrument):
    """Logs the first hundred failures of one session.

    Parameters
    ----------
    graph : PhysicalGraph
        Graph of the session.
    session : str
        Name of the session.
    """

    def __init__(self, graph: PhysicalGraph, session: str) -> None:
        self._graph = graph
        self._session = session
        self._logged = 0

    def on_events(self, events: Sequence[Event]) -> None:
        """Log the failures among `events`."""
        for event in events:
            if self._logged > _MOST:
                return
            if isinstance(event, Failed):
                self._write(event.drop, event.attempt, f"{event.failure.code} {event.failure.text}")
            elif isinstance(event, Assembled) and event.failure is not None:
                self._write(event.drop, 1, f"{event.failure.code} {event.failure.text}")

    def _write(self, drop: int, attempt: int, text: str) -> None:
        self._logged += 1
        if self._logged > _MOST:
            _log.warning("more drops failed: see the failures of the session", extra={"session": self._session})
            return
        context = {"session": self._session, "drop": oid(self._graph, drop), "attempt": attempt}
        _log.warning("an attempt failed: %s", text, extra=context)
