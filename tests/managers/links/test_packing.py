"""Messages are packed into packets and joined again."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dropflow.errors import ProtocolError, UsageError
from managers.links.packing import Buffer, NumberedPacket, Packer, Reassembler, check_frames, outgoing_message
from managers.links.send_window import MOST_IN_FRAME
from managers.messages import Chunk, Fragment, Heartbeat, MessageBatch, StopSession, decode_message, decode_packet

messages = st.lists(
    st.tuples(
        st.text(max_size=20),
        st.lists(
            st.one_of(st.just(b""), st.binary(max_size=40), st.integers(0, 3 * MOST_IN_FRAME).map(bytes)), max_size=3
        ),
    ),
    max_size=8,
)


def _packets_of(packer: Packer) -> list[NumberedPacket]:
    packets = []
    while (packet := packer.next_packet()) is not None:
        packets.append(packet)
    return packets


def _messages_of(packets: list[NumberedPacket]) -> list[tuple[str, list[bytes]]]:
    received: list[tuple[str, list[bytes]]] = []
    reassembler = Reassembler()
    for numbered in packets:
        header, *raw = (bytes(frame) for frame in numbered.frames)
        packet = decode_packet(header)
        check_frames(packet, raw)
        complete: list[list[bytes]] = packet.messages if isinstance(packet, MessageBatch) else []
        segments: list[Buffer] | None = reassembler.add(packet, raw) if isinstance(packet, Fragment) else None
        for body, *frames in [*complete, *([segments] if segments else [])]:
            message = decode_message(body)
            assert isinstance(message, StopSession)
            received.append((message.reason, [bytes(frame) for frame in frames]))
    assert not reassembler.is_open
    return received


@given(messages, st.integers(1, 70_000))
def test_messages_round_trip_in_order(sent: list[tuple[str, list[bytes]]], fragment: int) -> None:
    """Messages of any size are unchanged after packing and joining, and packets count from 1."""
    packer = Packer(max(fragment, 200))
    for text, frames in sent:
        packer.put(outgoing_message(StopSession("s", 1, text), frames))
    packets = _packets_of(packer)

    assert _messages_of(packets) == sent
    assert [packet.number for packet in packets] == list(range(1, len(packets) + 1))
    assert packer.is_empty


@given(messages)
def test_costs_of_packets_and_messages_are_equal(sent: list[tuple[str, list[bytes]]]) -> None:
    """The packets of some messages cost what the messages cost, so that a window fills and empties exactly."""
    packer = Packer(5000)
    messages = [outgoing_message(StopSession("s", 1, text), frames) for text, frames in sent]
    for item in messages:
        packer.put(item)
    packets = _packets_of(packer)

    assert sum(packet.cost for packet in packets) == sum(item.cost for item in messages)
    assert sum(packet.messages for packet in packets) == len(messages)


@given(messages, st.integers(0, 10))
def test_the_cost_of_cleared_messages_is_counted(sent: list[tuple[str, list[bytes]]], taken: int) -> None:
    """Packets that were made and messages that are discarded add up to all messages, in number and cost."""
    packer = Packer(5000)
    messages = [outgoing_message(StopSession("s", 1, text), frames) for text, frames in sent]
    for item in messages:
        packer.put(item)
    packets = [packet for packet in (packer.next_packet() for _ in range(taken)) if packet is not None]
    count, cost = packer.clear()

    assert cost + sum(packet.cost for packet in packets) == sum(item.cost for item in messages)
    assert count + sum(packet.messages for packet in packets) == len(messages)
    assert packer.next_packet() is None


def test_small_messages_share_a_packet() -> None:
    """Messages that wait together are sent in one packet."""
    packer = Packer(1000)
    for number in range(50):
        packer.put(outgoing_message(StopSession("s", 1, str(number))))

    assert len(_packets_of(packer)) == 1


def test_large_frames_are_not_copied() -> None:
    """The parts of a large frame are views of the caller's own memory."""
    content = bytearray(200_000)
    packer = Packer(50_000)
    packer.put(outgoing_message(StopSession("s", 1), [content]))
    packets = _packets_of(packer)
    content[:] = b"x" * len(content)

    assert b"".join(bytes(frame) for packet in packets for frame in packet.frames[1:]).endswith(bytes(content))


def test_a_raw_frame_in_one_part_is_not_copied() -> None:
    """A raw frame that fits into one part is not copied at the receiving end."""
    packer = Packer(50_000)
    packer.put(outgoing_message(StopSession("s", 1, "here it is"), [b"y" * 20_000]))
    (packet,) = _packets_of(packer)
    frame = bytes(packet.frames[2])
    part = decode_packet(packet.frames[0])
    assert isinstance(part, Fragment)
    segments = Reassembler().add(part, [packet.frames[1], frame])

    assert segments is not None
    assert segments[1] is frame


def test_a_message_that_is_too_large_is_refused() -> None:
    """A message that is too large fails at its sender and says what to do."""
    with pytest.raises(UsageError, match="too large"):
        outgoing_message(StopSession("s", 1), [memoryview(bytes(1)).cast("B")] * 2000)


@pytest.mark.parametrize(
    ("parts", "pieces"),
    [
        ([Fragment(1, 5)], [[b"x"]]),
        ([Fragment(1, 0, [])], [[b"x"]]),
        ([Fragment(1, 0, [2**40])], [[b"x"]]),
        ([Fragment(1, 0, [3])], [[b"four"]]),
        ([Fragment(1, 0, [3])], [[b"ab", b""]]),
        ([Fragment(1, 0, [3]), Fragment(2, 0, [3])], [[b"a"], [b"b"]]),
        ([Fragment(1, 0, [3]), Fragment(2, 2)], [[b"a"], [b"b"]]),
    ],
    ids=["no beginning", "no sizes", "too large", "too long", "empty piece", "two beginnings", "a hole"],
)
def test_parts_that_do_not_fit_are_refused(parts: list[Fragment], pieces: list[list[bytes]]) -> None:
    """A part that does not continue its message is a protocol error, and takes no memory."""
    reassembler = Reassembler()
    with pytest.raises(ProtocolError, match=r"message|fragment"):
        list(map(reassembler.add, parts, pieces))


@pytest.mark.parametrize(
    ("packet", "raw"),
    [
        (Heartbeat(1), [b"x"]),
        (MessageBatch(1, [[b"x"]]), [b"x"]),
        (Fragment(1, 0, [1]), []),
        (Chunk(1, 0, 0, last=True), []),
    ],
    ids=["beat", "carry", "part", "chunk"],
)
def test_raw_frames_must_belong_to_their_header(
    packet: Heartbeat | MessageBatch | Fragment | Chunk, raw: list[bytes]
) -> None:
    """A packet with unexpected raw frames, or without required ones, is a protocol error."""
    with pytest.raises(ProtocolError, match=r"packet with . raw frames"):
        check_frames(packet, raw)
