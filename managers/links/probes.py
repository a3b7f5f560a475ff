"""Probes of link addresses: which process listens there. A probe does not make this process a peer.

A `Handshake` to `ANY_PEER` is answered with a `HandshakeReply` and then forgotten, so existing links between the two
processes are not affected. A readable answer proves more than an open port: both ends hold the same cluster key. One
thread probes all addresses concurrently, with one deadline.
"""

import errno
import os
import selectors
import socket
import socket as network
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec
import zmq

from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, ProtocolError
from managers.keys import ClusterKey
from managers.links.inbound import ANY_PEER
from managers.links.zmq_transport import CONNECTION_FAILURES, check_address, dealer, next_event
from managers.messages import PROTOCOL, Handshake, HandshakeReply, Reject, decode_packet, encode

_FIREWALL = "is a firewall in between, or is that host off? open that port for the other nodes"
_KEY = "copy the same key file to both hosts; compare with 'dropflow keys show'"
_REFUSAL_SECONDS = 1.0
"""Seconds in which a port must refuse a connection to count as closed."""


class LinkProbe(msgspec.Struct, frozen=True, kw_only=True):
    """The result of probing one address.

    Attributes
    ----------
    seconds : float
        Duration of the probe.
    is_ours : bool
        Whether links with our cluster key listen there.
    welcome : HandshakeReply or None
        Their answer; None also for links of older versions, which do not support the request.
    trouble, hint : str
        Why these links cannot be used, and what to do; empty if they can be used.
    """

    seconds: float = 0.0
    is_ours: bool = False
    welcome: HandshakeReply | None = None
    trouble: str = ""
    hint: str = ""


class _Stage(IntEnum):
    """The stages of a connection."""

    CONNECTING = 0
    CONNECTED = 1
    TRUSTED = 2


_STAGES = {zmq.Event.CONNECTED: _Stage.CONNECTED, zmq.Event.HANDSHAKE_SUCCEEDED: _Stage.TRUSTED}
_NO_ANSWER = {
    _Stage.CONNECTING: ("it does not answer", _FIREWALL),
    _Stage.CONNECTED: (
        "something listens there, but does not answer as links do",
        "check whether that process is stopped or busy",
    ),
    _Stage.TRUSTED: (
        "its links have the right key, but do not answer",
        "check whether that process is stopped or busy",
    ),
}


def probe_links(
    addresses: Iterable[str], *, name: str, key: ClusterKey | None, seconds: float, clock: Clock | None = None
) -> dict[str, LinkProbe]:
    """Probe all `addresses` concurrently.

    Parameters
    ----------
    addresses : iterable of str
        Addresses of links, ``tcp://HOST:PORT``. Hosts should be numeric: resolving a name can exceed the time limit.
    name : str
        Name of this process, for the handshake.
    key : ClusterKey or None
        Key of the cluster; without it only this host can be probed.
    seconds : float
        Time limit.

    Returns
    -------
    dict
        The result for each address.
    """
    clock = clock or SystemClock()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        probes = [
            _Probe(context, address, name, key, seconds=seconds, clock=clock) for address in dict.fromkeys(addresses)
        ]
        try:
            _wait(probes, clock.monotonic() + seconds, clock)
            return {probe.address: probe.outcome(seconds) for probe in probes}
        finally:
            for probe in probes:
                probe.close()
    finally:
        context.destroy(0)


def _wait(probes: Sequence["_Probe"], end: float, clock: Clock) -> None:
    waiting = [probe for probe in probes if not probe.is_over]
    while waiting and (left := end - clock.monotonic()) > 0:
        poller = zmq.Poller()
        for probe in waiting:
            for source, flags in probe.items():
                poller.register(source, flags)
        ready = {source for source, _ in poller.poll(int(left * 1000) + 1)}
        for probe in waiting:
            if any(source in ready for source, _ in probe.items()):
                probe.handle_events()
        waiting = [probe for probe in waiting if not probe.is_over]


