"""Which processes may connect: cluster keys and addresses."""

import itertools
import os
import socket
from pathlib import Path

import psutil
import pytest
import zmq

from dropflow.errors import ConflictError, ProtocolError, UsageError
from managers.keys import ClusterKey, create
from managers.links import (
    LinkEvent,
    Links,
)
from managers.links.actions import NotifyChange, SendReply
from managers.links.inbound import Inbound
from managers.links.link_settings import LinkSettings
from managers.links.outbound import LinkIdentity, Outbound, OutboundState
from managers.messages import PROTOCOL, Handshake, HandshakeReply, Reject, StopSession, decode_packet, encode
from tests.managers.links.conftest import HASTY, Inbox, LinkFactory, until


@pytest.mark.usefixtures("nothing_leaks")
def test_processes_with_the_cluster_key_connect(link_factory: LinkFactory, key: ClusterKey) -> None:
    """Two processes with the cluster key exchange messages, and no message is sent in clear."""
    (a, _), (b, at_b) = link_factory.open("a", key=key), link_factory.open("b", key=key)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "confidential"))
    at_b.wait(lambda: at_b.texts() == ["confidential"])


def _refused(link_factory: LinkFactory, ours: ClusterKey | None, theirs: ClusterKey | None) -> tuple[str, Inbox, Links]:
    a, at_a = link_factory.open("a", key=ours, settings=HASTY)
    b, at_b = link_factory.open("b", key=theirs)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "let me in"))
    trouble = at_a.wait_event(LinkEvent.DOWN).text
    return trouble, at_b, b


@pytest.mark.usefixtures("nothing_leaks")
def test_another_key_is_refused(link_factory: LinkFactory, key: ClusterKey, tmp_path: Path) -> None:
    """A process with the key of another cluster cannot connect, and the reason names the key."""
    trouble, inbox, _ = _refused(link_factory, create(tmp_path / "other.key"), key)

    assert "key" in trouble
    assert inbox.changes == inbox.messages == []


@pytest.mark.usefixtures("nothing_leaks")
def test_no_key_is_refused(link_factory: LinkFactory, key: ClusterKey) -> None:
    """A process without a key cannot connect to one that requires a key, and is counted."""
    trouble, inbox, b = _refused(link_factory, None, key)

    assert "cluster key" in trouble
    assert until(lambda: b.statistics().refused > 0)
    assert inbox.changes == inbox.messages == []


@pytest.mark.usefixtures("nothing_leaks")
def test_a_server_without_the_key_is_refused(link_factory: LinkFactory, key: ClusterKey) -> None:
    """A process that requires a key does not connect to one that has none."""
    trouble, inbox, _ = _refused(link_factory, key, None)

    assert "cluster key" in trouble
    assert inbox.changes == inbox.messages == []


@pytest.mark.usefixtures("nothing_leaks")
def test_knowing_the_public_half_is_not_enough(link_factory: LinkFactory, key: ClusterKey) -> None:
    """A client that knows the server's public key but has another key pair is refused by the guard."""
    b, at_b = link_factory.open("b", key=key)
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    public, secret = zmq.curve_keypair()
    stranger.curve_serverkey, stranger.curve_publickey, stranger.curve_secretkey = key.public, public, secret
    watch = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    stranger.connect(b.address)
    frames = watch.recv_multipart()
    watch.close(0)
    context.destroy(0)

    assert int.from_bytes(frames[0][:2], "little") == zmq.EVENT_HANDSHAKE_FAILED_AUTH
    assert until(lambda: b.statistics().refused > 0)
    assert at_b.changes == []


@pytest.mark.usefixtures("nothing_leaks")
@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.0.2.1:7000", "tcp://example.org:0"])
def test_a_key_is_required_beyond_loopback(address: str) -> None:
    """Without a key links neither listen nor connect beyond this host."""
    with pytest.raises(UsageError, match="without a cluster key"):
        Links("a", bind=address, on_message=print)


@pytest.mark.usefixtures("nothing_leaks")
@pytest.mark.parametrize(
    "address", ["", "tcp://127.0.0.1", "ipc:///tmp/x", "tcp://127.0.0.1:0", "tcp://h:99999", "tcp://[::1:5", "h:1"]
)
def test_a_malformed_address_is_refused(link_factory: LinkFactory, address: str) -> None:
    """An address that cannot be connected to is refused at once, with an example of a good one."""
    a, _ = link_factory.open("a")
    with pytest.raises(UsageError, match="not an address of links") as caught:
        a.connect("b", address)
    assert "tcp://HOST:PORT" in caught.value.hint


@pytest.mark.usefixtures("nothing_leaks")
def test_a_port_in_use_is_an_error(link_factory: LinkFactory) -> None:
    """Listening on an address in use is an error that names the address, and leaves nothing open."""
    a, _ = link_factory.open("a")
    with pytest.raises(ConflictError, match=a.address):
        Links("b", bind=a.address, on_message=print)


def test_an_address_of_another_host_is_an_error(key: ClusterKey) -> None:
    """The hint is about the address, and not about the port."""
    with pytest.raises(ConflictError, match=r"tcp://203\.0\.113\.7:5555") as caught:
        Links("b", bind="tcp://203.0.113.7:5555", key=key, on_message=print)

    assert "give an address of this host" in caught.value.hint


@pytest.mark.usefixtures("nothing_leaks")
def test_only_loopback_is_listened_on(link_factory: LinkFactory, key: ClusterKey) -> None:
    """By default, every listening socket of the process is on loopback."""
    link_factory.open("a")
    link_factory.open("b", key=key)
    listening = [
        connection.laddr.ip
        for connection in psutil.Process().net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]

    assert len(listening) >= 2
    assert set(listening) == {"127.0.0.1"}


