"""Finds the format of a content, and returns its preview or its picture."""

import math
import os
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dropflow.errors import BadFileError
from dropflow.files import FITS_START, NPY_START, PARQUET_START
from dropflow.preview import arrays, fits, parquet
from dropflow.preview.image import (
    Nothing,
    Planes,
    RowBytes,
    Shown,
    Window,
    draw,
    height_of,
    planes_of,
    sample_line,
    sample_plane,
    scale_of,
    width_of,
)
from dropflow.preview.measurement_set import casacore_kind, show_measurement_set, show_table
from dropflow.preview.source import (
    FIRST_LOOK,
    PICTURE_LIMIT,
    DirectorySource,
    Preview,
    PreviewQuery,
    Source,
    SourceStream,
    is_gzip,
    library,
    picture_type,
    reading,
    unpacked,
)
from dropflow.preview.tables import MOST_BYTES
from dropflow.preview.text import TEXT_LIMIT, as_dump, as_text, text_preview

_MOST_PIXELS = 100_000_000
"""Pixels of a picture file that is decoded."""
_START_BYTES = 1 << 20
"""Bytes at the beginning of a content from which its format is found, and text is shown."""
_SHOWN_FILES = 500
"""Files of a directory that are listed."""
_MOST_COLUMN_VALUES = 20_000
"""Values of an array with one column, since each is read alone."""


_Find = Callable[[Source, PreviewQuery, Preview], Shown]
"""Returns the array of a file, with a preview made from the given one."""
_ARRAY_FORMATS: tuple[tuple[bytes, str, _Find], ...] = (
    (FITS_START, "FITS", fits.show_fits),
    (NPY_START, "NumPy array", arrays.show_npy),
    (PARQUET_START, "Parquet table", parquet.show_parquet),
)


def preview(source: Source | DirectorySource, query: PreviewQuery = FIRST_LOOK) -> Preview:
    """Return a preview of a content. Never raises: what is wrong with the content is in the preview."""
    if isinstance(source, DirectorySource):
        return _directory(source, query)
    start = source.start(_START_BYTES)
    if not start:
        return Preview(kind="nothing", size=source.size)
    return _packed(source, query) if is_gzip(start) else _of_file(source, start, query)


def _of_file(source: Source, start: bytes, query: PreviewQuery) -> Preview:
    """Return the preview of a file by its first bytes."""
    if kind := picture_type(start):
        return _picture_file(source, kind)
    if array_format := _array_format(start):
        name, find = array_format
        base = Preview(kind="header", format=name, size=source.size)
        return _seen(partial(find, source, query, base), base, query)
    text = as_text(start[:TEXT_LIMIT])
    if text is not None and query.arranges:
        start = source.start(MOST_BYTES)
        text = as_text(start)
    if text is not None:
        return text_preview(start, text, source.size, source.name, query)
    return Preview(kind="dump", text=as_dump(start), size=source.size, is_cut=source.size > 512)


def picture(source: Source | DirectorySource, query: PreviewQuery = FIRST_LOOK) -> bytes:
    """Return the picture of a content: the file itself, or a PNG of an array.

    Raises
    ------
    BadFileError
        It has none, or is damaged.
    """
    if isinstance(source, DirectorySource):
        shown = arrays.show_zarr(source, query, Preview(kind="directory"))
        if shown is None:
            raise BadFileError("the directory has no array")
    else:
        start = source.start(_START_BYTES)
        if is_gzip(start):
            source = unpacked(source)[0]
            start = source.start(_START_BYTES)
            if is_gzip(start):
                raise BadFileError("it is compressed twice: download it")
        if kind := picture_type(start):
            if trouble := _picture_file(source, kind).trouble:
                raise BadFileError(trouble)
            return source.read(0, source.size)
        array_format = _array_format(start)
        if array_format is None:
            raise BadFileError("the content is not a picture that a page can show")
        shown = array_format[1](source, query, Preview(kind="header"))
    if not _has_picture(shown.array.shape):
        raise BadFileError("the content has no plane with rows and columns")
    return draw(_grid(shown, query)[0], query)


def _packed(source: Source, query: PreviewQuery) -> Preview:
    """Return the preview of what is compressed by gzip."""
    base = Preview(kind="dump", format="gzip", size=source.size, text=as_dump(source.start(_START_BYTES)), is_cut=True)
    try:
        inside, is_whole = unpacked(source)
    except BadFileError as error:
        return replace(base, trouble=error.text)
    if is_gzip(inside.start(2)):
        return replace(base, trouble="it is compressed twice: download it")
    packed = preview(inside, query)
    if not is_whole:
        large = f"it has more than {len(inside.start(inside.size)) >> 20} MB when it is decompressed: download it"
        packed = replace(packed, is_cut=True, trouble=large if packed.kind in ("array", "header", "picture") else "")
    return replace(packed, format=f"{packed.format or 'text'}, compressed by gzip", size=source.size)


def _has_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and math.prod(shape) > 0 and min(height_of(shape), width_of(shape)) > 1


def _plane(shape: tuple[int, ...], query: PreviewQuery) -> int:
    return min(query.plane, planes_of(shape) - 1)


def _sides(shown: Shown) -> tuple[int, int]:
    """Return the values in a row and in a column of the picture of a whole plane."""
    rows, columns = height_of(shown.array.shape), width_of(shown.array.shape)
    return (rows, columns) if shown.is_transposed else (columns, rows)


