"""Parquet tables, read by pyarrow: the schema, the number of rows, and the first rows or those that are wanted."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from dropflow.preview.image import Nothing, Shown
from dropflow.preview.source import Preview, PreviewQuery, Source, SourceStream, library, reading
from dropflow.preview.tables import (
    FIRST_BYTES,
    LONGEST_TEXT,
    MOST_BYTES,
    MOST_ROWS,
    SHOWN_COLUMNS,
    SHOWN_ROWS,
    shortened,
    table_preview,
)

__all__ = ["MAGIC", "show_parquet"]

MAGIC = b"PAR1"
_BATCH = 4096
_BUFFER = 1 << 16
"""Bytes of a column that are read at once: without a buffer, pyarrow reads the columns of a group of rows whole."""


def show_parquet(source: Source, query: PreviewQuery, base: Preview) -> Shown:
    """Return a preview of a table, with its schema as header.

    Raises
    ------
    BadFileError
        It is damaged, or pyarrow is not installed.
    """
    parquet = library("pyarrow.parquet", "Parquet files", extra="formats")
    with reading("the Parquet file"):
        file = parquet.ParquetFile(SourceStream(source), buffer_size=_BUFFER, pre_buffer=False)
        schema, height = file.schema_arrow, int(file.metadata.num_rows)
        found = replace(
            base,
            header="\n".join(f"{one.name}: {one.type}{'' if one.nullable else ', not null'}" for one in schema),
            facts=tuple(_facts(file.metadata)),
        )
    with reading("the rows of the Parquet file"):
        limits = (MOST_ROWS, 4 * MOST_BYTES) if query.arranges else (SHOWN_ROWS, FIRST_BYTES)
        table = _first_rows(file, *limits)
        shown = table_preview(
            found,
            query,
            [shortened(name) for name in table.column_names],
            lambda at, rows: _texts(table.column(at).take(list(rows))) if rows else [],
            count=table.num_rows,
            height=height,
            width=len(schema),
        )
    return Shown(Nothing(), shown)


def _facts(metadata: Any) -> Iterator[tuple[str, str]]:
    # Not the compression: pyarrow 26 ends the process when it is asked for one that does not exist.
    if metadata.num_row_groups:
        yield "Groups of rows", f"{metadata.num_row_groups:,}"
    if metadata.created_by:
        yield "Written by", shortened(metadata.created_by)


def _first_rows(file: Any, most: int, most_bytes: int) -> Any:
    """Return the first rows of the first columns, so many that they have not too many bytes on average."""
    metadata = file.metadata
    size = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    wanted = min(most, max(most_bytes * metadata.num_rows // max(size, 1), 1))
    names = file.schema_arrow.names[:SHOWN_COLUMNS]
    batch = min(wanted, _BATCH)
    batches = file.iter_batches(batch_size=batch, columns=names, use_threads=False)
    found = list(islice(batches, -(-wanted // batch)))
    arrow = library("pyarrow", "Parquet files", extra="formats")
    table = arrow.Table.from_batches(found) if found else file.schema_arrow.empty_table().select(names)
    return table.slice(0, wanted)


def _texts(column: Any) -> list[str]:
    """Return the values of a column as text; nothing for those that are missing."""
    try:
        bare = column if "binary" in str(column.type) else column.cast("string")
        # As bytes: what is no UTF-8 is shown, too, and is no error.
        values: Sequence[bytes | None] = bare.cast("binary").to_pylist()
    except (NotImplementedError, ValueError):  # lists and structures, for example
        return ["" if value is None else shortened(str(value)) for value in column.to_pylist()]
    longest = 4 * LONGEST_TEXT + 4
    texts = ("" if value is None else value[:longest].decode(errors="backslashreplace") for value in values)
    return [shortened(text) for text in texts]
