"""Operations that change the members of sessions, or how the drops are divided between them: part of `NodeMachine`."""

from collections.abc import Callable
from itertools import count

from dropflow.api.requests import MemberRequest, RetryRequest
from dropflow.errors import ConflictError
from dropflow.failure import Failure
from dropflow.states import SessionState
from managers.deployment import Place
from managers.machine_calls import CallId, Return
from managers.messages import SessionDone, StopSession
from managers.node.decisions.events import (
    Action,
)
from managers.node.decisions.sessions import SessionRecord, ViewMember
from managers.node.decisions.view_changes import ViewChanges
from managers.recovery.records import FEWEST_VOTERS, RequestedChange
from managers.recovery.vote import SendToPeer


class MemberOperations:
    """The operations of one node that ask the members of a session for a new view.

    Parameters
    ----------
    node : str
        Name of the node.
    incarnation : int
        Incarnation of its process.
    views : ViewChanges
        Asks for changes.
    visible : callable
        Returns the record of a session by its name, or raises `NotFoundError`.
    actions : list
        Actions to carry out; decisions are appended.
    """

    def __init__(
        self,
        node: str,
        incarnation: int,
        *,
        views: ViewChanges,
        visible: Callable[[str], SessionRecord],
        actions: list[Action],
    ) -> None:
        self._actions = actions
        self._node = node
        self._process = f"{node}:{incarnation}"
        self._views = views
        self._visible = visible
        self._numbers = count(1)

    def rebalance(self, call: CallId[None], now: float, *, session: str) -> None:
        """Move drops that have not begun, so that all members end at about the same time; answered once decided."""
        self._request(self._visible(session), call, RequestedChange(self._new_id(), is_rebalancing=True), now)

    def retry(self, call: CallId[None], now: float, *, session: str, request: RetryRequest) -> None:
        """Try failed drops again while the session runs; answered when that is decided."""
        if request.settings or request.code:
            raise ConflictError(
                f"session {session!r} runs: parameters cannot be changed before it is over",
                where=self._node,
                hint="leave out settings and code, or wait until it is over",
            )
        change = RequestedChange(self._new_id(), is_retrying=True, drops=request.drops)
        self._request(self._visible(session), call, change, now)

    def force_continue(self, call: CallId[None], now: float, *, session: str) -> None:
        """Go on without a majority of the voters; answered when that is decided. Refused if there is a majority."""
        record = self._visible(session)
        if record.member is not None:
            view = record.member.views.view
            present = sum(place.node not in record.member.lost for place in view.voters)
            if present >= view.majority:
                raise ConflictError(
                    f"session {session!r} has a majority: {present} of {len(view.voters)} voters are not lost",
                    where=self._node,
                    hint="it goes on by itself; look at its status",
                )
        self._request(record, call, RequestedChange(self._new_id(), is_forced=True), now)

    def add_member(self, call: CallId[None], now: float, *, session: str, member: MemberRequest) -> None:
        """Add a prepared node to the members, or make a manager the witness; answered when it is one.

        A witness that is not lost is not replaced.
        """
        record = self._visible(session)
        place = Place(member.node, member.links, member.incarnation)
        if member.invitation:
            if record.member is not None and not record.member.lacks_witness_now:
                raise ConflictError(f"session {session!r} needs no other witness", where=self._node)
            change = RequestedChange(self._new_id(), witness=place, invitation=member.invitation)
            self._request(record, call, change, now)
            return
        if record.member is not None and place in record.member.views.view.members:
            self._actions.append(Return(call))
            return
        workers = {member.node: member.workers}
        self._request(record, call, RequestedChange(self._new_id(), add=(place,), workers=workers), now)

    def request(
        self, record: SessionRecord, now: float, *, drain: tuple[str, ...] = (), leave: tuple[str, ...] = ()
    ) -> str:
        """Let members give away the drops that they have not begun, or leave; return the id of the change."""
        change = RequestedChange(self._new_id(), drain=drain, leave=leave)
        self._request(record, None, change, now)
        return change.id

    def has_request(self, record: SessionRecord, change: str) -> bool:
        """Return whether a requested change waits for a view that contains it."""
        return record.member is not None and change in record.member.requests

    def take_adopted(self, now: float) -> None:
        """Answer the calls whose changes are in the adopted views, and ask again for the other changes."""
        while self._views.adopted:
            member, decision = self._views.adopted.pop(0)
            member.requests.decided(decision)
            self._send(member, now)

    def over(self, record: SessionRecord, failure: Failure | None) -> None:
        """Refuse the requested changes of a session that is over, and notify its witnesses if it is over everywhere.

        With a `failure`, it failed on this node only: the other members are notified, and go on as after its loss.
        """
        record.own_failure = failure
        if record.member is None:
            return
        record.member.requests.refuse("is over")
        if failure is not None:
            stopped = StopSession(record.name, record.epoch, "", self._node, failure)
            self._actions += [SendToPeer(name, stopped) for name in sorted(record.peers)]
        is_cancelled = record.result is SessionState.CANCELLED and not record.phase.is_leaving
        if record.member.views.is_over or is_cancelled:
            done = SessionDone(record.name, record.epoch, record.member.views.view.number)
            self._actions += [SendToPeer(name, done) for name in record.witnesses]

    def _new_id(self) -> str:
        return f"{self._process}:{next(self._numbers)}"

    def _request(self, record: SessionRecord, call: int | None, change: RequestedChange, now: float) -> None:
        """Request that the next view of a session has a change; answer the call once a view contains it."""
        if record.result is not None or not record.phase.is_started:
            why = f"is {record.status.name}" if record.result is not None else "does not run yet"
            raise ConflictError(f"session {record.name!r} {why}", where=self._node)
        if record.is_stopping:
            raise ConflictError(f"session {record.name!r} is ending", where=self._node)
        if record.member is None:
            raise ConflictError(
                f"session {record.name!r} has two nodes, and no island or master that votes: it cannot change",
                where=self._node,
                hint=f"wait until it is over; submit sessions while there are {FEWEST_VOTERS} nodes",
            )
        record.member.requests.add(change, call, now)
        self._send(record.member, now)

    def _send(self, member: ViewMember, now: float) -> None:
        if member.requests:
            for request in member.requests.send(member.views, member.lost):
                self._views.on_view_message(member, self._node, request, now)
