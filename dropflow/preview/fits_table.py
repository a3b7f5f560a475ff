"""Tables in FITS files: the columns, and the first rows as text (FITS standard 4.0, sections 7.2 and 7.3)."""

import re

import msgspec
import numpy as np

from dropflow.errors import BadFileError
from dropflow.preview.fits import FitsUnit
from dropflow.preview.source import Source

__all__ = ["Column", "columns_of", "heap_at", "read_rows"]

_FORM = re.compile(r"(\d*)([LXBIJKAEDCMPQ])(.*)")
_INNER_FORM = re.compile(r"([LXBIJKAEDCM])(\(\d*\))?\s*")
_TYPES = {"B": "u1", "I": ">i2", "J": ">i4", "K": ">i8", "E": ">f4", "D": ">f8", "C": ">c8", "M": ">c16"}
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
    return -(-count // 8) if letter == "X" else count * (np.dtype(_TYPES[letter]).itemsize if letter in _TYPES else 1)


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
    values = np.frombuffer(data, _TYPES[letter], count=min(count, _SHOWN_VALUES) if data else 0)
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
