"""Index maps between the chunks of arrays: for each axis the pairs of chunks that are joined.

All edges are the product of the axes, so that a link of a million edges is a few short arrays until it is unrolled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.tilings import Tiling, common_bounds
from translator.unroll.index_map import IndexMap

__all__ = ["AxisPairs", "TileMap", "Tiles", "all_of", "broadcast", "grouped", "overlaps", "same"]

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AxisPairs:
    """Which chunks are joined along one axis.

    Attributes
    ----------
    source, target : int or None
        Position of the axis among those of the array at this end; None if that end does not have it.
    left, right : int64 arrays, shape (pairs,)
        Index of the chunk at either end, by source first.
    """

    source: int | None
    target: int | None
    left: _Numbers
    right: _Numbers

    @property
    def joins(self) -> bool:
        """Whether a chunk of the target has several of the source."""
        return self.source is not None and len(np.unique(self.right)) < len(self.right)


class Tiles(msgspec.Struct, frozen=True):
    """How a wire joins the chunks of its ends.

    Attributes
    ----------
    source, target : tuple of int
        Number of chunks along each axis at either end.
    pairs : tuple of AxisPairs
        The axes.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    pairs: tuple[AxisPairs, ...]


def same(count: int, source: int, target: int) -> AxisPairs:
    """Join each chunk with the one of the same index."""
    numbers = np.arange(count, dtype=np.int64)
    return AxisPairs(source, target, numbers, numbers)


def broadcast(count: int, target: int) -> AxisPairs:
    """Join a source without this axis with all chunks of the target."""
    numbers = np.arange(count, dtype=np.int64)
    return AxisPairs(None, target, np.zeros_like(numbers), numbers)


def all_of(count: int, source: int) -> AxisPairs:
    """Join all chunks of the source with a target without this axis."""
    numbers = np.arange(count, dtype=np.int64)
    return AxisPairs(source, None, numbers, np.zeros_like(numbers))


def grouped(count: int, width: int, source: int, target: int) -> AxisPairs:
    """Join every `width` chunks of the source with one of the target."""
    numbers = np.arange(count, dtype=np.int64)
    return AxisPairs(source, target, numbers, numbers // width)


def overlaps(one: Tiling, other: Tiling, axis: int) -> AxisPairs:
    """Join the chunks of two tilings of an array that have values in common along an axis."""
    left, right = one.bounds(axis), other.bounds(axis)
    starts = common_bounds(left, right)[:-1]
    return AxisPairs(
        axis, axis, np.searchsorted(left, starts, "right") - 1, np.searchsorted(right, starts, "right") - 1
    )


@dataclass(frozen=True, eq=False)
class TileMap:
    """The edges of a link between arrays.

    Attributes
    ----------
    context : IndexMap
        Which instances of the arrays are joined.
    tiles : Tiles
        Which chunks of each of them.
    """

    context: IndexMap
    tiles: Tiles
    chunk_of_source = False

    @property
    def edges(self) -> int:
        """Number of edges."""
        return self.context.edges * prod(len(pair.left) for pair in self.tiles.pairs)

    @property
    def collects(self) -> bool:
        """Whether a target may have several edges."""
        return self.context.collects or any(pair.joins for pair in self.tiles.pairs)

    def write(self, source: npt.NDArray[np.int32], target: npt.NDArray[np.int32]) -> None:
        """Add the instance numbers at both ends of every edge to two arrays, shape (edges,), in place."""
        if not self.edges:
            return
        pairs = sorted(self.tiles.pairs, key=lambda pair: (pair.source is None, pair.source or 0))
        shape = (self.context.edges, *(len(pair.left) for pair in pairs))
        steps = _strides(self.tiles.source), _strides(self.tiles.target)
        first, last = (np.zeros(self.context.edges, dtype=np.int32) for _ in range(2))
        self.context.write(first, last)
        ends = (
            (source, first, self.tiles.source, [(pair.source, pair.left) for pair in pairs], steps[0]),
            (target, last, self.tiles.target, [(pair.target, pair.right) for pair in pairs], steps[1]),
        )
        for column, instances, counts, axes, step in ends:
            grid = column.reshape(shape)
            grid += _along(instances.astype(np.int64) * prod(counts), 0, len(shape))
            for place, (axis, numbers) in enumerate(axes, 1):
                if axis is not None:
                    grid += _along(numbers * step[axis], place, len(shape))


def _along(numbers: _Numbers, place: int, axes: int) -> npt.NDArray[np.int32]:
    """Return numbers as an array that varies along one axis only."""
    return numbers.astype(np.int32).reshape([-1 if axis == place else 1 for axis in range(axes)])


def _strides(counts: Sequence[int]) -> list[int]:
    return [prod(counts[axis + 1 :]) for axis in range(len(counts))]
