"""Plain text for people."""

from hypothesis import given
from hypothesis import strategies as st

from dropflow.cli.tables import columns

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
