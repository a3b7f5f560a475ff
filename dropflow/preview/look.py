"""Finds the format of a content, and returns its preview or its picture."""

import math
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dropflow.errors import BadFileError
from dropflow.preview import arrays, fits
from dropflow.preview.arrays import ZarrArray, ZarrHeader, read_header
from dropflow.preview.fits import TiledImage, is_gzip, read_rows, unpacked
from dropflow.preview.image import Planes, RowBytes, draw, height_of, planes_of, sample_line, sample_plane, width_of
from dropflow.preview.source import (
    FIRST_LOOK,
    PICTURE_LIMIT,
    DirectorySource,
    Preview,
    PreviewQuery,
    Source,
    picture_type,
)
from dropflow.preview.text import TEXT_LIMIT, as_dump, as_text, text_preview

__all__ = ["picture", "preview"]

_PIXEL_LIMIT = 100_000_000
_START = 1 << 20
_ENTRIES = 500
_ARRAYS = 100
_COLUMN_LIMIT = 20_000
_CARDS = ("OBJECT", "TELESCOP", "INSTRUME", "DATE-OBS", "BUNIT")


class _Shown(NamedTuple):
    """An array that was found in a content: its values, and how its picture lies."""

    array: Planes
    preview: Preview
    is_upside_down: bool = False
    is_transposed: bool = False


_Find = Callable[[Source, PreviewQuery, Preview], _Shown]
"""Returns the array of a file, with a preview made from the given one."""


def preview(source: Source | DirectorySource, query: PreviewQuery = FIRST_LOOK) -> Preview:
    """Return a preview of a content. Never raises: what is wrong with the content is in the preview."""
    if isinstance(source, DirectorySource):
        return _directory(source, query)
    start = source.start(_START)
    if not start:
        return Preview(kind="nothing", size=source.size)
    return _packed(source, query) if is_gzip(start) else _of_file(source, start, query)


def _of_file(source: Source, start: bytes, query: PreviewQuery) -> Preview:
    """Return the preview of a file by its first bytes."""
    if kind := picture_type(start):
        return _picture_file(source, start, kind)
    if found := _array_format(start):
        name, find = found
        base = Preview(kind="header", format=name, size=source.size)
        return _seen(partial(find, source, query, base), base, query)
    text = as_text(start[:TEXT_LIMIT])
    if text is not None:
        return text_preview(start, text, source.size, source.name)
    return Preview(kind="dump", text=as_dump(start), size=source.size, is_cut=source.size > 512)  # noqa: PLR2004


def picture(source: Source | DirectorySource, query: PreviewQuery = FIRST_LOOK) -> bytes:
    """Return the picture of a content: the file itself, or a PNG of an array.

    Raises
    ------
    BadFileError
        It has none, or is damaged.
    """
    if isinstance(source, DirectorySource):
        shown = _zarr(source, query, Preview(kind="directory"))
        if shown is None:
            raise BadFileError("the directory has no array")
    else:
        start = source.start(_START)
        if is_gzip(start):
            source = unpacked(source)[0]
            start = source.start(_START)
            if is_gzip(start):
                raise BadFileError("it is compressed twice: download it")
        if kind := picture_type(start):
            if trouble := _picture_file(source, start, kind).trouble:
                raise BadFileError(trouble)
            return source.read(0, source.size)
        found = _array_format(start)
        if found is None:
            raise BadFileError("the content is not a picture that a page can show")
        shown = found[1](source, query, Preview(kind="header"))
    if not _has_picture(shown.array.shape):
        raise BadFileError("the content has no plane with rows and columns")
    return draw(_grid(shown, query)[0], query)


def _packed(source: Source, query: PreviewQuery) -> Preview:
    """Return the preview of what is compressed by gzip."""
    base = Preview(kind="dump", format="gzip", size=source.size, text=as_dump(source.start(_START)), is_cut=True)
    try:
        inside, is_whole = unpacked(source)
    except BadFileError as error:
        return replace(base, trouble=error.text)
    if is_gzip(inside.start(2)):
        return replace(base, trouble="it is compressed twice: download it")
    found = preview(inside, query)
    if not is_whole:
        large = f"it has more than {len(inside.start(inside.size)) >> 20} MB when it is decompressed: download it"
        found = replace(found, is_cut=True, trouble=large if found.kind in ("array", "header", "picture") else "")
    return replace(found, format=f"{found.format or 'text'}, compressed by gzip", size=source.size)


def _has_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and math.prod(shape) > 0 and min(height_of(shape), width_of(shape)) > 1


def _plane(shape: tuple[int, ...], query: PreviewQuery) -> int:
    return min(query.plane, planes_of(shape) - 1)


