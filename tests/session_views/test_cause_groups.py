"""Causes: failures with the same text."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dropflow.rest.session_records import FailureInfo
from dropflow.session_views.cause_groups import causes


def failure(drop: int, name: str, text: str, count: int) -> FailureInfo:
    """Return a failure of a drop."""
    return FailureInfo(drop=str(drop), name=name, node="n", code="DF105", kind="E", text=text, count=count)


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 9)), max_size=30
    )
)
def test_nothing_is_lost_and_the_worst_comes_first(rows: list[tuple[int, str, str, int]]) -> None:
    """Each failure is in exactly one cause, those of a cause have the same text, and the largest cause is first."""
    failures = [failure(*row) for row in rows]
    found = causes(failures)
    members = [member for cause in found for member in (cause.first, *cause.rest)]

    assert sorted(members, key=repr) == sorted(failures, key=repr)
    assert len(found) == len({(name, text) for _, name, text, _ in rows})
    assert [cause.count for cause in found] == sorted((cause.count for cause in found), reverse=True)
    assert sum(cause.count for cause in found) == sum(count for *_, count in rows)


def test_each_lost_node_is_a_cause() -> None:
    """Two lost nodes are two causes, although their texts are the same."""
    lost = failure(1, "a", "silent for 12 s", 5)
    nodes = [msgspec.structs.replace(lost, drop="", node=node) for node in ("n1", "n2")]

    assert len(causes(nodes)) == 2
