"""The transport of the product: all ZeroMQ sockets of a process, owned by one thread."""

import os
import socket as names
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from urllib.parse import urlsplit

import zmq
from zmq.utils import z85

from dropflow.api.addresses import EVERYWHERE, address_error, is_loopback
from dropflow.errors import DropflowError, UsageError
from managers.keys import ClusterKey
from managers.links.actions import LinkAction
from managers.links.link_manager import LinkManager
from managers.links.packing import Buffer, Frames
from managers.links.send_window import FRAME_LIMIT
from managers.messages import Fetch

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
_BUDGET = 256
"""ZeroMQ messages read from one socket before the others are read."""
_COPY = 96 << 10
"""Bytes below which copying a frame costs less than sending it without a copy."""
_Socket = zmq.Socket[bytes]
_Handler = Callable[[LinkManager, float], Iterable[list[LinkAction]]]

# ZeroMQ sockets as links need them: limits, CURVE at both ends, and the authenticator of connecting ends.


def check_address(address: str, key: ClusterKey | None, *, binding: bool) -> None:
    """Reject an address that is malformed, or that leaves this host without a cluster key.

    Raises
    ------
    UsageError
        The address cannot be used.
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:  # it has half of the brackets of an IPv6 address, or no number
        parts, port = urlsplit(""), None
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
        reason = OSError(error.errno, error.strerror)
        raise address_error(f"links cannot listen on {bind}", reason, option="--links-port") from error
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


class _Connection:
    """The sockets of one connection to a peer."""

    def __init__(self, generation: int, socket: _Socket, watch: _Socket) -> None:
        self.generation = generation
        self.socket = socket
        self.watch = watch


class ZmqTransport:
    """Sends and receives frames over ZeroMQ. All methods but `wake` belong to the thread that polls.

    Parameters
    ----------
    bind, advertise, key :
        As `managers.links.links.Links` takes them.
    timeout : float
        Seconds that opening a connection may take.
    on_fetch : callable
        Takes the route and the request of a peer that fetches content.

    Raises
    ------
    UsageError
        The address is malformed, or leaves this host without a key.
    LinkError
        The address cannot be listened on.
    """

    def __init__(
        self,
        bind: str,
        *,
        advertise: str,
        key: ClusterKey | None,
        timeout: float,
        on_fetch: Callable[[bytes, Fetch], None],
    ) -> None:
        check_address(bind, key, binding=True)
        self._key = key
        self._timeout = timeout
        self._on_fetch = on_fetch
        self._context: zmq.Context[_Socket] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 65_000)
        try:
            self._authenticator = None if key is None else KeyAuthenticator(self._context, key)
            self._router = router(self._context, bind, key)
        except DropflowError:
            self._context.destroy(0)
            raise
        self._watch = monitor(self._router)
        self.address = _reachable(self._router.getsockopt_string(zmq.LAST_ENDPOINT), advertise)
        self._lost: deque[bytes] = deque()
        self._ready: dict[object, int] = {}
        self.refused = 0
        self._failures: deque[tuple[str, int, str]] = deque()
        self._connections: dict[str, _Connection] = {}
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._woken = self._closed = False
        # Guards the eventfd: another thread could write to it while the owner closes it, and its number could belong to
        # another file then. A queue would not wake a thread that polls sockets.
        self._wake_lock = threading.Lock()
        self._poller = zmq.Poller()
        self._handlers: dict[object, _Handler] = {}
        self._register(self._router, self._read_router)
        self._register(self._watch, self._read_router_events)
        if self._authenticator is not None:
            self._register(self._authenticator.socket, self._read_authenticator)
        self._poller.register(self._wake_fd, zmq.POLLIN)

    def wake(self) -> None:
        """End the current or the next `wait`. For any thread."""
        if self._woken:
            return
        with self._wake_lock:
            if not self._closed:
                self._woken = True
                os.eventfd_write(self._wake_fd, 1)

    def wait(self, timeout: float | None) -> None:
        """Sleep until a socket is readable or `wake` is called, for `timeout` seconds at most.

        What another thread queued before it called `wake` must be read after this returns.
        """
        milliseconds = None if timeout is None else max(0, int(timeout * 1000) + (timeout > 0))
        self._ready = dict(self._poller.poll(0 if self._failures else milliseconds))
        if self._wake_fd in self._ready:
            os.eventfd_read(self._wake_fd)
            self._woken = False

    def read(self, manager: LinkManager, now: float) -> Iterator[list[LinkAction]]:
        """Pass what has arrived to `manager`; yield the actions that follow, which must be carried out one by one."""
        for socket in self._ready:
            handler = self._handlers.get(socket)
            if handler is not None:
                yield from handler(manager, now)
        while self._failures:
            yield manager.connection_lost(*self._failures.popleft(), now)
        while self._lost:
            manager.inbound.route_lost(self._lost.popleft())

    def _read_router(self, manager: LinkManager, now: float) -> Iterator[list[LinkAction]]:
        for route, header, *raw in _receive(self._router, 2):
            yield manager.receive_request(bytes(route), header, raw, now)

    def _read_router_events(self, manager: LinkManager, now: float) -> tuple[()]:
        del manager, now
        while (event := next_event(self._watch)) is not None:
            self.refused += event in REFUSALS
        return ()

    def _read_authenticator(self, manager: LinkManager, now: float) -> tuple[()]:
        del manager, now
        if self._authenticator is not None:
            self._authenticator.answer()
        return ()

    def _read_connection(
        self, peer: str, connection: _Connection, manager: LinkManager, now: float
    ) -> Iterator[list[LinkAction]]:
        if not connection.socket.closed:
            for header, *raw in _receive(connection.socket, 1):
                yield manager.receive_answer(peer, connection.generation, header, raw, now)

    def _read_connection_events(
        self, peer: str, connection: _Connection, manager: LinkManager, now: float
    ) -> tuple[()]:
        del manager, now
        event = None if connection.watch.closed else next_event(connection.watch)
        if event is not None:
            self._failures.append((peer, connection.generation, CONNECTION_FAILURES[event]))
        return ()

    def _register(self, socket: _Socket, handler: _Handler) -> None:
        self._poller.register(socket, zmq.POLLIN)
        self._handlers[socket] = handler

    def _unregister(self, socket: _Socket) -> None:
        self._poller.unregister(socket)
        del self._handlers[socket]

    def close(self) -> None:
        """Close all sockets."""
        for peer in list(self._connections):
            self.close_connection(peer)
        self._router.disable_monitor()
        self._watch.close(0)
        self._context.destroy(0)
        with self._wake_lock:
            self._closed = True
            os.close(self._wake_fd)

    # What `managers.links.driver.Transport` requires.

    def open_connection(self, peer: str, generation: int, address: str) -> None:
        """Open a new connection to `peer`, in place of any earlier one."""
        self.close_connection(peer)
        try:
            check_address(address, self._key, binding=False)
            socket = dealer(self._context, address, self._key, self._timeout)
            watch = monitor(socket)
            self._connections[peer] = connection = _Connection(generation, socket, watch)
            self._register(socket, partial(self._read_connection, peer, connection))
            self._register(watch, partial(self._read_connection_events, peer, connection))
            socket.connect(address)
        except (DropflowError, zmq.ZMQError) as error:
            self._failures.append((peer, generation, str(error)))

    def close_connection(self, peer: str) -> None:
        """Close the connection to `peer`."""
        connection = self._connections.pop(peer, None)
        if connection is not None:
            self._unregister(connection.socket)
            self._unregister(connection.watch)
            connection.socket.disable_monitor()
            connection.watch.close(0)
            connection.socket.close(0)

    def send(self, peer: str, frames: Frames) -> None:
        """Send on the connection to `peer`."""
        connection = self._connections.get(peer)
        if connection is None:
            return
        try:
            _send(connection.socket, frames)
        except zmq.ZMQError as error:
            # Queues to peers have no limit, so the connection is already gone, and its monitor has the reason.
            event = next_event(connection.watch) or zmq.Event.DISCONNECTED
            why = CONNECTION_FAILURES[event] if isinstance(error, zmq.Again) else str(error)
            self._failures.append((peer, connection.generation, why))

    def reply(self, route: bytes, frames: Frames) -> None:
        """Send to the connecting end with this route; one that is gone, or does not read, is forgotten."""
        try:
            _send(self._router, (route, *frames))
        except zmq.ZMQError:
            self._lost.append(route)

    def serve(self, route: bytes, fetch: Fetch) -> None:
        """Answer a request for content."""
        self._on_fetch(route, fetch)


def _send(socket: _Socket, frames: Frames) -> None:
    """Send the frames of one message; large ones without a copy."""
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        flags = zmq.NOBLOCK | (zmq.SNDMORE if index < last else 0)
        socket.send(frame, flags, copy=len(frame) < _COPY)


def _receive(socket: _Socket, heads: int) -> Iterator[list[Buffer]]:
    """Messages that are there, as frames: the first `heads` as bytes, raw frames behind them as views.

    Every message has `heads` frames at least: a route, which the listening socket puts there, and a header.
    """
    for _ in range(_BUDGET):
        try:
            frames: list[Buffer] = [socket.recv(zmq.NOBLOCK) for _ in range(heads)]
        except zmq.Again:
            return  # it was there, and went with its connection when something was sent meanwhile
        while socket.getsockopt(zmq.RCVMORE):
            frames.append(socket.recv(zmq.NOBLOCK, copy=False).buffer)
        yield frames
        if socket.closed or not int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:  # cheaper than the exception of a recv
            return


def _reachable(actual: str, advertise: str) -> str:
    """Address that others can reach: the advertised one with the actual port, or this host for a wildcard."""
    parts = urlsplit(actual)
    if advertise:
        wanted = urlsplit(advertise)
        return advertise if wanted.port else f"tcp://{wanted.netloc.rpartition(':')[0]}:{parts.port}"
    if parts.hostname in EVERYWHERE:
        return f"tcp://{names.gethostname()}:{parts.port}"
    return actual
