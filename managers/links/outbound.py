"""The sending end of a link to one peer, as a pure state machine.

::

             connect                 Welcome
    IDLE ─────────────▶ DIALING ─────────────────▶ UP
                          │  ▲                      │
          broken, silence │  │ redial time          │ broken, silence
                          ▼  │                      │
                        WAITING ◀───────────────────┘         Refuse, from anywhere ▶ REFUSED

Every connection begins with `Hello`; nothing else is sent before `Welcome` has said where the other end is in the
stream, so that a broken connection costs the packets that were on their way and no more. A packet is kept until it is
acknowledged (then the other end has it) and counts against the window until it is consumed (then the other end is
done with it).
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec

from managers.links.actions import (
    Arrived,
    Dial,
    Freed,
    Hangup,
    LinkChange,
    LinkEvent,
    OutboundAction,
    Send,
    Shut,
    Tell,
)
from managers.links.settings import LinkSettings
from managers.links.wire import Buffer, Letter, Packer, Sealed
from managers.messages import (
    PROTOCOL,
    Ack,
    Beat,
    Chunk,
    FetchFailed,
    Gone,
    Hello,
    Packet,
    Refuse,
    Welcome,
    encode,
)

__all__ = ["Me", "Outbound", "OutboundState"]


class OutboundState(Enum):
    """Where a link is; see the drawing above."""

    IDLE = "idle"
    DIALING = "dialing"
    UP = "up"
    WAITING = "waiting"
    REFUSED = "refused"


class Me(msgspec.Struct, frozen=True):
    """How this process introduces itself: its name, its incarnation, and where it listens."""

    name: str
    incarnation: int
    address: str


class Outbound:
    """The sending end of the link from this process to `peer`.

    Methods return what is to be done, in order. Times are seconds of one monotonic clock.

    Parameters
    ----------
    me : Me
        This process, as `Hello` says it.
    peer : str
        Name of the other process.
    settings : LinkSettings
        Times and sizes.
    streams : iterator of int
        Growing numbers for its streams; one iterator for all links of the process.
    """

    def __init__(self, me: Me, peer: str, settings: LinkSettings, streams: Iterator[int]) -> None:
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
        self._kept: deque[Sealed] = deque()
        self._again: deque[Sealed] = deque()
        self._unconsumed: deque[tuple[int, int]] = deque()
        self._flight = 0
        self._heard = self._sent = self._redial_at = 0.0
        self._redial = settings.redial

    @property
    def is_settled(self) -> bool:
        """Whether the other end has everything that was offered."""
        return self._packer.is_empty and not self._kept

    def connect(self, address: str, now: float) -> list[OutboundAction]:
        """Open the link, or move it to another address. Also the way back from REFUSED."""
        if self.state in (OutboundState.DIALING, OutboundState.UP, OutboundState.WAITING) and address == self.address:
            return []
        self.address = address
        self._redial = self._settings.redial
        hangup: list[OutboundAction] = [Hangup()] if self.state in (OutboundState.DIALING, OutboundState.UP) else []
        return hangup + self._dial(now)

    def offer(self, items: Sequence[Letter], now: float) -> list[OutboundAction]:
        """Send messages as soon as may be, in as few packets as may be."""
        if self.state is OutboundState.REFUSED:
            return [Freed(item.cost) for item in items]
        for item in items:
            self._packer.put(item)
        return self.pump(now)

    def pump(self, now: float) -> list[OutboundAction]:
        """Send what may be sent now."""
        actions: list[OutboundAction] = []
        while self.state is OutboundState.UP and self._flight < self._settings.flight:
            if self._again:
                packet: Sealed | None = self._again.popleft()
                self.resent += 1
            else:
                packet = self._packer.seal()
                if packet is not None:
                    self._kept.append(packet)
                    self._unconsumed.append((packet.number, packet.cost))
            if packet is None:
                break
            self._flight += packet.cost
            self._sent = now
            actions.append(Send(packet.frames))
        return actions

    def receive(self, packet: Packet, raw: Sequence[Buffer], now: float) -> list[OutboundAction]:
        """Take a packet that came back on the present connection."""
        if self.state not in (OutboundState.DIALING, OutboundState.UP):
            return []
        self._heard = now
        match (self.state, packet):
            case (_, Refuse(code="hello")):
                actions = self.broken("the other end forgot this connection", now)
            case (_, Refuse()):
                actions = self._refused(packet.text, packet.hint)
            case (OutboundState.DIALING, Welcome()):
                actions = self._welcome(packet, now)
            case (OutboundState.UP, Ack()):
                actions = self._acknowledge(packet, now)
            case (OutboundState.UP, Chunk() | Gone() | FetchFailed()):
                actions = [Arrived(packet, tuple(raw))]
            case _:
                actions = self.broken(f"a {type(packet).__name__} packet makes no sense here", now)
        return actions

    def broken(self, why: str, now: float) -> list[OutboundAction]:
        """Note that the connection is gone, or no good; it is opened again after a while."""
        if self.state not in (OutboundState.DIALING, OutboundState.UP):
            return []
        news = self.state is OutboundState.UP or why != self.trouble
        self.state, self.trouble = OutboundState.WAITING, why
        self._redial_at = now + self._redial
        self._redial = min(2 * self._redial, self._settings.redial_limit)
        change = LinkChange(peer=self.peer, event=LinkEvent.DOWN, incarnation=self.remote_incarnation, text=why)
        return [Hangup(), Tell(change)] if news else [Hangup()]

    def met(self, incarnation: int, address: str, now: float) -> list[OutboundAction]:
        """Note that the peer introduced itself; a new process of that name is dialled at its new address."""
        if incarnation <= self.remote_incarnation or self.state is OutboundState.REFUSED:
            return []
        is_new = self.remote_incarnation > 0
        actions = self._restarted(incarnation)
        if not is_new or self.state is OutboundState.IDLE:
            return actions
        self._stream = next(self._streams)
        hangup: list[OutboundAction] = [] if self.state is OutboundState.WAITING else [Hangup()]
        self.address = address or self.address
        self._redial = self._settings.redial
        return [*actions, *hangup, *self._dial(now)]

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
        return [*actions, Tell(change)]

    def tick(self, now: float) -> list[OutboundAction]:
        """Do what is due at `now`."""
        if self.state is OutboundState.WAITING and now >= self._redial_at:
            return self._dial(now)
        if self.state not in (OutboundState.DIALING, OutboundState.UP):
            return []
        if now >= self._heard + self._settings.silence:
            return self.broken(f"nothing was heard for {self._settings.silence:g} s", now)
        if self.state is OutboundState.UP and now >= self._sent + self._settings.beat:
            self._sent = now
            return [Send((encode(Beat(self._packer.number)),))]
        return []

    def deadline(self) -> float:
        """When to call `tick` at the latest; infinity if nothing is due."""
        match self.state:
            case OutboundState.WAITING:
                return self._redial_at
            case OutboundState.DIALING:
                return self._heard + self._settings.silence
            case OutboundState.UP:
                return min(self._heard + self._settings.silence, self._sent + self._settings.beat)
            case _:
                return math.inf

    def _dial(self, now: float) -> list[OutboundAction]:
        self.state = OutboundState.DIALING
        self.generation += 1
        self._heard = self._sent = now
        me = self._me
        hello = Hello(PROTOCOL, me.name, me.incarnation, self.peer, self._stream, me.address)
        return [Dial(self.generation, self.address), Send((encode(hello),))]

    def _welcome(self, welcome: Welcome, now: float) -> list[OutboundAction]:
        if welcome.name != self.peer:
            text = f"the process at {self.address} is {welcome.name!r}, not {self.peer!r}"
            return self._refused(text, "check the addresses of the nodes")
        if welcome.incarnation < self.remote_incarnation:
            return self.broken(f"an earlier process of node {self.peer!r} answers at {self.address}", now)
        actions = self._restarted(welcome.incarnation)
        self.state, self.trouble = OutboundState.UP, ""
        self._redial = self._settings.redial
        self._flight = 0
        self._again = deque(self._kept)
        change = LinkChange(peer=self.peer, event=LinkEvent.UP, incarnation=welcome.incarnation, text=self.address)
        return [*actions, Tell(change), *self._acknowledge(Ack(welcome.received, welcome.consumed), now)]

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
        return [Freed(freed), *actions] if freed else actions

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
        return [Hangup(), *actions, Shut(change), Tell(change)]

    def _void(self) -> tuple[int, list[OutboundAction]]:
        """Throw away all that was not acknowledged; how many messages, and the room they gave back."""
        letters, cost = self._packer.clear()
        letters += sum(packet.letters for packet in self._kept)
        cost += sum(size for _, size in self._unconsumed)
        self._kept.clear()
        self._again.clear()
        self._unconsumed.clear()
        self._flight = 0
        return letters, [Freed(cost)] if cost else []
