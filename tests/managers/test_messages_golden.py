"""The protocol, byte by byte: records of earlier builds are read, and records are written as by earlier builds.

`golden/messages.json` holds the bytes of one example of each record. A change to it is a change to the protocol: add
fields at the end with a default, or raise `PROTOCOL`.
"""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadFileError, ProtocolError
from dropflow.execution.content_location import Handle
from dropflow.failure import Failure
from dropflow.graph.codec import dump
from dropflow.states import DropState
from managers import messages
from managers.deployment import Deployment, Place, pack, unpack
from managers.messages import (
    PROTOCOL,
    Events,
    Message,
    Packet,
    decode_message,
    decode_packet,
    encode,
)
from tests.regular_graphs import fan

_GOLDEN: dict[str, str] = json.loads((Path(__file__).parent / "golden" / "messages.json").read_text(encoding="utf-8"))
_FAILURE = Failure(code="DF201", kind="OSError", text="disk full", hint="make room", retryable=True, detail="...")
EXAMPLES: list[Packet | Message] = [
    messages.Handshake(PROTOCOL, "node-1", 1_790_000_000_000_000, "node-2", 3, "tcp://10.0.0.1:7000"),
    messages.HandshakeReply(PROTOCOL, "node-2", 1_790_000_000_000_001, 12, 11),
    messages.Reject("protocol", "we speak 1, you speak 2", "install the same version"),
    messages.MessageBatch(13, [[b"body"], [b"body", b"frame"]]),
    messages.Fragment(14, 0, [300_000, 0, 5]),
    messages.Ack(14, 13, again=True),
    messages.Heartbeat(14),
    messages.Fetch(7, "s-1", 4_000_000_000, 2, 1 << 40, 4 << 20, check=False),
    messages.Chunk(7, 1 << 40, -1, last=False, checksum=0xDEADBEEF),
    messages.ContentGone(7, "released"),
    messages.FetchFailed(7, _FAILURE),
    Events.of(
        "s-1",
        1,
        2,
        drops=[1, 2**31 - 1],
        states=[2, 3],
        attempts=[1, 65_535],
        causes=[-1, 1],
        contents=(
            messages.Content(
                1, Handle(kind="file", location="/n/files/x", final="./files/x", size=9), 7, (3, 9, 1 << 60)
            ),
        ),
        streams=(messages.StreamUpdate(5, 2, 4, Handle(kind="stream", final="./files/y")), messages.StreamUpdate(6, 1)),
        view=3,
    ),
    messages.StopSession("s-1", 1, "by hand", "node-2", _FAILURE),
    messages.RankMessage("s-1", 1, "job/0", "start orted -mca ess env"),
    messages.PrepareView("s-1", 1, 2, (3, 0)),
    messages.PromiseView("s-1", 1, 2, (3, 0), b"report", (1, 2), b"decision"),
    messages.ProposeView("s-1", 1, 2, (3, 0), b"decision"),
    messages.AcceptView("s-1", 1, 2, (3, 0)),
    messages.RejectView("s-1", 1, 2, (4, 1)),
    messages.AdoptView("s-1", 1, 2, b"decision"),
    messages.RequestView("s-1", 1, 2, b"change"),
    messages.PartDone("s-1", 1, 2),
    messages.SessionDone("s-1", 1, 2),
    messages.CopyContents("s-1", 1, 2, (messages.Content(1, Handle(kind="file", final="./files/x", size=9)),), (1,)),
    messages.CopiesTaken("s-1", 1, 2, b"\7\0\0\0", {8: "no space left"}),
    messages.ReleaseCopies("s-1", 1, 2, b"\7\0\0\0"),
]
_NAMES = [type(example).__name__ for example in EXAMPLES]


def _decode(example: Packet | Message, data: bytes) -> Packet | Message:
    return decode_packet(data) if isinstance(example, get_args(Packet)) else decode_message(data)


def test_every_record_has_an_example() -> None:
    """Each packet and message has an example of its bytes."""
    records = {record.__name__ for record in (*get_args(Packet), *get_args(Message))}

    assert records == set(_NAMES) == set(_GOLDEN)


@pytest.mark.parametrize("example", EXAMPLES, ids=_NAMES)
def test_bytes_are_those_of_earlier_builds(example: Packet | Message) -> None:
    """Each record is encoded as in the committed examples."""
    assert encode(example).hex() == _GOLDEN[type(example).__name__]


@pytest.mark.parametrize("example", EXAMPLES, ids=_NAMES)
def test_bytes_of_earlier_builds_are_read(example: Packet | Message) -> None:
    """Each record is decoded from the committed examples."""
    assert _decode(example, bytes.fromhex(_GOLDEN[type(example).__name__])) == example


@pytest.mark.parametrize("example", EXAMPLES, ids=_NAMES)
def test_fields_of_later_builds_are_ignored(example: Packet | Message) -> None:
    """A record with more fields than are known is read without them."""
    fields = [*msgspec.msgpack.decode(encode(example)), "a field of the future"]
    known = len(type(example).__struct_fields__) + 1
    complete = [*fields[:-1], *msgspec.to_builtins(example)[len(fields) - 1 : known], fields[-1]]

    assert _decode(example, msgspec.msgpack.encode(complete)) == example


