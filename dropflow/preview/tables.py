"""The rows of a table that meet a condition on a column, in the order of a column.

Values are compared as numbers if all values of the column that are not empty are numbers, otherwise as text without
regard to capitals. Rows without a value, or with nan, are the last ones in any order.
"""

import math
import operator
from collections.abc import Callable, Sequence

from dropflow.preview.source import PreviewQuery

MOST_ROWS, MOST_BYTES = 200_000, 8 << 20
"""How much of a table is read to sort or filter it."""

_COMPARISONS = {"is": operator.eq, "is not": operator.ne, "less": operator.lt, "greater": operator.gt}


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
        return [row for row, number in enumerate(numbers) if number is not None and compare(number, limit)]
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
    """Return the values as numbers, None for those that are empty; None if one is no number."""
    found = [_number(value) for value in values]
    is_text = any(number is None and value.strip() for number, value in zip(found, values, strict=True))
    return None if is_text else found


def _number(text: str) -> float | None:
    try:
        return float(text.replace("_", "x"))  # Python takes 1_000 for a number, and other programs do not
    except ValueError:
        return None
