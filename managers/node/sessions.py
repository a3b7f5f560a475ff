"""The sessions of a node: one table of all of them, hosted and finished, with one explicit phase each.

::

    BUILDING ─▶ CONNECTING ─▶ PREPARED ─▶ RUNNING ─▶ ENDING ─▶ ENDED ◀─▶ RETIRING ─▶ FINISHED
        │            │            │          │          │        │                      │
        ▼            ▼            ▼          ▼          ▼        ▼                      ▼
    ABANDONED ─▶ STOPPING ◀───────┴──────────┴──────────┘     REMOVING ◀────────────────┘
                     └───────────────────────────────────────────▲

A session that is removed goes down: from where a thread or a job works on it, only when that has ended. One that was to
continue a session that is over, and has not begun, goes to REMOVING at once, and the other one is there again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from dropflow.api.requests import CancelRequest
from dropflow.errors import ConflictError, DropflowError, GoneError, InternalError, LinkError
from dropflow.failure import Failure
from dropflow.states import SessionState
from managers.deployment import Deployment, Place
from managers.machine_calls import Return
from managers.messages import RequestView
from managers.node.copies import ContentCopies
from managers.node.events import (
    Action,
    CancelSession,
    Log,
    LoseNode,
    RemoveSession,
    RetireSession,
    StartSession,
    WithdrawSession,
)
from managers.recovery.records import RequestedChange, ViewDecision
from managers.recovery.vote import AdoptDecision, SendToPeer, Voter

# Changes of views that this node was asked for: sent to the member that decides, again until a view
# has them.

REQUEST_SECONDS = 60.0
"""How long a call waits for a view with what it asks for."""
_MOST_VIEWS = 8
"""How many views may be decided without a change before it is refused."""


@dataclass(slots=True)
class _Open:
    """A change that no view has yet.

    Attributes
    ----------
    call : int or None
        The call that waits for it.
    views : int
        Views that were decided since.
    """

    change: RequestedChange
    call: int | None
    until: float
    views: int = 0


class ViewRequests:
    """The changes of one session that were asked for here.

    Parameters
    ----------
    node : str
        Name of this node.
    session, epoch :
        The session and its deployment.
    actions : list
        What is to be done; decisions are appended.
    """

    def __init__(self, node: str, session: str, epoch: int, actions: list[Action]) -> None:
        self._node = node
        self._session = session
        self._epoch = epoch
        self._actions = actions
        self._open: dict[str, _Open] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, change: str) -> bool:
        """Return whether a change of this id waits for a view that has it."""
        return change in self._open

    def add(self, change: RequestedChange, call: int | None, now: float) -> None:
        """Wait for a view with a change."""
        self._open[change.id] = _Open(change, call, now + REQUEST_SECONDS)

    def send(self, views: Voter, lost: Collection[str]) -> list[RequestView]:
        """Ask the first member that is not lost for all changes; return the requests if that is this node."""
        # While a view is being decided, others are not sent: they are sent again if that view does not have them.
        changes = [one.change for one in self._open.values() if one.change.is_forced or not views.is_frozen]
        present = [place.node for place in views.view.members if place.node not in lost]
        first = present[0] if present else self._node
        number = views.view.number
        requests = [
            RequestView(self._session, self._epoch, number, msgspec.msgpack.encode(change)) for change in changes
        ]
        if first == self._node:
            return requests
        self._actions += [SendToPeer(first, request) for request in requests]
        return []

    def decided(self, decision: ViewDecision) -> None:
        """Answer the calls whose changes a view has, and refuse those that have waited for many views."""
        for key, one in list(self._open.items()):
            one.views += 1
            refusal = decision.refused.get(key)
            if refusal is not None:
                self._answer(key, ConflictError(refusal.text, hint=refusal.hint))
            elif key in decision.answered:
                self._answer(key, None)
            elif one.views >= _MOST_VIEWS:
                text = f"the members of session {self._session!r} changed {one.views} times meanwhile"
                self._answer(key, ConflictError(text, hint="look at its status, and try again"))

    def refuse(self, why: str) -> None:
        """Refuse all, because the session is over, or this node leaves it."""
        for key in list(self._open):
            self._answer(key, ConflictError(f"session {self._session!r} {why}"))

    def tick(self, now: float, waiting: str) -> None:
        """Refuse what has waited for too long; `waiting` is what the session waits for, if it does."""
        for key, one in list(self._open.items()):
            if one.until <= now:
                text = f"session {self._session!r} has not changed its members within {REQUEST_SECONDS:g} s"
                text = f"{text}: {waiting}" if waiting else text
                self._answer(key, LinkError(text, hint="look at its status, and try again"))

    def deadline(self) -> float:
        """Return when `tick` is to be called next."""
        return min((one.until for one in self._open.values()), default=inf)

    def _answer(self, key: str, error: Exception | None) -> None:
        call = self._open.pop(key).call
        if call is not None:
            self._actions.append(Return(call, error=error))


class Phase(Enum):
    """Where a session is between the request to prepare it and its removal."""

    BUILDING = "building"
    """A job slices the graph and builds the engine. The name is taken, but the session cannot be seen yet."""
    ABANDONED = "abandoned"
    """As BUILDING, but the session is removed as soon as it is built."""
    CONNECTING = "connecting"
    """Built; the nodes that hold neighbours of its drops have not all answered yet."""
    PREPARED = "prepared"
    """Ready to start."""
    RUNNING = "running"
    """Its thread was started."""
    ENDING = "ending"
    """It has its result. Its thread still writes to the session's directory."""
    ENDED = "ended"
    """Its thread has done its last write. Its engine is in memory."""
    RETIRING = "retiring"
    """As ENDED, and a job reads the session from its directory."""
    FINISHED = "finished"
    """Only its directory is left."""
    STOPPING = "stopping"
    """It was cancelled, and is removed as soon as its thread has ended."""
    REMOVING = "removing"
    """A job removes its directory. It has no thread."""

    @property
    def is_live(self) -> bool:
        """Whether the session waits to be run, or runs: it can be cancelled, and fail."""
        return self in (Phase.CONNECTING, Phase.PREPARED, Phase.RUNNING)

    @property
    def is_started(self) -> bool:
        """Whether it runs, or waits for the other members to finish."""
        return self in (Phase.PREPARED, Phase.RUNNING)

    @property
    def is_leaving(self) -> bool:
        """Whether the session is removed as soon as possible."""
        return self in (Phase.ABANDONED, Phase.STOPPING, Phase.REMOVING)

    @property
    def is_quiet(self) -> bool:
        """Whether neither a thread nor a job works on the session."""
        return self in (Phase.ENDED, Phase.FINISHED)


