"""ZeroMQ sockets as links need them: limits, CURVE at both ends, and the authenticator of connecting ends."""

import struct
from urllib.parse import urlsplit

import zmq
from zmq.utils import z85

from dropflow.errors import LinkError, UsageError
from dropflow.loopback import is_loopback
from managers.keys import ClusterKey
from managers.links.settings import FRAME_LIMIT

__all__ = [
    "CONNECTION_FAILURES",
    "REFUSALS",
    "KeyAuthenticator",
    "check_address",
    "dealer",
    "monitor",
    "next_event",
    "router",
]

_HEADER_LIMIT = FRAME_LIMIT + (64 << 10)
_EVENT = struct.Struct("=H")
"""Number of the event, with which the first frame of a monitor begins: zmq_socket_monitor(3)."""
_REPLIES = 10_000
"""Replies queued for a peer that does not read them; beyond, the peer is disconnected."""

CONNECTION_FAILURES = {
    zmq.Event.HANDSHAKE_FAILED_AUTH: "it does not accept our cluster key",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: "only one end has a cluster key, or it does not use the protocol of links",
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: "the handshake failed; its cluster key may be another one",
    zmq.Event.DISCONNECTED: "the connection was closed",
    zmq.Event.CLOSED: "no process answers there",
}
"""Texts for the connecting end of what can happen to a connection."""

REFUSALS = frozenset(event for event in CONNECTION_FAILURES if event not in (zmq.Event.DISCONNECTED, zmq.Event.CLOSED))
"""Events that the listening end counts as refused."""


def check_address(address: str, key: ClusterKey | None, *, binding: bool) -> None:
    """Reject an address that is malformed, or that leaves this host without a cluster key.

    Raises
    ------
    UsageError
        The address cannot be used.
    """
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "tcp" or not parts.hostname or port is None or parts.path or (port == 0 and not binding):
        raise UsageError(f"not an address of links: {address!r}", hint="write tcp://HOST:PORT")
    if key is None and not is_loopback(parts.hostname):
        verb = "listen on" if binding else "connect to"
        hint = "create one with 'dropflow keys create' and copy it to every node"
        raise UsageError(f"cannot {verb} {address} without a cluster key", hint=hint)


def router(context: "zmq.Context[zmq.Socket[bytes]]", bind: str, key: ClusterKey | None) -> "zmq.Socket[bytes]":
    """Return a listening socket.

    Raises
    ------
    LinkError
        The address cannot be listened on.
    """
    socket = _socket(context, zmq.ROUTER, bind)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.SNDHWM, _REPLIES)
    if key is not None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret)
        socket.setsockopt_string(zmq.ZAP_DOMAIN, "dropflow")
    try:
        socket.bind(bind)
    except zmq.ZMQError as error:
        socket.close(0)
        text = f"links cannot listen on {bind}: {error.strerror}"
        raise LinkError(text, hint="choose another port, or port 0 for any that is free") from error
    return socket


def dealer(
    context: "zmq.Context[zmq.Socket[bytes]]", address: str, key: ClusterKey | None, patience: float
) -> "zmq.Socket[bytes]":
    """Return a connecting socket for one connection; when the connection breaks, the socket is closed."""
    socket = _socket(context, zmq.DEALER, address)
    socket.setsockopt(zmq.RECONNECT_IVL, -1)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, max(1, int(patience * 1000)))
    socket.setsockopt(zmq.SNDHWM, 0)
    if key is not None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, key.public)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, key.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret)
    return socket


def monitor(socket: "zmq.Socket[bytes]") -> "zmq.Socket[bytes]":
    """Return a socket on which `next_event` reads the failures of `socket`."""
    watch: zmq.Socket[bytes] = socket.get_monitor_socket(sum(CONNECTION_FAILURES))
    watch.linger = 0
    return watch


def next_event(watch: "zmq.Socket[bytes]") -> zmq.Event | None:
    """Return the next event of a monitor; None when there is none."""
    try:
        frames = watch.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
    # Not by `zmq.utils.monitor`: it imports asyncio, which takes more than a megabyte in every manager.
    return zmq.Event(_EVENT.unpack_from(frames[0])[0])


class KeyAuthenticator:
    """Answers ZeroMQ's authentication requests (ZAP, RFC 27): ends that hold the cluster key may connect.

    Must exist before any socket of the context listens.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", key: ClusterKey) -> None:
        self.refused = 0
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")
        self._public = z85.decode(key.public)

    def answer(self) -> None:
        """Answer the requests that have arrived."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            route, _, version, request, _domain, _address, _identity, mechanism, *credentials = frames
            known = mechanism == b"CURVE" and credentials == [self._public]
            self.refused += not known
            status = (b"200", b"OK") if known else (b"400", b"not the key of this cluster")
            self.socket.send_multipart([route, b"", version, request, *status, b"", b""])


def _socket(context: "zmq.Context[zmq.Socket[bytes]]", kind: int, address: str) -> "zmq.Socket[bytes]":
    socket = context.socket(kind)
    socket.linger = 0
    socket.setsockopt(zmq.MAXMSGSIZE, _HEADER_LIMIT)
    socket.setsockopt(zmq.RCVHWM, 1000)
    if "[" in address:
        socket.setsockopt(zmq.IPV6, 1)
    return socket
