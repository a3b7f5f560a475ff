"""Root causes of several children, merged by columns of numbers."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.records import FailureInfo
from dropflow.api.requests import FailureList, FailureQuery
from managers.composite.log_merging import KnownCauses
from managers.composite.merging import merge_failures


def _failure(row: int, count: int, along: int) -> FailureInfo:
    drop, name = (f"d_{row}", "d") if row >= 0 else ("", "n")
    return FailureInfo(
        drop=drop, name=name, node="n", code="", kind="", text="t", count=count, took_along=along, row=row
    )


_FAILURES = st.builds(_failure, st.integers(-1, 12), st.integers(0, 4), st.integers(0, 3))
_CHILDREN = st.lists(st.lists(_FAILURES, max_size=10, unique_by=lambda one: one.row), max_size=4)


@given(children=_CHILDREN, silent=_CHILDREN, offset=st.integers(0, 14), limit=st.integers(1, 6))
def test_a_page_is_that_of_all_records(
    children: list[list[FailureInfo]], silent: list[list[FailureInfo]], offset: int, limit: int
) -> None:
    """Each page has what it has if all records of all children are merged; only its records are asked for."""
    answers = [FailureList.of(merge_failures(one), FailureQuery(columns=True)) for one in children]
    remembered = [failure for one in silent for failure in one]
    every = merge_failures([*(failure for one in children for failure in one), *remembered])
    asked: list[int] = []

    def records(rows: Sequence[int]) -> list[FailureInfo]:
        asked.extend(rows)
        query = FailureQuery(rows=",".join(map(str, rows)))
        return [found for one in children for found in FailureList.of(one, query).failures] if rows else []

    known = KnownCauses(answers, remembered)
    page = known.page(FailureQuery(offset=offset, limit=limit), records)

    assert known.total == len(every)
    assert page == every[offset : offset + limit]
    assert len(asked) <= limit


@given(children=_CHILDREN)
def test_managers_above_merge_columns_of_managers_below(children: list[list[FailureInfo]]) -> None:
    """Columns that were merged in two steps are those that were merged in one."""
    answers = [FailureList.of(merge_failures(one), FailureQuery(columns=True)) for one in children]
    once = KnownCauses(answers, ())
    below = [KnownCauses(part, ()) for part in (answers[:2], answers[2:])]
    lists = [FailureList(failures=one.lost, total=one.total, columns=one.columns) for one in below]
    twice = KnownCauses(lists, ())

    assert msgspec.json.encode(twice.columns) == msgspec.json.encode(once.columns)
    assert twice.lost == once.lost
