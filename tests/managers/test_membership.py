"""Which processes are present, silent or lost."""

from itertools import accumulate
from math import inf

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from managers.membership import Change, Join, Leave, Membership, MemberState, Probed, Received, Tick
from managers.uptime import Uptime

SUSPECT, LOST = 3.0, 15.0


def _states(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.after.name, change.after.state.value) for change in changes]


@pytest.fixture
def members() -> Membership:
    """A membership in which ``a`` joined at 0 and was seen at 1."""
    members = Membership(suspect_after=SUSPECT, lost_after=LOST)
    members.handle(Join("a", 1, "tcp://h:1"), 0.0)
    members.handle(Received("a", 1), 1.0)
    return members


def test_a_member_is_alive_after_its_first_message() -> None:
    """A member is `joined` until then."""
    members = Membership()

    assert _states(members.handle(Join("a", 1), 0.0)) == [("a", "joined")]
    assert _states(members.handle(Received("a", 1), 1.0)) == [("a", "alive")]
    assert _states(members.handle(Received("a", 1), 2.0)) == []


def test_silence_makes_suspect_then_lost(members: Membership) -> None:
    """A silent member is suspect and then lost, exactly at the announced deadlines."""
    assert members.deadline() == 1.0 + SUSPECT
    assert _states(members.handle(Tick(), 1.0 + SUSPECT)) == [("a", "suspect")]
    assert members.deadline() == 1.0 + LOST
    assert _states(members.handle(Tick(), 1.0 + LOST)) == [("a", "lost")]
    assert members.deadline() == inf


def test_a_late_tick_reports_all_changes(members: Membership) -> None:
    """Suspicion and loss have the times at which they were due."""
    changes = members.handle(Tick(), 1000.0)

    assert _states(changes) == [("a", "suspect"), ("a", "lost")]
    assert [change.after.since for change in changes] == [1.0 + SUSPECT, 1.0 + LOST]


def test_a_message_ends_suspicion(members: Membership) -> None:
    """A suspect member is alive after its next message."""
    members.handle(Tick(), 5.0)

    assert _states(members.handle(Received("a", 1), 6.0)) == [("a", "alive")]


def test_a_message_after_the_deadline_is_too_late(members: Membership) -> None:
    """The member is lost, even without a tick before the message."""
    assert _states(members.handle(Received("a", 1), 1.0 + LOST)) == [("a", "suspect"), ("a", "lost")]


def test_a_member_that_never_answers_is_lost() -> None:
    """It is lost at its deadline, and the reason says that it never answered."""
    members = Membership(suspect_after=SUSPECT, lost_after=LOST)
    members.handle(Join("a", 1), 0.0)
    (change,) = members.handle(Tick(), LOST)

    assert change.after.state is MemberState.LOST
    assert "never answered" in change.reason


def test_a_new_incarnation_replaces_the_old_one(members: Membership) -> None:
    """The old incarnation is reported as lost, and its later messages are ignored."""
    changes = members.handle(Join("a", 2, "tcp://h:2"), 2.0)

    assert _states(changes) == [("a", "lost"), ("a", "joined")]
    assert [change.after.incarnation for change in changes] == [1, 2]
    assert members.handle(Received("a", 1), 2.5) == []
    assert members.handle(Join("a", 1), 2.5) == []
    assert members.members["a"].address == "tcp://h:2"


def test_a_lost_member_must_join_again(members: Membership) -> None:
    """A message of it changes nothing; it may join with the same incarnation."""
    members.handle(Tick(), 100.0)

    assert members.handle(Received("a", 1), 101.0) == []
    assert _states(members.handle(Join("a", 1), 102.0)) == [("a", "joined")]


def test_a_member_that_left_needs_a_new_incarnation(members: Membership) -> None:
    """Later messages of the same incarnation are ignored."""
    assert _states(members.handle(Leave("a", 1, "maintenance"), 2.0)) == [("a", "left")]
    assert members.handle(Received("a", 1), 2.1) == []
    assert members.handle(Join("a", 1), 2.2) == []
    assert members.deadline() == inf
    assert _states(members.handle(Join("a", 2), 3.0)) == [("a", "joined")]


