"""The state machine of a node manager: which sessions are built, connected, started, cancelled and removed, and when.

A pure state machine over a clock that is passed in; `managers.node.host` carries its actions out. The phases of a
session, and which may follow which, are in `managers.node.decisions.sessions`. The directory of a session is removed
only after its thread has ended.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dropflow.api import operations
from dropflow.api.requests import CancelRequest
from dropflow.errors import (
    ConflictError,
    DropflowError,
    GoneError,
    LinkError,
    NotFoundError,
    RestartedError,
    UsageError,
)
from managers.deployment import Deployment
from managers.machine_calls import Call, CallId, Return
from managers.membership import LOST_AFTER, SUSPECT_AFTER
from managers.node.decisions.draining import Draining
from managers.node.decisions.events import (
    Action,
    Build,
    Built,
    CancelRecorded,
    Changed,
    ContentsRead,
    ContentUnavailable,
    Ended,
    Event,
    LinkRefused,
    Log,
    NotBuilt,
    NotConnected,
    Over,
    PeerChanged,
    PeerRestarted,
    PeerSent,
    PeersProbed,
    PeersRead,
    PeerStopped,
    ProbePeers,
    ReadPeers,
    RecordCancel,
    Removed,
    Retired,
    SessionEvent,
    ViewEvent,
)
from managers.node.decisions.lifecycle import Closing, Lifecycle, Timers
from managers.node.decisions.losses import PeerLosses
from managers.node.decisions.members import MemberOperations
from managers.node.decisions.peer_monitor import PeerMonitor
from managers.node.decisions.sessions import FinishedRecord, Phase, Postponed, SessionRecord, SessionTable
from managers.node.decisions.view_changes import ViewChanges
from managers.recovery.vote import ConnectPeers

_NOT_STARTED = (Phase.BUILDING, Phase.ABANDONED, Phase.CONNECTING, Phase.PREPARED)
_MOST_WITHDRAWN = 1000
"""Number of undone deployments that are remembered, since their requests may still be on their way here."""


# Checks of deployments that reach a node, and the errors for those that are refused.


def refuse_other_process(deployment: Deployment, node: str, incarnation: int) -> None:
    """Refuse a deployment that is for another process.

    Raises
    ------
    UsageError
        It is not for this node.
    RestartedError
        It is for an earlier process of this node.
    """
    own = next((place for place in deployment.places if place.node == node), None)
    if own is None:
        raise UsageError(
            f"the deployment of {deployment.session!r} is not for node {node}",
            hint=f"it is for {', '.join(sorted(place.node for place in deployment.places)) or 'no node'}",
        )
    if own.incarnation != incarnation:
        raise RestartedError(
            f"node {node} was restarted after session {deployment.session!r} was planned for it",
            hint="submit the graph again",
        )


def to_continue(record: SessionRecord, deployment: Deployment) -> SessionRecord:
    """Return the present session of the name if it is over and the deployment continues it.

    Raises
    ------
    ConflictError
        It is another session, it is not over, or it was deployed later.
    """
    if not deployment.is_continuation:
        raise ConflictError(
            f"there is a session {record.name!r} already, {record.status.name}",
            hint="delete it, or give the new one another name",
        )
    if not record.phase.is_quiet and record.phase not in (Phase.ENDING, Phase.RETIRING):
        raise ConflictError(
            f"session {record.name!r} cannot be continued: it is {record.status.name}",
            hint="try again when it is over",
        )
    if record.epoch >= deployment.epoch:
        raise ConflictError(f"session {record.name!r} was deployed again meanwhile", hint="look at its status")
    return record


def is_connecting(record: SessionRecord, peers: PeerMonitor) -> bool:
    """Return whether a session waits for peers that never answered: if it is cancelled then, nothing is left of it."""
    return record.phase is Phase.CONNECTING and bool(peers.find_missing(record.peers))


def cancelled_early(session: str, request: CancelRequest) -> GoneError:
    """Return the error for the deployer of a session that was cancelled while it was prepared."""
    why = f": {request.reason}" if request.reason else ""
    return GoneError(f"session {session!r} was cancelled before it started{why}")


class NodeMachine:
    """The decisions of one node manager.

    Other threads call its `operations`, and the methods of `members`, `draining` and `closing`. These return None,
    except `cancel`, which returns the instance of the session, or None if it is removed, and `drain`, which returns a
    `DrainReply`.

    Parameters
    ----------
    name : str
        Name of the node.
    incarnation : int
        Incarnation of its process.
    finished : mapping of str to FinishedRecord
        Sessions of earlier processes of this node, by name.
    suspect_after, lost_after : float
        Seconds of silence after which another node is suspect, and lost.
    kept : int
        Number of sessions that are over and stay in memory. Of older ones, only the directories are left.
    now : float
        The monotonic time.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        finished: Mapping[str, FinishedRecord],
        *,
        suspect_after: float = SUSPECT_AFTER,
        lost_after: float = LOST_AFTER,
        kept: int = 20,
        now: float = 0.0,
    ) -> None:
        self._name = name
        self._incarnation = incarnation
        self._timers = Timers()
        self._actions: list[Action] = []
        self.table = SessionTable(finished)
        self.peers = PeerMonitor(name, suspect_after=suspect_after, lost_after=lost_after, now=now)
        self._sessions = Lifecycle(name, self.table, self._timers, self._actions, kept=kept)
        self._views = ViewChanges(name, self.table, self.peers, self._sessions, self._actions, patience=lost_after / 2)
        self._withdrawn: dict[tuple[str, int], None] = {}
        self.members = MemberOperations(
            name, incarnation, views=self._views, visible=self._visible, actions=self._actions
        )
        self._losses = PeerLosses(
            table=self.table,
            peers=self.peers,
            sessions=self._sessions,
            views=self._views,
            members=self.members,
            stop=self._stop,
            actions=self._actions,
        )
        self.closing = Closing(name, self.table, self._sessions, self._timers, self._actions)
        self.draining = Draining(
            name,
            table=self.table,
            sessions=self._sessions,
            views=self._views,
            members=self.members,
            timers=self._timers,
            actions=self._actions,
        )
        self.operations: Mapping[str, Callable[..., None]] = {
            operations.PREPARE.name: self._prepare,
            operations.START.name: self._start,
            operations.UNDO.name: self._undo,
            operations.CANCEL.name: self._cancel,
            operations.DELETE.name: self._delete,
            operations.WATCH.name: self._watch,
            operations.REBALANCE.name: self.members.rebalance,
            operations.RETRY.name: self.members.retry,
            operations.FORCE_CONTINUE.name: self.members.force_continue,
            operations.ADD_MEMBER.name: self.members.add_member,
            operations.DRAIN.name: self.draining.drain,
            "drained": self.draining.drained,
            "close": self.closing.close,
        }
        """Operations by name, which other threads call; most are those of `dropflow.api.manager.Manager`."""

    def handle(self, event: Event, now: float) -> list[Action]:
        """Process an event at monotonic time `now`, and return the actions to carry out, in order."""
        match event:
            case Call():
                try:
                    event.operation(event.id, now)
                except DropflowError as error:
                    self._sessions.answer([event.id], error)
            case PeerSent():
                self._views.on_message(event, now)
            case ContentUnavailable():
                self._views.on_unavailable(event)
            case PeersRead() | PeerChanged() | PeersProbed() | LinkRefused() | PeerRestarted() | PeerStopped():
                self._losses.on_peers(event, now)
            case ContentsRead():
                self.draining.contents_read(event, now)
            case CancelRecorded():
                record = self.table.get(event.session, event.epoch)
                if record is not None:  # it was not deleted meanwhile
                    self._stop(record, now, event.request)
                self._actions.append(Return(event.call, None if record is None else record.instance))
            case _:
                self._on_record(event, now)
        self._follow_up(now)
        self.closing.finish()
        return self._take_actions()

    def _on_record(self, event: SessionEvent | ViewEvent, now: float) -> None:
        record = self.table.get(event.session, event.epoch)
        if record is None:
            pass
        elif isinstance(event, ViewEvent):
            self._views.on_session(record, event, now)
        else:
            self._on_session(record, event, now)

    def tick(self, now: float) -> list[Action]:
        """Return the actions that are due at `now`."""
        if self.peers.begin_read(now):
            self._actions.append(ReadPeers())
            addresses = self.peers.begin_probe()
            self._actions += [ProbePeers(addresses)] if addresses else []
        self._timers.run(now)
        self._views.tick(now)
        self._follow_up(now)
        return self._take_actions()

    def deadline(self) -> float:
        """Return the time of the next `tick`; infinity if none is needed."""
        return min(self._timers.deadline(), self.peers.deadline(), self._views.deadline())

    def _follow_up(self, now: float) -> None:
        """Carry out what follows from new views: losses, and the next step of a drain, which may change views again."""
        self._losses.take(now)
        self.draining.look(now)
        self._losses.take(now)

    def _take_actions(self) -> list[Action]:
        actions = self._actions[:]
        self._actions.clear()
        return actions

    # Operations.

    def _prepare(self, call: CallId[None], now: float, *, deployment: Deployment, seconds: float) -> None:
        """Begin to build a session; answered once its peers have answered."""
        name, epoch = deployment.session, deployment.epoch
        refuse_other_process(deployment, self._name, self._incarnation)
        if self.closing.has_begun:
            raise LinkError(f"node {self._name} is stopping")
        if self.draining.has_begun:
            raise LinkError(
                f"node {self._name} is being drained, and takes no sessions",
                hint="submit the graph to other nodes",
            )
        record = self.table.get(name)
        if (
            record is not None
            and record.epoch == epoch
            and self._prepare_again(record, (call, deployment, seconds), now)
        ):
            return
        if (name, epoch) in self._withdrawn and not deployment.is_joining:
            raise GoneError(f"session {name!r} was undone before its deployment arrived", hint="submit the graph again")
        if record is not None and record.phase.is_leaving and not deployment.is_continuation:
            record.postponed.append((call, deployment, seconds))
            return
        former = None if record is None else to_continue(record, deployment)
        if former is not None and not former.phase.is_quiet:
            former.postponed.append((call, deployment, seconds))
            return
        peers = {place.node: place for place in deployment.places}
        record = SessionRecord(
            name,
            epoch,
            seconds=seconds,
            peers=peers,
            instance=None if former is None else former.instance,
            preparing=[call],
            former=former,
            is_continuation=deployment.is_continuation,
        )
        self._views.prepare(record, deployment)
        self.table.add(record)
        self._actions.append(Build(deployment))

    def _prepare_again(self, record: SessionRecord, request: Postponed, now: float) -> bool:
        """Answer a deployment that this node has had before, or let it wait; return False if it is to be built."""
        call, deployment, _ = request
        if record.is_hosted and not record.phase.is_leaving:
            if record.phase in (Phase.BUILDING, Phase.CONNECTING):
                record.preparing.append(call)
            elif deployment.is_joining and self._views.leave_former(record, deployment, now):
                record.postponed.append(request)
            else:
                self._sessions.answer([call])
            return True
        if not deployment.is_joining or record.is_certain:
            return False
        # An earlier process had this part and was killed. The members go on without it, and this process begins anew.
        if record.phase is not Phase.FINISHED:
            raise ConflictError(f"the former part of session {record.name!r} is being removed", hint="try again")
        record.postponed.append(request)
        self._sessions.withdraw(record, now)
        return True

    def _start(self, call: CallId[None], now: float, *, session: str, epoch: int) -> None:
        record = self._visible(session)
        if record.epoch != epoch:
            raise ConflictError(f"session {session!r} was deployed again", hint="look at its status")
        if not record.is_hosted:
            raise ConflictError(f"session {session!r} is over", hint="submit the graph again")
        if record.phase is Phase.CONNECTING:
            raise ConflictError(f"session {session!r} is still being prepared", hint="wait until it is, and try again")
        self._views.start(record, now)
        self._sessions.answer([call])

    def _undo(self, call: CallId[None], now: float, *, session: str, epoch: int, reason: str) -> None:
        """Remove a session of this deployment. Answered once it is removed, or at once if it is being built."""
        # A `prepare` of this deployment that comes later must be refused.
        self._withdrawn[session, epoch] = None
        if len(self._withdrawn) > _MOST_WITHDRAWN:
            del self._withdrawn[next(iter(self._withdrawn))]
        record = self.table.get(session, epoch)
        if record is None or not record.is_hosted:
            self._sessions.answer([call])
            return
        self._actions.append(Log(f"session {session} is undone: {reason}", session, is_warning=False))
        if record.is_continuation and record.phase not in _NOT_STARTED:
            # It has begun: its contents are kept, and it can be continued again.
            self._sessions.cancel(record, now, CancelRequest(reason=f"its continuation was undone: {reason}"))
            self._sessions.answer([call])
            return
        if record.phase in (Phase.BUILDING, Phase.ABANDONED):
            self._sessions.answer([call])
        else:
            record.removing.append((call, None))
        self._sessions.withdraw(record, now)

    def _cancel(self, call: CallId[Any], now: float, *, session: str, reason: str, grace: float) -> None:
        """Cancel a session; answered when the request is on the disk. One that is being prepared is removed."""
        request = CancelRequest(reason=reason, grace=grace)
        record = self.table.get(session)
        if record is not None and record.phase in (Phase.BUILDING, Phase.ABANDONED):
            self._sessions.withdraw(record, now, cancelled_early(session, request))
            self._actions.append(Return(call, None))
            return
        record = self._visible(session)
        if not record.phase.is_live or is_connecting(record, self.peers):
            self._stop(record, now, request, cancelled_early(session, request))
            self._actions.append(Return(call, record.instance))
            return
        self._actions.append(RecordCancel(session, record.epoch, record.instance, call, request))

    def _delete(self, call: CallId[None], now: float, *, session: str, epoch: int | None = None) -> None:
        """Remove a session, unless it was deployed again after `epoch`; answered once it is removed."""
        record = self._visible(session)
        if epoch is not None and record.epoch > epoch:
            raise NotFoundError(f"session {session!r} was deployed again on node {self._name}")
        if record.former is not None:
            raise ConflictError(f"session {session!r} is being resumed", hint="try again when it runs")
        record.removing.append((call, None))
        self._sessions.withdraw(record, now, GoneError(f"session {session!r} was deleted before it started"))

    def _watch(self, call: CallId[None], now: float, *, session: str, version: int, seconds: float) -> None:
        """Answer once the session's version is not `version`, or it is over, or `seconds` have passed."""
        self._sessions.watch(self._visible(session), call, version, now + seconds, now)

    def _visible(self, session: str) -> SessionRecord:
        record = self.table.get(session)
        if record is None or record.instance is None:
            raise NotFoundError(f"there is no session {session!r} on node {self._name}")
        return record

    # Sessions.

    def _stop(self, record: SessionRecord, now: float, request: CancelRequest, error: Exception | None = None) -> None:
        """Cancel a session.

        While it is connecting, it stays as CANCELLED only if all peers have answered before. Otherwise it is removed,
        and its deployer gets `error`.
        """
        if record.phase is Phase.CONNECTING and not is_connecting(record, self.peers):
            self._sessions.prepared(record, now)
        self._sessions.cancel(record, now, request, error)

    def _on_session(self, record: SessionRecord, event: SessionEvent, now: float) -> None:
        sessions = self._sessions
        match event:
            case Built():
                self._connect(record, event, now)
            case NotBuilt():
                anew = _taken_from(record.postponed)
                sessions.forget(record, event.error)
                record.postponed = anew
                self._prepare_postponed(record, now)
            case NotConnected():
                if record.phase is Phase.CONNECTING:
                    sessions.withdraw(record, now, event.error)
            case Changed():
                record.version = event.version
                sessions.changed(record)
            case Over():
                record.result = event.status
                self.members.over(record, event.failure)
                sessions.over(record)
                self._losses.lose(self.peers.release(record.name, now), now)
            case Ended():
                sessions.ended(record)
                self._prepare_postponed(record, now)
            case Retired():
                sessions.retired(record, event.finished)
                self._prepare_postponed(record, now)
            case Removed():
                anew = _taken_from(record.postponed)
                sessions.removed(record, event.error)
                record.postponed = anew
                self._prepare_postponed(record, now, event.error)

    def _prepare_postponed(self, record: SessionRecord, now: float, error: Exception | None = None) -> None:
        """Prepare the deployments that waited until nothing works on a session or its former part was removed."""
        postponed, record.postponed = record.postponed, []
        for call, deployment, seconds in postponed:
            if error is not None:
                self._sessions.answer([call], error)
                continue
            try:
                self._prepare(call, now, deployment=deployment, seconds=seconds)
            except DropflowError as refusal:
                self._sessions.answer([call], refusal)

    def _connect(self, record: SessionRecord, built: Built, now: float) -> None:
        """Wait for the peers of a session that is built."""
        self.table.set_instance(record, built.hosted)
        # A session that survives losses needs all its members. Any other needs the nodes with neighbours of its drops.
        needed = set(built.neighbours) if record.member is None else record.peers.keys() - {self._name}
        record.peers = {node: place for node, place in record.peers.items() if node in needed}
        if record.phase is Phase.ABANDONED:
            self._sessions.stop(record, now)
            return
        self._sessions.connecting(record)
        self._views.run_copies(record, now)
        if not record.peers:
            self._sessions.prepared(record, now)
            return
        self._timers.set(
            ("session", record.name),
            now + record.seconds,
            lambda now: self._sessions.withdraw(
                record, now, self.peers.unreachable(self.peers.find_missing(record.peers))
            ),
        )
        places = {**record.peers, **record.witnesses}
        self._losses.lose(self.peers.need(record.name, places, now), now)
        self._actions += [ConnectPeers(record.name, record.epoch, tuple(places.values())), ReadPeers()]


def _taken_from(postponed: list[Postponed]) -> list[Postponed]:
    """Remove from a list, and return, the deployments that do not continue the session that is being removed."""
    anew = [entry for entry in postponed if not entry[1].is_continuation]
    postponed[:] = [entry for entry in postponed if entry[1].is_continuation]
    return anew