class _Probe:
    """One connection."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: str,
        name: str,
        key: ClusterKey | None,
        *,
        seconds: float,
        clock: Clock,
    ) -> None:
        self.address = address
        self._clock = clock
        self._stage = _Stage.CONNECTING
        self._found: LinkProbe | None = None
        self._plain: network.socket | None = None
        self._began = clock.monotonic()
        try:
            check_address(address, key, binding=False)
            self._socket = dealer(context, address, key, 2 * seconds)
            self._watch = self._socket.get_monitor_socket(sum(CONNECTION_FAILURES) | sum(_STAGES))
            self._watch.linger = 0
            self._socket.connect(address)
            # If the other end has refused the connection by now, nothing can be sent, and its event has the reason.
            with suppress(zmq.Again):
                self._socket.send(encode(Handshake(PROTOCOL, name, 0, ANY_PEER, 0)), zmq.NOBLOCK)
        except (DropflowError, zmq.ZMQError) as error:
            self._end(LinkProbe(trouble=getattr(error, "text", str(error)), hint=getattr(error, "hint", "")))

    @property
    def is_over(self) -> bool:
        """Whether the result is known."""
        return self._found is not None

    def items(self) -> Sequence[tuple[Any, int]]:
        """Return the sockets to wait for, with their flags, for a poller."""
        if self._plain is not None:
            return ((self._plain.fileno(), zmq.POLLOUT),)
        return ((self._socket, zmq.POLLIN), (self._watch, zmq.POLLIN))

    def handle_events(self) -> None:
        """Process what was received: first packets of the other end, then events of the connection."""
        if self._plain is not None:
            self._end_with_code(self._plain.getsockopt(network.SOL_SOCKET, network.SO_ERROR))
            return
        if int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._on_packet(self._socket.recv_multipart(zmq.NOBLOCK)[0])
        while not self.is_over and self._plain is None:
            event = next_event(self._watch)
            if event is None:
                return
            self._on_event(event)

    def close(self) -> None:
        """Close the plain socket, if there is one; the context closes the others."""
        if self._plain is not None:
            self._plain.close()

    def _on_event(self, event: zmq.Event) -> None:
        if event in _STAGES:
            self._stage = max(self._stage, _STAGES[event])
        elif event is zmq.Event.CLOSED:
            self._find_cause()
        elif event is zmq.Event.DISCONNECTED and self._stage is not _Stage.TRUSTED:
            # Links close connections of clients with another key, or none, without an answer.
            self._end(LinkProbe(trouble="it closes the connection: its cluster key may differ", hint=_KEY))
        else:
            self._end(LinkProbe(trouble=CONNECTION_FAILURES[event], hint=_KEY))

    def _find_cause(self) -> None:
        """Connect a plain socket to learn why the connection cannot be opened: ZeroMQ does not report the reason."""
        parts = urlsplit(self.address)
        host = parts.hostname or ""
        self._plain = network.socket(network.AF_INET6 if ":" in host else network.AF_INET, network.SOCK_STREAM)
        self._plain.setblocking(False)
        try:
            code = self._plain.connect_ex((host, parts.port or 0))
        except OSError as error:
            code = error.errno or errno.EIO
        except UnicodeError:
            code = errno.EHOSTUNREACH  # it cannot be the name of a host
        if code != errno.EINPROGRESS:
            self._end_with_code(code)

    def _end_with_code(self, code: int) -> None:
        if code == errno.ECONNREFUSED:
            text, hint = "nothing listens there", "is the node running, and is this the port of its links?"
        elif code == 0:
            text, hint = "the connection broke immediately", "try again; does the network between the hosts work?"
        else:
            text = os.strerror(code).lower()
            hint = "check the network between the hosts, or let the node advertise an address that they reach"
        self._end(LinkProbe(trouble=text, hint=hint))

    def outcome(self, seconds: float) -> LinkProbe:
        """Return the result at the end of the time."""
        text, hint = _NO_ANSWER[self._stage]
        return self._found or LinkProbe(seconds=seconds, trouble=f"{text} within {seconds:.2g} s", hint=hint)

    def _on_packet(self, frame: bytes) -> None:
        try:
            packet = decode_packet(frame)
        except ProtocolError as error:
            self._end(LinkProbe(is_ours=True, trouble=error.text, hint="do the two run the same dropflow?"))
            return
        match packet:
            case HandshakeReply():
                self._end(LinkProbe(is_ours=True, welcome=packet))
            case Reject() if packet.code == "name":
                self._end(LinkProbe(is_ours=True))
            case Reject():
                self._end(LinkProbe(is_ours=True, trouble=packet.text, hint=packet.hint))
            case _:
                text = f"its links answer with a {type(packet).__name__} packet"
                self._end(LinkProbe(is_ours=True, trouble=text, hint="do the two run the same dropflow?"))

    def _end(self, probe: LinkProbe) -> None:
        self._found = msgspec.structs.replace(probe, seconds=round(self._clock.monotonic() - self._began, 4))


# Whether the hosts of other processes refuse connections: then no process listens there.


def refused_ports(addresses: Mapping[str, str]) -> dict[str, bool]:
    """Try to connect to addresses, all at the same time, and return by name whether that is refused.

    A host that does not answer, or cannot be found, does not refuse.

    Parameters
    ----------
    addresses : mapping of str to str
        ``tcp://HOST:PORT`` by name.
    """
    refused = dict.fromkeys(addresses, False)
    with selectors.PollSelector() as selector:  # works without a free descriptor
        try:
            for name, address in addresses.items():
                _begin(selector, name, address, refused)
            clock = SystemClock()
            deadline = clock.monotonic() + _REFUSAL_SECONDS
            while selector.get_map() and (left := deadline - clock.monotonic()) > 0:
                for key, _ in selector.select(left):
                    connection = selector.unregister(key.fileobj).fileobj
                    if isinstance(connection, socket.socket):
                        error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                        refused[key.data] = error == errno.ECONNREFUSED
                        connection.close()
        finally:
            for key in list(selector.get_map().values()):
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
    return refused


def _begin(selector: selectors.BaseSelector, name: str, address: str, refused: dict[str, bool]) -> None:
    """Begin to connect to an address."""
    parts = urlsplit(address)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)[0]
        connection = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        return  # the name is unknown or cannot be a name, or there is no descriptor left
    connection.setblocking(False)
    error = connection.connect_ex(where)
    if error == errno.EINPROGRESS:
        selector.register(connection, selectors.EVENT_WRITE, name)
    else:
        refused[name] = error == errno.ECONNREFUSED
        connection.close()
