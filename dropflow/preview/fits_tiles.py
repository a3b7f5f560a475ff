"""Images in FITS files that are compressed by tiles (FITS standard 4.0, section 10), as ``fpack`` writes them."""

import math
import zlib
from collections import defaultdict
from itertools import product

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadFileError
from dropflow.preview.fits import FitsUnit
from dropflow.preview.fits_table import Column, columns_of, heap_at
from dropflow.preview.planes import BUDGET, Floats
from dropflow.preview.rice import decode_rice
from dropflow.preview.source import Source

__all__ = ["TiledImage"]

_READ = ("RICE_1", "RICE_ONE", "GZIP_1", "GZIP_2", "NOCOMPRESS")
_MOST_TILES = 1 << 16
_ZERO = -2147483646
"""Stands for 0 in images that were quantized by the method SUBTRACTIVE_DITHER_2."""
_WHOLE_TYPES = {1: ">u1", 2: ">i2", 4: ">i4", 8: ">i8"}
_FLOAT_TYPES = {4: ">f4", 8: ">f8"}

_Numbers = npt.NDArray[np.generic]
_Plane = npt.NDArray[np.float32]


class _Tile(msgspec.Struct, frozen=True):
    """A tile of a plane: its row in the table, and where it is in the image."""

    row: int
    place: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(one.stop - one.start for one in self.place)