def _grid(shown: _Shown, query: PreviewQuery) -> tuple[npt.NDArray[np.float32], Preview]:
    """Return the plane as it is drawn, and the preview with its statistics."""
    plane = _plane(shown.array.shape, query)
    grid = sample_plane(shown.array, plane)
    values = grid.values.T if shown.is_transposed else grid.values
    values = values[::-1] if shown.is_upside_down else values
    notes = list(shown.preview.notes)
    if grid.step > 1:
        side = f"{grid.step:,} × {grid.step:,}"
        notes.append(f"Each pixel of the picture is the average of {side} values.")
    if not grid.is_whole:
        notes.append("The array is large: picture and statistics are those of a sample of its values.")
    return values, replace(
        shown.preview,
        kind="array",
        facts=(*shown.preview.facts, *grid.summary.facts),
        width=values.shape[1],
        height=values.shape[0],
        plane=plane,
        planes=planes_of(shown.array.shape),
        notes=tuple(notes),
    )


def _seen(find: Callable[[], _Shown], base: Preview, query: PreviewQuery) -> Preview:
    """Return the preview of an array, or `base` with what is wrong with it."""
    try:
        shown = find()
    except BadFileError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return replace(base, trouble=f"{error.text}{hint}")
    shape, found = shown.array.shape, shown.preview
    try:
        if _has_picture(shape):
            return _grid(shown, query)[1]
        if math.prod(shape) > 0:
            flat = _flat(shown.array)
            line, summary, is_whole = sample_line(flat, _plane(shape, query))
            is_whole &= width_of(flat.shape) == math.prod(shape[-2:])
            notes = () if is_whole else ("The array is long: the plot is that of a sample of its values.",)
            return replace(
                found,
                kind="array",
                facts=(*found.facts, *summary.facts),
                line=line if line.count > 1 else None,
                planes=planes_of(shape),
                plane=_plane(shape, query),
                notes=(*found.notes, *notes),
            )
    except BadFileError as error:
        return replace(found, trouble=error.text)
    return found


def _flat(array: Planes) -> Planes:
    """Return an array of one row or one column as one of one row."""
    if height_of(array.shape) == 1:
        return array
    if isinstance(array, RowBytes):  # the values of the column follow each other
        return replace(array, shape=(*array.shape[:-2], 1, height_of(array.shape)))
    return _OneColumn(array)


class _OneColumn:
    """An array with one column, as one with one row; at most its first values, since each is read alone."""

    def __init__(self, array: Planes) -> None:
        self.shape = (*array.shape[:-2], 1, min(height_of(array.shape), _COLUMN_LIMIT))
        self._array = array

    def block(self, plane: int, row: int, column: int, columns: int) -> npt.NDArray[np.float64]:  # noqa: ARG002
        """Return values of the only row."""
        return np.concatenate([self._array.block(plane, at, 0, 1) for at in range(column, column + columns)])


