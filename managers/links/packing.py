"""Messages to packets, and packets to messages. No sockets, no time.

Small messages share a packet (`MessageBatch`). A large one is split into fragments, which are views of the caller's own
buffers, so that nothing is copied when it is sent; a fragment that covers a whole raw frame is not copied either.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from dropflow.errors import ProtocolError, UsageError
from managers.links.send_window import FRAME_LIMIT, MESSAGE_LIMIT, MOST_IN_FRAME
from managers.messages import Chunk, Fragment, Message, MessageBatch, Packet, encode

Buffer = bytes | bytearray | memoryview

Frames = tuple[Buffer, ...]
"""One ZeroMQ message: a header and raw frames."""

_FRAMES_LIMIT = 1000
"""Frames of one message."""
_OVERHEAD = 64
"""Bytes counted for a message besides its content: headers, and the records that remember it."""


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message ready to be packed: its body and raw frames, each a flat buffer of bytes, and its cost in bytes."""

    segments: Frames
    cost: int


class NumberedPacket(msgspec.Struct, frozen=True):
    """A numbered packet, kept until the other end has it. `messages` is the number of messages that end in it."""

    number: int
    frames: Frames
    cost: int
    messages: int


def view(buffer: object) -> memoryview:
    """Return a flat view of the bytes of anything with the buffer protocol, such as a numpy array."""
    flat = memoryview(buffer)  # type: ignore[arg-type]
    return flat if flat.ndim == 1 and flat.format == "B" else flat.cast("B")


def outgoing_message(message: Message, frames: Sequence[object] = ()) -> OutgoingMessage:
    """Return `message` with raw `frames` beside it, ready to be packed.

    Raises
    ------
    UsageError
        The message is too large.
    """
    segments: Frames = (encode(message), *(view(frame) for frame in frames))
    size = sum(len(segment) for segment in segments)
    if size > MESSAGE_LIMIT or len(segments) > _FRAMES_LIMIT:
        kind = type(message).__name__
        raise UsageError(
            f"a {kind} message of {size:,} bytes in {len(segments)} frames is too large (at most {MESSAGE_LIMIT:,})",
            hint="let the other end fetch its content instead",
        )
    return OutgoingMessage(segments, size + _OVERHEAD)


class Packer:
    """Splits and bundles messages into numbered packets, in order.

    Parameters
    ----------
    fragment : int
        Bytes in one fragment of a large message.
    """

    def __init__(self, fragment: int) -> None:
        self._fragment = fragment
        self._outgoing: deque[OutgoingMessage] = deque()
        self._fragments: Iterator[NumberedPacket] | None = None
        self.number = 0

    @property
    def is_empty(self) -> bool:
        """Whether everything is packed."""
        return not self._outgoing and self._fragments is None

    def put(self, message: OutgoingMessage) -> None:
        """Add a message at the end."""
        self._outgoing.append(message)

    def next_packet(self) -> NumberedPacket | None:
        """Return the next packet; None when there is nothing to pack."""
        if self._fragments is not None:
            packet = next(self._fragments, None)
            if packet is not None:
                return packet
            self._fragments = None
        if not self._outgoing:
            return None
        if self._outgoing[0].cost - _OVERHEAD > MOST_IN_FRAME:
            self._fragments = self._split(self._outgoing.popleft())
            return next(self._fragments)
        return self._bundle()

    def clear(self) -> tuple[int, int]:
        """Discard what is not packed, and number from 1 again.

        Returns the number of messages (one begun included) and their cost in bytes.
        """
        rest = list(self._fragments or ())
        messages = len(self._outgoing) + sum(packet.messages for packet in rest)
        cost = sum(message.cost for message in self._outgoing) + sum(packet.cost for packet in rest)
        self._outgoing.clear()
        self._fragments = None
        self.number = 0
        return messages, cost

    def _next_number(self) -> int:
        self.number += 1
        return self.number

    def _bundle(self) -> NumberedPacket:
        messages: list[list[bytes]] = []
        cost = size = 0
        while self._outgoing:
            message = self._outgoing[0]
            size += message.cost
            if messages and size > MOST_IN_FRAME:
                break
            self._outgoing.popleft()
            messages.append([bytes(segment) for segment in message.segments])
            cost += message.cost
        number = self._next_number()
        return NumberedPacket(number, (encode(MessageBatch(number, messages)),), cost, len(messages))

    def _split(self, message: OutgoingMessage) -> Iterator[NumberedPacket]:
        """Yield the packets of one message: consecutive slices of its segments, `fragment` bytes in each."""
        sizes = [len(segment) for segment in message.segments]
        total, start, room = sum(sizes), 0, self._fragment
        pieces: list[Buffer] = []

        def packet(end: int) -> NumberedPacket:
            number = self._next_number()
            header = encode(Fragment(number, start, sizes if start == 0 else []))
            cost = end - start + (_OVERHEAD if end == total else 0)
            return NumberedPacket(number, (header, *pieces), cost, int(end == total))

        position = 0
        for segment in message.segments:
            whole = memoryview(segment)
            taken = 0
            while taken < len(whole):
                piece = whole[taken : taken + room]
                pieces.append(piece)
                taken, position, room = taken + len(piece), position + len(piece), room - len(piece)
                if room == 0 or position == total:
                    yield packet(position)
                    start, room, pieces = position, self._fragment, []


