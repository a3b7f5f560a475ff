"""Functions read and write files in the formats of their ports, and what is in another format is named."""

import sqlite3
import sys
from collections.abc import Callable
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropflow import FitsPath, Graph, GraphRun, InputPath, MeasurementSet, OutputPath, app
from dropflow.apps.formats import FORMATS, CannotHoldError, read_format, what_is, write_format
from dropflow.errors import AppError, MissingDependencyError, UsageError

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("astropy", "h5py")), reason="the extra 'formats' is not installed"
)

ARRAY = np.arange(6.0).reshape(2, 3)
COLUMNS = {"name": ["a", "b"], "flux": [1.5, 2.0]}


def _dataset() -> Any:
    import xarray  # noqa: PLC0415 - an extra

    return xarray.DataArray(ARRAY, dims=("y", "x"), name="sky")


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Any]] = {
    "fits": (lambda: ARRAY, lambda units: units[0].data.tolist(), ARRAY.tolist()),
    "hdf5": (lambda: {"one": {"two": ARRAY}}, lambda file: file["one/two"][:].tolist(), ARRAY.tolist()),
    "zarr": (lambda: {"one": {"two": ARRAY}}, lambda group: group["one/two"][:].tolist(), ARRAY.tolist()),
    "xarray": (_dataset, lambda found: found["sky"].values.tolist(), ARRAY.tolist()),
    "parquet": (lambda: COLUMNS, lambda frame: frame.to_dict("list"), COLUMNS),
    "csv": (lambda: COLUMNS, lambda frame: frame.to_dict("list"), COLUMNS),
    "image": (
        lambda: np.full((4, 5), 200, "u1"),
        lambda picture: (picture.size, picture.getpixel((1, 1))),
        ((5, 4), 200),
    ),
}
"""For each format: a value to write, what to compare of the value that is read, and what it is then."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_format_reads_what_it_wrote(name: str, tmp_path: Path) -> None:
    """A value that is written in a format is read as the same value, and the content is recognised as that format."""
    make, look, expected = CASES[name]
    path = tmp_path / "content"
    write_format(name, make(), path)
    assert what_is(path) in FORMATS[name].kinds
    assert look(read_format(name, path)) == expected


@pytest.mark.parametrize("name", CASES)
def test_what_a_format_cannot_hold_is_refused(name: str, tmp_path: Path) -> None:
    """An object that is none of the values of a format is refused, whatever its library raises."""
    with pytest.raises(CannotHoldError, match=r"."):
        write_format(name, object(), tmp_path / "content")


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("csv", "zarr")])
def test_a_file_that_is_cut_is_damaged(name: str, tmp_path: Path) -> None:
    """A file that was cut in the middle is an error that names the file, not a value with less in it."""
    path = tmp_path / "content"
    write_format(name, np.ones((64, 64)) if name == "fits" else CASES[name][0](), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 8])
    with pytest.raises(CannotHoldError, match="content is damaged"):
        read_format(name, path)


@pytest.mark.parametrize("name", ["fits", "hdf5", "zarr", "image"])
def test_masked_elements_are_refused(name: str, tmp_path: Path) -> None:
    """A format would write them as if they were valid."""
    masked = np.ma.array(np.ones((4, 4), dtype=np.uint8), mask=np.eye(4))
    with pytest.raises(CannotHoldError, match="mask would be lost"):
        write_format(name, {"a": masked} if name == "hdf5" else masked, tmp_path / "content")


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_is_named(name: str, tmp_path: Path) -> None:
    """Reading a file of another format says the path, what was found, and what was expected."""
    path = tmp_path / "data.sqlite"
    with sqlite3.connect(path) as made:
        made.execute("create table flux (jy real)")
        made.execute("insert into flux values (zeroblob(5000))")
    made.close()
    path.write_bytes(b"\xff\xfe" + path.read_bytes())
    with pytest.raises(CannotHoldError, match=r"data\.sqlite is a file of an unknown format, expected "):
        read_format(name, path)


def test_a_measurement_set_is_a_path(tmp_path: Path) -> None:
    """A measurement set is passed on as its path; another table of casacore is refused as what it is."""
    table = tmp_path / "one.ms"
    table.mkdir()
    (table / "table.dat").write_bytes(b"\xbe\xbe")
    with pytest.raises(CannotHoldError, match="is a casacore table, expected a measurement set"):
        read_format("ms", table)
    for name in ("ANTENNA", "SPECTRAL_WINDOW"):
        assert what_is(table) == "a casacore table"
        (table / name).mkdir()
        (table / name / "table.dat").write_bytes(b"\xbe\xbe")
    assert read_format("ms", table) == str(table)
    write_format("ms", str(table), tmp_path / "two.ms")
    assert what_is(tmp_path / "two.ms") == "a measurement set"


@pytest.mark.parametrize(("name", "package"), [("hdf5", "h5py"), ("parquet", "pyarrow"), ("parquet", "pandas")])
def test_a_missing_library_names_the_extra(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A format whose library is not installed is an error that says what to install, in writing and in reading."""
    write_format(name, CASES[name][0](), tmp_path / "there")
    monkeypatch.setitem(sys.modules, package, None)
    message = f"the format '{name}' needs the package {package}, which is not installed"
    with pytest.raises(MissingDependencyError, match=message) as caught:
        write_format(name, CASES[name][0](), tmp_path / "content")
    with pytest.raises(MissingDependencyError, match=message):
        read_format(name, tmp_path / "there")
    assert "formats" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "content is empty, expected a Parquet file"), (b"PAR1" + b"\xff" * 500 + b"PAR1", "content is damaged: ")],
)
def test_what_is_no_parquet_is_an_error(content: bytes, message: str, tmp_path: Path) -> None:
    """An empty file, and one that only begins and ends as a Parquet file does, are errors with the path."""
    path = tmp_path / "content"
    path.write_bytes(content)
    with pytest.raises(CannotHoldError, match=message):
        read_format("parquet", path)