class TiledImage:
    """The values of a compressed image. The tiles of a plane are decompressed when its first row is read.

    Values that were rounded with random numbers are at most half a step from the true ones.

    Raises
    ------
    BadFileError
        The image has another compression, is damaged, or is too large.
    """

    def __init__(self, source: Source, unit: FitsUnit) -> None:
        self.shape = unit.shape
        self._source, self._unit = source, unit
        self._algorithm = str(unit.cards.get("ZCMPTYPE") or "")
        if self._algorithm not in _READ:
            raise BadFileError(
                f"the image is compressed by {self._algorithm or 'an unknown algorithm'}, which is not read here",
                hint="download it",
            )
        if math.prod(self.shape[-2:]) > BUDGET:
            sides = " × ".join(f"{side:,}" for side in self.shape[-2:])
            raise BadFileError(f"the compressed image has {sides} values, too many for a page", hint="download it")
        self._columns = {column.name: column for column in columns_of(unit)}
        if "COMPRESSED_DATA" not in self._columns:
            raise BadFileError("the table of the compressed image has no column COMPRESSED_DATA")
        self._sides = self._tile_sides()
        self._width = int(unit.cards.get("NAXIS1") or 0)
        self._heap = heap_at(unit)
        self._plane: tuple[int, _Plane] | None = None

    @property
    def compression(self) -> str:
        """Name of the algorithm."""
        return self._algorithm

    def block(self, plane: int, row: int, column: int, columns: int) -> Floats:
        """Return values of one row of a plane."""
        if self._plane is None or self._plane[0] != plane:
            self._plane = (plane, self._decoded(plane))
        return self._plane[1][row, column : column + columns].astype(np.float64)

    def _tile_sides(self) -> tuple[int, ...]:
        """Return the sides of a tile, the last one that along a row; by default a tile is a row."""
        axes = len(self.shape)
        found = []
        for axis in range(1, axes + 1):
            side = self._unit.cards.get(f"ZTILE{axis}", self.shape[-1] if axis == 1 else 1)
            if isinstance(side, bool) or not isinstance(side, int) or not 0 < side <= self.shape[-axis]:
                raise BadFileError(f"ZTILE{axis} is {side!r} where a number from 1 to {self.shape[-axis]} is needed")
            found.append(side)
        if math.prod(found) > BUDGET:
            raise BadFileError(f"a tile has {math.prod(found):,} values; at most {BUDGET:,} are read")
        return tuple(reversed(found))

    def _tiles(self, leading: tuple[int, ...]) -> list[_Tile]:
        """Return the tiles of a plane, whose place in the axes before the last two is given."""
        counts = [-(-length // side) for length, side in zip(self.shape, self._sides, strict=True)]
        if math.prod(counts[len(leading) :]) > _MOST_TILES:
            raise BadFileError(f"the compressed image has more than {_MOST_TILES:,} tiles", hint="download it")
        outer = [index // side for index, side in zip(leading, self._sides, strict=False)]
        tiles = []
        for inner in product(*(range(count) for count in counts[len(leading) :])):
            where = (*outer, *inner)
            row = 0
            for at, count in zip(where, counts, strict=True):
                row = row * count + at
            starts = [at * side for at, side in zip(where, self._sides, strict=True)]
            place = tuple(
                slice(start, min(start + side, length))
                for start, side, length in zip(starts, self._sides, self.shape, strict=True)
            )
            tiles.append(_Tile(row, place))
        return tiles

    def _decoded(self, plane: int) -> _Plane:
        before: list[int] = []
        for length in reversed(self.shape[:-2]):
            plane, index = divmod(plane, length)
            before.insert(0, index)
        leading = tuple(before)
        shape = self.shape[-2:] if len(self.shape) > 1 else (1, *self.shape)
        found = np.full(shape, np.nan, np.float32)  # half the memory, for a picture
        coded: dict[int, list[tuple[_Tile, bytes]]] = defaultdict(list)
        for tile in self._tiles(leading):
            line = self._source.read(self._unit.at + tile.row * self._width, self._width)
            data = self._content("COMPRESSED_DATA", line)
            if data and self._algorithm.startswith("RICE"):
                coded[math.prod(tile.shape)].append((tile, data))
            else:
                self._put(found, tile, leading, self._plain(tile, line, data), line)
        for count, some in coded.items():
            values = decode_rice([data for _, data in some], count, *self._rice_settings())
            for (tile, _), numbers in zip(some, values, strict=True):
                line = self._source.read(self._unit.at + tile.row * self._width, self._width)
                self._put(found, tile, leading, numbers, line)
        return found

    def _put(self, found: _Plane, tile: _Tile, leading: tuple[int, ...], numbers: _Numbers, line: bytes) -> None:
        """Write the values of a tile into the plane that it is a part of."""
        values = self._scaled(numbers, line).reshape(tile.shape)
        for index, place in zip(leading, tile.place, strict=False):
            values = values[index - place.start]
        inner = tile.place[len(leading) :]
        found[inner if len(inner) > 1 else (slice(0, 1), *inner)] = values

    def _plain(self, tile: _Tile, line: bytes, data: bytes) -> _Numbers:
        """Return the values of a tile that is compressed by gzip, or not at all."""
        count, is_gzip = math.prod(tile.shape), self._algorithm.startswith("GZIP")
        is_shuffled, has_floats = self._algorithm == "GZIP_2", False
        if not data:
            data = self._content("GZIP_COMPRESSED_DATA", line)
            is_gzip, is_shuffled, has_floats = bool(data), False, True
        if not data:
            data = self._content("UNCOMPRESSED_DATA", line)
        if is_gzip:
            try:
                data = zlib.decompressobj(wbits=47).decompress(data, 8 * count + 1)
            except zlib.error as error:
                raise BadFileError(f"a compressed tile is damaged: {error}") from error
        size = len(data) // count
        is_float = int(self._unit.cards.get("ZBITPIX") or 0) < 0 and (has_floats or not self._is_quantized)
        types = _FLOAT_TYPES if is_float else _WHOLE_TYPES
        if size not in types or len(data) != size * count:
            raise BadFileError(f"a tile of {count:,} values has {len(data):,} bytes")
        if is_shuffled:
            data = np.frombuffer(data, np.uint8).reshape(size, count).T.tobytes()
        return np.frombuffer(data, types[size])

    def _scaled(self, numbers: _Numbers, line: bytes) -> Floats:
        """Return the values that the stored numbers of a tile mean."""
        values = numbers.astype(np.float64)
        if numbers.dtype.kind == "f":
            return values
        scale, zero = self._value("ZSCALE", line, 1.0), self._value("ZZERO", line, 0.0)
        blank = self._value("ZBLANK", line, math.nan)
        if not self._is_quantized:
            cards = self._unit.cards
            scale, zero = _float(cards.get("BSCALE"), 1.0), _float(cards.get("BZERO"), 0.0)
            blank = _float(cards.get("BLANK"), blank)
        with np.errstate(all="ignore"):
            scaled = values * scale + zero
        if self._unit.cards.get("ZQUANTIZ") == "SUBTRACTIVE_DITHER_2":
            scaled[values == _ZERO] = 0.0
        scaled[values == blank] = np.nan
        return scaled

    @property
    def _is_quantized(self) -> bool:
        return "ZSCALE" in self._columns or "ZSCALE" in self._unit.cards

    def _rice_settings(self) -> tuple[int, int]:
        """Return the bytes of a value, and the values of a block."""
        given = {
            str(self._unit.cards.get(f"ZNAME{number}")): self._unit.cards.get(f"ZVAL{number}")
            for number in range(1, 10)
        }
        size, block = given.get("BYTEPIX", 4), given.get("BLOCKSIZE", 32)
        if not isinstance(size, int) or not isinstance(block, int):
            raise BadFileError(f"BYTEPIX and BLOCKSIZE are {size!r} and {block!r} where numbers are needed")
        return size, block

    def _content(self, name: str, line: bytes) -> bytes:
        """Return the array of a row in a column; empty if there is none."""
        column = self._columns.get(name)
        if column is None or not column.inner:
            return b""
        kind = ">i4" if column.letter == "P" else ">i8"
        count, offset = (int(one) for one in np.frombuffer(line[column.at : column.at + column.size], kind))
        size = {"B": 1, "I": 2, "J": 4, "K": 8, "E": 4, "D": 8}.get(column.inner, 1) * count
        if not 0 <= size <= self._source.size or offset < 0:
            raise BadFileError(f"a compressed tile has {size:,} bytes at {offset:,}, which are not in the file")
        return self._source.read(self._heap + offset, size) if size else b""

    def _value(self, name: str, line: bytes, otherwise: float) -> float:
        """Return a number of a tile: that of a column, or of the header."""
        column = self._columns.get(name)
        if column is None:
            return _float(self._unit.cards.get(name), otherwise)
        return _number_in(column, line, otherwise)


def _number_in(column: Column, line: bytes, otherwise: float) -> float:
    kind = {"E": ">f4", "D": ">f8", "J": ">i4", "K": ">i8", "I": ">i2"}.get(column.letter)
    if kind is None or column.count != 1:
        return otherwise
    return float(np.frombuffer(line[column.at : column.at + column.size], kind)[0])


def _float(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
