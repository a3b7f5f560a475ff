"""The views of the sessions of a node: part of `NodeMachine`.

A session with at least three voters goes on after the loss of a node: its voters agree on the next view, see
`managers.recovery.vote`. Pure decisions; they append actions to a list that the machine owns.
"""

from collections.abc import Iterable
from math import inf

import msgspec
import numpy as np

from dropflow.api.requests import WALLTIME_REQUEST, CancelRequest
from dropflow.errors import LinkError
from dropflow.failure import Failure
from managers.deployment import Deployment, Place
from managers.messages import CopyMessage, PartDone, SessionDone, StopSession, ViewMessage
from managers.node.copies import ContentCopies
from managers.node.events import (
    Action,
    AllowFailure,
    CancelSession,
    ConnectPeers,
    ContentUnavailable,
    Continued,
    ContinueSession,
    CopiesReleased,
    CopiesWanted,
    CopyAction,
    CopyEvent,
    CopyWritten,
    FinishSession,
    FreezeSession,
    Frozen,
    Log,
    NotPlanned,
    OffersRefused,
    PartFinished,
    PeerSent,
    Planned,
    PlanNextView,
    SendToPeer,
    ShowWaiting,
    ShowWitness,
    SilenceSession,
    ViewBegun,
    ViewEvent,
)
from managers.node.peer_monitor import Loss, PeerMonitor
from managers.node.sessions import Joining, Lifecycle, Phase, SessionRecord, SessionTable, ViewRequests, Work
from managers.recovery.records import MemberReport, View, ViewDecision, first_view, unpack_column
from managers.recovery.vote import (
    AdoptDecision,
    ConnectMembers,
    LeaveSession,
    PlanView,
    SendViewMessage,
    StopForReport,
    ViewAction,
    ViewChange,
)

__all__ = ["MAJORITY_SECONDS", "ViewChanges", "lacks_witness_now"]

MAJORITY_SECONDS = 600.0
"""How long a session waits for a majority of its nodes."""
JOIN_SECONDS = 90.0
"""How long a node that is prepared to join a session waits for a view that has it."""
REMINDER_SECONDS = 10.0
"""How often a member whose part is finished asks those that it waits for whether the session is over there."""
_ANSWER_SECONDS = 5.0
"""How long it waits if so many of their processes have ended that no view can be decided any more."""


