"""The votes of an island or master about the views of sessions that it deployed: part of `CompositeMachine`.

A witness is a voter that has no part of the session (`managers.recovery.records.View`): it promises and accepts as
members do, and reports nothing. So a session of two nodes survives the loss of any one of three processes: the nodes,
and the manager that deployed it. Nothing is stored: after a restart, a manager is not the same witness any more. It may
replace a lost witness, its earlier process included, in a view that the voters of the view before decide. Pure
decisions.
"""

from dataclasses import dataclass
from itertools import count

import msgspec

from dropflow.errors import InternalError
from managers.deployment import Deployment, Place
from managers.messages import AdoptView, PartDone, SessionDone, ViewMessage
from managers.recovery.records import View, decode_decision, first_view
from managers.recovery.vote import AdoptDecision, SendToPeer, Voter

_MOST = 1000
"""Number of sessions that are remembered. The oldest are forgotten: they go on with one voter less that answers."""


class WitnessListens(msgspec.Struct, frozen=True):
    """Event: this manager can be a witness, at this place."""

    place: Place


class VoterSent(msgspec.Struct, frozen=True):
    """Event: a process of a node sent a message about the views of a session."""

    peer: str
    incarnation: int
    message: ViewMessage | PartDone | SessionDone


@dataclass
class _Witnessed:
    """One session: its agreement, whether it is over, and all processes that may ask about it.

    Attributes
    ----------
    members : dict of str to int
        Incarnations of the processes that are or were members.
    invitation : str
        The id with which this manager asked to become a witness. It is empty once a view contains this manager, or if
        the deployment named it.
    has_left : bool
        Whether another manager has become the witness since.
    """

    views: Voter
    members: dict[str, int]
    invitation: str = ""
    is_over: bool = False
    has_left: bool = False

    def is_member(self, event: VoterSent) -> bool:
        """Return whether a message is from a process that is or was a member."""
        return self.members.get(event.peer) == event.incarnation


class Witness:
    """Votes about the sessions that this manager has deployed, or in which it has replaced a lost witness.

    A witness that has forgotten its votes must never vote in the same view again. So it becomes the witness of a
    running session only with a new invitation: any view that contains this invitation was decided after it was made.
    """

    def __init__(self) -> None:
        self.place: Place | None = None
        """The place at which nodes reach this manager; None if it cannot be a witness."""
        self._sessions: dict[tuple[str, int], _Witnessed] = {}
        self._invitations = count(1)

    def __len__(self) -> int:
        """Return the number of sessions that it votes about."""
        return sum(not session.is_over for session in self._sessions.values())

    def prepare(self, deployment: Deployment) -> None:
        """Become the witness of a session if its deployment names this manager. Call this before any node gets it."""
        view = first_view(deployment)
        if self.place is None or self.place not in deployment.witnesses or view is None:
            return
        views = Voter(self.place.node, deployment.session, deployment.epoch, view)
        members = {place.node: place.incarnation for place in view.members}
        self._add(deployment.session, deployment.epoch, _Witnessed(views, members))

    def votes(self, session: str, epoch: int) -> bool:
        """Return whether this manager is a witness of a deployment, and has not been replaced."""
        known = self._sessions.get((session, epoch))
        return known is not None and not known.invitation and not known.has_left

    def invite(self, session: str, epoch: int) -> str:
        """Return the invitation for this manager to become the witness of a running deployment.

        The same invitation is returned until a view contains it.
        """
        known = self._sessions.get((session, epoch))
        if known is not None and known.invitation:
            return known.invitation
        if self.place is None:
            raise InternalError("this manager cannot be a witness")
        invitation = f"{self.place.node}:{self.place.incarnation}:{next(self._invitations)}"
        # Its view has no voters yet: it only accepts the decision that names this manager, and asks for it.
        views = Voter(self.place.node, session, epoch, View(0, ()))
        self._add(session, epoch, _Witnessed(views, {}, invitation))
        return invitation

    def _add(self, session: str, epoch: int, witnessed: _Witnessed) -> None:
        self._sessions.pop((session, epoch), None)
        self._sessions[session, epoch] = witnessed
        while len(self._sessions) > _MOST:
            over = (key for key, entry in self._sessions.items() if entry.is_over)
            del self._sessions[next(over, next(iter(self._sessions)))]

    def forget(self, session: str, epoch: int | None = None) -> None:
        """Forget a deployment of a session, or all of them."""
        for key in [key for key in self._sessions if key[0] == session and epoch in (None, key[1])]:
            del self._sessions[key]

    def receive(self, event: VoterSent, now: float) -> list[SendToPeer]:
        """Take in a message of a node, and return the answers."""
        message = event.message
        witnessed = self._sessions.get((message.session, message.epoch))
        if witnessed is None or not self._is_taken(witnessed, event):
            return []
        views = witnessed.views
        if isinstance(message, SessionDone):
            if event.peer in {place.node for place in views.view.members}:
                witnessed.is_over = True
            return []
        if witnessed.is_over and message.view >= views.view.number:
            # A member may have missed the end, and the members that know it may be lost.
            return [SendToPeer(event.peer, SessionDone(message.session, message.epoch, message.view))]
        if isinstance(message, PartDone):
            return []
        actions = views.receive(event.peer, message, now)
        for action in actions:
            if isinstance(action, AdoptDecision) and action.has_node:
                witnessed.members |= {place.node: place.incarnation for place in action.decision.view.members}
            elif isinstance(action, AdoptDecision):
                witnessed.has_left = True
        witnessed.is_over |= views.is_over
        return [action for action in actions if isinstance(action, SendToPeer)]

    def _is_taken(self, witnessed: _Witnessed, event: VoterSent) -> bool:
        """Return whether a message is for this witness. The decision that it waits for makes it a witness."""
        if not witnessed.invitation:
            return witnessed.is_member(event)
        if not isinstance(event.message, AdoptView):
            return True  # it is answered, and the answer to that is the decision
        view = decode_decision(event.message.decision).view
        if view.invitation != witnessed.invitation or self.place not in view.witnesses:
            return False
        witnessed.invitation = ""
        return True