def _region(shown: Shown, query: PreviewQuery) -> tuple[tuple[int, int, int, int], Window]:
    """Return what is shown in the picture, from left and top to right and bottom, and as rows and columns."""
    across, down = _sides(shown)
    left, top = min(query.left, across - 1), min(query.top, down - 1)
    right = min(query.right, across) if query.right > left else across
    bottom = min(query.bottom, down) if query.bottom > top else down
    if shown.is_transposed:
        window = Window(left, right - left, top, bottom - top)
    elif shown.is_upside_down:
        window = Window(down - bottom, bottom - top, left, right - left)
    else:
        window = Window(top, bottom - top, left, right - left)
    return (left, top, right, bottom), window


def _one_value(shown: Shown, plane: int, window: Window) -> tuple[tuple[str, str], ...]:
    """Return a value of a plane and where it is."""
    value = float(shown.array.block(plane, window.row, window.column, 1)[0])
    leading = np.unravel_index(plane, shown.array.shape[:-2]) if len(shown.array.shape) > 2 else ()
    index = (*(int(position) for position in leading), window.row, window.column)
    return (("Value", f"{value:.9g}"), *shown.place_of(index[::-1] if shown.is_transposed else index))


def _grid(shown: Shown, query: PreviewQuery) -> tuple[npt.NDArray[np.float32], Preview]:
    """Return the plane as it is drawn, and the preview with its statistics."""
    plane = _plane(shown.array.shape, query)
    sides, (region, window) = _sides(shown), _region(shown, query)
    grid = sample_plane(shown.array, plane, window)
    is_one = window.rows == window.columns == 1
    facts = _one_value(shown, plane, window) if is_one else (*shown.preview.facts, *grid.summary.facts)
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
        facts=facts,
        width=values.shape[1],
        height=values.shape[0],
        across=sides[0],
        down=sides[1],
        region=region,
        plane=plane,
        planes=planes_of(shown.array.shape),
        notes=tuple(notes),
    )


def _seen(find: Callable[[], Shown], base: Preview, query: PreviewQuery) -> Preview:
    """Return the preview of an array, or `base` with what is wrong with it."""
    try:
        shown = find()
    except BadFileError as error:
        return replace(base, trouble=_with_hint(error))
    shape, described = shown.array.shape, shown.preview
    try:
        if _has_picture(shape):
            values, described = _grid(shown, query)
            return replace(described, scale=scale_of(values, query))
        if math.prod(shape) > 0:
            flat = _flat(shown.array)
            line, summary, is_whole = sample_line(flat, _plane(shape, query))
            is_whole &= width_of(flat.shape) == math.prod(shape[-2:])
            notes = () if is_whole else ("The array is long: the plot is that of a sample of its values.",)
            return replace(
                described,
                kind="array",
                facts=(*described.facts, *summary.facts),
                line=line if line.count > 1 else None,
                planes=planes_of(shape),
                plane=_plane(shape, query),
                notes=(*described.notes, *notes),
            )
    except BadFileError as error:
        return replace(described, trouble=error.text)
    return described


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
        self.shape = (*array.shape[:-2], 1, min(height_of(array.shape), _MOST_COLUMN_VALUES))
        self._array = array

    def block(self, plane: int, row: int, column: int, columns: int) -> npt.NDArray[np.float64]:
        """Return values of the only row."""
        return np.concatenate([self._array.block(plane, at, 0, 1) for at in range(column, column + columns)])


def _array_format(start: bytes) -> tuple[str, _Find] | None:
    """Return the name of a format of arrays or tables and what finds it in a file; None if it is another format."""
    return next(((name, find) for magic, name, find in _ARRAY_FORMATS if start.startswith(magic)), None)


def _directory(source: DirectorySource, query: PreviewQuery) -> Preview:
    entries = source.entries(_SHOWN_FILES + 1)
    base = Preview(
        kind="directory",
        format="Directory",
        columns=("File", "Bytes"),
        rows=tuple((os.fsencode(name).decode(errors="replace"), f"{size:,}") for name, size in entries[:_SHOWN_FILES]),
        is_cut=len(entries) > _SHOWN_FILES,
        notes=(f"The first {_SHOWN_FILES} files.",) if len(entries) > _SHOWN_FILES else (),
    )

    def find() -> Shown:
        if kind := casacore_kind(source.path):
            show = show_measurement_set if kind == "measurement set" else show_table
            return Shown(Nothing(), show(source, query, base))
        if parquet.is_parquet_table(name for name, _ in entries):
            return Shown(Nothing(), parquet.show_parquet_directory(source, query, base))
        return arrays.show_zarr(source, query, base) or Shown(Nothing(), base)

    return _seen(find, base, query)


def _picture_file(source: Source, kind: str) -> Preview:
    word = kind.partition("/")[2].upper()
    described = Preview(kind="picture", format=f"{word} picture", size=source.size)
    if source.size > PICTURE_LIMIT:
        return replace(described, trouble=f"the picture has more than {PICTURE_LIMIT >> 20} MB: download it")
    try:
        with reading("the picture"), library("PIL.Image", "pictures").open(SourceStream(source)) as opened:
            width, height = opened.size
    except BadFileError as error:
        return replace(described, trouble=_with_hint(error))
    if width * height > _MOST_PIXELS:
        trouble = f"the picture has {width:,} × {height:,} pixels, too many for a page: download it"
        return replace(described, trouble=trouble)
    return replace(described, facts=(("Width", f"{width:,}"), ("Height", f"{height:,}")))


def _with_hint(error: BadFileError) -> str:
    return f"{error.text} ({error.hint})" if error.hint else error.text
