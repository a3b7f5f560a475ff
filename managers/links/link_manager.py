"""All links of one process, without sockets: binds the state machines to a wire, and to whoever receives.

One thread owns a `LinkManager`. The real wire is in `endpoint`, the fake one in `memory`.
"""

import itertools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from dropflow.errors import LinkError, ProtocolError
from managers.links.actions import (
    CloseConnection,
    DataReceived,
    DeliverMessage,
    InboundAction,
    LinkChange,
    LinkEvent,
    LogRejection,
    NotifyChange,
    OpenConnection,
    OutboundAction,
    PeerRefused,
    ReceivedMessage,
    ReturnCredit,
    SendPacket,
    SendReply,
    ServeFetch,
)
from managers.links.inbound import Inbound
from managers.links.outbound import LinkIdentity, Outbound, OutboundState
from managers.links.send_window import SendWindow
from managers.links.settings import LinkSettings
from managers.links.statistics import LinkStatistics, PeerStatistics
from managers.links.transfer import Transfer
from managers.links.wire import Buffer, Frames, OutgoingMessage
from managers.messages import Fetch, decode_packet, encode

__all__ = ["LinkManager", "Transport"]

_log = logging.getLogger(__name__)


class Transport(Protocol):
    """What carries frames between processes. A frame that cannot be sent is dropped; the links notice."""

    def open_connection(self, peer: str, generation: int, address: str) -> None:
        """Open a new connection to `peer`, in place of any before it."""
        ...

    def close_connection(self, peer: str) -> None:
        """Close the connection to `peer`."""
        ...

    def send(self, peer: str, frames: Frames) -> None:
        """SendPacket on the connection that was dialled to `peer`."""
        ...

    def reply(self, route: bytes, frames: Frames) -> None:
        """SendPacket to the connecting end known by `route`."""
        ...

    def serve(self, route: bytes, peer: str, fetch: Fetch) -> None:
        """Answer a request for content."""
        ...


