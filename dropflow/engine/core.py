"""The core of a session: `handle(events) -> actions`, and the state of every drop behind that one door.

It does no I/O and asks nobody anything: events say what happened, actions say what should be done. It is owned by one
thread. Changes travel along a work list, never by recursion, so a chain of a million skipped drops is no deeper than
one of two.

The state of a drop is nine bytes in three columns; what few drops have (errors, skips, causes, later attempts) is kept
in dictionaries beside them.

Terms: a drop is *settled* when it reaches a terminal state, and then *tells* its successors. For a data drop `_awaited`
counts the producers that have not told it yet, for an application the effective inputs. `_unread` counts the consumers
of a data drop that are not settled yet: at zero its content may go.

Streaming changes when applications run, and never what comes of them. A data drop is *open* while its producer writes
it and consumers may read what is there. An application runs *ahead* when each of its inputs is complete or open to it;
its result, failure or not, counts when they all are complete. When one of them ends otherwise, or its producer has to
try again, the application starts over as if it had not begun, with a new attempt that does not count as one of its
tries.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dropflow.engine.events import (
    Abort,
    Accept,
    Action,
    Assemble,
    Assembled,
    Begin,
    Cancel,
    Event,
    Failed,
    Finish,
    Finished,
    Lost,
    Opened,
    Release,
    Reported,
    Run,
    Tell,
    Withdraw,
    Withdrawn,
)
from dropflow.engine.rules import decide_app, decide_data, effective_inputs, may_retry
from dropflow.graph.order import refuse_cycle
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState, SessionState

__all__ = ["Core"]

_INITIALIZED, _WRITING = int(DropState.INITIALIZED), int(DropState.WRITING)
_COMPLETED, _ERROR = int(DropState.COMPLETED), int(DropState.ERROR)
_CANCELLED, _SKIPPED = int(DropState.CANCELLED), int(DropState.SKIPPED)
_STATES = tuple(DropState)
_NO_CAUSE = -1
_NONE: frozenset[int] = frozenset()


class Core:
    """State and decisions of one session.

    Parameters
    ----------
    graph : PhysicalGraph
        What is executed.
    remote : collection of int
        Drops that live on other nodes. They are never run here; their states arrive as `Reported` events. They do not
        count for the statistics, but the session goes on until they are settled too: then nobody elsewhere needs what
        is here.

    Raises
    ------
    BadGraphError
        The graph has a cycle; the drops on it are named.
    """

    # More attributes than fit into what the interpreter shares between instances would cost a tenth of the speed.
    __slots__ = (
        "_abroad",
        "_actions",
        "_ahead",
        "_announced",
        "_app",
        "_attempts",
        "_awaited",
        "_border",
        "_causes",
        "_counts",
        "_errors",
        "_handlers",
        "_open",
        "_opened",
        "_over",
        "_pred",
        "_pred_ptr",
        "_readable",
        "_restarts",
        "_running",
        "_skips",
        "_state",
        "_streams",
        "_succ",
        "_succ_link",
        "_succ_ptr",
        "_template",
        "_unread",
        "_withdrawn",
        "_work",
        "failed_leaves",
        "graph",
        "refused",
        "remote",
        "status",
    )

    def __init__(self, graph: PhysicalGraph, *, remote: Iterable[int] = (), streams: Iterable[int] = ()) -> None:
        refuse_cycle(graph)
        self.graph = graph
        self.remote = frozenset(remote)
        self.status = SessionState.PRISTINE
        self.refused = 0
        """Events about attempts that nobody waits for any more."""
        self.failed_leaves = 0
        templates = graph.templates
        drops = graph.drops
        self._app = [template.kind is Kind.APP for template in templates]
        self._template = np.ascontiguousarray(graph.template).data
        self._succ_ptr = np.ascontiguousarray(graph.successors.ptr).data
        self._succ = np.ascontiguousarray(graph.successors.neighbour).data
        self._pred_ptr = np.ascontiguousarray(graph.predecessors.ptr).data
        self._pred = np.ascontiguousarray(graph.predecessors.neighbour).data
        self._state = bytearray(drops)
        self._awaited = self._count_awaited()
        self._unread = array("i", np.diff(graph.successors.ptr).astype(np.int32).tobytes())
        self._errors: dict[int, int] = {}
        self._skips: dict[int, int] = {}
        self._causes: dict[int, int] = {}
        self._attempts: dict[int, int] = {}
        self._running: set[int] = set()
        self._counts = [[0] * len(DropState) for _ in templates]
        for row, count in enumerate(np.bincount(graph.template, minlength=len(templates)).tolist()):
            self._counts[row][_INITIALIZED] = count
        for drop in self.remote:
            self._counts[self._template[drop]][_INITIALIZED] -= 1
        self._open = drops - len(self.remote)
        self._abroad = len(self.remote)
        self._border = self._find_border()
        self._streams = self._find_streams(frozenset(streams))
        self._succ_link = np.ascontiguousarray(graph.successors.link).data
        self._opened: dict[int, int] = {}
        self._announced: dict[int, int] = {}
        self._withdrawn: dict[int, int] = {}
        self._readable: dict[int, int] = {}
        self._ahead: set[int] = set()
        self._restarts: dict[int, int] = {}
        self._work: list[tuple[int, int, int, frozenset[int]]] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            Begin: self._on_begin,
            Finished: self._on_finished,
            Failed: self._on_failed,
            Assembled: self._on_assembled,
            Opened: self._on_opened,
            Withdrawn: self._on_withdrawn,
            Reported: self._on_reported,
            Lost: self._on_lost,
            Cancel: self._on_cancel,
        }
        self._actions: list[Action] = []
        self._over = False

    def _count_awaited(self) -> "array[int]":
        graph = self.graph
        awaited = np.diff(graph.predecessors.ptr).astype(np.int32)
        for row, template in enumerate(graph.templates):
            if template.kind is Kind.APP and template.effective_inputs > 0:
                mine = graph.template == row
                wanted = template.effective_inputs
                awaited[mine] = np.where(awaited[mine] >= wanted, wanted, awaited[mine])
        return array("i", awaited.tobytes())

    def _find_streams(self, links: frozenset[int]) -> frozenset[int]:
        """Those of `links` whose applications wait for all of their inputs: the others act on what is complete."""
        graph = self.graph
        return frozenset(link for link in links if graph.templates[graph.links[link].target].effective_inputs <= 0)

    def _find_border(self) -> bytearray:
        """Which local drops have a neighbour on another node."""
        out = self.graph.successors
        elsewhere = np.zeros(self.graph.drops, dtype=np.bool_)
        elsewhere[list(self.remote)] = True
        source = np.repeat(np.arange(self.graph.drops, dtype=np.int32), np.diff(out.ptr))
        border = np.zeros(self.graph.drops, dtype=np.uint8)
        border[source[elsewhere[out.neighbour]]] = 1
        border[out.neighbour[elsewhere[source]]] = 1
        border[elsewhere] = 0
        return bytearray(border.tobytes())

    # What others may know.

    @property
    def counts(self) -> Sequence[Sequence[int]]:
        """Number of local drops by template and state; rows as the graph's templates, columns as `DropState`."""
        return self._counts

    @property
    def running(self) -> frozenset[int]:
        """Drops whose attempt is with a runner."""
        return frozenset(self._running)

    @property
    def in_flight(self) -> int:
        """Number of attempts that are with a runner."""
        return len(self._running)

    @property
    def open(self) -> int:
        """Number of local drops that are not settled."""
        return self._open

    @property
    def abroad(self) -> int:
        """Number of drops on other nodes that are not settled, as far as this node was told."""
        return self._abroad

    @property
    def states(self) -> bytes:
        """State of every drop, one byte each: a picture that does not change."""
        return bytes(self._state)

    @property
    def causes(self) -> dict[int, int]:
        """The drop that started it, for every drop in ERROR."""
        state = self._state
        return {drop: cause for drop, cause in self._causes.items() if state[drop] == _ERROR}

    def is_border(self, drop: int) -> bool:
        """Whether a drop lives here and has a neighbour on another node."""
        return bool(self._border[drop])

    def state(self, drop: int) -> DropState:
        """State of a drop."""
        return _STATES[self._state[drop]]

    def cause(self, drop: int) -> int | None:
        """The drop whose failure put this one in ERROR; None for any other state."""
        return self._causes.get(drop) if self._state[drop] == _ERROR else None

    def attempt(self, drop: int) -> int:
        """Number of the current, or last, attempt of a drop, from 1."""
        return self._attempts.get(drop, 1)

    def is_current(self, drop: int, attempt: int) -> bool:
        """Whether the result of this attempt is waited for."""
        return drop in self._running and self._attempts.get(drop, 1) == attempt

    def is_ahead(self, drop: int) -> bool:
        """Whether the attempt of an application reads inputs that are not complete, so that its result must wait."""
        return drop in self._ahead

    def restarts(self, drop: int) -> int:
        """How many attempts of an application were stopped because what they read was withdrawn."""
        return self._restarts.get(drop, 0)

    def opened(self, drop: int) -> int:
        """Attempt of the producer whose output consumers may read while it grows; 0 if the drop is not open."""
        return self._opened.get(drop, 0)

    def readable(self, drop: int) -> int:
        """How many inputs of an application are open to it."""
        return self._readable.get(drop, 0)

    def awaited(self, drop: int) -> int:
        """How many producers, or effective inputs, have not reported to a drop yet."""
        return self._awaited[drop]

    def told(self, drop: int) -> tuple[int, int]:
        """How many errors and how many skips a drop has been told of."""
        return self._errors.get(drop, 0), self._skips.get(drop, 0)

    # The one door.

    def handle(self, events: Iterable[Event]) -> list[Action]:
        """Take in what happened; answer what should be done, in this order.

        Events about attempts that are not current, or that come after the end, are refused: counted, and ignored.
        """
        for event in events:
            if self._over:
                self.refused += 1
                continue
            self._handlers[type(event)](event)
            if self._work:
                self._spread()
            if not self._open and not self._abroad and self.status is SessionState.RUNNING:
                self._end(SessionState.FAILED if self.failed_leaves else SessionState.FINISHED)
        actions, self._actions = self._actions, []
        return actions

    def _on_begin(self, _: Begin) -> None:
        if self.status is not SessionState.PRISTINE:
            self.refused += 1
            return
        self.status = SessionState.RUNNING
        roots = np.flatnonzero(np.diff(self.graph.predecessors.ptr) == 0)
        for drop in roots.tolist():
            if drop not in self.remote:
                self._run(drop, 1)

    def _on_finished(self, event: Finished) -> None:
        drop = event.drop
        if not self.is_current(drop, event.attempt) or drop in self._ahead:
            self.refused += 1
            return
        self._running.remove(drop)
        self._work.append((drop, _COMPLETED, _NO_CAUSE, frozenset(event.skipped) if event.skipped else _NONE))

    def _on_failed(self, event: Failed) -> None:
        drop = event.drop
        if not self.is_current(drop, event.attempt) or drop in self._ahead:
            self.refused += 1
            return
        tries = self.graph.templates[self._template[drop]].tries
        if may_retry(event.failure, attempt=event.attempt - self._restarts.get(drop, 0), tries=tries):
            if self._opened or self._announced:
                self._withdraw(self._succ[self._succ_ptr[drop] : self._succ_ptr[drop + 1]].tolist())
            self._attempts[drop] = event.attempt + 1
            self._actions.append(Run(drop, event.attempt + 1))
            return
        self._running.discard(drop)
        self._work.append((drop, _ERROR, drop, _NONE))

    def _on_assembled(self, event: Assembled) -> None:
        drop = event.drop
        is_app = self._app[self._template[drop]]
        if self._state[drop] != _WRITING or is_app or drop in self._running or drop in self._opened:
            self.refused += 1
            return
        if event.failure is None:
            self._work.append((drop, _COMPLETED, _NO_CAUSE, _NONE))
        else:
            self._work.append((drop, _ERROR, drop, _NONE))

    def _on_reported(self, event: Reported) -> None:
        drop, state = event.drop, int(event.state)
        if drop not in self.remote or self._state[drop] > _WRITING or state <= _WRITING:
            self.refused += 1
            return
        skipped = frozenset(event.skipped) if event.skipped else _NONE
        self._work.append((drop, state, event.cause, skipped))

    def _on_opened(self, event: Opened) -> None:
        drop, producer, attempt = event.drop, event.producer, event.attempt
        is_here, is_told = drop not in self.remote, producer < 0 or producer in self.remote
        producers = self._pred_ptr[drop + 1] - self._pred_ptr[drop]
        if (
            self._state[drop] > _WRITING
            or attempt <= max(self._withdrawn.get(drop, 0), self._opened.get(drop, 0))
            or (producers != 1 and (is_here or not is_told))
            or not (is_told or self.is_current(producer, attempt))
        ):
            self.refused += 1
            return
        if not is_here and not is_told:
            # The node that it lives on opens it, for its consumers here too.
            self._announced[drop] = attempt
            self._actions.append(Tell(drop, DropState.WRITING, _NO_CAUSE, attempt))
            return
        self._withdraw(self._retract(drop))  # of an earlier attempt, if nobody has said yet that it counts no more
        self._opened[drop] = attempt
        self._move(drop, _WRITING)
        if self._border[drop]:
            self._actions.append(Tell(drop, DropState.WRITING, _NO_CAUSE, attempt))
        for app in self._readers(drop):
            self._readable[app] = self._readable.get(app, 0) + 1
            self._look_ahead(app)

    def _on_withdrawn(self, event: Withdrawn) -> None:
        drop = event.drop
        if self._state[drop] > _WRITING or event.attempt <= self._withdrawn.get(drop, 0):
            self.refused += 1
            return
        self._withdrawn[drop] = event.attempt
        if self._opened.get(drop, event.attempt + 1) <= event.attempt:
            self._withdraw(self._retract(drop))

    def _on_cancel(self, _: Cancel) -> None:
        self._give_up()
        self._end(SessionState.CANCELLED)

    def _on_lost(self, _: Lost) -> None:
        self._give_up()
        self._end(SessionState.FAILED)

    def _give_up(self) -> None:
        for drop in sorted(self._running):
            self._actions.append(Abort(drop, self.attempt(drop)))
        self._running.clear()
        self._ahead.clear()
        self._opened.clear()
        self._readable.clear()
        state, counts, template = self._state, self._counts, self._template
        for drop in range(len(state)):
            if state[drop] <= _WRITING and drop not in self.remote:
                counts[template[drop]][state[drop]] -= 1
                counts[template[drop]][_CANCELLED] += 1
                state[drop] = _CANCELLED
        self._open = 0

    def _end(self, status: SessionState) -> None:
        self.status = status
        self._over = True
        self._actions.append(Finish(status))

    def _run(self, drop: int, attempt: int) -> None:
        # What `_move` does, spelled out: every drop that runs comes through here, and all of them live here.
        counts = self._counts[self._template[drop]]
        counts[self._state[drop]] -= 1
        counts[_WRITING] += 1
        self._state[drop] = _WRITING
        self._running.add(drop)
        self._actions.append(Run(drop, attempt))

    def _move(self, drop: int, state: int) -> None:
        """Change the state of a drop, and the counts if it lives here."""
        if drop not in self.remote:
            counts = self._counts[self._template[drop]]
            counts[self._state[drop]] -= 1
            counts[state] += 1
        self._state[drop] = state

    # Streaming.

    def _readers(self, drop: int) -> list[int]:
        """The applications here that may read a data drop while it is written; one with two such ports twice."""
        start, stop = self._succ_ptr[drop], self._succ_ptr[drop + 1]
        pairs = zip(self._succ[start:stop], self._succ_link[start:stop], strict=True)
        return [app for app, link in pairs if link in self._streams and app not in self.remote]

    def _look_ahead(self, app: int) -> None:
        """Run an application ahead if all of its inputs are complete, or open to it."""
        if (
            self._state[app] == _INITIALIZED
            and 0 < self._awaited[app] == self._readable.get(app, 0)
            and app not in self._errors
            and app not in self._skips
        ):
            self._ahead.add(app)
            self._run(app, self.attempt(app))

    def _shut(self, drop: int) -> list[int]:
        """An open drop is open no more; its readers."""
        del self._opened[drop]
        readers = self._readers(drop)
        for app in readers:
            self._readable[app] -= 1
            if not self._readable[app]:
                del self._readable[app]
        return readers

    def _end_stream(self, drop: int, state: int) -> None:
        """An open drop is settled."""
        attempt = self._opened[drop]
        readers = self._shut(drop)
        if state != _COMPLETED:
            self._withdraw(self._start_over(readers))
            self._actions.append(Withdraw(drop, attempt))

    def _retract(self, drop: int) -> list[int]:
        """An open drop is as if nothing had been written; what else is not written any more because of that."""
        attempt = self._opened.get(drop)
        if attempt is None:
            return []
        self._move(drop, _INITIALIZED)
        if self._border[drop]:
            self._actions.append(Tell(drop, DropState.INITIALIZED, _NO_CAUSE, attempt))
        written = self._start_over(self._shut(drop))
        self._actions.append(Withdraw(drop, attempt))
        return written

    def _withdraw(self, drops: list[int]) -> None:
        """What the producers of these drops have written counts no more; `drops` is used up."""
        while drops:
            drop = drops.pop()
            attempt = self._announced.pop(drop, None)
            if attempt is not None:
                self._actions.append(Tell(drop, DropState.INITIALIZED, _NO_CAUSE, attempt))
            drops += self._retract(drop)

    def _start_over(self, apps: list[int]) -> list[int]:
        """Stop those of `apps` that run ahead, as if they had not begun; the drops that they write."""
        written: list[int] = []
        for app in apps:
            if app in self._ahead:
                self._ahead.discard(app)
                self._running.discard(app)
                attempt = self.attempt(app)
                self._actions.append(Abort(app, attempt))
                self._attempts[app] = attempt + 1
                self._restarts[app] = self._restarts.get(app, 0) + 1
                self._move(app, _INITIALIZED)
                written += self._succ[self._succ_ptr[app] : self._succ_ptr[app + 1]]
        return written

    # How changes spread.

    def _spread(self) -> None:
        work = self._work
        while work:
            drop, state, cause, skipped = work.pop()
            self._settle(drop, state, cause)
            if drop in self._opened:
                self._end_stream(drop, state)
            if self._border[drop]:
                told = cause if state == _ERROR else _NO_CAUSE
                self._actions.append(Tell(drop, _STATES[state], told, self.attempt(drop), tuple(skipped)))
            start, stop = self._succ_ptr[drop], self._succ_ptr[drop + 1]
            if self._app[self._template[drop]]:
                self._free_inputs(drop)
                for target in self._succ[start:stop]:
                    self._tell_data(target, _SKIPPED if target in skipped else state, cause)
            else:
                for target in self._succ[start:stop]:
                    self._tell_app(target, state, cause)
                if not self._unread[drop] and start != stop:
                    self._release(drop)

    def _settle(self, drop: int, state: int, cause: int) -> None:
        if state == _ERROR:
            self._causes[drop] = cause
        if drop in self.remote:
            self._announced.pop(drop, None)
            self._state[drop] = state
            self._abroad -= 1
            return
        counts = self._counts[self._template[drop]]
        counts[self._state[drop]] -= 1
        counts[state] += 1
        self._state[drop] = state
        self._open -= 1
        if state == _ERROR and self._succ_ptr[drop] == self._succ_ptr[drop + 1]:
            self.failed_leaves += 1

    def _note(self, drop: int, state: int, cause: int) -> None:
        """Count one report to `drop`; the first error that reaches a drop is its cause."""
        self._awaited[drop] -= 1
        if state == _SKIPPED:
            self._skips[drop] = self._skips.get(drop, 0) + 1
        elif state != _COMPLETED:
            self._errors[drop] = self._errors.get(drop, 0) + 1
            self._causes.setdefault(drop, cause)

    def _tell_data(self, drop: int, state: int, cause: int) -> None:
        if self._state[drop] > _WRITING or drop in self.remote:
            return
        if state == _COMPLETED and self._pred_ptr[drop + 1] - self._pred_ptr[drop] == 1:
            self._awaited[drop] = 0
            self._work.append((drop, _COMPLETED, _NO_CAUSE, _NONE))
            return
        self._note(drop, state, cause)
        if self._awaited[drop]:
            return
        producers = self._pred_ptr[drop + 1] - self._pred_ptr[drop]
        decision = decide_data(
            errors=self._errors.get(drop, 0),
            skips=self._skips.get(drop, 0),
            producers=producers,
            block_skip=self.graph.templates[self._template[drop]].block_skip,
        )
        if decision is DropState.COMPLETED:
            self._move(drop, _WRITING)
            self._actions.append(Assemble(drop))
        else:
            self._work.append((drop, int(decision), self._causes.get(drop, _NO_CAUSE), _NONE))

    def _tell_app(self, drop: int, state: int, cause: int) -> None:
        # An application that has acted already, on fewer inputs than it has, ignores the rest.
        if self._state[drop] != _INITIALIZED and drop not in self._ahead:
            return
        if drop in self.remote or not self._awaited[drop]:
            return
        self._note(drop, state, cause)
        if self._awaited[drop]:
            if self._readable:
                self._look_ahead(drop)
            return
        if self._state[drop] != _INITIALIZED:
            # All of them have completed, or it would have started over.
            self._ahead.discard(drop)
            self._actions.append(Accept(drop, self.attempt(drop)))
            return
        errors, skips = self._errors.get(drop, 0), self._skips.get(drop, 0)
        if not errors and not skips:
            self._run(drop, self._attempts.get(drop, 1))
            return
        template = self.graph.templates[self._template[drop]]
        decision = decide_app(
            errors=errors,
            skips=skips,
            effective=effective_inputs(template.effective_inputs, self._pred_ptr[drop + 1] - self._pred_ptr[drop]),
            threshold=template.error_threshold,
            block_skip=template.block_skip,
        )
        if decision is DropState.WRITING:
            self._causes.pop(drop, None)
            self._run(drop, self.attempt(drop))
        else:
            self._work.append((drop, int(decision), self._causes.pop(drop, _NO_CAUSE), _NONE))

    def _free_inputs(self, app: int) -> None:
        unread = self._unread
        for data in self._pred[self._pred_ptr[app] : self._pred_ptr[app + 1]]:
            unread[data] -= 1
            if not unread[data] and self._state[data] == _COMPLETED:
                self._release(data)

    def _release(self, drop: int) -> None:
        if self._state[drop] == _COMPLETED:
            self._actions.append(Release(drop))
