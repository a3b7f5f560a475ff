"""Numbers, sizes, durations, times and names as text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.formatting import (
    DASH,
    format_count,
    format_duration,
    format_quantity,
    format_rate,
    format_size,
    format_time,
    plural,
    single_line,
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (format_count(100000), "100,000"),
        (plural(0, "drop"), "0 drops"),
        (plural(1, "drop"), "1 drop"),
        (plural(1200, "drop"), "1,200 drops"),
        (format_quantity(1234.0), "1,234"),
        (format_quantity(0.25), "0.25"),
        (format_quantity(1.5e12), "1.5e+12"),
        (format_duration(0.24), "0.24 s"),
        (format_duration(12.34), "12.3 s"),
        (format_duration(59.96), "1 min 00 s"),
        (format_duration(185), "3 min 05 s"),
        (format_duration(7620), "2 h 07 min"),
        (format_duration(3 * 86400 + 4 * 3600), "3 d 4 h"),
        (format_duration(None), DASH),
        (format_rate(0.25), "0.25/s"),
        (format_rate(48000), "48,000/s"),
        (format_size(None), DASH),
        (format_size(17), "17 Bytes"),
        (format_size(999), "999 Bytes"),
        (format_size(1200), "1.2 kB"),
        (format_size(999_999), "1.0 MB"),
        (format_size(3_400_000_000), "3.4 GB"),
        (format_time(1_790_857_000), "2026-10-01 12:16:40 UTC"),
        (format_time(0), DASH),
        (format_time(1e30), DASH),
    ],
)
def test_values_have_their_unit(found: str, expected: str) -> None:
    """Each value is shown with its unit and its significant digits."""
    assert found == expected


@given(st.integers(0, 10**21))
def test_sizes_are_short(number: int) -> None:
    """A size takes at most nine characters."""
    assert len(format_size(number)) <= 9


@given(st.text(), st.integers(10, 50))
def test_foreign_text_is_short_and_without_controls(text: str, longest: int) -> None:
    """The result is one short line without control characters, for any text."""
    found = single_line(text, longest)

    assert len(found) <= longest
    assert found.splitlines() in ([], [found])
    assert not [letter for letter in found if unicodedata.category(letter) in ("Cc", "Cs")]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=20))
def test_ordinary_text_is_unchanged(text: str) -> None:
    """A short text without control characters stays as it is."""
    assert single_line(text, 20) == text