class ViewChanges:
    """Changes the views of the sessions of one node.

    Parameters
    ----------
    node : str
        Name of the node.
    table : SessionTable
        The sessions.
    peers : PeerMonitor
        Which other nodes are lost.
    sessions : Lifecycle
        Starts, ends and removes sessions.
    actions : list
        What is to be done; decisions are appended.
    patience : float
        See `ViewChange`.
    """

    def __init__(
        self,
        node: str,
        table: SessionTable,
        peers: PeerMonitor,
        sessions: Lifecycle,
        actions: list[Action],
        *,
        patience: float,
    ) -> None:
        self._node = node
        self._table = table
        self._peers = peers
        self._sessions = sessions
        self._actions = actions
        self._patience = patience
        self._open: list[SessionRecord] = []
        """Sessions with views that are not over."""
        self.adopted: list[tuple[SessionRecord, ViewDecision]] = []
        """Views that sessions go on in; the machine takes them."""
        self.losses: list[Loss] = []
        """Losses that came to light; the machine takes them."""

    def prepare(self, record: SessionRecord, deployment: Deployment) -> None:
        """Have a session survive losses, if it has enough voters."""
        record.joining = Joining() if deployment.is_joining else None
        view = first_view(deployment)
        if view is not None:
            record.witnesses = {place.node: place for place in view.witnesses}
            record.views = ViewChange(self._node, record.name, record.epoch, view, patience=self._patience)
            record.copies = ContentCopies(self._node, record.name, record.epoch)
            record.requests = ViewRequests(self._node, record.name, record.epoch, self._actions)
            self._open = [*_still_open(self._open, self._table), record]

    def lose(self, record: SessionRecord, peer: str, reason: str, now: float, *, is_final: bool = False) -> bool:
        """Change the view of a session because of a loss; return False if it cannot go on.

        Parameters
        ----------
        is_final : bool
            Whether the process has ended: it will not answer again.
        """
        if record.views is None or not record.phase.is_started or record.result is not None:
            return False
        if record.joining is not None:
            return True  # the members decide without this node
        record.lost[peer] = reason
        if is_final:
            record.gone.add(peer)
        self._carry_out(record, record.views.lose(_lost_voters(record), now), now)
        return True

    def start(self, record: SessionRecord, now: float) -> None:
        """Start a session, unless it was started before. One that is to be joined stops again until a view has it."""
        is_new = record.phase is Phase.PREPARED
        self._sessions.start(record)
        if record.joining is not None:
            record.gives_up_at = now + JOIN_SECONDS
            if is_new:
                self._freeze(record)
        if record.phase.is_started:
            self._actions += _witness_shown(record)

    def tick(self, now: float) -> None:
        """Do what is due at `now`."""
        self._open = _still_open(self._open, self._table)
        for record in tuple(self._open):
            if record.views is not None and record.views.deadline() <= now:
                self._carry_out(record, record.views.tick(now), now)
            if record.requests is not None:
                record.requests.tick(now, record.waiting)
            if record.reminds_at <= now:
                self._actions += _reminders(record, self._node, now)
            if record.gives_up_at <= now:
                self._give_up(record, now)

    def deadline(self) -> float:
        """Return when `tick` is to be called next."""
        due = [
            min(one.views.deadline(), one.gives_up_at, one.reminds_at, one.requests.deadline())
            for one in _still_open(self._open, self._table)
            if one.views is not None and one.requests is not None
        ]
        return min(due, default=inf)

    # Events.

    def on_message(self, event: PeerSent, now: float) -> None:
        """A voter of a session sent a message."""
        message = event.message
        record = self._table.get(message.session, message.epoch)
        if record is None or record.phase.is_leaving:
            self._actions += _absence_answer(event, self._node)
        elif record.views is None:
            # A former process of this node may have ended it, and a member may have missed that.
            if record.result is not None and record.is_certain:
                self._actions += _end_answer(record, event, self._node)
        elif self._is_voter(record, event, now):
            self._on_voter_message(record, event, now)

    def _on_voter_message(self, record: SessionRecord, event: PeerSent, now: float) -> None:
        message = event.message
        if record.result is not None:
            self._actions += _end_answer(record, event, self._node)
            return
        if record.phase is Phase.PREPARED:
            self.start(record, now)  # its members have begun
        if not record.phase.is_started:
            return
        match message:
            case PartDone(is_reminder=True):
                pass  # the session goes on here
            case PartDone():
                self._part_done(record, event.peer, message.view, message.end, now)
            case SessionDone():
                self._finish(record, ends=message.ends)
            case _:
                self.on_view_message(record, event.peer, message, now)

    def _on_copies(self, record: SessionRecord, event: CopyEvent, now: float) -> None:
        """Copies were made or are not needed any more."""
        copies = record.copies
        if copies is None:
            return
        match event:
            case ViewBegun():
                if record.views is not None and not record.views.is_frozen and record.views.view.number == event.view:
                    self.run_copies(record, now)
            case CopiesWanted():
                self.carry_out_copies(record, copies.want(event.counts), now)
            case CopyWritten():
                self.carry_out_copies(record, copies.written(event), now)
            case CopiesReleased():
                self.carry_out_copies(record, copies.released(event.rows), now)
            case OffersRefused():
                self.carry_out_copies(record, copies.refused(event), now)

    def run_copies(self, record: SessionRecord, now: float) -> None:
        """Begin, or continue in a new view, to hold copies and to ask for them."""
        if record.views is not None and record.copies is not None:
            self.carry_out_copies(record, record.copies.run(record.instance, record.views.view), now)

    def _is_voter(self, record: SessionRecord, event: PeerSent, now: float) -> bool:
        """Return whether a process is a voter; one that was is told of the view in which it is not."""
        place = record.peers.get(event.peer) or record.witnesses.get(event.peer)
        if place is not None:
            # A later process of a node that ended the session knows that.
            is_end = isinstance(event.message, SessionDone) and event.incarnation > place.incarnation
            return is_end or place.incarnation == event.incarnation
        former = record.former_peers.get(event.peer)
        is_former = former is not None and former.incarnation == event.incarnation
        if is_former and isinstance(event.message, ViewMessage):
            # The voter that decided without it may be lost, so any other one answers.
            self.on_view_message(record, event.peer, event.message, now)
        return False

    def on_session(self, record: SessionRecord, event: ViewEvent, now: float) -> None:
        """A session has stopped, the computation of its next view is done, or copies of contents were made."""
        match event:
            case Frozen():
                self._on_frozen(record, event, now)
            case Continued():
                record.work = Work.THREAD if record.work is Work.NEXT_VIEW else record.work
                if record.views is not None and record.views.is_frozen:
                    self._freeze(record)
            case PartFinished():
                self._on_part_finished(record, event, now)
            case NotPlanned():
                # Unless another view was decided since, or the session ends for another reason.
                if record.work is Work.NONE:
                    self._finish(record, event.error)
            case Planned():
                if record.views is not None:
                    self._carry_out(record, record.views.planned(event.ballot, event.decision, now), now)
            case _:
                self._on_copies(record, event, now)

    def _on_frozen(self, record: SessionRecord, event: Frozen, now: float) -> None:
        """A session has stopped."""
        record.work = Work.NONE
        if record.is_stopping:
            # Its thread stopped to report before it saw that it was to stop for good.
            record.work = Work.THREAD
            self._actions.append(CancelSession(record.instance, CancelRequest(), is_advancing=False))
        elif record.joining is not None:
            record.joining.is_stopped = True
            if record.joining.adoption is not None:
                self._adopt(record, record.joining.adoption, now)
        elif record.views is not None and record.views.is_frozen:
            self._carry_out(record, record.views.frozen(_encoded(record, event.report), now), now)

    def _on_part_finished(self, record: SessionRecord, event: PartFinished, now: float) -> None:
        """All drops of a session are settled here, or cannot end by its walltime."""
        views = record.views
        if event.is_idle and (record.is_stopping or record.result is not None or (views and views.is_frozen)):
            return
        if event.is_idle and views is None:
            # Its nodes end one by one: the others must not be told, since what runs there goes on.
            self._actions += [SilenceSession(record.instance)] if record.peers else []
            self._sessions.cancel(record, now, WALLTIME_REQUEST)
            return
        if not event.is_idle:
            record.work = Work.NONE
        if views is None or record.is_stopping:
            self._finish(record)
        elif views.is_frozen or record.joining is not None:
            self._freeze(record)  # the request to freeze came too late
        elif event.view == views.view.number:
            record.part_finished, record.own_end = event.view, event.end
            self._tell_part_done(record, views.view, now)

    def _tell_part_done(self, record: SessionRecord, view: View, now: float) -> None:
        """Tell the first member that the part here is finished, as soon as the copies are made that it wants."""
        if record.part_finished != view.number:
            return
        if record.copies is not None:
            record.waiting = record.copies.waiting
            self._actions.append(ShowWaiting(record.instance, record.waiting))
            if record.waiting:
                return
            self._actions += record.copies.finished()
        record.part_finished = -1
        record.told_view, record.reminds_at = view.number, now + REMINDER_SECONDS
        leader = view.members[0].node
        if leader == self._node:
            self._part_done(record, self._node, view.number, record.own_end, now)
        else:
            self._actions.append(SendToPeer(leader, _own_part_done(record, view.number)))

    def carry_out_copies(self, record: SessionRecord, actions: list[CopyAction], now: float) -> None:
        """Carry out what the copies of a session need. Its part here may be finished then."""
        self._actions += actions
        if record.views is not None and not record.views.is_frozen:
            self._tell_part_done(record, record.views.view, now)

    def on_unavailable(self, event: ContentUnavailable) -> None:
        """A content of another node cannot be fetched: the drop fails, unless the node is lost."""
        record = self._table.get(event.session, event.epoch)
        if record is None:
            return
        views = record.views
        place = record.peers.get(event.peer)
        if views is not None and (
            views.is_frozen
            or event.view != views.view.number
            or event.peer in record.lost
            or (place is not None and self._peers.missing({event.peer: place}))
        ):
            return  # in the next view the content is somewhere else, or is made again
        self._actions.append(AllowFailure(event.fail))

    # What follows.

    def on_view_message(self, record: SessionRecord, peer: str, message: ViewMessage | CopyMessage, now: float) -> None:
        """Take in a message of a voter, or a request of this node."""
        if isinstance(message, CopyMessage):
            if record.copies is not None:
                self.carry_out_copies(record, record.copies.receive(peer, message), now)
        elif record.views is not None:
            self._carry_out(record, record.views.receive(peer, message, now), now)

    def _carry_out(self, record: SessionRecord, actions: list[ViewAction], now: float) -> None:
        for action in actions:
            match action:
                case SendViewMessage():
                    self._actions.append(SendToPeer(action.peer, action.message))
                case StopForReport():
                    self._freeze(record)
                case PlanView():
                    self._actions.append(PlanNextView(record.name, record.epoch, record.instance, action))
                case ConnectMembers():
                    self._actions.append(_connection(record, action.places, self._node))
                case AdoptDecision():
                    self._adopt(record, action, now)
                case LeaveSession():
                    why = "as was asked for" if self._node in action.decision.left else "which was out of reach"
                    self._leave(record, now, why)
        record.gives_up_at = _gives_up_at(record, now)
        if record.views is not None and record.views.waiting != record.waiting:
            record.waiting = record.views.waiting
            self._actions.append(ShowWaiting(record.instance, record.waiting, record.gives_up_at - now))
        self._actions += _witness_shown(record)

    def _freeze(self, record: SessionRecord) -> None:
        if record.copies is not None:
            record.copies.stop()
        if record.work is Work.NEXT_VIEW or record.is_stopping:
            return  # as soon as it runs in its present view, and never if it is to end
        shared = {} if record.copies is None else record.copies.shared_files()
        self._actions.append(FreezeSession(record.instance, record.work is not Work.NONE, shared))
        record.work = Work.THREAD  # until it reports

    def _adopt(self, record: SessionRecord, action: AdoptDecision, now: float) -> None:
        if action.decision.is_over:
            self._finish(record, ends=action.decision.ends)
            return
        if record.joining is not None:
            if not record.joining.is_stopped:
                record.joining.adoption = action
                return
            record.joining, record.gives_up_at = None, inf
        view = action.decision.view
        lost = ", ".join(f"{node} ({why})" for node, why in action.decision.lost.items()) or "no node"
        members = ", ".join(place.node for place in view.members)
        changed = [f"left: {node}" for node in action.decision.left] + [
            f"joined: {node}" for node in action.decision.joined
        ]
        text = "; ".join(
            [f"session {record.name} goes on in view {view.number} on {members}", f"lost: {lost}", *changed]
        )
        self._actions.append(Log(text, record.name, is_warning=bool(action.decision.lost)))
        self._actions.append(_connection(record, (*view.members, *view.witnesses), self._node))
        record.former_peers = {**record.former_peers, **record.peers}
        record.peers = {place.node: place for place in view.members if place.node != self._node}
        record.witnesses = {place.node: place for place in view.witnesses}
        if record.is_stopping:
            return  # what is at work in it ends it, and the members of the new view are told so when they ask
        record.work = Work.NEXT_VIEW
        copies = {} if record.copies is None else record.copies.next_view(action.decision)
        held = () if record.copies is None else tuple(record.copies.held)
        self._actions.append(ContinueSession(record.name, record.epoch, record.instance, action.decision, copies, held))
        done = record.parts_done.get(view.number, set())
        record.parts_done = {view.number: done}
        # Members that were lost have answered. If they are lost again, that is a new loss.
        record.lost, record.gone = {}, set()
        voters = {**record.peers, **record.witnesses}
        self.losses += [*self._peers.need(record.name, voters, now), *self._peers.replaced(voters)]
        self.adopted.append((record, action.decision))

    def _give_up(self, record: SessionRecord, now: float) -> None:
        """Fail a session for which no majority of its nodes has answered for a long time: no wait is without an end."""
        record.gives_up_at = inf
        if record.joining is not None:
            self._leave(record, now, f"which no view has within {JOIN_SECONDS:g} s")
            return
        node, why = next(iter(_lost_voters(record).items()), (self._node, "it answers to too few nodes"))
        waited = (
            "too few nodes are left" if _is_hopeless(record) else f"for {MAJORITY_SECONDS:g} s too few nodes answered"
        )
        failure = Failure(
            code=LinkError.code,
            kind="NodeLost",
            text=f"node {node} is lost: {why}; {waited} to go on without it",
            hint="start the nodes again that do not answer, and submit the graph again",
            retryable=True,
        )
        self._sessions.fail(record, now, node, failure)

    def _leave(self, record: SessionRecord, now: float, why: str) -> None:
        text = f"session {record.name} goes on without this node, {why}: its part is removed"
        self._actions += [Log(text, record.name), SilenceSession(record.instance)]
        if record.requests is not None:
            record.requests.refuse("goes on without this node")
        self._sessions.withdraw(record, now)

    def _part_done(self, record: SessionRecord, member: str, view: int, end: bytes, now: float) -> None:
        """Have the session end once all members are done, and have answered again.

        Only the first member of a view gets to know. It asks the others again, since one that was lost meanwhile has
        lost its results: its silence prevents the end until that is found.
        """
        if record.views is None:
            return
        record.parts_done.setdefault(view, set()).add(member)
        record.part_ends[member] = end
        current = record.views.view
        members = {place.node for place in current.members}
        leader = current.members[0].node
        if view != current.number or record.views.is_frozen:
            return
        if leader != self._node:
            if member == leader and record.told_view == view:
                self._actions.append(SendToPeer(leader, _own_part_done(record, view)))
        elif not members <= record.parts_done[view]:
            return
        elif record.asked_view == view or len(members) == 1:
            # Each member has confirmed its end in this view, so the last one that came from it is of this view.
            ends = tuple(record.part_ends[name] for name in sorted(members))
            self._carry_out(record, record.views.end(now, ends), now)
        else:
            record.asked_view, record.parts_done[view] = view, {self._node}
            ask = PartDone(record.name, record.epoch, view)
            self._actions += [SendToPeer(name, ask) for name in sorted(members - {self._node})]

    def _finish(self, record: SessionRecord, error: Exception | None = None, *, ends: tuple[bytes, ...] = ()) -> None:
        """Have a session end that is over on all members, with these ends, or cannot go on because of `error`.

        A thread that is at work in it ends it, or reports that it has stopped before; only then a job may end it.
        """
        is_advancing = record.work is not Work.NONE
        if record.result is not None or (record.is_stopping and is_advancing):
            return
        record.is_stopping = True
        record.work = record.work if is_advancing else Work.END
        record.ends = ends
        self._actions.append(FinishSession(record.instance, is_advancing, error, ends))


