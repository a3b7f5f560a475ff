"""The sending end of a link to one peer, as a pure state machine.

::

             connect                 HandshakeReply
    IDLE ─────────────▶ CONNECTING ─────────────────▶ UP
                          │  ▲                      │
          broken, silence │  │ reconnect_delay time          │ broken, silence
                          ▼  │                      │
                        WAITING ◀───────────────────┘         Reject, from anywhere ▶ REFUSED

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
from managers.links.settings import LinkSettings
from managers.links.wire import Buffer, NumberedPacket, OutgoingMessage, Packer
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

__all__ = ["LinkIdentity", "Outbound", "OutboundState"]


class OutboundState(Enum):
    """Where a link is; see the drawing above."""

    IDLE = "idle"
    CONNECTING = "dialing"
    UP = "up"
    WAITING = "waiting"
    REFUSED = "refused"


class LinkIdentity(msgspec.Struct, frozen=True):
    """How this process introduces itself: its name, its incarnation, and where it listens."""

    name: str
    incarnation: int
    address: str


class Outbound:
    """The sending end of the link from this process to `peer`.

    Methods return what is to be done, in order. Times are seconds of one monotonic clock.

    Parameters
    ----------
    me : LinkIdentity
        This process, as `Handshake` says it.
    peer : str
        Name of the other process.
    settings : LinkSettings
        Times and sizes.
    streams : iterator of int
        Growing numbers for its streams; one iterator for all links of the process.
    """

    def __init__(self, me: LinkIdentity, peer: str, settings: LinkSettings, streams: Iterator[int]) -> None:
        self.state = OutboundState.IDLE
        self.peer = peer
        self.address = ""
        self.remote_incarnation = 0
        self.generation = 0
        self.resent = 0
        self.trouble = ""
        self._me = me
        self._streams = streams
        self._stream = next(streams)
        self._settings = settings
        self._packer = Packer(settings.fragment)
        self._kept: deque[NumberedPacket] = deque()
        self._again: deque[NumberedPacket] = deque()
        self._unconsumed: deque[tuple[int, int]] = deque()
        self._flight = 0
        self._heard = self._sent = self._redial_at = 0.0
        self._redial = settings.reconnect_delay

    @property
    def is_settled(self) -> bool:
        """Whether the other end has everything that was offered."""
        return self._packer.is_empty and not self._kept

    def connect(self, address: str, now: float) -> list[OutboundAction]:
        """Open the link, or move it to another address. Also the way back from REFUSED."""
        is_open = self.state in (OutboundState.CONNECTING, OutboundState.UP)
        if (is_open or self.state is OutboundState.WAITING) and address == self.address:
            return []
        self.address = address
        self._redial = self._settings.reconnect_delay
        close: list[OutboundAction] = [CloseConnection()] if is_open else []
        return close + self._dial(now)

    def offer(self, items: Sequence[OutgoingMessage], now: float) -> list[OutboundAction]:
        """SendPacket messages as soon as may be, in as few packets as may be."""
        if self.state is OutboundState.REFUSED:
            return [ReturnCredit(item.cost) for item in items]
        for item in items:
            self._packer.put(item)
        return self.pump(now)

    def pump(self, now: float) -> list[OutboundAction]:
        """SendPacket what may be sent now."""
        actions: list[OutboundAction] = []
        while self.state is OutboundState.UP and self._flight < self._settings.flight:
            if self._again:
                packet: NumberedPacket | None = self._again.popleft()
                self.resent += 1
            else:
                packet = self._packer.next_packet()
                if packet is not None:
                    self._kept.append(packet)
                    self._unconsumed.append((packet.number, packet.cost))
            if packet is None:
                break
            self._flight += packet.cost
            self._sent = now
            actions.append(SendPacket(packet.frames))
        return actions

    def receive(self, packet: Packet, raw: Sequence[Buffer], now: float) -> list[OutboundAction]:
        """Take a packet that came back on the present connection."""
        if self.state not in (OutboundState.CONNECTING, OutboundState.UP):
            return []
        self._heard = now
        match (self.state, packet):
            case (_, Reject(code="hello")):
                actions = self.broken("the other end forgot this connection", now)
            case (_, Reject()):
                actions = self._refused(packet.text, packet.hint)
            case (OutboundState.CONNECTING, HandshakeReply()):
                actions = self._welcome(packet, now)
            case (OutboundState.UP, Ack()):
                actions = self._acknowledge(packet, now)
            case (OutboundState.UP, Chunk() | ContentGone() | FetchFailed()):
                actions = [DataReceived(packet, tuple(raw))]
            case _:
                actions = self.broken(f"a {type(packet).__name__} packet makes no sense here", now)
        return actions

    def broken(self, why: str, now: float) -> list[OutboundAction]:
        """Note that the connection is gone, or no good; it is opened again after a while."""
        if self.state not in (OutboundState.CONNECTING, OutboundState.UP):
            return []
        news = self.state is OutboundState.UP or why != self.trouble
        self.state, self.trouble = OutboundState.WAITING, why
        self._redial_at = now + self._redial
        self._redial = min(2 * self._redial, self._settings.reconnect_delay_limit)
        change = LinkChange(peer=self.peer, event=LinkEvent.DOWN, incarnation=self.remote_incarnation, text=why)
        return [CloseConnection(), NotifyChange(change)] if news else [CloseConnection()]

    def met(self, incarnation: int, address: str, now: float) -> list[OutboundAction]:
        """Note that the peer introduced itself; a new process of that name is dialled at its new address."""
        if incarnation <= self.remote_incarnation or self.state is OutboundState.REFUSED:
            return []
        is_new = self.remote_incarnation > 0
        actions = self._restarted(incarnation)
        if not is_new or self.state is OutboundState.IDLE:
            return actions
        self._stream = next(self._streams)
        close_connection: list[OutboundAction] = [] if self.state is OutboundState.WAITING else [CloseConnection()]
        self.address = address or self.address
        self._redial = self._settings.reconnect_delay
        return [*actions, *close_connection, *self._dial(now)]

    def _restarted(self, incarnation: int) -> list[OutboundAction]:
        """Nothing meant for the old process of the peer may reach the new one."""
        known, self.remote_incarnation = self.remote_incarnation, incarnation
        if known in (0, incarnation):
            return []
        undelivered, actions = self._void()
        text = f"node {self.peer!r} was started again"
        change = LinkChange(
            peer=self.peer, event=LinkEvent.RESTARTED, incarnation=incarnation, text=text, undelivered=undelivered
        )
        return [*actions, NotifyChange(change)]

    def tick(self, now: float) -> list[OutboundAction]:
        """Do what is due at `now`."""
        if self.state is OutboundState.WAITING and now >= self._redial_at:
            return self._dial(now)
        if self.state not in (OutboundState.CONNECTING, OutboundState.UP):
            return []
        if now >= self._heard + self._settings.silence:
            return self.broken(f"nothing was heard for {self._settings.silence:g} s", now)
        if self.state is OutboundState.UP and now >= self._sent + self._settings.beat:
            self._sent = now
            return [SendPacket((encode(Heartbeat(self._packer.number)),))]
        return []

    def deadline(self) -> float:
        """When to call `tick` at the latest; infinity if nothing is due."""
        match self.state:
            case OutboundState.WAITING:
                return self._redial_at
            case OutboundState.CONNECTING:
                return self._heard + self._settings.silence
            case OutboundState.UP:
                return min(self._heard + self._settings.silence, self._sent + self._settings.beat)
            case _:
                return math.inf

    def _dial(self, now: float) -> list[OutboundAction]:
        self.state = OutboundState.CONNECTING
        self.generation += 1
        self._heard = self._sent = now
        me = self._me
        hello = Handshake(PROTOCOL, me.name, me.incarnation, self.peer, self._stream, me.address)
        return [OpenConnection(self.generation, self.address), SendPacket((encode(hello),))]

    def _welcome(self, welcome: HandshakeReply, now: float) -> list[OutboundAction]:
        if welcome.name != self.peer:
            text = f"the process at {self.address} is {welcome.name!r}, not {self.peer!r}"
            return self._refused(text, "check the addresses of the nodes")
        if welcome.incarnation < self.remote_incarnation:
            return self.broken(f"an earlier process of node {self.peer!r} answers at {self.address}", now)
        actions = self._restarted(welcome.incarnation)
        self.state, self.trouble = OutboundState.UP, ""
        self._redial = self._settings.reconnect_delay
        self._flight = 0
        self._again = deque(self._kept)
        change = LinkChange(peer=self.peer, event=LinkEvent.UP, incarnation=welcome.incarnation, text=self.address)
        return [*actions, NotifyChange(change), *self._acknowledge(Ack(welcome.received, welcome.consumed), now)]

    def _acknowledge(self, ack: Ack, now: float) -> list[OutboundAction]:
        if not ack.consumed <= ack.received <= self._packer.number:
            return self.broken(f"packet {ack.received} was acknowledged, the last one was {self._packer.number}", now)
        while self._kept and self._kept[0].number <= ack.received:
            packet = self._kept.popleft()
            if self._again and self._again[0] is packet:
                self._again.popleft()
            else:
                self._flight -= packet.cost
        freed = 0
        while self._unconsumed and self._unconsumed[0][0] <= ack.consumed:
            freed += self._unconsumed.popleft()[1]
        if ack.again:
            self._again = deque(self._kept)
            self._flight = 0
        actions = self.pump(now)
        return [ReturnCredit(freed), *actions] if freed else actions

    def _refused(self, text: str, hint: str) -> list[OutboundAction]:
        self.state, self.trouble = OutboundState.REFUSED, text
        self._stream = next(self._streams)
        undelivered, actions = self._void()
        change = LinkChange(
            peer=self.peer,
            event=LinkEvent.REFUSED,
            incarnation=self.remote_incarnation,
            text=text,
            hint=hint,
            undelivered=undelivered,
        )
        return [CloseConnection(), *actions, PeerRefused(change), NotifyChange(change)]

    def _void(self) -> tuple[int, list[OutboundAction]]:
        """Throw away all that was not acknowledged; how many messages, and the room they gave back."""
        messages, cost = self._packer.clear()
        messages += sum(packet.messages for packet in self._kept)
        cost += sum(size for _, size in self._unconsumed)
        self._kept.clear()
        self._again.clear()
        self._unconsumed.clear()
        self._flight = 0
        return messages, [ReturnCredit(cost)] if cost else []