def test_only_absent_members_can_be_forgotten(members: Membership) -> None:
    """`forget` removes a lost member and keeps a present one."""
    members.forget("a")
    assert "a" in members.members
    members.handle(Tick(), 100.0)
    members.forget("a")
    assert "a" not in members.members


def test_suspect_after_must_be_less_than_lost_after() -> None:
    """A member cannot be lost before it is suspect."""
    with pytest.raises(ValueError, match="suspect_after"):
        Membership(suspect_after=5.0, lost_after=5.0)


class AnyEvents(RuleBasedStateMachine):
    """Random events of three members, checked against a model."""

    names = st.sampled_from(["a", "b", "c"])
    incarnations = st.integers(1, 3)
    ticks: Bundle[str] = Bundle("ticks")

    def __init__(self) -> None:
        super().__init__()
        self.members = Membership(suspect_after=SUSPECT, lost_after=LOST)
        self.now = 0.0
        self.seen: dict[str, tuple[int, str]] = {}

    def _handle(self, event: Join | Received | Leave | Tick) -> None:
        for change in self.members.handle(event, self.now):
            before = None if change.before is None else (change.before.incarnation, change.before.state.value)
            assert self.seen.get(change.after.name) == before, "each change begins where the last one ended"
            after = (change.after.incarnation, change.after.state.value)
            assert after != before, "a change changes something"
            assert before is None or after[0] >= before[0], "incarnations never go back"
            assert change.reason
            self.seen[change.after.name] = after

    @rule(name=names, incarnation=incarnations)
    def join(self, name: str, incarnation: int) -> None:
        """A member joins."""
        self._handle(Join(name, incarnation))

    @rule(name=names, incarnation=incarnations)
    def receive(self, name: str, incarnation: int) -> None:
        """A message of a member arrives."""
        self._handle(Received(name, incarnation))

    @rule(name=names, incarnation=incarnations)
    def leave(self, name: str, incarnation: int) -> None:
        """A member leaves."""
        self._handle(Leave(name, incarnation))

    @rule(seconds=st.floats(0.0, 20.0))
    def wait(self, seconds: float) -> None:
        """Time passes, with or without a call."""
        self.now += seconds

    @rule(target=ticks)
    def tick(self) -> str:
        """`handle` is called exactly at the deadline."""
        due = self.members.deadline()
        if due < inf:
            self.now = max(self.now, due)
        self._handle(Tick())
        return "tick"

    @rule(_=consumes(ticks))
    def nothing_is_due_after_a_tick(self, _: str) -> None:
        """A second tick at the same time changes nothing."""
        self._handle(Tick())
        assert self.members.handle(Tick(), self.now) == []

    @invariant()
    def the_view_agrees_with_the_changes(self) -> None:
        """The changes add up to the state of the membership."""
        view = {name: (m.incarnation, m.state.value) for name, m in self.members.members.items()}
        assert view == self.seen

    @invariant()
    def deadlines_are_for_the_present_only(self) -> None:
        """There is a deadline if and only if a member is present."""
        present = [m for m in self.members.members.values() if m.state.is_present]
        assert (self.members.deadline() < inf) == bool(present)


TestAnyEvents = AnyEvents.TestCase


def _alive() -> Membership:
    """Return a membership with a member that has just answered."""
    members = Membership(suspect_after=3.0, lost_after=15.0)
    members.handle(Join("b", 1), 0.0)
    members.handle(Received("b", 1), 0.0)
    return members


def test_refused_connections_shorten_the_time_to_a_loss() -> None:
    """A member whose host refuses connections for a fifth of the time is lost, with that reason."""
    members = _alive()
    for moment in (0.5, 1.5, 2.5, 3.4):
        members.handle(Probed("b", is_refused=True), moment)
    assert members.members["b"].state is MemberState.SUSPECT
    (change,) = members.handle(Probed("b", is_refused=True), 3.5)
    assert change.after.state is MemberState.LOST
    assert change.reason == "its host refuses connections, silent for 4 s"


