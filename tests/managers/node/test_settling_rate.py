"""How fast drops settle, and what is left of the time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from managers.node.hosted_session import SettlingRate


def _filled(rates: list[float], *, seconds: float = 30.0) -> SettlingRate:
    """Return what is known after so many seconds with each of these rates, with two samples a second."""
    found, now, settled = SettlingRate(), 0.0, 0.0
    found.add(0.0, 0)
    for rate in rates:
        for _ in range(int(2 * seconds)):
            now, settled = now + 0.5, settled + rate / 2
            found.add(now, round(settled))
    return found


def test_a_burst_and_a_pause_do_not_change_the_typical_rate() -> None:
    """The median of the last minutes is that of the usual work."""
    assert _filled([10, 10, 400, 10, 0, 10]).typical == pytest.approx(10, rel=0.1)
    assert _filled([10, 10, 10, 10, 10, 400]).recent == pytest.approx(400, rel=0.1)


def test_rare_drops_have_the_mean_rate() -> None:
    """If nothing settles in most spans, the rate is that of the whole time, and not 0."""
    found = SettlingRate()
    for now, settled in ((0.0, 0), (99.0, 0), (100.0, 5)):
        found.add(now, settled)

    assert found.typical == pytest.approx(0.05)


def test_old_times_do_not_count() -> None:
    """After three minutes at a new rate, that is the typical one."""
    assert _filled([100, 100, 5, 5, 5, 5, 5, 5, 5]).typical == pytest.approx(5, rel=0.1)


def test_pauses_up_to_three_times_the_longest_one_are_usual() -> None:
    """Work that settles every half second may be quiet for 10 s, and tasks of a minute, side by side, for three."""
    waves = SettlingRate()
    waves.begin(0.0)
    for minute in range(6):
        for drop in range(4):
            waves.add(60.0 * minute + 0.1 * drop, 4 * minute + drop)

    assert _filled([10, 10]).usual_quiet == 10
    assert waves.usual_quiet == pytest.approx(180, rel=0.01)
    assert waves.changed == pytest.approx(300.3)
    waves.add(330.0, 23)
    assert waves.changed == pytest.approx(300.3)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000)), max_size=60))
def test_a_rate_is_never_negative_and_within_what_happened(steps: list[tuple[float, int]]) -> None:
    """Whatever the times of the samples are."""
    found, now, settled = SettlingRate(), 0.0, 0
    for length, more in steps:
        now, settled = now + length, settled + more
        found.add(now, settled)

        assert found.recent >= 0
        assert found.typical >= 0
