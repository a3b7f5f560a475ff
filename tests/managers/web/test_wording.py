"""Numbers, times and names as people read them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from managers.web.wording import count, per_second, shown, size, span, stamp


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (count(100000), "100,000"),
        (span(0.4), "0.4 s"),
        (span(12), "12 s"),
        (span(59.7), "1 min 00 s"),
        (span(185), "3 min 05 s"),
        (span(7620), "2 h 07 min"),
        (span(3 * 86400 + 4 * 3600), "3 d 4 h"),
        (span(None), "–"),  # noqa: RUF001 - as it is shown
        (per_second(0.25), "0.25/s"),
        (per_second(48000), "48,000/s"),
        (size(None), "–"),  # noqa: RUF001 - as it is shown
        (size(17), "17 B"),
        (size(999), "999 B"),
        (size(1200), "1.2 kB"),
        (size(99_960), "100 kB"),
        (size(999_900), "1.0 MB"),
        (size(3_400_000_000), "3.4 GB"),
        (stamp(1_790_857_000), "2026-10-01 12:16:40 UTC"),
        (stamp(0), "–"),  # noqa: RUF001 - as it is shown
        (stamp(1e30), "–"),  # noqa: RUF001 - as it is shown
    ],
)
def test_numbers_are_said_in_words(said: str, expected: str) -> None:
    """Each number is said with its unit, in as many digits as count."""
    assert said == expected


@given(st.integers(0, 10**21))
def test_sizes_are_short(number: int) -> None:
    """Any size takes at most seven characters, and no number above 999 but of the largest unit."""
    assert len(size(number)) <= 7


@given(st.text(), st.integers(10, 50))
def test_names_are_short_and_without_controls(name: str, longest: int) -> None:
    """Whatever the name is, what is shown is one short line that is not empty."""
    found = shown(name, longest)

    assert 0 < len(found) <= longest
    assert not [letter for letter in found if unicodedata.category(letter) in ("Cc", "Cs")]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20))
def test_ordinary_names_are_shown_as_they_are(name: str) -> None:
    """A short name without control characters is not touched."""
    assert shown(name, 20) == name
