"""A session: the one thread that owns a core, and the order in which decisions become effects.

It drains the inbox, turns results into events, lets the core decide, and carries the actions out. The order matters in
one place: contents are committed before the core hears that an attempt has finished, so a consumer never starts on
data that is not there. To commit a leaf is to keep it: one that cannot be kept is a failure of the attempt. Results of
attempts that are no longer current are refused before anything is committed, so a commit happens exactly once. The
result of an attempt that ran ahead of its inputs waits until they are complete.

Ready drops wait as integers. Their tasks are built when the runner has room for them.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from dropflow.clock import Clock
from dropflow.engine.api import (
    Arrival,
    AttemptResult,
    ContentRepository,
    Exchange,
    Handle,
    Mail,
    Runner,
    StreamOpened,
    Told,
)
from dropflow.engine.core import Core
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
from dropflow.engine.inbox import Inbox
from dropflow.engine.instruments import Instrument, Instruments
from dropflow.engine.invariants import check
from dropflow.engine.journal import Journal
from dropflow.engine.keeping import kept_drops
from dropflow.engine.owner_call import OwnerCall
from dropflow.engine.reports import FailureReport, Reporter, SessionResult
from dropflow.engine.statistics import Attempts, Statistics, snapshot, totals
from dropflow.engine.streams import Streams
from dropflow.engine.tasks import TaskBuilder
from dropflow.errors import DropflowError
from dropflow.failure import Failure
from dropflow.graph.names import oid
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Template
from dropflow.states import DropState, SessionState

__all__ = ["Session"]

_PUBLISH_SECONDS = 0.1

T = TypeVar("T")

_Item = StreamOpened | AttemptResult | Mail | Lost | Cancel | OwnerCall[Any, Any]
"""What comes in through the inbox."""


class Session:
    """Executes one graph.

    Parameters
    ----------
    graph : PhysicalGraph
        What is executed.
    repository : ContentRepository
        Owner of the contents of data drops.
    runner : Runner
        Where attempts run.
    session : str
        Name of the session.
    directory : str
        Its directory, for reports.
    clock : Clock
        For durations.
    streams : collection of int
        Links whose data can be read by their consumers while it is written, see `dropflow.apps.streams`.
    exchange : Exchange or None
        Where the other nodes of the session are; None when it has this one only.
    journal : Journal or None
        Takes every event. What cannot be written is written later; if that fails to the end, a note tells it. It does
        not fail the session: results do not depend on it.
    instruments : sequence of Instrument
        Observers.
    on_statistics : callable or None
        Called in the session's thread with a fresh `Statistics` now and then, and once at the end.
    check_invariants : bool
        Walk the whole state after each batch; slow.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """

    # See `dropflow.engine.core.Core`.
    __slots__ = (
        "_announced",
        "_began",
        "_check_invariants",
        "_clock",
        "_committed",
        "_directory",
        "_early",
        "_exchange",
        "_failures",
        "_handles",
        "_has_aborted",
        "_in_flight",
        "_inbox",
        "_instruments",
        "_is_kept",
        "_is_unseen",
        "_journal",
        "_lost",
        "_on_statistics",
        "_outgoing",
        "_over",
        "_owned",
        "_owner_lock",
        "_parts",
        "_published",
        "_ready",
        "_reason",
        "_reporter",
        "_repository",
        "_runner",
        "_session",
        "_streams",
        "_tasks",
        "_template_of",
        "_told",
        "_unrecorded",
        "core",
        "graph",
        "notes",
    )

    def __init__(
        self,
        graph: PhysicalGraph,
        repository: ContentRepository,
        runner: Runner,
        *,
        session: str,
        directory: str,
        clock: Clock,
        streams: Collection[int] = (),
        exchange: Exchange | None = None,
        journal: Journal | None = None,
        instruments: Sequence[Instrument] = (),
        on_statistics: Callable[[Statistics], None] | None = None,
        check_invariants: bool = False,
    ) -> None:
        self.graph = graph
        self.core = Core(graph, remote=() if exchange is None else exchange.remote.tolist(), streams=streams)
        self._exchange = exchange
        self._repository = repository
        self._runner = runner
        self._session = session
        self._directory = directory
        self._clock = clock
        self._journal = journal
        self.notes: list[str] = []
        """What went wrong beside the drops."""
        self._instruments = Instruments(instruments, self.notes.append)
        self._on_statistics = on_statistics
        self._check_invariants = check_invariants
        self._inbox: Inbox[_Item] = Inbox()
        self._is_kept = kept_drops(graph)
        self._tasks = TaskBuilder(graph, streams, self._is_kept)
        self._template_of = np.ascontiguousarray(graph.template).data
        self._handles: dict[int, Handle] = {}
        self._parts: dict[int, dict[int, Handle]] = {}
        self._failures: dict[int, Failure] = {}
        self._reporter = Reporter(graph, self.core, directory, exchange)
        self._committed: dict[int, Handle] = {}
        self._unrecorded: dict[int, Failure] = {}
        self._outgoing: dict[int, dict[int, Handle]] = {}
        self._streams = Streams(repository.discard)
        self._announced = Streams(repository.discard)
        self._early: dict[int, AttemptResult] = {}
        self._told: list[Told] = []
        self._lost: list[Lost] = []
        self._reason = ""
        self._owner_lock = threading.Lock()
        self._owned = False
        self._ready: deque[Run] = deque()
        self._in_flight = 0
        self._began = 0.0
        self._published = 0.0
        self._is_unseen = False
        self._has_aborted = False
        self._over = False

    def cancel(self, reason: str = "") -> None:
        """Stop the session. May be called from any thread, and from a signal handler."""
        self._inbox.put([Cancel(reason)])
        self._runner.interrupt()

    def lose(self, node: str, failure: Failure) -> None:
        """A node of the session is gone: give up. May be called from any thread."""
        self._inbox.put([Lost(node, failure)])
        self._runner.interrupt()

    def call(self, function: Callable[["Session"], T]) -> T:
        """Return `function(session)`, called in the session's own thread between two steps. From any other thread.

        Raises
        ------
        WorldError
            The session did not come to the call in twenty seconds: it waits for a disk, or for another node.
        """
        call = OwnerCall(function)
        with self._owner_lock:
            if self._owned:
                self._inbox.put([call])
            else:
                call.carry_out(self)
        return call.wait()

    def run(self) -> SessionResult:
        """Execute to the end; the calling thread becomes the session's owner."""
        with self._owner_lock:
            self._owned = True
        self._began = self._clock.monotonic()
        try:
            self._execute()
            return self._result()
        finally:
            with self._owner_lock:
                self._owned = False
            # A call that came in the meantime is carried out too.
            for item in self._inbox.drain(0):
                if isinstance(item, OwnerCall):
                    item.carry_out(self)

    def _execute(self) -> None:
        try:
            self._runner.start(self._inbox.put)
            if self._exchange is not None:
                self._exchange.start(self._inbox.put)
            self._step([Begin()])
            while not self._over:
                self._feed()
                # What could not be published yet, because it came too soon after the last picture, is not held back.
                patience = _PUBLISH_SECONDS if self._is_unseen else None
                self._step(self._accept(self._inbox.drain(patience)))
            self._publish(always=True)
        finally:
            self._runner.close()
            if self._exchange is not None:
                self._exchange.close()
            self._close_journal()

    # Events in.

    def _step(self, events: list[Event]) -> None:
        """Let the core take in events, and carry out what it wants, until it wants nothing that is decided here."""
        while events:
            self._record(events)
            actions = self.core.handle(events)
            if self._check_invariants:
                check(self.core)
            if self._instruments:
                self._instruments.events(events)
                self._instruments.actions(actions)
            events = self._act(actions)
        self._tell()
        self._publish()

    def _accept(self, items: Sequence[_Item]) -> list[Event]:
        """Events for what came in. The core has not seen them yet, so what they settle is remembered here."""
        events: list[Event] = []
        answered: set[int] = set()
        given_up = False
        for item in items:
            if isinstance(item, AttemptResult):
                self._in_flight -= 1
                if given_up or item.drop in answered or not self.core.is_current(item.drop, item.attempt):
                    self._throw_away(item)
                    continue
                answered.add(item.drop)
                events += self._settled(item)
            elif isinstance(item, StreamOpened):
                events += self._opened_here(item)
            elif isinstance(item, OwnerCall):
                item.carry_out(self)
            elif isinstance(item, Lost | Cancel):
                if isinstance(item, Lost):
                    self._lost.append(item)
                else:
                    self._reason = self._reason or item.reason
                events.append(item)
                given_up = True
            else:
                events += self._opened(item)
        return events

    def _settled(self, result: AttemptResult) -> list[Event]:
        if self.core.is_ahead(result.drop):
            self._early[result.drop] = result
            return []
        if result.failure is None:
            return [self._commit(result)]
        self._failures[result.drop] = result.failure
        return [Failed(result.drop, result.attempt, result.failure)]

    def _throw_away(self, result: AttemptResult) -> None:
        for part in result.handles.values():
            self._repository.discard(part)

    def _opened_here(self, opened: StreamOpened) -> list[Event]:
        """A stream that an attempt here has begun to write: for consumers, or for the node that its drop lives on."""
        if not self.core.is_current(opened.drop, opened.attempt):
            self._repository.discard(opened.handle)
            return []
        streams = self._announced if opened.target in self.core.remote else self._streams
        streams.add(opened.target, opened.attempt, opened.handle)
        return [Opened(opened.target, opened.drop, opened.attempt)]

    def _opened(self, mail: Mail) -> list[Event]:
        try:
            return [self._arrived(arrival) for arrival in mail.open()]
        except DropflowError as error:
            lost = Lost(mail.sender, Failure.of(error))
            self._lost.append(lost)
            return [lost]

    def _arrived(self, arrival: Arrival) -> Event:
        """Take in what another node told of one of its drops: contents first, as for an attempt that ran here."""
        event, failure = arrival.event, arrival.failure
        if isinstance(event, Withdrawn):
            return event
        if isinstance(event, Opened):
            self._streams.add(event.drop, event.attempt, arrival.handles[event.drop])
            return event
        self._announced.forget_all(event.drop)
        if self._exchange is not None:
            for part in self._exchange.reclaim(event.drop):
                self._repository.discard(part)
        content = arrival.handles.get(event.drop)
        if content is not None:
            self._handles[event.drop] = content
        else:
            try:
                self._place(event.drop, event.attempt, arrival.handles)
            except DropflowError as error:
                failure = Failure.of(error)
        if failure is None:
            return event
        self._failures[event.drop] = self._unrecorded[event.drop] = failure
        return Reported(event.drop, DropState.ERROR, event.drop, event.attempt)

    def _commit(self, result: AttemptResult) -> Event:
        """Make an attempt's outputs the contents of their drops."""
        drop, parts = result.drop, result.handles
        remote = self.core.remote
        away = {target: part for target, part in parts.items() if target in remote} if remote else {}
        here = {target: part for target, part in parts.items() if target not in away} if away else parts
        try:
            self._place(drop, result.attempt, here)
        except DropflowError as error:
            failure = Failure.of(error)
            self._failures[drop] = failure
            for part in away.values():
                self._repository.discard(part)
            return Failed(drop, result.attempt, failure)
        if away:
            self._outgoing[drop] = away
        return Finished(drop, result.attempt, result.skipped)

    def _place(self, producer: int, attempt: int, parts: Mapping[int, Handle]) -> None:
        """Commit what a producer wrote to drops that live here: all of it, or nothing.

        Parts of drops with several producers wait for those of the others.
        """
        try:
            for target, part in parts.items():
                if target != producer and self._tasks.is_shared(target):
                    self._parts.setdefault(target, {})[producer] = part
                else:
                    self._hold(target, self._repository.commit(target, attempt, self._template(target), part))
        except DropflowError:
            # What is written under its final name goes too. It makes room on a full disk for the reason to be written.
            for target, part in parts.items():
                content = self._handles.pop(target, None)
                if content is not None:
                    del self._committed[target]
                    self._repository.revoke(target, content)
                else:
                    self._parts.get(target, {}).pop(producer, None)
                    self._repository.discard(part)
            raise

    def _hold(self, drop: int, content: Handle) -> None:
        """Remember the content of a drop that lives here, and put it where it outlives this process if it must."""
        if self._is_kept[drop]:
            content = self._repository.keep_result(drop, oid(self.graph, drop), self._template(drop), content)
        self._handles[drop] = self._committed[drop] = content

    def _record(self, events: list[Event]) -> None:
        committed, self._committed = self._committed, {}
        failures, self._unrecorded = self._unrecorded, {}
        if self._journal is not None:
            with suppress(DropflowError):  # the journal keeps it, and writes it when there is room
                self._journal.append(events, committed, failures)

    def _close_journal(self) -> None:
        if self._journal is not None:
            try:
                self._journal.close()
            except DropflowError as error:
                self.notes.append(f"the journal is not complete: {error}")

    # Actions out.

    def _act(self, actions: Sequence[Action]) -> list[Event]:
        events: list[Event] = []
        for action in actions:
            if isinstance(action, Run):
                self._ready.append(action)
            elif isinstance(action, Tell):
                self._told.append(self._telling(action))
            elif isinstance(action, Release):
                self._release(action.drop)
            elif isinstance(action, Assemble):
                events.append(self._assemble(action.drop))
            elif isinstance(action, Accept | Withdraw | Abort):
                events += self._act_ahead(action)
            elif isinstance(action, Finish):
                self._over = True
                self._ready.clear()
        return events

    def _act_ahead(self, action: Accept | Withdraw | Abort) -> list[Event]:
        """What becomes of streams, and of attempts that ran ahead; `Abort` also of all others."""
        drop, attempt = action.drop, action.attempt
        if isinstance(action, Withdraw):
            if self._exchange is not None and (self.core.is_border(drop) or drop in self.core.remote):
                self._exchange.withdraw(drop, attempt)
            self._streams.forget(drop, attempt)
            return []
        early = self._early.pop(drop, None)
        if isinstance(action, Accept):
            return [] if early is None else self._settled(early)
        self._has_aborted = True
        if early is None:
            self._runner.abort(drop, attempt)
        else:
            self._throw_away(early)
        return []

    def _telling(self, action: Tell) -> Told:
        drop = action.drop
        if action.state is DropState.WRITING:
            stream = (self._announced if drop in self.core.remote else self._streams).find(drop, action.attempt)
            handles = {} if stream is None else {drop: stream}
        elif action.state is DropState.INITIALIZED:
            self._announced.forget(drop, action.attempt)
            handles = {}
        elif action.state is DropState.COMPLETED and drop in self._handles:
            handles = {drop: self._handles[drop]}
        else:
            handles = self._outgoing.pop(drop, {})
        return Told(drop, action.state, action.cause, action.attempt, action.skipped, handles)

    def _tell(self) -> None:
        """Let the other nodes know what this step has settled, or that this session was given up."""
        if self._exchange is None:
            return
        if self._told:
            told, self._told = self._told, []
            self._exchange.tell(told)
        if self._over and (self._lost or self.core.status is SessionState.CANCELLED):
            self._exchange.give_up(self._reason, self._lost[0] if self._lost else None)

    def _feed(self) -> None:
        """Give the runner as many tasks as it has room for."""
        if self._has_aborted:
            # Not only is it of no use: an attempt that nobody waits for may want inputs that are gone.
            self._ready = deque(run for run in self._ready if self.core.is_current(run.drop, run.attempt))
            self._has_aborted = False
        room = self._runner.window - self._in_flight
        if room <= 0 or not self._ready:
            return
        batch = [self._ready.popleft() for _ in range(min(room, len(self._ready)))]
        tasks = self._tasks.build(batch, self.core, self._handles, self._streams)
        self._in_flight += len(tasks)
        self._runner.submit(tasks)
        self._is_unseen = self._on_statistics is not None  # the last picture has them as ready

    def _assemble(self, drop: int) -> Assembled:
        parts = self._parts.pop(drop, {})
        before = self.graph.predecessors
        producers = dict.fromkeys(before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist())
        ordered = [parts[producer] for producer in producers if producer in parts]
        try:
            if ordered:
                self._hold(drop, self._repository.assemble(drop, self._template(drop), ordered))
        except DropflowError as error:
            self._failures[drop] = Failure.of(error)
            return Assembled(drop, self._failures[drop])
        return Assembled(drop)

    def _release(self, drop: int) -> None:
        if self._exchange is not None and (self.core.is_border(drop) or drop in self.core.remote):
            self._exchange.release(drop)
        self._streams.forget_all(drop)
        handle = self._handles.get(drop)
        if handle is None:
            return
        if drop in self.core.remote:
            del self._handles[drop]
            return
        try:
            if self._repository.release(drop, self._template(drop), handle):
                del self._handles[drop]
        except DropflowError as error:
            self.notes.append(f"the content of {oid(self.graph, drop)} could not be released: {error}")

    # What others see.

    def handle(self, drop: int) -> Handle | None:
        """The content of a data drop as far as there is one. For the session's own thread."""
        return self._handles.get(drop)

    def held(self) -> dict[int, Handle]:
        """All contents. For the session's own thread."""
        return dict(self._handles)

    def attempts(self) -> Attempts:
        """Attempts that are not settled, by where they are. May be called from any thread."""
        given = self._in_flight
        running = min(self._runner.busy, given)
        return Attempts(running=running, queued=given - running, ready=len(self._ready))

    def _publish(self, *, always: bool = False) -> None:
        if self._on_statistics is None:
            return
        now = self._clock.monotonic()
        self._is_unseen = not always and now - self._published < _PUBLISH_SECONDS
        if not self._is_unseen:
            self._published = now
            self._on_statistics(snapshot(self.core, now - self._began, self.attempts()))

    def _result(self) -> SessionResult:
        status = self.core.status
        try:
            self._repository.confirm()
        except DropflowError as error:
            self._lost.append(Lost(self._directory, Failure.of(error)))
            status = SessionState.FAILED if status is SessionState.FINISHED else status
        return SessionResult(
            session=self._session,
            status=status,
            drops=self.graph.drops,
            states=totals(self.core.counts),
            seconds=self._clock.monotonic() - self._began,
            failures=self.reports(),
            directory=self._directory,
            notes=tuple(self.notes),
        )

    def reports(self) -> tuple[FailureReport, ...]:
        """The root causes of failures so far, lost nodes first, then the most harmful. For the session's own thread."""
        return self._reporter.reports(self._failures, self._lost)

    def _template(self, drop: int) -> Template:
        return self.graph.templates[self._template_of[drop]]
