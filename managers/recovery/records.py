"""The reports of the members of a session when a view ends, and the decision about the next one."""

import zlib
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from dropflow.errors import LinkError, ProtocolError
from dropflow.execution.content_location import Handle
from dropflow.failure import Failure
from managers.deployment import Deployment, Place

_Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]


NO_MEMBER = -1
"""Stands for the member of a drop that no member has."""

FEWEST_VOTERS = 3
"""How many voters a session needs to survive a loss: one of two cannot know which of them is cut off."""
CAN_RESUME = "start it again, and continue the session with 'dropflow resume'"
"""The hint of a failed session that lost a node."""
WAITING = "waiting for a majority"
"""Beginning of the text of a session that has too few voters to go on."""


def node_lost(text: str, hint: str = CAN_RESUME) -> Failure:
    """Return the failure of the drops of a node that is lost to their session."""
    return Failure(code=LinkError.code, kind="NodeLost", text=text, hint=hint, retryable=True)


class View(msgspec.Struct, frozen=True):
    """The members and voters of a session.

    Attributes
    ----------
    number : int
        0 for the deployment; grows by 1 with each decision.
    members : tuple of Place
        The nodes that hold drops, in an order that all share.
    witnesses : tuple of Place
        Processes that hold no drops, and may vote. They are kept when they do not answer: leaving one out would only
        make the next loss worse.
    draining : tuple of str
        Members that get no drops, because they are to leave.
    invitation : str
        With which the witness asked to become one, see `RequestedChange`; empty for those of the deployment.
    """

    number: _Natural
    members: tuple[Place, ...]
    witnesses: tuple[Place, ...] = ()
    draining: tuple[str, ...] = ()
    invitation: str = ""

    @property
    def voters(self) -> tuple[Place, ...]:
        """Members, and one witness if their number is even.

        A witness beside an even number of members lets one more of them be lost, and costs nothing if it is lost
        itself. Beside an odd number it would add a vote, and a majority would need one more.
        """
        return self.members + self.witnesses[: 1 - len(self.members) % 2]

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1


def first_view(deployment: Deployment) -> View | None:
    """Return the first view of a session; None if all of its voters are needed, and there are several.

    A session on one node changes its view alone.
    """
    view = View(deployment.view, tuple(deployment.members), tuple(deployment.witnesses))
    voters = len(view.voters)
    return view if voters == 1 or voters >= FEWEST_VOTERS or deployment.is_joining else None


class RequestedChange(msgspec.Struct, frozen=True):
    """A change of a view that was asked for, although no member is lost.

    Attributes
    ----------
    id : str
        Tells it from all others of the session.
    add : tuple of Place
        Nodes that are prepared, and become members. Drops that have not begun move to them.
    workers : dict of str to float
        Attempts that each of these can run at a time.
    drain : tuple of str
        Members that give away what they have not begun, and get nothing more.
    leave : tuple of str
        Members that are members no more. What they have, they need not be asked for any more.
    is_rebalancing : bool
        Whether drops that have not begun move, so that all members end at about the same time.
    is_forced : bool
        Whether the voters that are not lost decide, although they are a minority. If the others live, they may decide
        another view.
    is_retrying : bool
        Whether failed drops are tried again, and those that failed because of them.
    drops : tuple of str
        Text ids, or ends of them, of the drops whose root causes are tried again; all by default.
    witness : Place or None
        The process that replaces the witness, which is lost, or becomes the first one.
    invitation : str
        An id that this process has made for that. It votes only in views that have it: they were decided after it was
        made, so the process cannot have voted in them before and have forgotten that.
    """

    id: str
    add: tuple[Place, ...] = ()
    workers: dict[str, float] = {}
    drain: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    is_rebalancing: bool = False
    is_forced: bool = False
    is_retrying: bool = False
    drops: tuple[str, ...] = ()
    witness: Place | None = None
    invitation: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """Why a view does not have a change that was asked for, and what to do."""

    text: str
    hint: str = ""


class SharedFile(msgspec.Struct, frozen=True):
    """A committed file or directory of another node, and its `managers.node.contents.stamp_of` at the commit."""

    handle: Handle
    stamp: tuple[int, ...]


class MemberReport(msgspec.Struct, frozen=True):
    """The state of a session on a member where its core has stopped. Columns are packed by `pack_column`.

    Attributes
    ----------
    rows : bytes
        int32, rows in the whole graph of the drops in its slice.
    states : bytes
        uint8, as long: their `dropflow.states.DropState`. WRITING for an attempt that is running.
    available : bytes
        uint8, as long: 1 where the content of a completed data drop is on this member.
    parts : bytes
        int32, pairs of rows: an application, and a data drop of this member with several producers whose part by that
        application is here.
    attempts : dict of int to int
        By row: number of the last attempt, where it is not the first.
    causes : dict of int to int
        By row of a drop in ERROR: row of the drop that started it.
    copies : bytes
        int32, rows: completed data drops of other members whose content is also on this one.
    replaced : bytes
        int32, rows: completed data drops of this member whose content another drop has replaced.
    workers : float
        Attempts that it can run at a time.
    durations : dict of int to (int, float)
        By template: attempts that have succeeded here, and how many seconds they took together.
    unable : tuple of int
        Templates whose applications it cannot run, because it lacks what they need.
    """

    rows: bytes
    states: bytes
    available: bytes
    parts: bytes = b""
    attempts: dict[int, int] = {}
    causes: dict[int, int] = {}
    copies: bytes = b""
    replaced: bytes = b""
    workers: float = 1.0
    durations: dict[int, tuple[int, float]] = {}
    unable: tuple[int, ...] = ()