_TYPED: dict[str, list[Any]] = {
    "int64": [2**60 + 1, -1],
    "uint8": [255, 0],
    "bool": [True, False],
    "double": [1.5, -2.0],
    "timestamp[us]": [datetime(2026, 1, 2), datetime(2027, 1, 2)],  # noqa: DTZ001 - as arrow
    "date32[day]": [date(2026, 1, 2), date(2027, 1, 2)],
    "large_string": ["a", "b"],
    "binary": [b"\xff", b""],
}
"""Values by their type of pyarrow, which pandas writes again."""


@pytest.mark.parametrize("name", _TYPED)
@pytest.mark.parametrize("is_first", [False, True], ids=["after", "before"])
def test_a_partition_without_values_leaves_the_others_as_they_are(name: str, tmp_path: Path, *, is_first: bool) -> None:
    """A column is missing in one file of a table, in its folder too: the values and the type are those of the others.

    A large integer that goes through a float would be another one. What was read is written again with the same type.
    """
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = arrow.array(_TYPED[name], arrow.type_for_alias(name.partition("[day")[0]))
    empty, full = (
        tmp_path / "table" / "k=__HIVE_DEFAULT_PARTITION__",
        tmp_path / "table" / f"k={'z' if is_first else 'A'}",
    )
    for folder, column in ((empty, arrow.nulls(2)), (full, values)):
        folder.mkdir(parents=True)
        parquet.write_table(arrow.table({"x": column}), folder / "0.parquet")
    frame = read_format("parquet", tmp_path / "table")
    write_format("parquet", frame, tmp_path / "again")
    again = parquet.read_table(tmp_path / "again")

    assert again.schema.field("x").type == values.type
    assert sorted(again["x"].to_pylist(), key=repr) == sorted([*_TYPED[name], None, None], key=repr)
    assert sorted(again["k"].to_pylist(), key=repr) == sorted([None, None, *[full.name[2:]] * 2], key=repr)
    assert read_format("parquet", tmp_path / "again").equals(frame)


