"""Measurement sets, read by casacore: what was observed, the amplitude of visibilities over the rows, and subtables.

The tables and columns are those of the MeasurementSet definition, version 2.0 (Kemball & Wieringa, CASA note 229).
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from dropflow.errors import BadFileError
from dropflow.formatting import few, plural
from dropflow.preview.source import DirectorySource, Line, Preview, PreviewQuery, library, reading
from dropflow.preview.tables import SHOWN_COLUMNS, SHOWN_ROWS, cell, shortened, table_preview

_MJD = datetime(1858, 11, 17, tzinfo=UTC)
_STOKES = ("", "I", "Q", "U", "V", "RR", "RL", "LR", "LL", "XX", "XY", "YX", "YY")
"""Names of the first values of CORR_TYPE."""
_DATA = ("DATA", "CORRECTED_DATA", "MODEL_DATA", "FLOAT_DATA")
_WINDOWS, _NAMES = 8, 6
_BINS, _ROWS = 200, 10
_VALUES = 4 << 20
"""Visibilities that are read at most."""
_MOST_TIMES = 1 << 24
"""Rows whose times are read for the begin and the end of an observation."""
_DESCRIPTION_BYTES = 64 << 20
"""Bytes of the description of a table that are searched for references to other tables."""
_ELSEWHERE = "reads other tables"
_REFERRING = (b"RefTable", b"ConcatTable")
_FORWARDING = (b"ForwardColumn", b"VirtualTaQL")
"""Beginnings of the names of casacore's engines for columns that read other tables."""
_SORTED_ROWS = 20_000
"""Rows of a table that are sorted and filtered at most: arrays in cells are read one by one."""


def casacore_kind(directory: Path) -> Literal["measurement set", "casacore table", ""]:
    """Return what a directory is to casacore; nothing if it is not a table."""
    if not (directory / "table.dat").is_file():
        return ""
    # Of the subtables that version 2 of the MeasurementSet definition requires, two that other tables have not.
    needed = (directory / name / "table.dat" for name in ("ANTENNA", "SPECTRAL_WINDOW"))
    return "measurement set" if all(path.is_file() for path in needed) else "casacore table"


def show_measurement_set(source: DirectorySource, query: PreviewQuery, base: Preview) -> Preview:
    """Return a summary of a measurement set, with a plot of one of its columns of visibilities, or a subtable.

    Raises
    ------
    BadFileError
        It is damaged, or casacore is not installed.
    """
    opened = _opener(source, "measurement sets")
    with reading("the measurement set"), opened() as main:
        columns = [name for name in _DATA if name in main.colnames()] or ["No visibilities"]
        subtables = sorted(path.parent.name for path in source.path.glob("*/table.dat") if path.is_file())
        parts = (*columns, *subtables)
        part = min(max(query.part, 0), len(parts) - 1)
        base = replace(base, format="Measurement set", parts=parts, part=part, notes=(), is_cut=False)
        if part >= len(columns):
            with opened(parts[part]) as table:
                return _rows_of(table, query, base)
        rows = tuple((name, _height(opened, name)) for name in subtables)
        base = replace(base, columns=("Subtable", "Rows"), rows=rows)
        try:
            with reading("the measurement set"):
                return _summary(main, opened, columns[part], base)
        except BadFileError as error:  # the subtables may tell why
            return replace(base, trouble=error.text)


def _height(opened: Callable[..., Any], name: str) -> str:
    try:
        with reading("the table"), opened(name) as table:
            return f"{table.nrows():,}"
    except BadFileError as error:
        return _ELSEWHERE if _ELSEWHERE in error.text else "damaged"


def _summary(main: Any, opened: Callable[..., Any], column: str, base: Preview) -> Preview:
    facts = [("Rows", f"{main.nrows():,}"), *_times(main)]
    with opened("OBSERVATION") as table:
        facts += [("Telescope", few(_names(table, "TELESCOPE_NAME"), _NAMES))]
    with opened("FIELD") as table:
        facts += [("Fields", few(_names(table, "NAME"), _NAMES))]
    with opened("ANTENNA") as table:
        facts += [("Antennas", f"{table.nrows():,}: {few(_names(table, 'NAME'), _NAMES)}")]
    with opened("SPECTRAL_WINDOW") as table:
        facts += _windows(table)
    with opened("POLARIZATION") as table:
        facts += _correlations(table)
    line, flagged = _amplitudes(main, column) if column in _DATA and main.nrows() else (None, None)
    if flagged is not None:
        facts += [("Flagged", f"{100 * flagged:.3g} %")]
    notes = (f"The plot is the amplitude of {column} over the rows, of a sample without flagged values.",)
    return replace(
        base, facts=tuple(fact for fact in facts if fact[1]), line=line, notes=notes if line is not None else ()
    )


