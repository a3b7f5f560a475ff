"""The votes of an island or master about the views of sessions that it deployed: part of `CompositeMachine`.

A witness is a voter that has no part of the session (`managers.recovery.records.View`): it promises and accepts as
members do, and reports nothing. So two nodes and the manager that deployed survive the loss of any one of the three.
Nothing is stored: a manager that was started again is not the witness that it was. Pure decisions.
"""

import msgspec

from managers.deployment import Deployment, Place
from managers.messages import PartDone, SessionDone, ViewMessage
from managers.recovery.events import AdoptDecision, SendViewMessage, ViewAction
from managers.recovery.records import View, first_view
from managers.recovery.view_change import ViewChange

__all__ = ["SendVote", "VoterSent", "Witness", "WitnessListens"]

_MOST = 1000
"""How many sessions are remembered. The oldest are forgotten: they go on, and one voter less answers."""


class WitnessListens(msgspec.Struct, frozen=True):
    """Event: this manager can be a witness; nodes reach it at this place."""

    place: Place


class VoterSent(msgspec.Struct, frozen=True):
    """Event: a process of a node sent a message about the views of a session."""

    peer: str
    incarnation: int
    message: ViewMessage | PartDone | SessionDone


class SendVote(msgspec.Struct, frozen=True):
    """Action: send a message to a node about the views of a session."""

    peer: str
    message: ViewMessage | SessionDone


class _Witnessed:
    """One session: its agreement, whether it is over, and all processes that may ask about it."""

    def __init__(self, node: str, deployment: Deployment, view: View) -> None:
        self.is_over = False
        self.views = ViewChange(node, deployment.session, deployment.epoch, view)
        self.members = {place.node: place.incarnation for place in view.members}

    def is_member(self, event: VoterSent) -> bool:
        """Return whether a message is from a process that is or was a member."""
        return self.members.get(event.peer) == event.incarnation


class Witness:
    """Votes about the sessions that this manager has deployed."""

    def __init__(self) -> None:
        self.place: Place | None = None
        """Where nodes reach this manager; None if it cannot be a witness."""
        self._sessions: dict[tuple[str, int], _Witnessed] = {}

    def __len__(self) -> int:
        """Return how many sessions are voted about."""
        return sum(not one.is_over for one in self._sessions.values())

    def prepare(self, deployment: Deployment) -> None:
        """Be a witness of a session, if its deployment names this manager. Before any of its nodes gets to know it."""
        view = first_view(deployment)
        if self.place is None or self.place not in deployment.witnesses or view is None:
            return
        self._sessions[deployment.session, deployment.epoch] = _Witnessed(self.place.node, deployment, view)
        while len(self._sessions) > _MOST:
            del self._sessions[next(iter(self._sessions))]

    def forget(self, session: str, epoch: int | None = None) -> None:
        """Forget a deployment of a session, or all of them."""
        for key in [key for key in self._sessions if key[0] == session and epoch in (None, key[1])]:
            del self._sessions[key]

    def receive(self, event: VoterSent, now: float) -> list[SendVote]:
        """Take in a message of a node, and return the answers."""
        message = event.message
        witnessed = self._sessions.get((message.session, message.epoch))
        if witnessed is None or not witnessed.is_member(event):
            return []
        views = witnessed.views
        if isinstance(message, SessionDone):
            if event.peer in {place.node for place in views.view.members}:
                witnessed.is_over = True
            return []
        if witnessed.is_over and message.view >= views.view.number:
            # A member may have missed the end, and those that know of it may be lost.
            return [SendVote(event.peer, SessionDone(message.session, message.epoch, message.view))]
        if isinstance(message, PartDone):
            return []
        found = [
            vote for action in views.receive(event.peer, message, now) for vote in self._carry_out(witnessed, action)
        ]
        witnessed.is_over |= views.is_over
        return found

    def _carry_out(self, witnessed: _Witnessed, action: ViewAction) -> list[SendVote]:
        if isinstance(action, SendViewMessage):
            return [SendVote(action.peer, action.message)]
        if isinstance(action, AdoptDecision):
            witnessed.members |= {place.node: place.incarnation for place in action.decision.view.members}
        return []
