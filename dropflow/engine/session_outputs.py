"""What a session sends to the other nodes that hold neighbours of its drops."""

from dropflow.engine.api import Exchange, Handle, OpenStreams
from dropflow.engine.content_table import ContentTable
from dropflow.engine.core import Core
from dropflow.engine.events import Lost, Publish
from dropflow.states import DropState


class OutgoingEvents:
    """Collects the events of one step and sends them together. Without other nodes every method does nothing.

    Parameters
    ----------
    exchange : Exchange or None
        The other nodes of the session.
    core : Core
        Of the session.
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
        """Add what an attempt here writes to a drop on another node, before it is complete."""
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
        """Discard what was written here of a drop on another node that is settled."""
        self._foreign_streams.remove_all(drop)
        if self._exchange is not None:
            self._contents.discard(self._exchange.reclaim(drop))

    def _is_shared(self, drop: int) -> bool:
        """Whether a drop concerns this node and another one."""
        return self._core.drops.is_border(drop) or drop in self._core.drops.remote
