"""The protocols through which a session meets storage, applications, other nodes, and places where code runs.

The session decides *when* an attempt runs. An `Executor` (made by `dropflow.runners.executor`) decides *how*, and a
`Runner` decides *where*: in this thread, in a pool of threads, or in worker processes that have built the same executor
from the same `ExecutorSpec`. A `ContentRepository` (`dropflow.data.repository`) owns the committed contents of data
drops; an `Exchange` (`managers.node.exchange`) connects the parts of a session on several nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.events import Lost, Opened, Publish, Reported, Withdrawn
from dropflow.execution.tasks import AttemptResult, ResultSink, StreamOpened, Task
from dropflow.failure import Failure
from dropflow.graph.physical import IntColumn
from dropflow.graph.templates import Template
from dropflow.stopping import GRACE_SECONDS

RemoteEvent = Reported | Opened | Withdrawn
"""An event that happened on another node."""


class Executor(Protocol):
    """Runs attempts, one at a time per calling thread. Exceptions of applications become failures of the result."""

    worker: int
    """Number of the worker process that it is in, for `Usage`; 0 elsewhere."""

    on_stream_opened: Callable[[StreamOpened], None]
    """Called with each output that an attempt opens, in the thread that runs it. Set before the first attempt."""
    on_overdue: Callable[[AttemptResult], None]
    """Called, in another thread, with the result of an attempt that took longer than its limit and cannot be stopped:
    `execute` has not returned, and what it returns later does not count. Set before the first attempt."""

    def execute(self, task: Task) -> AttemptResult:
        """Run one attempt to its end."""
        ...

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Stop a running attempt as far as possible: Python code, child processes, waits. Called from any thread.

        Child processes that run after `grace` seconds are killed.
        """
        ...

    def close(self) -> None:
        """Release the resources of the executor."""
        ...


