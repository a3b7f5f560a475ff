"""The contents of a session's data drops, from the parts that attempts wrote to their release."""

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import DropflowError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.continuation import Parts
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.drop_table import DropTable
from dropflow.execution.decisions.events import Lost, Publish
from dropflow.execution.interfaces import ContentRepository, Exchange
from dropflow.execution.tasks import AttemptResult
from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template
from dropflow.graph.text_ids import oid
from dropflow.states import DropState


class ContentTable:
    """The places of the contents of data drops, and parts that are not contents yet. Used by the session's thread.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is executed.
    repository : ContentRepository
        Commits, assembles and removes contents.
    remote : frozenset of int
        Drops that live on other nodes. The exchange owns the copies of their contents here.
    kept : bytes
        1 for each drop whose content outlives the session, from `kept_drops`.
    """

    __slots__ = (
        "_before",
        "_before_ptr",
        "_graph",
        "_kept",
        "_outgoing",
        "_parts",
        "_remote",
        "_repository",
        "_seconds",
        "_template_of",
        "_unrecorded",
        "contents",
        "missing",
        "written",
    )

    def __init__(
        self, graph: PhysicalGraph, repository: ContentRepository, remote: frozenset[int], kept: bytes
    ) -> None:
        self.contents: dict[int, Handle] = {}
        """Contents by drop; read-only for other objects."""
        self.missing: dict[int, float] = {}
        """Share of missing data when a content was made, if not 0, by drop. Kept after the content is released."""
        self.written = bytearray(graph.drops)
        """1 for each drop here that has, or had, a content; read-only for other objects."""
        self._graph = graph
        self._repository = repository
        self._remote = remote
        self._kept = kept
        self._template_of = np.ascontiguousarray(graph.template).data
        self._before_ptr = np.ascontiguousarray(graph.predecessors.ptr).data
        self._before = np.ascontiguousarray(graph.predecessors.neighbour).data
        self._parts: dict[int, dict[int, Handle]] = {}
        self._outgoing: dict[int, dict[int, Handle]] = {}
        self._unrecorded: dict[int, Handle] = {}
        self._seconds: dict[int, float] | None = None
        """Seconds of the longest attempt that wrote to a drop here without a content, by drop; None if not kept."""

    def keep_seconds(self) -> None:
        """Keep the seconds of attempts for `take_seconds`."""
        self._seconds = {}

    def commit(self, result: AttemptResult) -> None:
        """Make the outputs of an attempt the contents of their drops; parts for other nodes wait for `take_outgoing`.

        Raises
        ------
        DropflowError
            One of them cannot be stored: none of them is a content, and all are gone.
        """
        parts, remote = result.handles, self._remote
        away = {target: part for target, part in parts.items() if target in remote} if remote else {}
        here = {target: part for target, part in parts.items() if target not in away} if away else parts
        try:
            self.place(result.drop, result.attempt, here)
        except DropflowError:
            self.discard(away.values())
            raise
        if away and self._seconds is not None:
            away = {target: msgspec.structs.replace(part, seconds=result.seconds) for target, part in away.items()}
        if away:
            self._outgoing[result.drop] = away
        if self._seconds is not None:
            for target in here:
                self._seconds[target] = max(result.seconds, self._seconds.get(target, 0.0))

    def place(self, producer: int, attempt: int, parts: Mapping[int, Handle]) -> None:
        """Commit the parts that one producer wrote to drops here. The part of a shared drop waits for `assemble`.

        Raises
        ------
        DropflowError
            One of them cannot be stored: none of them is a content, and all are gone.
        """
        pointers = self._before_ptr
        try:
            for target, part in parts.items():
                if target != producer and pointers[target + 1] - pointers[target] > 1:
                    self._parts.setdefault(target, {})[producer] = part
                else:
                    self._store(target, self._repository.commit(target, attempt, self._template(target), part))
                if self._seconds is not None and part.seconds:
                    self._seconds[target] = max(part.seconds, self._seconds.get(target, 0.0))
        except DropflowError:
            # Files under their final names are removed too: on a full disk that makes room for the error text.
            for target, part in parts.items():
                content = self.contents.pop(target, None)
                if content is not None:
                    del self._unrecorded[target]
                    self._repository.revoke(target, content)
                else:
                    self._parts.get(target, {}).pop(producer, None)
                    self._repository.discard(part)
            raise

    def assemble(self, drop: int) -> None:
        """Make the parts of a shared drop its content, in the order of its producers.

        Raises
        ------
        DropflowError
            They cannot be joined or stored.
        """
        parts = self._parts.pop(drop, {})
        producers = dict.fromkeys(self._before[self._before_ptr[drop] : self._before_ptr[drop + 1]].tolist())
        ordered = [parts[producer] for producer in producers if producer in parts]
        if ordered:
            self._store(drop, self._repository.assemble(drop, self._template(drop), ordered))

    def restore(self, contents: Mapping[int, Handle]) -> None:
        """Add contents that an earlier process of the session has committed; the journal records them again."""
        self._repository.adopt(contents)
        self.contents.update(contents)
        self.missing.update({drop: content.missing for drop, content in contents.items() if content.missing})
        self._unrecorded.update(contents)
        np.frombuffer(self.written, dtype=np.uint8)[list(contents)] = 1

    def parts(self) -> dict[int, dict[int, Handle]]:
        """Return the parts that are here and not contents yet, by producer and drop."""
        parts_of_producers = {producer: dict(parts) for producer, parts in self._outgoing.items()}
        for drop, parts in self._parts.items():
            for producer, part in parts.items():
                parts_of_producers.setdefault(producer, {})[drop] = part
        return parts_of_producers

    def replaced(self) -> list[int]:
        """Return the drops here whose content another drop has replaced since, as a later iteration of a loop does."""
        return [drop for drop in self.contents if self.is_replaced(drop)]

    def is_replaced(self, drop: int) -> bool:
        """Return whether another drop has replaced the content of a drop here."""
        content = None if drop in self._remote else self.contents.get(drop)
        return content is not None and self._repository.is_replaced(drop, content)

    def restore_parts(self, parts: Parts) -> None:
        """Add parts from before the session continued, of drops here and of drops on other nodes."""
        for producer, written in parts.items():
            for drop, part in written.items():
                if drop in self._remote:
                    self._outgoing.setdefault(producer, {})[drop] = part
                else:
                    self._parts.setdefault(drop, {})[producer] = part

    def needs(self, drops: DropTable, drop: int, producer: int) -> bool:
        """Return whether the part that a producer on another node wrote to a drop here is still needed.

        With the drop itself as its producer, the drop is on another node. Then return whether a consumer here needs its
        content.
        """
        if producer == drop:
            after = self._graph.successors
            consumers = after.neighbour[after.ptr[drop] : after.ptr[drop + 1]].tolist()
            return any(not drops.state(app).is_terminal for app in consumers if app not in self._remote)
        return not drops.state(drop).is_terminal and producer not in self._parts.get(drop, ())

    def add_remote(self, drop: int, content: Handle) -> None:
        """Add the content of a drop that lives on another node."""
        self.contents[drop] = content
        self._note_missing(drop, content)

    def release(self, drop: int) -> None:
        """Remove the content of a drop after its last use, unless it is to persist.

        Raises
        ------
        DropflowError
            It cannot be removed.
        """
        content = self.contents.get(drop)
        if content is None:
            return
        # The copy of a remote content belongs to the exchange.
        if drop in self._remote or self._repository.release(drop, self._template(drop), content):
            del self.contents[drop]

    def discard(self, parts: Iterable[Handle]) -> None:
        """Remove parts that never become contents."""
        for part in parts:
            self._repository.discard(part)

    def discard_attempt(self, drop: int, attempt: int) -> None:
        """Remove the parts that an attempt wrote before its process ended."""
        self._repository.discard_attempt(drop, attempt)

    def take_outgoing(self, producer: int) -> dict[int, Handle]:
        """Return the parts that an application wrote to drops on other nodes, and forget them."""
        return self._outgoing.pop(producer, {})

    def take_unrecorded(self) -> dict[int, Handle]:
        """Return the contents that were committed since the last call, for the journal."""
        taken, self._unrecorded = self._unrecorded, {}
        return taken

    def take_seconds(self, contents: Iterable[int]) -> dict[int, float]:
        """Return the seconds of the attempts that wrote these contents here, and forget them."""
        seconds = self._seconds or {}
        return {drop: seconds.pop(drop) for drop in contents if drop in seconds}

    def _store(self, drop: int, content: Handle) -> None:
        if self._kept[drop]:
            name = oid(self._graph, drop)
            content = self._repository.keep_result(drop, name, self._template(drop), content)
        self.contents[drop] = self._unrecorded[drop] = content
        self._note_missing(drop, content)
        self.written[drop] = 1

    def _note_missing(self, drop: int, content: Handle) -> None:
        if content.missing:
            self.missing[drop] = content.missing
        elif self.missing:
            self.missing.pop(drop, None)  # made again, from more data

    def _template(self, drop: int) -> Template:
        return self._graph.templates[self._template_of[drop]]


