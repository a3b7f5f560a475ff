"""Events and actions of a node manager's state machine, besides the calls of `managers.machine_calls`.

Sessions are named by their name and epoch: a name that was deleted may be used again. A *hosted* session is the object
that executes it, and the *instance* of a session is that object, or the one that reads its directory. The machine
passes these objects on to actions and does not look into them.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from dropflow.api.requests import CancelRequest
from dropflow.execution.content_location import Handle
from dropflow.failure import Failure
from dropflow.states import SessionState
from managers.deployment import Deployment
from managers.machine_calls import Call, Return
from managers.messages import Content, CopyMessage, PartDone, SessionDone, ViewMessage
from managers.recovery.records import MemberReport, SharedFile, ViewDecision
from managers.recovery.vote import Ballot, ConnectPeers, PlanView, SendToPeer

if TYPE_CHECKING:
    from managers.node.hosted_session import HostedSession


class OfSession(msgspec.Struct, frozen=True):
    """An event or action that concerns one deployment of a session."""

    session: str
    epoch: int


class OfView(OfSession, frozen=True):
    """An event or action that concerns one view of a session."""

    view: int


# Events.


class Built(OfSession, frozen=True):
    """The session of a `Build` is built, and runs nothing yet. `neighbours` hold neighbours of its drops."""

    hosted: "HostedSession"
    neighbours: tuple[str, ...]


class NotBuilt(OfSession, frozen=True):
    """The session of a `Build` could not be built; nothing of it is left."""

    error: Exception


class NotConnected(OfSession, frozen=True):
    """A `ConnectPeers` failed immediately: an address cannot be used."""

    error: Exception


class Changed(OfSession, frozen=True):
    """A session has a new version."""

    version: int


class Over(OfSession, frozen=True):
    """A session has its result. Its thread still writes to the session's directory.

    With a `failure`, it failed on this node only: the other nodes may go on.
    """

    status: SessionState
    failure: Failure | None = None


class Ended(OfSession, frozen=True):
    """The thread of a session that is over has done its last write."""


class Removed(OfSession, frozen=True):
    """A `RemoveSession` is done; `error` is why the directory could not be removed."""

    error: Exception | None = None


class Retired(OfSession, frozen=True):
    """A `RetireSession` is done: `finished` is the session as its directory has it, None if it cannot be read."""

    finished: Any = None


class CancelRecorded(OfSession, frozen=True):
    """A `RecordCancel` is done. A request that could not be written counts all the same."""

    call: int
    request: CancelRequest


class PeersRead(msgspec.Struct, frozen=True):
    """The links were read: the incarnation of each peer that ever sent a message, and the time of its last one."""

    last_received: Mapping[str, tuple[int, float]]


class PeerChanged(msgspec.Struct, frozen=True):
    """The link to a peer came up or went down; None for another change."""

    peer: str
    is_down: bool | None = None


class PeersProbed(msgspec.Struct, frozen=True):
    """A connection to each of these peers was tried, without links; by peer, whether its host refused it."""

    refused: Mapping[str, bool]


class LinkRefused(msgspec.Struct, frozen=True):
    """A peer refuses links from this process."""

    peer: str
    text: str


class PeerRestarted(msgspec.Struct, frozen=True):
    """A peer answers with a later incarnation than before."""

    peer: str
    incarnation: int


class PeerStopped(msgspec.Struct, frozen=True):
    """A peer has given up its part of a session: because it was cancelled there, or because of the loss of `node`."""

    peer: str
    session: str
    epoch: int
    reason: str
    node: str = ""
    failure: Failure | None = None


class Frozen(OfSession, frozen=True):
    """A session has stopped because its view changes; `report` has no copies yet, except shared files."""

    report: MemberReport


class Continued(OfView, frozen=True):
    """A `ContinueSession` is done: the session runs in its next view, or its thread has reported something already."""


class PartFinished(OfView, frozen=True):
    """All drops of a session are settled here. Its other members may need this part until all are finished.

    Attributes
    ----------
    is_idle : bool
        Drops are left that cannot end by the walltime of the session. Its thread goes on, since others may settle
        drops.
    end : bytes
        How the part ended, as in `managers.messages.PartDone`.
    """

    is_idle: bool = False
    end: bytes = b""


class PartSettled(OfView, frozen=True):
    """A session is paused, and all of its drops on this node, which is being drained, are settled."""


class NotPlanned(OfSession, frozen=True):
    """A `PlanNextView` has failed."""

    error: Exception


class Planned(OfSession, frozen=True):
    """A `PlanNextView` is done."""

    ballot: Ballot
    decision: ViewDecision


class PeerSent(msgspec.Struct, frozen=True):
    """A peer sent a message about the views of a session, or copies of its contents."""

    peer: str
    incarnation: int
    message: ViewMessage | PartDone | SessionDone | CopyMessage


class ContentUnavailable(OfView, frozen=True):
    """A content of a peer cannot be fetched. `fail` makes its drop fail for that reason."""

    peer: str
    fail: Callable[[], None]


# Actions.


class Build(msgspec.Struct, frozen=True):
    """Build the session of a deployment: `Built` or `NotBuilt`."""

    deployment: Deployment


class ReadPeers(msgspec.Struct, frozen=True):
    """Read the time of the last message of each peer from the links: `PeersRead`."""


class ProbePeers(msgspec.Struct, frozen=True):
    """Try to connect to peers at these addresses, to see whether their processes may have ended: `PeersProbed`."""

    addresses: Mapping[str, str]


class StartSession(msgspec.Struct, frozen=True):
    """Start the thread of a hosted session: `Changed`, later `Over` and `Ended`."""

    hosted: "HostedSession"


class RecordCancel(OfSession, frozen=True):
    """Write to the directory of a session that it is to be cancelled, and force that to the disk: `CancelRecorded`."""

    instance: Any
    call: int
    request: CancelRequest


class CancelSession(msgspec.Struct, frozen=True):
    """Cancel a hosted session. One that was not started, or in which no thread is at work, ends in a new thread."""

    hosted: "HostedSession"
    request: CancelRequest
    has_thread: bool = True


class LoseNode(msgspec.Struct, frozen=True):
    """Fail a hosted session because of the loss of a node. One that was not started is started first."""

    hosted: "HostedSession"
    node: str
    failure: Failure
    has_thread: bool = True


class FreezeSession(msgspec.Struct, frozen=True):
    """Stop a hosted session for a change of its view: `Frozen`. `has_thread` is whether a thread is at work in it.

    The report has the rows of those `shared` files that are still there.
    """

    hosted: "HostedSession"
    has_thread: bool
    shared: Mapping[int, SharedFile] = {}


class PlanNextView(OfSession, frozen=True):
    """Compute the next view of a session: `Planned`."""

    hosted: "HostedSession"
    plan: PlanView


class ContinueSession(OfSession, frozen=True):
    """Continue a hosted session in its next view: `Continued`.

    `copies` are the copies that become contents, by row; `held` are the rows of the other copies.
    """

    hosted: "HostedSession"
    decision: ViewDecision
    copies: Mapping[int, Handle] = {}
    held: tuple[int, ...] = ()


class FinishSession(msgspec.Struct, frozen=True):
    """End a hosted session, since it is over on all members: `Over`, later `Ended`.

    Attributes
    ----------
    has_thread : bool
        Whether a thread is at work in it, or will be soon: then that thread ends it, or reports that it has stopped.
    error : Exception or None
        Why it cannot go on; None if it is over. Given only if no thread is at work in it.
    ends : tuple of bytes
        How each part ended, as in `managers.messages.PartDone`, if the members have agreed on that.
    """

    hosted: "HostedSession"
    has_thread: bool = False
    error: Exception | None = None
    ends: tuple[bytes, ...] = ()


class AllowFailure(msgspec.Struct, frozen=True):
    """Fail a drop whose content cannot be fetched."""

    fail: Callable[[], None]


class RemoveSession(OfSession, frozen=True):
    """Remove the directory of a session, and the data about it in the links: `Removed`."""

    instance: Any


class WithdrawSession(OfSession, frozen=True):
    """Undo the continuation of a session before it begins: `Removed`, and the session is over as before."""

    hosted: "HostedSession"


class RetireSession(OfSession, frozen=True):
    """Read a session that is over from its directory, so that it can leave the memory: `Retired`."""

    hosted: "HostedSession"


class Log(msgspec.Struct, frozen=True):
    """Write a line to the log of this process, about a session if `session` is not empty."""

    text: str
    session: str = ""
    is_warning: bool = True


class AddNote(msgspec.Struct, frozen=True):
    """Add a note for users to a hosted session."""

    hosted: "HostedSession"
    text: str


class ShowWaiting(msgspec.Struct, frozen=True):
    """Show users why a hosted session waits, and after how many seconds it fails; infinity for never."""

    hosted: "HostedSession"
    text: str
    seconds: float = inf


class ShowWitness(msgspec.Struct, frozen=True):
    """Show in the reports of a hosted session whether it lacks a witness."""

    hosted: "HostedSession"
    is_lacking: bool


class SilenceSession(msgspec.Struct, frozen=True):
    """End a hosted session here without a message to the other nodes."""

    hosted: "HostedSession"


# About copies of contents: events, then actions.


class CopyWritten(OfView, frozen=True):
    """A `TakeCopies` of this view is done: the copies by row, and why contents could not be copied."""

    taken: Mapping[int, Handle]
    failed: Mapping[int, str]


class ViewBegun(OfView, frozen=True):
    """A session has begun in a view: the contents that it has from earlier views are there."""


class CopiesWanted(OfSession, frozen=True):
    """Wanted copies on other members, by row of a content that was committed here.

    The number is 0 for a file that others may see.
    """

    counts: Mapping[int, int]


class CopiesReleased(OfSession, frozen=True):
    """The contents of these rows are released. Other members hold copies of them."""

    rows: tuple[int, ...]


class OffersRefused(OfView, frozen=True):
    """Contents of an `OfferCopies` are not here any more, by row."""

    peer: str
    failed: Mapping[int, str]


class OfferCopies(OfView, frozen=True):
    """Ask a member to copy the contents of these rows; `counts` has the number of wanted copies of each row."""

    hosted: "HostedSession"
    peer: str
    counts: Mapping[int, int]


class TakeCopies(OfView, frozen=True):
    """Copy contents of another member: `CopyWritten`, once or several times."""

    hosted: "HostedSession"
    peer: str
    contents: tuple[Content, ...]


class DiscardCopies(msgspec.Struct, frozen=True):
    """Remove copies from the disk."""

    hosted: "HostedSession"
    copies: tuple[Handle, ...]


# About a node that gives its sessions away before it ends.


class ReadContents(OfView, frozen=True):
    """Read which contents a hosted session has here: `ContentsRead`."""

    hosted: "HostedSession"


class ContentsRead(OfView, frozen=True):
    """Rows of the completed data drops of this node in a view whose contents are here."""

    rows: tuple[int, ...]


CopyEvent = ViewBegun | CopiesWanted | CopyWritten | CopiesReleased | OffersRefused
CopyAction = OfferCopies | TakeCopies | DiscardCopies | SendToPeer | AddNote
SessionEvent = Built | NotBuilt | NotConnected | Changed | Over | Ended | Removed | Retired
ViewEvent = Frozen | Continued | PartFinished | PartSettled | Planned | NotPlanned | CopyEvent
PeerEvent = (
    PeersRead | PeerChanged | PeersProbed | LinkRefused | PeerRestarted | PeerStopped | PeerSent | ContentUnavailable
)
Event = Call | SessionEvent | ViewEvent | PeerEvent | CancelRecorded | ContentsRead
Action = (
    Return
    | Build
    | ConnectPeers
    | ReadPeers
    | ProbePeers
    | StartSession
    | RecordCancel
    | CancelSession
    | LoseNode
    | SendToPeer
    | FreezeSession
    | PlanNextView
    | ContinueSession
    | FinishSession
    | ShowWaiting
    | ShowWitness
    | SilenceSession
    | AllowFailure
    | RemoveSession
    | WithdrawSession
    | RetireSession
    | CopyAction
    | ReadContents
    | Log
)
