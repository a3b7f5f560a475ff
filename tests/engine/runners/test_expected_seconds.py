"""How long attempts are expected to take, and how many a worker is given ahead."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.api import LONG_SECONDS
from dropflow.graph.templates import Kind, Template
from dropflow.runners.backlog import NO_ROOM, Backlog, ExpectedSeconds, Room

TEMPLATES = tuple(
    Template(key=name, name=name, kind=kind)
    for name, kind in (("a", Kind.DATA), ("A", Kind.APP), ("b", Kind.DATA), ("B", Kind.APP))
)


def test_nothing_is_expected_at_first() -> None:
    """An attempt may take any time before one has ended."""
    assert [ExpectedSeconds(TEMPLATES).of(row) for row in range(4)] == [math.inf] * 4


def test_a_new_template_takes_as_long_as_others_of_its_kind() -> None:
    """Data without producers say nothing about applications, nor applications about data."""
    expected = ExpectedSeconds(TEMPLATES)
    expected.note(0, 0.001)

    assert [expected.of(row) for row in range(4)] == [0.001, math.inf, 0.001, math.inf]
    expected.note(1, 2.0)
    assert [expected.of(row) for row in range(4)] == [0.001, 2.0, 0.001, 2.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 10.0)), min_size=1))
def test_a_mean_is_between_the_times_of_its_template(times: list[tuple[int, float]]) -> None:
    """Each template has a mean of its own, nearer to its last times than to its first."""
    expected = ExpectedSeconds(TEMPLATES)
    for template, seconds in times:
        expected.note(template, seconds)

    for template in {template for template, _ in times}:
        own = [seconds for row, seconds in times if row == template]
        mean = own[0]
        for seconds in own[1:]:
            mean = 0.7 * mean + 0.3 * seconds
        assert math.isclose(expected.of(template), mean, abs_tol=1e-12)


def test_a_worker_is_given_few_attempts_ahead_that_write_much() -> None:
    """Attempts of no time that write 256 KB each: 16 fill a worker. What they write is held until others read it."""
    expected, backlog = ExpectedSeconds(TEMPLATES), Backlog()
    for written in (1 << 18, 1 << 18, 1 << 18):
        expected.note(1, 0.0, written)

    for number in range(16):
        assert backlog.room.seconds > 0.0
        backlog.add(number, expected.cost(1))

    assert backlog.room == NO_ROOM
    assert expected.of(1) == 0.0


@given(st.lists(st.floats(0.0, 0.1) | st.just(math.inf), max_size=30), st.randoms(use_true_random=False))
def test_nothing_waits_behind_a_long_attempt(times: list[float], random: Random) -> None:
    """A worker has room as long as its attempts are short together; one may always wait, but not behind a long one."""
    backlog = Backlog()
    there: dict[int, float] = {}
    for number, seconds in enumerate(times):
        if there and random.random() < 0.4:
            gone = random.choice(sorted(there))
            del there[gone]
            backlog.remove(gone)
        room = backlog.room
        if any(one >= LONG_SECONDS for one in there.values()):
            assert room == NO_ROOM
        elif (spare := 0.02 - sum(there.values())) > 1e-9:
            assert room.seconds == pytest.approx(spare)
            assert room.attempts == 512 - len(there)
        elif spare < -1e-9:
            assert room == (Room(0.0, 1) if len(there) == 1 else NO_ROOM)
        assert backlog.has_long == any(one >= LONG_SECONDS for one in there.values())
        there[number] = seconds
        backlog.add(number, seconds)
