"""FITS files, read by astropy: headers of all units, images, images that are compressed by tiles, and tables."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dropflow.errors import BadFileError
from dropflow.preview.image import BUDGET, Bands, Floats, Nothing, RowBytes, Shown, shape_text
from dropflow.preview.source import Preview, PreviewQuery, Source, SourceStream, library, reading
from dropflow.preview.tables import (
    FIRST_BYTES,
    MOST_BYTES,
    MOST_ROWS,
    SHOWN_COLUMNS,
    SHOWN_ROWS,
    cell,
    table_preview,
)

_BLOCK_BYTES = 2880
"""Bytes of a block: headers and data of FITS are multiples of it."""
_MOST_UNITS = 64
"""Units of a file that are read."""
_TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
_CARDS = ("OBJECT", "TELESCOP", "INSTRUME", "DATE-OBS", "BUNIT")
_MOST_TILES = 1 << 16
"""Tiles of one plane of a compressed image that is read."""
_BAND = 1 << 20
"""Values that are decompressed at once: astropy takes as long for a call as for some thousand values."""
_MOST_HEAP_BYTES = 64 << 20
"""Bytes of the arrays of a table whose lengths vary; a larger heap is not read."""

_Unit = Any
"""A header with its data, as astropy has it."""


def show_fits(source: Source, query: PreviewQuery, base: Preview) -> Shown:
    """Return the image or table of a file that is wanted, or else its first image."""
    with reading("the FITS file"):
        units, wrong = _read_units(source)
        shapes = [_shape(unit) for unit in units]
        with_image = [at for at, shape in enumerate(shapes) if shape]
        part = min(query.part, len(units) - 1) if query.part >= 0 else with_image[0] if with_image else 0
        unit, shape = units[part], shapes[part]
        header = unit.header
        known = ((name.capitalize(), str(header[name])) for name in _CARDS if header.get(name))
        facts: tuple[tuple[str, str], ...] = tuple(known)
        titles = tuple(f"{at}: {_title(member, shapes[at])}" for at, member in enumerate(units))
        preview = replace(
            base,
            parts=titles if len(units) > 1 else (),
            part=part,
            header=header.tostring(sep="\n", endcard=False, padding=False),
            notes=(f"The file is not read further: {wrong}.",) if wrong else (),
            facts=facts,
        )
    try:
        with reading("the unit"):
            if header.get("XTENSION") in ("BINTABLE", "TABLE") and not unit.is_image:
                return Shown(Nothing(), _with_table(source, unit, preview, query))
            if not shape:
                return Shown(Nothing(), preview)
            facts = (("Shape", shape_text(shape)), *facts)
            if hasattr(unit, "compression_type"):
                preview = replace(preview, facts=(facts[0], ("Compressed with", unit.compression_type), *facts[1:]))
                return Shown(_tiled(unit, shape), preview, is_upside_down=True, place_of=partial(_place, header))
            array = _plain(source, unit, shape)
            preview = replace(preview, facts=(facts[0], ("Type", array.dtype.name), *facts[1:]))
            return Shown(array, preview, is_upside_down=True, place_of=partial(_place, header))
    except BadFileError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return Shown(Nothing(), replace(preview, trouble=f"{error.text}{hint}"))


def _place(header: Any, index: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    """Return the pixel of a value, and its world coordinates if the header has them (FITS standard 4.0, section 8)."""
    facts = (("Pixel", ", ".join(str(position + 1) for position in index[::-1])),)
    try:
        with reading("the world coordinates"):
            coordinates = library("astropy.wcs", "FITS files").WCS(header)
            values = np.atleast_1d(coordinates.array_index_to_world_values(*index))
            kinds, units = coordinates.world_axis_physical_types, coordinates.world_axis_units
            names = coordinates.wcs.ctype
            described = zip(names, values, kinds, units, strict=True)
            return (*facts, *(_coordinate(*axis) for axis in described if axis[2] is not None and np.isfinite(axis[1])))
    except BadFileError:
        return facts


def _coordinate(axis: str, value: float, kind: str, unit: str) -> tuple[str, str]:
    """Return one world coordinate; on the sky in hours and degrees."""
    name = str(axis).partition("-")[0]
    if kind not in ("pos.eq.ra", "pos.eq.dec"):
        return name, f"{value:.9g} {unit}".rstrip()
    angle = library("astropy.coordinates", "FITS files").Angle(value, unit)
    in_hours = kind == "pos.eq.ra"
    return name, str(angle.to_string("hour" if in_hours else "deg", sep=":", precision=3 if in_hours else 2, pad=True))


def _read_units(source: Source) -> tuple[list[_Unit], str]:
    """Return the units of a file, and why those after the last of them are not read; empty if there are none."""
    listed = library("astropy.io.fits", "FITS files").open(SourceStream(source), memmap=False, lazy_load_hdus=True)
    units: list[_Unit] = []
    try:
        while len(units) < _MOST_UNITS:
            units.append(listed[len(units)])
    except IndexError:
        end = units[-1].fileinfo()
        left = source.size - end["datLoc"] - end["datSpan"]
        return units, f"after {len(units)} units, {left:,} bytes are not a unit" if left > 0 else ""
    except (OSError, ValueError, TypeError, KeyError) as error:
        if not units:
            raise
        return units, f"after {len(units)} units, {error}"
    return units, f"only the first {_MOST_UNITS} units are read"


def _shape(unit: _Unit) -> tuple[int, ...]:
    """Return the shape of an image, the last axis contiguous; empty for all else, and without data."""
    shape = tuple(int(side) for side in unit.shape) if unit.is_image else ()
    if not all(0 <= side <= 2**53 for side in shape):
        raise BadFileError("NAXIS1 to NAXISn are not lengths of axes")
    return shape if math.prod(shape) else ()


def _title(unit: _Unit, shape: tuple[int, ...]) -> str:
    """Return what a unit is, in a few words."""
    kind = "image" if unit.is_image else str(unit.header.get("XTENSION", "random groups")).strip().lower()
    text = " × ".join(map(str, shape)) if shape else "no data" if unit.is_image else ""
    return f"{unit.header.get('EXTNAME') or kind} {text}".rstrip()


def _plain(source: Source, unit: _Unit, shape: tuple[int, ...]) -> RowBytes:
    """Return the values of an image as they are in the file."""
    kind, at = np.dtype(_TYPES[unit.header["BITPIX"]]), unit.fileinfo()["datLoc"]
    end = at + math.prod(shape) * kind.itemsize
    if end > source.size:
        raise BadFileError(f"the file is cut off: it has {source.size:,} bytes, and should have {end:,}")
    return RowBytes(read=source.read, at=at, dtype=kind, shape=shape, convert=_scaled(unit, kind))


def _scaled(unit: _Unit, kind: np.dtype[np.generic]) -> Callable[[npt.NDArray[np.generic]], Floats]:
    scale, zero = float(unit.header.get("BSCALE", 1)), float(unit.header.get("BZERO", 0))
    blank = unit.header.get("BLANK") if kind.kind != "f" else None

    def convert(values: npt.NDArray[np.generic]) -> Floats:
        numbers = values.astype(np.float64)
        if blank is not None:
            numbers[values == blank] = np.nan
        with np.errstate(all="ignore"):
            return numbers if (scale, zero) == (1.0, 0.0) else numbers * scale + zero

    return convert


def _tiled(unit: _Unit, shape: tuple[int, ...]) -> Bands:
    """Return the values of a compressed image, if they are not too many to decompress for a page."""
    tile = [int(side) for side in unit.tile_shape]
    sides = " × ".join(f"{side:,}" for side in shape[-2:])
    if math.prod(shape[-2:]) > BUDGET:
        raise BadFileError(f"the compressed image has {sides} values, too many for a page", hint="download it")
    if len(tile) != len(shape) or min(tile) < 1 or math.prod(tile) > BUDGET:
        raise BadFileError(f"tiles of {shape_text(tuple(tile))} values are not tiles of the image, or are too large")
    if math.prod(-(-length // side) for length, side in zip(shape[-2:], tile[-2:], strict=True)) > _MOST_TILES:
        raise BadFileError(f"the compressed image has more than {_MOST_TILES:,} tiles", hint="download it")
    rows = tile[-2] if len(tile) > 1 else 1
    together = max(_BAND // (rows * shape[-1]), 1) * rows
    return Bands(lambda where: unit.section[where], shape, together, "the compressed image")


def _with_table(source: Source, unit: _Unit, base: Preview, query: PreviewQuery) -> Preview:
    """Return the preview of a table: its first rows, or those that are wanted."""
    small, height = _first_rows(source, unit, *((MOST_ROWS, 4 * MOST_BYTES) if query.arranges else ()))
    columns = small.columns[:SHOWN_COLUMNS] if len(small.columns) else []
    return table_preview(
        base,
        query,
        [f"{column.name} [{column.unit}]" if column.unit else column.name for column in columns],
        lambda at, rows: _column_text(small, columns[at], rows),
        count=int(small.header["NAXIS2"]),
        height=height,
        width=len(small.columns),
    )


def _first_rows(
    source: Source, unit: _Unit, most: int = SHOWN_ROWS, most_bytes: int = FIRST_BYTES
) -> tuple[_Unit, int]:
    """Return a table with the first rows of another one, and the number of all rows: astropy reads tables whole.

    Arrays of different lengths come along if they have not too many bytes altogether.
    """
    header, at = unit.header.copy(), unit.fileinfo()["datLoc"]
    width, height, extra = (int(header[name]) for name in ("NAXIS1", "NAXIS2", "PCOUNT"))
    if not 0 <= width <= FIRST_BYTES or height < 0:
        raise BadFileError(f"a row of the table has {width:,} bytes; at most {FIRST_BYTES:,} are read")
    shown = min(height, most, max(most_bytes // max(width, 1), 1))
    heap_at = int(header.get("THEAP", width * height))
    heap = max(extra - (heap_at - width * height), 0)
    data = source.read(at, width * shown) + (source.read(at + heap_at, heap) if heap <= _MOST_HEAP_BYTES else b"")
    header["NAXIS2"], header["THEAP"], header["PCOUNT"] = shown, width * shown, len(data) - width * shown
    for number in range(1, int(header["TFIELDS"]) + 1):
        header.setdefault(f"TTYPE{number}", f"column {number}")  # numpy needs names of columns
    padded = data.ljust(-(-len(data) // _BLOCK_BYTES) * _BLOCK_BYTES, b"\0")
    return type(unit).fromstring(header.tostring().encode("ascii") + padded), height


def _column_text(table: _Unit, column: Any, rows: Sequence[int]) -> list[str]:
    """Return the values of a column as text, for each of these rows."""
    is_elsewhere = column.format.lstrip("01")[:1] in ("P", "Q")
    if is_elsewhere and not table.header["PCOUNT"]:
        lengths = table.data.base[column.name]
        return [f"{lengths[row][0]:,} values" for row in rows]
    null = column.null if isinstance(column.null, int) else None
    values = table.data[column.name]
    return [cell(values[row], null) for row in rows]
