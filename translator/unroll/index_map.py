"""Index maps: which instances a link joins, as nested counters with strides.

All edges of a link are enumerated by a few nested counters (`IndexCounter`). Each adds its stride to the number of the
source, to that of the target, or to both; a gather in addition divides a running number by its width. So a link of a
million edges is a handful of integers until the arrays are needed, and its number of edges is a product.
"""

from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from translator.unroll.levels import GATHER, Level

__all__ = ["IndexCounter", "IndexMap"]


class IndexCounter(msgspec.Struct, frozen=True):
    """One counter of an index map.

    Attributes
    ----------
    level : Level
        The level that is counted.
    size : int
        Number of steps: the size of the level, or one less for the carry of a loop.
    source, target : int
        Strides of the instance numbers; 0 if the level does not belong to that end.
    flat : int
        Stride of the number that a gather divides by its width.
    """

    level: Level
    size: int
    source: int = 0
    target: int = 0
    flat: int = 0


class IndexMap(msgspec.Struct, frozen=True, kw_only=True):
    """The edges of one link.

    Attributes
    ----------
    counters : tuple of IndexCounter
        The counters. Those of the source are first, so that edges are sorted by source, then by target.
    source_start, target_start : int
        First instance numbers.
    chunk : Level or None
        The level of the gather that the link enters, or feeds back from.
    width : int
        Number of inputs in a chunk of that gather.
    chunk_stride : int
        Stride of the number of the target (or source) from one chunk to the next.
    chunk_of_source : bool
        Whether the chunk is at the source: the link feeds back from the gather to what it gathers.
    """

    counters: tuple[IndexCounter, ...] = ()
    source_start: int = 0
    target_start: int = 0
    chunk: Level | None = None
    width: int = 1
    chunk_stride: int = 0
    chunk_of_source: bool = False

    @property
    def edges(self) -> int:
        """Number of edges."""
        return prod(counter.size for counter in self.counters)

    @property
    def collects(self) -> bool:
        """Whether a target may have several edges. This depends on the kinds of levels, and not on their sizes.

        So a scatter of one copy is collected, too, and whatever enters a gather. But a gather of all its inputs has one
        instance.
        """
        is_gathered = self.chunk is not None and not self.chunk_of_source
        return is_gathered or any(
            counter.source
            and not counter.target
            and not counter.level.is_transparent
            and not (counter.level.kind == GATHER and counter.level.size == 1)
            for counter in self.counters
        )

    def write(self, source: npt.NDArray[np.int32], target: npt.NDArray[np.int32]) -> None:
        """Add the instance numbers at both ends of every edge to two arrays.

        Parameters
        ----------
        source, target : int32 arrays, shape (edges,)
            Changed in place. Only the target of a gather needs more memory.
        """
        if not self.edges:
            return
        counters = _merged(self.counters)
        sizes = [counter.size for counter in counters]
        _count(source, self.source_start, sizes, [counter.source for counter in counters])
        _count(target, self.target_start, sizes, [counter.target for counter in counters])
        if self.chunk is not None:
            flat = np.zeros(len(target), dtype=np.int32)
            _count(flat, 0, sizes, [counter.flat for counter in counters])
            flat //= min(self.width, np.iinfo(np.int32).max)  # a number of inputs in a graph has no upper bound
            flat *= self.chunk_stride
            if self.chunk_of_source:
                source += flat
            else:
                target += flat


def _count(out: npt.NDArray[Any], start: int, sizes: list[int], strides: list[int]) -> None:
    """Add ``start + sum(index * stride)`` for all indices, row-major."""
    if start:
        out += np.int32(start)
    grid = out.reshape(sizes)
    for position, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if stride:
            steps = np.arange(size, dtype=np.int32)
            steps *= np.int32(stride)
            grid += steps.reshape([size if axis == position else 1 for axis in range(len(sizes))])


def _merged(counters: tuple[IndexCounter, ...]) -> list[IndexCounter]:
    """Return equivalent counters, with neighbours joined if the outer continues where the inner wraps."""
    merged: list[IndexCounter] = []
    for counter in counters:
        if counter.size == 1:
            continue
        last = merged[-1] if merged else None
        if last is not None and all(
            outer == counter.size * inner
            for outer, inner in (
                (last.source, counter.source),
                (last.target, counter.target),
                (last.flat, counter.flat),
            )
        ):
            merged[-1] = IndexCounter(
                counter.level, last.size * counter.size, counter.source, counter.target, counter.flat
            )
        else:
            merged.append(counter)
    return merged