class Work(Enum):
    """What is at work in a session that is RUNNING."""

    NONE = "none"
    """Nothing: it is frozen, or its part is finished and those of other members may not be."""
    THREAD = "thread"
    """A thread executes it, or will soon."""
    NEXT_VIEW = "next view"
    """A job changes its view, and starts a thread then."""
    END = "end"
    """A job ends it, or starts a thread that does. It begins only if nothing else is at work, and nothing follows."""


_NEXT: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.BUILDING: (Phase.ABANDONED, Phase.CONNECTING),
    Phase.ABANDONED: (Phase.STOPPING, Phase.REMOVING),
    Phase.CONNECTING: (Phase.PREPARED, Phase.STOPPING, Phase.REMOVING),
    Phase.PREPARED: (Phase.RUNNING, Phase.STOPPING, Phase.REMOVING),
    Phase.RUNNING: (Phase.ENDING, Phase.STOPPING),
    Phase.ENDING: (Phase.ENDED, Phase.STOPPING),
    Phase.ENDED: (Phase.RETIRING, Phase.REMOVING),
    Phase.RETIRING: (Phase.ENDED, Phase.FINISHED),
    Phase.FINISHED: (Phase.REMOVING,),
    Phase.STOPPING: (Phase.REMOVING,),
    Phase.REMOVING: (Phase.ENDED, Phase.FINISHED),  # when the directory cannot be removed
}


@dataclass(slots=True)
class Joining:
    """A node that is prepared, and waits for a view that has it.

    Attributes
    ----------
    is_stopped : bool
        Whether its session, which has no drops, has stopped, so that it can continue in the view.
    adoption : AdoptDecision or None
        The view, if it came before that.
    """

    is_stopped: bool = False
    adoption: AdoptDecision | None = None