class Reassembler:
    """Reassembles the large messages of one peer from their fragments, which must come in order."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._segments: list[Buffer] = []
        self._position = self._total = 0
        self._filled = 0

    @property
    def is_open(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._position < self._total

    def add(self, fragment: Fragment, pieces: Sequence[Buffer]) -> list[Buffer] | None:
        """Add one fragment; return the segments of the message if this was its last one.

        Raises
        ------
        ProtocolError
            The fragment does not follow the one before it, or announces a message that is too large.
        """
        if fragment.start == 0:
            self._begin(fragment)
        if not fragment.start == self._position < self._total:
            raise ProtocolError(f"a fragment starts at byte {fragment.start}, expected byte {self._position}")
        for piece in pieces:
            self._append(piece)
        if self.is_open:
            return None
        segments = self._segments + [b""] * (len(self._sizes) - len(self._segments))
        self._sizes, self._segments, self._position, self._total = [], [], 0, 0
        return segments

    def _begin(self, fragment: Fragment) -> None:
        total = sum(fragment.sizes)
        if self.is_open:
            raise ProtocolError("a message began inside another")
        if total > MESSAGE_LIMIT or not fragment.sizes or not total:
            raise ProtocolError(f"a message of {total:,} bytes was announced (at most {MESSAGE_LIMIT:,})")
        self._sizes, self._segments, self._position, self._total, self._filled = list(fragment.sizes), [], 0, total, 0

    def _append(self, piece: Buffer) -> None:
        while len(self._segments) < len(self._sizes) and self._filled == 0 and self._sizes[len(self._segments)] == 0:
            self._segments.append(b"")
        index = len(self._segments) - (1 if self._filled else 0)
        if index >= len(self._sizes) or not piece or self._filled + len(piece) > self._sizes[index]:
            raise ProtocolError("a fragment is longer than its message")
        size = self._sizes[index]
        if len(piece) == size:
            self._segments.append(piece)
        else:
            if self._filled == 0:
                self._segments.append(bytearray(size))
            target = self._segments[index]
            memoryview(target)[self._filled : self._filled + len(piece)] = piece
            self._filled = (self._filled + len(piece)) % size
        self._position += len(piece)


def check_frames(packet: Packet, raw: Sequence[Buffer]) -> None:
    """Raise `ProtocolError` if a packet does not have the raw frames that belong to its header."""
    fits = bool(raw) if isinstance(packet, Fragment) else len(raw) == isinstance(packet, Chunk)
    if not fits or sum(map(len, raw)) > FRAME_LIMIT:
        raise ProtocolError(
            f"a {type(packet).__name__} packet with {len(raw)} raw frames of {sum(map(len, raw)):,} bytes"
        )
