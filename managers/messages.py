"""Every message between dropflow processes, in one file: tagged records in MessagePack, never pickles.

There are two layers, told apart by where they may stand:

* a `Packet` is the header frame of one ZeroMQ message between two `managers.links`. Packets carry the handshake, the
  numbered stream with its acknowledgements, heartbeats, and the data plane;
* a `Message` is what the packages above exchange. Messages are carried by the numbered stream (`MessageBatch`,
  `Fragment`) and arrive exactly once and in order.

A message may have raw frames beside its body. All arrays are little-endian. What managers say to each other goes over
REST (`dropflow.rest`), not through here.

Changing this file: new fields go to the end of a record and have a default, so that older processes read what they
know and ignore the rest; anything else raises `PROTOCOL`, which the handshake compares. The bytes of one example of
each record are committed beside the tests.
"""

import sys
from array import array
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike, NDArray

from dropflow.engine.api import Handle
from dropflow.errors import ProtocolError
from dropflow.failure import Failure

__all__ = [
    "PROTOCOL",
    "Ack",
    "Chunk",
    "Content",
    "ContentGone",
    "Events",
    "Fetch",
    "FetchFailed",
    "Fragment",
    "Handshake",
    "HandshakeReply",
    "Heartbeat",
    "Message",
    "MessageBatch",
    "Packet",
    "Reject",
    "Shutdown",
    "StopSession",
    "StreamUpdate",
    "decode_message",
    "decode_packet",
    "encode",
]

PROTOCOL = 1
"""Version of everything in this file; two processes talk only if theirs are equal."""

_Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Text = Annotated[str, Meta(max_length=4096)]


# Packets: the handshake -----------------------------------------------------------------------------------------------


