"""Carries out what a `LinkManager` decides: over a transport, and towards senders and receivers."""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from dropflow.clock import Clock
from dropflow.errors import DropflowError, LinkError
from managers.links.actions import (
    CloseConnection,
    FailSenders,
    FailTransfer,
    LinkAction,
    LinkChange,
    LinkEvent,
    LinkStatistics,
    LogRejection,
    NotifyChange,
    OpenConnection,
    PassChunk,
    PeerStatistics,
    ReceivedMessage,
    ReturnCredit,
    SendPacket,
    SendReply,
    ServeFetch,
)
from managers.links.link_manager import LinkManager
from managers.links.link_settings import LinkSettings
from managers.links.packing import Frames, OutgoingMessage
from managers.links.send_window import SendWindow
from managers.links.zmq_transport import ZmqTransport
from managers.messages import Fetch

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
        Decides what is sent, and to whom.
    settings : LinkSettings
        Times and sizes.
    transport : Transport
        Sends frames.
    on_message, on_change : callable
        Take a `ReceivedMessage` and a `LinkChange`. Exceptions that they raise are logged and counted, and have no
        other effect.
    """

    def __init__(
        self,
        manager: LinkManager,
        settings: LinkSettings,
        *,
        transport: Transport,
        on_message: Callable[[ReceivedMessage], object],
        on_change: Callable[[LinkChange], object],
    ) -> None:
        self.windows: dict[str, SendWindow] = {}
        self.receivers: dict[int, Receiver] = {}
        self._manager = manager
        self._name = manager.identity.name
        self._limit = settings.window
        self._transport = transport
        self._on_message = on_message
        self._on_change = on_change
        self._delivered = self._errors = self._fetched = 0

    def add_window(self, peer: str) -> SendWindow:
        """Return the window of `peer`, a new one if it has none. For any thread."""
        window = self.windows.get(peer)
        return window or self.windows.setdefault(peer, SendWindow(self._limit))

    def carry_out(self, actions: Sequence[LinkAction]) -> None:
        """Carry out actions, in order."""
        for action in actions:
            match action:
                case SendPacket():
                    self._transport.send(action.peer, action.frames)
                case ReceivedMessage():
                    self._deliver(action)
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
        statistics = []
        for peer, outbound in sorted(self._manager.outbounds.items()):
            window = self.windows.get(peer)
            statistics.append(
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
        return statistics

    def _carry_out_rare(self, action: LogRejection | OpenConnection | CloseConnection | FailSenders) -> None:
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

    def _pass_on(self, action: PassChunk | FailTransfer) -> None:
        receiver = self.receivers.get(action.request)
        if isinstance(action, PassChunk):
            self._fetched += len(action.data)
        if receiver is not None:
            receiver(action if isinstance(action, PassChunk) else action.error)

    def _deliver(self, message: ReceivedMessage) -> None:
        self._delivered += 1
        try:
            self._on_message(message)
        except Exception:  # noqa: BLE001 - a mistake of the receiver must not stop the links; it is logged and counted
            self._errors += 1
            _log.exception("%s: a %s message was not handled", self._name, type(message.message).__name__)

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


# The thread that owns all sockets and all state of the links of one process.
#
# Other threads queue calls and messages and wake it by an eventfd. It sleeps until a socket, the eventfd or the next
# deadline wakes it.


class LinkLoop:
    """Runs a `LinkManager` over a `ZmqTransport` in a thread. Methods are for any thread.

    Parameters
    ----------
    name : str
        Name of this process.
    manager : LinkManager
        Decides what is sent, and to whom.
    transport : ZmqTransport
        The sockets; closed with the loop.
    clock : Clock
        Tells the time.
    """

    def __init__(self, name: str, manager: LinkManager, transport: ZmqTransport, clock: Clock) -> None:
        self._name = name
        self._manager = manager
        self._transport = transport
        self._clock = clock
        self._calls: deque[Callable[[float], None]] = deque()
        self._messages: deque[tuple[str, OutgoingMessage]] = deque()
        self._replies: deque[tuple[bytes, Frames]] = deque()
        self._flushes: deque[Future[None]] = deque()
        self._closing = self._ended = False
        self._driver: LinkDriver
        self._thread = threading.Thread(target=self._run, name=f"links-{name}", daemon=True)

    @property
    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def start(self, driver: LinkDriver) -> None:
        """Start the thread; `driver` carries out what is decided."""
        self._driver = driver
        self._thread.start()

    def call(self, call: Callable[[float], None]) -> None:
        """Call `call` with the current time, in the thread."""
        self._calls.append(call)
        self._wake()

    def send(self, peer: str, message: OutgoingMessage) -> None:
        """Send a message for which there is room."""
        self._messages.append((peer, message))
        self._wake()

    def reply(self, route: bytes, frames: Frames) -> None:
        """Send to the connecting end with this route."""
        self._replies.append((route, frames))
        self._wake()

    def flush(self, timeout: float | None) -> bool:
        """Wait until everything that was sent is acknowledged; return whether it is, within `timeout` seconds."""
        done: Future[None] = Future()
        self._flushes.append(done)
        self._wake()
        if self._ended:
            return True
        try:
            done.result(timeout)
        except TimeoutError:
            return False
        return True

    def close(self) -> bool:
        """End the thread; return whether it has ended, which is not so when it calls this itself. Idempotent."""
        self._closing = True
        self._wake()
        if threading.current_thread() is self._thread:
            return False
        self._thread.join()
        return True

    def _wake(self) -> None:
        if threading.get_ident() != self._thread.ident:  # that thread looks at the queues before it sleeps
            self._transport.wake()

    # In the thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                self._transport.wait(self._patience())
                now = self._clock.monotonic()
                self._take(now)  # first: what was sent to a process must not reach a successor that is met now
                for actions in self._transport.read(self._manager, now):
                    self._driver.carry_out(actions)
                self._take(now)
                if now >= self._manager.due:
                    self._driver.carry_out(self._manager.tick(now))
                flushes = len(self._flushes)  # counted first: messages that are queued later belong to later flushes
                if flushes and not self._messages and self._manager.is_settled():
                    self._end_flushes(flushes)
        except Exception:
            _log.exception("the links of %s stopped: this is a bug of dropflow", self._name)
            raise
        finally:
            self._end()

    def _patience(self) -> float | None:
        if self._calls or self._messages:
            return 0.0
        due = self._manager.due
        return None if due == math.inf else max(0.0, due - self._clock.monotonic())

    def _take(self, now: float) -> None:
        """Handle what other threads queued: calls, messages by peer, replies of the data plane."""
        while self._calls:
            self._calls.popleft()(now)
        if self._messages:
            by_peer: dict[str, list[OutgoingMessage]] = {}
            for _ in range(len(self._messages)):
                peer, message = self._messages.popleft()
                by_peer.setdefault(peer, []).append(message)
            for peer, messages in by_peer.items():
                self._driver.carry_out(self._manager.send(peer, messages, now))
        for _ in range(len(self._replies)):
            self._transport.reply(*self._replies.popleft())

    def _end_flushes(self, count: int) -> None:
        for _ in range(count):
            self._flushes.popleft().set_result(None)

    def _end(self) -> None:
        self._closing = self._ended = True
        self._transport.close()
        self._driver.fail_all(LinkError(f"the links of {self._name!r} are closed"))
        self._end_flushes(len(self._flushes))
