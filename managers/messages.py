"""Every message that nodes send over links, in one file: tagged records in MessagePack, never pickles.

There are two layers, distinguished by where they may occur:

* a `Packet` is the header frame of one ZeroMQ message between two `managers.links`. Packets carry the handshake, the
  numbered stream with its acknowledgements, heartbeats, and the data plane;
* a `Message` is what the packages above exchange. Messages are carried by the numbered stream (`MessageBatch`,
  `Fragment`) and arrive exactly once and in order.

A message may have raw frames beside its body. All arrays are little-endian. Received messages of a session go to its
`managers.node.host`. Islands, masters and commands call managers over REST (`dropflow.api.operations`), and a
pool and its workers have messages of their own (`dropflow.runners.worker_messages`).

Changing this file: new fields go to the end of a record and have a default, so that older processes read what they
know and ignore the rest; a new message is for what earlier processes cannot take part in, as `RankMessage`; anything
else raises `PROTOCOL`, which the handshake compares. The bytes of one example of each record are committed beside the
tests.
"""

import sys
from array import array
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike, NDArray

from dropflow.errors import ProtocolError
from dropflow.execution.content_location import Handle
from dropflow.failure import Failure

PROTOCOL = 2
"""Version of everything in this file; two processes talk only if theirs are equal."""

_Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Incarnation = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Exact in JSON, as the directory of a node keeps it."""
_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Text = Annotated[str, Meta(max_length=4096)]
_Ballot = tuple[_Natural, _Natural]
_CODES = {"<i4": "i", "<u1": "B", "<u2": "H"}
"""Type codes of `array.array` for those of numpy."""
_encoder = msgspec.msgpack.Encoder()


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
        Grows with each start of the process called `name`; if a process of this name has sent a message lately, a lower
        incarnation is refused.
    to : str
        Name of the process to which the packet is sent.
    stream : int
        Grows when the sender discards what it had to send and numbers from 1 again.
    address : str
        Address that the sender listens on, for answers; empty if there is none.
    """

    protocol: _Natural
    name: _Name
    incarnation: _Incarnation
    to: _Name
    stream: _Natural
    address: Annotated[str, Meta(max_length=1024)] = ""


