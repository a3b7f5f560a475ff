"""The exchange of a session with the other nodes that hold drops of it, over links.

The event that a drop is settled goes to every node with a neighbour of it, and to no other node. Nodes downstream get
its content, or the parts that it wrote. For nodes upstream it means that the drop needs nothing more. Rows are those of
the slice on this side, and rows of the whole graph in messages.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from dropflow.clock import Clock
from dropflow.data.workspace import Workspace
from dropflow.errors import DropflowError, LinkError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.events import Lost, Publish
from dropflow.execution.interfaces import Arrival
from dropflow.failure import summary_of
from dropflow.graph.slices import Slice
from managers.links import ContentSource
from managers.messages import Content, Events, RankMessage
from managers.node.contents import ContentExchange
from managers.node.copy_effects import CopyRecords
from managers.node.decisions.copies import HeldCopy
from managers.node.event_receiver import EventReceiver, Unavailable
from managers.node.event_sender import EventSender
from managers.node.fetch_pool import FetchJob, JobPool
from managers.node.neighbours import NeighbourNodes, NodeLinks
from managers.node.stream_copies import DescriptorWatcher, NodeStreams

_log = logging.getLogger(__name__)

_JOBS = 4
"""Number of jobs for the contents of one message: small contents wait for the network most of the time."""

RecordCopy = Callable[[int, Handle, str, tuple[int, ...]], None]
OnCopied = Callable[[Mapping[int, Handle], Mapping[int, str]], None]
"""Takes copies by row, and why contents could not be copied; in any thread, once for each job."""

# Jobs that copy contents of other nodes, to hold the copies for their owners.


class CopyJobs:
    """Copies contents in a pool.

    Parameters
    ----------
    contents : ContentExchange
        Fetches single contents.
    pool : JobPool
        Carries out the jobs.
    is_stopping : callable
        Returns whether fetches are to be given up.
    record : callable
        Records a copy on the disk: row, content, owner, and stamp if it is the owner's own file.
    """

    def __init__(
        self, contents: ContentExchange, pool: JobPool, is_stopping: Callable[[], bool], record: RecordCopy
    ) -> None:
        self._contents = contents
        self._record = record
        self._pool = pool
        self._is_stopping = is_stopping

    def take(self, peer: str, contents: Sequence[Content], on_done: OnCopied) -> None:
        """Begin to copy contents of `peer`. For any thread."""
        for start in range(min(_JOBS, len(contents))):
            self._pool.submit(peer, self._job(peer, contents[start::_JOBS], on_done))

    def _job(self, peer: str, contents: Sequence[Content], on_done: OnCopied) -> FetchJob:
        taken: dict[int, Handle] = {}
        failed: dict[int, str] = {}
        for content in contents:
            try:
                fetch = self._contents.fetch_copy(content, self._is_stopping)
                size = content.handle.size if self._contents.needs_fetching(content) else None
                copy = yield from self._contents.receipts.receiving(peer, size, fetch)
                is_shared = bool(content.stamp) and copy.location == content.handle.location
                self._record(content.drop, copy, peer, content.stamp if is_shared else ())
                taken[content.drop] = copy
            except DropflowError as error:
                failed[content.drop] = str(error)
            except Exception as error:  # noqa: BLE001 - without an answer the session would wait without end
                _log.exception("a content of node %s could not be copied", peer)
                failed[content.drop] = summary_of(error)
        on_done(taken, failed)


class ExchangeResources(Protocol):
    """Resources that the exchanges of all sessions of a process share."""

    @property
    def clock(self) -> Clock:
        """Tells the time."""
        ...

    @property
    def links(self) -> NodeLinks:
        """Links of this process."""
        ...

    @property
    def fetch_pool(self) -> JobPool:
        """Fetches contents from other nodes."""
        ...

    @property
    def stream_pool(self) -> JobPool:
        """Fetches streams while they grow, all at the same time."""
        ...

    @property
    def file_watcher(self) -> DescriptorWatcher:
        """Watches files that grow while other nodes read them."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether to read files of other nodes in place, if they can be seen from here."""
        ...