class FinishedRecord(Protocol):
    """The attributes that the table reads of a session that has only its directory."""

    @property
    def name(self) -> str:
        """Name of the session."""
        ...

    @property
    def epoch(self) -> int:
        """Its deployment."""
        ...

    @property
    def state(self) -> SessionState:
        """How it ended."""
        ...

    @property
    def is_certain(self) -> bool:
        """Whether it ended so on all nodes, as far as its process knew."""
        ...

    @property
    def ends(self) -> tuple[bytes, ...]:
        """How each part ended, as in `managers.messages.PartDone`; empty if this process did not know."""
        ...


@dataclass(slots=True, eq=False)
class ViewMember:
    """A node as a member of one session that survives losses: what it knows of the views, and of the others.

    Attributes
    ----------
    record : SessionRecord
        The session.
    views : Voter
        How its members agree on its views.
    copies : ContentCopies
        The copies of contents that its members hold for each other.
    requests : ViewRequests
        The changes of its members that were asked for here.
    witnesses : mapping of str to Place
        The witnesses of its views, by name. It does not need them.
    former_peers : mapping of str to Place
        The other members of earlier views.
    lost : dict of str to str
        Members that are lost, and why.
    gone : set of str
        Those of them whose processes have ended.
    waiting : str
        What its view waits for, as users see it.
    gives_up_at : float
        When it fails unless its next view is decided.
    lacks_witness : bool
        Whether its reports show that it has no witness that answers, and that one would vote.
    part_finished : int
        View in which its part is finished, -1 for none; it may wait for copies.
    part_settled : int
        View in which the session is paused and all drops here are settled, if the node is being drained; -1 for none.
    own_end : bytes
        How its part ended here, as in `managers.messages.PartDone`.
    told_view : int
        The view in which it told that its part is finished.
    reminds_at : float
        When this member asks those that it waits for whether the session is over there.
    parts_done : dict of int to set of str
        By view: members that have finished their parts, as far as this one knows.
    part_ends : dict of str to bytes
        How the parts ended that members have told this one about.
    asked_view : int
        The view in which all members had finished, and this one asked whether all of them are still there.
    joining : Joining or None
        What it waits for before it is a member; None if it is one.
    """

    record: "SessionRecord"
    views: Voter
    copies: ContentCopies
    requests: ViewRequests
    witnesses: Mapping[str, Place] = field(default_factory=dict)
    former_peers: Mapping[str, Place] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    waiting: str = ""
    gives_up_at: float = inf
    lacks_witness: bool = False
    part_finished: int = -1
    part_settled: int = -1
    own_end: bytes = b""
    told_view: int = -1
    reminds_at: float = inf
    parts_done: dict[int, set[str]] = field(default_factory=dict)
    part_ends: dict[str, bytes] = field(default_factory=dict)
    asked_view: int = -1
    joining: Joining | None = None

    @property
    def lost_voters(self) -> dict[str, str]:
        """The voters that are lost, and why."""
        voters = {place.node for place in self.views.view.voters}
        return {peer: why for peer, why in self.lost.items() if peer in voters}

    @property
    def is_hopeless(self) -> bool:
        """Whether no view can be decided any more: too few processes of voters may live."""
        view = self.views.view
        return sum(place.node not in self.gone for place in view.voters) < view.majority

    @property
    def lacks_witness_now(self) -> bool:
        """Whether a witness would vote in the view of the session, and there is none, or it is lost."""
        if self.joining is not None or self.record.result is not None:
            return False
        view = self.views.view
        return len(view.members) % 2 == 0 and not any(place.node not in self.lost for place in view.witnesses)


