"""Events of drops here, as messages to the nodes of their neighbours."""

import logging
from collections.abc import Collection, Sequence

from dropflow.errors import DropflowError, LinkError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.events import NO_CAUSE, NO_PRODUCER, Lost, Publish, row_of_foreign
from dropflow.graph.slices import Slice
from dropflow.states import DropState
from managers.messages import Content, Events, StopSession, StreamUpdate
from managers.node.contents import ContentExchange
from managers.node.neighbours import NeighbourNodes, NodeLinks
from managers.node.stream_copies import NodeStreams

_log = logging.getLogger(__name__)

_SKIPPED = int(DropState.SKIPPED)


class EventSender:
    """Collects the events of one step of a session and sends them, one message for each node. Never waits.

    Parameters
    ----------
    piece : Slice
        The drops of this node, and their neighbours on others.
    nodes : NeighbourNodes
        The nodes of the neighbours.
    session, epoch, view :
        Name, deployment and view of the session.
    links : NodeLinks
        Links to the other nodes.
    contents : ContentExchange
        Offers contents.
    streams : NodeStreams
        Offers streams.
    streaming : collection of int
        Links whose data can be read by their consumers while it is written.
    """

    def __init__(
        self,
        piece: Slice,
        nodes: NeighbourNodes,
        *,
        session: str,
        epoch: int,
        view: int,
        links: NodeLinks,
        contents: ContentExchange,
        streams: NodeStreams,
        streaming: Collection[int],
    ) -> None:
        self.is_silent = False
        """Whether `stop` does nothing."""
        self._graph = piece.graph
        self._rows: Sequence[int] = piece.drop.data
        self._own = piece.is_own.tobytes()
        self._nodes = nodes
        self._session = session
        self._epoch = epoch
        self._view = view
        self._links = links
        self._contents = contents
        self._streams = streams
        self._streaming = frozenset(streaming)
        self._sequence: dict[str, int] = {}
        self._parts: dict[int, list[tuple[int, Handle]]] = {}
        """Producers here, and the part of each, by the drop on another node."""
        self._columns: dict[int, _Columns] = {}

    def add(self, event: Publish, handles: dict[int, Handle]) -> None:
        """Add an event, with the contents that go with it, to the messages of this step."""
        row, nodes = self._rows[event.drop], self._nodes
        if not event.state.is_terminal:
            self._add_stream(event, row, handles)
            return
        cause = self._cause(event.cause)
        for target, handle in handles.items():
            self._streams.complete(self._rows[target], handle)
        for node, wants in nodes.of(event.drop):
            columns = self._columns_for(node)
            for target in event.skipped:
                if nodes.home(target) == node:
                    columns.add(self._rows[target], _SKIPPED, event.attempt, row)
            columns.add(row, int(event.state), event.attempt, cause)
            if wants and handles:
                self._add_contents(columns, node, event.drop, handles)

    def flush(self) -> list[str]:
        """Send the messages of this step; return the nodes that got one."""
        if not self._columns:
            return []
        columns, self._columns = self._columns, {}
        for node, node_columns in columns.items():
            self._send(self._nodes.nodes[node], node_columns)
        return [self._nodes.nodes[node] for node in columns]

    def take_parts(self, drop: int) -> Sequence[Handle]:
        """Return the parts that were written here of a drop on another node, and stop offering them."""
        parts = self._parts.pop(drop, ())
        for producer, _ in parts:
            self._contents.withdraw(self._rows[drop], self._rows[producer])
        return [handle for _, handle in parts]

    def parts(self) -> list[tuple[int, int, Handle]]:
        """Return the parts that are offered: a drop on another node, its producer here, and the part."""
        return [(drop, producer, part) for drop, parts in self._parts.items() for producer, part in parts]

    def stop(self, reason: str, lost: Lost | None) -> None:
        """Send that the session was cancelled, or failed because a node is lost."""
        if self.is_silent:
            return
        if lost is None:
            stop = StopSession(self._session, self._epoch, reason)
        else:
            stop = StopSession(self._session, self._epoch, reason, lost.node, lost.failure)
        for node in self._nodes.neighbours:
            try:
                # Send it also to a node that is too far behind: it would wait for drops that are never settled.
                self._links.send(node, stop)
            except DropflowError as error:
                _log.info("node %s could not be sent the end of session %s: %s", node, self._session, error)

    def _add_contents(self, columns: "_Columns", node: int, drop: int, handles: dict[int, Handle]) -> None:
        row = self._rows[drop]
        for target, handle in handles.items():
            if target == drop:
                columns.contents.append(self._contents.offer(row, handle))
            elif self._nodes.home(target) == node:
                columns.contents.append(self._contents.offer(self._rows[target], handle, row))
                self._parts.setdefault(target, []).append((drop, handle))

    def _add_stream(self, event: Publish, row: int, handles: dict[int, Handle]) -> None:
        """Add an open or withdrawn drop: one of this node for its consumers, one that is written here for its node."""
        if self._own[event.drop]:
            nodes = self._readers(event.drop)
            producer = NO_PRODUCER
        else:
            before = self._graph.predecessors
            nodes = [self._nodes.home(event.drop)]
            producer = self._rows[before.neighbour[before.ptr[event.drop]]]
        if event.state is DropState.WRITING:
            if event.drop not in handles or not nodes:
                return  # an offer without remote consumers would count as a reader that never moves
            try:
                stream = self._streams.offer(row, event.attempt, producer, handles[event.drop])
            except DropflowError as error:
                _log.warning("drop %s cannot be streamed, and is sent when it is complete: %s", row, error)
                return
        else:
            self._streams.withdraw(row, event.attempt)
            stream = StreamUpdate(row, event.attempt, producer)
        for node in nodes:
            self._columns_for(node).streams.append(stream)

    def _readers(self, drop: int) -> list[int]:
        """Return the nodes whose consumers read a drop while it is written."""
        after = self._graph.successors
        edges = slice(after.ptr[drop], after.ptr[drop + 1])
        pairs = zip(after.neighbour[edges].tolist(), after.link[edges].tolist(), strict=True)
        return sorted({self._nodes.home(app) for app, link in pairs if link in self._streaming and not self._own[app]})

    def _send(self, node: str, columns: "_Columns") -> None:
        number = self._sequence.get(node, 0) + 1
        self._sequence[node] = number
        message = Events.of(
            self._session,
            self._epoch,
            number,
            drops=columns.drops,
            states=columns.states,
            attempts=columns.attempts,
            causes=columns.causes,
            contents=tuple(columns.contents),
            streams=tuple(columns.streams),
            view=self._view,
        )
        try:
            self._links.send(node, message)
        except (LinkError, UsageError) as error:
            # The monitor of peers decides whether the node is lost.
            _log.warning("session %s could not send to node %s: %s", self._session, node, error)

    def _cause(self, cause: int) -> int:
        if cause >= 0:
            return self._rows[cause]
        return NO_CAUSE if cause == NO_CAUSE else row_of_foreign(cause)

    def _columns_for(self, node: int) -> "_Columns":
        columns = self._columns.get(node)
        if columns is None:
            columns = self._columns[node] = _Columns()
        return columns


class _Columns:
    """The columns of a `managers.messages.Events` that is being built."""

    __slots__ = ("attempts", "causes", "contents", "drops", "states", "streams")

    def __init__(self) -> None:
        self.drops: list[int] = []
        self.states: list[int] = []
        self.attempts: list[int] = []
        self.causes: list[int] = []
        self.contents: list[Content] = []
        self.streams: list[StreamUpdate] = []

    def add(self, drop: int, state: int, attempt: int, cause: int) -> None:
        """Add one row."""
        self.drops.append(drop)
        self.states.append(state)
        self.attempts.append(attempt)
        self.causes.append(cause)