class NodeExchange:
    """`dropflow.execution.interfaces.Exchange` of one session on one node.

    It starts no threads and waits only in `wait_for_room`. Methods are for the session's thread, unless their docstring
    names other threads.

    Parameters
    ----------
    piece : Slice
        The drops of this node, and their neighbours on others.
    session : str
        Name of the session.
    epoch : int
        Its deployment; messages of other deployments are ignored.
    resources : ExchangeResources
        Those of this process; the links are connected to the other nodes of the session.
    workspace : Workspace
        The session's directories.
    streams : collection of int
        Links whose data can be read by their consumers while it is written.
    view : int
        The view of the session; messages of other views are ignored.
    contents : ContentExchange or None
        The contents of the exchange of an earlier view; None for the first view.
    on_unavailable : callable
        See `EventReceiver`; by default the drop fails.
    """

    def __init__(
        self,
        piece: Slice,
        *,
        session: str,
        epoch: int,
        resources: ExchangeResources,
        workspace: Workspace,
        streams: Collection[int] = (),
        view: int = 0,
        contents: ContentExchange | None = None,
        on_unavailable: Unavailable = lambda _, fail: fail(),
    ) -> None:
        self.view = view
        self.rows = piece.drop
        self.remote = piece.ghosts
        self._rows: Sequence[int] = piece.drop.data
        self._own = piece.is_own.tobytes()
        self._nodes = NeighbourNodes(piece)
        self._session = session
        self._links = links = resources.links
        self.contents = self._contents = contents or ContentExchange(session, workspace, in_place=resources.in_place)
        self._streams = NodeStreams(
            session,
            workspace,
            links=links,
            pool=resources.stream_pool,
            file_watcher=resources.file_watcher,
            receipts=self._contents.receipts,
            clock=resources.clock,
        )
        self._sender = EventSender(
            piece,
            self._nodes,
            session=session,
            epoch=epoch,
            view=view,
            links=links,
            contents=self._contents,
            streams=self._streams,
            streaming=streams,
        )
        self._receiver = EventReceiver(
            piece,
            self._nodes,
            session=session,
            fetch_pool=resources.fetch_pool,
            contents=self._contents,
            streams=self._streams,
            is_stopping=lambda: self._is_stopping,
            on_unavailable=on_unavailable,
        )
        records = CopyRecords(Path(workspace.directory))

        def record(row: int, copy: Handle, owner: str, stamp: tuple[int, ...]) -> None:
            records.write((epoch, view), row, HeldCopy(copy, owner, 0, stamp), durable=workspace.durable)

        self._copy_jobs = CopyJobs(self._contents, resources.fetch_pool, lambda: self._is_stopping, record)
        self._is_stopping = False
        self._sent_to: set[str] = set()
        """Nodes that may have too many unprocessed messages."""

    @property
    def neighbours(self) -> Sequence[str]:
        """Nodes that hold neighbours of the drops here."""
        return self._nodes.neighbours

    # For the session.

    def attach(self, deliver: Callable[[Sequence[Arrival]], None], needs: Callable[[int, int], bool]) -> None:
        """Deliver all arrivals from now on, in any thread, without the parts that the session does not need."""
        self._receiver.needs = needs
        self._receiver.deliver = deliver

    def parts(self) -> Sequence[tuple[int, int, Handle]]:
        """Return the parts that are offered: a drop on another node, its producer here, and the part."""
        return self._sender.parts()

    def publish(self, event: Publish, handles: dict[int, Handle]) -> None:
        """Add an event, with the contents that go with it, to the messages of this step."""
        self._sender.add(event, handles)

    def flush(self) -> None:
        """Send the messages of this step, without waiting."""
        self._sent_to.update(self._sender.flush())

    def has_room(self) -> bool:
        """Return whether the session may take a step: no node has too many unprocessed messages, or it is to end."""
        self._sent_to = {node for node in self._sent_to if not self._links.has_room(node)}
        return self._is_stopping or not self._sent_to

    def wait_for_room(self) -> None:
        """Wait until `has_room`, or until `stop_waiting`."""
        while self._sent_to:
            self._links.wait_for_room(self._sent_to.pop(), give_up=lambda: self._is_stopping)

    def withdraw(self, drop: int, attempt: int) -> None:
        """Stop offering a stream, or fetching it."""
        row = self._rows[drop]
        self._streams.unfollow(row, attempt)
        if self._own[drop]:
            self._streams.withdraw(row, attempt)

    def release(self, drop: int) -> None:
        """Stop offering a content, or remove the copy that was fetched."""
        row = self._rows[drop]
        if not self._own[drop]:
            self._streams.remove_kept(row)
            self._contents.remove_copy(row)
            return
        self._streams.withdraw(row)
        if self._contents.withdraw(row) is not None:
            self._links.close_content(self._session, row)

    def reclaim(self, drop: int) -> Sequence[Handle]:
        """Return the parts that were written here of a drop on another node that is settled."""
        if not self._own[drop]:
            self._streams.withdraw(self._rows[drop])
        return self._sender.take_parts(drop)

    def on_node(self, node: str) -> Sequence[int]:
        """Return the drops of the slice that live on `node`."""
        return self._nodes.ghosts_on(node)

    def give_up(self, reason: str, lost: Lost | None) -> None:
        """Send to the neighbours that the session was cancelled or failed. They forward it to their neighbours."""
        self._sender.stop(reason, lost)

    def silence(self) -> None:
        """Do not send later that the session was cancelled or failed. For any thread."""
        self._sender.is_silent = True

    def close(self) -> None:
        """Stop offering, fetching and delivering. Idempotent."""
        self._receiver.close()
        self.stop_waiting()
        self._streams.close()
        self._links.close_content(self._session)

    # For other threads.

    def stop_waiting(self) -> None:
        """Stop waiting for other nodes, since the session is to end."""
        self._is_stopping = True
        self._links.wake_waiting()

    def receive(self, peer: str, events: Events) -> None:
        """Pass on a message of `peer`, to be opened in the session's thread."""
        self._receiver.receive(peer, events)

    def send(self, node: str, message: RankMessage) -> None:
        """Send a message to a node, unless it is lost."""
        try:
            self._links.send(node, message)
        except (LinkError, UsageError) as error:
            _log.info("node %s could not be sent a message about an MPI job: %s", node, error)

    def take_copies(self, peer: str, contents: Sequence[Content], on_done: OnCopied) -> None:
        """Copy contents of `peer`, to hold the copies for it."""
        self._copy_jobs.take(peer, contents, on_done)

    def source(self, drop: int, attempt: int, producer: int) -> ContentSource:
        """Open an offered stream that an attempt writes; for attempt 0, an offered content that is complete."""
        if attempt:
            return self._streams.source(drop, attempt, producer)
        return self._contents.source(drop, producer)


