"""The sessions of a node: one table of all of them, hosted and finished, with one explicit phase each.

::

    BUILDING ─▶ CONNECTING ─▶ PREPARED ─▶ RUNNING ─▶ ENDING ─▶ ENDED ◀─▶ RETIRING ─▶ FINISHED
        │            │            │          │          │        │                      │
        ▼            ▼            ▼          ▼          ▼        ▼                      ▼
    ABANDONED ─▶ STOPPING ◀───────┴──────────┴──────────┘     REMOVING ◀────────────────┘
                     └───────────────────────────────────────────▲

A session that is removed goes down. If a thread or a job works on it, it goes to REMOVING only after that has ended. A
continuation that has not begun goes to REMOVING at once, and the session that it was to continue is visible again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

from dropflow.errors import InternalError
from dropflow.failure import Failure
from dropflow.states import SessionState
from managers.deployment import Deployment, Place
from managers.machine_calls import CallId
from managers.node.decisions.copies import ContentCopies
from managers.node.decisions.view_requests import ViewRequests
from managers.recovery.vote import AdoptDecision, Voter

Postponed = tuple[CallId[None], Deployment, float]
"""A call of `prepare` with its arguments."""


class Phase(Enum):
    """The phase of a session between the request to prepare it and its removal."""

    BUILDING = "building"
    """A job slices the graph and builds the session. The name is taken, but the session cannot be seen yet."""
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
    """Its thread has done its last write. It is in memory."""
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
    """The thread or job that is at work in a session that is RUNNING."""

    NONE = "none"
    """Nothing: the session is frozen, or its part is finished and waits for the parts of other members."""
    THREAD = "thread"
    """A thread executes it, or will soon."""
    NEXT_VIEW = "next view"
    """A job changes its view, and starts a thread then."""
    END = "end"
    """A job ends it, or starts a thread that ends it. The job begins only if nothing else is at work in it."""


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

_NEXT_WORK: Mapping[Work, tuple[Work, ...]] = {
    Work.NONE: (Work.THREAD, Work.NEXT_VIEW, Work.END),
    Work.THREAD: (Work.NONE,),
    Work.NEXT_VIEW: (Work.THREAD, Work.NONE),  # the thread may finish the part before the job reports
    Work.END: (),
}


@dataclass(slots=True)
class Joining:
    """A prepared node that waits to become a member in a next view.

    Attributes
    ----------
    is_stopped : bool
        Whether its session, which has no drops yet, has stopped, so that it can continue in that view.
    adoption : AdoptDecision or None
        The decision about that view, if it came before the session has stopped; else None.
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
        """Whether it ended in this state on all nodes, according to its process."""
        ...

    @property
    def ends(self) -> tuple[bytes, ...]:
        """How each part ended, as in `managers.messages.PartDone`; empty if that is not known."""
        ...


@dataclass(slots=True, eq=False)
class ViewMember:
    """The state of a node as a member of one session that survives losses: its views, and the other members.

    Attributes
    ----------
    record : SessionRecord
        The session.
    views : Voter
        How its members agree on its views.
    copies : ContentCopies
        The copies of contents that its members hold for each other.
    requests : ViewRequests
        The changes of its members that were requested here.
    witnesses : mapping of str to Place
        The witnesses of its views, by name. The session runs without them, too.
    former_peers : mapping of str to Place
        The other members of earlier views.
    lost : dict of str to str
        Members that are lost, and why.
    gone : set of str
        Lost members whose processes have certainly ended.
    waiting : str
        Why its view waits, as users see it; empty if it does not wait.
    gives_up_at : float
        Monotonic time at which it fails unless its next view is decided before.
    lacks_witness : bool
        Whether its reports show that it lacks a witness: one would vote, and none answers.
    part_finished : int
        View in which its part is finished, -1 for none. The part may still wait for copies.
    part_settled : int
        View in which the session is paused and all drops here are settled, if the node is being drained; -1 for none.
    own_end : bytes
        How its part ended here, as in `managers.messages.PartDone`.
    told_view : int
        The last view in which it sent that its part is finished.
    reminds_at : float
        When this member next asks the members that it waits for whether the session is over there.
    parts_done : dict of int to set of str
        By view: members that have finished their parts, from their messages to this member.
    part_ends : dict of str to bytes
        How parts ended, by member, from their messages to this member.
    asked_view : int
        The view in which all members had finished, and this member asked whether all of them still answer.
    joining : Joining or None
        The state before it is a member; None if it is a member.
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
        """Whether no view can be decided any more: too few processes of voters may still run."""
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
        Seconds that its peers may take to answer.
    peers : mapping of str to Place
        The other nodes that it needs, by name.
    instance : object
        The object that answers queries: a hosted or a finished session; None while it is built.
    is_hosted : bool
        Whether it is in memory, or will be.
    version : int
        The version that its instance reported last.
    result : SessionState or None
        How it ended; None if it is not over.
    is_certain : bool
        Whether the process that ran it ended it. If that process was killed, other nodes may continue the session.
    preparing : list of int
        Ids of calls that wait until it is prepared.
    removing : list of (int, Exception or None)
        Ids of calls that wait until it is removed, and the error of each answer.
    watching : list of int
        Ids of calls that wait until its version changes.
    work : Work
        The thread or job that is at work in it while it is RUNNING. Changed by `SessionTable.set_work` only.
    is_stopping : bool
        Whether it is to end: it was cancelled, is to fail, or is over on all members. Its thread or job ends it.
    former : SessionRecord or None
        The record of the same session before, which was over, while this one is deployed to continue it; else None.
    postponed : list of (CallId, Deployment, float)
        Calls of `prepare` that continue it, and wait until nothing works on it any more.
    is_continuation : bool
        Whether it continues a session that was over.
    member : ViewMember or None
        The state of this node as a member; None if the session has too few nodes to survive a loss.
    own_failure : Failure or None
        Why it failed on this node only; None if it did not.
    ends : tuple of bytes
        How each part ended, once the members have agreed on that; else empty.
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
    postponed: list[Postponed] = field(default_factory=list)
    is_continuation: bool = False
    member: ViewMember | None = None
    own_failure: Failure | None = None
    ends: tuple[bytes, ...] = ()

    @property
    def witnesses(self) -> Mapping[str, Place]:
        """The witnesses of its views, by name. The session runs without them, too."""
        return {} if self.member is None else self.member.witnesses

    @property
    def is_joining(self) -> bool:
        """Whether this node waits to become a member in a next view."""
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
        """Add a session with a free name, or one that continues the session of this name, which is over."""
        self._records[record.name] = record

    def remove(self, record: SessionRecord) -> None:
        """Remove a session. If it was to continue an earlier session, that session is visible again."""
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
            No transition leads from its phase to `phase`.
        """
        if phase not in _NEXT[record.phase]:
            raise InternalError(f"session {record.name!r} cannot go from {record.phase.name} to {phase.name}")
        record.phase = phase

    def set_work(self, record: SessionRecord, work: Work) -> None:
        """Change the thread or job that is at work in a session.

        Raises
        ------
        InternalError
            `work` cannot follow what is at work in it.
        """
        if work is not record.work and work not in _NEXT_WORK[record.work]:
            raise InternalError(f"session {record.name!r} cannot go from {record.work.name} to {work.name}")
        record.work = work

    def set_instance(self, record: SessionRecord, instance: Any) -> None:
        """Set the object that answers for a session, and make the session visible."""
        record.instance = instance
        self._publish()

    def _publish(self) -> None:
        instances = {name: record.instance for name, record in self._records.items() if record.instance is not None}
        self.visible = MappingProxyType(instances)
