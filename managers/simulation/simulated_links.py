"""Links over a simulated network: the state machines of the product, without sockets, threads and waiting."""

import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dropflow.errors import DropflowError, Interrupted, LinkError, UsageError
from managers.links.actions import LinkAction, LinkChange, LinkStatistics, PassChunk, ReceivedMessage
from managers.links.content_server import ContentOpener, RangeServer, SourceCache
from managers.links.driver import LinkDriver, Receiver
from managers.links.link_manager import LinkManager
from managers.links.link_settings import LinkSettings
from managers.links.outbound import LinkIdentity
from managers.links.packing import Frames, outgoing_message
from managers.links.send_window import SendWindow
from managers.links.transfer import ChunkReader, Sink, Transfer, TransferResult, WantedContent
from managers.messages import Fetch, Message
from managers.node.fetch_pool import FetchJob, PendingFetch
from managers.simulation.network import SimulatedNetwork
from managers.simulation.virtual_time import SimulatedProcess, Timer


class _Transport:
    """`managers.links.driver.Transport` of one process."""

    def __init__(self, links: "SimulatedLinks", network: SimulatedNetwork, server_cache: SourceCache) -> None:
        self._links = links
        self._network = network
        self._routes: dict[str, bytes] = {}
        self.server = RangeServer(server_cache, self.reply)

    def open_connection(self, peer: str, generation: int, address: str) -> None:
        """Open a new connection to `peer`, in place of any earlier one."""
        self.close_connection(peer)
        self._routes[peer] = self._network.open(self._links, peer, generation, address)

    def close_connection(self, peer: str) -> None:
        """Close the connection to `peer`."""
        self._network.close(self._routes.pop(peer, b""))

    def send(self, peer: str, frames: Frames) -> None:
        """Send on the connection to `peer`."""
        self._network.send_to_server(self._routes.get(peer, b""), frames)

    def reply(self, route: bytes, frames: Frames) -> None:
        """Send to the connecting end with this route."""
        if not self._network.send_to_client(route, frames):
            self._links.manager.inbound.route_lost(route)

    def serve(self, route: bytes, fetch: Fetch) -> None:
        """Answer a request for content."""
        self.server.serve(route, fetch)


