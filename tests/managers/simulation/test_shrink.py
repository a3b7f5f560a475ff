"""The fewest faults with which a trial still fails."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from managers.simulation.loss_sweep import shrink


@given(st.integers(0, 30), st.sets(st.integers(0, 29)))
def test_only_the_needed_items_are_left(count: int, needed: set[int]) -> None:
    """If all needed items are there, only these are left, in their order."""
    needed = {item for item in needed if item < count}

    def fails(items: Sequence[int]) -> bool:
        return needed <= set(items)

    assert shrink(range(count), fails, most_runs=10_000) == tuple(sorted(needed))


def test_it_ends_after_so_many_runs() -> None:
    """With few runs, what is left still fails."""
    kept = shrink(range(100), lambda items: 0 in items and 99 in items, most_runs=3)
    assert {0, 99} <= set(kept)