@dataclass(slots=True, eq=False)
class SessionRecord:
    """One session in the table.

    Attributes
    ----------
    name : str
        Its name.
    epoch : int
        Its deployment.
    phase : Phase
        Changed by `SessionTable.move` only.
    seconds : float
        How long its peers may take to answer.
    peers : mapping of str to Place
        The other nodes that it needs, by name.
    instance : object
        The object that answers queries: a hosted or a finished session; None while it is built.
    is_hosted : bool
        Whether its engine is in memory, or will be.
    version : int
        The version that its instance reported last.
    result : SessionState or None
        How it ended.
    is_certain : bool
        Whether the process that ran it ended it. If that process was killed, the session may go on on other nodes.
    preparing : list of int
        Calls that wait until it is prepared.
    removing : list of (int, Exception or None)
        Calls that wait until it is removed, and the error that each is answered with then.
    watching : list of int
        Calls that wait for another version.
    work : Work
        What is at work in it while it is RUNNING.
    is_stopping : bool
        Whether it is to end: it was cancelled, is to fail, or is over on all members. What is at work in it ends it.
    former : SessionRecord or None
        The same session, which was over, while this one is being deployed to continue it.
    postponed : list of (int, Deployment, float)
        Calls of `prepare` that continue it, and wait until nothing works on it any more.
    is_continuation : bool
        Whether it continues a session that was over.
    member : ViewMember or None
        What this node knows of its views; None if it has too few nodes to survive a loss.
    own_failure : Failure or None
        Why it failed on this node only.
    ends : tuple of bytes
        How each part ended, once the members have agreed on that.
    """

    name: str
    epoch: int
    phase: Phase = Phase.BUILDING
    seconds: float = 0.0
    peers: Mapping[str, Place] = field(default_factory=dict)
    instance: Any = None
    is_hosted: bool = True
    version: int = 1
    result: SessionState | None = None
    is_certain: bool = True
    preparing: list[int] = field(default_factory=list)
    removing: list[tuple[int, Exception | None]] = field(default_factory=list)
    watching: list[int] = field(default_factory=list)
    work: Work = Work.NONE
    is_stopping: bool = False
    former: "SessionRecord | None" = None
    postponed: list[tuple[int, Deployment, float]] = field(default_factory=list)
    is_continuation: bool = False
    member: ViewMember | None = None
    own_failure: Failure | None = None
    ends: tuple[bytes, ...] = ()

    @property
    def witnesses(self) -> Mapping[str, Place]:
        """The witnesses of its views, by name. It does not need them."""
        return {} if self.member is None else self.member.witnesses

    @property
    def is_joining(self) -> bool:
        """Whether this node waits for a view that has it."""
        return self.member is not None and self.member.joining is not None

    @property
    def status(self) -> SessionState:
        """The state that clients see."""
        if self.result is not None:
            return self.result
        is_started = self.phase in (Phase.RUNNING, Phase.STOPPING)
        return SessionState.RUNNING if is_started else SessionState.DEPLOYING


class SessionTable:
    """All sessions of a node by name.

    Parameters
    ----------
    finished : mapping of str to FinishedRecord
        Sessions of earlier processes of this node.
    """

    def __init__(self, finished: Mapping[str, FinishedRecord]) -> None:
        self._records = {
            name: SessionRecord(
                name,
                session.epoch,
                Phase.FINISHED,
                instance=session,
                is_hosted=False,
                result=session.state,
                is_certain=session.is_certain,
                ends=session.ends,
            )
            for name, session in finished.items()
        }
        self.visible: Mapping[str, Any] = MappingProxyType({})
        """The instances of all sessions that can be seen. Replaced as a whole, so that any thread may read it."""
        self._publish()

    def __iter__(self) -> Iterator[SessionRecord]:
        """Iterate over a copy, in the order in which the sessions came."""
        return iter(tuple(self._records.values()))

    def get(self, name: str, epoch: int | None = None) -> SessionRecord | None:
        """Return the session of that name, and of that epoch if one is given."""
        record = self._records.get(name)
        return record if record is not None and epoch in (None, record.epoch) else None

    def add(self, record: SessionRecord) -> None:
        """Add a session whose name is free, or one that continues a session of this name that is over."""
        self._records[record.name] = record

    def remove(self, record: SessionRecord) -> None:
        """Remove a session. If it was to continue one that was over, that one is there again."""
        if record.former is None:
            del self._records[record.name]
        else:
            self._records[record.name] = record.former
        self._publish()

    def move(self, record: SessionRecord, phase: Phase) -> None:
        """Change the phase of a session.

        Raises
        ------
        InternalError
            It cannot come from its phase to that one.
        """
        if phase not in _NEXT[record.phase]:
            raise InternalError(f"session {record.name!r} cannot go from {record.phase.name} to {phase.name}")
        record.phase = phase

    def set_instance(self, record: SessionRecord, instance: Any) -> None:
        """Set the object that answers for a session, and make the session visible."""
        record.instance = instance
        self._publish()

    def _publish(self) -> None:
        instances = {name: record.instance for name, record in self._records.items() if record.instance is not None}
        self.visible = MappingProxyType(instances)