class Runner(Protocol):
    """A place where attempts run. `submit` never blocks on the work; results come back through `deliver`.

    Every submitted task is answered by one result, unless the runner is closed first. The tasks that follow it are
    answered too, in their order.
    """

    window: int
    """Number of attempts to submit at a time; more would only wait."""

    @property
    def running(self) -> Mapping[int, int]:
        """The worker process of each attempt that runs now, by drop; without attempts that wait. From any thread.

        Worker processes have numbers from 1, as in `Usage.worker`; 0 for a thread.
        """
        ...

    def start(self, deliver: ResultSink) -> None:
        """Start the threads or processes. `deliver` may be called from any thread."""
        ...

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue a batch of attempts.

        If the graph has priorities, an empty batch means that the results so far have made no attempts ready.
        """
        ...

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Stop an attempt if it is waiting or can be stopped. It is answered all the same.

        If the attempt still runs `dropflow.stopping.kill_after` later, its worker process is killed. A thread cannot be
        killed.
        """
        ...

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`, not even attempts that were submitted before. From any thread."""
        ...

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that wait and have not begun. They are not answered, but their followers are."""
        ...

    def interrupt(self) -> None:
        """Stop the attempt in the session's own thread, because the session is being cancelled."""
        ...

    def close(self) -> None:
        """Stop everything; idempotent."""
        ...


class ContentRepository(Protocol):
    """Owner of the committed contents of a session's data drops. Used by the session's thread only.

    Every method that touches a disk may raise `dropflow.errors.StorageError`.
    """

    def adopt(self, contents: Mapping[int, Handle]) -> None:
        """Take over contents that an earlier process of the session has committed, in the order of their commits."""
        ...

    def commit(self, drop: int, attempt: int, template: Template, part: Handle) -> Handle:
        """Make `part` the content of a drop with one producer: atomic, under its final name."""
        ...

    def assemble(self, drop: int, template: Template, parts: Sequence[Handle]) -> Handle:
        """Make `parts`, in the order of the producers, the content of one drop."""
        ...

    def is_replaced(self, drop: int, handle: Handle) -> bool:
        """Return whether another drop has since written a different content at the place of this one."""
        ...

    def discard(self, part: Handle) -> None:
        """Remove an uncommitted part, of a late or failed attempt."""
        ...

    def discard_attempt(self, drop: int, attempt: int) -> None:
        """Remove the uncommitted parts of an attempt whose process ended before it could do so; never raises."""
        ...

    def release(self, drop: int, template: Template, handle: Handle) -> bool:
        """Remove the content after its last use, unless it is to persist; return whether it was removed."""
        ...

    def keep_result(self, drop: int, oid: str, template: Template, handle: Handle) -> Handle:
        """Write a committed content that is in memory to a file in ``results/``. If that fails, the content is gone."""
        ...

    def revoke(self, drop: int, handle: Handle) -> None:
        """Remove a committed content because another output of the same attempt cannot be stored; never raises."""
        ...

    def confirm(self) -> None:
        """Check that the session directory and the results in it have not been removed or replaced."""
        ...


class Arrival(Protocol):
    """Something that arrived for a session from another node, to be opened in the session's own thread."""

    sender: str
    """The node that it came from."""

    def open(self) -> Sequence[tuple[RemoteEvent, dict[int, Handle] | Failure]]:
        """Return the events in it that can be used now, each with its contents.

        The contents, by drop, can be read on this node. For a data drop that COMPLETED or is open, they are its content
        or stream. For an application, they are its parts of drops that live here. A failure in their place is why they
        are not available; then the event is that the drop failed.

        Raises
        ------
        DropflowError
            It is invalid; the session cannot continue with this sender.
        """
        ...


class Exchange(Protocol):
    """The other nodes of a session. Rows are those of the session's slice. Only `wait_for_room` waits."""

    rows: IntColumn
    """Row in the whole graph of every drop of the slice."""
    remote: IntColumn
    """Drops of the slice that live on other nodes."""

    def attach(self, deliver: Callable[[Sequence[Arrival]], None], needs: Callable[[int, int], bool]) -> None:
        """Deliver all arrivals from now on.

        Parameters
        ----------
        deliver : callable
            Takes arrivals; may be called from any thread.
        needs : callable
            Returns whether the part that a producer on another node wrote to a drop here is still needed. Called in the
            session's thread.
        """
        ...

    def parts(self) -> Sequence[tuple[int, int, Handle]]:
        """Return the parts that are offered: a drop on another node, its producer here, and the part."""
        ...

    def publish(self, event: Publish, handles: dict[int, Handle]) -> None:
        """Add an event to the messages of this step.

        Parameters
        ----------
        event : Publish
            The event, for the nodes that hold neighbours of its drop.
        handles : dict of int to Handle
            The content of a data drop that COMPLETED, or the stream of one that is open; of an application, its
            uncommitted parts of drops that live on other nodes.
        """
        ...

    def flush(self) -> None:
        """Send the messages of this step."""
        ...

    def wait_for_room(self) -> None:
        """Wait while a node has too many unprocessed messages."""
        ...

    def withdraw(self, drop: int, attempt: int) -> None:
        """Stop offering, or fetching, the data that this attempt wrote of an open drop."""
        ...

    def release(self, drop: int) -> None:
        """Stop offering the content of a drop that has no consumers left, or remove the copy that was fetched."""
        ...

    def reclaim(self, drop: int) -> Sequence[Handle]:
        """Return the parts that were written here of a settled drop on another node, which must be discarded."""
        ...

    def on_node(self, node: str) -> Sequence[int]:
        """Return the drops of the slice that live on `node`."""
        ...

    def give_up(self, reason: str, lost: Lost | None) -> None:
        """Send to all nodes of the session that it was cancelled for this reason, or failed because a node is lost."""
        ...

    def close(self) -> None:
        """Stop sending and delivering; idempotent."""
        ...
