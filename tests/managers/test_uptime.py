"""Uptime: the time in which a process ran, without its pauses."""

from itertools import accumulate

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from managers.machine_calls import Uptime
from managers.membership import Join, Membership, MemberState, Received, Tick

PERIOD, SUSPECT, LOST = 1.5, 3.0, 15.0

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
    uptime, members = Uptime(PERIOD, 0.0), Membership(suspect_after=SUSPECT, lost_after=LOST)
    members.handle(Join("a", 1), 0.0)
    members.handle(Received("a", 1), 0.0)
    for now in accumulate(gaps):
        members.handle(Tick(), uptime.read(now))
        assert members.members["a"].state is MemberState.ALIVE
        members.handle(Received("a", 1), uptime.read(now))


def test_a_silent_member_is_lost_in_spite_of_pauses() -> None:
    """A pause delays the loss by its length."""
    uptime, members = Uptime(PERIOD, 0.0), Membership(suspect_after=SUSPECT, lost_after=LOST)
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