def _shape_text(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{length:,}" for length in shape) or "one value"


def _npy(source: Source, query: PreviewQuery, base: Preview) -> _Shown:  # noqa: ARG001 - as for the other formats
    array = arrays.read_npy(source)
    shape = array.shape[::-1] if array.is_transposed else array.shape
    facts = (("Shape", _shape_text(shape)), ("Type", f"{array.dtype.name}, {array.type}"))
    return _Shown(array, replace(base, facts=facts), is_transposed=array.is_transposed)


def _fits(source: Source, query: PreviewQuery, base: Preview) -> _Shown:
    units, wrong = fits.read_units(source)
    with_image = [at for at, unit in enumerate(units) if unit.shape]
    part = min(query.part, len(units) - 1) if query.part >= 0 else with_image[0] if with_image else 0
    unit = units[part]
    known = ((name.capitalize(), str(unit.cards[name])) for name in _CARDS if unit.cards.get(name))
    facts: tuple[tuple[str, str], ...] = tuple(known)
    found = replace(
        base,
        parts=tuple(f"{at}: {one.title}" for at, one in enumerate(units)) if len(units) > 1 else (),
        part=part,
        header="\n".join(unit.lines),
        notes=(f"The file is not read further {wrong}.",) if wrong else (),
        facts=facts,
    )
    if unit.kind in ("BINTABLE", "TABLE"):
        return _Shown(_Nothing(), _with_table(source, unit, found))
    if not unit.shape:
        return _Shown(_Nothing(), found)
    shape = ("Shape", _shape_text(unit.shape))
    if unit.kind == "image":
        array = fits.read_image(source, unit)
        facts = (shape, ("Type", np.dtype(array.dtype).name), *facts)
        return _Shown(array, replace(found, facts=facts), is_upside_down=True)
    facts = (shape, ("Compressed with", str(unit.cards.get("ZCMPTYPE"))), *facts)
    try:
        return _Shown(TiledImage(source, unit), replace(found, facts=facts), is_upside_down=True)
    except BadFileError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return _Shown(_Nothing(), replace(found, facts=facts, trouble=f"{error.text}{hint}"))


_ARRAY_FORMATS: tuple[tuple[bytes, str, _Find], ...] = (
    (fits.MAGIC, "FITS", _fits),
    (arrays.MAGIC, "NumPy array", _npy),
)


def _array_format(start: bytes) -> tuple[str, _Find] | None:
    """Return the name of a format of arrays and what finds the array in a file; None if it is another format."""
    return next(((name, find) for magic, name, find in _ARRAY_FORMATS if start.startswith(magic)), None)


def _with_table(source: Source, unit: fits.FitsUnit, base: Preview) -> Preview:
    """Return the preview of a table of a FITS file: its first rows, or what is wrong with it."""
    try:
        columns, rows, height = read_rows(source, unit)
    except BadFileError as error:
        return replace(base, trouble=error.text)
    count = unit.cards.get("TFIELDS")
    notes = list(base.notes)
    if len(rows) < height:
        notes.append(f"These are the first {len(rows):,} of {height:,} rows.")
    if isinstance(count, int) and len(columns) < count:
        notes.append(f"These are the first {len(columns)} of {count} columns.")
    facts = (("Rows", f"{height:,}"), ("Columns", str(count)), *base.facts)
    return replace(
        base, kind="table", columns=columns, rows=rows, facts=facts, notes=tuple(notes), is_cut=len(rows) < height
    )


class _Nothing:
    """An array without values."""

    shape: tuple[int, ...] = (0,)

    def block(self, plane: int, row: int, column: int, columns: int) -> npt.NDArray[np.float64]:  # noqa: ARG002
        """Return no values."""
        return np.zeros(0)


def _directory(source: DirectorySource, query: PreviewQuery) -> Preview:
    entries = source.entries(_ENTRIES + 1)
    base = Preview(
        kind="directory",
        format="Directory",
        columns=("File", "Bytes"),
        rows=tuple((os.fsencode(name).decode(errors="replace"), f"{size:,}") for name, size in entries[:_ENTRIES]),
        is_cut=len(entries) > _ENTRIES,
        notes=(f"The first {_ENTRIES} files.",) if len(entries) > _ENTRIES else (),
    )

    def find() -> _Shown:
        return _zarr(source, query, base) or _Shown(_Nothing(), base)

    return _seen(find, base, query)


def _zarr(source: DirectorySource, query: PreviewQuery, base: Preview) -> _Shown | None:
    """Return an array of a directory, or None if it has none."""
    top = read_header(source)
    headers = [top] if top is not None else _headers_below(source)
    if not headers:
        return None
    part = min(max(query.part, 0), len(headers) - 1)
    header = headers[part]
    array = ZarrArray(source, header)
    notes = ("Only the beginning of the array is shown: all of its chunks are too many.",) if array.is_windowed else ()
    found = replace(
        base,
        format="Zarr array",
        facts=_zarr_facts(header),
        parts=tuple(one.folder.rstrip("/") for one in headers) if len(headers) > 1 else (),
        part=part,
        notes=notes,
    )
    return _Shown(array, found)


def _headers_below(source: DirectorySource) -> list[ZarrHeader]:
    """Return the metadata of the arrays of a group, from what is listed of the directory."""
    metadata = ("/.zarray", "/zarr.json")
    names = [name for name, _ in source.entries(20 * _ENTRIES) if name.endswith(metadata)][:_ARRAYS]
    found = (read_header(source, f"{name.rpartition('/')[0]}/") for name in names)
    return [header for header in found if header is not None]


def _zarr_facts(header: ZarrHeader) -> tuple[tuple[str, str], ...]:
    return (
        ("Shape", _shape_text(header.shape)),
        ("Type", header.dtype.name),
        ("Chunks", _shape_text(header.chunks)),
        ("Compressed with", ", ".join(header.codecs) or "nothing"),
    )


def _picture_file(source: Source, start: bytes, kind: str) -> Preview:
    width, height = _measured(start, kind)
    word = kind.partition("/")[2].upper()
    facts = (("Width", f"{width:,}"), ("Height", f"{height:,}")) if width and height else ()
    trouble = ""
    if source.size > PICTURE_LIMIT:
        trouble = f"the picture has more than {PICTURE_LIMIT >> 20} MB: download it"
    elif width * height > _PIXEL_LIMIT:
        trouble = f"the picture has {width:,} × {height:,} pixels, too many for a page: download it"
    return Preview(kind="picture", format=f"{word} picture", size=source.size, facts=facts, trouble=trouble)


def _measured(start: bytes, kind: str) -> tuple[int, int]:
    """Return width and height of a picture file; 0 if they are not at the usual place."""
    if kind == "image/png" and start[12:16] == b"IHDR":
        return int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
    if kind == "image/gif":
        return int.from_bytes(start[6:8], "little"), int.from_bytes(start[8:10], "little")
    if kind == "image/jpeg":
        at = 2
        while at + 9 <= len(start) and start[at] == 0xFF:  # noqa: PLR2004 - marker of a segment
            marker = start[at + 1]
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004 - start of frame
                return int.from_bytes(start[at + 7 : at + 9], "big"), int.from_bytes(start[at + 5 : at + 7], "big")
            at += 2 + max(int.from_bytes(start[at + 2 : at + 4], "big"), 2)
    return 0, 0
