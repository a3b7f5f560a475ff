"""Links over a fake wire in this process, for tests: same state machines, same API, no sockets, no threads, no clock.

Nothing happens by itself. `SimulatedNetwork.step` lets one thing happen, drawn from a seed: a packet arrives, perhaps
twice or out of order or not at all, or, if nothing is on its way, time passes to the next deadline. Where real links
would wait, memory links step the network; where waiting would never end, they say so instead of hanging.
"""

import itertools
import math
from collections.abc import Callable, Sequence

from dropflow.errors import InternalError, LinkError, UsageError
from managers.links.actions import LinkChange, ReceivedMessage
from managers.links.content_server import ContentOpener, SourceCache
from managers.links.link_manager import LinkManager
from managers.links.outbound import LinkIdentity
from managers.links.settings import LinkSettings
from managers.links.statistics import LinkStatistics
from managers.links.transfer import Sink, Transfer, TransferResult
from managers.links.wire import Frames, outgoing_message
from managers.messages import Fetch, Message
from managers.simulation.network import PATIENCE, Faults, SimulatedNetwork

__all__ = ["Faults", "SimulatedLinks", "SimulatedNetwork"]


class _SimulatedTransport:
    """What the switchboard of one process asks of the network."""

    def __init__(self, node: "SimulatedLinks", network: SimulatedNetwork, cache: SourceCache) -> None:
        self._node = node
        self._network = network
        self._cache = cache
        self._routes: dict[str, bytes] = {}
        self._parked: list[tuple[bytes, Fetch]] = []

    def open_connection(self, peer: str, generation: int, address: str) -> None:
        """Open a new connection to `peer`, in place of any before it."""
        self.close_connection(peer)
        self._routes[peer] = self._network.open_connection(self._node, peer, generation, address)

    def close_connection(self, peer: str) -> None:
        """Close the connection to `peer`."""
        self._network.close_connection(self._routes.pop(peer, b""))

    def send(self, peer: str, frames: Frames) -> None:
        """SendPacket on the connection that was dialled to `peer`."""
        self._network.send(self._routes.get(peer, b""), frames, back=False)

    def reply(self, route: bytes, frames: Frames) -> None:
        """SendPacket to the connecting end known by `route`."""
        if not self._network.send(route, frames, back=True):
            self._node.board.inbound.lost(route)

    def serve(self, route: bytes, peer: str, fetch: Fetch) -> None:
        """Answer a request for content."""
        del peer
        frames = self._cache.answer(fetch)
        if frames is None:
            self._parked.append((route, fetch))
        else:
            self.reply(route, frames)

    def grown(self, session: str, drop: int) -> None:
        """Answer again what waited for content to grow."""
        parked, self._parked = self._parked, []
        for route, fetch in parked:
            if (fetch.session, fetch.drop) == (session, drop):
                self.serve(route, "", fetch)
            else:
                self._parked.append((route, fetch))


class SimulatedLinks:
    """As `managers.links.Links`, over a `SimulatedNetwork`. `close` is like kill -9."""

    def __init__(
        self,
        name: str,
        network: SimulatedNetwork,
        *,
        on_message: Callable[[ReceivedMessage], object],
        on_change: Callable[[LinkChange], object] = lambda _: None,
        reader: ContentOpener | None = None,
        incarnation: int = 1,
        settings: LinkSettings | None = None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self._network = network
        self._settings = settings or LinkSettings()
        self._requests = itertools.count(1)
        self._cache = SourceCache(reader, self._settings, network)
        self._wire = _SimulatedTransport(self, network, self._cache)
        self.address = network.address(name)
        self.board = LinkManager(
            LinkIdentity(name, incarnation, self.address),
            self._settings,
            wire=self._wire,
            on_message=on_message,
            on_change=on_change,
            on_release=lambda delivery: self.board.done(delivery, network.time),
        )
        network.join(self)

    def connect(self, peer: str, address: str) -> None:
        """Open the link to `peer`."""
        self.board.connect(peer, address, self._network.time)

    def disconnect(self, peer: str) -> None:
        """Close the link to `peer`."""
        self.board.disconnect(peer)

    def send(
        self,
        peer: str,
        message: Message,
        frames: Sequence[object] = (),
        *,
        timeout: float | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> None:
        """SendPacket a message; steps the network while `peer` is too far behind."""
        item = outgoing_message(message, frames)
        window = self.board.windows.get(peer)
        if window is None:
            raise UsageError(f"there is no link to node {peer!r}", hint="connect to it first")
        end = math.inf if timeout is None else self._network.time + timeout
        for _ in range(PATIENCE):
            if window.fits(item.cost) or self._network.time >= end or (give_up is not None and give_up()):
                break
            self._network.step()
        else:
            raise InternalError(f"{self.name!r} would wait for {peer!r} for ever, in {self._network!r}")
        window.take(item.cost, timeout=0, give_up=None)
        self.board.offer(peer, [item], self._network.time)

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
        check: bool = True,
        timeout: float | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> TransferResult:
        """Fetch the content of a drop; steps the network until it is here."""
        transfer = Transfer(
            next(self._requests),
            peer=peer,
            session=session,
            drop=drop,
            attempt=attempt,
            producer=producer,
            size=size,
            checksum=checksum,
            check=check,
            settings=self._settings,
        )
        self._more(transfer)
        try:
            return transfer.run(sink, more=self._more, timeout=timeout, give_up=give_up, wait=self._wait)
        finally:
            self.board.end(transfer)

    def grown(self, session: str, drop: int) -> None:
        """Content has grown, or ended."""
        self._wire.grown(session, drop)

    def forget(self, session: str, drop: int | None = None) -> None:
        """Close what is open of content."""
        self._cache.forget(session, drop)

    def flush(self, timeout: float | None = None) -> bool:
        """Step the network until all peers have all that was sent."""
        return self._wait(self.board.is_settled, timeout)

    def heard(self) -> dict[str, tuple[int, float]]:
        """Incarnation of each peer, and when anything last came from it."""
        return self.board.heard()

    def statistics(self) -> LinkStatistics:
        """How the links are doing."""
        return self.board.statistics()

    def nudge(self) -> None:
        """Nobody waits: there is one thread."""

    def close(self) -> None:
        """End, as a killed process does."""
        self._network.leave(self.name)
        self.board.close(LinkError(f"the links of {self.name!r} are closed"))

    def _more(self, transfer: Transfer) -> None:
        self.board.begin(transfer, self._network.time)

    def _wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        end = math.inf if timeout is None else self._network.time + timeout
        for _ in range(PATIENCE):
            if done() or self._network.time >= end:
                return done()
            self._network.step()
        raise InternalError(f"{self.name!r} would wait for ever, in {self._network!r}")
