"""Plain text for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.cli.tables import columns, plural, readable_bytes, readable_seconds

_WORDS = st.text(st.characters(categories=["L"]), min_size=1, max_size=8)


@given(st.lists(st.tuples(_WORDS, st.integers(0, 10**9), _WORDS), min_size=1, max_size=6))
def test_columns_are_aligned(rows: list[tuple[str, int, str]]) -> None:
    """The last column begins at the same place in every line, and nothing is lost."""
    lines = list(columns(rows, header=("name", "drops", "class")))
    begins = {line.rindex(last) for line, last in zip(lines, ["class", *(row[2] for row in rows)], strict=True)}

    assert len(begins) == 1
    assert [line.split()[1] for line in lines[1:]] == [f"{row[1]:,}" for row in rows]


def test_no_rows_are_no_lines() -> None:
    """An empty table is nothing at all."""
    assert list(columns([])) == []


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (2_345_678, "2.3 MB"), (5e15, "5000.0 TB")]
)
def test_bytes_are_readable(size: float, text: str) -> None:
    """Decimal units, one digit."""
    assert readable_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1234, "0.12 s"), (12.34, "12.3 s"), (59.99, "60.0 s"), (245, "4 min 05 s"), (7620, "2 h 07 min")],
)
def test_times_are_readable(seconds: float, text: str) -> None:
    """From hundredths of a second to hours."""
    assert readable_seconds(seconds) == text


def test_nouns_agree_with_their_number() -> None:
    """One drop, two drops, no drops."""
    assert [plural(number, "drop") for number in (0, 1, 1200)] == ["0 drops", "1 drop", "1,200 drops"]
