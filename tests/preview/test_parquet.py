"""Previews of Parquet files: schema and rows, and damaged files."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.apps.formats import CannotHoldError, read_format
from dropflow.preview.difference import differences
from dropflow.preview.look import preview
from dropflow.preview.source import BytesSource, DirectorySource, Preview, PreviewQuery
from tests.lazy_module import LazyModule

pytest.importorskip("pyarrow", reason="the extra 'formats' is not installed")
arrow = LazyModule("pyarrow")
parquet = LazyModule("pyarrow.parquet")


def _written(columns: dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    parquet.write_table(arrow.table(columns), stream, **options)
    return stream.getvalue()


def _seen(content: bytes, **query: Any) -> Preview:
    return preview(BytesSource(content), PreviewQuery(**query))


def test_rows_and_schema_are_shown() -> None:
    """Values of each kind are shown as text, missing ones as nothing; the header names the types of the columns."""
    content = _written(
        {
            "name": ["a", None],
            "flux": arrow.array([1.5, 2.0], "float32"),
            "at": arrow.array([0, 86_400_000_000_000], arrow.timestamp("ns", "UTC")),
            "raw": [b"\xff\x01", b"text"],
            "many": [[1, 2], None],
            "kind": arrow.array(["x", "y"]).dictionary_encode(),
        }
    )
    found = _seen(content)

    assert (found.kind, found.format, found.trouble) == ("table", "Parquet table", "")
    assert found.columns == ("name", "flux", "at", "raw", "many", "kind")
    assert found.rows[0] == ("a", "1.5", "1970-01-01 00:00:00.000000000Z", "\\xff\x01", "[1, 2]", "x")
    assert found.rows[1] == ("", "2", "1970-01-02 00:00:00.000000000Z", "text", "", "y")
    assert "flux: float\nat: timestamp[ns, tz=UTC]" in found.header
    facts = dict(found.facts)
    assert (facts["Rows"], facts["Columns"], facts["Groups of rows"]) == ("2", "6", "1")
    assert (found.notes, found.is_cut) == ((), False)


def test_a_table_without_rows_or_columns_is_shown() -> None:
    """Its preview has the schema and no problem."""
    for columns in ({"a": arrow.array([], "int64")}, {}):
        found = _seen(_written(columns))
        assert (found.trouble, found.rows, dict(found.facts)["Rows"]) == ("", (), "0")


@pytest.mark.slow
def test_only_the_beginning_of_a_large_table_is_read() -> None:
    """The page has 200 rows and 60 columns of more, of several groups of rows, and a fraction of the bytes is read."""

    class Counted(BytesSource):
        taken = 0

        def read(self, at: int, count: int) -> bytes:
            self.taken += count
            return super().read(at, count)

    wide = _seen(_written({str(at): range(250) for at in range(70)}, row_group_size=30))
    source = Counted(_written({"x": range(1_000_000)}, use_dictionary=False, compression="none"))
    found = preview(source)

    assert (len(wide.columns), len(wide.rows), wide.is_cut) == (60, 200, True)
    assert wide.notes == ("These are the first 200 of 250 rows.", "These are the first 60 of 70 columns.")
    assert [row[0] for row in found.rows] == [str(at) for at in range(200)]
    assert source.taken < source.size / 4


def test_rows_are_sorted_and_filtered() -> None:
    """A condition and an order apply to rows after those that are shown first."""
    found = _seen(
        _written({"x": range(5000)}), sort="x", order="descending", column="x", condition="greater", value="4000"
    )

    assert (len(found.rows), found.rows[0], found.rows[1]) == (200, ("4999",), ("4998",))
    assert found.notes == ("999 of 5,000 rows meet the condition.", "These are the first 200 of 999 rows.")


def _directory(folder: Path) -> Path:
    """Return a table in three files, in folders as Hive names them, the last one with one more column."""
    for name, columns in (
        ("_SUCCESS", None),
        ("year=2025/part-0.parquet", {"x": [1, 2]}),
        ("year=2026/part-0.parquet", {"x": [3]}),
        ("year=__HIVE_DEFAULT_PARTITION__/part-0.parquet", {"x": [4], "y": ["late"]}),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if columns is None else _written(columns))
    return folder


@pytest.mark.slow
def test_a_directory_of_files_is_one_table(tmp_path: Path) -> None:
    """Names of folders are columns; files are read in their order, and only as many as are needed."""
    folder = _directory(tmp_path / "table")
    found = preview(DirectorySource(folder))
    late = preview(DirectorySource(folder), PreviewQuery(column="y", condition="is", value="late"))

    assert (found.kind, found.format, found.trouble) == ("table", "Parquet table", "")
    assert found.columns == ("year", "x", "y")
    assert found.rows == (("2025", "1", ""), ("2025", "2", ""), ("2026", "3", ""), ("", "4", "late"))
    assert found.header == "year: from the names of folders\nx: int64\ny: string"
    facts = dict(found.facts)
    assert (facts["Files"], facts["Rows"], facts["Columns"], facts["Groups of rows"]) == ("3", "4", "3", "3")
    assert late.rows == (("", "4", "late"),)


def test_a_directory_with_a_bad_file_has_its_problem_and_its_list(tmp_path: Path) -> None:
    """One that is damaged, that does not fit, or a link out of it, which is not followed."""
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(_written({"x": [5]}))
    for at, (bad, text) in enumerate(
        ((b"PAR1", "cannot be read"), (_written({"x": [["a"]]}), "schema"), (None, "cannot be read"))
    ):
        folder = _directory(tmp_path / str(at))
        if bad is None:
            (folder / "z.parquet").symlink_to(outside)
        else:
            (folder / "z.parquet").write_bytes(bad)
        found = preview(DirectorySource(folder))
        assert text in found.trouble
        assert ("5",) not in {row[1:2] for row in found.rows}
        assert found.kind == "directory"


def test_a_function_reads_a_directory_of_files(tmp_path: Path) -> None:
    """The format `parquet` takes it, with the names of folders as a column; another directory is refused."""
    frame = read_format("parquet", _directory(tmp_path / "table"))

    assert sorted(frame["x"]) == [1, 2, 3, 4]
    assert sorted(frame["year"].dropna()) == [2025, 2025, 2026]
    (tmp_path / "table" / "README").write_text("more")
    with pytest.raises(CannotHoldError, match="is a directory, expected a Parquet file or a directory of Parquet"):
        read_format("parquet", tmp_path / "table")


@pytest.mark.slow
def test_tables_differ_in_columns_and_values(tmp_path: Path) -> None:
    """How they are written does not count; of numbers the largest differences are shown, of others the first row."""
    rows = range(100_000)
    columns = {
        "flux": arrow.array([*rows], "float64"),
        "name": [f"s{row}" for row in rows],
        "big": [2**60 + row for row in rows],
        "many": [*([float(row)] for row in rows[:-1]), [float("nan")]],
        "gone": [0] * len(rows),
    }
    changed = {name: list(values) for name, values in columns.items() if name != "gone"} | {"new": [0] * len(rows)}
    changed["flux"] = [*rows[:-1], 100_009.0]
    changed["name"][70_000] = "other"
    changed["big"][3] += 1
    changed["big"][4] = None
    changed["many"][5] = None
    for name, content in (
        ("a", _written(columns)),
        ("b", _written(columns, row_group_size=777, compression="none")),
        ("c", _written(changed, row_group_size=30_000)),
        ("d", _written({"flux": arrow.array([0.0], "float32")})),
    ):
        (tmp_path / name).write_bytes(content)

    assert [*differences(tmp_path / "a", tmp_path / "a")] == []
    assert [*differences(tmp_path / "a", tmp_path / "b")] == [
        "rows and columns are the same; the files differ in how they are written"
    ]
    assert [*differences(tmp_path / "a", tmp_path / "c")] == [
        "column gone is on the left only",
        "column new is on the right only",
        "column flux: 1 number of 100,000 differs (1e-05 of all)",
        "column flux: largest difference 10 at [99999]: 99999.0 / 100009.0",
        "column flux: largest relative difference 9.9991e-05 at [99999]: 99999.0 / 100009.0",
        "column name: 1 row of 100,000 differs, the first is 70000: s70000 / other",
        "column big: 1 value is missing on one side only",
        "column big: 1 number of 100,000 differs (1e-05 of all)",
        "column many: 1 row of 100,000 differs, the first is 5: [5.0] / None",
    ]
    assert [*differences(tmp_path / "a", tmp_path / "d")][-2:] == [
        "100,000 rows / 1",
        "column flux: type double / float",
    ]


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1PAR1", b"PAR1" + bytes(500), b"PAR1" + b"\xff" * 500 + b"PAR1"])
def test_garbage_has_its_problem(content: bytes) -> None:
    """What only begins as a Parquet file does is an error, not a table."""
    found = _seen(content)

    assert (found.kind, found.format) == ("header", "Parquet table")
    assert found.trouble.startswith("the Parquet file cannot be read: ")


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_files_only_have_problems(data: st.DataObject) -> None:
    """Whatever is cut off or changed in a file, there is a preview."""
    content = bytearray(_written({"x": [1, 2, 3], "name": ["a", "b", None], "many": [[1], [], None]}))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[at] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(4, len(content)))]

    assert _seen(bytes(content)).size == len(content)


def test_without_pyarrow_the_page_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preview says which package is missing on the node, and what installs it."""
    content = _written({"x": [1]})
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    trouble = _seen(content).trouble

    assert "Parquet files need the package pyarrow" in trouble
    assert "dropflow[formats]" in trouble


@pytest.mark.slow
def test_a_worker_has_enough_memory_for_it() -> None:
    """Under the limits of a process for previews, half of its memory is enough for a Parquet file."""
    program = """
import sys
from dropflow.preview.look import preview
from dropflow.preview.source import BytesSource
from dropflow.preview.worker import restrict
restrict(1 << 30)
found = preview(BytesSource(sys.stdin.buffer.read()))
print(found.rows, found.trouble)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], input=_written({"x": [1]}), capture_output=True, timeout=300, check=False
    )
    assert (ended.stdout, ended.returncode) == (b"(('1',),) \n", 0), ended.stderr
