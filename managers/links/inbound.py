"""The receiving end of all links to one process, as a pure state machine.

A connecting end is identified by its route, an opaque id that the listening socket assigns. Its first packet must be a
`Handshake`; from then on the route stands for that peer, until the peer opens another connection. The position in the
peer's stream is kept across connections, so that duplicates are dropped and missing packets are requested again.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

from dropflow.errors import ProtocolError
from managers.links.actions import (
    InboundAction,
    LinkChange,
    LinkEvent,
    LogRejection,
    NotifyChange,
    ReceivedMessage,
    SendReply,
    ServeFetch,
)
from managers.links.link_settings import LinkSettings
from managers.links.packing import Buffer, Reassembler, check_frames, view
from managers.messages import (
    PROTOCOL,
    Ack,
    Fetch,
    Fragment,
    Handshake,
    HandshakeReply,
    Heartbeat,
    MessageBatch,
    Packet,
    Reject,
    decode_message,
    decode_packet,
    encode,
)

ANY_PEER = "\0"
"""Recipient of a `Handshake` that only asks which process listens here (`managers.links.probes`).

No process has this name. Processes of older versions reject it; the rejection contains their name.
"""

_MOST_REJECTED = 1024
"""Number of rejected routes that are remembered, so that each is answered once."""


_FORGET_AFTER = 3600.0
"""Seconds of silence after which a peer is forgotten if there are too many.