class LinkManager:
    """The state of all links of one process.

    `due` is when `tick` must be called at the latest. It may be too early (what happens meanwhile puts most deadlines
    off, and they are not all looked at each time), never too late.

    Parameters
    ----------
    me : LinkIdentity
        The process, as it introduces itself.
    settings : LinkSettings
        Times and sizes.
    wire : Transport
        Carries frames.
    on_message, on_change : callable
        Take a `ReceivedMessage` and a `LinkChange`. What they raise is logged and counted, and changes nothing.
    on_release : callable
        Takes a `ReceivedMessage` that was held, from any thread; must lead to `done` in the owning thread.
    """

    def __init__(
        self,
        me: LinkIdentity,
        settings: LinkSettings,
        *,
        wire: Transport,
        on_message: Callable[[ReceivedMessage], object],
        on_change: Callable[[LinkChange], object],
        on_release: Callable[[ReceivedMessage], None],
    ) -> None:
        self.me = me
        self.inbound = Inbound(me.name, me.incarnation, settings)
        self.windows: dict[str, SendWindow] = {}
        self._settings = settings
        self._wire = wire
        self._on_message = on_message
        self._on_change = on_change
        self._on_release = on_release
        self._outbounds: dict[str, Outbound] = {}
        self._transfers: dict[int, Transfer] = {}
        self._streams = itertools.count(1)
        self._heard: dict[str, float] = {}
        self.due = math.inf
        self._delivered = self._errors = self._garbage = 0

    def register(self, peer: str) -> SendWindow:
        """The window to `peer`, a new one if it has none. The one method for any thread, under a lock of its caller."""
        window = self.windows.get(peer)
        if window is None:
            window = self.windows[peer] = SendWindow(peer, self._settings.window)
        return window

    def connect(self, peer: str, address: str, now: float) -> None:
        """Open the link to `peer`."""
        self.register(peer).open()
        self._do(peer, self._outbound(peer).connect(address, now), now)

    def disconnect(self, peer: str) -> None:
        """Forget `peer`: what is not delivered is thrown away."""
        error = LinkError(f"the link to node {peer!r} was closed")
        window = self.windows.pop(peer, None)
        if window is not None:
            window.shut(error)
        if self._outbounds.pop(peer, None) is not None:
            self._wire.close_connection(peer)
        for transfer in [transfer for transfer in self._transfers.values() if transfer.peer == peer]:
            transfer.fail(error)

    def offer(self, peer: str, messages: Sequence[OutgoingMessage], now: float) -> None:
        """SendPacket messages for which the window had room; opens the link if it is not open."""
        outbound = self._outbounds.get(peer)
        if outbound is None:
            return
        if outbound.state is OutboundState.IDLE and outbound.address:
            self._do(peer, outbound.connect(outbound.address, now), now)
        self._do(peer, outbound.offer(messages, now), now)

    def begin(self, transfer: Transfer, now: float) -> None:
        """Ask for the ranges of a transfer, the first or more of them."""
        outbound = self._outbounds.get(transfer.peer)
        if outbound is None:
            transfer.fail(LinkError(f"the link to node {transfer.peer!r} was closed"))
            return
        if transfer.request not in self._transfers:
            self._transfers[transfer.request] = transfer
            transfer.nudge()  # whoever nudged all before this did not reach it
        if outbound.state is OutboundState.IDLE and outbound.address:
            self._do(transfer.peer, outbound.connect(outbound.address, now), now)
        elif outbound.state is OutboundState.REFUSED:
            transfer.fail(ProtocolError(outbound.trouble))
        elif outbound.state is OutboundState.UP:
            for fetch in transfer.asks(now):
                self._wire.send(transfer.peer, (encode(fetch),))

    def end(self, transfer: Transfer) -> None:
        """Forget a transfer."""
        self._transfers.pop(transfer.request, None)

    def arrived(self, route: bytes, header: Buffer, raw: Sequence[Buffer], now: float) -> None:
        """Take a ZeroMQ message that came in at our listening end."""
        for action in self.inbound.receive(route, header, raw, now):
            self._do_inbound(action, now)
        self.due = min(self.due, self.inbound.deadline())

    def returned(self, peer: str, generation: int, header: Buffer, raw: Sequence[Buffer], now: float) -> None:
        """Take a ZeroMQ message that came back on connection `generation` to `peer`."""
        outbound = self._outbounds.get(peer)
        if outbound is None or outbound.generation != generation:
            return
        try:
            packet = decode_packet(header)
        except ProtocolError as error:
            self._garbage += 1
            self._do(peer, outbound.broken(str(error), now), now)
            return
        self._heard[peer] = now
        self._do(peer, outbound.receive(packet, raw, now), now)

    def broken(self, peer: str, generation: int, why: str, now: float) -> None:
        """Note that connection `generation` to `peer` is gone."""
        outbound = self._outbounds.get(peer)
        if outbound is not None and outbound.generation == generation:
            self._do(peer, outbound.broken(why, now), now)

    def done(self, delivery: ReceivedMessage, now: float) -> None:
        """Note that a held message is dealt with."""
        self.inbound.done(delivery, now)
        self.due = min(self.due, self.inbound.deadline())

    def tick(self, now: float) -> None:
        """Do what is due at `now`."""
        for action in self.inbound.tick(now):
            self._do_inbound(action, now)
        for peer, outbound in list(self._outbounds.items()):
            actions = outbound.tick(now)
            if actions:
                self._do(peer, actions, now)
        self.due = self.inbound.deadline()
        for outbound in self._outbounds.values():
            self.due = min(self.due, outbound.deadline())

    def close(self, error: LinkError) -> None:
        """Let everybody who waits know that there is nothing more to wait for."""
        for window in list(self.windows.values()):
            window.shut(error)
        for transfer in list(self._transfers.values()):
            transfer.fail(error)

    def nudge(self) -> None:
        """Let everybody who waits ask again whether to give up. For any thread."""
        for window in list(self.windows.values()):
            window.nudge()
        for transfer in list(self._transfers.values()):
            transfer.nudge()

    def is_settled(self) -> bool:
        """Whether all peers have all that was offered."""
        return all(outbound.is_settled for outbound in list(self._outbounds.values()))

    def heard(self) -> dict[str, tuple[int, float]]:
        """Incarnation of each peer, and when anything last came from it. For any thread."""
        times = self.inbound.heard()
        for peer, moment in list(self._heard.items()):
            outbound = self._outbounds.get(peer)
            incarnation = 0 if outbound is None else outbound.remote_incarnation
            if (incarnation, moment) > times.get(peer, (0, 0.0)):
                times[peer] = (incarnation, moment)
        return times

    def statistics(self, refused: int = 0) -> LinkStatistics:
        """How the links are doing; `refused` counts what the wire refused. For any thread."""
        peers = []
        for peer, outbound in sorted(self._outbounds.copy().items()):
            window = self.windows.get(peer)
            peers.append(
                PeerStatistics(
                    peer=peer,
                    state=outbound.state.value,
                    address=outbound.address,
                    incarnation=outbound.remote_incarnation,
                    pending=0 if window is None else window.taken,
                    waiting=0 if window is None else window.waiting,
                    resent=outbound.resent,
                    trouble=outbound.trouble,
                )
            )
        return LinkStatistics(
            name=self.me.name,
            incarnation=self.me.incarnation,
            address=self.me.address,
            peers=tuple(peers),
            delivered=self._delivered,
            duplicates=self.inbound.duplicates,
            refused=self.inbound.refused + self._garbage + refused,
            transfers=len(self._transfers),
            errors=self._errors,
        )

    def _outbound(self, peer: str) -> Outbound:
        outbound = self._outbounds.get(peer)
        if outbound is None:
            outbound = Outbound(self.me, peer, self._settings, self._streams)
            self._outbounds[peer] = outbound
        return outbound

    def _do(self, peer: str, actions: Sequence[OutboundAction], now: float) -> None:
        for action in actions:
            match action:
                case SendPacket():
                    self._wire.send(peer, action.frames)
                case ReturnCredit():
                    self._give(peer, action.cost)
                case DataReceived():
                    self._arrived(action, now)
                case OpenConnection():
                    self._wire.open_connection(peer, action.generation, action.address)
                case CloseConnection():
                    self._wire.close_connection(peer)
                case PeerRefused():
                    self._shut(peer, action.change)
                case NotifyChange():
                    self._told(peer, action.change, now)
        outbound = self._outbounds.get(peer)
        if outbound is not None:
            self.due = min(self.due, outbound.deadline())

    def _told(self, peer: str, change: LinkChange, now: float) -> None:
        if change.event is LinkEvent.UP:
            self._resume(peer, now)
        self._tell(change)

    def _give(self, peer: str, cost: int) -> None:
        window = self.windows.get(peer)
        if window is not None:
            window.give(cost)

    def _do_inbound(self, action: InboundAction, now: float) -> None:
        match action:
            case DeliverMessage():
                self._deliver(action.delivery, now)
            case SendReply():
                self._wire.reply(action.route, action.frames)
            case ServeFetch():
                self._wire.serve(action.route, action.peer, action.fetch)
            case NotifyChange():
                self._meet(action.change, now)
            case LogRejection():
                _log.warning("%s refused a connection: %s", self.me.name, action.refusal.text)

    def _deliver(self, delivery: ReceivedMessage, now: float) -> None:
        delivery.bind(self._on_release)
        self._delivered += 1
        try:
            self._on_message(delivery)
        except Exception:  # noqa: BLE001 - the receiver's mistake must not stop the links; it is logged and counted
            self._errors += 1
            _log.exception("%s: a %s message was not handled", self.me.name, type(delivery.message).__name__)
        if not delivery.held:
            self.inbound.done(delivery, now)

    def _meet(self, change: LinkChange, now: float) -> None:
        """A peer introduced itself: from now on it can be answered, at the address it gave."""
        if change.address:
            self.register(change.peer)
            outbound = self._outbound(change.peer)
            outbound.address = outbound.address or change.address
            self._do(change.peer, outbound.met(change.incarnation, change.address, now), now)
        self._tell(change)

    def _resume(self, peer: str, now: float) -> None:
        for transfer in [transfer for transfer in self._transfers.values() if transfer.peer == peer]:
            transfer.again()
            for fetch in transfer.asks(now):
                self._wire.send(peer, (encode(fetch),))

    def _arrived(self, action: DataReceived, now: float) -> None:
        transfer = self._transfers.get(action.packet.request)
        if transfer is not None:
            transfer.take(action.packet, action.raw[0] if action.raw else b"", now)

    def _shut(self, peer: str, change: LinkChange) -> None:
        error = ProtocolError(f"node {peer!r} refuses this one: {change.text}", hint=change.hint)
        window = self.windows.get(peer)
        if window is not None:
            window.shut(error)
        for transfer in [transfer for transfer in self._transfers.values() if transfer.peer == peer]:
            transfer.fail(error)

    def _tell(self, change: LinkChange) -> None:
        level = logging.INFO if change.event in (LinkEvent.UP, LinkEvent.INTRODUCED) else logging.WARNING
        _log.log(level, "%s: link to %s %s: %s", self.me.name, change.peer, change.event.value, change.text)
        try:
            self._on_change(change)
        except Exception:  # noqa: BLE001 - as above
            self._errors += 1
            _log.exception("%s: a change of the link to %s was not handled", self.me.name, change.peer)