@pytest.mark.parametrize("other", [Probed("b", is_refused=False), Received("b", 1)])
def test_only_repeated_refusals_count(other: Probed | Received) -> None:
    """A connection that is not refused, or a message, begins the time anew; silence alone has its whole time."""
    members = _alive()
    members.handle(Probed("b", is_refused=True), 0.5)
    members.handle(other, 3.4)
    members.handle(Probed("b", is_refused=True), 3.6)
    assert members.members["b"].state.is_present
    members.handle(Tick(), 14.0)
    assert members.members["b"].state is MemberState.SUSPECT


def test_refusals_of_members_that_are_not_present_change_nothing() -> None:
    """A member that is unknown, has left or is lost stays so."""
    members = _alive()
    members.handle(Leave("b", 1), 1.0)
    for moment in (2.0, 20.0):
        assert members.handle(Probed("b", is_refused=True), moment) == []
        assert members.handle(Probed("z", is_refused=True), moment) == []


# Uptime: the time in which a process ran, without its pauses.


PERIOD, UPTIME_SUSPECT, UPTIME_LOST = 1.5, 3.0, 15.0
_gaps = st.lists(st.floats(0.0, 40.0), max_size=60)
_exact_gaps = st.lists(st.integers(0, 40 * 64).map(lambda count: count / 64), max_size=60)
"""Sums of them are not rounded: after other gaps, one of exactly the period could be seen as a longer one."""


@given(_exact_gaps)
@example([27.0, PERIOD])
def test_uptime_is_the_sum_of_short_gaps(gaps: list[float]) -> None:
    """It never decreases, and gaps longer than the period count as pauses."""
    uptime = Uptime(PERIOD, 100.0)
    times = [uptime.read(100.0 + moment) for moment in accumulate(gaps)]

    assert times == sorted(times)
    if gaps:
        assert times[-1] == pytest.approx(100.0 + sum(gap for gap in gaps if gap <= PERIOD), abs=1e-3)
        assert uptime.paused == pytest.approx(sum(gap for gap in gaps if gap > PERIOD), abs=1e-3)


@given(_gaps)
def test_pauses_do_not_make_members_suspect(gaps: list[float]) -> None:
    """A member with a message at each reading is alive, even after long pauses."""
    uptime, members = Uptime(PERIOD, 0.0), Membership(suspect_after=UPTIME_SUSPECT, lost_after=UPTIME_LOST)
    members.handle(Join("a", 1), 0.0)
    members.handle(Received("a", 1), 0.0)
    for now in accumulate(gaps):
        members.handle(Tick(), uptime.read(now))
        assert members.members["a"].state is MemberState.ALIVE
        members.handle(Received("a", 1), uptime.read(now))


def test_a_silent_member_is_lost_in_spite_of_pauses() -> None:
    """A pause delays the loss by its length."""
    uptime, members = Uptime(PERIOD, 0.0), Membership(suspect_after=UPTIME_SUSPECT, lost_after=UPTIME_LOST)
    members.handle(Join("a", 1), 0.0)
    members.handle(Received("a", 1), 0.0)
    now, states = 0.0, {}
    for gap in (*[1.0] * 5, 100.0, *[1.0] * 12):
        now += gap
        members.handle(Tick(), uptime.read(now))
        states[now] = members.members["a"].state

    assert (states[2.0], states[3.0], states[105.0]) == (MemberState.ALIVE, MemberState.SUSPECT, MemberState.SUSPECT)
    assert (states[114.0], states[115.0]) == (MemberState.SUSPECT, MemberState.LOST)


def test_a_period_is_positive() -> None:
    """With a period of 0 every gap would be a pause."""
    with pytest.raises(ValueError, match="period must be more than 0"):
        Uptime(0.0, 0.0)