def _own_part_done(record: SessionRecord, view: int) -> PartDone:
    return PartDone(record.name, record.epoch, view, end=record.own_end)


def _still_open(records: Iterable[SessionRecord], table: SessionTable) -> list[SessionRecord]:
    """Return the sessions that are not over: there may be many that are."""
    return [one for one in records if one.result is None and table.get(one.name) is one]


def _reminders(record: SessionRecord, node: str, now: float) -> list[Action]:
    """Return what asks the members that this one waits for whether the session is over there.

    A cancel that did not arrive here may have ended it on all others, which then send nothing any more.
    """
    record.reminds_at = inf
    if record.views is None or record.told_view != record.views.view.number:
        return []  # the part in the next view is not finished yet
    record.reminds_at = now + REMINDER_SECONDS
    view = record.views.view
    members, leader = {place.node for place in view.members}, view.members[0].node
    waited = members - record.parts_done.get(view.number, set()) if leader == node else {leader}
    ask = PartDone(record.name, record.epoch, view.number, is_reminder=True)
    return [SendToPeer(name, ask) for name in sorted(waited - {node})]


def _end_answer(record: SessionRecord, event: PeerSent, node: str) -> list[Action]:
    """Return the answer to a voter: the session is over here, and so everywhere, unless it failed on this node only."""
    if record.own_failure is not None:
        return [SendToPeer(event.peer, StopSession(record.name, record.epoch, "", node, record.own_failure))]
    if isinstance(event.message, SessionDone):
        return []
    return [SendToPeer(event.peer, SessionDone(record.name, record.epoch, event.message.view, record.ends))]