class HandshakeReply(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """Answer to `Handshake`: packets up to number `received` have arrived, those up to `consumed` are processed."""

    protocol: _Natural
    name: _Name
    incarnation: _Incarnation
    received: _Natural = 0
    consumed: _Natural = 0


class Reject(msgspec.Struct, frozen=True, array_like=True, tag="refuse"):
    """The listening end rejects the connection.

    `code` is one of ``protocol``, ``name``, ``stale``, ``full``, ``garbage`` and ``hello`` (a packet came before the
    handshake; connect again).
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

    The message, body and raw frames end to end, is split into fragments. `sizes`, the bytes of the body and of each raw
    frame, is in the first fragment only, where `start` is 0.
    """

    number: _Natural
    start: _Natural
    sizes: Annotated[list[_Natural], Meta(max_length=1024)] = []


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """Progress of the receiver: packets up to `received` have arrived, packets up to `consumed` are processed.

    `again` requests everything after `received`, since a packet is missing.
    """

    received: _Natural
    consumed: _Natural
    again: bool = False


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """Heartbeat of an idle link, answered by `Ack`; `sent` is the number of the last packet before it."""

    sent: _Natural


# Packets: the data plane ----------------------------------------------------------------------------------------------


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Request for `length` bytes, from `offset`, of the content of a drop.

    It is answered by `Chunk`, `ContentGone` or `FetchFailed`.

    `request` identifies the transfer; a transfer requests several ranges ahead, and that is its credit. `check`
    requests the CRC-32 of each chunk. `attempt` 0 means the committed content, another one what that attempt is
    writing. With a `producer`, an application of the answering node, its uncommitted part of a drop of another node is
    requested.
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

    `total` is the size of the whole content, or -1 while it is growing; after the `last` chunk nothing follows.
    `checksum` is the CRC-32 of this chunk, or -1 when it was not requested.
    """

    request: _Natural
    offset: _Natural
    total: Annotated[int, Meta(ge=-1)]
    last: bool
    checksum: Annotated[int, Meta(ge=-1, le=2**32 - 1)] = -1


class ContentGone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """The requested content was released, or belongs to another attempt; a retry would fail too."""

    request: _Natural
    reason: _Text


class FetchFailed(msgspec.Struct, frozen=True, array_like=True, tag="fetch-failed"):
    """The requested content could not be read."""

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
    """Location of the content of a drop in an `Events` message.

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
        Inode, size and time of change (ns) of the file or directory: a node that finds the same under that path is on
        the same file system and need not fetch. Empty where there is no file.
    """

    drop: _Natural
    handle: Handle
    producer: Annotated[int, Meta(ge=-1)] = -1
    stamp: tuple[int, ...] = ()


class StreamUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The growing content of a data drop can be fetched from the sender or, if there is no handle, no longer.

    Attributes
    ----------
    drop : int
        Drop of the whole graph.
    attempt : int
        Attempt of the application that writes it; fetches name it.
    producer : int
        That application, if it is one of the sender and the drop one of the receiver; -1 for a drop of the sender.
    handle : Handle or None
        The content that it will be, without its path. None if what was written is discarded.
    """

    drop: _Natural
    attempt: Annotated[int, Meta(ge=1)]
    producer: Annotated[int, Meta(ge=-1)] = -1
    handle: Handle | None = None


class SessionMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message about one deployment of a session; `epoch` counts them, and a receiver ignores other ones."""

    session: _Name
    epoch: _Natural


class Events(SessionMessage, frozen=True, array_like=True, tag="events"):
    """Drops of one node that are settled or open, for a node that has consumers or producers of them.

    Attributes
    ----------
    session : str
        Session id.
    epoch : int
        Counts the deployments of the session; a receiver ignores other epochs.
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
        Contents of data drops in this message, and parts that its applications wrote to drops of the receiver.
    streams : tuple of StreamUpdate
        Data drops that are open, or not any more; to be handled before everything else in this message.
    view : int
        The view of the session (`managers.recovery`); a receiver ignores earlier ones, and keeps later ones until it is
        in the same view.
    """

    sequence: _Natural
    drops: bytes
    states: bytes
    attempts: bytes
    causes: bytes
    contents: tuple[Content, ...] = ()
    streams: tuple[StreamUpdate, ...] = ()
    view: _Natural = 0

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
        view: int = 0,
    ) -> "Events":
        """Return a message from anything numpy makes arrays of; raise `OverflowError` for a value that does not fit."""
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
            view,
        )

    def columns(self) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint16], NDArray[np.int32]]:
        """Return drops, states, attempts and causes: read-only views, shape (len,), of the bytes of this message."""
        return (
            np.frombuffer(self.drops, "<i4"),
            np.frombuffer(self.states, "<u1"),
            np.frombuffer(self.attempts, "<u2"),
            np.frombuffer(self.causes, "<i4"),
        )


class StopSession(SessionMessage, frozen=True, array_like=True, tag="stop"):
    """The session is given up: it was cancelled, or, with a `failure`, a node of it is lost.

    `node` is the lost node; `reason` is why it was cancelled.
    """

    reason: _Text = ""
    node: Annotated[str, Meta(max_length=255)] = ""
    failure: Failure | None = None


class RankMessage(SessionMessage, frozen=True, array_like=True, tag="ranks"):
    """A message of one node to another about an MPI job over both: see `dropflow.apps.mpi`."""

    job: _Text
    text: Annotated[str, Meta(max_length=1 << 20)]


# Messages: views of a session -----------------------------------------------------------------------------------------


class MessageOfView(SessionMessage, frozen=True, array_like=True):
    """A message about one view of a session."""

    view: _Natural


class VoteMessage(MessageOfView, frozen=True, array_like=True):
    """A message of the vote on the next view."""

    ballot: _Ballot


class PrepareView(VoteMessage, frozen=True, array_like=True, tag="view-prepare"):
    """A candidate asks a voter of `view` for its report, and to refuse smaller ballots from now on."""


class PromiseView(VoteMessage, frozen=True, array_like=True, tag="view-promise"):
    """Answer to `PrepareView`.

    Attributes
    ----------
    report : bytes
        Encoded `managers.recovery.records.MemberReport`; empty from a witness.
    accepted_ballot : tuple of int
        The ballot of the decision that the voter accepted last; (0, 0) if it accepted none.
    accepted : bytes
        That decision, encoded.
    """

    report: bytes
    accepted_ballot: _Ballot = (0, 0)
    accepted: bytes = b""


class ProposeView(VoteMessage, frozen=True, array_like=True, tag="view-propose"):
    """A candidate that has the promises of a majority proposes a decision, an encoded `ViewDecision`."""

    decision: bytes


class AcceptView(VoteMessage, frozen=True, array_like=True, tag="view-accept"):
    """A voter has accepted a proposal."""


class RejectView(VoteMessage, frozen=True, array_like=True, tag="view-reject"):
    """A voter refuses a ballot, because it has promised this greater one."""


class AdoptView(MessageOfView, frozen=True, array_like=True, tag="view-adopt"):
    """The successor of `view` is decided: an encoded `ViewDecision`."""

    decision: bytes


class RequestView(MessageOfView, frozen=True, array_like=True, tag="view-request"):
    """A member is asked to have the successor of `view` decided, with `change`, an encoded `RequestedChange`."""

    change: bytes


class PartDone(MessageOfView, frozen=True, array_like=True, tag="part-done"):
    """All drops of the sender, and of its neighbours as far as it knows, are settled in this view.

    To the first member of the view. This asks the others in the same way whether they are still there, and each answers
    with the same message. A reminder only asks whether the session is over: a member where it is answers `SessionDone`.
    `end` is an encoded `dropflow.api.session_records.PartEnd`: how the part of the sender ended.
    """

    is_reminder: bool = False
    end: bytes = b""


class SessionDone(MessageOfView, frozen=True, array_like=True, tag="session-done"):
    """All members have done their part: the session is over. `ends` has how each part ended, as `PartDone` has it."""

    ends: tuple[bytes, ...] = ()


# Messages: copies of contents -----------------------------------------------------------------------------------------


class CopyContents(MessageOfView, frozen=True, array_like=True, tag="copy"):
    """The owner of drops asks a member to hold a copy of each of these contents, which it can fetch from the owner.

    Attributes
    ----------
    contents : tuple of Content
        The `final` path of a file is where it lies: relative in the session's directory, absolute elsewhere. The
        `stamp` is empty for what lies in the session's directory, which the owner may remove.
    counts : tuple of int
        As long: how many copies of it are wanted, so that another owner can have lost ones made anew.
    """

    contents: tuple[Content, ...]
    counts: tuple[_Natural, ...] = ()


class RowsMessage(MessageOfView, frozen=True, array_like=True):
    """A message about the contents of drops: an int32 array of rows.

    Raises
    ------
    ValueError
        The array has no whole rows.
    """

    drops: bytes

    def rows(self) -> list[int]:
        """Return the rows of the drops."""
        rows: list[int] = np.frombuffer(self.drops, "<i4").tolist()
        return rows

    def __post_init__(self) -> None:
        if len(self.drops) % 4:
            raise ValueError(f"the array of a {type(self).__name__} message has no whole rows")


class CopiesTaken(RowsMessage, frozen=True, array_like=True, tag="copied"):
    """A member has copies of the contents of these drops, and could not copy others, with why."""

    failed: dict[int, str] = {}


class ReleaseCopies(RowsMessage, frozen=True, array_like=True, tag="uncopy"):
    """The owner of these drops does not need their copies any more."""


CopyMessage = CopyContents | CopiesTaken | ReleaseCopies
"""Messages that members of a session exchange about copies of contents."""

ViewMessage = PrepareView | PromiseView | ProposeView | AcceptView | RejectView | AdoptView | RequestView
"""Messages that the voters of a session exchange about its next view."""


Message = Events | StopSession | RankMessage | ViewMessage | PartDone | SessionDone | CopyMessage
"""Messages in the numbered stream."""


_packets: msgspec.msgpack.Decoder[Packet] = msgspec.msgpack.Decoder(Packet)
_messages: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(record: Packet | Message) -> bytes:
    """Encode a packet or message."""
    return _encoder.encode(record)


def decode_packet(frame: bytes | bytearray | memoryview) -> Packet:
    """Decode a header frame.

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
    """Decode the body of a message.

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
    """Return `values` as the bytes of a little-endian array; never wrap a value that does not fit."""
    if isinstance(values, list):
        # Most messages have one or two drops, for which this takes a tenth of the time.
        try:
            column = array(_CODES[kind], values)
        except (OverflowError, TypeError):
            pass  # the error is raised below
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
