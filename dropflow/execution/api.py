"""The protocols through which a session meets storage, applications and the places where code runs.

The session decides *when* an attempt runs; an `Executor` (made by `dropflow.apps.execute`) knows *how* to run one; a
`Runner` knows *where*: in this thread, in a pool of threads, or in worker processes that have built the same executor
from the same `ExecutorSpec`. A `ContentRepository` (`dropflow.data.repository`) owns the committed contents of data
drops.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

import msgspec

from dropflow.errors import DropflowError
from dropflow.execution.events import Lost, Opened, Publish, Reported, Withdrawn
from dropflow.failure import Failure
from dropflow.graph.physical import IntColumn
from dropflow.graph.templates import Link, ResourceNeeds, Template
from dropflow.states import DropState
from dropflow.stopping import GRACE_SECONDS


class Handle(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Where the content of a data drop is, or one producer's part of it. Small, immutable, sent between processes.

    Attributes
    ----------
    kind : str
        ``null`` (no content by design), ``bytes`` (in `body`), ``shm`` (a file in shared memory), ``file``,
        ``directory``, ``url``; ``stream``, a content that is still being written (`dropflow.data.streams`).
    body : bytes
        The content itself when `kind` is ``bytes``.
    location : str
        Path or URL of the content otherwise.
    final : str
        Where the content must be after commit; empty when it stays where it is.
    size : int
        Bytes.
    checksum : int
        CRC-32 of the content; 0 when it was not computed.
    text : bool
        Whether the content is text by design (a String memory drop).
    seconds : float
        How long the attempt took that wrote it, if that was on another node and long ones are to be protected.
    missing : float
        Share of the data that was missing when it was made, from 0 to 1; see `dropflow.graph.completeness`.
    """

    kind: str = "bytes"
    body: bytes = b""
    location: str = ""
    final: str = ""
    size: int = 0
    checksum: int = 0
    text: bool = False
    seconds: float = 0.0
    missing: float = 0.0


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One input edge of an attempt: the data drop at its other end, as it is now.

    If `state` is WRITING, the drop is open and `handle` is a stream. An input that `is_reread` is one that several
    attempts read, with a content that is worth being sent to a worker process only once.
    """

    drop: int
    oid: str
    template: int
    link: int
    state: DropState
    handle: Handle | None = None
    is_reread: bool = False


class Output(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One output edge of an attempt.

    A `shared` output has several producers, and each writes a part of it. Consumers may read an output that `streams`
    while it is written. A content that is `kept` outlives the session; a large one is written to the disk directly.
    """

    drop: int
    oid: str
    template: int
    link: int
    shared: bool = False
    streams: bool = False
    kept: bool = False