def test_tags_are_unique() -> None:
    """No two packets or messages have the same tag."""
    tags = [record.__struct_config__.tag for record in (*get_args(Packet), *get_args(Message))]

    assert len(tags) == len(set(tags))


@given(st.binary(max_size=200))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    """Random bytes are a record or a `ProtocolError`."""
    for decode in (decode_packet, decode_message):
        with contextlib.suppress(ProtocolError):
            decode(data)


@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_records_are_a_protocol_error(example: Packet | Message, data: st.DataObject) -> None:
    """A record with a damaged byte is a record or a `ProtocolError`."""
    body = bytearray(encode(example))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        _decode(example, bytes(body))


def test_deep_nesting_is_a_protocol_error() -> None:
    """Deeply nested arrays are refused."""
    with pytest.raises(ProtocolError, match="frame of 200000 bytes"):
        decode_packet(b"\x91" * 200_000)


def test_events_are_columns() -> None:
    """The columns of an Events message have the values and types with which it was made."""
    example = Events.of("s", 1, 1, drops=[7, 8], states=[2, 7], attempts=[1, 3], causes=[-1, 7])
    drops, states, attempts, causes = example.columns()

    assert [column.tolist() for column in (drops, states, attempts, causes)] == [[7, 8], [2, 7], [1, 3], [-1, 7]]
    assert [column.dtype.str for column in (drops, states, attempts, causes)] == ["<i4", "|u1", "<u2", "<i4"]
    assert DropState(states[1]) is DropState.SKIPPED
    assert not drops.flags.writeable


def test_columns_of_different_lengths_are_refused() -> None:
    """An Events message with such columns can be neither made nor read."""
    with pytest.raises(ValueError, match="differ in length"):
        Events.of("s", 1, 1, drops=[1], states=[2, 2], attempts=[1], causes=[-1])
    good = encode(Events.of("s", 1, 1, drops=[1], states=[2], attempts=[1], causes=[-1]))
    fields = msgspec.msgpack.decode(good)
    fields[4] = b""
    with pytest.raises(ProtocolError, match="differ in length"):
        decode_message(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("attempts", [[65_536], [-1], [0.5]])
def test_values_that_do_not_fit_are_refused(attempts: list[float]) -> None:
    """A value outside the range of its column raises an error and does not wrap round."""
    with pytest.raises(OverflowError, match="do not fit uint16"):
        Events.of("s", 1, 1, drops=[1], states=[2], attempts=attempts, causes=[-1])


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40))
def test_columns_are_made_of_lists_and_arrays(causes: list[int]) -> None:
    """Lists and arrays of the same numbers make the same message."""
    ones = [1] * len(causes)
    given_lists = Events.of("s", 1, 1, drops=ones, states=ones, attempts=ones, causes=causes)
    arrays = [np.array(column, np.int64) for column in (ones, causes)]

    assert given_lists == Events.of("s", 1, 1, drops=arrays[0], states=ones, attempts=arrays[0], causes=arrays[1])


# The bytes of a deployment.


_DEPLOYMENT = Deployment(
    session="s",
    epoch=7,
    graph="fan",
    drops=21,
    created=1.0,
    places=(Place("n1", "tcp://h:1", 3),),
    nodes=("n1",),
    notes=("moved",),
    check=True,
    dfg=b"".join(dump(replace(fan(20), places=("n1",)))),
)


def test_a_deployment_round_trips_through_bytes() -> None:
    """All fields are unchanged; the graph is a view of what was received, and not a copy."""
    packed = pack(_DEPLOYMENT)
    back = unpack(packed)

    assert back == _DEPLOYMENT
    assert back.dfg.obj is packed


def test_a_deployment_without_a_graph_has_all_other_fields() -> None:
    """The record that a node keeps has everything but the bytes of the graph."""
    assert _DEPLOYMENT.without_graph() == msgspec.structs.replace(_DEPLOYMENT, dfg=b"")


def test_a_deployment_of_another_version_is_refused() -> None:
    """Deployments of the first version, which has no number, and of later ones name the version as the problem."""
    magic, later = pack(_DEPLOYMENT)[:8], bytearray(pack(_DEPLOYMENT))
    header = msgspec.msgpack.encode({"deployment": {"session": "s"}, "sizes": {"n1": 3}})
    later[8] += 1

    for packed in (magic + len(header).to_bytes(4, "little") + header + b"abc", bytes(later)):
        with pytest.raises(BadFileError, match="another version of dropflow; this one reads version 3") as refusal:
            unpack(packed)
        assert "same version" in refusal.value.hint


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda packed: packed[:-1], "the deployment is incomplete"),
        (lambda packed: packed + b"x", "the deployment is incomplete"),
        (lambda packed: packed[:30], "the header of the deployment cannot be read"),
        (lambda packed: packed[:12], "not a deployment"),
        (lambda _: b"{}", "not a deployment"),
        (lambda _: b"", "not a deployment"),
    ],
    ids=["shorter", "longer", "cut in its header", "cut before its header", "another file", "empty"],
)
def test_bytes_that_are_no_whole_deployment_are_refused(harm: object, says: str) -> None:
    """What is missing or too much is an error, and never a deployment of another graph."""
    assert callable(harm)
    with pytest.raises(BadFileError, match=says):
        unpack(harm(pack(_DEPLOYMENT)))
