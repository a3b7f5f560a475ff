"""Bars of states, drawn by the server and in the browser."""

import random
from itertools import pairwise, product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.records import FailureInfo
from dropflow.formatting import format_count, format_duration, format_rate
from dropflow.graph.drop_counts import DropCounts, failed_words
from dropflow.states import DropState, SessionState
from dropflow.web.cause_groups import causes
from dropflow.web.views import GROUPS, grouped, segments, session_style, state_style, state_word
from tests.browser import needs_chromium

STATES = [state.name for state in DropState]


def test_every_state_is_in_one_group() -> None:
    """Each state of a drop is in exactly one group of the bar; drops and sessions have the styles of groups."""
    assert sorted(state for group in GROUPS for state in group.states) == sorted(STATES)
    assert {state_style(state) for state in STATES} == {group.style for group in GROUPS} - {"queued", "lost"}
    assert sorted(name for group in GROUPS for name in group.counted) == sorted(DropCounts.__struct_fields__)
    assert {session_style(status.name) for status in SessionState} <= {group.style for group in GROUPS}


COUNTS = st.builds(DropCounts, **dict.fromkeys(DropCounts.__struct_fields__, st.integers(0, 10**9)))


@given(COUNTS)
def test_a_bar_is_full_and_shows_every_group_that_occurs(counts: DropCounts) -> None:
    """Segments fill the bar without gaps, one drop among a billion is visible, and groups add up to all drops."""
    numbers = grouped(counts)
    found = segments(numbers)

    assert sum(numbers.values()) == counts.total
    for left, right in pairwise(found):
        assert left.start + left.width == pytest.approx(right.start, abs=0.03)
    for part in found:
        assert (part.width >= 0.5) == (numbers[part.style] > 0)
    if sum(numbers.values()):
        assert found[-1].start + found[-1].width == pytest.approx(100, abs=0.05)


@given(st.builds(DropCounts, **dict.fromkeys(DropCounts.__struct_fields__, st.just(0) | st.integers(1, 50))))
def test_a_bar_is_in_proportion(counts: DropCounts) -> None:
    """Widths are shares of the total, if every group is large enough to be visible."""
    numbers = grouped(counts)
    total = sum(numbers.values())
    if not total or min(number for number in numbers.values() if number) / total < 0.008:
        return

    assert [part.width for part in segments(numbers)] == [
        pytest.approx(100 * number / total, abs=0.01) for number in numbers.values()
    ]


@needs_chromium
@pytest.mark.slow
def test_the_browser_formats_as_the_server_does(serve: Any, look: Any) -> None:
    """Bars, counts, durations, rates and numbers of failures made by the scripts are those of the server."""
    from dropflow.testing.fake_manager import FakeManager  # noqa: PLC0415 - beside its only use

    chance = random.Random(20261121)  # noqa: S311 - cases, not secrets
    cases = [[chance.choice((0, 1, chance.randrange(10**6))) for _ in GROUPS] for _ in range(200)]
    times = [0.0, 0.04, 9.94, 9.996, 10.2, 59.4, 59.97, 61.0, 3599.2, 3601.0, 86399.4, 86401.0, 1e6]
    rates = [0.123, 0.987, 1.26, 9.94, 10.4, 999.7, 48_123.4]
    counts = [
        DropCounts(failed=own, took_along=along, lost=lost) for own, along, lost in product((0, 1, 2_000), repeat=3)
    ]
    failures = [
        FailureInfo(drop="a", name="a", node="", code="", kind="", text="", count=n, took_along=n // 2) for n in (1, 5)
    ]
    failures.append(msgspec.structs.replace(failures[1], drop=""))
    page = look(serve(FakeManager())).page
    page.goto("/")
    bars, words = page.evaluate(
        """async ([cases, times, rates, counts, failures]) => {
          const bars = await import("/static/bars.js");
          const text = await import("/static/formatting.js");
          return [
            cases.map((numbers) => bars.segments(numbers)),
            [...times.map(text.formatDuration), ...rates.map(text.formatRate), ...cases[0].map(text.formatCount),
              ...counts.map(text.failedWords), ...failures.map((failure) => text.harmWords([failure]))],
          ];
        }""",
        [cases, times, rates, *map(msgspec.to_builtins, (counts, failures))],
    )

    for numbers, drawn in zip(cases, bars, strict=True):
        named = {group.style: number for group, number in zip(GROUPS, numbers, strict=True)}
        for ours, theirs in zip(segments(named), drawn, strict=True):
            assert (ours.start, ours.width) == pytest.approx((theirs["start"], theirs["width"]), abs=0.011)
    assert words == [
        *map(format_duration, times),
        *map(format_rate, rates),
        *map(format_count, cases[0]),
        *map(failed_words, counts),
        *(causes([failure])[0].harm for failure in failures),
    ]


def test_a_drop_is_active_unless_it_is_known_to_run_or_to_be_queued() -> None:
    """The rows of drops have the words and styles of bars, if the node knows where an attempt is."""
    assert [state_word("WRITING", is_running=known) for known in (None, True, False)] == ["active", "running", "queued"]
    assert [state_style("WRITING", is_running=known) for known in (None, True, False)] == [
        "running",
        "running",
        "queued",
    ]
