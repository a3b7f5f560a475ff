"""Rectangles that are moved apart."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.logical_drawing import scale_for, separated

_NUMBERS = st.integers(-300, 300).map(float)
_SIDES = st.integers(1, 200).map(float)


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, _SIDES, _SIDES), min_size=1, max_size=12))
def test_rectangles_do_not_overlap_and_move_right_or_down_only(given: list[tuple[float, ...]]) -> None:
    """Each two have the gap between them in one direction at least; also if they are wanted in one place."""
    rows = np.array(given)
    places, sizes = rows[:, :2], rows[:, 2:]
    found = separated(places, sizes, (7.0, 5.0))

    assert (found >= places).all()
    for one, two in combinations(range(len(rows)), 2):
        needed = (sizes[one] + sizes[two]) / 2 + (7.0, 5.0)
        assert (np.abs(found[one] - found[two]) >= needed - 1e-9).any()


def test_rectangles_with_enough_room_stay() -> None:
    """Where they were drawn apart, nothing moves."""
    places = np.array([[0.0, 0.0], [300.0, 10.0], [20.0, 200.0]])
    assert (separated(places, np.full((3, 2), 100.0), (10.0, 10.0)) == places).all()


def test_the_scale_is_that_at_which_nodes_fit() -> None:
    """Nodes that are drawn near each other move apart, those far apart come nearer, both within limits."""
    row = np.array([[0.0, 0.0], [100.0, 3.0], [200.0, 0.0]])
    assert scale_for(row, 150.0, 60.0) == pytest.approx(1.5)
    assert scale_for(row * 2, 150.0, 60.0) == pytest.approx(0.75)
    assert scale_for(row / 100, 150.0, 60.0) == 2.5
    assert scale_for(row * 100, 150.0, 60.0) == 0.3
    assert scale_for(row[:1], 150.0, 60.0) == 1.0
