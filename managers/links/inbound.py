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
    DeliverMessage,
    InboundAction,
    LinkChange,
    LinkEvent,
    LogRejection,
    NotifyChange,
    ReceivedMessage,
    SendReply,
    ServeFetch,
)
from managers.links.settings import LinkSettings
from managers.links.wire import Buffer, Reassembler, check_frames, view
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

__all__ = ["ANY_PEER", "Inbound"]

ANY_PEER = "\0"
"""Recipient of a `Handshake` that only asks which process listens here (`managers.links.link_probe`).

No process has this name. Processes of older versions reject it; the rejection contains their name.
"""

_STRANGERS = 1024
"""Routes that were refused and are remembered, so that each is answered once."""


class _InboundStream:
    """What has come from one peer in one stream of one incarnation.

    `held` counts, by packet number, the delivered messages that are not dealt with; for a message in several parts it
    is the number of the first, so that the whole of it counts. Numbers only grow, so the first key is the least.
    """

    def __init__(self, peer: str, incarnation: int, number: int, now: float) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self.number = number
        self.heard = now
        self.route = b""
        self.received = 0
        self.reassembler = Reassembler()
        self.first_part = 0
        self.held: dict[int, int] = {}
        self.asked_again = False
        self.ack_due = math.inf
        self.ack_bytes = 0

    @property
    def consumed(self) -> int:
        """Last packet such that it, and all before it, are dealt with."""
        held = next(iter(self.held), self.received + 1) - 1
        return min(held, self.first_part - 1) if self.reassembler.is_open else held


