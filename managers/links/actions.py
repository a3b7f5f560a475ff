"""The actions of the state machines of links, as frozen data; a `LinkDriver` carries them out."""

from enum import Enum

import msgspec

from dropflow.errors import DropflowError
from managers.links.packing import Buffer, Frames
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed, Message, Reject


class LinkEvent(Enum):
    """A change of the link to a peer."""

    INTRODUCED = "introduced"
    """The peer opened a link to this process: at first contact, and after a restart or a lost connection."""
    UP = "up"
    """The link to the peer is open."""
    DOWN = "down"
    """The link to the peer is broken or cannot be opened; it is reopened automatically."""
    RESTARTED = "restarted"
    """The peer runs in another process now; what was in flight to the old one is lost."""
    REFUSED = "refused"
    """The peer rejects this process; `Links.connect` tries again."""


class LinkChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the state of a link.

    Attributes
    ----------
    peer : str
        Name of the other process.
    event : LinkEvent
        The change of the link.
    incarnation : int
        Incarnation of the peer; 0 if it is unknown.
    address : str
        Address that the peer listens on, if it sent one (INTRODUCED).
    text, hint : str
        The reason, and what to do about it.
    undelivered : int
        Unacknowledged messages that are not sent again: those for the old process (RESTARTED), which may have received
        some of them, or those discarded (REFUSED).
    """

    peer: str
    event: LinkEvent
    incarnation: int = 0
    address: str = ""
    text: str = ""
    hint: str = ""
    undelivered: int = 0


class ReceivedMessage(msgspec.Struct, frozen=True):
    """A message that has arrived: it is passed to the application, and then counts as processed.

    Attributes
    ----------
    peer, incarnation :
        The process that has sent it.
    message : Message
        The message.
    frames : tuple of memoryview
        Raw frames, read-only.
    """

    peer: str
    incarnation: int
    message: Message
    frames: tuple[memoryview, ...] = ()


# Of the sending end ---------------------------------------------------------------------------------------------------


class OpenConnection(msgspec.Struct, frozen=True):
    """Open connection number `generation` to the peer, in place of any earlier one."""

    peer: str
    generation: int
    address: str


class CloseConnection(msgspec.Struct, frozen=True):
    """Close the connection to the peer."""

    peer: str


class SendPacket(msgspec.Struct, frozen=True):
    """Send on the connection to the peer."""

    peer: str
    frames: Frames


class ReturnCredit(msgspec.Struct, frozen=True):
    """The peer has processed this many bytes: they do not count against its window any more."""

    peer: str
    cost: int


class PeerRefused(msgspec.Struct, frozen=True):
    """The peer rejects this process; `change` has the reason."""

    change: LinkChange


class NotifyChange(msgspec.Struct, frozen=True):
    """Report a change of a link."""

    change: LinkChange


class DataReceived(msgspec.Struct, frozen=True):
    """A packet of the data plane arrived on the connection to the peer."""

    packet: Chunk | ContentGone | FetchFailed
    raw: Frames


# Of the receiving end -------------------------------------------------------------------------------------------------


class SendReply(msgspec.Struct, frozen=True):
    """Send to the connecting end with this route."""

    route: bytes
    frames: Frames


class ServeFetch(msgspec.Struct, frozen=True):
    """Answer a request for content from the connecting end with this route."""

    route: bytes
    fetch: Fetch


class LogRejection(msgspec.Struct, frozen=True):
    """Log that a connecting end was rejected."""

    rejection: Reject


# Of the link manager --------------------------------------------------------------------------------------------------


class FailSenders(msgspec.Struct, frozen=True):
    """Raise `error` in everything that sends to the peer, until the next connect."""

    peer: str
    error: DropflowError


class PassChunk(msgspec.Struct, frozen=True):
    """Pass the next bytes of a transfer to its reader."""

    request: int
    chunk: Chunk
    data: Buffer


class FailTransfer(msgspec.Struct, frozen=True):
    """End a transfer with an error."""

    request: int
    error: DropflowError


OutboundAction = (
    OpenConnection | CloseConnection | SendPacket | ReturnCredit | PeerRefused | NotifyChange | DataReceived
)
InboundAction = SendReply | ReceivedMessage | ServeFetch | NotifyChange | LogRejection
LinkAction = (
    OpenConnection
    | CloseConnection
    | SendPacket
    | ReturnCredit
    | FailSenders
    | NotifyChange
    | SendReply
    | ReceivedMessage
    | ServeFetch
    | LogRejection
    | PassChunk
    | FailTransfer
)


# Counts and states of the links of a process, as frozen records.


class PeerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The link to one peer.

    Attributes
    ----------
    peer : str
        Its name.
    state : str
        ``idle``, ``connecting``, ``up``, ``waiting`` or ``refused``.
    address : str
        Address that it listens on.
    incarnation : int
        Incarnation of the peer; 0 if it never answered.
    pending : int
        Bytes sent or queued that it has not processed.
    waiting : int
        Number of senders that wait for room.
    resent : int
        Number of packets that were sent again.
    problem : str
        Why the link is not up.
    """

    peer: str
    state: str
    address: str
    incarnation: int
    pending: int
    waiting: int
    resent: int
    problem: str


class LinkStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """All links of a process.

    Attributes
    ----------
    name, incarnation, address :
        Those of this process.
    peers : tuple of PeerStatistics
        By name.
    delivered : int
        Number of messages passed on.
    duplicates : int
        Number of duplicate packets that were dropped.
    refused : int
        Number of connections that were refused: wrong key, wrong version, or not packets.
    transfers : int
        Number of fetches that are running.
    fetched : int
        Bytes of contents that arrived.
    errors : int
        Number of messages and changes whose receiver raised an exception.
    """

    name: str
    incarnation: int
    address: str
    peers: tuple[PeerStatistics, ...]
    delivered: int
    duplicates: int
    refused: int
    transfers: int
    fetched: int
    errors: int