def _absence_answer(event: PeerSent, node: str) -> list[Action]:
    """Return the answer to a voter of a session that this process has left: its part here is lost.

    Without it, a voter that believes that this node is a member would wait for it without an end.
    """
    message = event.message
    if isinstance(message, SessionDone):
        return []
    failure = Failure(
        code=LinkError.code,
        kind="NodeLost",
        text=f"node {node} does not have session {message.session} any more",
        hint=f"look at the log of node {node}; submit the graph again",
        retryable=True,
    )
    return [SendToPeer(event.peer, StopSession(message.session, message.epoch, "", node, failure))]


def _connection(record: SessionRecord, places: Iterable[Place], node: str) -> ConnectPeers:
    """Return what opens the links to nodes; those that are open stay."""
    return ConnectPeers(record.name, record.epoch, tuple(place for place in places if place.node != node))


def _lost_voters(record: SessionRecord) -> dict[str, str]:
    """Return the voters that are lost, and why."""
    members = set() if record.views is None else {place.node for place in record.views.view.voters}
    return {peer: why for peer, why in record.lost.items() if peer in members}


def lacks_witness_now(record: SessionRecord) -> bool:
    """Return whether a witness would vote in the view of a session, and there is none, or it is lost."""
    if record.views is None or record.joining is not None or record.result is not None:
        return False
    view = record.views.view
    return len(view.members) % 2 == 0 and not any(place.node not in record.lost for place in view.witnesses)


