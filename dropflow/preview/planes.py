"""Samples of arrays: a picture of a plane, a line, and statistics, from a bounded number of values.

An array has planes of rows and columns, its last two axes. Large planes are averaged over squares; if a plane has more
than `BUDGET` values, only some rows of each square are read.
"""

import math
from collections.abc import Callable
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.preview.records import Line

__all__ = ["BUDGET", "Floats", "Grid", "Planes", "RowBytes", "Summary", "as_floats", "sample_line", "sample_plane"]

Floats = npt.NDArray[np.float64]

BUDGET = 16 * 1024 * 1024
"""Values that are read at most for one picture or line."""

_SIDE = 1024
_ROWS = 16 * 1024
_BINS = 700
_PIECE = 1 << 20


class Planes(Protocol):
    """An array whose values can be read in blocks."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes, the last one contiguous."""
        ...

    def block(self, plane: int, row: int, column: int, columns: int) -> Floats:
        """Return values of one row of a plane, with NaN for those that are missing."""
        ...


class RowBytes(msgspec.Struct, frozen=True):
    """Values that follow each other in a content.

    Attributes
    ----------
    read : callable
        Returns so many bytes from an offset on.
    at : int
        Offset of the first value.
    dtype : numpy.dtype
        Of the values as stored.
    shape : tuple of int
        See `Planes`.
    convert : callable
        From values as stored to numbers.
    """

    read: Callable[[int, int], bytes]
    at: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    convert: Callable[[npt.NDArray[np.generic]], Floats]

    def block(self, plane: int, row: int, column: int, columns: int) -> Floats:
        """Return values of one row."""
        height, width = height_of(self.shape), width_of(self.shape)
        first = (plane * height + row) * width + column
        raw = self.read(self.at + first * self.dtype.itemsize, columns * self.dtype.itemsize)
        return self.convert(np.frombuffer(raw, self.dtype))


def as_floats(values: npt.NDArray[np.generic]) -> Floats:
    """Return numbers as float64; of complex ones, the absolute value."""
    with np.errstate(all="ignore"):
        numbers = np.abs(values) if values.dtype.kind == "c" else values
        return numbers.astype(np.float64)


def width_of(shape: tuple[int, ...]) -> int:
    """Return the number of columns of a plane."""
    return shape[-1] if shape else 1


def height_of(shape: tuple[int, ...]) -> int:
    """Return the number of rows of a plane."""
    return shape[-2] if len(shape) > 1 else 1


def planes_of(shape: tuple[int, ...]) -> int:
    """Return the number of planes."""
    return math.prod(shape[:-2])


class Summary:
    """Statistics of values that come in pieces. Values that are not finite are counted apart."""

    def __init__(self) -> None:
        self.count = self.missing = 0
        self.low, self.high = math.inf, -math.inf
        self._sum = self._squares = 0.0
        self._shift: float | None = None

    def add(self, values: Floats) -> None:
        """Add a piece."""
        finite = values[np.isfinite(values)]
        self.missing += values.size - finite.size
        if not finite.size:
            return
        if self._shift is None:
            self._shift = float(finite[0])
        with np.errstate(all="ignore"):
            moved = finite - self._shift
            self._sum += float(moved.sum())
            self._squares += float(np.square(moved).sum())
        self.count += finite.size
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Names and values of the statistics."""
        missing = (("Not a number", f"{self.missing:,}"),) if self.missing else ()
        if not self.count or self._shift is None:
            return missing
        mean = self._sum / self.count
        variance = max(self._squares / self.count - mean * mean, 0.0)
        spread = math.sqrt(variance) if math.isfinite(variance) else math.nan
        numbers = (("Minimum", self.low), ("Maximum", self.high), ("Mean", self._shift + mean), ("Deviation", spread))
        return (*((name, f"{number + 0.0:.6g}") for name, number in numbers), *missing)


class Grid(msgspec.Struct, frozen=True):
    """A plane as a picture has it: averages of squares with `step` values a side, and what was left out."""

    values: npt.NDArray[np.float32]
    step: int
    summary: Summary
    is_whole: bool


def sample_plane(array: Planes, plane: int) -> Grid:
    """Return a plane of an array, at most 1,024 squares wide and high."""
    height, width = height_of(array.shape), min(width_of(array.shape), BUDGET)
    step = max(-(-height // _SIDE), -(-width // _SIDE), -(-height * width // BUDGET), 1)
    rows, columns = -(-height // step), -(-width // step)
    each = max(min(BUDGET // max(rows * width, 1), _ROWS // max(rows, 1), step), 1)
    grid, summary = np.full((rows, columns), np.nan, np.float32), Summary()
    for at in range(rows):
        taken = range(at * step, min(at * step + each, height))
        sums, counts = np.zeros(columns), np.zeros(columns)
        for row in taken:
            _add_row(array, (plane, row), (width, step), (sums, counts), summary)
        with np.errstate(all="ignore"):
            grid[at] = sums / counts
    is_whole = each == step and width == width_of(array.shape)
    return Grid(grid, step, summary, is_whole)


def _add_row(
    array: Planes, where: tuple[int, int], size: tuple[int, int], squares: tuple[Floats, Floats], summary: Summary
) -> None:
    """Add the values of one row to the sums and counts of their squares."""
    (width, step), (sums, counts) = size, squares
    for start in range(0, width, _PIECE):
        values = array.block(*where, start, min(_PIECE, width - start))
        summary.add(values)
        is_number = np.isfinite(values)
        first = start // step
        edges = np.arange(first * step, start + len(values), step) - start
        edges[0] = 0
        with np.errstate(all="ignore"):
            sums[first : first + len(edges)] += np.add.reduceat(np.where(is_number, values, 0.0), edges)
        counts[first : first + len(edges)] += np.add.reduceat(is_number.astype(np.int64), edges)


def sample_line(array: Planes, plane: int = 0) -> tuple[Line, Summary, bool]:
    """Return an array of one axis as a line, its statistics, and whether they are those of all values."""
    count = width_of(array.shape)
    bins = min(count, _BINS)
    each = max(BUDGET // max(bins, 1), 1)
    lows: list[float | None] = []
    highs: list[float | None] = []
    summary, is_whole = Summary(), True
    for at in range(bins):
        start, stop = at * count // bins, (at + 1) * count // bins
        is_whole &= stop - start <= each
        low, high = math.inf, -math.inf
        for begin in range(start, min(stop, start + each), _PIECE):
            values = array.block(plane, 0, begin, min(_PIECE, min(stop, start + each) - begin))
            summary.add(values)
            finite = values[np.isfinite(values)]
            if finite.size:
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        has_any = low <= high
        lows.append(low if has_any else None)
        highs.append(high if has_any else None)
    return Line(count=count, lows=tuple(lows), highs=tuple(highs)), summary, is_whole