class SimulatedLinks:
    """As `managers.links.Links`, over a `SimulatedNetwork`. No method waits; a crash of the process closes it.

    Parameters
    ----------
    name, incarnation, on_message, on_change, open_content, settings :
        As for `managers.links.Links`.
    network : SimulatedNetwork
        Carries the packets.
    process : SimulatedProcess or None
        The process that these links belong to; a new one by default.
    on_room : callable
        Called when a peer may have returned credit, see `has_room`.
    address : str
        Address to listen on; a new one by default.
    """

    def __init__(
        self,
        name: str,
        network: SimulatedNetwork,
        *,
        on_message: Callable[[ReceivedMessage], object],
        on_change: Callable[[LinkChange], object] = lambda _: None,
        on_room: Callable[[], object] = lambda: None,
        open_content: ContentOpener | None = None,
        incarnation: int = 1,
        settings: LinkSettings | None = None,
        process: SimulatedProcess | None = None,
        address: str = "",
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.address = address or network.new_address(name)
        self.process = process or SimulatedProcess(network.simulation, name)
        self._simulation = network.simulation
        self._network = network
        self._settings = settings or LinkSettings()
        self._on_room = on_room
        self._requests = itertools.count(1)
        self.downloads: list[_Download] = []
        """Fetches that are under way."""
        self.manager = LinkManager(LinkIdentity(name, incarnation, self.address), self._settings)
        self._transport = _Transport(self, network, SourceCache(open_content, self._settings, self._simulation))
        self._driver = LinkDriver(
            self.manager,
            self._settings,
            transport=self._transport,
            on_message=on_message,
            on_change=on_change,
        )
        self._tick: Timer | None = None
        self._actions: deque[LinkAction] = deque()
        self._is_busy = self._is_closed = False
        network.join(self)
        self.process.on_crash(self.close)

    @property
    def receivers(self) -> dict[int, Receiver]:
        """Receivers of the chunks of transfers, by request."""
        return self._driver.receivers

    def connect(self, peer: str, address: str, incarnation: int = 0) -> None:
        """Open the link to `peer`, to that process of it or a later one, and keep it open."""
        self._driver.add_window(peer).reset()
        self.carry_out(self.manager.connect(peer, address, self._simulation.time, incarnation))

    def send(self, peer: str, message: Message, frames: Sequence[object] = ()) -> None:
        """Queue a message. The owner looks at `has_room` before it sends more."""
        outgoing = outgoing_message(message, frames)
        self._window(peer).acquire(outgoing.cost)
        self.carry_out(self.manager.send(peer, [outgoing], self._simulation.time))

    def has_room(self, peer: str) -> bool:
        """Return whether `peer` has no more unprocessed data than its window."""
        window = self._driver.windows.get(peer)
        return window is None or window.used <= self._settings.window

    def wait_for_room(self, peer: str, *, give_up: Callable[[], bool]) -> None:
        """Do nothing: there is one thread. See `has_room`."""

    def fetch(
        self,
        peer: str,
        wanted: WantedContent,
        sink: Sink,
        on_end: Callable[[TransferResult | BaseException], None],
        *,
        timeout: float = math.inf,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Fetch a content and pass it to `sink` as it arrives; call `on_end` with the result, or with the error.

        `give_up` is evaluated by `wake_waiting`: whether to stop.
        """
        self._window(peer)
        download = _Download(self, next(self._requests), ChunkReader(peer, wanted, sink), on_end, timeout)
        download.give_up = give_up
        self.downloads.append(download)
        download.start(Transfer(download.request, peer, wanted, self._settings))

    def content_grew(self, session: str, drop: int) -> None:
        """Answer the peers that wait for content that has grown, or ended."""
        self._transport.server.content_grew(session, drop)

    def close_content(self, session: str, drop: int | None = None) -> None:
        """Close content that was released or replaced."""
        self._transport.server.close_content(session, drop)

    def wake_waiting(self) -> None:
        """Stop the fetches that are given up, and make the owner look at `has_room` again."""
        for download in list(self.downloads):
            if download.give_up():
                download.end(LinkError("the fetch was given up"))
        self._on_room()

    def last_seen(self) -> dict[str, tuple[int, float]]:
        """Return the incarnation of each peer, and when its last packet came."""
        return self.manager.last_seen()

    def refused(self, addresses: Mapping[str, str]) -> dict[str, bool]:
        """Return whether the host of each peer refuses connections."""
        return {peer: self._network.refuses(self.name, peer, address) for peer, address in addresses.items()}

    def statistics(self) -> LinkStatistics:
        """Return counts and states of the links."""
        return self._driver.statistics()

    def is_settled(self) -> bool:
        """Return whether all peers have acknowledged everything that was sent."""
        return self.manager.is_settled()

    def close(self) -> None:
        """Close all links now, as the end of a process does. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._actions.clear()
            self._network.leave(self)
            self._driver.fail_all(LinkError(f"the links of {self.name!r} are closed"))

    # Of the network.

    def packet_from_client(self, route: bytes, frames: Frames) -> None:
        """Handle a packet that arrived at the listening end."""
        self.carry_out(self.manager.receive_request(route, frames[0], frames[1:], self._simulation.time))

    def packet_from_server(self, peer: str, generation: int, frames: Frames) -> None:
        """Handle a packet that arrived on the connection to `peer`."""
        now = self._simulation.time
        self.carry_out(self.manager.receive_answer(peer, generation, frames[0], frames[1:], now))
        self._on_room()

    def connection_lost(self, peer: str, generation: int, why: str) -> None:
        """Handle the loss of the connection to `peer`."""
        self.carry_out(self.manager.connection_lost(peer, generation, why, self._simulation.time))

    def _window(self, peer: str) -> SendWindow:
        window = self._driver.windows.get(peer)
        if window is None:
            raise UsageError(f"there is no link to node {peer!r}", hint="connect to it first")
        return window

    def carry_out(self, actions: Sequence[LinkAction]) -> None:
        """Carry out actions in the order in which they were decided, also when a receiver sends."""
        if self._is_closed:
            return
        self._actions.extend(actions)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._actions:
                self._driver.carry_out([self._actions.popleft()])
        finally:
            self._is_busy = False
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        due = self.manager.due
        if due < math.inf and (self._tick is None or self._tick.is_cancelled or due < self._tick.time):
            if self._tick is not None:
                self._tick.cancel()
            self._tick = self.process.call_at(due, self._on_tick)

    def _on_tick(self) -> None:
        now = self._simulation.time
        self.carry_out(self.manager.tick(now) if now >= self.manager.due else ())


class _Download:
    """One fetch of `SimulatedLinks`."""

    def __init__(
        self,
        links: SimulatedLinks,
        request: int,
        reader: ChunkReader,
        on_end: Callable[[TransferResult | BaseException], None],
        timeout: float,
    ) -> None:
        self.request = request
        self.give_up: Callable[[], bool] = lambda: False
        self._links = links
        self._reader = reader
        self._on_end = on_end
        self._timeout = timeout
        self._peer = ""
        self._timer: Timer | None = None

    def start(self, transfer: Transfer) -> None:
        """Request the first ranges."""
        links = self._links
        self._peer = transfer.peer
        links.receivers[self.request] = self._receive
        self._restart_timer()
        links.carry_out(links.manager.start_transfer(transfer, links.process.simulation.time))

    def _receive(self, received: PassChunk | DropflowError | None) -> None:
        outcome: TransferResult | BaseException | None
        if isinstance(received, PassChunk):
            try:
                outcome = self._reader.accept(received.chunk, received.data)
            except (Exception, Interrupted) as error:  # noqa: BLE001 - also what the sink raises
                outcome = error
        else:
            outcome = received
        if outcome is not None:
            self.end(outcome)
            return
        self._restart_timer()
        links = self._links
        links.carry_out(links.manager.continue_transfer(self.request, links.process.simulation.time))

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._timeout < math.inf:
            self._timer = self._links.process.call_later(self._timeout, self._on_timeout)

    def _on_timeout(self) -> None:
        self.end(self._reader.timed_out(self._peer, f"nothing came for {self._timeout:g} s"))

    def end(self, outcome: TransferResult | BaseException) -> None:
        """End with a result or an error. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._links.receivers.pop(self.request, None) is not None:
            self._links.downloads.remove(self)
            self._links.manager.transfers.remove(self.request)
            self._on_end(outcome)


class SimulatedFetchPool:
    """As `managers.node.fetch_pool.FetchPool`, without threads."""

    def __init__(self, links: SimulatedLinks) -> None:
        self._links = links

    def submit(self, peer: str, job: FetchJob) -> None:
        """Carry out the fetches of a job one after the other."""
        self._resume(peer, job, partial(next, job))

    def _resume(self, peer: str, job: FetchJob, advance: Callable[[], PendingFetch]) -> None:
        try:
            pending = advance()
        except StopIteration:
            return
        try:
            self._links.fetch(
                peer,
                pending.wanted,
                pending.sink,
                partial(self._continue, peer, job),
                timeout=math.inf if pending.timeout is None else pending.timeout,
                give_up=pending.give_up,
            )
        except DropflowError as error:
            self._continue(peer, job, error)

    def _continue(self, peer: str, job: FetchJob, outcome: TransferResult | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._resume(peer, job, partial(job.throw, outcome))
        else:
            self._resume(peer, job, partial(job.send, outcome))
