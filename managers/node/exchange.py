"""A session's exchange with the other nodes that hold drops of it, over links.

A drop that is settled is told to every node that holds a neighbour of it, and to nobody else: its content, or the
parts it wrote, to those downstream; that it needs nothing more, to those upstream. Rows are those of the slice on this
side and those of the whole graph on the wire.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import cast

import numpy as np

from dropflow.clock import Clock
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Arrival, Handle, Mail, Told
from dropflow.engine.events import NO_CAUSE, NO_PRODUCER, Lost, Opened, Reported, Withdrawn, foreign, row_of_foreign
from dropflow.errors import DropflowError, LinkError, ProtocolError, UsageError
from dropflow.failure import Failure
from dropflow.graph.slices import Slice
from dropflow.states import DropState
from managers.links import ContentSource, Links, Sink, TransferResult, WantedContent
from managers.messages import Content, Events, StopSession, StreamUpdate
from managers.node.content_exchange import ContentExchange, Fetch
from managers.node.fetch_pool import FetchPool
from managers.node.file_watcher import FileWatcher
from managers.node.neighbour_nodes import NeighbourNodes
from managers.node.node_streams import NodeStreams

__all__ = ["NodeExchange"]

_log = logging.getLogger(__name__)

_STATES = tuple(DropState)
_SKIPPED = int(DropState.SKIPPED)
_FETCH_SECONDS = 60.0
_FEW = 16


class NodeExchange:
    """`dropflow.engine.api.Exchange` of one session on one node.

    Parameters
    ----------
    piece : Slice
        What this node holds.
    session : str
        Name of the session.
    epoch : int
        Its deployment; messages of others are ignored.
    links : Links
        Of this process, connected to the other nodes of the session.
    fetch_pool : FetchPool
        Threads that fetch contents.
    file_watcher : FileWatcher
        Hears when what is offered grows.
    workspace : Workspace
        The session's directories.
    clock : Clock
        Time.
    streams : collection of int
        Links whose data can be read by their consumers while it is written.
    in_place : bool
        Whether to read files of other nodes where they lie, if they are seen from here.
    """

    def __init__(
        self,
        piece: Slice,
        *,
        session: str,
        epoch: int,
        links: Links,
        fetch_pool: FetchPool,
        file_watcher: FileWatcher,
        workspace: Workspace,
        clock: Clock,
        streams: Collection[int] = (),
        in_place: bool = True,
    ) -> None:
        self.rows = piece.drop
        self.remote = piece.ghosts
        self._rows: Sequence[int] = piece.drop.data
        self._piece = piece
        self._own = bytes(piece.is_own.astype(np.uint8))
        self._routes = NeighbourNodes(piece)
        self._session = session
        self._epoch = epoch
        self._streaming = frozenset(streams)
        self._links = links
        self._fetch_pool = fetch_pool
        self._contents = ContentExchange(workspace, in_place=in_place)
        self._streams = NodeStreams(session, workspace, links=links, file_watcher=file_watcher, clock=clock)
        self._sequence: dict[str, int] = {}
        self._parts: dict[int, list[tuple[int, int, Handle]]] = {}
        self._lock = threading.Lock()
        self._early: list[Mail] = []
        self._deliver: Callable[[Sequence[Mail]], None] = self._early.extend
        self._hurried = False

    @property
    def neighbours(self) -> Sequence[str]:
        """Nodes that hold neighbours of the drops here."""
        return self._routes.neighbours

    # The session's side.

    def start(self, deliver: Callable[[Sequence[Mail]], None]) -> None:
        """Pass on what arrives, and has arrived already."""
        with self._lock:
            self._deliver = deliver
            if self._early:
                deliver(self._early)

    def tell(self, told: Sequence[Told]) -> None:
        """Let the nodes know that hold neighbours of these drops."""
        batches: dict[int, _Batch] = {}
        rows, own = self._rows, self._routes
        for one in told:
            row = rows[one.drop]
            if not one.state.is_terminal:
                self._tell_stream(one, row, batches)
                continue
            cause = self._cause_out(one.cause)
            for target, handle in one.handles.items():
                self._streams.complete(rows[target], handle)
            for node, wants in own.of(one.drop):
                batch = _batch_for(node, batches)
                for target in one.skipped:
                    if own.home(target) == node:
                        batch.add(rows[target], _SKIPPED, one.attempt, row)
                batch.add(row, int(one.state), one.attempt, cause)
                if wants and one.handles:
                    self._add_contents(batch, node, one, row)
        for node, batch in batches.items():
            self._send(own.nodes[node], batch)

    def withdraw(self, drop: int, attempt: int) -> None:
        """StopSession offering a stream, or fetching it."""
        row = self._rows[drop]
        self._streams.unfollow(row, attempt)
        if self._own[drop]:
            self._streams.withdraw(row, attempt)

    def release(self, drop: int) -> None:
        """StopSession offering a content, or remove the copy that was fetched."""
        row = self._rows[drop]
        if not self._own[drop]:
            self._streams.forget(row)
            self._contents.forget(row)
            return
        self._streams.withdraw(row)
        if self._contents.withdraw(row) is not None:
            self._links.close_content(self._session, row)

    def reclaim(self, drop: int) -> Sequence[Handle]:
        """The parts written here of a drop elsewhere that is settled."""
        if not self._own[drop]:
            self._streams.withdraw(self._rows[drop])
        parts = self._parts.pop(drop, ())
        for row, producer, _ in parts:
            self._contents.withdraw(row, producer)
        return [handle for _, _, handle in parts]

    def on_node(self, node: str) -> Sequence[int]:
        """Drops of the slice that live on `node`."""
        return self._routes.ghosts_on(node)

    def give_up(self, reason: str, lost: Lost | None) -> None:
        """Let the neighbours know; they let theirs know."""
        if lost is None:
            stop = StopSession(self._session, self._epoch, reason)
        else:
            stop = StopSession(self._session, self._epoch, reason, lost.node, lost.failure)
        for node in self._routes.neighbours:
            try:
                # Who is behind must hear of it too, or it would wait for drops that never come.
                self._links.send(node, stop, urgent=True)
            except DropflowError as error:
                _log.info("node %s was not told that session %s is given up: %s", node, self._session, error)

    def hurry(self) -> None:
        """Wait for no other node any more: the session is to end. For any thread."""
        self._hurried = True
        self._links.wake_waiting()

    def close(self) -> None:
        """Pass on nothing more; idempotent."""
        with self._lock:
            self._deliver = _nowhere
        self.hurry()
        self._streams.close()
        self._links.close_content(self._session)

    # The links' side.

    def receive(self, peer: str, events: Events) -> None:
        """Take in what `peer` told. Only passes it on: the links have other things to do."""
        self._pass([_Letter(self, peer, events)])

    def open(self, peer: str, events: Events) -> Sequence[Arrival]:
        """What `peer` told, in the session's thread. Never waits: what has to be fetched is fetched by others.

        Raises
        ------
        ProtocolError
            It tells of drops that are not here.
        """
        drops, states, attempts, causes = (column.tolist() for column in events.columns())
        places = self._places(events, drops)
        if places is None:
            raise ProtocolError(f"node {peer} told of drops that are not in this slice of session {self._session}")
        by_owner: dict[int, list[Content]] = {}
        for content in events.contents:
            by_owner.setdefault(content.producer if content.producer >= 0 else content.drop, []).append(content)
        arrivals = [withdrawn for stream in events.streams for withdrawn in self._open_stream(peer, stream)]
        skipped: dict[int, list[int]] = {}
        fetch = self._fetcher(peer)
        for drop, row, state, attempt, cause in zip(places, drops, states, attempts, causes, strict=True):
            if self._own[drop]:
                skipped.setdefault(cause, []).append(drop)
                continue
            left_out = tuple(skipped.pop(row, ())) if skipped else ()
            event = Reported(drop, _STATES[state], NO_CAUSE if cause < 0 else self._cause_in(cause), attempt, left_out)
            contents = by_owner.pop(row, None) if by_owner else None
            if contents is None:
                arrivals.append(Arrival(event))
            elif any(self._contents.needs_fetching(content) for content in contents):
                job = partial(self._fetch_and_pass, peer, event, row, contents, fetch)
                self._streams.once_copied(contents, partial(self._fetch_pool.run, peer, job))
            else:
                arrivals.append(self._arrival(peer, event, row, contents, fetch))
        return arrivals

    def source(self, drop: int, attempt: int, producer: int) -> ContentSource:
        """Open what was offered to other nodes, for the data plane: what an attempt writes; for 0, what is complete."""
        if attempt:
            return self._streams.source(drop, attempt, producer)
        return self._contents.source(drop, producer)

    # Out.

    def _add_contents(self, batch: "_Batch", node: int, one: Told, row: int) -> None:
        for target, handle in one.handles.items():
            if target == one.drop:
                batch.contents.append(self._contents.offer(row, handle))
            elif self._routes.home(target) == node:
                there = self._rows[target]
                batch.contents.append(self._contents.offer(there, handle, row))
                self._parts.setdefault(target, []).append((there, row, handle))

    def _tell_stream(self, one: Told, row: int, batches: dict[int, "_Batch"]) -> None:
        """A drop here that is open, or not any more, to its consumers; one that is written here, to its own node."""
        if self._own[one.drop]:
            nodes = self._followers(one.drop)
            producer = NO_PRODUCER
        else:
            before = self._piece.graph.predecessors
            nodes = [self._routes.home(one.drop)]
            producer = self._rows[before.neighbour[before.ptr[one.drop]]]
        if one.state is DropState.WRITING:
            if one.drop not in one.handles or not nodes:
                return  # what is offered to nobody would be a reader that never moves
            try:
                stream = self._streams.offer(row, one.attempt, producer, one.handles[one.drop])
            except DropflowError as error:
                _log.warning(
                    "drop %s cannot be read while it is written, and goes out when it is complete: %s", row, error
                )
                return
        else:
            self._streams.withdraw(row, one.attempt)
            stream = StreamUpdate(row, one.attempt, producer)
        for node in nodes:
            _batch_for(node, batches).streams.append(stream)

    def _followers(self, drop: int) -> list[int]:
        """The nodes of consumers elsewhere that read a drop as it comes; to others it is of use when it is complete."""
        after = self._piece.graph.successors
        edges = slice(after.ptr[drop], after.ptr[drop + 1])
        pairs = zip(after.neighbour[edges].tolist(), after.link[edges].tolist(), strict=True)
        return sorted({self._routes.home(app) for app, link in pairs if link in self._streaming and not self._own[app]})

    def _send(self, node: str, batch: "_Batch") -> None:
        number = self._sequence.get(node, 0) + 1
        self._sequence[node] = number
        message = Events.of(
            self._session,
            self._epoch,
            number,
            drops=batch.drops,
            states=batch.states,
            attempts=batch.attempts,
            causes=batch.causes,
            contents=tuple(batch.contents),
            streams=tuple(batch.streams),
        )
        try:
            self._links.send(node, message, give_up=self._is_hurried)
        except (LinkError, UsageError) as error:
            # The watch over the members of the session says what comes of it.
            _log.warning("session %s could not tell node %s: %s", self._session, node, error)

    def _cause_out(self, cause: int) -> int:
        if cause >= 0:
            return self._rows[cause]
        return NO_CAUSE if cause == NO_CAUSE else row_of_foreign(cause)

    # In.

    def _cause_in(self, cause: int) -> int:
        if cause < 0:
            return NO_CAUSE
        here = self._piece.local(cause)
        return foreign(cause) if here is None else here

    def _open_stream(self, peer: str, stream: StreamUpdate) -> list[Arrival]:
        """Follow a stream, of which the session hears once something is there; or let it know that it is no more."""
        drop, producer = self._local(stream.drop, peer), NO_PRODUCER
        before = self._piece.graph.predecessors
        producers = before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
        if stream.producer >= 0:
            producer = self._local(stream.producer, peer)
        writer = drop if producer == NO_PRODUCER else producer
        if self._routes.nodes[self._routes.home(writer)] != peer or not (producer in producers or writer == drop):
            raise ProtocolError(f"node {peer} told of a stream of drop {stream.drop}, which it does not write")
        withdrawn = Arrival(Withdrawn(drop, stream.attempt))
        if stream.handle is None:
            self._streams.unfollow(stream.drop, stream.attempt)
            return [withdrawn]
        # Of several producers each writes a part, and none of them is the content.
        if producer == NO_PRODUCER or len(producers) == 1:
            opened = Opened(drop, producer, stream.attempt)
            self._streams.follow(
                peer,
                stream,
                lambda handle: self._pass([_Fetched(peer, [Arrival(opened, {drop: handle})])]),
                lambda: self._pass([_Fetched(peer, [withdrawn])]),
            )
        return []

    def _fetch_and_pass(self, peer: str, event: Reported, row: int, contents: Sequence[Content], fetch: Fetch) -> None:
        self._pass([_Fetched(peer, [self._arrival(peer, event, row, contents, fetch)])])

    def _places(self, events: Events, drops: Sequence[int]) -> Sequence[int] | None:
        """Rows here of drops of the whole graph; None if one of them is not here."""
        if len(drops) <= _FEW:
            # One by one: numpy's search lets other threads in, and this one waits until they have done what they do.
            found = [self._piece.local(drop) for drop in drops]
            return None if None in found else cast(list[int], found)
        rows = events.columns()[0]
        places = np.searchsorted(self.rows, rows)
        if not (self.rows[np.minimum(places, len(self.rows) - 1)] == rows).all():
            return None
        return cast(list[int], places.tolist())

    def _arrival(self, peer: str, event: Reported, row: int, contents: Sequence[Content], fetch: Fetch) -> Arrival:
        """What `event`, of drop `row` of the whole graph, brings along."""
        handles: dict[int, Handle] = {}
        try:
            for content in contents:
                target = event.drop if content.drop == row else self._local(content.drop, peer)
                handles[target] = self._streams.take_over(content) or self._contents.take_over(content, fetch)
        except DropflowError as error:
            failure = Failure.of(error)
        except Exception as error:  # noqa: BLE001 - else the session would wait for ever
            _log.exception("contents from node %s could not be taken over", peer)
            failure = Failure.of(error)
        else:
            return Arrival(event, handles)
        return Arrival(Reported(event.drop, DropState.ERROR, event.drop, event.attempt), failure=failure)

    def _local(self, drop: int, peer: str) -> int:
        here = self._piece.local(drop)
        if here is None:
            raise ProtocolError(f"node {peer} told of drop {drop}, which is not in this slice of {self._session}")
        return here

    def _fetcher(self, peer: str) -> Fetch:
        def fetch(content: Content, sink: Sink) -> TransferResult:
            handle = content.handle
            wanted = WantedContent(
                session=self._session,
                drop=content.drop,
                producer=content.producer,
                size=None if handle.kind == "directory" else handle.size,
                checksum=handle.checksum or None,
            )
            return self._links.fetch(
                peer,
                wanted,
                sink,
                timeout=_FETCH_SECONDS,
                give_up=self._is_hurried,
            )

        return fetch

    def _pass(self, mail: Sequence[Mail]) -> None:
        with self._lock:
            self._deliver(mail)

    def _is_hurried(self) -> bool:
        return self._hurried


class _Batch:
    """What one message tells: columns that grow together."""

    __slots__ = ("attempts", "causes", "contents", "drops", "states", "streams")

    def __init__(self) -> None:
        self.drops: list[int] = []
        self.states: list[int] = []
        self.attempts: list[int] = []
        self.causes: list[int] = []
        self.contents: list[Content] = []
        self.streams: list[StreamUpdate] = []

    def add(self, drop: int, state: int, attempt: int, cause: int) -> None:
        """One more row."""
        self.drops.append(drop)
        self.states.append(state)
        self.attempts.append(attempt)
        self.causes.append(cause)


def _batch_for(node: int, batches: dict[int, _Batch]) -> _Batch:
    batch = batches.get(node)
    if batch is None:
        batch = batches[node] = _Batch()
    return batch


class _Letter:
    """What another node told, unopened."""

    __slots__ = ("_events", "_exchange", "sender")

    def __init__(self, exchange: NodeExchange, sender: str, events: Events) -> None:
        self._exchange = exchange
        self._events = events
        self.sender = sender

    def open(self) -> Sequence[Arrival]:
        """See `dropflow.engine.api.Mail`."""
        return self._exchange.open(self.sender, self._events)


class _Fetched:
    """What had to be fetched first."""

    __slots__ = ("_arrivals", "sender")

    def __init__(self, sender: str, arrivals: Sequence[Arrival]) -> None:
        self._arrivals = arrivals
        self.sender = sender

    def open(self) -> Sequence[Arrival]:
        """See `dropflow.engine.api.Mail`."""
        return self._arrivals


def _nowhere(_: Sequence[Mail]) -> None:
    """The session is over."""