def kept_drops(graph: PhysicalGraph) -> bytes:
    """Return one byte a drop: 1 for data that nothing in the graph reads, and for data that is to persist."""
    persists = np.array([template.persist is True for template in graph.templates], dtype=np.bool_)[graph.template]
    persists[leaves(graph)] = True
    kept: npt.NDArray[np.bool_] = persists & (graph.kinds[graph.template] == np.uint8(Kind.DATA))
    return kept.tobytes()


# Streams of contents that are still being written. The session sees a new stream before the core withdraws the old one,
# so a drop can have two for a moment.


class OpenStreams:
    """Streams of contents that are still being written, by drop and attempt of the producer.

    Parameters
    ----------
    discard : callable
        Removes the files that a stream needed beside its content, once it has no readers.
    """

    def __init__(self, discard: Callable[[Handle], None]) -> None:
        self._discard = discard
        self._streams: dict[int, dict[int, Handle]] = {}

    def add(self, drop: int, attempt: int, stream: Handle) -> None:
        """Add a stream."""
        self._streams.setdefault(drop, {})[attempt] = stream

    def find(self, drop: int, attempt: int) -> Handle | None:
        """Return the stream of a drop that this attempt writes, or None."""
        return self._streams.get(drop, {}).get(attempt)

    def remove(self, drop: int, attempt: int) -> None:
        """Discard one stream, if there is one."""
        attempts = self._streams.get(drop, {})
        if attempt in attempts:
            self._discard(attempts.pop(attempt))
            if not attempts:
                del self._streams[drop]

    def remove_all(self, drop: int) -> None:
        """Discard all streams of a drop."""
        for stream in self._streams.pop(drop, {}).values():
            self._discard(stream)


