"""Incarnations of peers: later processes replace earlier ones, and a wrong number does not lock a peer out."""

import itertools

import pytest

from dropflow.errors import ProtocolError
from managers.links.actions import NotifyChange, SendReply
from managers.links.inbound import Inbound
from managers.links.outbound import LinkIdentity, Outbound, OutboundState
from managers.links.send_window import LinkSettings
from managers.messages import PROTOCOL, Handshake, HandshakeReply, Reject, decode_packet, encode

SETTINGS = LinkSettings()
REAL, WRONG = 1_800_000_000 << 20, 2**53 - 1


def _answer(inbound: Inbound, incarnation: int, now: float, *, stream: int = 1, route: bytes = b"r") -> object:
    """Return the answer to a handshake of the process n1."""
    hello = Handshake(PROTOCOL, "n1", incarnation, "n2", stream, "tcp://h:1")
    actions = inbound.receive(route, encode(hello), (), now)
    return next(decode_packet(action.frames[0]) for action in actions if isinstance(action, SendReply))


def test_an_earlier_process_is_refused_while_the_later_one_is_heard() -> None:
    """It is accepted when the later one has been silent for a minute, and not before."""
    inbound = Inbound("n2", REAL, SETTINGS)
    assert isinstance(_answer(inbound, WRONG, 0.0, route=b"a"), HandshakeReply)
    after = SETTINGS.earlier_after
    early, late = (_answer(inbound, REAL, at, route=b"%d" % at) for at in (after - 1, after))

    assert isinstance(early, Reject)
    assert early.code == "stale"
    assert isinstance(late, HandshakeReply)


def test_an_earlier_stream_of_a_process_stays_refused() -> None:
    """A connection that a process has given up does not come back, however long it was silent."""
    inbound = Inbound("n2", REAL, SETTINGS)
    _answer(inbound, REAL, 0.0, stream=2, route=b"a")

    assert isinstance(_answer(inbound, REAL, 10 * SETTINGS.earlier_after, route=b"b"), Reject)


def test_a_link_accepts_the_earlier_process_when_the_later_one_is_silent() -> None:
    """A link that was told of a later process which never answers goes back to the one that does."""
    link = Outbound(LinkIdentity("n2", 1, "tcp://h:2"), "n1", SETTINGS, itertools.count(1))
    link.connect("tcp://h:1", 0.0, REAL)
    link.receive(HandshakeReply(PROTOCOL, "n1", REAL), (), 0.0)
    link.peer_introduced(WRONG, "", 1.0)
    states = []
    for now in (2.0, 1.0 + SETTINGS.earlier_after):
        link.tick(now)
        actions = link.receive(HandshakeReply(PROTOCOL, "n1", REAL), (), now)
        states.append(link.state)

    assert states == [OutboundState.WAITING, OutboundState.UP]
    assert [action.change.incarnation for action in actions if isinstance(action, NotifyChange)] == [REAL, REAL]


def test_an_open_link_does_not_go_back_to_an_earlier_process() -> None:
    """A hello of an earlier process does not close the link to the one that answers, also after a long time."""
    link = Outbound(LinkIdentity("n2", 1, "tcp://h:2"), "n1", SETTINGS, itertools.count(1))
    link.connect("tcp://h:1", 0.0, REAL)
    link.receive(HandshakeReply(PROTOCOL, "n1", REAL), (), 0.0)

    assert link.peer_introduced(REAL - 1, "tcp://h:3", 1000.0) == []
    assert (link.state, link.remote_incarnation) == (OutboundState.UP, REAL)


def test_an_incarnation_beyond_what_a_node_can_have_is_refused() -> None:
    """A node counts to 2**53 - 1: a larger number is not an incarnation."""
    with pytest.raises(ProtocolError, match="9007199254740991"):
        decode_packet(encode(Handshake(PROTOCOL, "n1", 2**62, "n2", 1)))
