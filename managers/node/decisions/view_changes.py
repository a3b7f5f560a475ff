"""Each session from one view to the next: it stops, its voters agree, it continues. Part of `NodeMachine`.

A session with at least three voters goes on after the loss of a node: its voters agree on the next view, see
`managers.recovery.vote`. Pure decisions; they append actions to a list that the machine owns.
"""

from collections.abc import Iterable
from math import inf

import msgspec
import numpy as np

from dropflow.api.requests import WALLTIME_REQUEST, CancelRequest
from managers.deployment import Deployment, Place
from managers.messages import CopyMessage, PartDone, SessionDone, StopSession, ViewMessage
from managers.node.decisions.copies import ContentCopies
from managers.node.decisions.events import (
    Action,
    AllowFailure,
    CancelSession,
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
    PartSettled,
    PeerSent,
    Planned,
    PlanNextView,
    ShowWaiting,
    ShowWitness,
    SilenceSession,
    ViewBegun,
    ViewEvent,
)
from managers.node.decisions.lifecycle import Lifecycle
from managers.node.decisions.peer_monitor import Loss, PeerMonitor
from managers.node.decisions.sessions import Joining, Phase, SessionRecord, SessionTable, ViewMember, Work
from managers.node.decisions.view_requests import ViewRequests
from managers.recovery.records import MemberReport, View, ViewDecision, first_view, node_lost, unpack_column
from managers.recovery.vote import AdoptDecision, ConnectPeers, PlanView, SendToPeer, StopForReport, ViewAction, Voter

MAJORITY_SECONDS = 600.0
"""Seconds that a session waits for a majority of its nodes."""
JOIN_SECONDS = 90.0
"""Seconds that a prepared node waits for a view in which it is a member."""
REMINDER_SECONDS = 10.0
"""Seconds after which a finished member asks again, of each member that it waits for, whether the session is over."""
_ANSWER_SECONDS = 5.0
"""Seconds that a session waits for its nodes if too few processes are left to decide on a view."""