# What a state machine will do at a later time.

_Key = tuple[str, str | int]


class Timers:
    """Functions that are due at monotonic times, one for each key."""

    def __init__(self) -> None:
        self._timers: dict[_Key, tuple[float, Callable[[float], None]]] = {}

    def __contains__(self, key: _Key) -> bool:
        """Return whether something is to be done for `key`."""
        return key in self._timers

    def set(self, key: _Key, when: float, function: Callable[[float], None]) -> None:
        """Call `function` with the time once it is `when`, instead of what was set for `key` before."""
        self._timers[key] = (when, function)

    def clear(self, key: _Key) -> None:
        """Do nothing for `key`. Idempotent."""
        self._timers.pop(key, None)

    def run(self, now: float) -> None:
        """Call what is due, in the order of time."""
        for _, key in sorted((when, key) for key, (when, _) in self._timers.items() if when <= now):
            timer = self._timers.pop(key, None)
            if timer is not None:  # another one may have cleared it
                timer[1](now)

    def deadline(self) -> float:
        """Return when something is due next; infinity if never."""
        return min((when for when, _ in self._timers.values()), default=inf)


# The life of each session of a node, from the end of its preparation to its removal: part of
# `NodeMachine`.
#
# Pure decisions. They append actions to a list, and set timers, which the machine owns.

_STOP_SECONDS = 10.0
"""How long calls wait for the end of a session that was cancelled."""
_START_SECONDS = 60.0
"""How long a prepared session waits for its start, in addition to the time for its preparation."""


