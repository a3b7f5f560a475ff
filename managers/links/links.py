"""`Links`: the links of one process over ZeroMQ. One thread owns all sockets and all state of the links.

Other threads hand over messages and orders in a queue and wake that thread by an eventfd; they wait only where a peer
is too far behind (`window`). The thread sleeps until a socket, the eventfd or the next deadline wakes it.
"""

import itertools
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from dropflow.clock import Clock, SystemClock
from dropflow.errors import LinkError, UsageError
from managers.keys import ClusterKey
from managers.links.actions import LinkChange, ReceivedMessage
from managers.links.content_server import ContentOpener, ContentServer
from managers.links.link_manager import LinkManager
from managers.links.outbound import LinkIdentity
from managers.links.settings import LinkSettings
from managers.links.sockets import check_address
from managers.links.statistics import LinkStatistics
from managers.links.transfer import Sink, Transfer, TransferResult
from managers.links.wire import Frames, OutgoingMessage, outgoing_message
from managers.links.zmq_transport import ZmqTransport
from managers.messages import Fetch, Message

__all__ = ["Links"]

_log = logging.getLogger(__name__)


class Links:
    """The links of one process to its peers.

    Listens at once; `address` says where. Loopback unless told otherwise; beyond loopback only with a cluster key.

    Parameters
    ----------
    name : str
        Of this process, one of its own in the cluster.
    bind : str
        Where to listen, ``tcp://HOST:PORT``; port 0 takes any that is free.
    advertise : str
        Where others reach this process, if that is not where it listens; port 0 stands for the actual one.
    key : ClusterKey or None
        Encrypts, and proves at both ends who belongs to the cluster.
    on_message : callable
        Takes each `ReceivedMessage`, once and in the order of its sender. Called in the links' thread; must not block
        (see `ReceivedMessage.hold`).
    on_change : callable
        Takes each `LinkChange`. Called in the links' thread too.
    reader : callable
        Opens the content that others fetch, of (session, drop, attempt, producer); called in a thread of its own.
    incarnation : int
        Grows with each start of the process. The present time in microseconds by default, for processes that are not
        started again under their name; nodes count their starts (`managers.node.incarnation`).
    settings : LinkSettings
        Times and sizes.
    clock : Clock
        Time.

    Raises
    ------
    UsageError
        The address is malformed, or leaves this host without a key.
    LinkError
        The address cannot be listened on.
    """

    def __init__(
        self,
        name: str,
        *,
        bind: str = "tcp://127.0.0.1:0",
        advertise: str = "",
        key: ClusterKey | None = None,
        on_message: Callable[[ReceivedMessage], object],
        on_change: Callable[[LinkChange], object] = lambda _: None,
        reader: ContentOpener | None = None,
        incarnation: int | None = None,
        settings: LinkSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings or LinkSettings()
        self._key = key
        self._carrier = ZmqTransport(
            bind, advertise=advertise, key=key, patience=self._settings.silence, on_fetch=self._serve
        )
        self._me = LinkIdentity(name, incarnation or int(self._clock.now() * 1e6), self._carrier.address)
        self._lock = threading.Lock()
        self._orders: deque[Callable[[float], None]] = deque()
        self._outgoing: deque[tuple[str, OutgoingMessage]] = deque()
        self._replies: deque[tuple[bytes, Frames]] = deque()
        self._settled = threading.Condition()
        self._flushing = 0
        self._requests = itertools.count(1)
        self._closing = self._closed = False
        self._server = ContentServer(name, reader, self._post_reply, self._settings, self._clock)
        self._board = LinkManager(
            self._me,
            self._settings,
            wire=self._carrier,
            on_message=on_message,
            on_change=on_change,
            on_release=self._released,
        )
        self._thread = threading.Thread(target=self._run, name=f"links-{name}", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """Name of this process."""
        return self._me.name

    @property
    def incarnation(self) -> int:
        """Incarnation of this process."""
        return self._me.incarnation

    @property
    def address(self) -> str:
        """Where others reach this process."""
        return self._me.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self, peer: str, address: str) -> None:
        """Open the link to `peer`, and keep it open. A peer that introduced itself can be sent to without this.

        Raises
        ------
        UsageError
            The address is malformed, or leaves this host and there is no key.
        """
        check_address(address, self._key, binding=False)
        with self._lock:
            self._board.register(peer)
        self._post(lambda now: self._board.connect(peer, address, now))

    def disconnect(self, peer: str) -> None:
        """Close the link to `peer`. What it did not acknowledge is thrown away; who waits for room hears of it."""
        self._post(lambda _: self._board.disconnect(peer))

    def send(
        self,
        peer: str,
        message: Message,
        frames: Sequence[object] = (),
        *,
        timeout: float | None = None,
        give_up: Callable[[], bool] | None = None,
        urgent: bool = False,
    ) -> None:
        """SendPacket a message, with raw `frames` (anything with the buffer protocol) beside it. For any thread.

        Waits while `peer` is too far behind. The frames are not copied and must not change until they have arrived.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait for room at most; 0 does not wait, None waits for ever.
        give_up : callable or None
            Asked after each `nudge` whether to stop waiting.
        urgent : bool
            Do not wait for room: for small messages without which the peer would wait in vain.

        Raises
        ------
        UsageError
            There is no link to `peer`, or the message is too large.
        LinkError
            There was no room in time, or the link was closed.
        ProtocolError
            The peer refuses this process.
        """
        item = outgoing_message(message, frames)
        window = self._board.windows.get(peer)
        if window is None:
            self._check_open()
            raise UsageError(f"there is no link to node {peer!r}", hint="connect to it first")
        window.take(item.cost, timeout=timeout, give_up=give_up, urgent=urgent)
        self._outgoing.append((peer, item))
        self._wake()

    def fetch(
        self,
        peer: str,
        session: str,
        drop: int,
        sink: Sink,
        *,
        attempt: int = 0,
        producer: int = -1,
        size: int | None = None,
        checksum: int | None = None,
        check: bool | None = None,
        timeout: float | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> TransferResult:
        """Fetch the content of a drop from `peer` and pass it to `sink`, in order, as it arrives. For any thread.

        Goes on by itself after a reconnect. Content that is still growing is followed to its end.

        Parameters
        ----------
        attempt : int
            Which attempt's content; 0 for whichever was committed.
        producer : int
            The application of `peer` whose part of the drop is wanted; -1 for the content of the drop.
        size : int or None
            Bytes, if they are known: then the first ranges are asked for at once.
        checksum : int or None
            CRC-32 of the whole, if it is known: what arrives is checked against it at the end.
        check : bool or None
            Whether to check each chunk by a CRC-32 of its own when that of the whole is not known; by default only
            without a cluster key, with which every frame is authenticated anyway.
        timeout : float or None
            Seconds to wait for the next bytes at most.
        give_up : callable or None
            Asked after each `nudge` whether to stop waiting.

        Raises
        ------
        GoneError
            The content was released, or belongs to another attempt.
        LinkError
            Nothing came in time, it came damaged, or the link was closed.
        DropflowError
            Whatever the other end met with when it read the content.
        """
        if peer not in self._board.windows:
            self._check_open()
            raise UsageError(f"there is no link to node {peer!r}", hint="connect to it first")
        transfer = Transfer(
            next(self._requests),
            peer=peer,
            session=session,
            drop=drop,
            attempt=attempt,
            producer=producer,
            size=size,
            checksum=checksum,
            check=self._key is None if check is None else check,
            settings=self._settings,
        )
        self._more(transfer)
        try:
            return transfer.run(sink, more=self._more, timeout=timeout, give_up=give_up)
        finally:
            self._post(lambda _: self._board.end(transfer))

    def grown(self, session: str, drop: int) -> None:
        """Content that others may be following has grown, or ended."""
        self._server.grown(session, drop)

    def forget(self, session: str, drop: int | None = None) -> None:
        """Content was released or replaced: close what is open of it."""
        self._server.forget(session, drop)

    def nudge(self) -> None:
        """Let all that wait in `send` and `fetch` ask again whether to give up."""
        self._board.nudge()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all peers have all that was sent; whether they have, within `timeout` seconds."""
        with self._settled:
            self._flushing += 1
            try:
                self._wake()
                return self._settled.wait_for(self._is_settled, timeout)
            finally:
                self._flushing -= 1

    def heard(self) -> dict[str, tuple[int, float]]:
        """Incarnation of each peer, and when (by the monotonic clock) anything last came from it."""
        return self._board.heard()

    def statistics(self) -> LinkStatistics:
        """How the links are doing."""
        return self._board.statistics(self._carrier.refused)

    def close(self) -> None:
        """Close all links at once; what was not delivered is lost (see `flush`). Idempotent."""
        self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._server.close()

    # For other threads.

    def _post(self, order: Callable[[float], None]) -> None:
        self._orders.append(order)
        self._wake()

    def _serve(self, route: bytes, fetch: Fetch) -> None:
        self._server.put(route, fetch)

    def _post_reply(self, route: bytes, frames: Frames) -> None:
        self._replies.append((route, frames))
        self._wake()

    def _released(self, delivery: ReceivedMessage) -> None:
        self._post(lambda now: self._board.done(delivery, now))

    def _more(self, transfer: Transfer) -> None:
        self._post(lambda now: self._board.begin(transfer, now))

    def _wake(self) -> None:
        if threading.get_ident() == self._thread.ident:
            return  # it looks at the queues before it sleeps
        with self._lock:
            if not self._closed:
                self._carrier.wake()

    def _check_open(self) -> None:
        if self._closing:
            raise LinkError(f"the links of {self.name!r} are closed")

    def _is_settled(self) -> bool:
        return self._closed or (not self._outgoing and self._board.is_settled())

    # The thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                self._carrier.wait(self._patience())
                now = self._clock.monotonic()
                self._take(now)  # before reading: what was sent to a process belongs to that one, not to its successor
                self._carrier.read(self._board, now)
                self._take(now)
                if now >= self._board.due:
                    self._board.tick(now)
                if self._flushing:
                    with self._settled:
                        self._settled.notify_all()
        except Exception:
            _log.exception("the links of %s stopped: this is a bug of dropflow", self.name)
            raise
        finally:
            self._end()

    def _patience(self) -> float | None:
        if self._orders or self._outgoing:
            return 0.0
        due = self._board.due
        return None if due == math.inf else max(0.0, due - self._clock.monotonic())

    def _take(self, now: float) -> None:
        """What other threads queued: orders, messages by peer, replies of the data plane."""
        while self._orders:
            self._orders.popleft()(now)
        if self._outgoing:
            by_peer: dict[str, list[OutgoingMessage]] = {}
            for _ in range(len(self._outgoing)):
                peer, item = self._outgoing.popleft()
                by_peer.setdefault(peer, []).append(item)
            for peer, items in by_peer.items():
                self._board.offer(peer, items, now)
        for _ in range(len(self._replies)):
            self._carrier.reply(*self._replies.popleft())

    def _end(self) -> None:
        with self._lock:
            self._closing = self._closed = True
            self._carrier.close()
        self._board.close(LinkError(f"the links of {self.name!r} are closed"))
        with self._settled:
            self._settled.notify_all()
