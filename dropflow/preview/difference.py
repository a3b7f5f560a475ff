"""How two contents differ: ``python -m dropflow.preview.difference LEFT RIGHT`` writes it, a line for each finding.

It has the limits of the process for previews. Arrays, FITS files and Parquet tables are compared by their values,
text by its lines, directories file by file, and all else by its bytes. Nothing is unpickled.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from filecmp import cmp
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.files import FITS_START, NPY_START, PARQUET_START
from dropflow.formatting import plural
from dropflow.preview.parquet import open_parquet, parquet_library
from dropflow.preview.source import library, reading
from dropflow.preview.text import as_text
from dropflow.preview.worker import allow, restrict

MEMORY, SECONDS = 2 << 30, 20
"""Bytes of address space, and processor time."""
_AT_ONCE = 1 << 20
"""Values, or bytes, that are compared at once."""
_ROWS = 1 << 16
"""Rows of a table that are compared at once."""
_SHOWN, _LONGEST = 4, 80

_Array = npt.NDArray[Any]


def differences(left: Path, right: Path) -> Iterator[str]:
    """Yield how two files or directories differ; nothing if they do not."""
    if left.is_dir() or right.is_dir():
        yield from _directories(left, right)
        return
    starts = []
    for path in (left, right):
        with path.open("rb") as stream:
            starts.append(stream.read(1 << 16))
    if all(start.startswith(NPY_START) for start in starts):
        yield from _numbers("", *(np.load(path, mmap_mode="r", allow_pickle=False) for path in (left, right)))
    elif all(start.startswith(FITS_START) for start in starts):
        yield from _fits(left, right)
    elif all(start.startswith(PARQUET_START) for start in starts):
        yield from _tables(left, right)
    elif all(as_text(start) is not None for start in starts):
        yield from _lines(left, right)
    else:
        yield from _bytes(left, right)


def _directories(left: Path, right: Path) -> Iterator[str]:
    """Yield which files are on one side only, and how the first ones differ that are on both, by their names."""
    if not (left.is_dir() and right.is_dir()):
        yield " / ".join("a directory" if path.is_dir() else "a file" for path in (left, right))
        return
    ours, theirs = (
        {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
        for root in (left, right)
    )
    for side, names in (("left", sorted(ours - theirs)), ("right", sorted(theirs - ours))):
        yield from (f"{name} is on the {side} only" for name in names[:_SHOWN])
        if len(names) > _SHOWN:
            yield f"{plural(len(names), 'file')} are on the {side} only"
    count = 0
    for name in sorted(ours & theirs):
        if cmp(left / name, right / name, shallow=False):
            continue
        count += 1
        if count <= _SHOWN:
            yield from (f"{name}: {line}" for line in differences(left / name, right / name))
    if count:
        yield f"{plural(count, 'file')} of {len(ours & theirs):,} {_differ(count)}"


def _numbers(what: str, left: _Array, right: _Array) -> Iterator[str]:
    """Yield what differs between two arrays: the largest differences, and where they are."""
    if left.shape != right.shape:
        yield f"{what}shape {left.shape} / {right.shape}"
        return
    if left.dtype != right.dtype:
        yield f"{what}type {left.dtype.name} / {right.dtype.name}"
    if left.dtype.kind not in "biufc" or right.dtype.kind not in "biufc":
        rows = _differing_rows(*map(np.atleast_1d, (left, right)))
        if rows:
            height = len(np.atleast_1d(left))
            yield f"{what}{plural(len(rows), 'row')} of {height:,} {_differ(len(rows))}, the first is {rows[0]}"
        return
    first, second = left.reshape(-1), right.reshape(-1)
    numbers = _Numbers()
    for at in range(0, first.size, _AT_ONCE):
        numbers.add(first[at : at + _AT_ONCE], second[at : at + _AT_ONCE])
    yield from numbers.lines(what, left.shape)


def _differing_rows(left: _Array, right: _Array) -> list[int]:
    """Return the rows that differ of two arrays of the same shape whose values are not numbers."""
    if left.dtype.kind == "O" or right.dtype.kind == "O":  # arrays in cells, of any lengths
        pairs = enumerate(zip(left, right, strict=True))
        return [row for row, (ours, theirs) in pairs if not _are_equal(np.asarray(ours), np.asarray(theirs))]
    differs = np.asarray(left != right)
    found: list[int] = np.flatnonzero(differs.any(axis=tuple(range(1, differs.ndim)))).tolist()
    return found


def _are_equal(left: _Array, right: _Array) -> bool:
    return np.array_equal(left, right, equal_nan=left.dtype.kind in "fc" and right.dtype.kind in "fc")


class _Numbers:
    """The differences of two arrays of numbers, which are given piece by piece."""

    def __init__(self) -> None:
        self._size = self._count = self._only = 0
        self._largest = self._relative = (0.0, -1, 0, 0)

    def add(self, left: _Array, right: _Array) -> None:
        """Compare the next pieces, of one axis."""
        with np.errstate(all="ignore"):
            is_nan = np.isnan(left), np.isnan(right)
            differs = (left != right) & ~(is_nan[0] & is_nan[1])
            gaps = np.abs(np.subtract(left, right, dtype=np.result_type(left, right, np.float64)))
            shares = np.nan_to_num(gaps / np.maximum(np.abs(left), np.abs(right)), nan=0.0)
        self._count += int(differs.sum())
        self._only += int((is_nan[0] != is_nan[1]).sum())
        gaps = np.where(differs, np.nan_to_num(gaps, nan=0.0), 0.0)
        self._largest = max(self._largest, self._most(gaps, left, right), key=_first)
        self._relative = max(self._relative, self._most(shares, left, right), key=_first)
        self._size += left.size

    def _most(self, sizes: _Array, left: _Array, right: _Array) -> tuple[float, int, Any, Any]:
        at = int(sizes.argmax())
        return float(sizes[at]), self._size + at, left[at], right[at]

    def lines(self, what: str, shape: Sequence[int]) -> Iterator[str]:
        """Yield what differs; nothing if nothing does."""
        if not self._count:
            return
        share = self._count / self._size
        yield f"{what}{plural(self._count, 'number')} of {self._size:,} {_differ(self._count)} ({share:.3g} of all)"
        if self._only:
            yield f"{what}{plural(self._only, 'number')} {'is' if self._only == 1 else 'are'} NaN on one side only"
        for name, (size, at, ours, theirs) in (("largest", self._largest), ("largest relative", self._relative)):
            if size:
                place = ", ".join(map(str, np.unravel_index(at, shape)))
                yield f"{what}{name} difference {size:.6g} at [{place}]: {ours} / {theirs}"


def _first(pair: tuple[float, int, Any, Any]) -> float:
    return pair[0]


def _tables(left: Path, right: Path) -> Iterator[str]:
    """Yield what differs between two Parquet tables: columns, types, numbers of rows, and values by row and column."""
    arrow = parquet_library()
    with reading("the Parquet files"):
        ours, theirs = (open_parquet(arrow, path) for path in (left, right))
        first, second = ours.schema_arrow, theirs.schema_arrow
        lines = [f"column {name} is on the left only" for name in first.names if name not in second.names]
        lines += [f"column {name} is on the right only" for name in second.names if name not in first.names]
        heights = int(ours.metadata.num_rows), int(theirs.metadata.num_rows)
        if heights[0] != heights[1]:
            lines.append(f"{plural(heights[0], 'row')} / {heights[1]:,}")
        columns = {
            name: _ComparedColumn(arrow, first.field(name).type, second.field(name).type)
            for name in first.names
            if name in second.names
        }
        pieces = (_pieces(arrow, file, [*columns]) for file in (ours, theirs))
        at = 0
        for a, b in zip(*pieces, strict=False):
            for name, column in columns.items():
                column.add(at, a.column(name).slice(0, b.num_rows), b.column(name).slice(0, a.num_rows))
            at += _ROWS
        lines += [line for name, column in columns.items() for line in column.lines(f"column {name}: ", min(heights))]
    yield from lines
    if not lines and next(_bytes(left, right), ""):
        yield "rows and columns are the same; the files differ in how they are written"


def _pieces(arrow: Any, file: Any, names: list[str]) -> Iterator[Any]:
    """Yield the rows of a file as tables of the same length, but for the last one."""
    held = file.schema_arrow.empty_table().select(names)
    for batch in file.iter_batches(batch_size=_ROWS, columns=names, use_threads=False):
        held = arrow.concat_tables([held, arrow.Table.from_batches([batch])])
        while held.num_rows >= _ROWS:
            yield held.slice(0, _ROWS)
            held = held.slice(_ROWS)
    if held.num_rows:
        yield held


class _ComparedColumn:
    """The differences of a column in two tables, whose values are given piece by piece."""

    def __init__(self, arrow: Any, left: Any, right: Any) -> None:
        self._types = left, right
        self._numbers = _Numbers() if _are_numbers(arrow, left, right) else None
        self._count, self._one_sided = 0, 0
        self._first = ""

    def add(self, at: int, left: Any, right: Any) -> None:
        """Compare the next values, from row `at` on."""
        if self._numbers is None:
            pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
            rows = [
                (row, ours, theirs)
                for row, (ours, theirs) in enumerate(pairs, start=at)
                if ours != theirs and repr(ours) != repr(theirs)  # NaN in a list is NaN
            ]
            self._count += len(rows)
            self._first = self._first or "".join(
                f"{row}: {_short(ours)} / {_short(theirs)}" for row, ours, theirs in rows[:1]
            )
            return
        known = np.asarray(left.is_valid()), np.asarray(right.is_valid())
        self._one_sided += int((known[0] != known[1]).sum())
        both = known[0] & known[1]
        self._numbers.add(*(np.where(both, np.asarray(column.fill_null(0)), 0) for column in (left, right)))

    def lines(self, what: str, height: int) -> Iterator[str]:
        """Yield what differs; nothing if nothing does."""
        if self._types[0] != self._types[1]:
            yield f"{what}type {self._types[0]} / {self._types[1]}"
        if self._one_sided:
            is_single = self._one_sided == 1
            yield f"{what}{plural(self._one_sided, 'value')} {'is' if is_single else 'are'} missing on one side only"
        if self._numbers is not None:
            yield from self._numbers.lines(what, (height,))
        elif self._count:
            yield f"{what}{plural(self._count, 'row')} of {height:,} {_differ(self._count)}, the first is {self._first}"


def _are_numbers(arrow: Any, *kinds: Any) -> bool:
    return all(arrow.types.is_integer(kind) or arrow.types.is_floating(kind) for kind in kinds)


def _fits(left: Path, right: Path) -> Iterator[str]:
    fits = library("astropy.io.fits", "FITS files")
    with fits.open(left, memmap=False) as ours, fits.open(right, memmap=False) as theirs:
        if len(ours) != len(theirs):
            yield f"{plural(len(ours), 'unit')} / {len(theirs)}"
        for number, (first, second) in enumerate(zip(ours, theirs, strict=False)):
            unit = f"unit {number}: " if max(len(ours), len(theirs)) > 1 else ""
            yield from _cards(unit, fits.HeaderDiff(first.header, second.header))
            if first.data is None or second.data is None or first.is_image != second.is_image:
                continue
            if first.is_image:
                yield from _numbers(unit, first.data, second.data)
                continue
            for name in first.columns.names:
                if name in second.columns.names:
                    yield from _numbers(f"{unit}column {name}: ", first.data[name], second.data[name])


def _cards(unit: str, difference: Any) -> Iterator[str]:
    """Yield the cards of a header that differ."""
    for name, pairs in difference.diff_keyword_values.items():
        yield from (f"{unit}{name} = {_short(ours)} / {_short(theirs)}" for ours, theirs in filter(None, pairs))
    for side, names in zip(("left", "right"), difference.diff_keywords or ((), ()), strict=True):
        yield from (f"{unit}{name} is on the {side} only" for name in sorted(names))


def _lines(left: Path, right: Path) -> Iterator[str]:
    """Yield the lines, or the fields of tables, that differ."""
    is_table = left.suffix == right.suffix == ".csv"
    head: Sequence[str] = ()
    count = ours = theirs = 0
    with left.open(errors="replace", newline="") as first, right.open(errors="replace", newline="") as second:
        for number, (a, b) in enumerate(zip_longest(first, second), start=1):
            ours, theirs = ours + (a is not None), theirs + (b is not None)
            if a == b:
                head = _fields(a) if number == 1 and is_table else head
                continue
            count += 1
            if count > _SHOWN:
                continue
            pairs = list(zip_longest(_fields(a), _fields(b), fillvalue="")) if a is not None and b is not None else []
            if head and len(pairs) == len(head):
                for name, (old, new) in zip(head, pairs, strict=True):
                    if old != new:
                        yield f"row {number - 1}, {name}: {_short(old)} / {_short(new)}"
            else:
                yield f"line {number}: {_line(a)} / {_line(b)}"
    if count:
        yield f"{plural(count, 'line')} {_differ(count)}; {ours:,} / {theirs:,} lines"


def _differ(count: int) -> str:
    return "differs" if count == 1 else "differ"


def _fields(line: str | None) -> list[str]:
    try:
        return next(csv.reader([line or ""]), [])
    except csv.Error:  # a field of more than 131,072 characters, as JSON on one line may be
        return []


def _line(text: str | None) -> str:
    return "none" if text is None else repr(_short(text.rstrip("\r\n")))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _bytes(left: Path, right: Path) -> Iterator[str]:
    """Yield where the first byte is that differs."""
    size, other = left.stat().st_size, right.stat().st_size
    if size != other:
        yield f"{size:,} / {other:,} bytes"
    with left.open("rb") as first, right.open("rb") as second:
        for at in range(0, min(size, other), _AT_ONCE):
            a, b = (np.frombuffer(stream.read(_AT_ONCE), np.uint8) for stream in (first, second))
            places = np.flatnonzero(a[: len(b)] != b[: len(a)])
            if len(places):
                yield f"the first byte that differs is number {at + int(places[0]):,}"
                return


if __name__ == "__main__":
    restrict(MEMORY)
    allow(SECONDS)
    for difference in islice(differences(*map(Path, sys.argv[1:3])), 50):
        sys.stdout.write(f"{difference}\n")