class Lifecycle:
    """Moves the sessions of one node from phase to phase.

    Parameters
    ----------
    node : str
        Name of the node.
    table : SessionTable
        The sessions.
    timers : Timers
        What is due later.
    actions : list
        What is to be done; decisions are appended.
    kept : int
        Sessions that are over whose engines stay in memory.
    """

    def __init__(self, node: str, table: SessionTable, timers: Timers, actions: list[Action], *, kept: int) -> None:
        self._node = node
        self._table = table
        self._timers = timers
        self._actions = actions
        self._kept = kept

    def answer(self, calls: Iterable[int], error: Exception | None = None) -> None:
        """Answer calls with None, or with an error."""
        self._actions += [Return(call, error=error) for call in calls]

    # Forward.

    def connecting(self, record: SessionRecord) -> None:
        """A session is built, and waits for its peers."""
        self._move(record, Phase.CONNECTING)

    def prepared(self, record: SessionRecord, now: float) -> None:
        """The peers of a session have answered: it can be started."""
        self._move(record, Phase.PREPARED)
        seconds = record.seconds + _START_SECONDS
        until = now + seconds
        reason = f"it was not started within {seconds:g} s; the manager that deployed it must have ended"

        def give_up(now: float) -> None:
            if record.is_joining:
                self.withdraw(record, now)
            else:
                self.cancel(record, now, CancelRequest(reason=reason))

        self._timers.set(("session", record.name), until, give_up)
        self.answer(record.preparing)
        record.preparing = []

    def start(self, record: SessionRecord) -> None:
        """Start a session, unless it was started before."""
        if record.phase is Phase.PREPARED:
            self._move(record, Phase.RUNNING)
            record.former = None
            record.work = Work.THREAD
            self._actions.append(StartSession(record.instance))

    def cancel(self, record: SessionRecord, now: float, request: CancelRequest, error: Exception | None = None) -> None:
        """Cancel a session. One that is not yet prepared is removed as well; one that is over stays as it is."""
        if record.phase is Phase.CONNECTING:
            self.withdraw(record, now, error)
        elif record.phase.is_live:
            self._actions.append(CancelSession(record.instance, request, self._end_run(record)))

    def fail(self, record: SessionRecord, now: float, node: str, failure: Failure) -> None:
        """Fail a session because of the loss of a node. One that is not yet prepared is removed."""
        if record.phase is Phase.CONNECTING:
            self.withdraw(record, now, LinkError(failure.text, where=self._node, hint=failure.hint))
        elif record.phase.is_live:
            self._actions.append(LoseNode(record.instance, node, failure, self._end_run(record)))

    def _end_run(self, record: SessionRecord) -> bool:
        """Note that a session is to stop; return whether that starts no thread in it, because one is at work.

        A session that never ran ends as all others do: in its thread.
        """
        is_idle = record.phase is Phase.RUNNING and record.work is Work.NONE
        if record.phase is Phase.PREPARED:
            self._move(record, Phase.RUNNING)
            record.former = None
        record.is_stopping = True
        record.work = Work.THREAD if record.work is Work.NONE else record.work
        return not is_idle

    def over(self, record: SessionRecord) -> None:
        """A session has its result."""
        if record.phase is Phase.RUNNING:
            self._move(record, Phase.ENDING)
        self.changed(record)

    def ended(self, record: SessionRecord) -> None:
        """The thread of a session has ended."""
        if record.phase is Phase.STOPPING:
            self._remove(record)
        else:
            self._move(record, Phase.ENDED)
            self._retire_oldest()

    # Out of memory.

    def _retire_oldest(self) -> None:
        ended = [record for record in self._table if record.phase is Phase.ENDED]
        for record in ended[: max(len(ended) - self._kept, 0)]:
            self._move(record, Phase.RETIRING)
            self._actions.append(RetireSession(record.name, record.epoch, record.instance))

    def retired(self, record: SessionRecord, finished: FinishedRecord | None) -> None:
        """A session was read from its directory; None means that it cannot be read, and stays in memory."""
        if finished is None:
            self._move(record, Phase.ENDED)
        else:
            self._move(record, Phase.FINISHED)
            record.is_hosted = False
            self._table.set_instance(record, finished)
        if record.removing:  # that had to wait
            self._remove(record)

    # Removal.

    def withdraw(self, record: SessionRecord, now: float, error: Exception | None = None) -> None:
        """Remove a session as soon as nothing works on it; calls that wait until it is prepared get `error`."""
        error = error or self._taken_back(record)
        record.removing += [(call, error) for call in record.preparing]
        record.preparing = []
        match record.phase:
            case Phase.BUILDING:
                self._move(record, Phase.ABANDONED)
            case Phase.CONNECTING | Phase.PREPARED | Phase.RUNNING | Phase.ENDING | Phase.STOPPING:
                self.stop(record, now)
            case Phase.ENDED | Phase.FINISHED:
                self._remove(record)
            case Phase.ABANDONED | Phase.RETIRING | Phase.REMOVING:
                pass  # the job that works on it ends with an event

    def stop(self, record: SessionRecord, now: float) -> None:
        """Cancel a session, which is removed once its thread has ended.

        If it was to continue one that is over, and has not begun, that one is there again.
        """
        if record.former is not None:
            self._move(record, Phase.REMOVING)
            self._actions.append(WithdrawSession(record.name, record.epoch, record.instance))
            return
        if record.phase is not Phase.STOPPING:
            if record.result is None:
                self._actions.append(CancelSession(record.instance, CancelRequest(), self._end_run(record)))
            self._move(record, Phase.STOPPING)
        key = ("session", record.name)
        if key not in self._timers:
            self._timers.set(key, now + _STOP_SECONDS, partial(self._give_up_stopping, record))

    def removed(self, record: SessionRecord, error: Exception | None) -> None:
        """A session is removed; or with an error, its directory could not be removed, and it stays."""
        if error is None:
            self.forget(record)
        else:
            self._move(record, Phase.ENDED if record.is_hosted else Phase.FINISHED)
            self._answer_removal(record, error)

    def forget(self, record: SessionRecord, error: Exception | None = None) -> None:
        """Answer all calls that wait for a session that was removed, or could not be built because of `error`."""
        self._timers.clear(("session", record.name))
        self._table.remove(record)
        self.answer([call for call, *_ in record.postponed], self._taken_back(record))
        record.postponed = []
        self.answer(record.preparing, error)
        self._answer_removal(record, None)

    def abandon(self, record: SessionRecord, error: Exception) -> None:
        """Answer all calls that wait for a session with an error."""
        self.answer([call for call, *_ in record.postponed], error)
        record.postponed = []
        self.answer(record.preparing, error)
        record.preparing = []
        self._answer_removal(record, error)
        self.changed(record, error)

    def _remove(self, record: SessionRecord) -> None:
        self._move(record, Phase.REMOVING)
        self._actions.append(RemoveSession(record.name, record.epoch, record.instance))

    def _give_up_stopping(self, record: SessionRecord, now: float) -> None:
        del now
        hint = "it will be removed when it stops; look at the log of this node if that does not happen"
        self._answer_removal(record, ConflictError(f"session {record.name!r} does not stop", hint=hint))

    def _answer_removal(self, record: SessionRecord, error: Exception | None) -> None:
        """Answer the calls that wait for a removal: with their own error if they have one, else with `error`."""
        self._actions += [Return(call, error=own or error) for call, own in record.removing]
        record.removing = []

    def _taken_back(self, record: SessionRecord) -> DropflowError:
        if record.phase is Phase.CONNECTING:
            return LinkError(f"session {record.name!r} was undone while its peers were connected", where=self._node)
        return GoneError(f"session {record.name!r} was undone while it was prepared", hint="submit the graph again")

    # Watching.

    def watch(self, record: SessionRecord, call: int, version: int, until: float, now: float) -> None:
        """Answer `call` once the version of the session is not `version`, or it is over, or at the time `until`."""
        if record.result is not None or record.version != version or until <= now:
            self.answer([call])
            return
        record.watching.append(call)
        self._timers.set(("watch", call), until, lambda _: self._stop_watching(record, call))

    def changed(self, record: SessionRecord, error: Exception | None = None) -> None:
        """Answer the calls that watch a session."""
        for call in record.watching:
            self._timers.clear(("watch", call))
        self.answer(record.watching, error)
        record.watching = []

    def _stop_watching(self, record: SessionRecord, call: int) -> None:
        record.watching.remove(call)
        self.answer([call])

    def _move(self, record: SessionRecord, phase: Phase) -> None:
        """Change a phase; the time limit of the phase before does not count any more."""
        self._timers.clear(("session", record.name))
        self._table.move(record, phase)