class Inbound:
    """The receiving end of all links to the process `name`.

    Methods return what is to be done, in order. Times are seconds of one monotonic clock.

    Parameters
    ----------
    name, incarnation :
        Of this process.
    settings : LinkSettings
        Times and sizes.
    """

    def __init__(self, name: str, incarnation: int, settings: LinkSettings) -> None:
        self.refused = 0
        self.duplicates = 0
        self._name = name
        self._incarnation = incarnation
        self._settings = settings
        self._streams: dict[str, _InboundStream] = {}
        self._routes: dict[bytes, _InboundStream] = {}
        self._strangers: OrderedDict[bytes, None] = OrderedDict()
        self._due: dict[str, _InboundStream] = {}

    def receive(self, route: bytes, header: Buffer, raw: Sequence[Buffer], now: float) -> list[InboundAction]:
        """Take one ZeroMQ message from the connecting end known by `route`."""
        try:
            packet = decode_packet(header)
            check_frames(packet, raw)
            if isinstance(packet, Handshake):
                return self._hello(route, packet, now)
            stream = self._routes.get(route)
            if stream is None:
                return self._refuse(route, Reject("hello", "a packet came before the handshake"))
            stream.heard = now
            stream.ack_bytes += len(header) + sum(map(len, raw))
            return self._take(stream, packet, raw, now)
        except ProtocolError as error:
            return self._refuse(route, Reject("garbage", str(error)[:4000], "do the two run the same dropflow?"))

    def peer_of(self, route: bytes) -> str:
        """Name of the peer behind a route; empty if it has not shaken hands."""
        stream = self._routes.get(route)
        return "" if stream is None else stream.peer

    def done(self, delivery: ReceivedMessage, now: float) -> None:
        """Note that a delivered message is dealt with; once for each."""
        stream = self._streams.get(delivery.peer)
        if stream is None or delivery.stream is not stream:
            return
        stream.held[delivery.number] -= 1
        if not stream.held[delivery.number]:
            del stream.held[delivery.number]
            self._owe(stream, now)

    def heard(self) -> dict[str, tuple[int, float]]:
        """Incarnation of each peer, and when the last packet came from it. May be called from any thread."""
        return {stream.peer: (stream.incarnation, stream.heard) for stream in list(self._streams.values())}

    def lost(self, route: bytes) -> None:
        """Note that nothing can be sent to a route any more."""
        stream = self._routes.pop(route, None)
        if stream is not None and stream.route == route:
            stream.route = b""

    def tick(self, now: float) -> list[InboundAction]:
        """Do what is due at `now`."""
        due = [stream for stream in self._due.values() if stream.ack_due <= now]
        return [action for stream in due for action in self._ack(stream)]

    def deadline(self) -> float:
        """When to call `tick` at the latest; infinity if nothing is due."""
        for stream in self._due.values():
            return stream.ack_due  # all wait equally long, so the first to begin is the first to end
        return math.inf

    def _hello(self, route: bytes, hello: Handshake, now: float) -> list[InboundAction]:
        if hello.to == ANY_PEER:
            return [SendReply(route, (encode(HandshakeReply(PROTOCOL, self._name, self._incarnation)),))]
        known = self._streams.get(hello.name)
        refusal = self._objection(hello, known)
        if refusal is not None:
            return self._refuse(route, refusal)
        news = known is None or known.incarnation < hello.incarnation or not known.route
        if known is None or (known.incarnation, known.number) != (hello.incarnation, hello.stream):
            if known is not None:
                self._routes.pop(known.route, None)
                self._due.pop(known.peer, None)
            known = self._streams[hello.name] = _InboundStream(hello.name, hello.incarnation, hello.stream, now)
        self._routes.pop(known.route, None)
        known.route, known.asked_again, known.heard = route, False, now
        self._routes[route] = known
        self._settle(known)
        welcome = HandshakeReply(PROTOCOL, self._name, self._incarnation, known.received, known.consumed)
        reply = SendReply(route, (encode(welcome),))
        if not news:
            return [reply]
        change = LinkChange(
            peer=hello.name, event=LinkEvent.INTRODUCED, incarnation=hello.incarnation, address=hello.address
        )
        return [reply, NotifyChange(change)]

    def _objection(self, hello: Handshake, known: _InboundStream | None) -> Reject | None:
        if hello.protocol != PROTOCOL:
            text = f"node {self._name!r} speaks protocol {PROTOCOL}, node {hello.name!r} speaks {hello.protocol}"
            return Reject("protocol", text, "install the same version of dropflow on all hosts")
        if hello.to != self._name:
            text = f"the process at this address is {self._name!r}, not {hello.to!r}"
            return Reject("name", text, "check the addresses of the nodes")
        if hello.name == self._name:
            text = f"two processes call themselves {self._name!r}"
            return Reject("name", text, "give each node a name of its own")
        if known is not None and (hello.incarnation, hello.stream) < (known.incarnation, known.number):
            text = f"a later process calls itself {hello.name!r} already"
            return Reject("stale", text, "stop one of the two, or give it another name or its former --root")
        if known is None and len(self._streams) >= self._settings.peers:
            return Reject("full", f"node {self._name!r} has {len(self._streams)} peers already")
        return None

    def _take(self, stream: _InboundStream, packet: Packet, raw: Sequence[Buffer], now: float) -> list[InboundAction]:
        match packet:
            case MessageBatch() | Fragment():
                return self._numbered(stream, packet, raw, now)
            case Heartbeat():
                if packet.sent > stream.received:
                    stream.asked_again = True
                return self._ack(stream)
            case Fetch():
                return [ServeFetch(stream.route, stream.peer, packet)]
            case _:
                raise ProtocolError(f"a {type(packet).__name__} packet makes no sense here")

    def _numbered(
        self, stream: _InboundStream, packet: MessageBatch | Fragment, raw: Sequence[Buffer], now: float
    ) -> list[InboundAction]:
        if packet.number <= stream.received:
            self.duplicates += 1
            self._owe(stream, now)
            return []
        if packet.number > stream.received + 1:
            if stream.asked_again:
                return []
            stream.asked_again = True
            return self._ack(stream)
        if isinstance(packet, MessageBatch):
            deliveries = [self._delivery(stream, packet.number, segments) for segments in packet.messages]
        else:
            deliveries = self._part(stream, packet, raw)
        stream.received, stream.asked_again = packet.number, False
        if deliveries:
            stream.held[deliveries[0].number] = len(deliveries)
        self._owe(stream, now)
        actions: list[InboundAction] = [DeliverMessage(delivery) for delivery in deliveries]
        if stream.ack_bytes >= self._settings.ack_bytes:
            actions += self._ack(stream)
        return actions

    def _part(self, stream: _InboundStream, part: Fragment, raw: Sequence[Buffer]) -> list[ReceivedMessage]:
        if part.start == 0:
            stream.first_part = part.number
        segments = stream.reassembler.add(part, raw)
        return [] if segments is None else [self._delivery(stream, stream.first_part, segments)]

    def _delivery(self, stream: _InboundStream, number: int, segments: Sequence[Buffer]) -> ReceivedMessage:
        message = decode_message(segments[0])
        frames = tuple(view(segment).toreadonly() for segment in segments[1:])
        return ReceivedMessage(stream, number, message, frames)

    def _owe(self, stream: _InboundStream, now: float) -> None:
        """Acknowledge soon."""
        if stream.ack_due == math.inf:
            stream.ack_due = now + self._settings.ack_delay
            self._due[stream.peer] = stream

    def _ack(self, stream: _InboundStream) -> list[InboundAction]:
        self._settle(stream)
        if not stream.route:
            return []
        ack = Ack(stream.received, stream.consumed, stream.asked_again)
        return [SendReply(stream.route, (encode(ack),))]

    def _settle(self, stream: _InboundStream) -> None:
        stream.ack_due, stream.ack_bytes = math.inf, 0
        self._due.pop(stream.peer, None)

    def _refuse(self, route: bytes, refusal: Reject) -> list[InboundAction]:
        """Answer once, then ignore whatever else comes that way."""
        self.lost(route)
        if route in self._strangers:
            return []
        self.refused += 1
        self._strangers[route] = None
        if len(self._strangers) > _STRANGERS:
            self._strangers.popitem(last=False)
        return [SendReply(route, (encode(refusal),)), LogRejection(refusal)]