class ViewDecision(msgspec.Struct, frozen=True):
    """The decision of the voters of a view: the next view.

    Attributes
    ----------
    view : View
        The next view.
    places : tuple of str
        Names of nodes.
    placement : bytes
        uint16, by row of the whole graph: index in `places`. Packed by `pack_column`.
    reset : bytes
        int32, rows: completed drops that run again. Packed.
    taken_over : bytes
        uint8, by row: state of each drop whose node is not a member any more, as far as it was known. Packed; empty if
        there are none.
    causes : dict of int to int
        By row of a drop in ERROR that is taken over: row of the drop that started it.
    attempts : dict of int to int
        By row of a drop that is taken over: number of its last known attempt.
    lost : dict of str to str
        Nodes that are members no more because they are lost, and why.
    left : tuple of str
        Nodes that are members no more because that was asked for.
    joined : tuple of str
        Nodes that are new members.
    answered : tuple of str
        The requested changes that this view contains; see `RequestedChange.id`.
    refused : dict of str to Refusal
        Requested changes that cannot be made, by id.
    is_forced : bool
        Whether the decision needed no majority, because a user has forced it.
    is_over : bool
        Whether the session is over: all members had finished their parts. Only the view and `ends` are used then.
    ends : tuple of bytes
        How each part ended, as in `managers.messages.PartDone`.
    repeated : bytes
        int32, rows: drops that settle again because their failure, or that of a drop before them, is tried again, or
        because a user has them run again. Packed.
    retried : tuple of int
        Rows of those of them whose own attempts failed, or are run again: they have all of their tries again.
    reason : str
        Why the session goes on in another view, if that is not the loss of nodes.
    gone : int
        How many files of lost nodes are not made again, because nothing needs them any more.
    """

    view: View
    places: tuple[str, ...]
    placement: bytes
    reset: bytes = b""
    taken_over: bytes = b""
    causes: dict[int, int] = {}
    attempts: dict[int, int] = {}
    lost: dict[str, str] = {}
    left: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    refused: dict[str, Refusal] = {}
    is_over: bool = False
    is_forced: bool = False
    repeated: bytes = b""
    retried: tuple[int, ...] = ()
    reason: str = ""
    ends: tuple[bytes, ...] = ()
    gone: int = 0

    @property
    def why(self) -> str:
        """Why the session goes on in this view, for explanations."""
        changes = [f"node {node} was lost ({why})" for node, why in self.lost.items()]
        changes += [f"node {node} has left" for node in self.left]
        return " and ".join([self.reason, *changes] if self.reason else changes)


def decode_decision(encoded: bytes) -> ViewDecision:
    """Return an encoded decision.

    Raises
    ------
    ProtocolError
        The bytes are not one.
    """
    try:
        return msgspec.msgpack.decode(encoded, type=ViewDecision)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the decision about a view cannot be read: {error}") from error


def pack_column(column: npt.NDArray[np.generic]) -> bytes:
    """Return the compressed bytes of an array. Columns of states and places compress to a few percent."""
    return zlib.compress(np.ascontiguousarray(column).tobytes(), 1)


def unpack_column(packed: bytes, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return the array of `pack_column`, read-only; an empty one for no bytes.

    Raises
    ------
    ProtocolError
        The bytes are not a packed column of that type.
    """
    if not packed:
        return np.zeros(0, dtype)
    try:
        return np.frombuffer(zlib.decompress(packed), dtype)
    except (zlib.error, ValueError) as error:
        raise ProtocolError(f"a column of a view cannot be read: {error}") from error


# What a node reports about a session in which nothing is at work on it any more, for its continuation.


class StoppedPart(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of a session on one node.

    Attributes
    ----------
    node : str
        Name of the node.
    status : str
        Name of the session's `dropflow.states.SessionState` on this node.
    finding : str
        Why the copy cannot be used; empty if it can. Then the other fields are not set.
    deployment : Deployment or None
        The deployment, without its graph.
    view : int
        Number of the view that the journal is of.
    decision : ViewDecision or None
        The decision about that view; None for the first view.
    report : bytes
        The encoded `MemberReport`. Empty if the session is not over on this node.
    paused : bool
        Whether the session was paused.
    recomputed : int
        Drops that this node reported as computed again because contents were lost.
    notes : tuple of str
        Notes about the session so far.
    missing_inputs, changed_inputs, replaced_inputs : tuple of int
        Rows: see `dropflow.sessions.retry.OutsideInputs`.
    """

    node: str
    status: str
    finding: str = ""
    deployment: Deployment | None = None
    view: int = 0
    decision: ViewDecision | None = None
    report: bytes = b""
    paused: bool = False
    recomputed: int = 0
    notes: tuple[str, ...] = ()
    missing_inputs: tuple[int, ...] = ()
    changed_inputs: tuple[int, ...] = ()
    replaced_inputs: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing of the session is at work on the node."""
        return bool(self.report)

    @property
    def version(self) -> tuple[int, int]:
        """Deployment and view: the copy with the greater ones is the later one."""
        return (0 if self.deployment is None else self.deployment.epoch), self.view
