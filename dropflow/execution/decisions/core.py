"""The core of a session: `handle(events) -> actions`.

It does no I/O: events are what happened, actions are what is to be done. One thread owns it. Changes travel along a
work list, not by recursion, so a chain of a million skipped drops needs no deep stack.

A drop that is settled, that is, in a terminal state, *reports* to its successors. The functions of `drop_rules` decide
from the reports of all predecessors. The state of all drops is in `drop_table`, and the reading of data that are still
written is in `streaming`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dropflow.errors import OutOfMemoryError
from dropflow.execution.decisions.continuation import known_reports
from dropflow.execution.decisions.drop_rules import (
    INFRASTRUCTURE_RETRIES,
    NextAttempt,
    decide_app,
    decide_data,
    decide_next_attempt,
    effective_inputs,
    fault_delay,
)
from dropflow.execution.decisions.drop_table import DropTable
from dropflow.execution.decisions.events import (
    NO_CAUSE,
    Abandon,
    Abort,
    Action,
    Assemble,
    Assembled,
    Begin,
    Cancel,
    CancelDrop,
    Continue,
    Event,
    Failed,
    Finish,
    Finished,
    KnownStates,
    Lost,
    Opened,
    Pause,
    Publish,
    Release,
    Reported,
    Run,
    Stopped,
    Withdrawn,
)
from dropflow.execution.decisions.streaming import Streaming
from dropflow.failure import Failure
from dropflow.graph.order import refuse_cycle
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState, SessionState

_INITIALIZED, _WRITING = int(DropState.INITIALIZED), int(DropState.WRITING)
_COMPLETED, _ERROR, _SKIPPED = int(DropState.COMPLETED), int(DropState.ERROR), int(DropState.SKIPPED)
_CANCELLED = int(DropState.CANCELLED)
_FAILED = (_ERROR, _CANCELLED)
"""States that count as a failed input."""
_GOING = (SessionState.RUNNING, SessionState.PAUSED)
_STATES = tuple(DropState)
_NONE: frozenset[int] = frozenset()


class Core:
    """Decisions of one session.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is executed.
    remote : collection of int
        Drops that live on other nodes. They never run here; their states arrive as `Reported` events. They do not count
        in the statistics, but the session goes on until they are settled too, because their nodes may need contents of
        this node.
    streams : collection of int
        Links whose data can be read by their consumers while it is written.
    infrastructure_retries : int
        How many infrastructure faults each drop may have, apart from the tries of its application.

    Raises
    ------
    BadGraphError
        The graph has a cycle; the drops on it are named.
    """

    # Too many attributes for CPython's key-sharing dict: without `__slots__` the core is 10 % slower. For the same
    # reason columns and methods of the drop table are attributes of their own.
    __slots__ = (
        "_actions",
        "_app",
        "_attempts",
        "_border",
        "_handlers",
        "_infrastructure_retries",
        "_is_over",
        "_pending_consumers",
        "_pending_inputs",
        "_pred",
        "_pred_ptr",
        "_readers",
        "_remote",
        "_reset",
        "_running",
        "_settle",
        "_start",
        "_states",
        "_streams",
        "_succ",
        "_succ_ptr",
        "_template",
        "_uncounted",
        "_work",
        "drops",
        "graph",
        "refused",
        "status",
        "streaming",
    )

    def __init__(
        self,
        graph: PhysicalGraph,
        *,
        remote: Iterable[int] = (),
        streams: Iterable[int] = (),
        infrastructure_retries: int = INFRASTRUCTURE_RETRIES,
    ) -> None:
        refuse_cycle(graph)
        self.graph = graph
        self.drops = DropTable(graph, remote)
        """The state of every drop."""
        self.streaming = Streaming(graph, self.drops, streams)
        """The drops that are open, and the applications that read them."""
        self.status = SessionState.PRISTINE
        self.refused = 0
        """Events about attempts that are not current, or that came after the end."""
        self._infrastructure_retries = infrastructure_retries
        self._app = [template.kind is Kind.APP for template in graph.templates]
        self._template = np.ascontiguousarray(graph.template).data
        self._succ_ptr = np.ascontiguousarray(graph.successors.ptr).data
        self._succ = np.ascontiguousarray(graph.successors.neighbour).data
        self._pred_ptr = np.ascontiguousarray(graph.predecessors.ptr).data
        self._pred = np.ascontiguousarray(graph.predecessors.neighbour).data
        self._remote = self.drops.remote
        self._states = self.drops.states
        self._attempts = self.drops.attempts
        self._uncounted = self.drops.uncounted_attempts
        self._running = self.drops.running
        self._border = self.drops.border
        self._pending_inputs = self.drops.pending_inputs
        self._pending_consumers = self.drops.pending_consumers
        self._settle = self.drops.settle
        self._start = self.drops.start
        self._streams = self.streaming.streams
        self._readers = self.streaming.readers
        self._actions: list[Action] = []
        self._work: list[tuple[int, int, int, frozenset[int]]] = []
        """Drops to settle: drop, state, cause, and the outputs that an application chose to skip."""
        self._reset: frozenset[int] = _NONE
        """Drops that had completed when the session began, and complete again."""
        self._is_over = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            Begin: self._on_begin,
            Finished: self._on_finished,
            Failed: self._on_failed,
            Assembled: self._on_assembled,
            Opened: lambda event: self._act_or_refuse(self.streaming.on_opened(event)),
            Withdrawn: lambda event: self._act_or_refuse(self.streaming.on_withdrawn(event)),
            Reported: self._on_reported,
            Lost: self._on_lost,
            Cancel: self._on_cancel,
            CancelDrop: self._on_cancel_drop,
            Pause: lambda _: self._switch(SessionState.RUNNING, SessionState.PAUSED),
            Continue: lambda _: self._switch(SessionState.PAUSED, SessionState.RUNNING),
            Stopped: lambda _: self._act_or_refuse(None),
            Abandon: lambda _: self._act_or_refuse(None),
        }

    def handle(self, events: Iterable[Event]) -> list[Action]:
        """Process events, and return the actions to carry out, in order.

        Events about attempts that are not current, or that come after the end, are refused: counted, and ignored.
        """
        for event in events:
            if self._is_over:
                self.refused += 1
                continue
            self._handlers[type(event)](event)
            if self._work:
                self._propagate()
            drops = self.drops
            if not drops.unsettled and not drops.unsettled_remote and self.status in _GOING:
                self._end(SessionState.FAILED if drops.failed_leaves else SessionState.FINISHED)
        actions, self._actions = self._actions, []
        return actions

    def next_attempt(self, drop: int, failure: Failure) -> NextAttempt:
        """Return the step that follows if the current attempt of a drop fails with `failure`."""
        return decide_next_attempt(
            failure,
            tried=self.drops.attempt(drop) - self._uncounted.get(drop, 0),
            tries=self.graph.templates[self._template[drop]].tries,
            faults=self.drops.faults.get(drop, 0),
            retries=self._infrastructure_retries,
        )

    # One handler per event.

    def _on_begin(self, event: Begin) -> None:
        if self.status is not SessionState.PRISTINE:
            self.refused += 1
            return
        self.status = SessionState.RUNNING
        if event.known is not None:
            self._take_over(event.known)
        roots = np.flatnonzero(np.diff(self.graph.predecessors.ptr) == 0)
        for drop in roots.tolist():
            if drop not in self._remote and self._states[drop] == _INITIALIZED:
                self._start(drop)
                self._actions.append(Run(drop, self._attempts.get(drop, 1)))

    def _on_finished(self, event: Finished) -> None:
        drop = event.drop
        if not self._counts_now(drop, event.attempt):
            self.refused += 1
            return
        self._running.remove(drop)
        if event.skipped:
            self.drops.skipped_outputs[drop] = event.skipped
        self._work.append((drop, _COMPLETED, NO_CAUSE, frozenset(event.skipped) if event.skipped else _NONE))

    def _on_failed(self, event: Failed) -> None:
        drop, attempt = event.drop, event.attempt
        if not self._counts_now(drop, attempt):
            self.refused += 1
            return
        following = self.next_attempt(drop, event.failure)
        if following is NextAttempt.NONE:
            self._running.remove(drop)
            self._work.append((drop, _ERROR, drop, _NONE))
            return
        if self._streams:
            self._actions += self.streaming.on_retry(drop)
        delay = 0.0
        if following is NextAttempt.TRY:
            self._attempts[drop] = attempt + 1
        else:
            self.drops.repeat(drop)
        if following is NextAttempt.AFTER_FAULT:
            faults = self.drops.faults[drop] = self.drops.faults.get(drop, 0) + 1
            delay = fault_delay(faults, event.failure)
            if event.failure.code == OutOfMemoryError.code:
                self.drops.memory_faults[drop] = self.drops.memory_faults.get(drop, 0) + 1
        if not (self.drops.has_known_states and self._awaits_inputs(drop)):
            self._actions.append(Run(drop, attempt + 1, delay))

    def _awaits_inputs(self, app: int) -> bool:
        """Let an application wait for inputs that were lost while it ran; return whether it needs any."""
        template, inputs = self.graph.templates[self._template[app]], self._pred_ptr[app + 1] - self._pred_ptr[app]
        needed = effective_inputs(template.effective_inputs, inputs)
        reports = known_reports(self.graph, self.drops, self._reset, app)
        if len(reports) >= needed:
            return False
        self.drops.wait_again(app, needed)
        for state, cause in reports:
            self._report_to_app(app, state, cause)
        return True

    def _on_assembled(self, event: Assembled) -> None:
        drop = event.drop
        is_app = self._app[self._template[drop]]
        is_busy = drop in self._running or self.streaming.open_attempt(drop)
        if self._states[drop] != _WRITING or is_app or is_busy:
            self.refused += 1
        elif event.failure is None:
            self._work.append((drop, _COMPLETED, NO_CAUSE, _NONE))
        else:
            self._work.append((drop, _ERROR, drop, _NONE))

    def _on_reported(self, event: Reported) -> None:
        drop, state = event.drop, int(event.state)
        if drop not in self._remote or self._states[drop] > _WRITING or state <= _WRITING:
            self.refused += 1
            return
        skipped = frozenset(event.skipped) if event.skipped else _NONE
        self._work.append((drop, state, event.cause, skipped))

    def _on_lost(self, _: Lost) -> None:
        for drop in sorted(self._running):
            self._actions.append(Abort(drop, self.drops.attempt(drop)))
        self.streaming.clear()
        self._abandon(SessionState.FAILED)

    def _on_cancel(self, event: Cancel) -> None:
        """Stop attempts that run, and wait for their ends. Drops without an attempt are CANCELLED now."""
        for drop in sorted(self._running):
            self._actions.append(Abort(drop, self.drops.attempt(drop), event.grace))
        if self.status is SessionState.CANCELLING:
            return
        self.status = SessionState.CANCELLING
        self.streaming.clear()
        self.drops.cancel_waiting()
        self._handlers = {
            **dict.fromkeys(self._handlers, lambda _: self._act_or_refuse(None)),
            Finished: self._on_end_of_attempt,
            Failed: self._on_end_of_attempt,
            Stopped: self._on_stopped,
            Cancel: self._on_cancel,
            Abandon: lambda _: self._abandon(SessionState.CANCELLED),
        }
        self._on_stopped(Stopped(()))

    def _on_cancel_drop(self, event: CancelDrop) -> None:
        for drop in event.drops:
            if drop in self._remote or self._states[drop] > _WRITING:
                self.refused += 1
                continue
            if drop in self._running:
                self._running.remove(drop)
                self._actions.append(Abort(drop, self.drops.attempt(drop), event.grace))
                self.streaming.stop(drop)
            self.drops.cancel(drop)
            self._work.append((drop, _CANCELLED, drop, _NONE))
            self._propagate()  # it may settle a drop that comes later in the event

    def _switch(self, before: SessionState, after: SessionState) -> None:
        if self.status is before:
            self.status = after
        else:
            self.refused += 1

    def _on_end_of_attempt(self, event: Finished | Failed) -> None:
        """Handle the end of an attempt in a session that is cancelled: its result does not count."""
        if self.drops.is_current(event.drop, event.attempt):
            self._on_stopped(Stopped((event.drop,)))
        else:
            self.refused += 1

    def _on_stopped(self, event: Stopped) -> None:
        for drop in event.drops:
            if drop in self._running:
                self._running.remove(drop)
                self._settle(drop, _CANCELLED, NO_CAUSE)
            else:
                self.refused += 1
        if not self._running:
            self._end(SessionState.CANCELLED)

    # A session that continues.

    def _take_over(self, known: KnownStates) -> None:
        """Set the known states of the drops, and report to every drop that is not settled its settled inputs."""
        self.drops.restore(self.graph, known)
        states = np.frombuffer(known.states, dtype=np.uint8)
        for drop in np.flatnonzero((states > _WRITING) & (np.frombuffer(self._border, dtype=np.uint8) > 0)).tolist():
            self._publish(drop, states[drop], known.causes.get(drop, NO_CAUSE), known.skipped.get(drop, ()))
        ended = np.diff(self.graph.successors.ptr) == 0
        unused = (states == _COMPLETED) & ~ended & (np.frombuffer(self._pending_consumers, dtype=np.int32) == 0)
        is_data = self.graph.kinds[self.graph.template] == np.uint8(Kind.DATA)
        self._actions += [
            Release(drop) for drop in np.flatnonzero(unused & is_data).tolist() if drop not in self._remote
        ]
        for drop in known.running:
            self._pending_inputs[drop] = 0
        self._reset = frozenset(known.reset)
        for drop in np.flatnonzero(states == _INITIALIZED).tolist():
            report = self._report_to_app if self._app[self._template[drop]] else self._report_to_data
            for state, cause in known_reports(self.graph, self.drops, self._reset, drop):
                report(drop, state, cause)

    # What handlers share.

    def _counts_now(self, drop: int, attempt: int) -> bool:
        """Return whether the end of an attempt counts: it is current, and does not run ahead of its inputs."""
        if drop not in self._running or self._attempts.get(drop, 1) != attempt:
            return False
        return not self._readers or not self.streaming.is_ahead(drop)

    def _act_or_refuse(self, actions: list[Action] | None) -> None:
        if actions is None:
            self.refused += 1
        else:
            self._actions += actions

    def _abandon(self, status: SessionState) -> None:
        self._running.clear()
        self.drops.cancel_waiting()
        self._end(status)

    def _end(self, status: SessionState) -> None:
        self.status = status
        self._is_over = True
        self._actions.append(Finish(status))

    # How a settled drop changes its neighbours.

    def _propagate(self) -> None:
        """Settle the drops of the work list, and report each to its successors, which may add to the list."""
        work = self._work
        while work:
            drop, state, cause, skipped = work.pop()
            self._settle(drop, state, cause)
            if self._streams and drop in self._streams:
                self._actions += self.streaming.on_settled(drop, state)
            if self._border[drop]:
                self._publish(drop, state, cause, skipped)
            start, stop = self._succ_ptr[drop], self._succ_ptr[drop + 1]
            if self._app[self._template[drop]]:
                self._free_inputs(drop)
                for target in self._succ[start:stop]:
                    self._report_to_data(target, _SKIPPED if target in skipped else state, cause)
            else:
                for target in self._succ[start:stop]:
                    self._report_to_app(target, state, cause)
                if state == _COMPLETED and start != stop and not self._pending_consumers[drop]:
                    self._actions.append(Release(drop))

    def _publish(self, drop: int, state: int, cause: int, skipped: Iterable[int]) -> None:
        known = cause if state in _FAILED else NO_CAUSE
        self._actions.append(Publish(drop, _STATES[state], known, self.drops.attempt(drop), tuple(skipped)))

    def _report_to_data(self, drop: int, state: int, cause: int) -> None:
        if self._states[drop] > _WRITING or drop in self._remote:
            return
        if state == _COMPLETED and self._pred_ptr[drop + 1] - self._pred_ptr[drop] == 1:
            self._pending_inputs[drop] = 0
            self._work.append((drop, _COMPLETED, NO_CAUSE, _NONE))
            return
        drops = self.drops
        drops.count_input(drop, state, cause)
        if self._pending_inputs[drop]:
            return
        decision = decide_data(
            errors=drops.failed_inputs.get(drop, 0),
            skips=drops.skipped_inputs.get(drop, 0),
            producers=self._pred_ptr[drop + 1] - self._pred_ptr[drop],
            block_skip=self.graph.templates[self._template[drop]].block_skip,
        )
        if decision is DropState.COMPLETED:
            drops.move(drop, _WRITING)
            self._actions.append(Assemble(drop))
        else:
            self._work.append((drop, int(decision), drops.causes.get(drop, NO_CAUSE), _NONE))

    def _report_to_app(self, drop: int, state: int, cause: int) -> None:
        # An application that has run already, on some of its inputs, ignores the others.
        if self._states[drop] != _INITIALIZED and not (self._readers and self.streaming.is_ahead(drop)):
            return
        if drop in self._remote or not self._pending_inputs[drop]:
            return
        drops = self.drops
        drops.count_input(drop, state, cause)
        if self._pending_inputs[drop]:
            if self._readers:
                self.streaming.run_ahead(drop, self._actions)
            return
        if self._states[drop] != _INITIALIZED:
            # It runs ahead, and all inputs have completed: otherwise it would have started over.
            self._actions += self.streaming.accept(drop)
            return
        errors, skips = drops.failed_inputs.get(drop, 0), drops.skipped_inputs.get(drop, 0)
        if errors or skips:
            template = self.graph.templates[self._template[drop]]
            inputs = self._pred_ptr[drop + 1] - self._pred_ptr[drop]
            decision = decide_app(
                errors=errors,
                skips=skips,
                effective=effective_inputs(template.effective_inputs, inputs),
                threshold=template.error_threshold,
                block_skip=template.block_skip,
            )
            cause = drops.causes.pop(drop, NO_CAUSE)
            if decision is not DropState.WRITING:
                self._work.append((drop, int(decision), cause, _NONE))
                return
        self._start(drop)
        self._actions.append(Run(drop, self._attempts.get(drop, 1)))

    def _free_inputs(self, app: int) -> None:
        """Note that a settled application does not need its inputs any more; release inputs without other consumers."""
        pending = self._pending_consumers
        for data in self._pred[self._pred_ptr[app] : self._pred_ptr[app + 1]]:
            pending[data] -= 1
            if not pending[data] and self._states[data] == _COMPLETED:
                self._actions.append(Release(data))
