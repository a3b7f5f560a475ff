"""Connections with malformed packets, or packets of other versions."""

import os
import socket

import pytest
import zmq

from dropflow.errors import ProtocolError
from managers.keys import ClusterKey
from managers.links import (
    LinkEvent,
)
from managers.messages import StopSession
from tests.managers.links.conftest import LinkFactory

pytestmark = pytest.mark.usefixtures("nothing_leaks")


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
    stranger.rcvtimeo = 30_000
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


def test_another_version_is_refused_by_name(link_factory: LinkFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of the protocol refuse each other; the error of the senders has both numbers."""
    a, at_a = link_factory.open("a")
    b, _ = link_factory.open("b")
    monkeypatch.setattr("managers.links.outbound.PROTOCOL", 99)
    a.connect("b", b.address)
    assert "99" in at_a.wait_event(LinkEvent.REFUSED).text

    with pytest.raises(ProtocolError, match="same version"):
        a.send("b", StopSession("s", 1))
