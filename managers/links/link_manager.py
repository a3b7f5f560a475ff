"""The state of all links of one process, as a pure state machine over `outbound`, `inbound` and `transfer`."""

import itertools
import math
from collections.abc import Sequence

from dropflow.errors import LinkError, ProtocolError
from managers.links.actions import (
    DataReceived,
    FailSenders,
    FailTransfer,
    InboundAction,
    LinkAction,
    LinkEvent,
    NotifyChange,
    OutboundAction,
    PeerRefused,
    SendPacket,
)
from managers.links.inbound import Inbound
from managers.links.link_settings import LinkSettings
from managers.links.outbound import LinkIdentity, Outbound, OutboundState
from managers.links.packing import Buffer, OutgoingMessage
from managers.links.transfer import Transfer, TransferTable
from managers.messages import decode_packet, encode


class LinkManager:
    """The links of one process.

    Methods return the actions to carry out, in order. Times are seconds of one monotonic clock. One thread owns it;
    only the methods that say so may be called from other threads.

    `due` is when `tick` must be called at the latest. It may be too early, since most deadlines move on while packets
    arrive and are not all looked at each time; it is never too late.

    Parameters
    ----------
    identity : LinkIdentity
        This process.
    settings : LinkSettings
        Times and sizes.
    """

    def __init__(self, identity: LinkIdentity, settings: LinkSettings) -> None:
        self.identity = identity
        self.due = math.inf
        self.unreadable = 0
        """Packets from listening ends that could not be decoded."""
        self.transfers = TransferTable()
        self.inbound = Inbound(identity.name, identity.incarnation, settings)
        self._settings = settings
        self._outbounds: dict[str, Outbound] = {}
        self._streams = itertools.count(1)
        self._last_received: dict[str, float] = {}

    @property
    def outbounds(self) -> dict[str, Outbound]:
        """The sending ends by peer, as a copy. For any thread."""
        return self._outbounds.copy()

    # Requests of this process.

    def connect(self, peer: str, address: str, now: float, incarnation: int = 0) -> list[LinkAction]:
        """Open the link to `peer`, to that process of it or a later one."""
        outbound = self._outbound(peer)
        if incarnation > outbound.remote_incarnation:
            self._last_received.pop(peer, None)  # that was another process
        return self._outbound_actions(outbound, outbound.connect(address, now, incarnation), now)

    def send(self, peer: str, messages: Sequence[OutgoingMessage], now: float) -> list[LinkAction]:
        """Send messages; opens the link if it is not open."""
        outbound = self._outbounds.get(peer)
        if outbound is None:
            return []
        actions = self._open_idle(outbound, now)
        return actions + self._outbound_actions(outbound, outbound.enqueue(messages, now), now)

    def start_transfer(self, transfer: Transfer, now: float) -> list[LinkAction]:
        """Request the first ranges of a transfer."""
        outbound = self._outbounds.get(transfer.peer)
        if outbound is None:
            return [FailTransfer(transfer.request, LinkError(f"the link to node {transfer.peer!r} was closed"))]
        if outbound.state is OutboundState.REFUSED:
            return [FailTransfer(transfer.request, ProtocolError(outbound.problem))]
        self.transfers.add(transfer)
        return self._open_idle(outbound, now) or self._request(transfer, now)

    def continue_transfer(self, request: int, now: float) -> list[LinkAction]:
        """Request more ranges after a chunk was consumed."""
        transfer = self.transfers.find(request)
        if transfer is None:
            return []
        transfer.consumed()
        return self._request(transfer, now)

    # Events of the transport.

    def receive_request(self, route: bytes, header: Buffer, raw: Sequence[Buffer], now: float) -> list[LinkAction]:
        """Handle a ZeroMQ message that arrived at the listening end."""
        actions = self._inbound_actions(self.inbound.receive(route, header, raw, now), now)
        self.due = min(self.due, self.inbound.deadline())
        return actions

    def receive_answer(
        self, peer: str, generation: int, header: Buffer, raw: Sequence[Buffer], now: float
    ) -> list[LinkAction]:
        """Handle a ZeroMQ message that arrived on connection `generation` to `peer`."""
        outbound = self._outbounds.get(peer)
        if outbound is None or outbound.generation != generation:
            return []
        try:
            packet = decode_packet(header)
        except ProtocolError as error:
            self.unreadable += 1
            return self._outbound_actions(outbound, outbound.connection_lost(str(error), now), now)
        self._last_received[peer] = now
        return self._outbound_actions(outbound, outbound.receive(packet, raw, now), now)

    def connection_lost(self, peer: str, generation: int, why: str, now: float) -> list[LinkAction]:
        """Handle the loss of connection `generation` to `peer`."""
        outbound = self._outbounds.get(peer)
        if outbound is None or outbound.generation != generation:
            return []
        return self._outbound_actions(outbound, outbound.connection_lost(why, now), now)

    def tick(self, now: float) -> list[LinkAction]:
        """Do what is due at `now`."""
        actions = self._inbound_actions(self.inbound.tick(now), now)
        for outbound in list(self._outbounds.values()):
            outbound_actions = outbound.tick(now)
            if outbound_actions:
                actions += self._outbound_actions(outbound, outbound_actions, now)
        self.due = min([self.inbound.deadline(), *(outbound.deadline() for outbound in self._outbounds.values())])
        return actions

    # What is known of the links.

    def is_settled(self) -> bool:
        """Return whether all peers have acknowledged everything that was sent."""
        return all(outbound.is_settled for outbound in self._outbounds.values())

    def last_seen(self) -> dict[str, tuple[int, float]]:
        """Return the incarnation of each peer and when its last packet came. For any thread."""
        seen = self.inbound.last_seen()
        for peer, moment in list(self._last_received.items()):
            outbound = self._outbounds.get(peer)
            incarnation = 0 if outbound is None else outbound.remote_incarnation
            if (incarnation, moment) > seen.get(peer, (0, 0.0)):
                seen[peer] = (incarnation, moment)
        return seen

    def _outbound(self, peer: str) -> Outbound:
        outbound = self._outbounds.get(peer)
        if outbound is None:
            outbound = self._outbounds[peer] = Outbound(self.identity, peer, self._settings, self._streams)
        return outbound

    def _open_idle(self, outbound: Outbound, now: float) -> list[LinkAction]:
        if outbound.state is OutboundState.IDLE and outbound.address:
            return self._outbound_actions(outbound, outbound.connect(outbound.address, now), now)
        return []

    def _request(self, transfer: Transfer, now: float) -> list[LinkAction]:
        outbound = self._outbounds.get(transfer.peer)
        if outbound is None or outbound.state is not OutboundState.UP:
            return []  # requested when the link is up, see `_outbound_actions`
        return [SendPacket(transfer.peer, (encode(fetch),)) for fetch in transfer.next_ranges(now)]

    def _outbound_actions(self, outbound: Outbound, actions: Sequence[OutboundAction], now: float) -> list[LinkAction]:
        """Handle here what concerns transfers; return the rest."""
        peer = outbound.peer
        link_actions: list[LinkAction] = []
        for action in actions:
            if isinstance(action, DataReceived):
                progress = self.transfers.receive(action.packet, action.raw[0] if action.raw else b"", now)
                if progress is not None:
                    link_actions.append(progress)
            elif isinstance(action, PeerRefused):
                text = f"node {peer!r} refuses this one: {action.change.text}"
                error = ProtocolError(text, hint=action.change.hint)
                link_actions += [FailSenders(peer, error), *self.transfers.fail(error, peer)]
            else:
                if isinstance(action, NotifyChange) and action.change.event is LinkEvent.UP:
                    link_actions += [SendPacket(peer, (encode(fetch),)) for fetch in self.transfers.restart(peer, now)]
                link_actions.append(action)
        self.due = min(self.due, outbound.deadline())
        return link_actions

    def _inbound_actions(self, actions: Sequence[InboundAction], now: float) -> list[LinkAction]:
        link_actions: list[LinkAction] = []
        for action in actions:
            if isinstance(action, NotifyChange) and action.change.address:
                # The peer introduced itself: from now on it can be answered, at the address that it sent.
                change = action.change
                outbound = self._outbound(change.peer)
                outbound.address = outbound.address or change.address
                introduced = outbound.peer_introduced(change.incarnation, change.address, now)
                link_actions += self._outbound_actions(outbound, introduced, now)
            link_actions.append(action)
        return link_actions