def _witness_shown(record: SessionRecord) -> list[Action]:
    """Return what has the reports of a session show whether it lacks a witness, if that has changed."""
    lacks_witness, before = lacks_witness_now(record), record.lacks_witness
    record.lacks_witness = lacks_witness
    return [] if lacks_witness == before else [ShowWitness(record.instance, lacks_witness)]


def _gives_up_at(record: SessionRecord, now: float) -> float:
    """Return when a session fails unless its next view is decided before."""
    if record.joining is not None:
        return record.gives_up_at
    if _is_hopeless(record):
        # The others may have ended the session before they were started again: then they answer so.
        return min(record.gives_up_at, now + _ANSWER_SECONDS)
    is_waiting = record.views is not None and (record.views.is_frozen or record.views.waiting != "")
    return min(record.gives_up_at, now + MAJORITY_SECONDS) if is_waiting else inf


def _is_hopeless(record: SessionRecord) -> bool:
    """Return whether no view can be decided any more: too few processes of voters may live."""
    if record.views is None:
        return True
    view = record.views.view
    return sum(place.node not in record.gone for place in view.voters) < view.majority


def _encoded(record: SessionRecord, report: MemberReport) -> bytes:
    """Return a report with the copies that are here."""
    if record.copies is not None:
        seen = unpack_column(report.copies, np.int32).tolist()
        report = msgspec.structs.replace(report, copies=record.copies.report(seen))
    return msgspec.msgpack.encode(report)
