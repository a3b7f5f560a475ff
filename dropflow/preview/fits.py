"""FITS files: the headers of all units, and the values of images (FITS standard 4.0)."""

import math
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadFileError
from dropflow.preview.image import BUDGET, Floats, RowBytes
from dropflow.preview.source import BytesSource, Source

__all__ = [
    "MAGIC",
    "Column",
    "FitsUnit",
    "TiledImage",
    "columns_of",
    "decode_rice",
    "heap_at",
    "is_gzip",
    "read_image",
    "read_rows",
    "read_units",
    "unpacked",
]


MAGIC = b"SIMPLE  ="
_BLOCK = 2880
_CARD = 80
_MAX_BLOCKS = 200
_MAX_UNITS = 64
_MAX_AXES = 32
_FITS_TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([EeDd][+-]?\d{1,3})?")
_TEXT = re.compile(r"'((?:[^']|'')*)'")

Value = str | int | float | bool | None


class FitsUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One header with its data.

    Attributes
    ----------
    kind : str
        ``image``, ``compressed image``, or the kind of extension, such as ``BINTABLE``.
    name : str
        Its EXTNAME.
    cards : mapping
        Values by keyword; the last one if a keyword is repeated.
    lines : tuple of str
        The cards as text.
    at, size : int
        Where the data are, and their bytes.
    shape : tuple of int
        Of an image, the last axis contiguous; empty without data.
    """

    kind: str
    name: str
    cards: Mapping[str, Value]
    lines: tuple[str, ...]
    at: int
    size: int
    shape: tuple[int, ...]

    @property
    def title(self) -> str:
        """What the unit is, in a few words."""
        shape = " × ".join(map(str, self.shape)) if self.shape else "no data" if self.kind == "image" else ""
        return " ".join(part for part in (self.name or self.kind.lower(), shape) if part)


def read_units(source: Source) -> tuple[tuple[FitsUnit, ...], str]:
    """Return the units of a file, and what is wrong after the last of them; empty if nothing is."""
    units: list[FitsUnit] = []
    at = 0
    while at < source.size and len(units) < _MAX_UNITS:
        try:
            unit = _unit(source, at, is_first=not units)
        except BadFileError as error:
            if not units:
                raise
            return tuple(units), f"after {len(units)} units: {error.text}"
        units.append(unit)
        at = unit.at + -(-unit.size // _BLOCK) * _BLOCK
    left_out = f"only the first {_MAX_UNITS} units are read" if at < source.size else ""
    return tuple(units), left_out


def read_image(source: Source, unit: FitsUnit) -> RowBytes:
    """Return the values of an image.

    Raises
    ------
    BadFileError
        The unit has no image, or the file is cut off.
    """
    if unit.kind != "image" or not unit.shape:
        raise BadFileError(f"{unit.title} has no image")
    if unit.at + unit.size > source.size:
        found = f"it has {source.size:,} bytes, and should have {unit.at + unit.size:,}"
        raise BadFileError(f"the file is cut off: {found}")
    kind = np.dtype(_FITS_TYPES[int(unit.cards["BITPIX"] or 0)])
    return RowBytes(read=source.read, at=unit.at, dtype=kind, shape=unit.shape, convert=_scaled(unit, kind))


def _scaled(unit: FitsUnit, kind: np.dtype[np.generic]) -> Callable[[npt.NDArray[np.generic]], Floats]:
    scale, zero = _fits_float(unit.cards.get("BSCALE"), 1.0), _fits_float(unit.cards.get("BZERO"), 0.0)
    blank = unit.cards.get("BLANK") if kind.kind != "f" else None

    def convert(values: npt.NDArray[np.generic]) -> Floats:
        numbers = values.astype(np.float64)
        if isinstance(blank, int):
            numbers[values == blank] = np.nan
        with np.errstate(all="ignore"):
            return numbers if (scale, zero) == (1.0, 0.0) else numbers * scale + zero

    return convert


def _fits_float(value: Value, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else otherwise


def _unit(source: Source, at: int, *, is_first: bool) -> FitsUnit:
    lines, after = _header(source, at)
    cards: dict[str, Value] = {}
    for line in lines:
        if line[8:10] == "= ":
            cards[line[:8].rstrip()] = _value(line[10:])
    kind = "image" if is_first or cards.get("XTENSION") == "IMAGE" else str(cards.get("XTENSION") or "")
    if not is_first and not kind:
        raise BadFileError(f"at byte {at:,} is no header of a unit: XTENSION is missing")
    axes = _whole(cards, "NAXIS", _MAX_AXES)
    lengths = [_whole(cards, f"NAXIS{axis}", 2**53) for axis in range(1, axes + 1)]
    bits = cards.get("BITPIX")
    if bits not in _FITS_TYPES or not isinstance(bits, int):
        raise BadFileError(f"BITPIX is {bits!r}, which is none of {', '.join(map(str, _FITS_TYPES))}")
    groups = _whole(cards, "GCOUNT", 2**31, 1) if "GCOUNT" in cards else 1
    heap = _whole(cards, "PCOUNT", 2**53) if "PCOUNT" in cards else 0
    is_random = is_first and cards.get("GROUPS") is True and lengths[:1] == [0]
    count = math.prod(lengths[1:] if is_random else lengths) if axes else 0
    is_image = kind == "image" and not is_random
    is_tiled = kind == "BINTABLE" and cards.get("ZIMAGE") is True
    if is_tiled:
        lengths = [_whole(cards, f"ZNAXIS{axis}", 2**53) for axis in range(1, _whole(cards, "ZNAXIS", _MAX_AXES) + 1)]
    has_values = (is_image and count) or (is_tiled and bool(lengths) and min(lengths) > 0)
    return FitsUnit(
        kind="image" if is_image else "random groups" if is_random else "compressed image" if is_tiled else kind,
        name=str(cards.get("EXTNAME") or ""),
        cards=cards,
        lines=lines,
        at=after,
        size=abs(bits) // 8 * groups * (heap + count),
        shape=tuple(reversed(lengths)) if has_values else (),
    )


def _header(source: Source, at: int) -> tuple[tuple[str, ...], int]:
    """Return the cards of a header up to END, and where its data begin."""
    lines: list[str] = []
    for number in range(_MAX_BLOCKS):
        block = source.read(at + number * _BLOCK, min(_BLOCK, max(source.size - at - number * _BLOCK, _CARD)))
        text = block.decode("latin-1")
        for start in range(0, len(text), _CARD):
            card = text[start : start + _CARD].rstrip()
            if card == "END":
                return tuple(lines), at + (number + 1) * _BLOCK
            lines.append(card)
    raise BadFileError(f"the header at byte {at:,} has no END in its first {_MAX_BLOCKS} blocks")


def _value(text: str) -> Value:
    text = text.strip()
    if quoted := _TEXT.match(text):
        return quoted[1].replace("''", "'").rstrip()
    text = text.partition("/")[0].strip()
    if text in ("T", "F"):
        return text == "T"
    if found := _NUMBER.fullmatch(text):
        return float(text.upper().replace("D", "E")) if "." in text or found[2] else int(text)
    return None


def _whole(cards: Mapping[str, Value], name: str, most: int, least: int = 0) -> int:
    value = cards.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadFileError(f"{name} is {value!r} where a number from {least} to {most} is needed")
    return value


# Tables in FITS files: the columns, and the first rows as text (FITS standard 4.0, sections 7.2 and
# 7.3).

_FORM = re.compile(r"(\d*)([LXBIJKAEDCMPQ])(.*)")
_INNER_FORM = re.compile(r"([LXBIJKAEDCM])(\(\d*\))?\s*")
_FITS_TABLE_TYPES = {"B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8", "C": ">c8", "M": ">c16"}
_DESCRIPTORS = {"P": ">i4", "Q": ">i8"}
_MOST_COLUMNS = 999
_SHOWN_COLUMNS = 60
_SHOWN_ROWS = 200
_SHOWN_VALUES = 6
_MOST_BYTES = 4 << 20
_LONGEST_TEXT = 200


class Column(msgspec.Struct, frozen=True):
    """A column of a binary table.

    Attributes
    ----------
    name, unit : str
        TTYPE and TUNIT.
    letter : str
        Its type in TFORM.
    count : int
        Values in a row; bytes of a text.
    inner : str
        Of a column with arrays of different lengths, the type of their values.
    at, size : int
        Where it is in a row, and its bytes.
    scale, zero : float
        TSCAL and TZERO.
    null : int or None
        The integer that stands for no value.
    """

    name: str
    unit: str
    letter: str
    count: int
    inner: str
    at: int
    size: int
    scale: float
    zero: float
    null: int | None

    @property
    def title(self) -> str:
        """The name with the unit."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def columns_of(unit: FitsUnit) -> tuple[Column, ...]:
    """Return the columns of a binary table.

    Raises
    ------
    BadFileError
        The header is no description of a binary table.
    """
    cards = unit.cards
    count = cards.get("TFIELDS")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_COLUMNS:
        raise BadFileError(f"TFIELDS is {count!r} where a number from 0 to {_MOST_COLUMNS} is needed")
    found: list[Column] = []
    at = 0
    for number in range(1, count + 1):
        form = _FORM.fullmatch(str(cards.get(f"TFORM{number}", "")).strip())
        if form is None:
            raise BadFileError(f"TFORM{number} is {cards.get(f'TFORM{number}')!r}, which is no format of a column")
        letter, repeat = form[2], int(form[1] or 1)
        inner = _INNER_FORM.fullmatch(form[3]) if letter in _DESCRIPTORS else None
        if letter in _DESCRIPTORS and (inner is None or repeat > 1):
            raise BadFileError(f"TFORM{number} is {form[0]!r}, which is no format of an array of any length")
        size = _size(letter, repeat)
        null = cards.get(f"TNULL{number}")
        found.append(
            Column(
                name=str(cards.get(f"TTYPE{number}") or f"column {number}"),
                unit=str(cards.get(f"TUNIT{number}") or ""),
                letter=letter,
                count=repeat,
                inner=inner[1] if inner else "",
                at=at,
                size=size,
                scale=_number(cards.get(f"TSCAL{number}"), 1.0),
                zero=_number(cards.get(f"TZERO{number}"), 0.0),
                null=null if isinstance(null, int) and not isinstance(null, bool) else None,
            )
        )
        at += size
    if at != cards.get("NAXIS1"):
        raise BadFileError(f"the columns have {at} bytes, and a row has {cards.get('NAXIS1')}")
    return tuple(found)


