"""A page of the results of a session, which several nodes have."""

from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.records import ResultInfo
from dropflow.api.requests import ResultList, ResultsQuery

_SORTS = ("", "path", "-path", "name", "-name", "node", "size", "-size")


def _results(sizes: list[int]) -> tuple[ResultInfo, ...]:
    """Return results of two nodes, some of them with equal names and sizes."""
    return tuple(
        ResultInfo(drop=at, oid=f"d_{at}", name=f"d{size % 2}", node="ab"[at % 2], path=f"{size}/{at}", size=size)
        for at, size in enumerate(sizes)
    )


@given(sizes=st.lists(st.integers(0, 9), max_size=8), limit=st.integers(0, 9), before=st.integers(0, 3))
def test_what_is_left_out_is_counted(sizes: list[int], limit: int, before: int) -> None:
    """Numbers and bytes add up to those of all, also of a list that is short already; 0 leaves nothing out."""
    every = _results(sizes)
    found = ResultList(results=every, missing=("b",), more=before, more_size=5 * before)
    found = found.chosen(ResultsQuery(limit=limit))

    assert found.results == every[: limit or None]
    assert len(found.results) + found.more == len(every) + before
    assert sum(one.size for one in found.results) + found.more_size == sum(sizes) + 5 * before
    assert found.missing == ("b",)


@given(
    sizes=st.lists(st.integers(0, 3), max_size=10),
    sort=st.sampled_from(_SORTS),
    text=st.sampled_from(("", "D1", "2/")),
    node=st.sampled_from(("", "a")),
    limit=st.integers(0, 6),
)
def test_the_first_of_each_node_have_the_first_of_all(
    sizes: list[int], sort: str, text: str, node: str, limit: int
) -> None:
    """A manager that merges what its nodes chose has the same as one that chooses from all of their results."""
    every, query = _results(sizes), ResultsQuery(text=text, node=node, sort=sort, limit=limit)
    parts = [ResultList(results=tuple(one for one in every if one.node == name)).chosen(query) for name in "ab"]
    merged = sorted((one for part in parts for one in part.results), key=lambda one: one.drop)
    found = ResultList(
        results=tuple(merged),
        more=sum(part.more for part in parts),
        more_size=sum(part.more_size for part in parts),
    ).chosen(query)

    assert found == ResultList(results=every).chosen(query)
    assert found.chosen(query) == found
