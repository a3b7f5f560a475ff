"""Tables: their first rows, or those that meet a condition on a column, in the order of a column.

Values are compared as numbers if all values of the column that are not empty are numbers, otherwise as text without
regard to capitals. Rows without a value, or with nan, are the last ones in any order.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from dropflow.preview.source import Preview, PreviewQuery

SHOWN_COLUMNS, SHOWN_ROWS = 60, 200
LONGEST_TEXT = 200
"""Characters of a value that are shown."""
_SHOWN_VALUES = 6
"""Values of an array in a cell that are shown."""
MOST_ROWS, MOST_BYTES = 200_000, 8 << 20
"""Most rows and bytes of a table that are read to sort or filter it."""

FIRST_BYTES = 4 << 20
"""Bytes of a table that are read to show its first rows."""

_COMPARISONS = {"is": operator.eq, "is not": operator.ne, "less": operator.lt, "greater": operator.gt}


def table_preview(
    base: Preview,
    query: PreviewQuery,
    names: Sequence[str],
    texts: Callable[[int, Sequence[int]], Sequence[str]],
    *,
    count: int,
    height: int | None,
    width: int,
) -> Preview:
    """Return the preview of a table: its first rows, or those that are wanted.

    Parameters
    ----------
    base : Preview
        Description of the file; facts and notes are added to its own.
    names : sequence of str
        Names of the columns that are shown, the first ones.
    texts : callable
        Returns the values of a column, as text, for each of some rows.
    count, height : int
        Number of rows that were read, and of all rows; None if that is not known.
    width : int
        Number of all columns.
    """
    chosen, chosen_notes = chosen_rows(names, count, lambda at: texts(at, range(count)), query)
    shown = [[shortened(text) for text in texts(at, chosen[:SHOWN_ROWS])] for at in range(len(names))]
    rows = tuple(zip(*shown, strict=True))
    notes = [*base.notes, *chosen_notes]
    is_read = height is not None and count >= height
    if len(rows) < len(chosen) or not (is_read or query.column):
        whole = len(chosen) if query.column else height
        of = "" if whole is None else f" of {whole:,}"
        notes.append(f"These are the first {len(rows):,}{of} rows.")
    if query.arranges and not is_read:
        of = f" of {height:,}" if height is not None else ""
        notes.append(f"Only the first {count:,}{of} rows are sorted and filtered.")
    if len(names) < width:
        notes.append(f"These are the first {len(names)} of {width:,} columns.")
    facts = () if height is None else (("Rows", f"{height:,}"), ("Columns", f"{width:,}"))
    return replace(
        base,
        kind="table",
        columns=tuple(names),
        rows=rows,
        facts=(*facts, *base.facts),
        notes=tuple(notes),
        is_cut=height is None or len(rows) < height or len(names) < width,
    )


def cell(value: Any, null: int | None = None) -> str:
    """Return a value of a table in a binary format as text; nothing for the integer `null`."""
    if isinstance(value, (np.ndarray, list)):
        few = [cell(element, null) for element in np.ravel(value)[:_SHOWN_VALUES]]
        return ", ".join(few) + (", …" if np.size(value) > _SHOWN_VALUES else "")
    if isinstance(value, str):
        return shortened(value.strip())
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return "" if int(value) == null else str(int(value))
    if isinstance(value, (complex, np.complexfloating)):
        return f"{value.real:.6g}{value.imag:+.6g}i"
    return f"{value:.{6 if isinstance(value, np.float32) else 12}g}"


def shortened(text: str) -> str:
    """Return a text, cut if it is too long for a table."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def chosen_rows(
    names: Sequence[str], count: int, values_of: Callable[[int], Sequence[object]], query: PreviewQuery
) -> tuple[Sequence[int], list[str]]:
    """Return which rows are shown, in their order, and notes for people.

    Parameters
    ----------
    names : sequence of str
        Names of the columns, as they are shown.
    count : int
        Number of rows that were read.
    values_of : callable
        Returns the values of a column, as text.
    """
    rows: Sequence[int] = range(count)
    notes = [f"There is no column {name!r}." for name in (query.column, query.sort) if name and name not in names]
    if query.column in names:
        values = [str(value) for value in values_of(names.index(query.column))]
        rows = _matching(values, query)
        notes.append(f"{len(rows):,} of {count:,} rows meet the condition.")
    if query.sort in names:
        keys = [str(value) for value in values_of(names.index(query.sort))]
        rows = _sorted(keys, rows, is_descending=query.order == "descending")
    return rows, notes


def _matching(values: Sequence[str], query: PreviewQuery) -> list[int]:
    wanted = query.value.strip()
    if query.condition == "contains":
        return [row for row, value in enumerate(values) if wanted.casefold() in value.casefold()]
    compare, numbers, limit = _COMPARISONS[query.condition], _numbers(values), _number(wanted)
    if numbers is not None and limit is not None:
        is_kept = query.condition == "is not"  # an empty cell is not any value, in columns of texts too
        return [row for row, number in enumerate(numbers) if (is_kept if number is None else compare(number, limit))]
    return [row for row, value in enumerate(values) if compare(value.strip().casefold(), wanted.casefold())]


def _sorted(values: Sequence[str], rows: Sequence[int], *, is_descending: bool) -> list[int]:
    numbers = _numbers(values)
    if numbers is None:
        filled = [row for row in rows if values[row].strip()]
        ordered = sorted(filled, key=lambda row: values[row].casefold(), reverse=is_descending)
    else:
        known = {row: number for row in rows if (number := numbers[row]) is not None and not math.isnan(number)}
        ordered = sorted(known, key=known.__getitem__, reverse=is_descending)
    placed = set(ordered)
    return [*ordered, *(row for row in rows if row not in placed)]


def _numbers(values: Sequence[str]) -> list[float | None] | None:
    """Return the values as numbers, None for those that are empty; None if one is not a number."""
    numbers = [_number(value) for value in values]
    is_text = any(number is None and value.strip() for number, value in zip(numbers, values, strict=True))
    return None if is_text else numbers


def _number(text: str) -> float | None:
    try:
        return float(text.replace("_", "x"))  # Python takes 1_000 for a number, and other programs do not
    except ValueError:
        return None
