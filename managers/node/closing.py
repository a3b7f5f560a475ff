"""The end of a node: its sessions are cancelled. Part of `NodeMachine`; pure decisions."""

from dropflow.errors import LinkError
from dropflow.rest.operation_records import CancelRequest
from managers.node.events import Action, Log
from managers.node.lifecycle import Lifecycle
from managers.node.session_table import Phase, SessionTable
from managers.node.timers import Timers

__all__ = ["Closing"]

_CLOSE_SECONDS = 10.0
"""How long a node that is closed waits for its sessions."""


class Closing:
    """Closes one node.

    Parameters
    ----------
    node : str
        Name of the node.
    table, sessions, timers, actions :
        The parts of its machine.
    """

    def __init__(
        self, node: str, table: SessionTable, sessions: Lifecycle, timers: Timers, actions: list[Action]
    ) -> None:
        self.has_begun = False
        """Whether the node takes no more sessions because it ends."""
        self._node = node
        self._table = table
        self._sessions = sessions
        self._timers = timers
        self._actions = actions
        self._calls: list[int] = []

    def close(self, call: int, now: float) -> None:
        """Cancel all sessions; answered once all are over, or after some time."""
        reason = f"node {self._node} is stopping"
        self.has_begun = True
        self._calls.append(call)
        self._timers.set(("close", ""), now + _CLOSE_SECONDS, self._give_up)
        for record in self._table:
            if record.phase is Phase.BUILDING:
                self._sessions.withdraw(record, now, LinkError(reason))
            else:
                self._sessions.cancel(record, now, CancelRequest(reason=reason))

    def finish(self) -> None:
        """Answer `close` once nothing works on any session."""
        if self._calls and all(record.phase.is_quiet for record in self._table):
            self._timers.clear(("close", ""))
            self._sessions.answer(self._calls)
            self._calls = []

    def _give_up(self, now: float) -> None:
        del now
        for record in self._table:
            if not record.phase.is_quiet:
                self._actions.append(Log(f"session {record.name!r} does not stop", record.name))
                self._sessions.abandon(record, LinkError(f"node {self._node} is stopping"))
        self._sessions.answer(self._calls)
        self._calls = []
