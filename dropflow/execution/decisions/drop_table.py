"""The state of every drop of a session. Only the core and its streaming part change it.

Three columns take nine bytes for each drop. Values that few drops have (failed inputs, causes, later attempts) are in
dictionaries.
"""

from array import array
from collections.abc import Iterable

import numpy as np

from dropflow.execution.decisions.events import KnownStates
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState

_INITIALIZED, _WRITING, _COMPLETED = int(DropState.INITIALIZED), int(DropState.WRITING), int(DropState.COMPLETED)
_ERROR, _SKIPPED, _CANCELLED = int(DropState.ERROR), int(DropState.SKIPPED), int(DropState.CANCELLED)
_STATES = tuple(DropState)


class DropTable:
    """States, counters and causes of all drops of a graph. A drop is *settled* when it is in a terminal state.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph of the drops.
    remote : collection of int
        Drops that live on other nodes.

    Attributes
    ----------
    states : bytearray
        `DropState` of every drop.
    pending_inputs : array of int
        For a data drop, number of its producers that are not settled; for an application, number of its effective
        inputs that are not settled.
    pending_consumers : array of int
        For a data drop, number of its consumers that are not settled. At zero its content is released.
    failed_inputs, skipped_inputs : dict of int to int
        How many of the settled inputs of a drop failed, and how many were skipped.
    causes : dict of int to int
        The drop that started the error of a drop. A drop that still waits for inputs has the cause of its first failed
        input.
    attempts : dict of int to int
        Number of the current or last attempt of a drop, if it is not the first; of its next attempt, if none runs.
    uncounted_attempts : dict of int to int
        Number of the earlier attempts of a drop that do not count as tries: they ended for another reason than a
        failure of the application.
    faults : dict of int to int
        Number of infrastructure faults of a drop. From the first one on, the drop is a suspect.
    memory_faults : dict of int to int
        Number of these faults whose reason was too little memory, since the session was begun or continued.
    cancelled : set of int
        Drops here that were cancelled alone, and not with their session.
    running : set of int
        Drops whose attempt is with a runner.
    skipped_outputs : dict of int to tuple of int
        Outputs that completed applications chose to skip.
    border : bytearray
        1 for drops that live here and have a neighbour on another node.
    counts : list of list of int
        Number of local drops by template and state; rows as the graph's templates, columns as `DropState`.
    has_known_states : bool
        Whether the session continues from known states: an attempt may write drops that are settled already.
    unsettled, unsettled_remote : int
        Number of drops that are not settled: here, and on other nodes according to the events that came.
    failed : list of int
        Number of local drops in ERROR that are their own cause, by template.
    failed_leaves : int
        Number of local drops without successors in ERROR.
    """

    __slots__ = (
        "_ends",
        "_template",
        "attempts",
        "border",
        "cancelled",
        "causes",
        "counts",
        "failed",
        "failed_inputs",
        "failed_leaves",
        "faults",
        "has_known_states",
        "memory_faults",
        "pending_consumers",
        "pending_inputs",
        "remote",
        "running",
        "skipped_inputs",
        "skipped_outputs",
        "states",
        "uncounted_attempts",
        "unsettled",
        "unsettled_remote",
    )

    def __init__(self, graph: PhysicalGraph, remote: Iterable[int]) -> None:
        self.remote = frozenset(remote)
        self.states = bytearray(graph.drops)
        self.pending_inputs = _count_inputs(graph)
        self.pending_consumers = array("i", np.diff(graph.successors.ptr).astype(np.int32).tobytes())
        self.failed_inputs: dict[int, int] = {}
        self.skipped_inputs: dict[int, int] = {}
        self.causes: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.attempts: dict[int, int] = {}
        self.uncounted_attempts: dict[int, int] = {}
        self.faults: dict[int, int] = {}
        self.memory_faults: dict[int, int] = {}
        self.running: set[int] = set()
        self.skipped_outputs: dict[int, tuple[int, ...]] = {}
        self.unsettled = graph.drops - len(self.remote)
        self.unsettled_remote = len(self.remote)
        self.failed = [0] * len(graph.templates)
        self.failed_leaves = 0
        self.has_known_states = False
        self._template = np.ascontiguousarray(graph.template).data
        self._ends = np.ascontiguousarray(graph.successors.ptr).data
        self.border = _find_border(graph, self.remote)
        self.counts = [[0] * len(DropState) for _ in graph.templates]
        for row, count in enumerate(np.bincount(graph.template, minlength=len(graph.templates)).tolist()):
            self.counts[row][_INITIALIZED] = count
        for drop in self.remote:
            self.counts[self._template[drop]][_INITIALIZED] -= 1

    def state(self, drop: int) -> DropState:
        """Return the state of a drop."""
        return _STATES[self.states[drop]]

    def attempt(self, drop: int) -> int:
        """Return the number of the current, or last, attempt of a drop, from 1."""
        return self.attempts.get(drop, 1)

    def is_current(self, drop: int, attempt: int) -> bool:
        """Return whether this attempt is with a runner and has not been replaced or aborted."""
        return drop in self.running and self.attempts.get(drop, 1) == attempt

    def is_border(self, drop: int) -> bool:
        """Return whether a drop lives here and has a neighbour on another node."""
        return bool(self.border[drop])

    def cause(self, drop: int) -> int | None:
        """Return the drop whose failure put this one in ERROR; None for any other state."""
        return self.causes.get(drop) if self.states[drop] == _ERROR else None

    def error_causes(self) -> dict[int, int]:
        """Return the drop that started the error, by drop in ERROR; a drop that was cancelled alone has itself."""
        states = self.states
        causes = {drop: cause for drop, cause in self.causes.items() if states[drop] == _ERROR}
        return causes | {drop: drop for drop in self.cancelled}

    # For the core and its streaming part.

    def move(self, drop: int, state: int) -> None:
        """Change the state of a drop that is not settled to another state that is not terminal."""
        if drop not in self.remote:
            counts = self.counts[self._template[drop]]
            counts[self.states[drop]] -= 1
            counts[state] += 1
        self.states[drop] = state

    def start(self, drop: int) -> None:
        """Note that an attempt of a local drop is with a runner."""
        # The same as `move`, without the call: every drop that runs comes through here.
        counts = self.counts[self._template[drop]]
        counts[self.states[drop]] -= 1
        counts[_WRITING] += 1
        self.states[drop] = _WRITING
        self.running.add(drop)

    def settle(self, drop: int, state: int, cause: int) -> None:
        """Change the state of a drop to a terminal one."""
        if state == _ERROR:
            self.causes[drop] = cause
        if drop in self.remote:
            self.states[drop] = state
            self.unsettled_remote -= 1
            return
        counts = self.counts[self._template[drop]]
        counts[self.states[drop]] -= 1
        counts[state] += 1
        self.states[drop] = state
        self.unsettled -= 1
        if state == _ERROR:
            self.failed[self._template[drop]] += cause == drop
            self.failed_leaves += self._ends[drop] == self._ends[drop + 1]

    def count_input(self, drop: int, state: int, cause: int) -> None:
        """Count an input of `drop` that is settled. The first error that reaches a drop is its cause."""
        self.pending_inputs[drop] -= 1
        if state == _SKIPPED:
            self.skipped_inputs[drop] = self.skipped_inputs.get(drop, 0) + 1
        elif state != _COMPLETED:
            self.failed_inputs[drop] = self.failed_inputs.get(drop, 0) + 1
            self.causes.setdefault(drop, cause)

    def wait_again(self, app: int, inputs: int) -> None:
        """Let an application wait for this many inputs after an attempt. No input is counted yet."""
        self.running.remove(app)
        self.move(app, _INITIALIZED)
        self.pending_inputs[app] = inputs
        for column in (self.failed_inputs, self.skipped_inputs, self.causes):
            column.pop(app, None)

    def repeat(self, drop: int) -> None:
        """Number the next attempt of a drop whose present attempt does not count as a try."""
        self.attempts[drop] = self.attempts.get(drop, 1) + 1
        self.uncounted_attempts[drop] = self.uncounted_attempts.get(drop, 0) + 1

    def restore(self, graph: PhysicalGraph, known: KnownStates) -> None:
        """Set the known states of the drops of a session that continues, before any event.

        Counters of inputs stay as they are: settled drops are reported later to drops that are not settled.
        """
        states = np.frombuffer(known.states, dtype=np.uint8)
        settled = states > _WRITING
        local = np.ones(graph.drops, dtype=np.bool_)
        local[list(self.remote)] = False
        self.has_known_states = True
        self.states[:] = known.states
        self.causes.update(known.causes)
        self.attempts.update(known.attempts)
        self.uncounted_attempts.update(known.uncounted_attempts)
        self.skipped_outputs.update(known.skipped)
        self.faults.update(known.faults)
        self.running.update(known.running)
        self.unsettled = int(np.count_nonzero(local & ~settled))
        self.unsettled_remote = int(np.count_nonzero(~local & ~settled))
        ends = np.diff(graph.successors.ptr) == 0
        is_cancelled = local & (states == _CANCELLED)
        self.cancelled.update(np.flatnonzero(is_cancelled).tolist())
        self.failed_leaves = int(np.count_nonzero(local & ends & ((states == _ERROR) | is_cancelled)))
        columns = len(DropState)
        cells = graph.template[local].astype(np.int64) * columns + states[local]
        counts_of_templates = np.bincount(cells, minlength=len(graph.templates) * columns).reshape(-1, columns)
        for row, counts in zip(self.counts, counts_of_templates.tolist(), strict=True):
            row[:] = counts
        for drop, cause in known.causes.items():
            if drop == cause and local[drop] and states[drop] == _ERROR:
                self.failed[self._template[drop]] += 1
        consumers = np.repeat(settled, np.diff(graph.predecessors.ptr))
        done = np.bincount(graph.predecessors.neighbour[consumers], minlength=graph.drops)
        left = np.frombuffer(self.pending_consumers, dtype=np.int32) - done
        self.pending_consumers[:] = array("i", left.astype(np.int32).tobytes())

    def cancel(self, drop: int) -> None:
        """Note that a local drop is cancelled alone; it is settled next. A leaf without its result has failed."""
        self.cancelled.add(drop)
        self.failed_leaves += self._ends[drop] == self._ends[drop + 1]

    def cancel_waiting(self) -> None:
        """Put every local drop in CANCELLED that is not settled and has no attempt."""
        states, counts, template, running = self.states, self.counts, self._template, self.running
        for drop in range(len(states)):
            if states[drop] <= _WRITING and drop not in running and drop not in self.remote:
                counts[template[drop]][states[drop]] -= 1
                counts[template[drop]][_CANCELLED] += 1
                states[drop] = _CANCELLED
        self.unsettled = len(running)


def _count_inputs(graph: PhysicalGraph) -> "array[int]":
    """Return how many inputs each drop waits for: all producers of a data drop, the effective inputs otherwise."""
    awaited = np.diff(graph.predecessors.ptr).astype(np.int32)
    for row, template in enumerate(graph.templates):
        if template.kind is Kind.APP and template.effective_inputs > 0:
            mine = graph.template == row
            wanted = template.effective_inputs
            awaited[mine] = np.where(awaited[mine] >= wanted, wanted, awaited[mine])
    return array("i", awaited.tobytes())


def _find_border(graph: PhysicalGraph, remote: frozenset[int]) -> bytearray:
    """Return 1 for each local drop that has a neighbour on another node."""
    out = graph.successors
    elsewhere = np.zeros(graph.drops, dtype=np.bool_)
    elsewhere[list(remote)] = True
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    border = np.zeros(graph.drops, dtype=np.uint8)
    border[source[elsewhere[out.neighbour]]] = 1
    border[out.neighbour[elsewhere[source]]] = 1
    border[elsewhere] = 0
    return bytearray(border.tobytes())
