"""A session: the owner of a core, and the order in which decisions become effects.

It drains the inbox, turns what came into events, passes them to the core, and carries the actions out. The order
matters in one place: contents are committed before the core sees that an attempt has finished, so a consumer never
starts on data that are not there. A leaf is written to ``results/`` when it is committed: if that fails, the attempt
fails. Results of attempts that are no longer current are refused before anything is committed, so a commit happens
exactly once. The result of an attempt that ran ahead of its inputs waits until they are complete.

Ready drops wait as integers. Their tasks are built when the runner has room for them.

`Session.run` gives a session a thread of its own. A driver with other work in the same thread, such as a simulation,
calls `begin`, `step` until the session `is_over`, `close` and `result` itself. Another session object, with other
drops, can continue a session that is frozen in the same process, see `hand_over`.
"""

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from dropflow.clock import Clock
from dropflow.errors import DropflowError
from dropflow.execution.attempt_times import AttemptTimes
from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import ContentTable, OpenStreams, OutgoingEvents, kept_drops
from dropflow.execution.decisions.continuation import Continuation, FrozenSession
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.drop_rules import INFRASTRUCTURE_RETRIES
from dropflow.execution.decisions.events import (
    Abandon,
    Abort,
    Accept,
    Action,
    Assemble,
    Assembled,
    Begin,
    Cancel,
    CancelDrop,
    Continue,
    Event,
    Finish,
    Lost,
    Pause,
    Publish,
    Release,
    Run,
    Withdraw,
)
from dropflow.execution.decisions.invariants import check
from dropflow.execution.failure_table import FailureTable, Fault
from dropflow.execution.given_attempts import GivenAttempts
from dropflow.execution.handover import Handover
from dropflow.execution.inbox import Inbox, OwnerCall
from dropflow.execution.interfaces import ContentRepository, Exchange, Runner
from dropflow.execution.journal import Journal
from dropflow.execution.ready_attempts import ReadyRuns, TaskBuilder
from dropflow.execution.session_inputs import SessionInput, SessionInputs
from dropflow.execution.statistics import (
    Attempts,
    FailureReport,
    SessionResult,
    Statistics,
    StatisticsPublisher,
    applications_run,
    snapshot,
    totals,
)
from dropflow.failure import Failure
from dropflow.formatting import plural
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.states import SessionState
from dropflow.stopping import GRACE_SECONDS

T = TypeVar("T")
_CANCELLED_STATES = (SessionState.CANCELLING, SessionState.CANCELLED)


# Observers of a session. They cost nothing when there are none, and cannot stop the session.


class Instrument:
    """Base class of observers: override methods. They are called in the session's thread, so they must be quick."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Called with each batch of events that the core has processed."""

    def on_actions(self, actions: Sequence[Action]) -> None:
        """Called with the actions that the core has returned for a batch of events."""

    def on_contents(self, contents: Mapping[int, Handle], seconds: Mapping[int, float]) -> None:
        """Called with contents that were committed, and the seconds of the attempts that wrote them here."""


