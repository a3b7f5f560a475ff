"""Runs a `Session` in a simulated process: each step is an event of the simulation."""

import math
from collections.abc import Callable, Iterable

from dropflow.engine.inbox import Inbox
from dropflow.engine.session import Session
from dropflow.engine.session_inputs import SessionInput
from managers.node.exchange import NodeExchange
from managers.node.session_resources import OnStop
from managers.simulation.virtual_time import SimulatedProcess, Timer

__all__ = ["SessionDriver", "SessionInbox"]


class SessionInbox(Inbox[SessionInput]):
    """An inbox that calls `on_put` when something is put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_put: Callable[[], None] = lambda: None

    def put(self, items: Iterable[SessionInput]) -> None:
        """Add items."""
        super().put(items)
        self.on_put()


class SessionDriver:
    """Steps a session whenever something is in its inbox and the nodes that it sent to are not too far behind.

    Parameters
    ----------
    process : SimulatedProcess
        The process of the session's node.
    session : Session
        Has `inbox` as its inbox, and has not begun.
    inbox : SessionInbox
        What comes in.
    exchange : NodeExchange
        Of the session. When its links report room, `wake` must be called.
    on_stop : callable
        Called with None when the session is over or frozen.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        session: Session,
        inbox: SessionInbox,
        exchange: NodeExchange,
        on_stop: OnStop,
    ) -> None:
        self._process = process
        self._session = session
        self._inbox = inbox
        self._exchange = exchange
        self._on_stop = on_stop
        self._has_stopped = False
        self._next: Timer | None = None

    def start(self) -> None:
        """Begin the session, unless it has begun."""
        self._session.begin()
        self._inbox.on_put = self.wake
        self.wake()

    def wake(self) -> None:
        """Step the session soon. Idempotent."""
        self._schedule(self._process.simulation.time)

    def _schedule(self, time: float) -> None:
        if self._has_stopped or (self._next is not None and not self._next.is_cancelled and self._next.time <= time):
            return
        if self._next is not None:
            self._next.cancel()
        self._next = self._process.call_at(time, self._step)

    def _step(self) -> None:
        session = self._session
        if not session.is_over and not session.is_frozen:
            if not self._exchange.has_room():
                return
            session.step(0.0)
        if not session.is_over and not session.is_frozen:
            deadline = session.deadline()
            if deadline < math.inf:
                self._schedule(deadline)
        elif not self._has_stopped:
            self._has_stopped = True
            self._on_stop(None)
