"""A list of the first results of a session."""

from hypothesis import given
from hypothesis import strategies as st

from dropflow.rest.operation_records import ResultList
from dropflow.rest.schema import ResultInfo


@given(sizes=st.lists(st.integers(0, 9), max_size=8), limit=st.integers(0, 9), before=st.integers(0, 3))
def test_what_is_left_out_is_counted(sizes: list[int], limit: int, before: int) -> None:
    """Numbers and bytes add up to those of all, also of a list that is short already; 0 leaves nothing out."""
    every = [
        ResultInfo(drop=at, oid=f"d_{at}", name="d", node="n", path=f"{at}", size=size) for at, size in enumerate(sizes)
    ]
    found = ResultList(results=tuple(every), missing=("b",), more=before, more_size=5 * before).first(limit)

    assert found.results == tuple(every[: limit or None])
    assert len(found.results) + found.more == len(every) + before
    assert sum(one.size for one in found.results) + found.more_size == sum(sizes) + 5 * before
    assert found.missing == ("b",)
