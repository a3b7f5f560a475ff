"""How two contents differ: ``python -m dropflow.preview.difference LEFT RIGHT`` writes it, a line for each finding.

It has the limits of the process for previews. Arrays and FITS files are compared by their numbers, text by its lines,
and all else by its bytes. Nothing is unpickled.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.formatting import plural
from dropflow.preview.arrays import MAGIC
from dropflow.preview.source import library
from dropflow.preview.text import as_text
from dropflow.preview.worker import allow, restrict

__all__ = ["MEMORY", "SECONDS", "differences"]

MEMORY, SECONDS = 2 << 30, 20
"""Bytes of address space, and processor time."""
_AT_ONCE = 1 << 20
_SHOWN, _LONGEST = 4, 80
_FITS = b"SIMPLE  ="

_Array = npt.NDArray[Any]


def differences(left: Path, right: Path) -> Iterator[str]:
    """Yield how the contents of two files differ; nothing if they do not."""
    starts = []
    for path in (left, right):
        with path.open("rb") as stream:
            starts.append(stream.read(1 << 16))
    if all(start.startswith(MAGIC) for start in starts):
        yield from _numbers("", *(np.load(path, mmap_mode="r", allow_pickle=False) for path in (left, right)))
    elif all(start.startswith(_FITS) for start in starts):
        yield from _fits(left, right)
    elif all(as_text(start) is not None for start in starts):
        yield from _lines(left, right)
    else:
        yield from _bytes(left, right)


def _numbers(what: str, left: _Array, right: _Array) -> Iterator[str]:
    """Yield what differs between two arrays: the largest differences, and where they are."""
    if left.shape != right.shape:
        yield f"{what}shape {left.shape} / {right.shape}"
        return
    if left.dtype != right.dtype:
        yield f"{what}type {left.dtype.name} / {right.dtype.name}"
    if left.dtype.kind not in "biufc" or right.dtype.kind not in "biufc":
        rows = np.flatnonzero(np.asarray(left != right).reshape(len(left), -1).any(axis=1)) if left.ndim else [0]
        if len(rows):
            yield f"{what}{plural(len(rows), 'row')} of {len(left):,} {_differ(len(rows))}, the first is {int(rows[0])}"
        return
    count = only = 0
    largest, relative = (0.0, -1), (0.0, -1)
    one, two = left.reshape(-1), right.reshape(-1)
    for at in range(0, one.size, _AT_ONCE):
        a, b = one[at : at + _AT_ONCE], two[at : at + _AT_ONCE]
        with np.errstate(all="ignore"):
            is_nan = np.isnan(a), np.isnan(b)
            differs = (a != b) & ~(is_nan[0] & is_nan[1])
            gaps = np.abs(np.subtract(a, b, dtype=np.result_type(a, b, np.float64)))
            shares = np.nan_to_num(gaps / np.maximum(np.abs(a), np.abs(b)), nan=0.0)
        count += int(differs.sum())
        only += int((is_nan[0] != is_nan[1]).sum())
        gaps = np.where(differs, np.nan_to_num(gaps, nan=0.0), 0.0)
        largest = max(largest, (float(gaps.max()), -at - int(gaps.argmax())))
        relative = max(relative, (float(shares.max()), -at - int(shares.argmax())))
    if not count:
        return
    yield f"{what}{plural(count, 'number')} of {one.size:,} {_differ(count)} ({count / one.size:.3g} of all)"
    if only:
        yield f"{what}{plural(only, 'number')} {'is' if only == 1 else 'are'} NaN on one side only"
    for name, (size, at) in (("largest", largest), ("largest relative", relative)):
        if size:
            place = ", ".join(map(str, np.unravel_index(-at, left.shape)))
            yield f"{what}{name} difference {size:.6g} at [{place}]: {one[-at]} / {two[-at]}"


def _fits(left: Path, right: Path) -> Iterator[str]:
    fits = library("astropy.io.fits", "FITS files")
    with fits.open(left, memmap=False) as ours, fits.open(right, memmap=False) as theirs:
        if len(ours) != len(theirs):
            yield f"{plural(len(ours), 'unit')} / {len(theirs)}"
        for number, (one, two) in enumerate(zip(ours, theirs, strict=False)):
            unit = f"unit {number}: " if max(len(ours), len(theirs)) > 1 else ""
            yield from _cards(unit, fits.HeaderDiff(one.header, two.header))
            if one.data is None or two.data is None or one.is_image != two.is_image:
                continue
            if one.is_image:
                yield from _numbers(unit, one.data, two.data)
                continue
            for name in one.columns.names:
                if name in two.columns.names:
                    yield from _numbers(f"{unit}column {name}: ", one.data[name], two.data[name])


def _cards(unit: str, found: Any) -> Iterator[str]:
    """Yield the cards of a header that differ."""
    for name, pairs in found.diff_keyword_values.items():
        yield from (f"{unit}{name} = {_short(one)} / {_short(two)}" for one, two in filter(None, pairs))
    for side, names in zip(("left", "right"), found.diff_keywords or ((), ()), strict=True):
        yield from (f"{unit}{name} is on the {side} only" for name in sorted(names))


def _lines(left: Path, right: Path) -> Iterator[str]:
    """Yield the lines, or the fields of tables, that differ."""
    is_table = left.suffix == right.suffix == ".csv"
    head: Sequence[str] = ()
    count = ours = theirs = 0
    with left.open(errors="replace", newline="") as one, right.open(errors="replace", newline="") as two:
        for number, (a, b) in enumerate(zip_longest(one, two), start=1):
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
    return next(csv.reader([line or ""]), [])


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
    with left.open("rb") as one, right.open("rb") as two:
        for at in range(0, min(size, other), _AT_ONCE):
            a, b = (np.frombuffer(stream.read(_AT_ONCE), np.uint8) for stream in (one, two))
            found = np.flatnonzero(a[: len(b)] != b[: len(a)])
            if len(found):
                yield f"the first byte that differs is number {at + int(found[0]):,}"
                return


if __name__ == "__main__":
    restrict(MEMORY)
    allow(SECONDS)
    for found in islice(differences(*map(Path, sys.argv[1:3])), 50):
        sys.stdout.write(f"{found}\n")
