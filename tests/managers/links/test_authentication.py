"""Which processes may connect: cluster keys and addresses."""

from pathlib import Path

import psutil
import pytest
import zmq

from dropflow.errors import LinkError, UsageError
from managers.keys import ClusterKey, create
from managers.links import (
    LinkEvent,
    Links,
)
from managers.messages import StopSession
from tests.managers.links.conftest import HASTY, Inbox, LinkFactory, until

pytestmark = pytest.mark.usefixtures("nothing_leaks")


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


def test_another_key_is_refused(link_factory: LinkFactory, key: ClusterKey, tmp_path: Path) -> None:
    """A process with the key of another cluster cannot connect, and the reason names the key."""
    trouble, inbox, _ = _refused(link_factory, create(tmp_path / "other.key"), key)

    assert "key" in trouble
    assert inbox.changes == inbox.messages == []


def test_no_key_is_refused(link_factory: LinkFactory, key: ClusterKey) -> None:
    """A process without a key cannot connect to one that requires a key, and is counted."""
    trouble, inbox, b = _refused(link_factory, None, key)

    assert "cluster key" in trouble
    assert until(lambda: b.statistics().refused > 0)
    assert inbox.changes == inbox.messages == []


def test_a_server_without_the_key_is_refused(link_factory: LinkFactory, key: ClusterKey) -> None:
    """A process that requires a key does not connect to one that has none."""
    trouble, inbox, _ = _refused(link_factory, key, None)

    assert "cluster key" in trouble
    assert inbox.changes == inbox.messages == []


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


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.0.2.1:7000", "tcp://example.org:0"])
def test_a_key_is_required_beyond_loopback(address: str) -> None:
    """Without a key links neither listen nor connect beyond this host."""
    with pytest.raises(UsageError, match="without a cluster key"):
        Links("a", bind=address, on_message=print)


@pytest.mark.parametrize(
    "address", ["", "tcp://127.0.0.1", "ipc:///tmp/x", "tcp://127.0.0.1:0", "tcp://h:99999", "h:1"]
)
def test_a_malformed_address_is_refused(link_factory: LinkFactory, address: str) -> None:
    """An address that cannot be connected to is refused at once, with an example of a good one."""
    a, _ = link_factory.open("a")
    with pytest.raises(UsageError, match="not an address of links") as caught:
        a.connect("b", address)
    assert "tcp://HOST:PORT" in caught.value.hint


def test_a_port_in_use_is_an_error(link_factory: LinkFactory) -> None:
    """Listening on an address in use is an error that names the address, and leaves nothing open."""
    a, _ = link_factory.open("a")
    with pytest.raises(LinkError, match=a.address):
        Links("b", bind=a.address, on_message=print)


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