# Events that a session sends to the other nodes that hold neighbours of its drops.


class OutgoingEvents:
    """Collects the events of one step and sends them together. Without other nodes every method does nothing.

    Parameters
    ----------
    exchange : Exchange or None
        The other nodes of the session.
    core : Core
        The core of the session.
    contents : ContentTable
        Contents of the session.
    streams : OpenStreams
        Streams of the drops that live here.
    """

    def __init__(self, exchange: Exchange | None, core: Core, contents: ContentTable, streams: OpenStreams) -> None:
        self._exchange = exchange
        self._core = core
        self._contents = contents
        self._streams = streams
        self._foreign_streams = OpenStreams(lambda stream: contents.discard([stream]))

    def add_foreign_stream(self, drop: int, attempt: int, stream: Handle) -> None:
        """Add the stream that an attempt here writes to a drop on another node, before it is complete."""
        self._foreign_streams.add(drop, attempt, stream)

    def add(self, action: Publish) -> None:
        """Add one event, with the contents that go with it."""
        drop = action.drop
        handles: dict[int, Handle] = {}
        if action.state is DropState.WRITING:
            streams = self._foreign_streams if drop in self._core.drops.remote else self._streams
            stream = streams.find(drop, action.attempt)
            if stream is not None:
                handles = {drop: stream}
        elif action.state is DropState.INITIALIZED:
            self._foreign_streams.remove(drop, action.attempt)
        elif action.state is DropState.COMPLETED and drop in self._contents.contents:
            handles = {drop: self._contents.contents[drop]}
        else:
            handles = self._contents.take_outgoing(drop)
        if self._exchange is not None:
            self._exchange.publish(action, handles)

    def send(self) -> None:
        """Send the events of this step."""
        if self._exchange is not None:
            self._exchange.flush()

    def give_up(self, reason: str, lost: Lost | None) -> None:
        """Send that the session was cancelled for this reason, or that it failed because a node is lost."""
        if self._exchange is not None:
            self._exchange.give_up(reason, lost)

    def withdraw(self, drop: int, attempt: int) -> None:
        """Stop offering, or fetching, the stream of an open drop that this attempt wrote."""
        if self._exchange is not None and self._is_shared(drop):
            self._exchange.withdraw(drop, attempt)

    def release(self, drop: int) -> None:
        """Stop offering a content that has no consumers left, or remove the copy that was fetched."""
        if self._exchange is not None and self._is_shared(drop):
            self._exchange.release(drop)

    def discard_parts(self, drop: int) -> None:
        """Discard the parts that were written here of a settled drop on another node."""
        self._foreign_streams.remove_all(drop)
        if self._exchange is not None:
            self._contents.discard(self._exchange.reclaim(drop))

    def _is_shared(self, drop: int) -> bool:
        """Return whether a drop concerns this node and another one."""
        return self._core.drops.is_border(drop) or drop in self._core.drops.remote
