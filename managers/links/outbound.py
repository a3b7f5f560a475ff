"""The sending end of a link to one peer, as a pure state machine.

::

             connect                HandshakeReply
    IDLE ─────────────▶ CONNECTING ────────────────▶ UP
                          │  ▲                       │
            lost, timeout │  │ reconnect delay       │ lost, timeout
                          ▼  │                       │
                        WAITING ◀────────────────────┘        Reject, in any state ▶ REFUSED

Every connection begins with `Handshake`. Nothing else is sent before `HandshakeReply` reports the position of the other
end in the stream, so a lost connection costs only the packets in flight. A packet is kept until it is acknowledged
(the other end has it) and counts against the window until it is consumed (the other end has processed it).
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec

from managers.links.actions import (
    CloseConnection,
    DataReceived,
    LinkChange,
    LinkEvent,
    NotifyChange,
    OpenConnection,
    OutboundAction,
    PeerRefused,
    ReturnCredit,
    SendPacket,
)
from managers.links.link_settings import LinkSettings
from managers.links.packing import Buffer, NumberedPacket, OutgoingMessage, Packer
from managers.messages import (
    PROTOCOL,
    Ack,
    Chunk,
    ContentGone,
    FetchFailed,
    Handshake,
    HandshakeReply,
    Heartbeat,
    Packet,
    Reject,
    encode,
)

_LONGEST_PAUSE = 30.0
"""Most seconds between two attempts to reach a peer that has not answered for long."""
_PAUSE_SHARE = 100
"""Ratio of the time without an answer to the pause between two attempts, up to the longest pause."""


class OutboundState(Enum):
    """State of a link; see the drawing above."""

    IDLE = "idle"
    CONNECTING = "connecting"
    UP = "up"
    WAITING = "waiting"
    REFUSED = "refused"


class LinkIdentity(msgspec.Struct, frozen=True):
    """Name, incarnation and address of this process, as its handshake sends them."""

    name: str
    incarnation: int
    address: str


class Outbound:
    """The sending end of the link from this process to `peer`.

    Methods return the actions to carry out, in order. Times are seconds of one monotonic clock.

    Parameters
    ----------
    identity : LinkIdentity
        This process.
    peer : str
        Name of the other process.
    settings : LinkSettings
        Times and sizes.
    streams : iterator of int
        Increasing numbers for its streams; one iterator for all links of the process.
    """

    def __init__(self, identity: LinkIdentity, peer: str, settings: LinkSettings, streams: Iterator[int]) -> None:
        self.state = OutboundState.IDLE
        self.peer = peer
        self.address = ""
        self.remote_incarnation = 0
        self.generation = 0
        self.resent = 0
        self.problem = ""
        self._identity = identity
        self._streams = streams
        self._stream = next(streams)
        self._settings = settings
        self._packer = Packer(settings.fragment)
        self._unacknowledged: deque[NumberedPacket] = deque()
        self._retransmit: deque[NumberedPacket] = deque()
        self._unconsumed: deque[tuple[int, int]] = deque()
        self._in_flight = 0
        self._last_received = self._last_sent = self._reconnect_at = 0.0
        self._confirmed = -math.inf
        """Monotonic time of the last message of the remote incarnation."""
        self._reconnect_delay = settings.reconnect_delay
        self._sought = 0.0
        """Monotonic time since when the peer is to be reached."""

    @property
    def is_settled(self) -> bool:
        """Whether the other end has acknowledged everything that was enqueued."""
        return self._packer.is_empty and not self._unacknowledged

    def connect(self, address: str, now: float, incarnation: int = 0) -> list[OutboundAction]:
        """Open the link, or move it to another address. Also leaves the state REFUSED.

        Parameters
        ----------
        incarnation : int
            The process of the peer that is meant. If it is a later one than that which answered last, whatever is sent
            from now on is kept for it.
        """
        is_used = self.state not in (OutboundState.IDLE, OutboundState.REFUSED)
        if is_used and 0 < self.remote_incarnation < incarnation:
            return self.peer_introduced(incarnation, address, now)
        actions = self._set_incarnation(incarnation, now) if incarnation >= max(self.remote_incarnation, 1) else []
        is_open = self.state in (OutboundState.CONNECTING, OutboundState.UP)
        self._seek(now)
        if (is_open or self.state is OutboundState.WAITING) and address == self.address:
            return actions
        self.address = address
        close: list[OutboundAction] = [CloseConnection(self.peer)] if is_open else []
        return [*actions, *close, *self._connect(now)]

    def enqueue(self, messages: Sequence[OutgoingMessage], now: float) -> list[OutboundAction]:
        """Send messages as soon as the link allows, in as few packets as possible."""
        if self.state is OutboundState.REFUSED:
            return [ReturnCredit(self.peer, message.cost) for message in messages]
        for message in messages:
            self._packer.put(message)
        return self.send_pending(now)

    def send_pending(self, now: float) -> list[OutboundAction]:
        """Send the packets that the limit of bytes in flight allows now."""
        actions: list[OutboundAction] = []
        while self.state is OutboundState.UP and self._in_flight < self._settings.flight:
            if self._retransmit:
                packet: NumberedPacket | None = self._retransmit.popleft()
                self.resent += 1
            else:
                packet = self._packer.next_packet()
                if packet is not None:
                    self._unacknowledged.append(packet)
                    self._unconsumed.append((packet.number, packet.cost))
            if packet is None:
                break
            self._in_flight += packet.cost
            self._last_sent = now
            actions.append(SendPacket(self.peer, packet.frames))
        return actions

    def receive(self, packet: Packet, raw: Sequence[Buffer], now: float) -> list[OutboundAction]:
        """Handle a packet that arrived on the current connection."""
        if self.state not in (OutboundState.CONNECTING, OutboundState.UP):
            return []
        self._last_received = now
        match (self.state, packet):
            case (_, Reject(code="hello")):
                actions = self.connection_lost("the other end does not know this connection any more", now)
            case (_, Reject()):
                actions = self._refused(packet.text, packet.hint)
            case (OutboundState.CONNECTING, HandshakeReply()):
                actions = self._handshake_accepted(packet, now)
            case (OutboundState.UP, Ack()):
                actions = self._acknowledge(packet, now)
            case (OutboundState.UP, Chunk() | ContentGone() | FetchFailed()):
                actions = [DataReceived(packet, tuple(raw))]
            case _:
                actions = self.connection_lost(f"unexpected {type(packet).__name__} packet", now)
        return actions

    def connection_lost(self, why: str, now: float) -> list[OutboundAction]:
        """Handle the loss of the connection, or its misuse; it is opened again after a delay."""
        if self.state not in (OutboundState.CONNECTING, OutboundState.UP):
            return []
        is_new = self.state is OutboundState.UP or why != self.problem
        if self.state is OutboundState.UP:
            self._confirmed = self._sought = self._last_received
        self.state, self.problem = OutboundState.WAITING, why
        self._reconnect_at = now + self._reconnect_delay
        # Jobs of a batch system leave peers that never come again.
        pause = min((now - self._sought) / _PAUSE_SHARE, _LONGEST_PAUSE)
        self._reconnect_delay = min(2 * self._reconnect_delay, max(self._settings.reconnect_delay_limit, pause))
        change = LinkChange(peer=self.peer, event=LinkEvent.DOWN, incarnation=self.remote_incarnation, text=why)
        return [CloseConnection(self.peer), NotifyChange(change)] if is_new else [CloseConnection(self.peer)]

    def peer_introduced(self, incarnation: int, address: str, now: float) -> list[OutboundAction]:
        """Handle a new process of the peer, at its new address."""
        is_refused = self.state is OutboundState.REFUSED
        self._seek(now)
        if incarnation == self.remote_incarnation or is_refused or self._is_earlier(incarnation, now):
            return []
        is_restart = self.remote_incarnation > 0
        actions = self._set_incarnation(incarnation, now)
        if is_restart:
            self.address = address or self.address
        if not is_restart or self.state is OutboundState.IDLE:
            return actions
        self._stream = next(self._streams)
        is_open = self.state is not OutboundState.WAITING
        close: list[OutboundAction] = [CloseConnection(self.peer)] if is_open else []
        return [*actions, *close, *self._connect(now)]

    def _seek(self, now: float) -> None:
        """Try to reach the peer soon and often, since it has shown itself or is needed."""
        self._sought, self._reconnect_delay = now, self._settings.reconnect_delay
        self._reconnect_at = min(self._reconnect_at, now + self._reconnect_delay)

    def _is_earlier(self, incarnation: int, now: float) -> bool:
        """Return whether this is an earlier process of the peer, and the later one has sent a message lately."""
        is_heard = self.state is OutboundState.UP or now < self._confirmed + self._settings.earlier_after
        return incarnation < self.remote_incarnation and is_heard

    def _set_incarnation(self, incarnation: int, now: float) -> list[OutboundAction]:
        """Discard what was meant for another process of the peer: it must not reach this one."""
        known, self.remote_incarnation = self.remote_incarnation, incarnation
        self._confirmed = now
        if known in (0, incarnation):
            return []
        undelivered, actions = self._discard_all()
        text = f"node {self.peer!r} was started again"
        change = LinkChange(
            peer=self.peer, event=LinkEvent.RESTARTED, incarnation=incarnation, text=text, undelivered=undelivered
        )
        return [*actions, NotifyChange(change)]

    def tick(self, now: float) -> list[OutboundAction]:
        """Reconnect, time out or send a heartbeat, if that is due at `now`."""
        if self.state is OutboundState.WAITING and now >= self._reconnect_at:
            return self._connect(now)
        if self.state not in (OutboundState.CONNECTING, OutboundState.UP):
            return []
        if now >= self._last_received + self._settings.receive_timeout:
            return self.connection_lost(f"nothing was received for {self._settings.receive_timeout:g} s", now)
        if self.state is OutboundState.UP and now >= self._last_sent + self._settings.heartbeat:
            self._last_sent = now
            return [SendPacket(self.peer, (encode(Heartbeat(self._packer.number)),))]
        return []

    def deadline(self) -> float:
        """Return when `tick` must be called at the latest; infinity if nothing is due."""
        match self.state:
            case OutboundState.WAITING:
                return self._reconnect_at
            case OutboundState.CONNECTING:
                return self._last_received + self._settings.receive_timeout
            case OutboundState.UP:
                return min(
                    self._last_received + self._settings.receive_timeout, self._last_sent + self._settings.heartbeat
                )
            case _:
                return math.inf

    def _connect(self, now: float) -> list[OutboundAction]:
        self.state = OutboundState.CONNECTING
        self.generation += 1
        self._last_received = self._last_sent = now
        identity = self._identity
        handshake = Handshake(PROTOCOL, identity.name, identity.incarnation, self.peer, self._stream, identity.address)
        return [OpenConnection(self.peer, self.generation, self.address), SendPacket(self.peer, (encode(handshake),))]

    def _handshake_accepted(self, reply: HandshakeReply, now: float) -> list[OutboundAction]:
        if reply.name != self.peer:
            text = f"the process at {self.address} is {reply.name!r}, not {self.peer!r}"
            return self._refused(text, "check the addresses of the nodes")
        if self._is_earlier(reply.incarnation, now):
            return self.connection_lost(f"an earlier process of node {self.peer!r} answers at {self.address}", now)
        actions = self._set_incarnation(reply.incarnation, now)
        self.state, self.problem = OutboundState.UP, ""
        self._reconnect_delay = self._settings.reconnect_delay
        self._in_flight = 0
        self._retransmit = deque(self._unacknowledged)
        change = LinkChange(peer=self.peer, event=LinkEvent.UP, incarnation=reply.incarnation, text=self.address)
        return [*actions, NotifyChange(change), *self._acknowledge(Ack(reply.received, reply.consumed), now)]

    def _acknowledge(self, ack: Ack, now: float) -> list[OutboundAction]:
        if not ack.consumed <= ack.received <= self._packer.number:
            text = f"packet {ack.received} was acknowledged, but the last one sent was {self._packer.number}"
            return self.connection_lost(text, now)
        while self._unacknowledged and self._unacknowledged[0].number <= ack.received:
            packet = self._unacknowledged.popleft()
            if self._retransmit and self._retransmit[0] is packet:
                self._retransmit.popleft()
            else:
                self._in_flight -= packet.cost
        freed = 0
        while self._unconsumed and self._unconsumed[0][0] <= ack.consumed:
            freed += self._unconsumed.popleft()[1]
        if ack.again:
            self._retransmit = deque(self._unacknowledged)
            self._in_flight = 0
        actions = self.send_pending(now)
        return [ReturnCredit(self.peer, freed), *actions] if freed else actions

    def _refused(self, text: str, hint: str) -> list[OutboundAction]:
        self.state, self.problem = OutboundState.REFUSED, text
        self._stream = next(self._streams)
        undelivered, actions = self._discard_all()
        change = LinkChange(
            peer=self.peer,
            event=LinkEvent.REFUSED,
            incarnation=self.remote_incarnation,
            text=text,
            hint=hint,
            undelivered=undelivered,
        )
        return [CloseConnection(self.peer), *actions, PeerRefused(change), NotifyChange(change)]

    def _discard_all(self) -> tuple[int, list[OutboundAction]]:
        """Discard everything unacknowledged; return the number of messages, and the credit to return."""
        messages, cost = self._packer.clear()
        messages += sum(packet.messages for packet in self._unacknowledged)
        cost += sum(size for _, size in self._unconsumed)
        self._unacknowledged.clear()
        self._retransmit.clear()
        self._unconsumed.clear()
        self._in_flight = 0
        return messages, [ReturnCredit(self.peer, cost)] if cost else []
