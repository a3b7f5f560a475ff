"""Turns messages of other nodes about their drops into events of the session.

All methods but `EventReceiver.receive` run in the session's thread. A pool fetches contents if necessary, and their
event arrives once more when they are here.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from dropflow.errors import DropflowError, GoneError, LinkError, ProtocolError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.events import NO_CAUSE, NO_PRODUCER, Opened, Reported, Withdrawn, foreign
from dropflow.execution.interfaces import RemoteEvent
from dropflow.failure import Failure
from dropflow.graph.slices import Slice
from dropflow.states import DropState
from managers.messages import Content, Events, StreamUpdate
from managers.node.contents import ContentExchange
from managers.node.fetch_pool import FetchJob, JobPool
from managers.node.neighbours import NeighbourNodes
from managers.node.stream_copies import NodeStreams

_log = logging.getLogger(__name__)

_STATES = tuple(DropState)
_FEW_DROPS = 16
"""Drops of a message up to which they are looked up one by one."""

Found = Sequence[tuple[RemoteEvent, dict[int, Handle] | Failure]]
"""Events, each with the contents that belong to it, or with the reason why they are not available."""

Unavailable = Callable[[str, Callable[[], None]], None]


class NodeArrival:
    """`dropflow.execution.interfaces.Arrival`: a message of another node, or an event whose contents are here now."""

    __slots__ = ("_open", "sender")

    def __init__(self, sender: str, open_: Callable[[], Found]) -> None:
        self.sender = sender
        self._open = open_

    def open(self) -> Found:
        """Return the events in it that can be used already, with their contents."""
        return self._open()


class EventReceiver:
    """Turns messages into events, and gets the contents that belong to them.

    Parameters
    ----------
    piece : Slice
        The drops of this node, and their neighbours on other nodes.
    nodes : NeighbourNodes
        The nodes of the neighbours.
    session : str
        Name of the session.
    fetch_pool : JobPool
        Fetches contents.
    contents : ContentExchange
        Takes contents over.
    streams : NodeStreams
        Follows streams.
    is_stopping : callable
        Returns whether the session is to end, so that fetches are given up.
    on_unavailable : callable
        Takes the name of a node whose content cannot be fetched, and a function that makes the drop fail for that
        reason. Called from any thread.
    """

    def __init__(
        self,
        piece: Slice,
        nodes: NeighbourNodes,
        *,
        session: str,
        fetch_pool: JobPool,
        contents: ContentExchange,
        streams: NodeStreams,
        is_stopping: Callable[[], bool],
        on_unavailable: Unavailable,
    ) -> None:
        self._piece = piece
        self._own = piece.is_own.tobytes()
        self._nodes = nodes
        self._session = session
        self._fetch_pool = fetch_pool
        self._contents = contents
        self._streams = streams
        self._is_stopping = is_stopping
        self._on_unavailable = on_unavailable
        self.needs: Callable[[int, int], bool] = lambda _drop, _producer: True
        """Returns whether the part of a producer on another node, or the content of a drop there, is needed."""
        self.deliver: Callable[[Sequence[NodeArrival]], None] = _discard
        """Takes arrivals; called from any thread."""

    def receive(self, peer: str, events: Events) -> None:
        """Pass on a message of `peer`, to be opened in the session's thread. For any thread."""
        self._deliver_later(peer, partial(self.open, peer, events))

    def close(self) -> None:
        """Stop passing on messages."""
        self.deliver = _discard

    def open(self, peer: str, events: Events) -> Found:
        """Return the events of a message that can be used already.

        Raises
        ------
        ProtocolError
            The message is about drops that are not here.
        """
        drops, states, attempts, causes = (column.tolist() for column in events.columns())
        places = self._places(events, drops)
        if places is None:
            raise ProtocolError(f"node {peer} sent drops that are not in this slice of session {self._session}")
        self._contents.receipts.fold()
        by_owner: dict[int, list[Content]] = {}
        for content in events.contents:
            by_owner.setdefault(content.producer if content.producer >= 0 else content.drop, []).append(content)
        usable: list[tuple[RemoteEvent, dict[int, Handle] | Failure]] = []
        for stream in events.streams:
            usable += self._open_stream(peer, stream)
        skipped: dict[int, list[int]] = {}
        for drop, row, state, attempt, cause in zip(places, drops, states, attempts, causes, strict=True):
            if self._own[drop]:
                skipped.setdefault(cause, []).append(drop)
                continue
            left_out = tuple(skipped.pop(row, ())) if skipped else ()
            event = Reported(drop, _STATES[state], NO_CAUSE if cause < 0 else self._cause(cause), attempt, left_out)
            contents = by_owner.pop(row, None) if by_owner else None
            usable += [(event, {})] if contents is None else self._take_over(peer, event, row, contents)
        return usable

    def _take_over(self, peer: str, event: Reported, row: int, contents: Sequence[Content]) -> Found:
        """Return the event with its contents; without them, nothing: it arrives again when they are here."""
        copy = self._streams.unfinished_copy(contents)
        if copy is not None:
            again = partial(self._take_over, peer, event, row, contents)
            copy.when_done(partial(self._deliver_later, peer, again))
            return []
        handles: dict[int, Handle] = {}
        missing: list[Content] = []
        try:
            for content in contents:
                target = self._target(peer, event, row, content)
                if target != event.drop and not self.needs(target, event.drop):
                    continue  # it came in an earlier view of the session
                handle = self._streams.take_over(content) or self._contents.copy(content)
                if handle is None and self._contents.needs_fetching(content):
                    if target == event.drop and not self.needs(target, target):
                        continue  # its owner may have released it already
                    missing.append(content)
                else:
                    handles[target] = handle or self._taken_over(peer, content)
            if not missing:
                return [(event, handles)]
            targets = [self._target(peer, event, row, content) for content in missing]
        except DropflowError as error:
            return [_failed(event, Failure.of(error))]
        self._fetch_pool.submit(peer, self._fetch(peer, event, handles, dict(zip(targets, missing, strict=True))))
        return []

    def _fetch(self, peer: str, event: Reported, handles: dict[int, Handle], missing: dict[int, Content]) -> FetchJob:
        """Fetch contents one after the other, then deliver the event."""
        outcome: tuple[RemoteEvent, dict[int, Handle] | Failure]
        try:
            for target, content in missing.items():
                fetch = self._contents.fetch(content, self._is_stopping)
                handles[target] = yield from self._contents.receipts.receiving(peer, content.handle.size, fetch)
        except (LinkError, GoneError) as error:
            # If the node is lost, the drop does not fail, and its content is made again.
            outcome = _failed(event, Failure.of(error))
            self._on_unavailable(peer, lambda: self._deliver_later(peer, lambda: [outcome]))
            return
        except DropflowError as error:
            outcome = _failed(event, Failure.of(error))
        except Exception as error:  # noqa: BLE001 - without an event the session would wait without end
            _log.exception("contents of node %s could not be fetched", peer)
            outcome = _failed(event, Failure.of(error))
        else:
            outcome = (event, handles)
        self._deliver_later(peer, lambda: [outcome])

    def _taken_over(self, peer: str, content: Content) -> Handle:
        """Return a content that need not be fetched."""
        handle = self._contents.take_over(content)
        if handle.kind == "bytes":
            self._contents.receipts.arrived(peer, handle.size)
        return handle

    def _open_stream(self, peer: str, stream: StreamUpdate) -> Found:
        """Follow a stream, which arrives when it has data; or withdraw it."""
        drop, producer = self._local(stream.drop, peer), NO_PRODUCER
        before = self._piece.graph.predecessors
        producers = before.of(drop)
        if stream.producer >= 0:
            producer = self._local(stream.producer, peer)
        writer = drop if producer == NO_PRODUCER else producer
        if self._nodes.nodes[self._nodes.home(writer)] != peer or not (producer in producers or writer == drop):
            raise ProtocolError(f"node {peer} sent a stream of drop {stream.drop}, which it does not write")
        withdrawn = Withdrawn(drop, stream.attempt)
        if stream.handle is None:
            self._streams.unfollow(stream.drop, stream.attempt)
            return [(withdrawn, {})]
        # If a drop has several producers, each writes a part, and no part is the content.
        if producer == NO_PRODUCER or len(producers) == 1:
            opened = Opened(drop, producer, stream.attempt)
            self._streams.follow(
                peer,
                stream,
                lambda handle: self._deliver_later(peer, lambda: [(opened, {drop: handle})]),
                lambda: self._deliver_later(peer, partial(self._copy_failed, stream, withdrawn)),
            )
        return []

    def _copy_failed(self, stream: StreamUpdate, withdrawn: Withdrawn) -> Found:
        self._streams.remove_copy(stream)
        return [(withdrawn, {})]

    def _deliver_later(self, peer: str, open_: Callable[[], Found]) -> None:
        self.deliver([NodeArrival(peer, open_)])

    def _places(self, events: Events, drops: Sequence[int]) -> Sequence[int] | None:
        """Return the rows in this slice of drops of the whole graph; None if the slice lacks one of them."""
        if len(drops) <= _FEW_DROPS:
            # One by one: numpy's search releases the interpreter, and this thread would wait to get it back.
            rows = [self._piece.local(drop) for drop in drops]
            return None if None in rows else cast(list[int], rows)
        places = self._piece.find(events.columns()[0])
        return None if (places < 0).any() else cast(list[int], places.tolist())

    def _target(self, peer: str, event: Reported, row: int, content: Content) -> int:
        return event.drop if content.drop == row else self._local(content.drop, peer)

    def _cause(self, cause: int) -> int:
        if cause < 0:
            return NO_CAUSE
        here = self._piece.local(cause)
        return foreign(cause) if here is None else here

    def _local(self, drop: int, peer: str) -> int:
        here = self._piece.local(drop)
        if here is None:
            raise ProtocolError(f"node {peer} sent drop {drop}, which is not in this slice of {self._session}")
        return here


def _failed(event: Reported, failure: Failure) -> tuple[RemoteEvent, Failure]:
    return Reported(event.drop, DropState.ERROR, event.drop, event.attempt), failure


def _discard(_: Sequence[NodeArrival]) -> None:
    """Discard what comes in after the end of the session."""
