"""A node that gives its sessions away before it ends: part of `NodeMachine`. Pure decisions.

It takes no new sessions. In a first change of the view of each session, drops that have not begun move to the other
members. What runs here ends, and other members get copies of the contents here. A second change then leaves this node
out, and drops whose contents have copies go to their holders. Attempts that still run shortly before the time is over
run again elsewhere, and this counts as no attempt of theirs.

A session that no other member can continue runs here until the time is over, and is cancelled then. If the process is
to end, the session is cancelled at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from dropflow.api.requests import CancelRequest, DrainedSession, DrainReply, DrainRequest
from dropflow.errors import LinkError
from dropflow.formatting import plural
from managers.machine_calls import CallId, Return
from managers.node.decisions.events import Action, ContentsRead, Log, ReadContents, ShowWaiting
from managers.node.decisions.lifecycle import Lifecycle, Timers
from managers.node.decisions.members import MemberOperations
from managers.node.decisions.sessions import Phase, SessionRecord, SessionTable, ViewMember
from managers.node.decisions.view_changes import ViewChanges
from managers.recovery.records import View

_END_SECONDS = 10.0
"""Seconds at the end that are kept for copies and the last change of the views; at most a third of the time."""

_AGREEMENT_SECONDS = 60.0
"""Seconds more for a session whose members are about to agree, for example on millions of drops."""
_SHOWN_SECONDS = 2.5
"""Seconds that a drained node stays until managers above have seen its state: they ask once per second."""


@dataclass(slots=True)
class _Progress:
    """The progress of giving one session away.

    Attributes
    ----------
    drain, leave : str
        Ids of the requested changes of its view: to move its drops, and to leave; empty before the request.
    has_read : set of (int, str)
        Views, and their stages, in which the contents that are here were listed.
    is_reading : bool
        Whether they are being listed.
    rows : tuple of int
        The rows of the last list.
    is_explained : bool
        Whether users can see why it cannot be given away.
    """

    drain: str = ""
    leave: str = ""
    has_read: set[tuple[int, str]] = field(default_factory=set)
    is_reading: bool = False
    rows: tuple[int, ...] = ()
    is_explained: bool = False


class Draining:
    """Gives the sessions of one node away.

    Parameters
    ----------
    node : str
        Name of the node.
    table, sessions, views, members, timers, actions :
        The parts of its machine.
    """

    def __init__(
        self,
        node: str,
        *,
        table: SessionTable,
        sessions: Lifecycle,
        views: ViewChanges,
        members: MemberOperations,
        timers: Timers,
        actions: list[Action],
    ) -> None:
        self.has_begun = False
        """Whether the node takes no more sessions. May be read from any thread."""
        self.state: Literal["alive", "draining", "drained"] = "alive"
        """The state that managers above show. May be read from any thread."""
        self._node = node
        self._table = table
        self._sessions = sessions
        self._views = views
        self._members = members
        self._timers = timers
        self._actions = actions
        self._attempts_until = inf
        self._copies_until = inf
        self._until = inf
        self._shown_at = -inf
        self._is_ending = False
        self._is_late = False
        self._open: list[tuple[SessionRecord, _Progress]] = []
        self._calls: list[int] = []

    # Operations.

    def drain(
        self, call: CallId[DrainReply], now: float, *, node: str, request: DrainRequest, is_ending: bool = False
    ) -> None:
        """Begin to give all sessions away; answered at once. A second call is not an error: the earliest end counts.

        Parameters
        ----------
        is_ending : bool
            Whether the process is to end: sessions that no other member can go on with are cancelled at once.
        """
        del node  # the manager has compared it
        if not self.has_begun:
            self._open = [(record, _Progress()) for record in self._table if not record.phase.is_quiet]
        self.has_begun = True
        self.state = "draining" if self.state == "alive" else self.state
        self._is_ending = self._is_ending or is_ending
        if now + request.grace < self._until:
            margin = min(_END_SECONDS, request.grace / 3)
            self._until = now + request.grace
            self._attempts_until = self._until - margin
            self._copies_until = self._until - margin / 2
            self._timers.set(("drain", "attempts"), self._attempts_until, self._look_at_all)
            self._timers.set(("drain", "copies"), self._copies_until, self._look_at_all)
            self._timers.set(("drain", "end"), self._until, self._give_up)
        seconds = max(self._until - now, 0.0)
        drained = tuple(
            DrainedSession(session=record.name, text=self._plan(record, seconds))
            for record, _ in self._open
            if self._is_there(record)
        )
        over = sum(record.phase.is_quiet for record in self._table)
        self._actions.append(Return(call, DrainReply(node=self._node, seconds=seconds, sessions=drained, over=over)))

    def drained(self, call: CallId[None], now: float) -> None:
        """Wait until all sessions are given away; answered then, or when the time is over."""
        del now
        self._calls.append(call)

    # After each event.

    def look(self, now: float) -> None:
        """Do the next step for each session, and answer `drained` once none is left."""
        if not self.has_begun:
            return
        for record, progress in self._open:
            if self._is_there(record):
                self._look_at(record, progress, now)
        for record, _ in self._open:
            member = record.member
            if record.phase.is_quiet and member is not None and self._node not in member.views.view.draining:
                text = f"session {record.name} ended before node {self._node} could give it away"
                self._actions.append(Log(f"{text}: its files here stay in its directory", record.name))
        self._open = [(record, progress) for record, progress in self._open if self._is_there(record)]
        if not self._open:
            self._end(now)

    def contents_read(self, event: ContentsRead, now: float) -> None:
        """Request copies of the contents that are here on members that stay."""
        for record, progress in self._open:
            if (record.name, record.epoch) != (event.session, event.epoch):
                continue
            progress.is_reading = False
            member = record.member
            if member is None or record.result is not None or member.views.view.number != event.view:
                return
            copies = member.copies
            progress.rows = event.rows
            others = self._staying(member.views.view)
            wanted: dict[str, list[int]] = {}
            for row in copies.unsafe(event.rows):
                if others and row not in copies.failed and not copies.waits_for([row]):
                    wanted.setdefault(others[row % len(others)], []).append(row)
            if wanted:
                self._views.carry_out_copies(member, copies.ask(wanted), now)

    def _look_at(self, record: SessionRecord, progress: _Progress, now: float) -> None:
        member = record.member
        if record.result is not None or record.phase.is_leaving or record.is_stopping:
            return
        if self._is_stuck(record):
            self._explain(record, progress, now)
            return
        if member is None or record.phase is not Phase.RUNNING:
            return
        if member.joining is not None or member.views.is_frozen or member.copies.is_stopped:
            return  # until it goes on in a view
        number = member.views.view.number
        if self._node not in member.views.view.draining:
            if not self._members.has_request(record, progress.drain):
                progress.drain = self._members.request(record, now, drain=(self._node,))
            return
        is_finished = number in (member.part_finished, member.part_settled, member.told_view)
        stage = "end" if is_finished or now >= self._attempts_until else "begin"
        if not progress.is_reading and (number, stage) not in progress.has_read:
            progress.is_reading = True
            progress.has_read.add((number, stage))
            self._actions.append(ReadContents(record.name, record.epoch, number, record.instance))
        if progress.is_reading or stage == "begin" or self._members.has_request(record, progress.leave):
            return
        if now >= self._copies_until or not member.copies.waits_for(progress.rows):
            self._leave(member, progress, now)

    def _leave(self, member: ViewMember, progress: _Progress, now: float) -> None:
        record, copies = member.record, member.copies
        lost = [row for row in copies.unsafe(progress.rows) if row in copies.failed or copies.waits_for([row])]
        if lost and not progress.leave:
            what = plural(len(lost), "content")
            text = f"{what} of node {self._node} in session {record.name} without a copy: made again if needed"
            self._actions.append(Log(text, record.name))
        if self._staying(member.views.view):
            progress.leave = self._members.request(record, now, leave=(self._node,))

    # What cannot be given away.

    def _explain(self, record: SessionRecord, progress: _Progress, now: float) -> None:
        if self._is_ending:
            self._cancel(record, now, f"node {self._node} is stopping")
        elif not progress.is_explained and record.phase is Phase.RUNNING:
            progress.is_explained = True
            text = f"node {self._node} is being drained: {self._plan(record, max(self._until - now, 0.0))}"
            self._actions += [ShowWaiting(record.instance, text), Log(f"session {record.name}: {text}", record.name)]

    def _give_up(self, now: float) -> None:
        """Cancel the sessions that are left, because the time is over, except those about to be taken over."""
        left = [record for record, _ in self._open if self._is_there(record) and not record.phase.is_leaving]
        late = [] if self._is_late else [record for record in left if self._is_agreeing(record)]
        for record in left:
            if record.result is None and record not in late:
                why = f"{self._why_stuck(record)}, and it has not ended in time"
                if not self._is_stuck(record):
                    waiting = _waiting(record)
                    why = "the other nodes have not taken it over in time" + (f" ({waiting})" if waiting else "")
                self._cancel(record, now, f"node {self._node} was drained: {why}")
        self._is_late = True
        if late:
            # Cancelling it would end it on all nodes. If this node is killed instead, the others go on without it.
            self._timers.set(("drain", "end"), now + _AGREEMENT_SECONDS, self._give_up)
        else:
            self._open = []
            self._end(now)

    def _is_agreeing(self, record: SessionRecord) -> bool:
        """Return whether a majority of the voters answers, so that the requested change is decided soon."""
        return not self._is_stuck(record) and record.phase is Phase.RUNNING and not _waiting(record)

    def _cancel(self, record: SessionRecord, now: float, reason: str) -> None:
        if record.is_joining or record.phase is Phase.BUILDING:
            self._sessions.withdraw(record, now, LinkError(reason))
        else:
            self._sessions.cancel(record, now, CancelRequest(reason=reason))

    def _plan(self, record: SessionRecord, seconds: float) -> str:
        """Return what happens to a session, for people."""
        if record.result is not None or record.phase.is_leaving:
            return "it is over"
        if record.member is not None and not self._is_stuck(record):
            return f"it goes to {', '.join(self._staying(record.member.views.view))}"
        what = "it is cancelled" if self._is_ending else f"it is cancelled unless it ends within {seconds:.0f} s"
        return f"{self._why_stuck(record)}: {what}"

    def _why_stuck(self, record: SessionRecord) -> str:
        if record.member is None:
            return "the session has too few nodes to change them"
        if len(record.member.views.view.members) < 2:
            return "the session has no other node"
        return "all other nodes of the session are being drained"

    def _is_stuck(self, record: SessionRecord) -> bool:
        """Return whether no other node can go on with a session."""
        return record.member is None or not self._staying(record.member.views.view)

    def _staying(self, view: View) -> Sequence[str]:
        """Return the other members that are not to leave."""
        return [place.node for place in view.members if place.node not in view.draining and place.node != self._node]

    # The end.

    def _is_there(self, record: SessionRecord) -> bool:
        """Return whether a session is still to be waited for."""
        return self._table.get(record.name, record.epoch) is record and not record.phase.is_quiet

    def _look_at_all(self, now: float) -> None:
        self.look(now)

    def _end(self, now: float) -> None:
        """Note that the node is drained, and answer `drained` once managers above can have seen it."""
        for which in ("attempts", "copies", "end"):
            self._timers.clear(("drain", which))
        if self.state != "drained":
            self.state = "drained"
            if not self._is_ending:
                self._shown_at = min(now + _SHOWN_SECONDS, max(self._until, now))
                if self._shown_at > now:
                    self._timers.set(("drain", "shown"), self._shown_at, self._end)
        if now >= self._shown_at or self._is_ending:
            self._answer()

    def _answer(self) -> None:
        self._actions += [Return(call) for call in self._calls]
        self._calls = []


def _waiting(record: SessionRecord) -> str:
    return "" if record.member is None else record.member.waiting
