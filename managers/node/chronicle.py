"""What a session leaves in the log of its node: the failures of drops, with session, drop and attempt."""

import logging
from collections.abc import Sequence

from dropflow.engine.events import Assembled, Event, Failed
from dropflow.engine.instruments import Instrument
from dropflow.graph.names import oid
from dropflow.graph.physical import PhysicalGraph

__all__ = ["Chronicle"]

_log = logging.getLogger(__name__)

_MOST = 100


class Chronicle(Instrument):
    """Logs the failures of one session, the first hundred of them.

    Parameters
    ----------
    graph : PhysicalGraph
        Of the session.
    session : str
        Its name.
    """

    def __init__(self, graph: PhysicalGraph, session: str) -> None:
        self._graph = graph
        self._session = session
        self._told = 0

    def on_events(self, events: Sequence[Event]) -> None:
        """Log failures."""
        for event in events:
            if self._told > _MOST:
                return
            if isinstance(event, Failed):
                self._tell(event.drop, event.attempt, f"{event.failure.code} {event.failure.text}")
            elif isinstance(event, Assembled) and event.failure is not None:
                self._tell(event.drop, 1, f"{event.failure.code} {event.failure.text}")

    def _tell(self, drop: int, attempt: int, text: str) -> None:
        self._told += 1
        if self._told > _MOST:
            _log.warning("more drops failed: see the failures of the session", extra={"session": self._session})
            return
        context = {"session": self._session, "drop": oid(self._graph, drop), "attempt": attempt}
        _log.warning("an attempt failed: %s", text, extra=context)
