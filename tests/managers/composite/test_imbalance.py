"""When sessions are rebalanced by themselves."""

from itertools import pairwise

import pytest

from dropflow.api.records import SessionDetail
from managers.composite.members import Imbalance
from managers.composite.merging import Freshness, SessionPart

_SESSION = SessionDetail(session="s", graph="g", status="RUNNING", epoch=1)


def _parts(*remaining: float | None, drops: int = 100) -> list[SessionPart]:
    """Return parts with so many seconds left; those with 0 have no open drops."""
    details = [
        SessionDetail(
            session="s",
            graph="g",
            status="RUNNING",
            epoch=1,
            drops=drops,
            settled=drops if seconds == 0 else 0,
            remaining=None if seconds == 0 else seconds,
        )
        for seconds in remaining
    ]
    return [SessionPart(f"n{number}", detail, Freshness.CURRENT) for number, detail in enumerate(details)]


@pytest.mark.parametrize(
    ("remaining", "is_due"),
    [
        ((200.0, 20.0, 20.0), True),
        ((200.0, 0, 0), True),
        ((60.0, 50.0, 40.0), False),
        ((20.0, 1.0, 1.0), False),
        ((900.0, 880.0, 860.0), False),
        ((200.0,), False),
        ((200.0, None, 20.0), False),
        ((), False),
    ],
)
def test_only_long_differences_count(remaining: tuple[float | None, ...], is_due: bool) -> None:  # noqa: FBT001 - drawn
    """A session is uneven if its slowest part ends much later than the mean, as far as that is known of all."""
    rule = Imbalance()

    assert not rule.is_due(_SESSION, _parts(*remaining), 0.0)
    assert rule.is_due(_SESSION, _parts(*remaining), 11.0) == is_due


def test_a_difference_must_last() -> None:
    """A difference that goes away does not count, and a moment without a rate changes nothing."""
    rule, uneven, even = Imbalance(), _parts(200.0, 10.0), _parts(100.0, 90.0)
    assert not rule.is_due(_SESSION, uneven, 0.0)
    assert not rule.is_due(_SESSION, even, 9.0)
    assert not rule.is_due(_SESSION, uneven, 12.0)
    assert not rule.is_due(_SESSION, _parts(None, 10.0), 18.0)

    assert rule.is_due(_SESSION, uneven, 23.0)


def test_a_session_is_rebalanced_only_a_few_times() -> None:
    """Each rebalance stops all nodes for a moment: there are at most five, a minute apart."""
    rule, uneven = Imbalance(), _parts(500.0, 10.0)
    due = [now for now in range(2000) if rule.is_due(_SESSION, uneven, float(now))]

    assert len(due) == 5
    assert min(later - earlier for earlier, later in pairwise(due)) >= 60
