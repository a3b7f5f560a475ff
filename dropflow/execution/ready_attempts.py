"""Attempts that can begin: they wait as integers, and become tasks when the runner has room for them.

The attempts of drops with the greatest priority become tasks first. Without priorities, the attempts that have waited
longest become tasks first.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from dropflow.clock import Clock
from dropflow.execution.attempt_times import AttemptTimes
from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import ContentTable, OpenStreams
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Abort, CancelDrop, Event, Run, Stopped
from dropflow.execution.given_attempts import GivenAttempts
from dropflow.execution.interfaces import Runner
from dropflow.execution.priority_queue import PriorityQueue
from dropflow.execution.session_inputs import SessionInputs
from dropflow.execution.tasks import Input, Output, Task
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind, needs_of, with_more_memory
from dropflow.graph.text_ids import index_of, oid
from dropflow.host.memory import host_memory
from dropflow.states import SessionState
from dropflow.stopping import stopped_after

_WORTH_KEEPING = 4096
"""Bytes of a content from which on sending it again costs more than keeping it."""
_READERS = 4
"""Number of attempts reading a content from which on worker processes keep it: for fewer it is not worth the memory."""


# The priority of each attempt, from the priorities of the drops.


def attempt_priority(graph: PhysicalGraph) -> IntColumn | None:
    """Return the priority of the attempt of each drop.

    The attempt of an application has the priority of the application. Data without producers have attempts, too. Their
    priority is the highest one of their consumers, which otherwise would wait for all applications that are ready.

    Returns
    -------
    int32 array, shape (drops,), or None
        Higher ones start first. None if the graph has no priorities.
    """
    if graph.priority is None:
        return None
    before, after = graph.predecessors, graph.successors
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    consumers = np.diff(after.ptr)
    is_root = is_data & (np.diff(before.ptr) == 0) & (consumers > 0)
    column = graph.priority.copy()
    if is_root.any():
        urgent = graph.priority[after.neighbour[np.repeat(is_root, consumers)]]
        first = np.cumsum(consumers[is_root]) - consumers[is_root]
        column[is_root] = np.maximum.reduceat(urgent, first)
    return column


class TaskBuilder:
    """Builds the tasks of one graph.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is executed.
    streams : collection of int
        Links whose data can be read by their consumers while it is written.
    kept : bytes
        1 for each drop whose content outlives the session, from `dropflow.execution.content_table.kept_drops`.
    retry_memory : float
        Factor by which the memory of a drop grows when an attempt had too little; 0 for no growth.
    """

    def __init__(self, graph: PhysicalGraph, streams: Iterable[int], kept: bytes, retry_memory: float = 0.0) -> None:
        self._graph = graph
        self._retry_memory = retry_memory
        self._kept = kept
        self._template = np.ascontiguousarray(graph.template).data
        self._instance = np.ascontiguousarray(graph.instance).data
        self._before_ptr = np.ascontiguousarray(graph.predecessors.ptr).data
        self._before = np.ascontiguousarray(graph.predecessors.neighbour).data
        self._before_link = np.ascontiguousarray(graph.predecessors.link).data
        self._after_ptr = np.ascontiguousarray(graph.successors.ptr).data
        self._after = np.ascontiguousarray(graph.successors.neighbour).data
        self._after_link = np.ascontiguousarray(graph.successors.link).data
        self._is_app = [bool(template.kind) for template in graph.templates]
        streamed = {graph.links[link].source for link in streams}
        self._is_streamed = [row in streamed for row in range(len(graph.templates))]
        priority = attempt_priority(graph)
        self.priority = None if priority is None else np.ascontiguousarray(priority).data
        """Priority of the attempts of each drop; None if the graph has none."""
        self._heads = [f"{graph.prefix}_{template.key}_0" for template in graph.templates]
        self._axes = [len(template.shape) for template in graph.templates]

    def is_shared(self, drop: int) -> bool:
        """Return whether a data drop has several producers that each write a part."""
        return self._before_ptr[drop + 1] - self._before_ptr[drop] > 1

    def build(
        self,
        batch: Sequence[Run],
        chains: Sequence[Sequence[Run]],
        core: Core,
        contents: Mapping[int, Handle],
        streams: OpenStreams,
    ) -> list[Task]:
        """Return the tasks of a batch, each with the tasks of the attempts that follow it.

        The inputs are the present contents or open streams.
        """

        def content_or_stream(drop: int) -> Handle | None:
            return contents.get(drop) or streams.find(drop, core.streaming.open_attempt(drop))

        def task(run: Run, then: Sequence[Run] = (), *, follows: bool = False) -> Task:
            drop, row = run.drop, self._template[run.drop]
            is_ahead, is_app = core.streaming.is_ahead(drop), self._is_app[row]
            # Only an attempt that runs ahead is aborted when an open drop is withdrawn. All others read complete
            # inputs.
            handle = content_or_stream if is_ahead else contents.get
            is_suspect = drop in core.drops.faults
            return Task(
                drop,
                run.attempt,
                row,
                self._name(drop),
                self._index(drop),
                self._inputs(drop, core, handle) if is_app else (),
                self._outputs(drop) if is_app else (),
                is_ahead,
                is_suspect,
                0 if self.priority is None else self.priority[drop],
                follows=follows,
                then=tuple([task(following, follows=True) for following in then]),
                memory=self._memory(drop, core) if is_suspect else 0.0,
            )

        return [task(*pair) for pair in zip(batch, chains, strict=True)] if chains else [task(run) for run in batch]

    def _memory(self, drop: int, core: Core) -> float:
        """Return the memory of an attempt if earlier ones had too little; 0 for what its template declares."""
        faults = core.drops.memory_faults.get(drop, 0) if self._retry_memory else 0
        if not faults:
            return 0.0
        needs = needs_of(self._graph.templates[self._template[drop]])
        return with_more_memory(needs, faults, self._retry_memory, host_memory().limit.bytes).memory

    def _index(self, drop: int) -> tuple[int, ...]:
        return (self._instance[drop],) if self._axes[self._template[drop]] == 1 else index_of(self._graph, drop)

    def _name(self, drop: int) -> str:
        """Return the text id of a drop, as `dropflow.graph.text_ids.oid` does, but without reading columns of NumPy."""
        if self._graph.oids is not None:
            return self._graph.oids[drop]
        row = self._template[drop]
        axes = self._axes[row]
        if axes > 1:
            return oid(self._graph, drop)
        return f"{self._heads[row]}-{self._instance[drop]}" if axes else self._heads[row]

    def _inputs(self, app: int, core: Core, handle: Callable[[int], Handle | None]) -> tuple[Input, ...]:
        name, template, state, is_reread = self._name, self._template, core.drops.state, self._is_reread
        first, last = self._before_ptr[app], self._before_ptr[app + 1]
        edges = zip(self._before[first:last].tolist(), self._before_link[first:last].tolist(), strict=True)
        return tuple(
            [
                Input(row, name(row), template[row], link, state(row), content := handle(row), is_reread(row, content))
                for row, link in edges
            ]
        )

    def _is_reread(self, drop: int, content: Handle | None) -> bool:
        if content is None or content.size < _WORTH_KEEPING:
            return False
        return self._after_ptr[drop + 1] - self._after_ptr[drop] >= _READERS

    def _outputs(self, app: int) -> tuple[Output, ...]:
        name, template, is_streamed, kept = self._name, self._template, self._is_streamed, self._kept
        first, last = self._after_ptr[app], self._after_ptr[app + 1]
        edges = zip(self._after[first:last].tolist(), self._after_link[first:last].tolist(), strict=True)
        return tuple(
            [
                Output(
                    row,
                    name(row),
                    template[row],
                    link,
                    self.is_shared(row),
                    is_streamed[template[row]],
                    bool(kept[row]),
                )
                for row, link in edges
            ]
        )


# Attempts that are to begin later, after an infrastructure fault of their drop.


class DelayedRuns:
    """A queue by time. Used by the session's thread.

    Parameters
    ----------
    clock : Clock
        Tells the time.
    """

    __slots__ = ("_added", "_clock", "_queue")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: list[tuple[float, int, Run]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def drops(self) -> set[int]:
        """The drops whose attempts wait."""
        return {run.drop for _, _, run in self._queue}

    @property
    def next_due(self) -> float:
        """Monotonic time at which the first attempt is due; inf if there is none."""
        return self._queue[0][0] if self._queue else math.inf

    def append(self, run: Run) -> None:
        """Add an attempt, which is due after its delay."""
        self._added += 1
        heapq.heappush(self._queue, (self._clock.monotonic() + run.delay, self._added, run))

    def take_due(self) -> list[Run]:
        """Remove and return the attempts that are due, in the order of their times."""
        now, due = self._clock.monotonic(), []
        while self.next_due <= now:
            due.append(heapq.heappop(self._queue)[2])
        return due

    def clear(self) -> None:
        """Remove all attempts."""
        self._queue.clear()


class ReadyRuns:
    """The attempts of a session that are not with its runner yet. Used by the session's thread.

    Parameters
    ----------
    core : Core
        Decides which attempts are current.
    contents : ContentTable
        The inputs of tasks.
    streams : OpenStreams
        Inputs that are still written.
    inputs : SessionInputs
        Results of attempts that ran ahead of their inputs.
    given : GivenAttempts
        The attempts that the runner has.
    tasks : TaskBuilder
        Builds tasks.
    runner : Runner
        Gets the tasks.
    clock : Clock
        For attempts that are delayed.
    times : AttemptTimes or None
        Where the times of attempts are recorded.
    on_submit : callable or None
        Called after tasks were submitted.
    """

    __slots__ = (
        "_clock",
        "_contents",
        "_core",
        "_delayed",
        "_given",
        "_has_aborted",
        "_inputs",
        "_on_submit",
        "_ready",
        "_runner",
        "_streams",
        "_tasks",
        "_times",
        "stop_by",
    )

    def __init__(
        self,
        core: Core,
        contents: ContentTable,
        streams: OpenStreams,
        inputs: SessionInputs,
        *,
        given: GivenAttempts,
        tasks: TaskBuilder,
        runner: Runner,
        clock: Clock,
        times: AttemptTimes | None,
        on_submit: Callable[[], None] | None,
    ) -> None:
        self._core = core
        self._contents = contents
        self._streams = streams
        self._inputs = inputs
        self._given = given
        self._tasks = tasks
        self._runner = runner
        priority = tasks.priority
        self._ready: deque[Run] | PriorityQueue[Run] = (
            deque() if priority is None else PriorityQueue(lambda run: priority[run.drop])
        )
        self._delayed = DelayedRuns(clock)
        self._on_submit = on_submit
        self._times = times
        self._has_aborted = False
        self._clock = clock
        self.stop_by = math.inf
        """Monotonic time from which on a cancelled session does not wait for its attempts any more."""

    def __len__(self) -> int:
        return len(self._ready) + len(self._delayed)

    @property
    def drops(self) -> set[int]:
        """The drops whose attempts wait."""
        return {run.drop for run in self._ready} | self._delayed.drops

    @property
    def next_due(self) -> float:
        """Monotonic time at which the next delayed attempt is due; inf if there is none."""
        return self._delayed.next_due

    def extend(self, runs: Sequence[Run]) -> None:
        """Add attempts."""
        for run in runs:
            (self._delayed if run.delay else self._ready).append(run)
        if self._times is not None and runs:
            self._times.ready(runs)

    def clear(self) -> None:
        """Remove all attempts."""
        self._ready.clear()
        self._delayed.clear()

    def take_back(self) -> None:
        """Take back the attempts that the runner has not begun: they wait here again, with the same numbers."""
        tasks = self._runner.give_back()
        self._given.take_back(len(tasks))
        self._ready.extend([Run(task.drop, task.attempt) for task in tasks])

    def abort(self, action: Abort) -> None:
        """Stop an attempt, wherever it is. A session that is cancelled stops its attempts itself."""
        if self._core.status is SessionState.CANCELLING:
            return
        if self._core.status is SessionState.FAILED and not self._has_aborted:
            self.take_back()  # a node is lost: all attempts are aborted, as in `stop`
        self._has_aborted = True
        if not self._inputs.discard_early(action.drop):
            self._runner.abort(action.drop, action.attempt, action.grace)

    def abort_settled(self, events: Sequence[Event]) -> None:
        """Stop the attempts that wait with the runner for an attempt before them, if their own drops were cancelled."""
        for event in events if self._given.has_ahead else ():
            if isinstance(event, CancelDrop):
                for drop, attempt in self._given.settled():
                    self._runner.abort(drop, attempt, event.grace)

    def stop(self, aborts: Sequence[Abort]) -> list[Event]:
        """Stop the attempts of a session that is cancelled; return events for attempts that are not with the runner."""
        if not aborts:
            return []
        self.stop_by = min(self.stop_by, self._clock.monotonic() + stopped_after(aborts[0].grace))
        self.take_back()  # a runner looks for each aborted attempt among all that wait with it
        # The runner does not have attempts any more that it did not begin, or that could not end by the walltime.
        waiting = self.drops | {run.drop for run in self._given.take_again()} | self._inputs.postponed
        self.clear()
        stopped: list[int] = []
        for action in aborts:
            if action.drop in waiting or self._inputs.discard_early(action.drop):
                stopped.append(action.drop)
            else:
                self._runner.abort(action.drop, action.attempt, action.grace)
        for drop, attempt in self._given.ahead.items():
            self._runner.abort(drop, attempt, aborts[0].grace)
        return [Stopped(tuple(stopped))] if stopped else []

    def submit(self) -> None:
        """Submit as many tasks as the runner has room for."""
        current = self._core.drops.is_current
        if self._delayed:
            self._ready.extend([run for run in self._delayed.take_due() if current(run.drop, run.attempt)])
        if self._has_aborted:
            # The inputs of an aborted attempt may be gone: its task must not be built.
            wanted = [run for run in self._ready if current(run.drop, run.attempt)]
            self._ready.clear()
            self._ready.extend(wanted)
            self._has_aborted = False
        self.extend([run for run in self._given.take_again() if current(run.drop, run.attempt)])
        room = self._runner.window - self._given.decided
        may_take = room > 0 and self._ready and self._core.status is not SessionState.PAUSED
        batch, chains = self._take(room) if may_take else ([], [])
        if not batch:
            if self._tasks.priority is not None:
                self._runner.submit(())  # it may wait for attempts that are more urgent than those that it has
            return
        tasks = self._tasks.build(batch, chains, self._core, self._contents.contents, self._streams)
        if self._times is not None:
            self._times.given(batch)
            for chain in chains:
                self._times.given_ahead(chain)
        self._runner.submit(tasks)
        if self._on_submit is not None:
            self._on_submit()

    def _take(self, room: int) -> tuple[list[Run], list[list[Run]]]:
        """Remove and return the first attempts, and the attempts that follow each of them in a chain."""
        given = self._given
        if not given.has_chains:
            batch = [self._ready.popleft() for _ in range(min(room, len(self._ready)))]
            given.add(len(batch))
            return batch, []
        batch, chains = [], []
        while self._ready and len(batch) < room and not given.is_full:
            run = self._ready.popleft()
            batch.append(run)
            chains.append(given.give(run))
        return batch, chains
