"""What the two state machines of a link want done, as data; sockets or a fake wire do it."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from managers.links.wire import Frames
from managers.messages import Chunk, ContentGone, Fetch, FetchFailed, Message, Reject

__all__ = [
    "CloseConnection",
    "DataReceived",
    "DeliverMessage",
    "InboundAction",
    "LinkChange",
    "LinkEvent",
    "LogRejection",
    "MessageOrigin",
    "NotifyChange",
    "OpenConnection",
    "OutboundAction",
    "PeerRefused",
    "ReceivedMessage",
    "ReturnCredit",
    "SendPacket",
    "SendReply",
    "ServeFetch",
]


class LinkEvent(Enum):
    """What can happen to the link to a peer."""

    INTRODUCED = "introduced"
    """The peer opened a link to us: first contact, or after it started again or was out of reach."""
    UP = "up"
    """Our link to the peer is open."""
    DOWN = "down"
    """Our link to the peer broke, or cannot be opened; it is tried again by itself."""
    RESTARTED = "restarted"
    """The peer's process is another one now: what was on its way to the old one is lost."""
    REFUSED = "refused"
    """The peer will not talk to us; `Links.connect` tries again."""


class LinkChange(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to a link.

    Attributes
    ----------
    peer : str
        Name of the other process.
    event : LinkEvent
        What.
    incarnation : int
        Of the peer, as far as it is known; 0 otherwise.
    address : str
        Where the peer listens, if it says so (INTRODUCED).
    text, hint : str
        Why, and what to do about it.
    undelivered : int
        Messages that were not acknowledged and will not be sent again: meant for the old process (RESTARTED), which
        may have had some of them, or thrown away (REFUSED).
    """

    peer: str
    event: LinkEvent
    incarnation: int = 0
    address: str = ""
    text: str = ""
    hint: str = ""
    undelivered: int = 0


class MessageOrigin(Protocol):
    """Where a delivery came from: one stream of packets of one incarnation of a peer."""

    peer: str
    incarnation: int


class ReceivedMessage:
    """A message that has arrived: who sent it, the message, and the raw frames beside it.

    By default a message counts as dealt with when the function it was given to returns, and its sender may send more.
    A receiver that cannot deal with it at once calls `hold` in that function, and `release` (from any thread) when it
    is done: until then the message counts against the sender's window.

    Attributes
    ----------
    message : Message
        The message.
    frames : tuple of memoryview
        Raw frames, read-only.
    """

    __slots__ = ("_on_release", "frames", "held", "message", "number", "stream")

    def __init__(self, stream: MessageOrigin, number: int, message: Message, frames: tuple[memoryview, ...]) -> None:
        self.stream = stream
        self.number = number
        self.message = message
        self.frames = frames
        self.held = False
        self._on_release: Callable[[ReceivedMessage], None] | None = None

    @property
    def peer(self) -> str:
        """Name of the sender."""
        return self.stream.peer

    @property
    def incarnation(self) -> int:
        """Incarnation of the sender."""
        return self.stream.incarnation

    def bind(self, on_release: "Callable[[ReceivedMessage], None]") -> None:
        """Say who is to hear of `release`; the owner of the link does."""
        self._on_release = on_release

    def hold(self) -> None:
        """Count the message against the sender's window until `release`."""
        self.held = True

    def release(self) -> None:
        """The message is dealt with. Idempotent."""
        if self.held and self._on_release is not None:
            self.held = False
            self._on_release(self)


class OpenConnection(msgspec.Struct, frozen=True):
    """Open connection number `generation` to the peer; whatever came before it is void."""

    generation: int
    address: str


class CloseConnection(msgspec.Struct, frozen=True):
    """Close the connection to the peer."""


class SendPacket(msgspec.Struct, frozen=True):
    """SendPacket on the connection to the peer."""

    frames: Frames


class ReturnCredit(msgspec.Struct, frozen=True):
    """The peer has dealt with so many bytes."""

    cost: int


class PeerRefused(msgspec.Struct, frozen=True):
    """Nothing more can be sent to the peer: `LinkChange` says why."""

    change: LinkChange


class NotifyChange(msgspec.Struct, frozen=True):
    """NotifyChange whoever wants to know."""

    change: LinkChange


class DataReceived(msgspec.Struct, frozen=True):
    """A packet of the data plane came back on our connection to the peer."""

    packet: Chunk | ContentGone | FetchFailed
    raw: Frames


class SendReply(msgspec.Struct, frozen=True):
    """SendPacket to the connecting end known by `route`."""

    route: bytes
    frames: Frames


class DeliverMessage(msgspec.Struct, frozen=True):
    """Hand a message on."""

    delivery: ReceivedMessage


class ServeFetch(msgspec.Struct, frozen=True):
    """The connecting end known by `route` wants content."""

    route: bytes
    peer: str
    fetch: Fetch


class LogRejection(msgspec.Struct, frozen=True):
    """A connecting end was refused: for the log."""

    refusal: Reject


OutboundAction = (
    OpenConnection | CloseConnection | SendPacket | ReturnCredit | PeerRefused | NotifyChange | DataReceived
)
InboundAction = SendReply | DeliverMessage | ServeFetch | NotifyChange | LogRejection