def show_table(source: DirectorySource, query: PreviewQuery, base: Preview) -> Preview:
    """Return the first rows of another table of casacore, or those that are wanted.

    Raises
    ------
    BadFileError
        It is damaged, or casacore is not installed.
    """
    opened = _opener(source, "tables of casacore")
    with reading("the table of casacore"), opened() as table:
        return _rows_of(table, query, replace(base, format="Table of casacore", notes=()))


def _opener(source: DirectorySource, contents: str) -> Callable[..., Any]:
    """Return what opens a directory as a table, or a subtable of it by its name."""
    if any(path.is_symlink() for path in source.path.rglob("*")):
        raise BadFileError("the table has symbolic links, which are not followed")
    tables = library("casacore.tables", contents, extra="radio")

    def opened(name: str = "") -> Any:
        _refuse_reference(source, name)
        return tables.table(str(source.path / name), ack=False, lockoptions="usernoread")

    return opened


def _refuse_reference(source: DirectorySource, name: str) -> None:
    """Raise if a table reads other tables: casacore would follow their paths to anywhere on this host.

    After the words "Table", version, rows and byte order, ``table.dat`` has the kind of the table.
    """
    description = source.read(f"{name}/table.dat".lstrip("/"), _DESCRIPTION_BYTES) or b""
    if any(word in description[:64] for word in _REFERRING) or any(word in description for word in _FORWARDING):
        raise BadFileError(f"the table {_ELSEWHERE}, whose paths are not followed: make a deep copy of it")


def _rows_of(table: Any, query: PreviewQuery, base: Preview) -> Preview:
    names, height = table.colnames(), int(table.nrows())

    def texts(at: int, rows: Sequence[int]) -> list[str]:
        name = names[at]
        if table.isscalarcol(name) and isinstance(rows, range) and rows:
            return [cell(value) for value in table.getcol(name, rows.start, len(rows))]
        return [cell(table.getcell(name, row)) if table.iscelldefined(name, row) else "" for row in rows]

    return table_preview(
        base,
        query,
        [_title(table, name) for name in names[:SHOWN_COLUMNS]],
        texts,
        count=min(height, _SORTED_ROWS if query.arranges else SHOWN_ROWS),
        height=height,
        width=len(names),
    )


def _title(table: Any, column: str) -> str:
    """Return the name of a column with its units, as casacore's measures keep them."""
    units = [str(unit) for unit in dict.fromkeys(table.getcolkeywords(column).get("QuantumUnits", ())) if unit]
    return shortened(f"{column} [{', '.join(units)}]" if units else column)


def _names(table: Any, column: str) -> list[str]:
    return list(dict.fromkeys(str(table.getcell(column, row)) for row in range(min(table.nrows(), 1000))))


def _times(main: Any) -> Iterator[tuple[str, str]]:
    if not main.nrows():
        return
    times = main.getcol("TIME", 0, min(main.nrows(), _MOST_TIMES))
    for word, seconds in (("Begin", times.min()), ("End", times.max())):
        yield word, (_MJD + timedelta(seconds=float(seconds))).strftime("%Y-%m-%d %H:%M:%S UTC")
    yield "Times", f"{len(np.unique(times)):,}"


def _correlations(table: Any) -> Iterator[tuple[str, str]]:
    if table.nrows():
        kinds = table.getcell("CORR_TYPE", 0)
        yield "Correlations", ", ".join(str(_STOKES[kind] if kind < len(_STOKES) else kind) for kind in kinds)


def _windows(table: Any) -> Iterator[tuple[str, str]]:
    for row in range(min(table.nrows(), _WINDOWS)):
        frequencies = np.asarray(table.getcell("CHAN_FREQ", row)) / 1e6
        span = f"{frequencies.min():,.6g} to {frequencies.max():,.6g} MHz"
        yield f"Spectral window {row}", f"{plural(len(frequencies), 'channel')}, {span}"
    if table.nrows() > _WINDOWS:
        yield "Spectral windows", f"{table.nrows():,}"


def _amplitudes(main: Any, column: str) -> tuple[Line, float | None]:
    """Return the least and greatest amplitude in intervals of rows, and the share of flagged values."""
    count = int(main.nrows())
    bins = min(count, _BINS)
    most = max(min(_VALUES // max(bins * np.size(main.getcell(column, 0)), 1), _ROWS), 1)
    lows: list[float | None] = []
    highs: list[float | None] = []
    flagged = seen = 0
    for at in range(bins):
        start, stop = at * count // bins, (at + 1) * count // bins
        finite = []
        for row in range(start, stop, max((stop - start) // most, 1)):
            flags = np.asarray(main.getcell("FLAG", row))
            values = np.abs(main.getcell(column, row))[~flags]
            finite.append(values[np.isfinite(values)])
            flagged, seen = flagged + int(flags.sum()), seen + flags.size
        values = np.concatenate(finite)
        lows.append(float(values.min()) if values.size else None)
        highs.append(float(values.max()) if values.size else None)
    return Line(count=count, lows=tuple(lows), highs=tuple(highs)), flagged / seen if seen else None
