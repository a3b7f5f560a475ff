"""Actions of `ViewChange`, beside the messages that it sends."""

from collections.abc import Mapping

import msgspec

from managers.deployment import Place
from managers.messages import ViewMessage
from managers.recovery.records import RequestedChange, View, ViewDecision

__all__ = ["AdoptDecision", "Ballot", "ConnectMembers", "LeaveSession", "PlanView", "SendViewMessage", "ViewAction"]

Ballot = tuple[int, int]
"""Round, and rank of the candidate among the voters: greater ballots win."""


class SendViewMessage(msgspec.Struct, frozen=True):
    """Send a message to a voter; a lost one gets it if it can be reached again."""

    peer: str
    message: ViewMessage


class StopForReport(msgspec.Struct, frozen=True):
    """Stop the core of the session, and pass its report to `ViewChange.frozen`. What runs goes on running."""


class PlanView(msgspec.Struct, frozen=True):
    """Compute the next view from the reports of the members that go on, and pass it to `ViewChange.planned`.

    Attributes
    ----------
    ballot : tuple of int
        Of the candidacy.
    view : View
        The view that ends.
    reports : mapping of str to bytes
        The encoded `MemberReport` of each member that goes on.
    lost : mapping of str to str
        The other members, and why they are lost.
    changes : tuple of RequestedChange
        What was asked for.
    """

    ballot: Ballot
    view: View
    reports: Mapping[str, bytes]
    lost: Mapping[str, str]
    changes: tuple[RequestedChange, ...] = ()


class ConnectMembers(msgspec.Struct, frozen=True):
    """Open links to nodes that are to become members, before anything is sent to them."""

    places: tuple[Place, ...]


class AdoptDecision(msgspec.Struct, frozen=True):
    """Go on with a new view. This node is a member or witness of it."""

    decision: ViewDecision


class LeaveSession(msgspec.Struct, frozen=True):
    """Discard this node's part of the session: a view was decided that does not have it."""

    decision: ViewDecision


ViewAction = SendViewMessage | StopForReport | PlanView | ConnectMembers | AdoptDecision | LeaveSession
