"""`Links`: the links of one process over ZeroMQ.

One thread owns all sockets and all state of the links (`managers.links.driver`). Other threads wait only while a peer
has too much unprocessed data (`send_window`), and for what they fetch.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Self

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, LinkError, UsageError
from managers.keys import ClusterKey
from managers.links.actions import LinkChange, LinkStatistics, PassChunk, ReceivedMessage
from managers.links.content_server import ContentOpener, ContentServer
from managers.links.driver import LinkDriver, LinkLoop
from managers.links.link_manager import LinkManager
from managers.links.link_settings import LinkSettings
from managers.links.outbound import LinkIdentity
from managers.links.packing import Frames, outgoing_message
from managers.links.probes import refused_ports
from managers.links.send_window import SendWindow
from managers.links.transfer import ChunkReader, Sink, Transfer, TransferResult, WantedContent
from managers.links.zmq_transport import ZmqTransport, check_address
from managers.messages import Message


class Links:
    """The links of one process to its peers.

    Listens from the start on; `address` is where. Only on loopback by default; beyond loopback only with a cluster key.

    Parameters
    ----------
    name : str
        Name of this process, unique in the cluster.
    bind : str
        Address to listen on, ``tcp://HOST:PORT``; port 0 is any free port.
    advertise : str
        Address at which others reach this process, if that is another one; port 0 stands for the actual port.
    key : ClusterKey or None
        Encrypts the connections and authenticates both ends.
    on_message : callable
        Takes each `ReceivedMessage`, once and in the order of its sender. Called in the links' thread; must not block.
    on_change : callable
        Takes each `LinkChange`. Called in the links' thread too.
    open_content : callable
        Opens the content that peers fetch, of (session, drop, attempt, producer); called in its own thread.
    incarnation : int
        Grows with each start of the process. The present time in microseconds by default, for processes that are not
        started again under their name; nodes count their starts (`managers.node.resources`).
    settings : LinkSettings
        Times and sizes.
    clock : Clock
        Tells the time.

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
        open_content: ContentOpener | None = None,
        incarnation: int | None = None,
        settings: LinkSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._settings = settings or LinkSettings()
        self._key = key
        self._server = ContentServer(name, open_content, self._reply, self._settings, clock)
        self._transport = ZmqTransport(
            bind, advertise=advertise, key=key, timeout=self._settings.receive_timeout, on_fetch=self._server.serve
        )
        identity = LinkIdentity(name, incarnation or int(clock.now() * 1e6), self._transport.address)
        self.name, self.incarnation, self.address = identity.name, identity.incarnation, identity.address
        self._manager = LinkManager(identity, self._settings)
        self._loop = LinkLoop(name, self._manager, self._transport, clock)
        self._driver = LinkDriver(
            self._manager,
            self._settings,
            transport=self._transport,
            on_message=on_message,
            on_change=on_change,
        )
        self._requests = itertools.count(1)
        self._loop.start(self._driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self, peer: str, address: str, incarnation: int = 0) -> None:
        """Open the link to `peer`, and keep it open. A peer that introduced itself can be sent to without this.

        Parameters
        ----------
        incarnation : int
            The process that is meant, if that is known. Messages are kept for it although an earlier one answered.

        Raises
        ------
        UsageError
            The address is malformed, or leaves this host and there is no key.
        """
        check_address(address, self._key, binding=False)
        self._driver.add_window(peer)
        self._loop.call(lambda now: self._connect(peer, address, incarnation, now))

    def send(self, peer: str, message: Message, frames: Sequence[object] = ()) -> None:
        """Send a message, with raw `frames` (anything with the buffer protocol) beside it. For any thread.

        Never waits: who sends much looks at `has_room`, or waits for it. The frames are not copied and must not change
        until they have arrived.

        Raises
        ------
        UsageError
            There is no link to `peer`, or the message is too large.
        LinkError
            The links are closed.
        ProtocolError
            The peer refuses this process.
        """
        outgoing = outgoing_message(message, frames)
        self._window(peer).acquire(outgoing.cost)
        self._loop.send(peer, outgoing)

    def has_room(self, peer: str) -> bool:
        """Return whether `peer` has no more unprocessed data than its window."""
        window = self._driver.windows.get(peer)
        return window is None or window.used <= self._settings.window

    def wait_for_room(self, peer: str, *, give_up: Callable[[], bool]) -> None:
        """Wait while `peer` has more unprocessed data than its window; also returns when its link fails."""
        window = self._driver.windows.get(peer)
        if window is not None:
            window.wait_for_room(give_up=give_up)

    def fetch(
        self,
        peer: str,
        wanted: WantedContent,
        sink: Sink,
        *,
        timeout: float | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> TransferResult:
        """Fetch a content from `peer` and pass it to `sink`, in order, as it arrives. For any thread.

        Continues after a reconnect. Content that is still growing is followed to its end. Chunks are checked only
        without a cluster key, since a key authenticates every frame.

        Parameters
        ----------
        timeout : float or None
            Maximum seconds to wait for the next bytes.
        give_up : callable or None
            Whether to stop waiting; evaluated again after each `wake_waiting`.

        Raises
        ------
        GoneError
            The content was released, or belongs to another attempt.
        LinkError
            Nothing came in time, it came damaged, or the link was closed.
        DropflowError
            The error that the other end had when it read the content.
        """
        self._window(peer)
        wanted = msgspec.structs.replace(wanted, check=wanted.check and self._key is None)
        request = next(self._requests)
        inbox: SimpleQueue[PassChunk | DropflowError | None] = SimpleQueue()
        self._driver.receivers[request] = inbox.put
        transfer = Transfer(request, peer, wanted, self._settings)
        self._loop.call(lambda now: self._driver.carry_out(self._manager.start_transfer(transfer, now)))
        try:
            self._check_open()
            reader = ChunkReader(peer, wanted, sink)
            while True:
                chunk = self._next_chunk(inbox, reader, peer, timeout, give_up)
                result = reader.accept(chunk.chunk, chunk.data)
                if result is not None:
                    return result
                self._loop.call(lambda now: self._driver.carry_out(self._manager.continue_transfer(request, now)))
        finally:
            del self._driver.receivers[request]
            self._loop.call(lambda _: self._manager.transfers.remove(request))

    def content_grew(self, session: str, drop: int) -> None:
        """Answer the peers that wait for content that has grown, or ended."""
        self._server.content_grew(session, drop)

    def close_content(self, session: str, drop: int | None = None) -> None:
        """Close content that was released or replaced."""
        self._server.close_content(session, drop)

    def wake_waiting(self) -> None:
        """Make everything that waits in `wait_for_room` and `fetch` evaluate `give_up` again."""
        for window in list(self._driver.windows.values()):
            window.wake_waiting()
        for receiver in list(self._driver.receivers.values()):
            receiver(None)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all peers have everything that was sent; return whether they do, within `timeout` seconds."""
        return self._loop.flush(timeout)

    def last_seen(self) -> dict[str, tuple[int, float]]:
        """Return the incarnation of each peer, and the monotonic time when its last packet came."""
        return self._manager.last_seen()

    def refused(self, addresses: Mapping[str, str]) -> dict[str, bool]:
        """Try to connect to peers, and return whether the host of each refuses that. Takes a second at most."""
        return refused_ports(addresses)

    def statistics(self) -> LinkStatistics:
        """Return counts and states of the links."""
        return self._driver.statistics(self._transport.refused)

    def close(self) -> None:
        """Close all links now; what was not delivered is lost (see `flush`). Idempotent."""
        if self._loop.close():
            self._server.close()

    def _window(self, peer: str) -> SendWindow:
        window = self._driver.windows.get(peer)
        if window is None:
            self._check_open()
            raise UsageError(f"there is no link to node {peer!r}", hint="connect to it first")
        return window

    def _next_chunk(
        self,
        inbox: "SimpleQueue[PassChunk | DropflowError | None]",
        reader: ChunkReader,
        peer: str,
        timeout: float | None,
        give_up: Callable[[], bool] | None,
    ) -> PassChunk:
        while True:
            if give_up is not None and give_up() and inbox.empty():
                raise reader.timed_out(peer, "the reader stopped waiting")
            try:
                received = inbox.get(timeout=timeout)
            except Empty:
                raise reader.timed_out(peer, f"nothing came for {timeout:g} s") from None
            if isinstance(received, DropflowError):
                raise received
            if received is not None:
                return received

    def _reply(self, route: bytes, frames: Frames) -> None:
        self._loop.reply(route, frames)

    def _check_open(self) -> None:
        if self._loop.is_closing:
            raise LinkError(f"the links of {self.name!r} are closed")

    def _connect(self, peer: str, address: str, incarnation: int, now: float) -> None:
        self._driver.add_window(peer).reset()
        self._driver.carry_out(self._manager.connect(peer, address, now, incarnation))
