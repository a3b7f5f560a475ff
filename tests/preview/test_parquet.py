"""Previews of Parquet files: schema and rows, and damaged files."""

import io
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.preview.look import preview
from dropflow.preview.source import BytesSource, Preview, PreviewQuery
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
