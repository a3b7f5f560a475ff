"""Faults put into the product on purpose, each by replacing one function: `test_deliberate_faults` looks for them."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import ContentTable
from dropflow.execution.decisions.core import Core
from dropflow.execution.session import Session
from dropflow.graph.slices import Slice
from dropflow.states import DropState
from managers.composite import merging
from managers.composite.witness import Witness
from managers.messages import AdoptView
from managers.node import hosted_session, view_states
from managers.node.decisions.events import Frozen
from managers.node.decisions.view_changes import ViewChanges
from managers.node.exchange import MessagesByView
from managers.node.hosted_session import HostedSession
from managers.recovery import replan
from managers.recovery.records import MemberReport, View, pack_column
from managers.recovery.vote import Voter

Patch = pytest.MonkeyPatch


def lost_contents_count_as_available(patch: Patch) -> None:
    """The plan believes that every completed drop of a member has its content."""
    merge = replan._merge

    def merged(*arguments: Any, **options: Any) -> Any:
        known = merge(*arguments, **options)
        return known._replace(available=known.states == DropState.COMPLETED)

    patch.setattr(replan, "_merge", merged)


def released_contents_count_as_available(patch: Patch) -> None:
    """A member reports contents that it has released as if they were there."""
    report_of = view_states.report_of

    def report(session: Session, piece: Slice, **options: Any) -> MemberReport:
        report_ = report_of(session, piece, **options)
        states = np.frombuffer(session.handover.states(), dtype=np.uint8)
        available = ((states == DropState.COMPLETED) & piece.is_own).astype(np.uint8)
        return msgspec.structs.replace(report_, available=pack_column(available))

    patch.setattr(hosted_session, "report_of", report)


def early_messages_are_dropped(patch: Patch) -> None:
    """Messages of a view that this node has not reached are ignored."""
    pass_on = MessagesByView._pass_on

    def passed(self: Any, peer: str, events: Any) -> None:
        if events.view <= self._view:
            pass_on(self, peer, events)

    patch.setattr(MessagesByView, "_pass_on", passed)


def earlier_messages_are_taken(patch: Patch) -> None:
    """Messages of earlier views are passed on as if they were of the present one."""
    pass_on = MessagesByView._pass_on

    def passed(self: Any, peer: str, events: Any) -> None:
        if events.view < self._view:
            self._exchange.receive(peer, events)
        else:
            pass_on(self, peer, events)

    patch.setattr(MessagesByView, "_pass_on", passed)


def promises_leave_out_the_accepted_decision(patch: Patch) -> None:
    """A voter that has accepted a decision does not tell the next candidate about it."""
    promise = Voter._promise

    def promised(self: Any, peer: str, ballot: Any) -> None:
        accepted, self._accepted = self._accepted, ((0, 0), b"")
        promise(self, peer, ballot)
        self._accepted = accepted

    patch.setattr(Voter, "_promise", promised)


def smaller_ballots_are_promised(patch: Patch) -> None:
    """A voter promises to any candidate that asks, also after a promise to one with a greater ballot."""
    on_prepare = Voter._on_prepare

    def on_any(self: Any, peer: str, message: Any, now: float) -> None:
        self._promised = min(self._promised, message.ballot)
        on_prepare(self, peer, message, now)

    patch.setattr(Voter, "_on_prepare", on_any)


def cancelled_sessions_commit_after_a_promise(patch: Patch) -> None:
    """A session that is cancelled while it is frozen commits what came in meanwhile."""
    step = Session.step

    def stepped(self: Any, timeout: float | None = 0.0) -> None:
        self._stops_frozen = False
        step(self, timeout)

    patch.setattr(Session, "step", stepped)


def settled_states_are_not_told_again(patch: Patch) -> None:
    """A member that continues does not tell its neighbours what was settled in the views before."""
    take_over, publish = Core._take_over, Core._publish

    def taken_over(self: Any, known: Any) -> None:
        patch.setattr(Core, "_publish", lambda *_: None)
        try:
            take_over(self, known)
        finally:
            patch.setattr(Core, "_publish", publish)

    patch.setattr(Core, "_take_over", taken_over)


def promises_without_stopping(patch: Patch) -> None:
    """A member reports and promises, and its session goes on meanwhile."""
    freeze = HostedSession.freeze

    def frozen(self: Any, shared: Any, *, has_thread: bool) -> None:
        if has_thread and not self.session.is_over:
            report = view_states.report_of(self.session, self.piece, workers=1, shared=shared)
            self._report(Frozen(self.name, self.epoch, report))
        else:
            freeze(self, shared, has_thread=has_thread)

    patch.setattr(HostedSession, "freeze", frozen)


def half_of_the_voters_decide(patch: Patch) -> None:
    """Half of the voters count as a majority."""
    patch.setattr(View, "majority", property(lambda self: max(1, len(self.voters) // 2)))


def contents_are_not_committed(patch: Patch) -> None:
    """Consumers get what an attempt wrote before it is committed."""

    def placed(self: Any, producer: int, attempt: int, parts: Mapping[int, Handle]) -> None:
        if len(parts) == 1 and not self._graph.predecessors.ptr[producer]:
            self.contents.update(parts)
        else:
            place(self, producer, attempt, parts)

    place = ContentTable.place
    patch.setattr(ContentTable, "place", placed)


def former_members_keep_their_part(patch: Patch) -> None:
    """A node that others went on without keeps its part of the session."""
    patch.setattr(ViewChanges, "_leave", lambda *_: None)


def new_witnesses_miss_their_view(patch: Patch) -> None:
    """A manager that replaces a lost witness does not take in the view that names it."""
    is_taken = Witness._is_taken

    def taken(self: Any, witnessed: Any, event: Any) -> bool:
        is_decision = isinstance(event.message, AdoptView) and bool(witnessed.invitation)
        return not is_decision and is_taken(self, witnessed, event)

    patch.setattr(Witness, "_is_taken", taken)


def ends_of_silent_parts_are_not_known(patch: Patch) -> None:
    """Islands and the master do not use what the other nodes know of the end of a part that does not answer."""
    patch.setattr(merging, "known_ends", lambda _parts: merging.KnownEnds({}, is_agreed=False))
    patch.setattr(merging, "ended_detail", lambda *_: None)


FAULTS: dict[str, Callable[[Patch], None]] = {
    function.__name__: function
    for function in (
        lost_contents_count_as_available,
        released_contents_count_as_available,
        early_messages_are_dropped,
        settled_states_are_not_told_again,
        promises_without_stopping,
        half_of_the_voters_decide,
        contents_are_not_committed,
        former_members_keep_their_part,
        earlier_messages_are_taken,
        promises_leave_out_the_accepted_decision,
        smaller_ballots_are_promised,
        cancelled_sessions_commit_after_a_promise,
        new_witnesses_miss_their_view,
        ends_of_silent_parts_are_not_known,
    )
}
"""By name: what replaces a function of the product."""

AIM_OF = {
    "smaller_ballots_are_promised": 0,
    "promises_leave_out_the_accepted_decision": 1,
    "cancelled_sessions_commit_after_a_promise": 2,
    "earlier_messages_are_taken": 3,
    "new_witnesses_miss_their_view": 4,
}
"""Number in `tests.managers.simulation.faults.AIMS` of the trials that find a fault which the others rarely find."""