class Task(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt, complete: everything an executor needs beyond its spec.

    `index` is the drop's position in each axis of its template. For a root data drop `inputs` and `outputs` are empty
    and the executor gives the drop its initial content, as output handle of the drop itself. With `is_ahead`, some of
    its inputs are still being written, and the attempt may last until they are complete. With `is_suspect`, the process
    of an earlier attempt ended while it ran, or just after: it runs in a process that no other attempt has used. Of the
    attempts that wait, those with the greatest `priority` are started first.

    Those of `then` run after it in the same place, one after another.
    Each of them `follows` the one before it, whose output is its only input.

    A runner that has GPUs gives it the names of its own in `gpus`. With `memory`, it gets so many bytes and not as many
    as its template declares, because an earlier attempt had too little.
    """

    drop: int
    attempt: int
    template: int
    oid: str
    index: tuple[int, ...]
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    is_ahead: bool = False
    is_suspect: bool = False
    priority: int = 0
    then: "tuple[Task, ...]" = ()
    follows: bool = False
    gpus: tuple[str, ...] = ()
    memory: float = 0.0


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an attempt used.

    Attributes
    ----------
    ended : float
        When it ended, in seconds since the epoch.
    processor : float
        Seconds of processor time.
    memory : int
        Largest resident memory of its process meanwhile, in bytes; 0 if other attempts use the process too.
    read, written : int
        Bytes of its inputs and outputs, as far as their sizes are known.
    worker : int
        Number of its worker process, from 1; 0 without one.
    """

    ended: float
    processor: float = 0.0
    memory: int = 0
    read: int = 0
    written: int = 0
    worker: int = 0


class AttemptResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How an attempt ended. Nothing is committed yet: `handles` still point at temporary names.

    Attributes
    ----------
    handles : dict of int to Handle
        Content for output drops; an output that is in neither `handles` nor `skipped` completes empty.
    skipped : tuple of int
        Output drops that the application chose to skip.
    failure : Failure or None
        None when the attempt succeeded.
    seconds : float
        How long it ran.
    usage : Usage or None
        None for an attempt that did not run to its end.
    """

    drop: int
    attempt: int
    handles: dict[int, Handle] = {}
    skipped: tuple[int, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0
    usage: Usage | None = None


class StreamOpened(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A running attempt has begun to write this output, which consumers may read from `handle`."""

    drop: int
    attempt: int
    target: int
    handle: Handle


ResultSink = Callable[[Sequence[StreamOpened | AttemptResult]], None]
"""Takes the results of a runner, and what its attempts open, in order; called from any thread."""


class KeyPart(msgspec.Struct, frozen=True, array_like=True):
    """One thing that the results of an application depend on, for its key and for people.

    Attributes
    ----------
    kind : str
        Such as ``parameter``, ``function``, ``module``, ``package`` or ``input``.
    name, value : str
        Its name, and its value, version or digest.
    detail : str
        Digest of a source in the store, to say which line has changed; empty for others.
    """

    kind: str
    name: str
    value: str
    detail: str = ""


class ReuseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How the attempts of a session take results from the store, and put theirs there; see `dropflow.reuse`.

    Attributes
    ----------
    store : str
        Directory of the store.
    graph : str
        Name of the graph.
    nodes : tuple of (tuple of KeyPart) or None
        What the results of each template depend on, beside their inputs; None if they are not reused.
    always_run : mapping of int to str
        Why those of the others, whose keys say so, are never reused.
    keys : str
        File with the keys that were known before anything ran, one row for each drop; empty if there is none.
    log : str
        File that names the drops whose results were taken.
    verify : float
        Share of the results that are computed again, and compared, 0 to 1.
    trust_times : bool
        Whether size and time stand for the content of a file outside of the session.
    """

    store: str
    graph: str
    nodes: tuple[tuple[KeyPart, ...] | None, ...]
    always_run: Mapping[int, str] = {}
    keys: str = ""
    log: str = ""
    verify: float = 0.0
    trust_times: bool = False


class ExecutorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor is built from, in whichever process; sent once, not per task.

    Attributes
    ----------
    session : str
        Session id.
    directory : str
        Absolute path of the session directory. Under it: ``files/`` (relative file drops; working directory of
        commands), ``logs/<oid>.log``, ``results/``, ``tmp/`` (uncommitted parts).
    folder : str
        Absolute path of the working directory of worker processes; ``files/`` if it is empty.
    templates, links : tuples
        Of the physical graph.
    prefix : str
        Of the physical graph.
    log_limit : int
        Bytes kept of the output of one drop.
    durable : bool
        Whether files are forced to the disk before they are committed.
    until : float
        Walltime, in seconds since the epoch: attempts that cannot end by then are not started. 0 for none.
    tag : str
        In the names of uncommitted parts: another one for each process that works in the directory.
    is_detached : bool
        Whether contents are committed on another host, so that all uncommitted ones are in ``tmp``.
    reuse : ReuseSpec or None
        How results of earlier runs are taken; None if they are not.
    retry_memory : float
        By how much the memory of a drop grows when an attempt had too little, and is repeated; 0 if it is not.
    report_locals : bool
        Whether failures have the local variables of the function that raised.
    """

    session: str
    directory: str
    templates: tuple[Template, ...]
    links: tuple[Link, ...]
    prefix: str = ""
    folder: str = ""
    log_limit: int = 1_000_000
    durable: bool = False
    until: float = 0.0
    tag: str = ""
    is_detached: bool = False
    reuse: ReuseSpec | None = None
    retry_memory: float = 0.0
    report_locals: bool = False


class Executor(Protocol):
    """Runs attempts, one at a time per calling thread. Does not raise what an application raises."""

    worker: int
    """Number of the worker process that it is in, for `Usage`; 0 elsewhere."""

    on_stream_opened: Callable[[StreamOpened], None]
    """Called with what an attempt opens, in the thread that runs it. Set before the first attempt."""
    on_overdue: Callable[[AttemptResult], None]
    """Called, in another thread, with the result of an attempt that took longer than its limit and cannot be stopped:
    `execute` has not returned, and what it returns later does not count. Set before the first attempt."""

    def execute(self, task: Task) -> AttemptResult:
        """Run one attempt to its end."""
        ...

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Stop what can be stopped of a running attempt: Python code, child processes, waits. Called from any thread.

        Child processes that run after `grace` seconds are killed.
        """
        ...

    def close(self) -> None:
        """Release the resources of the executor."""
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
        """Whether another drop has written something else since at the place of a content."""
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
        """Check that the session directory, and what was kept in it, has not been removed or replaced."""
        ...


class Runner(Protocol):
    """A place where attempts run. `submit` never blocks on the work; results come back through `deliver`.

    Every task that was submitted is answered by one result, unless the runner is closed first; so are the tasks that
    follow it, in their order.
    """

    window: int
    """How many attempts to submit at a time; more would only wait."""

    @property
    def running(self) -> Mapping[int, int]:
        """The drops whose attempts run now, without those that wait, and their worker processes. From any thread.

        Worker processes have numbers from 1, as in `Usage.worker`; 0 for a thread.
        """
        ...

    def start(self, deliver: ResultSink) -> None:
        """Start the threads or processes. `deliver` may be called from any thread."""
        ...

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue a batch of attempts.

        If the graph has priorities, an empty batch tells that the results so far have made no attempts ready.
        """
        ...

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Stop an attempt if it is waiting or can be stopped. It is answered all the same.

        A worker process whose attempt runs `dropflow.stopping.kill_after` later is killed. Threads cannot be.
        """
        ...

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`, also none that was submitted before. From any thread."""
        ...

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that wait and have not begun. They are not answered; those that follow them are."""
        ...

    def interrupt(self) -> None:
        """Stop what runs in the session's own thread, because the session is being cancelled."""
        ...

    def close(self) -> None:
        """Stop everything; idempotent."""
        ...


RemoteEvent = Reported | Opened | Withdrawn
"""An event that happened on another node."""


class Arrival(Protocol):
    """Something that arrived for a session from another node, to be opened in the session's own thread."""

    sender: str
    """The node that it came from."""

    def open(self) -> Sequence[tuple[RemoteEvent, dict[int, Handle] | Failure]]:
        """Return the events in it that can be used now, each with its contents.

        The contents, by drop, are within reach of this node: of a data drop that COMPLETED or is open, its content or
        stream; of an application, its parts of drops that live here. A failure in their place is the reason why they
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
        """Deliver what arrives from now on.

        Parameters
        ----------
        deliver : callable
            Takes it; may be called from any thread.
        needs : callable
            Whether what a producer on another node wrote to a drop here is still needed, in the session's thread.
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
        """Stop offering, or fetching, what this attempt wrote of an open drop."""
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


# Where a committed content is, as the journal records it for a later process.

_MOST_IN_JOURNAL = 1024
"""Bytes of the largest content in memory that is recorded as a whole: little compared with other costs of a drop."""

_HERE = "./"


class ContentRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A content with its size and checksum, as in `Handle`.

    Attributes
    ----------
    location : str
        As in `Handle`; below the session directory it is relative to that directory, which may be moved.
    body : bytes
        A content in memory if it is small. A larger one is lost with the process that has it.
    """

    kind: str
    location: str
    size: int
    checksum: int
    text: bool
    body: bytes
    missing: float = 0.0

    @classmethod
    def of(cls, handle: Handle, directory: str) -> Self:
        """Return the record of a content.

        Parameters
        ----------
        handle : Handle
            The content, committed.
        directory : str
            The session directory, ending in a slash.
        """
        location = handle.location
        if location.startswith(directory):
            location = _HERE + location[len(directory) :]
        body = handle.body if handle.size <= _MOST_IN_JOURNAL else b""
        return cls(handle.kind, location, handle.size, handle.checksum, handle.text, body, handle.missing)

    @property
    def is_inside(self) -> bool:
        """Whether it is below the session directory."""
        return self.location.startswith(_HERE)

    def in_directory(self, directory: Path) -> Handle | None:
        """Return the content for a later process, or None if it was only in the memory of an earlier process.

        Parameters
        ----------
        directory : Path
            The session directory.
        """
        if self.kind == "shm" or (self.kind == "bytes" and len(self.body) < self.size):
            return None
        location = self.location
        if location.startswith(_HERE):
            location = str(directory / location[len(_HERE) :])
        return Handle(
            kind=self.kind,
            body=self.body,
            location=location,
            size=self.size,
            checksum=self.checksum,
            text=self.text,
            missing=self.missing,
        )


# Streams of contents that are still being written, by data drop and attempt of the producer.
#
# The session sees a new stream before the core withdraws the old one, so a drop can have two for a
# moment.


class OpenStreams:
    """Streams by drop and attempt.

    Parameters
    ----------
    discard : callable
        Removes what a stream needed beside its content, once it has no readers.
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


# A queue by priority, with the methods of `collections.deque` that queues of attempts use.

T = TypeVar("T")


class PriorityQueue(Generic[T]):
    """The item of the greatest priority is the first; among equals, the one that was added first.

    Parameters
    ----------
    priority : callable
        Returns the priority of an item.
    """

    __slots__ = ("_count", "_levels", "_order", "_priority")

    def __init__(self, priority: Callable[[T], int]) -> None:
        self._priority = priority
        self._levels: dict[int, deque[T]] = {}
        self._order: list[int] = []
        """Heap of the negative priorities that have a level."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for level in sorted(self._levels, reverse=True):
            yield from self._levels[level]

    @property
    def first(self) -> T:
        """The item that `popleft` returns next. There must be one."""
        return self._levels[-self._order[0]][0]

    def append(self, item: T) -> None:
        """Add an item behind those of its priority."""
        priority = self._priority(item)
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = deque()
            heapq.heappush(self._order, -priority)
        level.append(item)
        self._count += 1

    def extend(self, items: Iterable[T]) -> None:
        """Add items, in their order."""
        for item in items:
            self.append(item)

    def popleft(self) -> T:
        """Remove and return the first item.

        Raises
        ------
        IndexError
            There is none.
        """
        priority = -self._order[0]
        level = self._levels[priority]
        item = level.popleft()
        self._count -= 1
        if not level:
            del self._levels[priority]
            heapq.heappop(self._order)
        return item

    def clear(self) -> None:
        """Remove all items."""
        self._levels.clear()
        self._order.clear()
        self._count = 0


# The walltime of a session: the time by which attempts must end, or not be started.

_WALLTIME_KIND = "Postponed"
_WALLTIME_FAILURE = Failure(
    code=DropflowError.code, kind=_WALLTIME_KIND, text="the attempt was not started, because it could not end in time"
)


def latest_starts(templates: Sequence[Template], until: float) -> tuple[float, ...]:
    """Return when attempts of each template may be started last, in seconds since the epoch.

    That is their field ``execution_time``, in seconds, before the walltime; the walltime itself without that field.

    Parameters
    ----------
    until : float
        The walltime, in seconds since the epoch; 0 for none.
    """
    return tuple(until - _execution_time(template) if until else math.inf for template in templates)


def ends_too_late(template: int, starts: Sequence[float], now: float) -> bool:
    """Return whether an attempt of a template cannot end in time if it is started now."""
    return now > starts[template]


def postponed(drop: int, attempt: int) -> AttemptResult:
    """Return the answer for an attempt that was not started because of the walltime. It does not count as one."""
    return AttemptResult(drop, attempt, failure=_WALLTIME_FAILURE)


def is_postponed(result: AttemptResult) -> bool:
    """Return whether an attempt was not started because of the walltime."""
    return result.failure is not None and result.failure.kind == _WALLTIME_KIND


def _execution_time(template: Template) -> float:
    field = template.argument("execution_time")
    try:
        seconds = 0.0 if field is None else float(field.value)
    except (TypeError, ValueError):  # it only estimates
        return 0.0
    return seconds if 0 < seconds < math.inf else 0.0


# Chains of attempts that a runner gets as one task: the first one, with those that follow it in
# `Task.then`.
#
# A runner runs them one after another in one place. Each gets the output of the one before it as it
# was written, before it is committed (`with_input`). A chain ends at an attempt that fails, is
# aborted, or skips its output: those after it are answered with `not_begun`. So are those that the
# runner leaves, because it is held, or because others should begin before them. A session submits
# them again if they are still wanted.

LONG_SECONDS = 0.05
"""Attempts that take longer are worth being given to a worker one by one, so that their order is exact."""

_CHAINED_TASKS_KIND = "NotBegun"
_CHAINED_TASKS_FAILURE = Failure(
    code=DropflowError.code,
    kind=_CHAINED_TASKS_KIND,
    text="the attempt was not begun, because the chain before it has ended",
)


def members(task: Task) -> tuple[Task, ...]:
    """Return the attempts of a task, in their order."""
    return (task, *task.then)


def with_input(task: Task, before: AttemptResult) -> Task | None:
    """Return a task with its input from the attempt that it follows; None if that gives it none."""
    (edge,) = task.inputs
    if before.failure is not None or edge.drop in before.skipped:
        return None
    filled = msgspec.structs.replace(edge, state=DropState.COMPLETED, handle=before.handles.get(edge.drop))
    return msgspec.structs.replace(task, inputs=(filled,))


def not_begun(tasks: Iterable[Task]) -> list[AttemptResult]:
    """Return the answers for attempts that were not begun. They do not count as attempts."""
    return [AttemptResult(task.drop, task.attempt, failure=_CHAINED_TASKS_FAILURE) for task in tasks]


def rest_not_begun(tasks: Iterable[Task]) -> list[AttemptResult]:
    """Return the answers for the attempts that follow those of `tasks`, which a runner gives back."""
    return not_begun(one for task in tasks for one in task.then)


def is_not_begun(result: AttemptResult) -> bool:
    """Return whether an attempt was not begun."""
    return result.failure is not None and result.failure.kind == _CHAINED_TASKS_KIND


def largest_needs(needs: Iterable[ResourceNeeds]) -> ResourceNeeds:
    """Return what a chain takes: the most that one of its attempts needs."""
    found = tuple(needs)
    return ResourceNeeds(*(max(amounts) for amounts in zip(*found, strict=True)))
