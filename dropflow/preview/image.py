"""Draws a grid of numbers as a PNG picture of 256 colours. What is not a number is hatched in colours of its own."""

import io
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.preview.source import Line, Preview, PreviewQuery, library, reading

_COLOURS: Final = 254
"""Colours for numbers: two of the 256 are for what is not a number."""
# Dark blue to light yellow over violet and orange, each lighter than the one before: also readable in grey.
_ANCHORS: Final = np.array(
    [
        (10, 10, 38),
        (46, 20, 98),
        (105, 27, 122),
        (168, 44, 109),
        (222, 80, 73),
        (247, 142, 42),
        (250, 205, 78),
        (253, 250, 205),
    ],
    np.float64,
)
_NO_NUMBER: Final = {"grey": ((58, 96, 150), (84, 124, 180)), "colour": ((128, 128, 128), (160, 160, 160))}
"""Colours that no number has, for two stripes. A light page would make what is transparent as bright as the maximum."""
_ASINH_FACTOR: Final = 10.0
"""Factor of a share from 0 to 1 under `asinh`: a larger one shows more of the low values."""
_LOG_FACTOR: Final = 1000.0
"""Factor of a share from 0 to 1 under the logarithm: a larger one shows more of the low values."""
_HATCH: Final = 4
"""Pixels of the picture across a stripe."""
Floats = npt.NDArray[np.float64]
BUDGET = 16 * 1024 * 1024
"""Values that are read at most for one picture or line."""
_MOST_SQUARES = 1024
"""Squares of a picture in a row or a column."""
_MOST_READ_ROWS = 16 * 1024
"""Rows of a plane that are read for one picture, since each is read alone."""
_MOST_BINS = 700
"""Bins of the curve of a line of values."""
_PIECE_VALUES = 1 << 20
"""Values of a row that are read at once."""