def heap_at(unit: FitsUnit) -> int:
    """Return where the arrays of different lengths of a binary table are."""
    width, height = (int(unit.cards.get(f"NAXIS{axis}") or 0) for axis in (1, 2))
    start = unit.cards.get("THEAP")
    return unit.at + (start if isinstance(start, int) and start >= width * height else width * height)


def read_rows(source: Source, unit: FitsUnit) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], int]:
    """Return the titles of the columns of a table, its first rows as text, and the number of all rows.

    Raises
    ------
    BadFileError
        The table is damaged, or the file is cut off.
    """
    width, height = (int(unit.cards.get(f"NAXIS{axis}") or 0) for axis in (1, 2))
    shown = min(height, _SHOWN_ROWS, max(_MOST_BYTES // max(width, 1), 1))
    if width > _MOST_BYTES:
        raise BadFileError(f"a row of the table has {width:,} bytes; at most {_MOST_BYTES:,} are read")
    read = _ascii_columns(unit) if unit.kind == "TABLE" else None
    columns = columns_of(unit)[:_SHOWN_COLUMNS] if read is None else ()
    data = source.read(unit.at, width * shown) if shown else b""
    lines = [data[start : start + width] for start in range(0, width * shown, width)] if width else []
    if read is not None:
        rows = tuple(tuple(_text(line[at : at + size]) for _, at, size in read) for line in lines)
        return tuple(title for title, _, _ in read), rows, height
    heap = heap_at(unit)
    rows = tuple(tuple(_cell(source, one, line[one.at : one.at + one.size], heap) for one in columns) for line in lines)
    return tuple(one.title for one in columns), rows, height


def _ascii_columns(unit: FitsUnit) -> tuple[tuple[str, int, int], ...]:
    """Return title, place and width of the columns of a table in text."""
    found = []
    for number in range(1, min(int(unit.cards.get("TFIELDS") or 0), _SHOWN_COLUMNS) + 1):
        form = re.match(r"[AIFED](\d+)", str(unit.cards.get(f"TFORM{number}", "")).strip())
        start = unit.cards.get(f"TBCOL{number}")
        if form is None or not isinstance(start, int) or start < 1:
            raise BadFileError(f"TFORM{number} and TBCOL{number} do not say where column {number} is")
        name, measure = (str(unit.cards.get(f"{key}{number}") or "") for key in ("TTYPE", "TUNIT"))
        name = name or f"column {number}"
        found.append((f"{name} [{measure}]" if measure else name, start - 1, int(form[1])))
    return tuple(found)


def _size(letter: str, count: int) -> int:
    if letter in _DESCRIPTORS:
        return 2 * np.dtype(_DESCRIPTORS[letter]).itemsize * count
    return (
        -(-count // 8)
        if letter == "X"
        else count * (np.dtype(_FITS_TABLE_TYPES[letter]).itemsize if letter in _FITS_TABLE_TYPES else 1)
    )


def _cell(source: Source, column: Column, data: bytes, heap: int) -> str:
    letter, count = column.letter, column.count
    if letter in _DESCRIPTORS and data:
        count, offset = (int(one) for one in np.frombuffer(data, _DESCRIPTORS[letter]))
        letter = column.inner
        few = min(max(count, 0), _LONGEST_TEXT if letter == "A" else _SHOWN_VALUES)
        data = source.read(heap + offset, _size(letter, few)) if few and offset >= 0 else b""
    if letter == "A":
        return _text(data)
    if letter == "L":
        return _listed([{84: "true", 70: "false"}.get(sign, "") for sign in data[:_SHOWN_VALUES]], count)
    if letter == "X":
        bits = "".join(f"{one:08b}" for one in data)[:count]
        return bits if len(bits) <= 8 * _SHOWN_VALUES else f"{bits[: 8 * _SHOWN_VALUES]}…"
    values = np.frombuffer(data, _FITS_TABLE_TYPES[letter], count=min(count, _SHOWN_VALUES) if data else 0)
    return _listed([_shown(one, column) for one in values], count)


def _shown(value: np.generic, column: Column) -> str:
    is_whole = value.dtype.kind in "iu"
    if is_whole and column.null is not None and int(value) == column.null:
        return ""
    number = value.item()
    if (column.scale, column.zero) != (1.0, 0.0):
        number = number * column.scale + column.zero
        is_whole &= column.scale.is_integer() and column.zero.is_integer()
    if is_whole:
        return str(int(number))
    if isinstance(number, complex):
        return f"{number.real:.6g}{number.imag:+.6g}i"
    return f"{number:.{6 if value.dtype.itemsize == 4 else 10}g}"  # noqa: PLR2004 - digits of single precision


def _listed(values: list[str], count: int) -> str:
    return ", ".join(values) + (", …" if count > len(values) else "")


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("latin-1").strip()[:_LONGEST_TEXT]


def _number(value: object, otherwise: float = 0.0) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise


# Contents that are compressed by gzip: a bounded part of them, decompressed into memory.

_MAGIC = b"\x1f\x8b"
_LIMIT = 64 << 20
_PIECE = 1 << 20


def is_gzip(start: bytes) -> bool:
    """Whether a content that begins so is compressed by gzip."""
    return start.startswith(_MAGIC)


def unpacked(source: Source) -> tuple[BytesSource, bool]:
    """Return what is compressed, or its first 64 MiB, and whether that is all of it.

    Raises
    ------
    BadFileError
        It is damaged.
    """
    unpack = zlib.decompressobj(wbits=31)
    pieces: list[bytes] = []
    left, at = _LIMIT, 0
    try:
        while left and at < source.size and not unpack.eof:
            data = source.read(at, min(_PIECE, source.size - at))
            at += len(data)
            piece = unpack.decompress(data, left)
            pieces.append(piece)
            left -= len(piece)
    except zlib.error as error:
        raise BadFileError(f"it is not what gzip writes: {error}") from error
    if left and not unpack.eof:
        raise BadFileError("it is cut off: the end of what gzip wrote is missing")
    return BytesSource(b"".join(pieces), source.name.removesuffix(".gz")), unpack.eof


# Decompression of integers by the algorithm of Rice, as FITS files have them (FITS standard 4.0,
# section 10.4.1).
#
# All tiles of an image are decoded at the same time, one value of each at a step, since the bits of a
# tile have to be read one after the other.

_SETTINGS = {1: (3, 6, 8), 2: (4, 14, 16), 4: (5, 25, 32)}
"""Bits of the code of a block, its largest value, and bits of a difference, by the bytes of a value."""
_PAD = 16
_MOST_STEPS = 1 << 18
"""Values of a tile that are decoded one after the other: some seconds."""
_RICE_TYPES = {1: np.uint8, 2: np.int16, 4: np.int32}

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


def decode_rice(tiles: Sequence[bytes], count: int, size: int, block: int) -> npt.NDArray[np.integer]:
    """Return `count` values of each tile, one tile a row.

    Parameters
    ----------
    tiles : sequence of bytes
        Compressed tiles.
    count : int
        Values of a tile.
    size : int
        Bytes of a value: 1, 2 or 4.
    block : int
        Values that share a code.

    Raises
    ------
    BadFileError
        A tile is damaged, or the settings are not those of the algorithm.
    """
    if size not in _SETTINGS or not 0 < block <= 1 << 16:
        raise BadFileError(
            f"values of {size} bytes in blocks of {block} cannot be decompressed by the algorithm of Rice"
        )
    code_bits, raw_code, bits = _SETTINGS[size]
    reader = _TileBits(tiles)
    found = np.zeros((len(tiles), count), _RICE_TYPES[size])
    everyone = np.arange(len(tiles))
    last = reader.take(everyone, bits)
    mask = np.uint64((1 << bits) - 1)
    steps = 0
    for begin in range(0, count, block):
        end = min(begin + block, count)
        code = reader.take(everyone, code_bits).astype(np.int64) - 1
        raw, coded = np.flatnonzero(code == raw_code), np.flatnonzero((code >= 0) & (code != raw_code))
        is_flat = not len(raw) and not len(coded)
        steps += 1 if is_flat else end - begin
        if steps > _MOST_STEPS:
            raise BadFileError(f"a compressed tile has more than {_MOST_STEPS:,} values to decode", hint="download it")
        if is_flat:  # no value differs from the one before
            found[:, begin:end] = last.astype(_RICE_TYPES[size])[:, None]
            reader.check()
            continue
        low = code[coded]
        for at in range(begin, end):
            if len(raw):
                last[raw] += _signed(reader.take(raw, bits))
            if len(coded):
                high = reader.zeros(coded).astype(np.uint64) << low.astype(np.uint64)
                last[coded] += _signed(high | reader.take(coded, low))
            last &= mask
            found[:, at] = last.astype(_RICE_TYPES[size])
        reader.check()
    return found


def _signed(folded: _Words) -> _Words:
    """Return differences modulo 2 to the 64: 0, -1, 1, -2, 2... are written as 0, 1, 2, 3, 4..."""
    half = folded >> np.uint64(1)
    return np.where(folded & np.uint64(1), ~half, half)


class _TileBits:
    """Reads the bits of several tiles, each from its own place on."""

    def __init__(self, tiles: Sequence[bytes]) -> None:
        lengths = np.array([len(tile) for tile in tiles], np.int64)
        ends = np.cumsum(lengths)
        self._data = np.frombuffer(b"".join(tiles) + b"\0" * _PAD, np.uint8)
        self._at = (ends - lengths) * 8
        self._end = ends * 8

    def take(self, tiles: _Ints, bits: "int | _Ints") -> _Words:
        """Return the next bits of each of these tiles, at most 32."""
        window = self._window(tiles)
        self._at[tiles] += bits
        wanted = np.broadcast_to(np.asarray(bits, np.uint64), window.shape)
        return np.where(wanted > 0, window >> (np.uint64(64) - np.maximum(wanted, np.uint64(1))), np.uint64(0))

    def zeros(self, tiles: _Ints) -> _Ints:
        """Return the number of zeros before the next one in each of these tiles, and go behind it."""
        found = np.zeros(len(tiles), np.int64)
        left = np.arange(len(tiles))
        while len(left):
            high = (self._window(tiles[left]) >> np.uint64(32)).astype(np.float64)
            zeros = 32 - np.frexp(high)[1]  # of the first 32 bits; exact, as a double has 53
            found[left] += zeros
            self._at[tiles[left]] += np.minimum(zeros + 1, 32)
            left = left[high == 0]
            if len(left):
                self.check()
        return found

    def check(self) -> None:
        """Raise if a tile was read behind its end."""
        if (self._at > self._end).any():
            raise BadFileError("a compressed tile is damaged: it ends too early")

    def _window(self, tiles: _Ints) -> _Words:
        """Return at least the next 57 bits of each tile, from the highest bit on."""
        at = self._at[tiles]
        octets = np.minimum(at >> 3, len(self._data) - 8)
        words: _Words = self._data[octets[:, None] + np.arange(8)].view(">u8")[:, 0].astype(np.uint64)
        return words << (at & 7).astype(np.uint64)


# Images in FITS files that are compressed by tiles (FITS standard 4.0, section 10), as ``fpack``
# writes them.

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
            scale, zero = _fits_tiles_float(cards.get("BSCALE"), 1.0), _fits_tiles_float(cards.get("BZERO"), 0.0)
            blank = _fits_tiles_float(cards.get("BLANK"), blank)
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
            return _fits_tiles_float(self._unit.cards.get(name), otherwise)
        return _number_in(column, line, otherwise)


def _number_in(column: Column, line: bytes, otherwise: float) -> float:
    kind = {"E": ">f4", "D": ">f8", "J": ">i4", "K": ">i8", "I": ">i2"}.get(column.letter)
    if kind is None or column.count != 1:
        return otherwise
    return float(np.frombuffer(line[column.at : column.at + column.size], kind)[0])


def _fits_tiles_float(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
