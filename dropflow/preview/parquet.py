"""Parquet tables, read by pyarrow: the schema, the number of rows, and the first rows or those that are wanted.

A directory of Parquet files is one table. Names of its folders such as ``year=2026`` are columns, as Hive writes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from dropflow.formatting import plural
from dropflow.preview.image import Nothing, Shown
from dropflow.preview.source import DirectorySource, Preview, PreviewQuery, Source, SourceStream, library, reading
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

_BATCH_ROWS = 4096
"""Rows of a table that are read at once."""
_BUFFER = 1 << 16
"""Bytes of a column that are read at once: without a buffer, pyarrow reads the columns of a group of rows whole."""
_ENTRIES, _FILES = 10_000, 200
"""Files that are listed, and read, of a directory at most."""
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_Part = tuple[Mapping[str, str | None], Any]
"""The values that the folders of a file stand for, and the open file."""


def is_parquet_table(names: Iterable[str]) -> bool:
    """Return whether files of these names, relative to a directory, are a table that was written as several files.

    Names that begin with ``_`` or ``.`` do not count, such as ``_SUCCESS``.
    """
    has_table = False
    for name in names:
        if any(part.startswith(("_", ".")) for part in name.split("/")):
            continue
        if not name.endswith(".parquet"):
            return False
        has_table = True
    return has_table


def parquet_library() -> Any:
    """Return pyarrow with its module ``parquet``.

    Raises
    ------
    BadFileError
        It is not installed.
    """
    library("pyarrow.parquet", "Parquet files", extra="formats")
    return library("pyarrow", "Parquet files", extra="formats")


def show_parquet(source: Source, query: PreviewQuery, base: Preview) -> Shown:
    """Return a preview of a table, with its schema as header.

    Raises
    ------
    BadFileError
        It is damaged, or pyarrow is not installed.
    """
    arrow = parquet_library()
    with reading("the Parquet file"):
        file = open_parquet(arrow, SourceStream(source))
    return Shown(Nothing(), _shown(arrow, [({}, file)], query, base))


def show_parquet_directory(source: DirectorySource, query: PreviewQuery, base: Preview) -> Preview:
    """Return a preview of the table that the files of a directory are.

    Raises
    ------
    BadFileError
        One is damaged or behind a symbolic link, they do not fit together, or pyarrow is not installed.
    """
    arrow = parquet_library()
    names = [name for name, _ in source.entries(_ENTRIES) if name.endswith(".parquet")]
    base = replace(base, format="Parquet table", facts=(("Files", f"{len(names):,}"),), notes=(), is_cut=False)
    if len(names) > _FILES:
        base = replace(base, notes=(f"Only the first {_FILES} of {plural(len(names), 'file')} are read.",))
    with ExitStack() as files, reading("the Parquet files"):
        parts: list[_Part] = []
        for name in names[:_FILES]:
            file = files.enter_context(source.opened(name))
            if file is not None:  # it is deleted meanwhile
                parts.append((_values(name), open_parquet(arrow, SourceStream(file))))
        return _shown(arrow, parts, query, base)


def open_parquet(arrow: Any, file: Any) -> Any:
    """Return the ``ParquetFile`` of a path or stream, which reads little at once."""
    return arrow.parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)


def _values(name: str) -> Mapping[str, str | None]:
    """Return what the folders of a file stand for, such as ``year=2026/part-0.parquet``."""
    pairs = [part.partition("=") for part in name.split("/")[:-1] if "=" in part]
    return {unquote(key): None if value == _NO_VALUE else unquote(value) for key, _, value in pairs}


def _shown(arrow: Any, parts: Sequence[_Part], query: PreviewQuery, base: Preview) -> Preview:
    with reading("the schema of the Parquet files"):
        schemas = [file.schema_arrow for _, file in parts]
        schema = arrow.unify_schemas(schemas, promote_options="permissive") if len(schemas) > 1 else schemas[0]
        folders = dict.fromkeys(name for values, _ in parts for name in values if name not in schema.names)
        header = [f"{field.name}: {field.type}{'' if field.nullable else ', not null'}" for field in schema]
        preview = replace(
            base,
            header="\n".join([*(f"{name}: from the names of folders" for name in folders), *header]),
            facts=(*base.facts, *_facts([file.metadata for _, file in parts])),
        )
    with reading("the rows of the Parquet files"):
        limits = (MOST_ROWS, 4 * MOST_BYTES) if query.arranges else (SHOWN_ROWS, FIRST_BYTES)
        table = _first_rows(arrow, parts, [*folders], *limits)
        return table_preview(
            preview,
            query,
            [shortened(name) for name in table.column_names],
            lambda at, rows: _texts(table.column(at).take(list(rows))) if rows else [],
            count=table.num_rows,
            height=sum(int(file.metadata.num_rows) for _, file in parts),
            width=len(folders) + len(schema),
        )


def _facts(metadata: Sequence[Any]) -> Iterator[tuple[str, str]]:
    # Not the compression: pyarrow 26 ends the process when it is asked for one that does not exist.
    if groups := sum(part.num_row_groups for part in metadata):
        yield "Groups of rows", f"{groups:,}"
    if writer := next((part.created_by for part in metadata if part.created_by), ""):
        yield "Written by", shortened(writer)


def _first_rows(arrow: Any, parts: Sequence[_Part], folders: Sequence[str], most: int, most_bytes: int) -> Any:
    """Return the first rows of the first columns, so many that they have not too many bytes on average."""
    tables = []
    for values, file in parts:
        table = _rows_of(arrow, file, max(SHOWN_COLUMNS - len(folders), 1), most, most_bytes)
        most, most_bytes = most - table.num_rows, most_bytes - table.nbytes
        for at, name in enumerate(folders):
            value = arrow.scalar(values.get(name), arrow.string())
            table = table.add_column(at, name, arrow.repeat(value, table.num_rows))
        tables.append(table)
        if most <= 0 or most_bytes <= 0:
            break
    return arrow.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]


def _rows_of(arrow: Any, file: Any, columns: int, most: int, most_bytes: int) -> Any:
    metadata = file.metadata
    size = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    wanted = min(most, max(most_bytes * metadata.num_rows // max(size, 1), 1))
    names = file.schema_arrow.names[:columns]
    batch = min(wanted, _BATCH_ROWS)
    batches = file.iter_batches(batch_size=batch, columns=names, use_threads=False)
    chosen = list(islice(batches, -(-wanted // batch)))
    table = arrow.Table.from_batches(chosen) if chosen else file.schema_arrow.empty_table().select(names)
    return table.slice(0, wanted)


def _texts(column: Any) -> list[str]:
    """Return the values of a column as text; nothing for those that are missing."""
    try:
        bare = column if "binary" in str(column.type) else column.cast("string")
        # As bytes: what is not UTF-8 is shown, too, and is not an error.
        values: Sequence[bytes | None] = bare.cast("binary").to_pylist()
    except (NotImplementedError, ValueError):  # lists and structures, for example
        return ["" if value is None else shortened(str(value)) for value in column.to_pylist()]
    longest = 4 * LONGEST_TEXT + 4
    texts = ("" if value is None else value[:longest].decode(errors="backslashreplace") for value in values)
    return [shortened(text) for text in texts]