def draw(values: npt.NDArray[np.float32], query: PreviewQuery) -> bytes:
    """Return a PNG picture of the values, the first row at the top."""
    index = (np.add.outer(*map(np.arange, values.shape)) // _HATCH % 2).astype(np.uint8)
    is_number = np.isfinite(values)
    if (ends := _ends(values, query)) is not None:
        low, high = ends
        finite = values[is_number].astype(np.float64)
        with np.errstate(all="ignore"):
            share = np.clip((finite - low) / (high - low), 0.0, 1.0) if high > low else np.full(finite.shape, 0.5)
        index[is_number] = 2 + np.round(_stretched(np.nan_to_num(share, nan=0.5), query.stretch) * (_COLOURS - 1))
    return _png(index, _palette(query.colours))


def scale_of(values: npt.NDArray[np.float32], query: PreviewQuery) -> tuple[float, ...]:
    """Return the values at five equal distances along the colours of their picture; none if none is a number."""
    ends = _ends(values, query)
    if ends is None:
        return ()
    low, high = ends
    places = np.linspace(0.0, 1.0, 5)
    if query.stretch == "sqrt":
        places = np.square(places)
    elif query.stretch == "log":
        places = np.expm1(places * np.log1p(_LOG_FACTOR)) / _LOG_FACTOR
    elif query.stretch == "asinh":
        places = np.sinh(places * np.arcsinh(_ASINH_FACTOR)) / _ASINH_FACTOR
    return tuple(float(low * (1.0 - place) + high * place) for place in places)


def _ends(values: npt.NDArray[np.float32], query: PreviewQuery) -> tuple[float, float] | None:
    """Return the values with the first and the last colour; None if none is a number."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not finite.size:
        return None
    side = (100.0 - query.keep) / 2
    low, high = (float(end) for end in np.percentile(finite, [side, 100.0 - side]))
    return low, high


def _stretched(share: npt.NDArray[np.float64], how: str) -> npt.NDArray[np.float64]:
    """Return values from 0 to 1 as brightness from 0 to 1."""
    stretched = share
    if how == "sqrt":
        stretched = np.sqrt(share)
    elif how == "log":
        stretched = np.log1p(_LOG_FACTOR * share) / np.log1p(_LOG_FACTOR)
    elif how == "asinh":
        stretched = np.arcsinh(_ASINH_FACTOR * share) / np.arcsinh(_ASINH_FACTOR)
    return stretched


def _palette(colours: str) -> npt.NDArray[np.uint8]:
    """Return 256 colours; the first two are for what is not a number."""
    places = np.linspace(0.0, 1.0, _COLOURS)
    if colours == "grey":
        rows = np.repeat(np.round(places * 255)[:, None], 3, axis=1)
    else:
        anchors = np.linspace(0.0, 1.0, len(_ANCHORS))
        rows = np.stack([np.interp(places, anchors, _ANCHORS[:, channel]) for channel in range(3)], axis=1)
    none = _NO_NUMBER[colours]
    return np.vstack([np.array(none), np.round(rows)]).astype(np.uint8)


def _png(index: npt.NDArray[np.uint8], palette: npt.NDArray[np.uint8]) -> bytes:
    """Return a PNG picture with a palette."""
    drawn = library("PIL.Image", "pictures").fromarray(index)
    drawn.putpalette(palette.tobytes())
    stream = io.BytesIO()
    drawn.save(stream, "PNG")
    return stream.getvalue()


# Samples of arrays: a picture of a plane, a line, and statistics, from a bounded number of values.
#
# An array has planes of rows and columns, its last two axes. Large planes are averaged over squares; if a plane has
# more than `BUDGET` values, only some rows of each square are read.


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
        Type of the values as stored.
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


class Bands:
    """An array of a library: some rows of a plane are read at once, and the last ones are kept.

    Parameters
    ----------
    read : callable
        Returns the values at an index.
    shape : tuple of int
        See `Planes`.
    rows : int
        How many are read at once: those of a chunk or a tile, which are decompressed together.
    name : str
        Name of the content, for errors.
    number : str
        Part of complex values, as in `PreviewQuery`.
    """

    def __init__(
        self,
        read: Callable[[tuple[Any, ...]], npt.NDArray[Any]],
        shape: tuple[int, ...],
        rows: int,
        name: str,
        number: str = "amplitude",
    ) -> None:
        self.shape = shape
        self._read, self._rows, self._name, self._number = read, rows, name, number
        self._band: tuple[tuple[int, int], Floats] | None = None

    def block(self, plane: int, row: int, column: int, columns: int) -> Floats:
        """Return values of one row of a plane."""
        top = row // self._rows * self._rows
        if self._band is None or self._band[0] != (plane, top):
            leading = np.unravel_index(plane, self.shape[:-2]) if len(self.shape) > 2 else ()
            rows = (slice(top, min(top + self._rows, height_of(self.shape))),) if len(self.shape) > 1 else ()
            where = (*(int(position) for position in leading), *rows, slice(0, width_of(self.shape)))
            with reading(self._name):
                values = np.asarray(self._read(where if self.shape else ()))
            self._band = ((plane, top), as_floats(values.reshape(-1, width_of(self.shape)), self._number))
        return self._band[1][row - top, column : column + columns]


class Nothing:
    """An array without values."""

    shape: tuple[int, ...] = (0,)

    def block(self, plane: int, row: int, column: int, columns: int) -> Floats:
        """Return no values."""
        return np.zeros(0)


def _index_of(index: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    return (("Index", ", ".join(map(str, index))),)


class Shown(NamedTuple):
    """An array that was found in a content: its values, how its picture lies, and where a value of it is, as facts."""

    array: Planes
    preview: Preview
    is_upside_down: bool = False
    is_transposed: bool = False
    place_of: Callable[[tuple[int, ...]], tuple[tuple[str, str], ...]] = _index_of


class Window(NamedTuple):
    """The rows and columns of a plane that are shown."""

    row: int
    rows: int
    column: int
    columns: int


def shape_text(shape: tuple[int, ...]) -> str:
    """Return the lengths of axes as text."""
    return " × ".join(f"{length:,}" for length in shape) or "one value"


def as_floats(values: npt.NDArray[np.generic], number: str = "amplitude") -> Floats:
    """Return numbers as float64; of complex ones, the amplitude or the phase in radians."""
    with np.errstate(all="ignore"):
        numbers = (
            (np.arctan2(values.imag, values.real) if number == "phase" else np.abs(values))
            if values.dtype.kind == "c"
            else values
        )
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


def sample_plane(array: Planes, plane: int, window: Window) -> Grid:
    """Return a part of a plane of an array, at most 1,024 squares wide and high."""
    height, width = window.rows, min(window.columns, BUDGET)
    step = max(-(-height // _MOST_SQUARES), -(-width // _MOST_SQUARES), -(-height * width // BUDGET), 1)
    rows, columns = -(-height // step), -(-width // step)
    each = max(min(BUDGET // max(rows * width, 1), _MOST_READ_ROWS // max(rows, 1), step), 1)
    grid, summary = np.full((rows, columns), np.nan, np.float32), Summary()
    for at in range(rows):
        taken = range(at * step, min(at * step + each, height))
        sums, counts = np.zeros(columns), np.zeros(columns)
        for row in taken:
            _add_row(array, (plane, window.row + row, window.column), (width, step), (sums, counts), summary)
        with np.errstate(all="ignore"):
            grid[at] = sums / counts
    is_whole = each == step and width == window.columns
    return Grid(grid, step, summary, is_whole)


def _add_row(
    array: Planes, where: tuple[int, int, int], size: tuple[int, int], squares: tuple[Floats, Floats], summary: Summary
) -> None:
    """Add the values of one row, from a column on, to the sums and counts of their squares."""
    (plane, at, column), (width, step), (sums, counts) = where, size, squares
    for start in range(0, width, _PIECE_VALUES):
        values = array.block(plane, at, column + start, min(_PIECE_VALUES, width - start))
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
    bins = min(count, _MOST_BINS)
    each = max(BUDGET // max(bins, 1), 1)
    lows: list[float | None] = []
    highs: list[float | None] = []
    summary, is_whole = Summary(), True
    for at in range(bins):
        start, stop = at * count // bins, (at + 1) * count // bins
        is_whole &= stop - start <= each
        low, high = math.inf, -math.inf
        for begin in range(start, min(stop, start + each), _PIECE_VALUES):
            values = array.block(plane, 0, begin, min(_PIECE_VALUES, min(stop, start + each) - begin))
            summary.add(values)
            finite = values[np.isfinite(values)]
            if finite.size:
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        has_any = low <= high
        lows.append(low if has_any else None)
        highs.append(high if has_any else None)
    return Line(count=count, lows=tuple(lows), highs=tuple(highs)), summary, is_whole