class Instruments:
    """The instruments of one session. An instrument that raises is removed, and `complain` is called with a note."""

    def __init__(self, instruments: Sequence[Instrument], complain: Callable[[str], None]) -> None:
        self._instruments = list(instruments)
        self._complain = complain

    def __bool__(self) -> bool:
        return bool(self._instruments)

    def events(self, events: Sequence[Event]) -> None:
        """Pass events to all."""
        self._show(lambda instrument: instrument.on_events(events))

    def actions(self, actions: Sequence[Action]) -> None:
        """Pass actions to all."""
        self._show(lambda instrument: instrument.on_actions(actions))

    def contents(self, contents: Mapping[int, Handle], seconds: Mapping[int, float]) -> None:
        """Pass contents to all."""
        self._show(lambda instrument: instrument.on_contents(contents, seconds))

    def _show(self, call: Callable[[Instrument], None]) -> None:
        for instrument in tuple(self._instruments):
            try:
                call(instrument)
            except Exception as error:  # noqa: BLE001 - an observer must not stop the session, whatever it raises
                self._instruments.remove(instrument)
                self._complain(f"instrument {type(instrument).__name__} was removed, it raised {error!r}")


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The graph that a session executes, and settings of its execution.

    Attributes
    ----------
    graph : PhysicalGraph
        The graph.
    session : str
        Name of the session.
    directory : str
        Its directory, for reports.
    streams : collection of int
        Links whose data can be read by their consumers while it is written, see `dropflow.apps.template_cache`.
    chains : int32 array, shape (drops,), or None
        The application that follows each application in a chain that runs as one unit, from
        `dropflow.graph.physical.follower_column`.
    infrastructure_retries : int
        How many infrastructure faults each drop may have.
    until : float
        Walltime of the session, in seconds since the epoch; 0 for none. The runner starts nothing that ends later.
    retry_memory : float
        Factor by which the memory of a drop grows when an attempt had too little; 0 if the attempt is not repeated.
    """

    graph: PhysicalGraph
    session: str
    directory: str
    streams: Collection[int] = ()
    chains: IntColumn | None = None
    infrastructure_retries: int = INFRASTRUCTURE_RETRIES
    until: float = 0.0
    retry_memory: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The objects with which a session executes its graph: runner, storage, clock, other nodes.

    Attributes
    ----------
    repository : ContentRepository
        Owner of the contents of data drops.
    runner : Runner
        Runs attempts.
    clock : Clock
        Measures durations.
    inbox : Inbox or None
        Queue of the events of runner, exchange and other threads; a new one by default.
    exchange : Exchange or None
        The connection to the other nodes of the session; None if it has no other nodes.
    journal : Journal or None
        Gets every event; None for no journal. An entry that cannot be written now is written later. If it stays
        incomplete, the session gets a note and does not fail: results do not depend on the journal.
    times : AttemptTimes or None
        Records the times of attempts; None for no records.
    """

    repository: ContentRepository
    runner: Runner
    clock: Clock
    inbox: Inbox[SessionInput] | None = None
    exchange: Exchange | None = None
    journal: Journal | None = None
    times: AttemptTimes | None = None


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Observers and callbacks of a session.

    Attributes
    ----------
    instruments : sequence of Instrument
        The observers.
    on_statistics : callable or None
        Called in the session's thread with fresh `Statistics` now and then, and once at the end.
    on_idle : callable or None
        Called once, in the session's thread, when nothing runs and the remaining drops cannot end by the walltime, or
        when the walltime has passed. The session goes on, because other nodes may settle drops. If it is None, the
        session pauses and stops.
    on_settled : callable or None
        Called once, in the session's thread, when the session is paused and all drops of this node are settled, so that
        nothing happens here until other nodes go on.
    check_invariants : bool
        Walk the whole state after each batch; slow.
    """

    instruments: Sequence[Instrument] = ()
    on_statistics: Callable[[Statistics], None] | None = None
    on_idle: Callable[[], None] | None = None
    on_settled: Callable[[], None] | None = None
    check_invariants: bool = False


_UNWATCHED = Watch()


class Session:
    """Executes one graph.

    Parameters
    ----------
    work : Execution
        The graph that it executes, and settings.
    resources : Resources
        Where it executes: the runner, the directory, the journal.
    watch : Watch
        Its observers and callbacks.
    continuation : Continuation or None
        The states and contents from which a session continues; None for one that begins.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """

    # Too many attributes for CPython's key-sharing dict: attribute access is faster with `__slots__`.
    __slots__ = (
        "_began",
        "_check_invariants",
        "_clock",
        "_contents",
        "_continuation",
        "_exchange",
        "_given",
        "_has_begun",
        "_inputs",
        "_instruments",
        "_is_owned",
        "_journal",
        "_left_over",
        "_on_idle",
        "_on_settled",
        "_outgoing",
        "_owner_lock",
        "_ready",
        "_repository",
        "_statistics",
        "_stops_frozen",
        "_streams",
        "_work",
        "core",
        "failure_table",
        "graph",
        "has_given_up",
        "inbox",
        "is_frozen",
        "is_idle",
        "is_over",
        "known",
        "notes",
        "runner",
        "times",
    )

    def __init__(
        self,
        work: Execution,
        resources: Resources,
        *,
        watch: Watch = _UNWATCHED,
        continuation: Continuation | None = None,
    ) -> None:
        graph, exchange, runner = work.graph, resources.exchange, resources.runner
        self.graph = graph
        self.core = Core(
            graph,
            remote=() if exchange is None else exchange.remote.tolist(),
            streams=work.streams,
            infrastructure_retries=work.infrastructure_retries,
        )
        self.is_over = False
        """Whether nothing is left to do; then `step` does nothing more."""
        self.is_frozen = False
        """Whether `advance` returns after its present step, see `freeze`."""
        self.notes: list[str] = []
        """Problems that did not put a drop in ERROR."""
        self._work = work
        self._clock = resources.clock
        self._repository = resources.repository
        self.runner = runner
        """Runs attempts."""
        self._exchange = exchange
        self._journal = resources.journal
        self._instruments = Instruments(watch.instruments, self.notes.append)
        self._continuation = continuation
        self.known = None if continuation is None else continuation.known
        """The states with which it continues another session; None if it does not."""
        self._on_idle = watch.on_idle
        self.is_idle = False
        """Whether `on_idle` was called."""
        self._on_settled = watch.on_settled
        self._check_invariants = watch.check_invariants
        self.inbox: Inbox[SessionInput] = Inbox() if resources.inbox is None else resources.inbox
        """Queue of results, events and requests."""
        kept = kept_drops(graph)
        self._contents = ContentTable(graph, resources.repository, self.core.drops.remote, kept)
        if watch.instruments:
            self._contents.keep_seconds()
        if exchange is not None:
            exchange.attach(self.inbox.put, partial(self._contents.needs, self.core.drops))
        self._streams = OpenStreams(resources.repository.discard)
        self._outgoing = OutgoingEvents(exchange, self.core, self._contents, self._streams)
        self.failure_table = FailureTable(graph, self.core, work.directory, exchange)
        self.times = resources.times
        """Records the times of attempts; for the session's thread only."""
        self._given = GivenAttempts(self.core, work.chains, runner.window)
        self._inputs = SessionInputs(
            self.core,
            self._contents,
            self._streams,
            self._outgoing,
            self.failure_table,
            given=self._given,
            times=resources.times,
        )
        self._statistics = (
            None
            if watch.on_statistics is None
            else StatisticsPublisher(resources.clock, watch.on_statistics, len(graph.templates))
        )
        self._owner_lock, self._is_owned = threading.Lock(), False
        self._ready = ReadyRuns(
            self.core,
            self._contents,
            self._streams,
            self._inputs,
            given=self._given,
            tasks=TaskBuilder(graph, work.streams, kept, work.retry_memory),
            runner=runner,
            clock=resources.clock,
            times=resources.times,
            # The last statistics count submitted attempts as ready.
            on_submit=None if self._statistics is None else self._statistics.note_change,
        )
        self._began, self._has_begun = 0.0, False
        self.has_given_up = False
        """Whether the session ends before its drops are settled: it was cancelled, or lost a node."""
        self._left_over: list[SessionInput] = []
        """Items that came in while the session was stopped."""
        self._stops_frozen = False
        """Whether the session was cancelled, or lost a node, while it was frozen."""

    # From any thread.

    def cancel(self, reason: str = "", grace: float = GRACE_SECONDS) -> None:
        """Stop the session. May be called from any thread, and from a signal handler.

        Results that came in while the session is frozen are discarded.

        Parameters
        ----------
        reason : str
            Text for users who look at the session.
        grace : float
            Seconds that attempts have to clean up. The session is over after the seconds that
            `dropflow.stopping.stopped_after` returns for them.
        """
        self._stops_frozen |= self.is_frozen
        self.inbox.put([Cancel(reason, grace)])
        self.runner.interrupt()

    def cancel_drop(self, drop: int, reason: str = "", grace: float = GRACE_SECONDS) -> None:
        """Cancel one drop, by its row; the session goes on. May be called from any thread."""
        self.inbox.put([CancelDrop((drop,), reason, grace)])

    def pause(self, *, is_paused: bool = True) -> None:
        """Start no attempts while paused; those that run go on. Idempotent. May be called from any thread."""
        self.runner.hold(is_held=is_paused)
        self.inbox.put([Pause() if is_paused else Continue()])

    def lose(self, node: str, failure: Failure) -> None:
        """Give up because a node of the session is gone. May be called from any thread."""
        self._stops_frozen |= self.is_frozen
        self.inbox.put([Lost(node, failure)])
        self.runner.interrupt()

    def freeze(self) -> None:
        """Let `advance` return soon; attempts that run go on. Clear `is_frozen` to undo. From any thread."""
        self.is_frozen = True
        self.inbox.put([OwnerCall(lambda _: None)])  # wakes the session's thread

    def call(self, function: Callable[["Session"], T]) -> T:
        """Return `function(session)`, called in the session's own thread between two steps. From any other thread.

        Raises
        ------
        WorldError
            The session did not process the call within twenty seconds: it may be waiting for a disk or another node.
        """
        return self.post(function).wait()

    def post(self, function: Callable[["Session"], T]) -> OwnerCall["Session", T]:
        """Request a call of `function(session)` as `call` does; do not wait for the session's thread."""
        call = OwnerCall(function)
        with self._owner_lock:
            if self._is_owned:
                self.inbox.put([call])
            else:
                call.carry_out(self)
        return call

    def attempts(self) -> Attempts:
        """Return how many attempts are not settled, by where they are. May be called from any thread."""
        given = self._given.decided
        running = min(len(self.runner.running), given)
        return Attempts(running=running, queued=given - running, ready=len(self._ready))

    @property
    def handover(self) -> Handover:
        """The objects for the session that continues this one, while no thread is at work in this one."""
        return Handover(
            self.core,
            self._contents,
            self._inputs,
            given=self._given,
            failures=self.failure_table,
            ready=self._ready,
            exchange=self._exchange,
            known=self.known,
        )

    # The life of a session, all in one thread.

    def run(self) -> SessionResult:
        """Execute to the end; the calling thread becomes the session's owner."""
        try:
            self.advance()
        finally:
            self.close()
        return self.result()

    def advance(self) -> None:
        """Execute until the session is over or frozen; the calling thread is the session's owner meanwhile."""
        with self._owner_lock:
            self._is_owned = True
        try:
            self.begin()
            while not self.is_over and (not self.is_frozen or self.core.status is SessionState.CANCELLING):
                if self._exchange is not None:
                    self._exchange.wait_for_room()
                deadline = self.deadline()
                self.step(None if deadline == math.inf else max(0.0, deadline - self._clock.monotonic()))
                if self._inputs.postponed and self._on_idle is None and not (self._given.count or self._ready):
                    # The remaining drops cannot end by the walltime. Another process may run them.
                    self._process([Pause()])
                    break
        finally:
            with self._owner_lock:
                self._is_owned = False
            self._set_aside()

    def begin(self) -> None:
        """Start the runner and the exchange, and submit the first attempts. Idempotent."""
        if self._has_begun:
            return
        self._has_begun = True
        self._began = self._clock.monotonic()
        begin, before = Begin(), self._continuation
        frozen = None if before is None else before.frozen
        if frozen is None:
            self.runner.start(self.inbox.put)
        if before is not None:
            self._contents.restore(before.contents)
            self.failure_table.restore(before.failures)
            begin = Begin(before.known)
        if frozen is not None:
            self._contents.restore_parts(frozen.parts)
            self._given.continue_with(frozen.in_flight)
            self._inputs.durations = dict(frozen.durations)
            self._left_over += frozen.items
        self._process([begin, Pause()] if frozen is not None and frozen.is_paused else [begin])
        self._ready.submit()
        self._tell_settled()

    def step(self, timeout: float | None = 0.0) -> None:
        """Process all items that came in since the last step, and submit the attempts that are ready.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait at most if there is no item; None to wait until one comes.
        """
        if self.is_over:
            return
        items = self._left_over or self.inbox.drain(timeout)
        self._left_over = []
        if self._stops_frozen:
            # Other nodes may have continued from the report of this node: later results must not be committed here.
            self._stops_frozen = False
            items = sorted([*items, *self.inbox.drain(0)], key=lambda item: not isinstance(item, Cancel | Lost))
        is_stopping = self.core.status is SessionState.CANCELLING
        self._process((self._inputs.events_after_cancel if is_stopping else self._inputs.events)(items, self))
        if not self.is_over and self._clock.monotonic() >= self._ready.stop_by:
            left = len(self.core.drops.running)
            self.notes.append(f"{plural(left, 'attempt')} could not be stopped: code outside of Python, or a hung disk")
            self._process([Abandon()])
        if self._inputs.take_continued():
            self.runner.submit(())  # a runner in this thread starts the attempts that it has
        self._ready.submit()
        self._tell_settled()
        if self._on_idle is not None and not self.is_idle and not self.is_over:
            is_late = bool(self._inputs.postponed) or self._clock.now() >= self._work.until
            if is_late and not self._given.count and not self._ready:
                self.is_idle = True
                self._on_idle()

    def _tell_settled(self) -> None:
        on_settled = self._on_settled  # tested first: nearly all sessions have none, and each step comes through here
        if on_settled is not None and self.core.status is SessionState.PAUSED and not self.core.drops.unsettled:
            self._on_settled = None
            on_settled()

    def deadline(self) -> float:
        """Return the monotonic time at which `step` is to be called even if no item came in; inf for never."""
        due = min(self._ready.stop_by, self._ready.next_due)
        if self._on_idle is not None and not self.is_idle:
            left = self._work.until - self._clock.now()
            # The walltime may have passed since the last step.
            if left > 0.0 or not (self._given.count or self._ready):
                due = min(due, self._clock.monotonic() + left)
        return due if self._statistics is None else min(self._statistics.deadline, due)

    def close(self) -> None:
        """Stop the runner, and leave the exchange and the journal."""
        self.runner.close()
        if self._exchange is not None:
            self._exchange.close()
        if self.times is not None:
            self.notes += self.times.close()
        if self._journal is not None:
            try:
                self._journal.close()
            except DropflowError as error:
                self.notes.append(f"the journal is not complete: {error}")

    def hand_over(self) -> FrozenSession:
        """Return the state for a session that continues this one. Only the runner of this session goes on.

        No thread may be in `advance`.
        """
        self._set_aside()
        frozen = self.handover.take(self._left_over)
        if self._exchange is not None:
            self._exchange.close()
        if self.times is not None:
            self.notes += self.times.close()
        if self._journal is not None:
            with suppress(DropflowError):  # the journal of the continuing session repeats all entries
                self._journal.close()
        return frozen

    def _set_aside(self) -> None:
        """Keep the items that came in for the next step, but carry out calls."""
        for item in self.inbox.drain(0):
            if isinstance(item, OwnerCall):
                item.carry_out(self)
            else:
                self._left_over.append(item)

    def result(self) -> SessionResult:
        """Return how the session ended."""
        self._set_aside()
        if self.core.status is SessionState.FINISHED:
            # The drops here were settled before, but other nodes have lost theirs.
            self.failure_table.lost += [item for item in self._left_over if isinstance(item, Lost)]
        self._left_over = []
        try:
            self._repository.confirm()
        except DropflowError as error:
            self.failure_table.lost.append(Lost(self._work.directory, Failure.of(error)))
        status = self.core.status
        if status is SessionState.FINISHED and self.failure_table.lost:
            status = SessionState.FAILED
        statistics = snapshot(self.core, 0.0)
        return SessionResult(
            session=self._work.session,
            status=status,
            drops=self.graph.drops,
            states=totals(self.core.drops.counts),
            counts=statistics.drop_counts,
            seconds=self._clock.monotonic() - self._began,
            failures=self.reports(),
            directory=self._work.directory,
            notes=(*self.notes, note) if (note := self.fault_note()) else tuple(self.notes),
            infrastructure_faults=self.failure_table.fault_count,
            computed=applications_run(statistics),
        )

    # Queries of other objects, in the session's own thread.

    def content(self, drop: int) -> Handle | None:
        """Return the content of a data drop, or None if there is none, or another drop has replaced it."""
        return None if self._contents.is_replaced(drop) else self._contents.contents.get(drop)

    @property
    def missing(self) -> Mapping[int, float]:
        """Share of missing data when a content was made, if not 0, by drop; also of released contents."""
        return self._contents.missing

    def contents(self) -> dict[int, Handle]:
        """Return all contents by drop, without those that other drops have replaced."""
        replaced = {*self._contents.replaced()}
        return {drop: content for drop, content in self._contents.contents.items() if drop not in replaced}

    def reports(self, start: int = 0, stop: int | None = None) -> tuple[FailureReport, ...]:
        """Return root causes so far, all or a part; lost nodes first, then those that put the most drops in ERROR."""
        return self.failure_table.reports(start, stop)

    def fault_note(self) -> str:
        """Return how many infrastructure faults there were; empty if there was none."""
        return self.failure_table.fault_note()

    def faults(self, drop: int) -> tuple[Fault, ...]:
        """Return the infrastructure faults of a drop, oldest first."""
        return tuple(self.failure_table.faults.get(drop, ()))

    # Events in.

    def _process(self, events: list[Event]) -> None:
        """Pass events to the core and carry out its actions, until no action leads to another event."""
        while events:
            contents, failures = self._contents.take_unrecorded(), self.failure_table.take_unrecorded()
            if self._journal is not None:
                with suppress(DropflowError):  # the journal keeps it, and writes it when there is room
                    self._journal.append(events, contents, failures)
            actions = self.core.handle(events)
            self._ready.abort_settled(events)
            if self._check_invariants:
                check(self.core)
            if self._instruments:
                if contents:
                    self._instruments.contents(contents, self._contents.take_seconds(contents))
                self._instruments.events(events)
                self._instruments.actions(actions)
            events = self._act(actions)
            if self.core.status is SessionState.CANCELLING:
                events += self._ready.stop([action for action in actions if isinstance(action, Abort)])
        self._inputs.discard_unwanted()
        self._outgoing.send()
        if self.times is not None:
            self.times.flush()
        has_lost = self.is_over and bool(self.failure_table.lost)
        if not self.has_given_up and (has_lost or self.core.status in _CANCELLED_STATES):
            self.has_given_up = True
            self._outgoing.give_up(self._inputs.reason, self.failure_table.lost[0] if has_lost else None)
        if self._statistics is not None:
            self._statistics.update(self.core, self._began, self.attempts, is_last=self.is_over)

    # Actions out.

    def _act(self, actions: Sequence[Action]) -> list[Event]:
        """Carry out actions of the core, and return the events that follow from them."""
        events: list[Event] = []
        runs: list[Run] = []
        for action in actions:
            if isinstance(action, Run):
                runs.append(action)
            elif isinstance(action, Publish):
                self._outgoing.add(action)
            elif isinstance(action, Release):
                self._outgoing.release(action.drop)
                self._streams.remove_all(action.drop)
                _release(self.graph, self._contents, action.drop, self.notes)
            elif isinstance(action, Assemble):
                events.append(_assemble(self._contents, self.failure_table, action.drop))
            elif isinstance(action, Withdraw):
                self._outgoing.withdraw(action.drop, action.attempt)
                self._streams.remove(action.drop, action.attempt)
            elif isinstance(action, Accept):
                events += self._inputs.accept(action.drop)
            elif isinstance(action, Abort):
                self._ready.abort(action)
            elif isinstance(action, Finish):
                self.is_over = True
                self._ready.clear()
                runs.clear()
        new, ended = self._given.begin(runs)
        self._ready.extend(new)
        return events + self._inputs.events_after_others(ended) if ended else events


def _release(graph: PhysicalGraph, contents: ContentTable, drop: int, notes: list[str]) -> None:
    try:
        contents.release(drop)
    except DropflowError as error:
        notes.append(f"the content of {oid(graph, drop)} could not be released: {error}")


def _assemble(contents: ContentTable, failures: FailureTable, drop: int) -> Assembled:
    """Return the event that the parts of a drop were joined, or could not be joined."""
    try:
        contents.assemble(drop)
    except DropflowError as error:
        failure = Failure.of(error)
        failures.add(drop, failure)
        return Assembled(drop, failure)
    return Assembled(drop)
