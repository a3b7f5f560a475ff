"""Tilings say where chunks are."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadParameterError
from dropflow.graph.tilings import Tiling
from tests.array_drawings import tilings


@given(tilings())
def test_chunks_cover_an_array_once(tiling: tuple[list[int], list[Any], list[Any], list[int]]) -> None:
    """Each value is in exactly one chunk, in the order of the chunks, and `read` gives what was recorded."""
    made = Tiling.parse(tiling[0], tiling[1])
    seen = np.zeros(made.shape, dtype=int)
    for index in itertools.product(*map(range, made.counts)):
        seen[made.slices(index)] += 1
        assert made.chunk_shape(index) == tuple(int(np.diff(made.bounds(axis))[at]) for axis, at in enumerate(index))

    assert (seen == 1).all()
    assert Tiling.read(made.record()) == made


@given(st.integers(1, 50), st.integers(1, 50))
def test_one_tiling_has_one_description(length: int, size: int) -> None:
    """A list of equal lengths is the same tiling as their number, so that tilings can be compared."""
    lengths = [min(size, length - at) for at in range(0, length, size)]

    assert Tiling.parse([length], [lengths]) == Tiling.parse([length], size)


@pytest.mark.parametrize("value", [True, 1.5, "x", None, {}, [[3]], [True], [-1]])
def test_what_is_no_shape_is_refused(value: Any) -> None:
    """A shape is a list of positive whole numbers."""
    with pytest.raises(BadParameterError, match=r"^shape is "):
        Tiling.parse(value, 1)