@app
def make_sky(size: int) -> "np.ndarray":
    """Return an image."""
    import numpy as np  # noqa: PLC0415 - the code of the function travels in the graph

    return np.ones((size, size), "f4")


@app
def brighter(sky: Any, out: FitsPath) -> None:
    """Write the image twice as bright."""
    from astropy.io import fits  # noqa: PLC0415 - an extra

    fits.PrimaryHDU(sky[0].data * 2).writeto(out)


@app
def size_of(path: InputPath) -> int:
    """Return the size of a file."""
    return Path(path).stat().st_size


@app(outputs=("total",))
def draw(sky: Any, picture: OutputPath) -> float:
    """Write a picture, and return the sum of the image."""
    from PIL import Image  # noqa: PLC0415 - an extra

    Image.fromarray(sky[0].data.astype("u1")).save(picture, "PNG")
    return float(sky[0].data.sum())


@app
def write_text(sky: Any, out: FitsPath) -> None:
    """Write what is no FITS file."""
    Path(out).write_text(f"not an image of {sky[0].data.shape}")


@app
def look_at(vis: MeasurementSet) -> int:
    """Never called: its input is no measurement set."""
    return len(vis)


def _run(graph: Graph, tmp_path: Path) -> GraphRun:
    return graph.run(runner="inline", directory=tmp_path / "run", overwrite=True)


def test_annotations_say_which_arguments_are_files(tmp_path: Path) -> None:
    """A function gets paths to read and to write as its annotations say; each written path is an output of the call."""
    with Graph("files") as graph:
        sky = make_sky(4).save("sky.fits")
        bright = brighter(sky).save("bright.fits")
        total, picture = draw(bright)
        picture.save("sky.png")
        size = size_of(picture)
    ended = _run(graph, tmp_path)
    assert ended.value(bright)[0].data.tolist() == [[2.0] * 4] * 4
    assert ended.value(total) == 32.0
    assert ended.value(size) == (tmp_path / "run/files/sky.png").stat().st_size


def test_a_function_that_writes_another_format_fails(tmp_path: Path) -> None:
    """What a function writes to its path is looked at: text in place of FITS is an error that says so."""
    with Graph("wrong") as graph:
        written = write_text(make_sky(2).save("sky.fits"))
    with pytest.raises(AppError, match=r"the function wrote another format than 'fits': .* is text, expected a FITS"):
        _run(graph, tmp_path).value(written)


def test_an_input_of_another_format_fails(tmp_path: Path) -> None:
    """An input that is no measurement set is an error with its path, before the function is called."""
    with Graph("no set") as graph:
        looked = look_at(make_sky(2).save("sky.fits"))
    with pytest.raises(AppError, match="is a FITS file, expected a measurement set"):
        _run(graph, tmp_path).value(looked)


def test_an_input_that_is_cut_fails_its_reader(tmp_path: Path) -> None:
    """The error names the file and what to do; the file stays as it is, and nothing is written."""
    path = tmp_path / "cut.fits"
    write_format("fits", np.ones((64, 64)), path)
    path.write_bytes(path.read_bytes()[:16_000])
    with Graph("cut") as graph:
        bright = brighter(graph.file(path, encoding="fits")).save("bright.fits")
    with pytest.raises(AppError, match=r"cut\.fits is damaged: it ends in the data of unit 0") as caught:
        _run(graph, tmp_path).value(bright)

    assert (caught.value.code, "copy it again" in caught.value.hint) == ("DF105", True)
    assert path.stat().st_size == 16_000
    assert list(tmp_path.rglob("*bright*")) == []


def test_a_value_that_goes_nowhere_is_refused() -> None:
    """A function that writes paths and returns a value must name an output for the value."""

    def both(out: OutputPath) -> int:
        return len(out)

    with pytest.raises(UsageError, match="its return value goes nowhere"):
        app(both)
