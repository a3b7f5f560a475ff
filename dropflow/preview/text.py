"""Text, tables in text (CSV and JSON), and bytes in hexadecimal."""

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from dropflow.graph.nesting import too_deep
from dropflow.preview.source import FIRST_LOOK, Preview, PreviewQuery
from dropflow.preview.tables import LONGEST_TEXT, MOST_ROWS, SHOWN_COLUMNS, shortened, table_preview

TEXT_LIMIT = 128 * 1024
"""Bytes of a text that are read."""

_SHOWN_LINES = 1000
"""Lines of a text that are shown."""
_LINE_CHARACTERS = 2000
"""Characters of a line of a text that are shown."""
_DUMP_BYTES = 512
"""Bytes of a content that are shown in hexadecimal."""
_DUMP_ROW_BYTES = 16
"""Bytes in a row of hexadecimal numbers."""
_DEEPEST_LEVEL = 50
"""Levels of nested JSON that is parsed for a table."""
_SAMPLE_SIZE = 20
"""Lines by which a table is recognised; members of a nested value that is shown as JSON."""
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_IS_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*|")
_CODE = (".py", ".sh", ".c", ".h", ".cpp", ".js")
_Table = tuple[Sequence[object], Sequence[Sequence[object]], int | None]
"""Names of columns, the rows that were read, and the number of all rows if it is known."""


def as_text(start: bytes) -> str | None:
    """Return text in UTF-8 without control characters, whose last character may be cut; None for anything else."""
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut may be inside a character; any other error means that it is not text.
        if error.start < len(start) - 3 or error.reason != "unexpected end of data":
            return None
        text = start[: error.start].decode("utf-8")
    return None if _CONTROLS.search(text) else text


def text_preview(start: bytes, text: str, size: int, name: str, query: PreviewQuery = FIRST_LOOK) -> Preview:
    """Return a preview of a text of `size` bytes.

    Parameters
    ----------
    start : bytes
        Its beginning, at most a megabyte.
    text : str
        What `as_text` made of the beginning of that.
    size : int
        Bytes of the whole content.
    name : str
        Name of the content; the suffix may tell the format.
    """
    is_whole = len(start) == size
    table = _json_table(start) if is_whole else None
    format_name = "JSON" if table else ""
    if table is None:
        table = _csv_table(text, name, is_whole=len(text.encode()) >= size)
        format_name = "Table in text" if table else ""
    if table is not None:
        columns, body, count = table
        return table_preview(
            Preview(kind="table", format=format_name, size=size),
            query,
            [shortened(_sendable(column)) for column in columns[:SHOWN_COLUMNS]],
            lambda at, rows: [_sendable(body[row][at]) for row in rows],
            count=len(body),
            height=count,
            width=len(columns),
        )
    lines = text.split("\n", _SHOWN_LINES)
    is_cut = len(text.encode()) < size or len(lines) > _SHOWN_LINES
    lines = lines[:_SHOWN_LINES]
    long = any(len(line) > _LINE_CHARACTERS for line in lines)
    shown = "\n".join(line[:_LINE_CHARACTERS] for line in lines)
    notes = [f"The first {len(lines):,} lines."] if is_cut else []
    notes += [f"Lines are cut after {_LINE_CHARACTERS:,} characters."] if long else []
    is_code = name.endswith(_CODE) or text.startswith("#!")
    return Preview(
        kind="code" if is_code else "text", format="", size=size, is_cut=is_cut or long, text=shown, notes=tuple(notes)
    )


def as_dump(start: bytes) -> str:
    """Return the first bytes in hexadecimal, and as characters where they are printable."""
    rows = []
    for at in range(0, min(len(start), _DUMP_BYTES), _DUMP_ROW_BYTES):
        row = start[at : min(at + _DUMP_ROW_BYTES, _DUMP_BYTES)]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:06x}  {row.hex(' '):<47}  {signs}")
    return "\n".join(rows)


def _json_table(content: bytes) -> _Table | None:
    """Return a JSON object as names and values, or a list of alike objects or lists as a table."""
    if content[:64].lstrip()[:1] not in (b"{", b"[") or too_deep(content, _DEEPEST_LEVEL):
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not document or not isinstance(document, (dict, list)):
        return None
    if isinstance(document, dict):
        return ("Name", "Value"), [[name, _inner(value)] for name, value in document.items()], len(document)
    return *_rows_of(document), len(document)


def _rows_of(values: list[Any]) -> tuple[Sequence[object], Sequence[Sequence[object]]]:
    """Return names of columns and rows of a list of JSON values."""
    if all(isinstance(row, dict) for row in values):
        names = list(dict.fromkeys(name for row in values for name in row))
        return names, [[_inner(row.get(name, "")) for name in names[:SHOWN_COLUMNS]] for row in values]
    if all(isinstance(row, list) for row in values):
        width = max(len(row) for row in values)
        rows = [
            [_inner(value) for value in [*row[:SHOWN_COLUMNS], *[""] * (width - len(row))][:SHOWN_COLUMNS]]
            for row in values
        ]
        return [str(at + 1) for at in range(width)], rows
    return ("#", "Value"), [[at, _inner(value)] for at, value in enumerate(values)]


def _inner(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _brief(value) if isinstance(value, (dict, list)) else json.dumps(value, ensure_ascii=False)


def _brief(value: dict[str, Any] | list[Any]) -> str:
    """Return a nested value as JSON, or its number of members if that is long."""
    text = json.dumps(value, ensure_ascii=False) if len(value) <= _SAMPLE_SIZE else ""
    if text and len(text) <= LONGEST_TEXT:
        return text
    return f"{{… {len(value):,} names}}" if isinstance(value, dict) else f"[… {len(value):,} values]"


def _csv_table(text: str, name: str, *, is_whole: bool) -> _Table | None:
    """Return rows of equally many fields as a table; None if the text does not look like one."""
    lines = (
        text.split("\n", _SAMPLE_SIZE)[:_SAMPLE_SIZE]
        if not is_whole
        else text.rstrip("\n").split("\n", _SAMPLE_SIZE)[:_SAMPLE_SIZE]
    )
    is_named = name.endswith((".csv", ".tsv"))
    if len(lines) < (2 if is_named else 3):
        return None
    for sign in ("\t", ",", ";"):
        counts = {line.count(sign) for line in lines}
        if 0 in counts or (len(counts) > 1 and not is_named):
            continue
        rows = _csv_rows(text if is_whole else text.rpartition("\n")[0], sign)
        widths = {len(row) for row in rows[:_SAMPLE_SIZE]}
        if not rows or (len(widths) != 1 and not is_named):
            continue
        width = max(map(len, rows))
        has_names = not any(map(_IS_NUMBER.fullmatch, rows[0]))
        columns = [*rows[0], *[""] * (width - len(rows[0]))] if has_names else [str(at + 1) for at in range(width)]
        body = rows[1:] if has_names else rows
        filled = [[*row, *[""] * (width - len(row))] for row in body[:MOST_ROWS]]
        return columns, filled, len(body) if is_whole else None
    return None


def _csv_rows(text: str, sign: str) -> list[list[str]]:
    """Return the rows that are not empty; none if a field is too long."""
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=sign) if row]
    except csv.Error:
        return []


def _sendable(value: object) -> str:
    """Return a value as text. JSON can contain halves of characters, which nothing can send."""
    return str(value).encode(errors="replace").decode()