# Messages of other nodes about drops, sorted by the view of the session that they belong to.


class MessagesByView:
    """Passes on messages in the order of their senders: of the present view now, of a later view when it has begun.

    Parameters
    ----------
    exchange : NodeExchange
        The exchange in the first view.
    """

    def __init__(self, exchange: NodeExchange) -> None:
        self._exchange = exchange
        self._view = exchange.view
        self._is_silent = False
        self._early: list[tuple[str, Events]] = []
        # Guards all attributes above: the links' thread adds messages while a job changes the view. A queue would not
        # do, since the messages of a node must be passed on in their order.
        self._lock = threading.Lock()

    def receive(self, peer: str, events: Events) -> None:
        """Pass on a message. Messages of earlier views are ignored."""
        with self._lock:
            self._pass_on(peer, events)

    def silence(self) -> None:
        """Send the other nodes nothing about the end of the session here: they go on without this node."""
        with self._lock:
            self._is_silent = True
            self._exchange.silence()

    def next_view(self, number: int, exchange: NodeExchange) -> None:
        """Continue in a later view."""
        with self._lock:
            self._view, self._exchange = number, exchange
            if self._is_silent:
                exchange.silence()
            early, self._early = self._early, []
            for peer, events in early:
                self._pass_on(peer, events)

    def _pass_on(self, peer: str, events: Events) -> None:
        if events.view == self._view:
            self._exchange.receive(peer, events)
        elif events.view > self._view:
            self._early.append((peer, events))
