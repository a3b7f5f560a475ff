"""Requested changes of views: sent to the member that decides, again and again until a view contains them."""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

import msgspec

from dropflow.errors import ConflictError, LinkError
from managers.machine_calls import Return
from managers.messages import RequestView
from managers.node.decisions.events import Action
from managers.recovery.records import RequestedChange, ViewDecision
from managers.recovery.vote import SendToPeer, Voter

REQUEST_SECONDS = 60.0
"""Seconds that a call waits for a view with the change that it requests."""
_MOST_VIEWS = 8
"""Number of views that may be decided without a change before it is refused."""


@dataclass(slots=True)
class _Open:
    """A change that no view contains yet.

    Attributes
    ----------
    call : int or None
        Id of the call that waits for it; None if none does.
    views : int
        Number of views that were decided since.
    """

    change: RequestedChange
    call: int | None
    until: float
    views: int = 0


class ViewRequests:
    """The changes of one session that were requested here.

    Parameters
    ----------
    node : str
        Name of this node.
    session, epoch :
        The session and its deployment.
    actions : list
        Actions to carry out; decisions are appended.
    """

    def __init__(self, node: str, session: str, epoch: int, actions: list[Action]) -> None:
        self._node = node
        self._session = session
        self._epoch = epoch
        self._actions = actions
        self._open: dict[str, _Open] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, change: str) -> bool:
        """Return whether a change of this id waits for a view that contains it."""
        return change in self._open

    def add(self, change: RequestedChange, call: int | None, now: float) -> None:
        """Wait for a view with a change."""
        self._open[change.id] = _Open(change, call, now + REQUEST_SECONDS)

    def send(self, views: Voter, lost: Collection[str]) -> list[RequestView]:
        """Ask the first member that is not lost for all changes; return the requests if that is this node."""
        # While a view is being decided, only forced changes are sent. Others follow if that view does not contain them.
        changes = [request.change for request in self._open.values() if request.change.is_forced or not views.is_frozen]
        present = [place.node for place in views.view.members if place.node not in lost]
        first = present[0] if present else self._node
        number = views.view.number
        requests = [
            RequestView(self._session, self._epoch, number, msgspec.msgpack.encode(change)) for change in changes
        ]
        if first == self._node:
            return requests
        self._actions += [SendToPeer(first, request) for request in requests]
        return []

    def decided(self, decision: ViewDecision) -> None:
        """Answer the calls whose changes a view contains, and refuse changes that have waited for many views."""
        for key, request in list(self._open.items()):
            request.views += 1
            refusal = decision.refused.get(key)
            if refusal is not None:
                self._answer(key, ConflictError(refusal.text, hint=refusal.hint))
            elif key in decision.answered:
                self._answer(key, None)
            elif request.views >= _MOST_VIEWS:
                text = f"the members of session {self._session!r} changed {request.views} times meanwhile"
                self._answer(key, ConflictError(text, hint="look at its status, and try again"))

    def refuse(self, why: str) -> None:
        """Refuse all changes, because the session is over, or this node leaves it."""
        for key in list(self._open):
            self._answer(key, ConflictError(f"session {self._session!r} {why}"))

    def tick(self, now: float, waiting: str) -> None:
        """Refuse changes that have waited for too long; `waiting` is why the session waits, empty if it does not."""
        for key, request in list(self._open.items()):
            if request.until <= now:
                text = f"session {self._session!r} has not changed its members within {REQUEST_SECONDS:g} s"
                text = f"{text}: {waiting}" if waiting else text
                self._answer(key, LinkError(text, hint="look at its status, and try again"))

    def deadline(self) -> float:
        """Return the time of the next `tick`."""
        return min((request.until for request in self._open.values()), default=inf)

    def _answer(self, key: str, error: Exception | None) -> None:
        call = self._open.pop(key).call
        if call is not None:
            self._actions.append(Return(call, error=error))