It is long, because a peer that comes back after it was forgotten cannot continue its stream.
"""


class _InboundStream:
    """The messages that were received from one peer in one stream of one incarnation."""

    def __init__(self, peer: str, incarnation: int, number: int, now: float) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self.number = number
        self.last_received = now
        self.route = b""
        self.received = 0
        self.reassembler = Reassembler()
        self.first_fragment = 0
        self.asked_to_resend = False
        self.ack_due = math.inf
        self.ack_bytes = 0

    @property
    def consumed(self) -> int:
        """Last packet whose message is complete: messages are processed as they arrive."""
        return self.first_fragment - 1 if self.reassembler.is_open else self.received


class Inbound:
    """The receiving end of all links to the process `name`.

    Methods return the actions to carry out, in order. Times are seconds of one monotonic clock.

    Parameters
    ----------
    name, incarnation :
        Name and incarnation of this process.
    settings : LinkSettings
        Times and sizes.
    """

    def __init__(self, name: str, incarnation: int, settings: LinkSettings) -> None:
        self.rejected = 0
        self.duplicates = 0
        self._name = name
        self._incarnation = incarnation
        self._settings = settings
        self._streams: dict[str, _InboundStream] = {}
        self._routes: dict[bytes, _InboundStream] = {}
        self._rejected: OrderedDict[bytes, None] = OrderedDict()
        self._due: dict[str, _InboundStream] = {}

    def receive(self, route: bytes, header: Buffer, raw: Sequence[Buffer], now: float) -> list[InboundAction]:
        """Handle one ZeroMQ message from the connecting end with this route."""
        try:
            packet = decode_packet(header)
            check_frames(packet, raw)
            if isinstance(packet, Handshake):
                return self._handshake(route, packet, now)
            stream = self._routes.get(route)
            if stream is None:
                return self._reject(route, Reject("hello", "a packet came before the handshake"))
            stream.last_received = now
            stream.ack_bytes += len(header) + sum(map(len, raw))
            return self._handle(stream, packet, raw, now)
        except ProtocolError as error:
            return self._reject(
                route, Reject("garbage", str(error)[:4000], "run the same version of dropflow on both hosts")
            )

    def last_seen(self) -> dict[str, tuple[int, float]]:
        """Return the incarnation of each peer and when its last packet came. May be called from any thread."""
        return {stream.peer: (stream.incarnation, stream.last_received) for stream in list(self._streams.values())}

    def route_lost(self, route: bytes) -> None:
        """Note that nothing can be sent to this route any more."""
        stream = self._routes.pop(route, None)
        if stream is not None and stream.route == route:
            stream.route = b""

    def tick(self, now: float) -> list[InboundAction]:
        """Send the acknowledgements that are due at `now`."""
        due = [stream for stream in self._due.values() if stream.ack_due <= now]
        return [action for stream in due for action in self._ack(stream)]

    def deadline(self) -> float:
        """Return when `tick` must be called at the latest; infinity if nothing is due."""
        for stream in self._due.values():
            return stream.ack_due  # all delays are equal, so the first in is the first due
        return math.inf

    def _handshake(self, route: bytes, handshake: Handshake, now: float) -> list[InboundAction]:
        if handshake.to == ANY_PEER:
            return [SendReply(route, (encode(HandshakeReply(PROTOCOL, self._name, self._incarnation)),))]
        known = self._streams.get(handshake.name)
        if known is None and len(self._streams) >= self._settings.peers:
            self._forget_silent(now)
        rejection = self._rejection(handshake, known, now)
        if rejection is not None:
            return self._reject(route, rejection)
        is_new = known is None or known.incarnation != handshake.incarnation or not known.route
        if known is None or (known.incarnation, known.number) != (handshake.incarnation, handshake.stream):
            if known is not None:
                self._routes.pop(known.route, None)
                self._due.pop(known.peer, None)
            known = _InboundStream(handshake.name, handshake.incarnation, handshake.stream, now)
            self._streams[known.peer] = known
        self._routes.pop(known.route, None)
        known.route, known.asked_to_resend, known.last_received = route, False, now
        self._routes[route] = known
        self._clear_ack(known)
        packet = HandshakeReply(PROTOCOL, self._name, self._incarnation, known.received, known.consumed)
        reply = SendReply(route, (encode(packet),))
        if not is_new:
            return [reply]
        change = LinkChange(
            peer=known.peer, event=LinkEvent.INTRODUCED, incarnation=known.incarnation, address=handshake.address
        )
        return [reply, NotifyChange(change)]

    def _rejection(self, handshake: Handshake, known: _InboundStream | None, now: float) -> Reject | None:
        if handshake.protocol != PROTOCOL:
            ours, theirs = f"node {self._name!r}", f"node {handshake.name!r}"
            text = f"{ours} uses link protocol {PROTOCOL}, {theirs} uses {handshake.protocol}"
            return Reject("protocol", text, "install the same version of dropflow on all hosts")
        if handshake.to != self._name:
            text = f"the process at this address is {self._name!r}, not {handshake.to!r}"
            return Reject("name", text, "check the addresses of the nodes")
        if handshake.name == self._name:
            text = f"two processes have the name {self._name!r}"
            return Reject("name", text, "give each node a name of its own")
        if known is not None and self._is_stale(handshake, known, now):
            text = f"a later process already has the name {handshake.name!r}"
            return Reject("stale", text, "stop one of the two, or give it another name or its former --root")
        if known is None and len(self._streams) >= self._settings.peers:
            return Reject("full", f"node {self._name!r} has {len(self._streams)} peers already")
        return None

    def _forget_silent(self, now: float) -> None:
        """Forget the peers that are gone: each job of a batch system brings names that do not come again."""
        for stream in list(self._streams.values()):
            if now >= stream.last_received + _FORGET_AFTER:
                del self._streams[stream.peer]
                self._routes.pop(stream.route, None)
                self._due.pop(stream.peer, None)

    def _is_stale(self, handshake: Handshake, known: _InboundStream, now: float) -> bool:
        if handshake.incarnation < known.incarnation:
            return now < known.last_received + self._settings.earlier_after
        return handshake.incarnation == known.incarnation and handshake.stream < known.number

    def _handle(self, stream: _InboundStream, packet: Packet, raw: Sequence[Buffer], now: float) -> list[InboundAction]:
        match packet:
            case MessageBatch() | Fragment():
                return self._numbered(stream, packet, raw, now)
            case Heartbeat():
                if packet.sent > stream.received:
                    stream.asked_to_resend = True
                return self._ack(stream)
            case Fetch():
                return [ServeFetch(stream.route, packet)]
            case _:
                raise ProtocolError(f"unexpected {type(packet).__name__} packet")

    def _numbered(
        self, stream: _InboundStream, packet: MessageBatch | Fragment, raw: Sequence[Buffer], now: float
    ) -> list[InboundAction]:
        if packet.number <= stream.received:
            self.duplicates += 1
            self._schedule_ack(stream, now)
            return []
        if packet.number > stream.received + 1:
            if stream.asked_to_resend:
                return []
            stream.asked_to_resend = True
            return self._ack(stream)
        if isinstance(packet, MessageBatch):
            messages = [_message(stream, segments) for segments in packet.messages]
        else:
            messages = self._fragment(stream, packet, raw)
        stream.received, stream.asked_to_resend = packet.number, False
        self._schedule_ack(stream, now)
        actions: list[InboundAction] = [*messages]
        if stream.ack_bytes >= self._settings.ack_bytes:
            actions += self._ack(stream)
        return actions

    def _fragment(self, stream: _InboundStream, fragment: Fragment, raw: Sequence[Buffer]) -> list[ReceivedMessage]:
        if fragment.start == 0:
            stream.first_fragment = fragment.number
        segments = stream.reassembler.add(fragment, raw)
        return [] if segments is None else [_message(stream, segments)]

    def _schedule_ack(self, stream: _InboundStream, now: float) -> None:
        """Acknowledge within the delay of the settings."""
        if stream.ack_due == math.inf:
            stream.ack_due = now + self._settings.ack_delay
            self._due[stream.peer] = stream

    def _ack(self, stream: _InboundStream) -> list[InboundAction]:
        self._clear_ack(stream)
        if not stream.route:
            return []
        ack = Ack(stream.received, stream.consumed, stream.asked_to_resend)
        return [SendReply(stream.route, (encode(ack),))]

    def _clear_ack(self, stream: _InboundStream) -> None:
        stream.ack_due, stream.ack_bytes = math.inf, 0
        self._due.pop(stream.peer, None)

    def _reject(self, route: bytes, rejection: Reject) -> list[InboundAction]:
        """Answer once; ignore everything else from this route."""
        self.route_lost(route)
        if route in self._rejected:
            return []
        self.rejected += 1
        self._rejected[route] = None
        if len(self._rejected) > _MOST_REJECTED:
            self._rejected.popitem(last=False)
        return [SendReply(route, (encode(rejection),)), LogRejection(rejection)]


def _message(stream: _InboundStream, segments: Sequence[Buffer]) -> ReceivedMessage:
    frames = tuple(view(segment).toreadonly() for segment in segments[1:])
    return ReceivedMessage(stream.peer, stream.incarnation, decode_message(segments[0]), frames)
