"""FITS files: the headers of all units, and the values of images (FITS standard 4.0)."""

import math
import re
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadFileError
from dropflow.preview.planes import Floats, RowBytes
from dropflow.preview.source import Source

__all__ = ["MAGIC", "FitsUnit", "read_image", "read_units"]

MAGIC = b"SIMPLE  ="
_BLOCK = 2880
_CARD = 80
_MAX_BLOCKS = 200
_MAX_UNITS = 64
_MAX_AXES = 32
_TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
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
    kind = np.dtype(_TYPES[int(unit.cards["BITPIX"] or 0)])
    return RowBytes(read=source.read, at=unit.at, dtype=kind, shape=unit.shape, convert=_scaled(unit, kind))


def _scaled(unit: FitsUnit, kind: np.dtype[np.generic]) -> Callable[[npt.NDArray[np.generic]], Floats]:
    scale, zero = _float(unit.cards.get("BSCALE"), 1.0), _float(unit.cards.get("BZERO"), 0.0)
    blank = unit.cards.get("BLANK") if kind.kind != "f" else None

    def convert(values: npt.NDArray[np.generic]) -> Floats:
        numbers = values.astype(np.float64)
        if isinstance(blank, int):
            numbers[values == blank] = np.nan
        with np.errstate(all="ignore"):
            return numbers if (scale, zero) == (1.0, 0.0) else numbers * scale + zero

    return convert


def _float(value: Value, otherwise: float) -> float:
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
    if bits not in _TYPES or not isinstance(bits, int):
        raise BadFileError(f"BITPIX is {bits!r}, which is none of {', '.join(map(str, _TYPES))}")
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