class ViewChanges:
    """Changes the views of the sessions of one node.

    Parameters
    ----------
    node : str
        Name of the node.
    table : SessionTable
        The sessions.
    peers : PeerMonitor
        Finds lost nodes.
    sessions : Lifecycle
        Starts, ends and removes sessions.
    actions : list
        Actions to carry out; decisions are appended.
    patience : float
        See `Voter`.
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
        self._open: list[ViewMember] = []
        """The members of sessions that are not over."""
        self.adopted: list[tuple[ViewMember, ViewDecision]] = []
        """Decided views in which sessions go on; the machine takes them."""
        self.losses: list[Loss] = []
        """Losses that were found with a view; the machine takes them."""

    def prepare(self, record: SessionRecord, deployment: Deployment) -> None:
        """Let a session survive losses, if it has enough voters."""
        view = first_view(deployment)
        if view is not None:
            record.member = ViewMember(
                record,
                Voter(self._node, record.name, record.epoch, view, patience=self._patience),
                ContentCopies(self._node, record.name, record.epoch),
                ViewRequests(self._node, record.name, record.epoch, self._actions),
                witnesses={place.node: place for place in view.witnesses},
                joining=Joining() if deployment.is_joining else None,
            )
            self._open = [*_still_open(self._open, self._table), record.member]

    def lose(self, record: SessionRecord, peer: str, reason: str, now: float, *, is_final: bool = False) -> bool:
        """Change the view of a session because of a loss; return False if it cannot go on.

        Parameters
        ----------
        is_final : bool
            Whether the process has ended: it will not answer again.
        """
        member = record.member
        if member is None or not record.phase.is_started or record.result is not None:
            return False
        if member.joining is not None:
            return True  # the members decide without this node
        member.lost[peer] = reason
        if is_final:
            member.gone.add(peer)
        self._carry_out(member, member.views.lose(member.lost_voters, now), now)
        return True

    def start(self, record: SessionRecord, now: float) -> None:
        """Start a session, unless it was started before. A joining node stops it again until it is a member."""
        is_new = record.phase is Phase.PREPARED
        self._sessions.start(record)
        member = record.member
        if member is None:
            return
        if member.joining is not None:
            member.gives_up_at = now + JOIN_SECONDS
            if is_new:
                self._freeze(member)
        if record.phase.is_started:
            self._actions += _show_witness(member)

    def tick(self, now: float) -> None:
        """Carry out the steps that are due at `now`."""
        self._open = _still_open(self._open, self._table)
        for member in tuple(self._open):
            if member.views.deadline() <= now:
                self._carry_out(member, member.views.tick(now), now)
            member.requests.tick(now, member.waiting)
            if member.reminds_at <= now:
                self._actions += _remind(member, self._node, now)
            if member.gives_up_at <= now:
                self._give_up(member, now)

    def deadline(self) -> float:
        """Return when `tick` is to be called next."""
        due = [
            min(member.views.deadline(), member.gives_up_at, member.reminds_at, member.requests.deadline())
            for member in _still_open(self._open, self._table)
        ]
        return min(due, default=inf)

    # Events.

    def on_message(self, event: PeerSent, now: float) -> None:
        """Handle a message of a voter of a session."""
        message = event.message
        record = self._table.get(message.session, message.epoch)
        if record is None or record.phase.is_leaving:
            self._actions += _absence_answer(event, self._node)
        elif record.member is None:
            # A former process of this node may have ended it, and a member may have missed the message about that.
            if record.result is not None and record.is_certain:
                self._actions += _end_answer(record, event, self._node)
        elif _is_voter(record.member, event):
            self._from_voter(record.member, event, now)
        else:
            self._answer_former_voter(record.member, event, now)

    def _from_voter(self, member: ViewMember, event: PeerSent, now: float) -> None:
        message, record = event.message, member.record
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
                self._part_done(member, event.peer, message.view, message.end, now)
            case SessionDone():
                self._finish(record, ends=message.ends)
            case _:
                self.on_view_message(member, event.peer, message, now)

    def _on_copies(self, member: ViewMember, event: CopyEvent, now: float) -> None:
        """Copies were made or are not needed any more."""
        copies = member.copies
        match event:
            case ViewBegun():
                if not member.views.is_frozen and member.views.view.number == event.view:
                    self.run_copies(member.record, now)
            case CopiesWanted():
                self.carry_out_copies(member, copies.want(event.counts), now)
            case CopyWritten():
                self.carry_out_copies(member, copies.written(event), now)
            case CopiesReleased():
                self.carry_out_copies(member, copies.released(event.rows), now)
            case OffersRefused():
                self.carry_out_copies(member, copies.refused(event), now)

    def run_copies(self, record: SessionRecord, now: float) -> None:
        """Begin, or continue in a new view, to hold copies and to ask for them."""
        member = record.member
        if member is not None:
            self.carry_out_copies(member, member.copies.run(record.instance, member.views.view), now)

    def _answer_former_voter(self, member: ViewMember, event: PeerSent, now: float) -> None:
        """Send a former voter the view in which it is none any more."""
        former = member.former_peers.get(event.peer) if _voter(member, event.peer) is None else None
        is_former = former is not None and former.incarnation == event.incarnation
        if is_former and isinstance(event.message, ViewMessage):
            # The voter that decided without it may be lost, so each voter answers.
            self.on_view_message(member, event.peer, event.message, now)

    def on_session(self, record: SessionRecord, event: ViewEvent, now: float) -> None:
        """Handle that a session has stopped, that its next view is computed, or that copies of contents were made."""
        member = record.member
        match event:
            case PartFinished():
                self._on_part_finished(record, event, now)
            case _ if member is None:
                pass
            case PartSettled():
                member.part_settled = event.view
            case Frozen():
                self._on_frozen(member, event, now)
            case Continued():
                self._on_continued(member, event)
            case NotPlanned():
                # Unless another view was decided since, or the session ends for another reason.
                if record.work is Work.NONE:
                    self._finish(record, event.error)
            case Planned():
                self._carry_out(member, member.views.planned(event.ballot, event.decision, now), now)
            case _:
                self._on_copies(member, event, now)

    def _on_continued(self, member: ViewMember, event: Continued) -> None:
        """Note that a session has begun its next view, unless its thread has finished its part already."""
        if member.record.work is Work.NEXT_VIEW and event.view == member.views.view.number:
            self._table.set_work(member.record, Work.THREAD)
            if member.views.is_frozen:
                self._freeze(member)

    def _on_frozen(self, member: ViewMember, event: Frozen, now: float) -> None:
        """Let what waits for a session that has stopped go on: its end, its join, or its next view."""
        record = member.record
        self._table.set_work(record, Work.NONE)
        if record.is_stopping:
            # Its thread stopped to report before it saw that it was to stop for good.
            self._table.set_work(record, Work.THREAD)
            self._actions.append(CancelSession(record.instance, CancelRequest(), has_thread=False))
        elif member.joining is not None:
            member.joining.is_stopped = True
            if member.joining.adoption is not None:
                self._adopt(member, member.joining.adoption, now)
        elif member.views.is_frozen:
            self._carry_out(member, member.views.frozen(_encoded(member, event.report), now), now)

    def _on_part_finished(self, record: SessionRecord, event: PartFinished, now: float) -> None:
        """All drops of a session are settled here, or cannot end by its walltime."""
        member = record.member
        is_frozen = member is not None and member.views.is_frozen
        if event.is_idle and (record.is_stopping or record.result is not None or is_frozen):
            return
        if event.is_idle and member is None:
            # Each node ends for itself: attempts on the others go on, so they must get no message.
            self._actions += [SilenceSession(record.instance)] if record.peers else []
            self._sessions.cancel(record, now, WALLTIME_REQUEST)
            return
        if not event.is_idle:
            self._table.set_work(record, Work.NONE)
        if member is None or record.is_stopping:
            self._finish(record)
        elif is_frozen or member.joining is not None:
            self._freeze(member)  # the request to freeze came too late
        elif event.view == member.views.view.number:
            member.part_finished, member.own_end = event.view, event.end
            self._tell_part_done(member, member.views.view, now)

    def _tell_part_done(self, member: ViewMember, view: View, now: float) -> None:
        """Send the first member that the part here is finished, once the copies that this part wants are made."""
        if member.part_finished != view.number:
            return
        member.waiting = member.copies.waiting
        self._actions.append(ShowWaiting(member.record.instance, member.waiting))
        if member.waiting:
            return
        self._actions += member.copies.finished()
        member.part_finished = -1
        member.told_view, member.reminds_at = view.number, now + REMINDER_SECONDS
        leader = view.members[0].node
        if leader == self._node:
            self._part_done(member, self._node, view.number, member.own_end, now)
        else:
            self._actions.append(SendToPeer(leader, _own_part_done(member, view.number)))

    def carry_out_copies(self, member: ViewMember, actions: list[CopyAction], now: float) -> None:
        """Carry out what the copies of a session need. Its part here may be finished then."""
        self._actions += actions
        if not member.views.is_frozen:
            self._tell_part_done(member, member.views.view, now)

    def on_unavailable(self, event: ContentUnavailable) -> None:
        """Fail a drop whose content cannot be fetched from another node, unless that node is lost."""
        record = self._table.get(event.session, event.epoch)
        if record is None:
            return
        member = record.member
        place = record.peers.get(event.peer)
        if member is not None and (
            member.views.is_frozen
            or event.view != member.views.view.number
            or event.peer in member.lost
            or (place is not None and self._peers.find_missing({event.peer: place}))
        ):
            return  # in the next view, another node has the content, or it is computed again
        self._actions.append(AllowFailure(event.fail))

    # What follows.

    def on_view_message(self, member: ViewMember, peer: str, message: ViewMessage | CopyMessage, now: float) -> None:
        """Take in a message of a voter, or a request of this node."""
        if isinstance(message, CopyMessage):
            self.carry_out_copies(member, member.copies.receive(peer, message), now)
        else:
            self._carry_out(member, member.views.receive(peer, message, now), now)

    def _carry_out(self, member: ViewMember, actions: list[ViewAction], now: float) -> None:
        record = member.record
        for action in actions:
            match action:
                case StopForReport():
                    self._freeze(member)
                case PlanView():
                    self._actions.append(PlanNextView(record.name, record.epoch, record.instance, action))
                case AdoptDecision(has_node=True):
                    self._adopt(member, action, now)
                case AdoptDecision():
                    why = "as was asked for" if self._node in action.decision.left else "which was out of reach"
                    self._leave(member, now, why)
                case _:
                    self._actions.append(action)
        member.gives_up_at = _gives_up_at(member, now)
        if member.views.waiting != member.waiting:
            member.waiting = member.views.waiting
            self._actions.append(ShowWaiting(member.record.instance, member.waiting, member.gives_up_at - now))
        self._actions += _show_witness(member)

    def _freeze(self, member: ViewMember) -> None:
        record = member.record
        member.copies.stop()
        if record.work is Work.NEXT_VIEW or record.is_stopping:
            return  # it freezes when it has begun its present view; a session that ends does not freeze
        shared = member.copies.shared_files()
        self._actions.append(FreezeSession(record.instance, record.work is not Work.NONE, shared))
        self._table.set_work(record, Work.THREAD)  # until it reports

    def _adopt(self, member: ViewMember, action: AdoptDecision, now: float) -> None:
        record = member.record
        if action.decision.is_over:
            self._finish(record, ends=action.decision.ends)
            return
        if member.joining is not None:
            if not member.joining.is_stopped:
                member.joining.adoption = action
                return
            member.joining, member.gives_up_at = None, inf
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
        places = tuple(place for place in (*view.members, *view.witnesses) if place.node != self._node)
        self._actions.append(ConnectPeers(record.name, record.epoch, places))
        member.former_peers = {**member.former_peers, **record.peers}
        record.peers = {place.node: place for place in view.members if place.node != self._node}
        member.witnesses = {place.node: place for place in view.witnesses}
        if record.is_stopping:
            return  # its thread or job ends it, and members of the new view get that answer when they ask
        self._table.set_work(record, Work.NEXT_VIEW)
        copies, held = member.copies.next_view(action.decision), tuple(member.copies.held)
        self._actions.append(ContinueSession(record.name, record.epoch, record.instance, action.decision, copies, held))
        done = member.parts_done.get(view.number, set())
        member.parts_done = {view.number: done}
        # Members that were lost before have answered. If one is lost again, that is a new loss.
        member.lost, member.gone = {}, set()
        voters = {**record.peers, **member.witnesses}
        self.losses += [*self._peers.need(record.name, voters, now), *self._peers.find_replaced(voters)]
        self.adopted.append((member, action.decision))

    def _give_up(self, member: ViewMember, now: float) -> None:
        """Fail a session if no majority of its nodes has answered for a long time, so that no wait is endless."""
        member.gives_up_at = inf
        if member.joining is not None:
            self._leave(member, now, f"which no view has within {JOIN_SECONDS:g} s")
            return
        node, why = next(iter(member.lost_voters.items()), (self._node, "it answers to too few nodes"))
        waited = (
            "too few nodes are left" if member.is_hopeless else f"for {MAJORITY_SECONDS:g} s too few nodes answered"
        )
        failure = node_lost(f"node {node} is lost: {why}; {waited} to go on without it")
        self._sessions.fail(member.record, now, node, failure)

    def leave_former(self, record: SessionRecord, joining: Deployment, now: float) -> bool:
        """Leave a session that went on without this node, which is to join it anew; return whether it left.

        What its part has done since is in no view: a later view must not begin with it.
        """
        member = record.member
        if member is None or member.joining is not None or not record.phase.is_started:
            return False
        if joining.view <= member.views.view.number:
            return False  # the member that answered knows less than this one
        self._leave(member, now, "which was out of reach, and is to join it anew")
        return True

    def _leave(self, member: ViewMember, now: float, why: str) -> None:
        record = member.record
        text = f"session {record.name} goes on without this node, {why}: its part is removed"
        self._actions += [Log(text, record.name), SilenceSession(record.instance)]
        member.requests.refuse("goes on without this node")
        self._sessions.withdraw(record, now)

    def _part_done(self, member: ViewMember, node: str, view: int, end: bytes, now: float) -> None:
        """End the session once all members are done, and have answered again.

        Only the first member of a view gets these messages. It asks the others again, since one that was lost meanwhile
        has lost its results: its silence prevents the end until the loss is found.
        """
        member.parts_done.setdefault(view, set()).add(node)
        member.part_ends[node] = end
        current = member.views.view
        members = {place.node for place in current.members}
        leader = current.members[0].node
        if view != current.number or member.views.is_frozen:
            return
        if leader != self._node:
            if node == leader and member.told_view == view:
                self._actions.append(SendToPeer(leader, _own_part_done(member, view)))
        elif not members <= member.parts_done[view]:
            return
        elif member.asked_view == view or len(members) == 1:
            # Each member has confirmed its end in this view, so its last message is of this view.
            ends = tuple(member.part_ends[name] for name in sorted(members))
            self._carry_out(member, member.views.end(now, ends), now)
        else:
            member.asked_view, member.parts_done[view] = view, {self._node}
            ask = PartDone(member.record.name, member.record.epoch, view)
            self._actions += [SendToPeer(name, ask) for name in sorted(members - {self._node})]

    def _finish(self, record: SessionRecord, error: Exception | None = None, *, ends: tuple[bytes, ...] = ()) -> None:
        """End a session that is over on all members, with these ends, or that cannot go on because of `error`.

        If a thread is at work in it, the thread ends it, or reports that it has stopped. Only then a job may end it.
        """
        has_thread = record.work is not Work.NONE
        if record.result is not None or (record.is_stopping and has_thread):
            return
        record.is_stopping = True
        if not has_thread:
            self._table.set_work(record, Work.END)
        record.ends = ends
        self._actions.append(FinishSession(record.instance, has_thread, error, ends))


def _own_part_done(member: ViewMember, view: int) -> PartDone:
    return PartDone(member.record.name, member.record.epoch, view, end=member.own_end)


def _voter(member: ViewMember, name: str) -> Place | None:
    return member.record.peers.get(name) or member.witnesses.get(name)


def _is_voter(member: ViewMember, event: PeerSent) -> bool:
    """Return whether the process that sent a message is a voter."""
    place = _voter(member, event.peer)
    if place is None:
        return False
    # A node that ended the session still knows that after a restart, from its directory.
    is_end = isinstance(event.message, SessionDone) and event.incarnation > place.incarnation
    return is_end or place.incarnation == event.incarnation


def _still_open(members: Iterable[ViewMember], table: SessionTable) -> list[ViewMember]:
    """Return the members whose sessions are not over. Most sessions of a node may be over."""
    return [
        member for member in members if member.record.result is None and table.get(member.record.name) is member.record
    ]


def _remind(member: ViewMember, node: str, now: float) -> list[Action]:
    """Plan the next reminder; return the requests to members that this one waits for: whether the session is over.

    A cancel that did not arrive here may have ended it on all others. They send nothing more then.
    """
    view = member.views.view
    member.reminds_at = inf
    if member.told_view != view.number:
        return []  # the part in the next view is not finished yet
    member.reminds_at = now + REMINDER_SECONDS
    members, leader = {place.node for place in view.members}, view.members[0].node
    waited = members - member.parts_done.get(view.number, set()) if leader == node else {leader}
    ask = PartDone(member.record.name, member.record.epoch, view.number, is_reminder=True)
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

    Without it, a voter in whose view this node is a member would wait for it without an end.
    """
    message = event.message
    if isinstance(message, SessionDone):
        return []
    failure = node_lost(
        f"node {node} does not have session {message.session} any more", "look at its log; submit the graph again"
    )
    return [SendToPeer(event.peer, StopSession(message.session, message.epoch, "", node, failure))]


def _show_witness(member: ViewMember) -> list[Action]:
    """Note whether a session lacks a witness; return the action that updates its reports, if that has changed."""
    before, member.lacks_witness = member.lacks_witness, member.lacks_witness_now
    if member.lacks_witness == before:
        return []
    return [ShowWitness(member.record.instance, member.lacks_witness)]


def _gives_up_at(member: ViewMember, now: float) -> float:
    """Return the monotonic time at which a session fails unless its next view is decided before."""
    if member.joining is not None:
        return member.gives_up_at
    if member.is_hopeless:
        # The others may have ended the session before they were started again. Then they answer that it is over.
        return min(member.gives_up_at, now + _ANSWER_SECONDS)
    is_waiting = member.views.is_frozen or member.views.waiting != ""
    return min(member.gives_up_at, now + MAJORITY_SECONDS) if is_waiting else inf


def _encoded(member: ViewMember, report: MemberReport) -> bytes:
    """Return a report with the copies that are here."""
    seen = unpack_column(report.copies, np.int32).tolist()
    report = msgspec.structs.replace(report, copies=member.copies.report(seen))
    return msgspec.msgpack.encode(report)