# Connections with malformed packets, or packets of other versions.


@pytest.mark.usefixtures("nothing_leaks")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "curve"])
def test_random_bytes_on_the_port_do_not_affect_links(
    link_factory: LinkFactory, key: ClusterKey, *, secure: bool
) -> None:
    """After random bytes, incomplete handshakes and HTTP on the port, other links still work."""
    keys = key if secure else None
    (a, _), (b, at_b) = link_factory.open("a", key=keys), link_factory.open("b", key=keys)
    port = int(b.address.rpartition(":")[2])
    greeting = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01NULL" + b"\0" * 48
    opened = []
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), greeting, greeting + os.urandom(2000), b""):
        opened.append(socket.create_connection(("127.0.0.1", port)))
        opened[-1].sendall(garbage)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "still there"))
    at_b.wait(lambda: at_b.texts() == ["still there"])
    for connection in opened:
        connection.close()


@pytest.mark.usefixtures("nothing_leaks")
@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"garbage"],
        [b"\x95\xa5hello\x01\x02\x03\x04"],
        [b"\x93\xa3ack\x01\x01"],
        [b"\x92\xa4beat\x01", b"surplus"],
        [b"\x92\xa4beat\x01"],
        [b"x" * 5_000_000],
    ],
    ids=["empty", "text", "bad hello", "ack", "frames", "no handshake", "large"],
)
def test_frames_that_are_not_packets_are_rejected(link_factory: LinkFactory, frames: list[bytes]) -> None:
    """A connected peer with another protocol gets one answer, is counted, and ignored."""
    (a, _), (b, at_b) = link_factory.open("a"), link_factory.open("b")
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    stranger.rcvtimeo = 60_000
    stranger.connect(b.address)
    stranger.send_multipart(frames)
    answer = stranger.recv()
    stranger.send_multipart(frames)
    context.destroy(0)
    a.connect("b", b.address)
    a.send("b", StopSession("s", 1, "still there"))
    at_b.wait(lambda: at_b.texts() == ["still there"])

    assert b"refuse" in answer
    assert b.statistics().refused == 1


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_leaks")
def test_frames_beyond_the_limit_end_the_connection(link_factory: LinkFactory) -> None:
    """A frame larger than any may be is not even read: the connection is closed."""
    b, at_b = link_factory.open("b")
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    watch = stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    stranger.connect(b.address)
    stranger.send(bytes(50_000_000))
    watch.recv_multipart()
    watch.close(0)
    context.destroy(0)

    assert at_b.changes == []


@pytest.mark.usefixtures("nothing_leaks")
def test_another_version_is_refused_by_name(link_factory: LinkFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of the protocol refuse each other; the error of the senders has both numbers."""
    a, at_a = link_factory.open("a")
    b, _ = link_factory.open("b")
    monkeypatch.setattr("managers.links.outbound.PROTOCOL", 99)
    a.connect("b", b.address)
    assert "99" in at_a.wait_event(LinkEvent.REFUSED).text

    with pytest.raises(ProtocolError, match="same version"):
        a.send("b", StopSession("s", 1))


# Incarnations of peers: later processes replace earlier ones, and a wrong number does not lock a peer out.


SETTINGS = LinkSettings()
REAL, WRONG = 1_800_000_000 << 20, 2**53 - 1


def _answer(
    inbound: Inbound, incarnation: int, now: float, *, stream: int = 1, route: bytes = b"r", name: str = "n1"
) -> object:
    """Return the answer to a handshake of the process `name`."""
    hello = Handshake(PROTOCOL, name, incarnation, "n2", stream, "tcp://h:1")
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


def test_peers_that_are_gone_make_room_for_others() -> None:
    """A process with the most peers refuses another one, until one of them has been silent for an hour."""
    inbound = Inbound("n2", REAL, LinkSettings(peers=2))
    for name, now in (("a", 0.0), ("b", 1800.0)):
        assert isinstance(_answer(inbound, 1, now, name=name, route=name.encode()), HandshakeReply)
    early = _answer(inbound, 1, 3599.0, name="c", route=b"c")
    late = _answer(inbound, 1, 3600.0, name="c", route=b"d")

    assert isinstance(early, Reject)
    assert early.code == "full"
    assert isinstance(late, HandshakeReply)
    assert inbound.last_seen() == {"b": (1, 1800.0), "c": (1, 3600.0)}


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


@pytest.mark.parametrize("is_needed", [False, True])
def test_a_peer_that_is_away_for_a_day_is_sought_rarely(*, is_needed: bool) -> None:
    """At most twice a minute after an hour, and soon again when it is needed, or has shown itself."""
    link = Outbound(LinkIdentity("n2", 1, "tcp://h:2"), "n1", LinkSettings(), itertools.count(1))
    link.connect("tcp://h:1", 0.0, REAL)
    link.receive(HandshakeReply(PROTOCOL, "n1", REAL), (), 0.0)
    link.connection_lost("the connection was closed", 0.0)
    tries = []
    while (now := link.deadline()) < 86_400.0:
        tries.append(now)
        link.tick(now)
        link.connection_lost("no process answers there", now)
    if is_needed:
        link.connect("tcp://h:1", 86_400.0, REAL)
    else:
        link.peer_introduced(REAL, "", 86_400.0)

    assert sum(now < 60.0 for now in tries) > 50
    assert sum(now > 3600.0 for now in tries) < 2 * 60 * 24
    assert link.deadline() < 86_401.0


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