class Handshake(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """First packet of a connection, from the end that opened it.

    Attributes
    ----------
    protocol : int
        `PROTOCOL` of the sender.
    name : str
        Name of the sending process in its cluster.
    incarnation : int
        Grows with each start of the process called `name`; a lower one than known is refused.
    to : str
        Name of the process that the sender means to reach.
    stream : int
        Grows when the sender throws away what it had to send and numbers from 1 again.
    address : str
        Where the sender itself listens, so that it can be answered; empty if it does not.
    """

    protocol: _Natural
    name: _Name
    incarnation: _Natural
    to: _Name
    stream: _Natural
    address: Annotated[str, Meta(max_length=1024)] = ""


class HandshakeReply(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """Answer to `Handshake`: the sender may go on after packet number `received`, and may forget up to `consumed`."""

    protocol: _Natural
    name: _Name
    incarnation: _Natural
    received: _Natural = 0
    consumed: _Natural = 0


class Reject(msgspec.Struct, frozen=True, array_like=True, tag="refuse"):
    """The listening end will not talk to this connection.

    `code` is one of ``protocol``, ``name``, ``stale``, ``full``, ``garbage`` and ``hello`` (a packet came before the
    handshake: start again).
    """

    code: Annotated[str, Meta(max_length=32)]
    text: _Text
    hint: _Text = ""


# Packets: the numbered stream -----------------------------------------------------------------------------------------


class MessageBatch(msgspec.Struct, frozen=True, array_like=True, tag="carry"):
    """One packet of whole small messages. Each message is its body, followed by its raw frames if it has any."""

    number: _Natural
    messages: list[Annotated[list[bytes], Meta(min_length=1)]]


class Fragment(msgspec.Struct, frozen=True, array_like=True, tag="part"):
    """One packet of a message too large for `MessageBatch`; raw frames follow this header.

    Body and raw frames of the message, laid end to end, are cut into parts. `sizes`, the bytes of the body and of each
    raw frame, stands in the first part only, where `start` is 0.
    """

    number: _Natural
    start: _Natural
    sizes: Annotated[list[_Natural], Meta(max_length=1024)] = []


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """How far the receiver is: all packets up to `received` have arrived, those up to `consumed` are dealt with.

    `again` says that a packet after `received` is missing and asks for everything after it.
    """

    received: _Natural
    consumed: _Natural
    again: bool = False


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """Sign of life of an idle link, answered by `Ack`; `sent` is the number of the last packet before it."""

    sent: _Natural


# Packets: the data plane ----------------------------------------------------------------------------------------------


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Request for `length` bytes, from `offset`, of the content of a drop.

    It is answered by `Chunk`, `ContentGone` or `FetchFailed`.

    `request` names the whole transfer; a transfer asks for several ranges ahead, and that is its credit. `check` asks
    the sender for the CRC-32 of each chunk. `attempt` 0 means whichever attempt was committed, another one what it is
    writing. With a `producer`, an application of the asked node, what is wanted is its uncommitted part of a drop that
    lives elsewhere.
    """

    request: _Natural
    session: _Name
    drop: _Natural
    attempt: _Natural
    offset: _Natural
    length: Annotated[int, Meta(ge=1, le=64 << 20)]
    check: bool = True
    producer: Annotated[int, Meta(ge=-1)] = -1


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """Bytes from `offset` on, in the raw frame that follows.

    `total` is the size of the whole content, or -1 while it is still growing; `last` says that nothing follows.
    `checksum` is the CRC-32 of this chunk, or -1 when nobody asked for it.
    """

    request: _Natural
    offset: _Natural
    total: Annotated[int, Meta(ge=-1)]
    last: bool
    checksum: Annotated[int, Meta(ge=-1, le=2**32 - 1)] = -1


class ContentGone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """The content asked for was released, or belongs to another attempt; asking again is no use."""

    request: _Natural
    reason: _Text


class FetchFailed(msgspec.Struct, frozen=True, array_like=True, tag="fetch-failed"):
    """The content asked for could not be read."""

    request: _Natural
    failure: Failure


Packet = (
    Handshake
    | HandshakeReply
    | Reject
    | MessageBatch
    | Fragment
    | Ack
    | Heartbeat
    | Fetch
    | Chunk
    | ContentGone
    | FetchFailed
)
"""Header frame of a ZeroMQ message."""


# Messages: node to node -----------------------------------------------------------------------------------------------


class Content(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where the content of a drop is that an `Events` message tells of.

    Attributes
    ----------
    drop : int
        Drop of the whole graph.
    handle : Handle
        With its body if it is small. The `final` path of a part is relative (``./...``) where it lies in the session's
        directory, which is another one on each node.
    producer : int
        The application of the sender whose part of a drop of the receiver this is; -1 for the content of a data drop
        of the sender.
    stamp : tuple of int
        Inode, size and time of change (ns) of the file or directory: who finds the same under that path is on the same
        file system and need not fetch. Empty where there is no file.
    """

    drop: _Natural
    handle: Handle
    producer: Annotated[int, Meta(ge=-1)] = -1
    stamp: tuple[int, ...] = ()


class StreamUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A data drop that is being written and can be fetched while it grows, from the sender; or cannot any more.

    Attributes
    ----------
    drop : int
        Drop of the whole graph.
    attempt : int
        Of the application that writes it; what is fetched is named by it.
    producer : int
        That application, if it is one of the sender and the drop one of the receiver; -1 for a drop of the sender.
    handle : Handle or None
        What it is going to be; its path is only known to the sender. None if what was written counts no more.
    """

    drop: _Natural
    attempt: Annotated[int, Meta(ge=1)]
    producer: Annotated[int, Meta(ge=-1)] = -1
    handle: Handle | None = None


class Events(msgspec.Struct, frozen=True, array_like=True, tag="events"):
    """Drops of one node that reached terminal states or are open, for a node that has consumers or producers of theirs.

    Attributes
    ----------
    session : str
        Session id.
    epoch : int
        Counts the deployments of the session; a receiver ignores epochs other than its own.
    sequence : int
        Counts these messages from one node to another within an epoch, from 1.
    drops : bytes
        int32 array: drop ids of the whole graph.
    states : bytes
        uint8 array, as long: `dropflow.states.DropState`.
    attempts : bytes
        uint16 array, as long: the attempt that led to the state.
    causes : bytes
        int32 array, as long: the drop that started an error, or -1. Where the state is SKIPPED and the drop is one of
        the receiver, the application that chose to skip it; its own row follows in the same message.
    contents : tuple of Content
        Of data drops in this message, and parts that applications in this message wrote to drops of the receiver.
    streams : tuple of StreamUpdate
        Data drops that are open, or not any more; they come before everything else in this message.
    """

    session: _Name
    epoch: _Natural
    sequence: _Natural
    drops: bytes
    states: bytes
    attempts: bytes
    causes: bytes
    contents: tuple[Content, ...] = ()
    streams: tuple[StreamUpdate, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.states)
        if (len(self.drops), len(self.attempts), len(self.causes)) != (4 * count, 2 * count, 4 * count):
            raise ValueError("the arrays of an Events message differ in length")

    def __len__(self) -> int:
        return len(self.states)

    @classmethod
    def of(
        cls,
        session: str,
        epoch: int,
        sequence: int,
        *,
        drops: ArrayLike,
        states: ArrayLike,
        attempts: ArrayLike,
        causes: ArrayLike,
        contents: tuple[Content, ...] = (),
        streams: tuple[StreamUpdate, ...] = (),
    ) -> "Events":
        """Message from anything numpy makes arrays of; a value that does not fit its type is an `OverflowError`."""
        return cls(
            session,
            epoch,
            sequence,
            _column(drops, "<i4"),
            _column(states, "<u1"),
            _column(attempts, "<u2"),
            _column(causes, "<i4"),
            contents,
            streams,
        )

    def columns(self) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint16], NDArray[np.int32]]:
        """Drops, states, attempts and causes: read-only views, shape (len,), of the bytes of this message."""
        return (
            np.frombuffer(self.drops, "<i4"),
            np.frombuffer(self.states, "<u1"),
            np.frombuffer(self.attempts, "<u2"),
            np.frombuffer(self.causes, "<i4"),
        )


class StopSession(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """The sender has given up a session: it was cancelled, or, with a `failure`, a node of it is lost.

    `node` is the lost node; `reason` is why it was cancelled.
    """

    session: _Name
    epoch: _Natural
    reason: _Text = ""
    node: Annotated[str, Meta(max_length=255)] = ""
    failure: Failure | None = None


class Shutdown(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """The sender stops of its own will; do not look for it."""

    reason: _Text = ""


Message = Events | StopSession | Shutdown
"""What rides in the numbered stream."""

_CODES = {"<i4": "i", "<u1": "B", "<u2": "H"}
"""Type codes of `array.array` for those of numpy."""

_encoder = msgspec.msgpack.Encoder()
_packets: msgspec.msgpack.Decoder[Packet] = msgspec.msgpack.Decoder(Packet)
_messages: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(record: Packet | Message) -> bytes:
    """Bytes of a packet or message."""
    return _encoder.encode(record)


def decode_packet(frame: bytes | bytearray | memoryview) -> Packet:
    """Packet in a header frame.

    Raises
    ------
    ProtocolError
        The frame is not a packet of this protocol.
    """
    try:
        return _packets.decode(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame of {len(frame)} bytes is not a packet: {error}") from error


def decode_message(body: bytes | bytearray | memoryview) -> Message:
    """Message of which these bytes are the body.

    Raises
    ------
    ProtocolError
        The bytes are not a message of this protocol.
    """
    try:
        return _messages.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"{len(body)} bytes are not a message: {error}") from error


def _column(values: ArrayLike, kind: str) -> bytes:
    """Bytes of `values` as a little-endian array; never wraps a value that does not fit."""
    if isinstance(values, list):
        # Most messages tell of one or two drops, for which this takes a tenth of the time.
        try:
            column = array(_CODES[kind], values)
        except (OverflowError, TypeError):
            pass  # what is wrong is said below
        else:
            if sys.byteorder == "big":
                column.byteswap()
            return column.tobytes()
    wanted = np.dtype(kind)
    given = np.asarray(values)
    if given.dtype != wanted and given.size:
        limits = np.iinfo(wanted)
        if given.dtype.kind not in "iub" or int(given.min()) < limits.min or int(given.max()) > limits.max:
            raise OverflowError(f"values from {given.min()} to {given.max()} do not fit {wanted.name}")
    return given.astype(wanted, copy=False).tobytes()
