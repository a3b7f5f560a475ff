"""The states of the drops of a node's sessions, and their changes since a client last asked."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dropflow.graph.slices import Slice
from dropflow.rest.state_records import DropStates, StateLog
from managers.node.session_views import LiveSession, SessionCaller

__all__ = ["StateLogs"]


class StateLogs:
    """The log of each session that a client has asked for. A log is read and written in the thread of its session."""

    def __init__(self) -> None:
        self._logs: WeakKeyDictionary[Any, StateLog] = WeakKeyDictionary()

    def read(self, session: SessionCaller, piece: Slice, since: str) -> DropStates:
        """Return the states of the drops of this node, or their changes since the answer with the cursor `since`.

        Parameters
        ----------
        session : SessionCaller
            A session that runs here, or ran before. In another view it is another object.
        piece : Slice
            Its drops.
        """

        def look(live: LiveSession) -> DropStates:
            if live.core.graph is not piece.graph:  # the view has just changed: the next request has the new one
                return DropStates(cursor=since)
            log = self._logs.get(session)
            if log is None:
                log = self._logs[session] = StateLog(piece.drop[piece.is_own])
            log.update(np.frombuffer(bytes(live.core.drops.states), dtype=np.uint8)[piece.is_own])
            return log.since(since)

        return session.call(look)
