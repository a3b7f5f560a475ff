"""Carries out what a `LinkManager` decides: over a transport, and towards senders and receivers."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from dropflow.errors import DropflowError
from managers.links.actions import (
    CloseConnection,
    DeliverMessage,
    FailSenders,
    FailTransfer,
    LinkAction,
    LinkChange,
    LinkEvent,
    LogRejection,
    NotifyChange,
    OpenConnection,
    PassChunk,
    ReceivedMessage,
    RemovePeer,
    ReturnCredit,
    SendPacket,
    SendReply,
    ServeFetch,
)
from managers.links.link_manager import LinkManager
from managers.links.packing import Frames
from managers.links.send_window import SendWindow
from managers.links.settings import LinkSettings
from managers.links.statistics import LinkStatistics, PeerStatistics
from managers.messages import Fetch

__all__ = ["LinkDriver", "Receiver", "Transport"]

_log = logging.getLogger(__name__)

Receiver = Callable[[PassChunk | DropflowError | None], None]
"""Takes the chunks of one transfer, or the error that ends it, in the thread that owns the links.

None, from any thread, wakes a thread that waits for chunks.
"""


class Transport(Protocol):
    """Sends frames between processes. A frame that cannot be sent is dropped; the state machines detect that."""

    def open_connection(self, peer: str, generation: int, address: str) -> None:
        """Open a new connection to `peer`, in place of any earlier one."""
        ...

    def close_connection(self, peer: str) -> None:
        """Close the connection to `peer`."""
        ...

    def send(self, peer: str, frames: Frames) -> None:
        """Send on the connection to `peer`."""
        ...

    def reply(self, route: bytes, frames: Frames) -> None:
        """Send to the connecting end with this route."""
        ...

    def serve(self, route: bytes, fetch: Fetch) -> None:
        """Answer a request for content."""
        ...


class LinkDriver:
    """Carries out actions, and keeps what the state machines must not: send windows, receivers, callbacks.

    Parameters
    ----------
    manager : LinkManager
        Decides.
    settings : LinkSettings
        Sizes.
    transport : Transport
        Sends frames.
    on_message, on_change : callable
        Take a `ReceivedMessage` and a `LinkChange`. Exceptions that they raise are logged and counted, and have no
        other effect.
    on_release : callable
        Takes a `ReceivedMessage` that was held, from any thread; must lead to `LinkManager.message_processed` in the
        thread that owns the links.
    """

    def __init__(
        self,
        manager: LinkManager,
        settings: LinkSettings,
        *,
        transport: Transport,
        on_message: Callable[[ReceivedMessage], object],
        on_change: Callable[[LinkChange], object],
        on_release: Callable[[ReceivedMessage], None],
    ) -> None:
        self.windows: dict[str, SendWindow] = {}
        self.receivers: dict[int, Receiver] = {}
        self._manager = manager
        self._name = manager.identity.name
        self._limit = settings.window
        self._transport = transport
        self._on_message = on_message
        self._on_change = on_change
        self._on_release = on_release
        self._delivered = self._errors = self._fetched = 0

    def add_window(self, peer: str) -> SendWindow:
        """Return the window of `peer`, a new one if it has none. For any thread."""
        window = self.windows.get(peer)
        return window or self.windows.setdefault(peer, SendWindow(peer, self._limit))

    def carry_out(self, actions: Sequence[LinkAction], now: float) -> None:
        """Carry out actions, in order."""
        for action in actions:
            match action:
                case SendPacket():
                    self._transport.send(action.peer, action.frames)
                case DeliverMessage():
                    self._deliver(action.message, now)
                case SendReply():
                    self._transport.reply(action.route, action.frames)
                case ReturnCredit():
                    window = self.windows.get(action.peer)
                    if window is not None:
                        window.release(action.cost)
                case PassChunk() | FailTransfer():
                    self._pass_on(action)
                case ServeFetch():
                    self._transport.serve(action.route, action.fetch)
                case NotifyChange():
                    self._notify(action.change)
                case _:
                    self._carry_out_rare(action)

    def fail_all(self, error: DropflowError) -> None:
        """Raise `error` in everything that waits, since the links are closed."""
        for window in list(self.windows.values()):
            window.fail(error)
        for receiver in list(self.receivers.values()):
            receiver(error)

    def statistics(self, refused: int = 0) -> LinkStatistics:
        """Return counts of the links; `refused` is what the transport refused. For any thread."""
        manager = self._manager
        return LinkStatistics(
            name=self._name,
            incarnation=manager.identity.incarnation,
            address=manager.identity.address,
            peers=tuple(self._peer_statistics()),
            delivered=self._delivered,
            duplicates=manager.inbound.duplicates,
            refused=manager.inbound.rejected + manager.unreadable + refused,
            transfers=len(manager.transfers),
            fetched=self._fetched,
            errors=self._errors,
        )

    def _peer_statistics(self) -> list[PeerStatistics]:
        found = []
        for peer, outbound in sorted(self._manager.outbounds.items()):
            window = self.windows.get(peer)
            found.append(
                PeerStatistics(
                    peer=peer,
                    state=outbound.state.value,
                    address=outbound.address,
                    incarnation=outbound.remote_incarnation,
                    pending=0 if window is None else window.used,
                    waiting=0 if window is None else window.waiting,
                    resent=outbound.resent,
                    problem=outbound.problem,
                )
            )
        return found

    def _carry_out_rare(
        self, action: LogRejection | OpenConnection | CloseConnection | FailSenders | RemovePeer
    ) -> None:
        match action:
            case LogRejection():
                _log.warning("%s rejected a connection: %s", self._name, action.rejection.text)
            case OpenConnection():
                self._transport.open_connection(action.peer, action.generation, action.address)
            case CloseConnection():
                self._transport.close_connection(action.peer)
            case FailSenders():
                window = self.windows.get(action.peer)
                if window is not None:
                    window.fail(action.error)
            case RemovePeer():
                window = self.windows.pop(action.peer, None)
                if window is not None:
                    window.fail(action.error)

    def _pass_on(self, action: PassChunk | FailTransfer) -> None:
        receiver = self.receivers.get(action.request)
        if isinstance(action, PassChunk):
            self._fetched += len(action.data)
        if receiver is not None:
            receiver(action if isinstance(action, PassChunk) else action.error)

    def _deliver(self, message: ReceivedMessage, now: float) -> None:
        message.bind(self._on_release)
        self._delivered += 1
        try:
            self._on_message(message)
        except Exception:  # noqa: BLE001 - a mistake of the receiver must not stop the links; it is logged and counted
            self._errors += 1
            _log.exception("%s: a %s message was not handled", self._name, type(message.message).__name__)
        if not message.held:
            self._manager.message_processed(message, now)

    def _notify(self, change: LinkChange) -> None:
        level = logging.INFO if change.event in (LinkEvent.UP, LinkEvent.INTRODUCED) else logging.WARNING
        _log.log(level, "%s: link to %s %s: %s", self._name, change.peer, change.event.value, change.text)
        if change.event is LinkEvent.INTRODUCED and change.address:
            self.add_window(change.peer)
        try:
            self._on_change(change)
        except Exception:  # noqa: BLE001 - as in `_deliver`
            self._errors += 1
            _log.exception("%s: a change of the link to %s was not handled", self._name, change.peer)