# The end of a node: its sessions are cancelled. Part of `NodeMachine`; pure decisions.

_CLOSE_SECONDS = 10.0
"""How long a node that is closed waits for its sessions."""


class Closing:
    """Closes one node.

    Parameters
    ----------
    node : str
        Name of the node.
    table, sessions, timers, actions :
        The parts of its machine.
    """

    def __init__(
        self, node: str, table: SessionTable, sessions: Lifecycle, timers: Timers, actions: list[Action]
    ) -> None:
        self.has_begun = False
        """Whether the node takes no more sessions because it ends."""
        self._node = node
        self._table = table
        self._sessions = sessions
        self._timers = timers
        self._actions = actions
        self._calls: list[int] = []

    def close(self, call: int, now: float) -> None:
        """Cancel all sessions; answered once all are over, or after some time."""
        reason = f"node {self._node} is stopping"
        self.has_begun = True
        self._calls.append(call)
        self._timers.set(("close", ""), now + _CLOSE_SECONDS, self._give_up)
        for record in self._table:
            if record.phase is Phase.BUILDING:
                self._sessions.withdraw(record, now, LinkError(reason))
            else:
                self._sessions.cancel(record, now, CancelRequest(reason=reason))

    def finish(self) -> None:
        """Answer `close` once nothing works on any session."""
        if self._calls and all(record.phase.is_quiet for record in self._table):
            self._timers.clear(("close", ""))
            self._sessions.answer(self._calls)
            self._calls = []

    def _give_up(self, now: float) -> None:
        del now
        for record in self._table:
            if not record.phase.is_quiet:
                self._actions.append(Log(f"session {record.name!r} does not stop", record.name))
                self._sessions.abandon(record, LinkError(f"node {self._node} is stopping"))
        self._sessions.answer(self._calls)
        self._calls = []
