"""The states of the drops of a node's sessions, and their changes since a client last asked."""

from weakref import ref

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.graph.templates import Kind
from dropflow.rest.state_records import QUEUED, RUNNING, DropStates
from dropflow.states import DropState
from managers.node.changed_states import StateLog
from managers.node.drop_pages import LiveSession, Running, SessionCaller

__all__ = ["StateLogs"]


class StateLogs:
    """The log of each session that a client has asked for. A log is read and written in the thread of its session."""

    def __init__(self) -> None:
        self._logs: dict[int, tuple[ref[PhysicalGraph], StateLog]] = {}
        """By the identity of the graph of the slice: in another view of a session, it is another graph."""

    def read(self, session: SessionCaller, piece: Slice, since: str, running: Running = None) -> DropStates:
        """Return the states of the drops of this node, or their changes since the answer with the cursor `since`.

        Parameters
        ----------
        session : SessionCaller
            A session that runs here, or ran before.
        piece : Slice
            Its drops.
        running : collection of int or None
            Rows of the drops whose attempts run now; None if that is not known.
        """

        def look(live: LiveSession) -> DropStates:
            if live.core.graph is not piece.graph:  # the view has just changed: the next request has the new one
                return DropStates(cursor=since)
            log = self._log(piece)
            states = np.frombuffer(bytes(live.core.drops.states), dtype=np.uint8)
            log.update(_signs(states, piece, running)[piece.is_own])
            return log.since(since)

        return session.call(look)

    def _log(self, piece: Slice) -> StateLog:
        known = self._logs.get(id(piece.graph))
        if known is not None and known[0]() is piece.graph:
            return known[1]
        for key in [key for key, (graph, _) in list(self._logs.items()) if graph() is None]:
            self._logs.pop(key, None)
        log = StateLog(piece.drop[piece.is_own])
        self._logs[id(piece.graph)] = (ref(piece.graph), log)
        return log


def _signs(states: npt.NDArray[np.uint8], piece: Slice, running: Running) -> npt.NDArray[np.uint8]:
    """Return the states with signs for applications in WRITING that run, and that are queued."""
    if running is None:
        return states
    graph, signs = piece.graph, states.copy()
    is_app = graph.kinds[graph.template] == np.uint8(Kind.APP)
    is_active = (states == DropState.WRITING) & is_app
    signs[is_active] = QUEUED
    rows = np.fromiter(running, dtype=np.int64, count=len(running))
    signs[rows[states[rows] == DropState.WRITING]] = RUNNING
    return signs
