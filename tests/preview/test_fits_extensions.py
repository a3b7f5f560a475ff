"""Previews of FITS files and measurement sets, and how two contents differ."""

import gzip
import io
import pickle
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadFileError
from dropflow.preview.difference import differences
from dropflow.preview.look import picture, preview
from dropflow.preview.source import BytesSource, DirectorySource, Preview, PreviewQuery
from tests.lazy_module import LazyModule
from tests.preview.made_files import extension, fits, npy, tiled

astropy = LazyModule("astropy.io.fits")

_EMPTY = np.zeros(0, np.uint8)


def _seen(content: bytes, **query: object) -> Preview:
    return preview(BytesSource(content), PreviewQuery(**query))  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["RICE_1", "GZIP_1", "GZIP_2", "NOCOMPRESS"])
@pytest.mark.parametrize("kind", ["u1", "i2", "i4"])
@pytest.mark.parametrize("tile", [(1, 7), (2, 3)])
def test_a_compressed_image_is_drawn_as_the_plain_one(algorithm: str, kind: str, tile: tuple[int, int]) -> None:
    """Picture and statistics are the same, also with tiles that are cut at the edges."""
    image = np.arange(35, dtype=kind).reshape(5, 7) ** 2 % 120
    plain, packed = fits(image), tiled(image, algorithm, tile)
    known, found = _seen(plain), _seen(packed)

    assert picture(BytesSource(packed)) == picture(BytesSource(plain))
    assert dict(found.facts)["Compressed with"] == algorithm
    numbers = ("Minimum", "Maximum", "Mean", "Deviation", "Shape")
    assert [dict(found.facts)[name] for name in numbers] == [dict(known.facts)[name] for name in numbers]


@pytest.mark.parametrize("algorithm", ["RICE_1", "GZIP_2", "HCOMPRESS_1", "PLIO_1"])
def test_what_astropy_compressed_is_shown(algorithm: str) -> None:
    """An image of each algorithm of the standard has its statistics, also if its values were rounded to integers."""
    image = np.arange(90, dtype=np.float32).reshape(9, 10)
    image[2, 3] = np.nan if algorithm != "PLIO_1" else 12
    written = io.BytesIO()
    kind = np.int16 if algorithm == "PLIO_1" else np.float32
    unit = astropy.CompImageHDU(image.astype(kind), compression_type=algorithm, quantize_level=-0.001)
    astropy.HDUList([astropy.PrimaryHDU(), unit]).writeto(written)
    facts = dict(_seen(written.getvalue()).facts)

    assert facts["Compressed with"] == algorithm
    assert (facts["Shape"], float(facts["Minimum"])) == ("9 × 10", pytest.approx(0, abs=0.01))
    assert float(facts["Maximum"]) == pytest.approx(89, abs=0.01)
    assert facts.get("Not a number", "0") == ("0" if algorithm == "PLIO_1" else "1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tiled(np.ones((2, 2), np.int16), "HCOMPRESS_1", (2, 2)), "the compressed image cannot be read"),
        (tiled(np.ones((2, 2), np.int16), "RICE_1", (2, 2), ZVAL2=3), "the compressed image cannot be read"),
        (tiled(np.ones((2, 2), np.int16), "GZIP_1", (2, 2), ZNAXIS1=3, ZTILE1=3), "cannot reshape array of size 8"),
        (tiled(np.ones((2, 2), np.int16), "RICE_1", (2, 2), ZTILE1=2**30), "tiles of 2 × 1,073,741,824 values"),
        (
            tiled(np.ones((2, 2), np.int16), "RICE_1", (2, 2), ZNAXIS1=9000, ZNAXIS2=9000, ZTILE1=2),
            "too many for a page",
        ),
        (
            tiled(np.ones((2, 2), np.int16), "RICE_1", (1, 1), ZNAXIS1=4000, ZNAXIS2=4000),
            "more than 65,536 tiles",
        ),
        (tiled(np.ones((2, 2), np.int16), "RICE_1", (2, 2), TFORM1="1QB(9)"), "cannot be read"),
        (tiled(np.arange(4, dtype=np.int16).reshape(2, 2), "RICE_1", (2, 2))[:-2880], "cannot be read"),
    ],
)
def test_images_that_cannot_be_shown_have_a_reason(content: bytes, words: str) -> None:
    """The header is shown, with a message that names what is wrong."""
    found = _seen(content)

    assert found.header
    assert words in found.trouble


def test_a_binary_table_is_a_table() -> None:
    """Its first rows: numbers, texts, truth values, arrays, scaled and missing values, with units of columns."""
    kind = np.dtype(
        [("name", "S5"), ("flux", ">f4"), ("n", ">i4"), ("v", ">f8", 8), ("ok", "S1"), ("u", ">i2"), ("some", ">i4", 2)]
    )
    rows = np.zeros(300, kind)
    rows[0] = (b"alpha", 1.5, -9, range(8), b"T", 1 - 32768, (3, 0))
    rows[1] = (b"beta", np.nan, 7, 0, b"F", 0, (0, 0))
    columns = ("5A", "E", "J", "8D", "L", "I", "1PJ(3)")
    cards: dict[str, object] = {f"TFORM{at}": form for at, form in enumerate(columns, 1)}
    cards |= {f"TTYPE{at}": name for at, name in enumerate(kind.names or (), 1)}
    cards |= {"TUNIT2": "Jy", "TNULL3": -9, "TZERO6": 32768, "EXTNAME": "SRC"}
    heap = np.array([4, 5, 6], ">i4").tobytes()
    found = _seen(fits(_EMPTY) + extension("BINTABLE", kind.itemsize, rows.tobytes(), heap, **cards), part=1)

    assert found.kind == "table"
    assert found.columns == ("name", "flux [Jy]", "n", "v", "ok", "u", "some")
    assert found.rows[:2] == (
        ("alpha", "1.5", "", "0, 1, 2, 3, 4, 5, …", "true", "1", "4, 5, 6"),
        ("beta", "nan", "7", "0, 0, 0, 0, 0, 0, …", "false", "32768", ""),
    )
    assert (dict(found.facts)["Rows"], len(found.rows), found.is_cut) == ("300", 200, True)
    assert found.notes == ("These are the first 200 of 300 rows.",)


def test_a_table_of_text_is_a_table() -> None:
    """Its columns are at their places in the lines."""
    lines = b"    12 -1.5\n    13  2.5\n"
    cards = {"TFORM1": "I6", "TBCOL1": 1, "TFORM2": "F5.1", "TBCOL2": 7, "TTYPE1": "n", "TUNIT2": "m"}
    found = _seen(fits(_EMPTY) + extension("TABLE", 12, lines, b"", **cards), part=1)

    assert (found.columns, found.rows) == (("n", "column 2 [m]"), (("12", "-1.5"), ("13", "2.5")))


@pytest.mark.slow
@given(st.binary(max_size=400), st.integers(0, 8000))
@settings(deadline=None)
def test_damaged_files_have_a_preview(noise: bytes, at: int) -> None:
    """Whatever is written over a compressed image, there is a preview, and the only error is BadFileError."""
    whole = tiled(np.arange(60, dtype=np.int16).reshape(6, 10), "RICE_1", (2, 4))
    broken = whole[:at] + noise + whole[at + len(noise) :]
    _seen(broken)
    with suppress(BadFileError):
        picture(BytesSource(broken))


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (npy(np.arange(12.0).reshape(3, 4)), "NumPy array"),
        (fits(np.ones((2, 3), np.int16)), "FITS"),
        (b"a,b\n1,2\n", ""),
    ],
)
def test_contents_that_gzip_compressed_are_shown_as_what_they_are(content: bytes, form: str) -> None:
    """As if they were not compressed, but for format and size."""
    packed = gzip.compress(content)
    found, plain = preview(BytesSource(packed, "x.csv.gz")), preview(BytesSource(content, "x.csv"))

    assert found.format == f"{form or plain.format}, compressed by gzip"
    assert (found.kind, found.facts, found.rows, found.size) == (plain.kind, plain.facts, plain.rows, len(packed))
    if form:
        assert picture(BytesSource(packed)) == picture(BytesSource(content))


def test_what_gzip_compressed_in_several_pieces_is_shown_whole() -> None:
    """As bgzip writes them, or after ``cat a.gz b.gz``, also with zeros behind the last one."""
    found = _seen(gzip.compress(b"one\n") + gzip.compress(b"two\n") + bytes(512))

    assert (found.text, found.is_cut) == ("one\ntwo\n", False)


@pytest.mark.slow
def test_what_gzip_did_not_write_has_a_reason() -> None:
    """Damaged and cut contents, those that are compressed twice, and those that become too large."""
    packed = gzip.compress(bytes(1000) + b"x" * 50)
    stream = zlib.compressobj(wbits=31)
    large = b"".join(stream.compress(fits(_EMPTY) if not at else bytes(1 << 20)) for at in range(70)) + stream.flush()

    assert "is not a gzip file" in _seen(b"\x1f\x8b\x08" + bytes(40)).trouble
    assert "cut off" in _seen(packed[:-9]).trouble
    assert "compressed twice" in _seen(gzip.compress(packed)).trouble
    with pytest.raises(BadFileError, match="compressed twice"):
        picture(BytesSource(gzip.compress(packed)))
    assert "more than 64 MB" in _seen(large).trouble


# The summary of measurement sets.


_TABLES = ("", "ANTENNA", "SPECTRAL_WINDOW")


@pytest.fixture
def observed(tmp_path: Path) -> Path:
    """A measurement set of three antennas and four times, with two columns of visibilities."""
    tables = pytest.importorskip("casacore.tables", reason="python-casacore is not installed: it has 115 MB")
    path = str(tmp_path / "a.ms")
    columns = [
        tables.makearrcoldesc("DATA", 0j, ndim=2, valuetype="complex"),
        tables.makearrcoldesc("MODEL_DATA", 0j, ndim=2, valuetype="complex"),
    ]
    made = tables.default_ms(path, tables.maketabdesc(columns))
    made.addrows(12)
    for row in range(12):
        made.putcell("TIME", row, 5_000_000_000.0 + 10 * (row // 3))
        made.putcell("DATA", row, np.full((2, 4), 3 + 4j) * (row + 1))
        made.putcell("MODEL_DATA", row, np.full((2, 4), 1j))
        made.putcell("FLAG", row, np.full((2, 4), row == 11))
    made.close()

    def fill(name: str, rows: int, **values: Any) -> None:
        with tables.table(f"{path}/{name}", readonly=False, ack=False) as table:
            table.addrows(rows)
            for column, value in values.items():
                for row in range(rows):
                    table.putcell(column, row, value[row])

    fill("ANTENNA", 3, NAME=["A0", "A1", "A2"])
    fill("FIELD", 1, NAME=["M 31"])
    fill("OBSERVATION", 1, TELESCOPE_NAME=["WSRT"])
    fill("SPECTRAL_WINDOW", 1, CHAN_FREQ=[np.array([1.4e9, 1.5e9])])
    fill("POLARIZATION", 1, CORR_TYPE=[np.array([9, 10, 11, 12])])
    return Path(path)


def test_it_says_what_was_observed(observed: Path) -> None:
    """Telescope, fields, antennas, times, channels, correlations and flags, and the amplitudes of a column."""
    found = preview(DirectorySource(observed))
    facts = dict(found.facts)

    assert (found.format, found.parts[:3], found.trouble) == ("Measurement set", ("DATA", "MODEL_DATA", "ANTENNA"), "")
    assert (facts["Rows"], facts["Times"]) == ("12", "4")
    assert (facts["Begin"], facts["End"]) == ("2017-04-27 08:53:20 UTC", "2017-04-27 08:53:50 UTC")
    assert (facts["Telescope"], facts["Fields"], facts["Antennas"]) == ("WSRT", "M 31", "3: A0, A1, A2")
    assert facts["Spectral window 0"] == "2 channels, 1,400 to 1,500 MHz"
    assert facts["Correlations"] == "XX, XY, YX, YY"
    assert facts["Flagged"] == "8.33 %"
    assert found.line is not None
    assert found.line.highs == (*(5.0 * (row + 1) for row in range(11)), None)
    assert preview(DirectorySource(observed), PreviewQuery(part=1)).line != found.line


def test_its_subtables_are_listed_and_shown(observed: Path) -> None:
    """The summary lists the subtables with their rows; each is a part, and a content of its own, with its rows."""
    found = preview(DirectorySource(observed))
    rows = dict(found.rows)
    part = preview(DirectorySource(observed), PreviewQuery(part=found.parts.index("ANTENNA")))
    alone = preview(DirectorySource(observed / "ANTENNA"), PreviewQuery(sort="NAME", order="descending"))

    assert found.columns == ("Subtable", "Rows")
    assert (rows["ANTENNA"], rows["FIELD"], rows["HISTORY"]) == ("3", "1", "0")
    assert set(rows) == set(found.parts[2:])
    assert (part.kind, part.format, part.trouble) == ("table", "Measurement set", "")
    assert (alone.kind, alone.format, alone.trouble) == ("table", "Table of casacore", "")
    assert part.parts == found.parts
    name, position = part.columns.index("NAME"), part.columns.index("POSITION [m]")
    assert [(row[name], row[position]) for row in part.rows] == [(f"A{at}", "0, 0, 0") for at in range(3)]
    assert [row[name] for row in alone.rows] == ["A2", "A1", "A0"]


def test_each_subtable_is_shown(observed: Path) -> None:
    """Also those without rows, and columns whose cells have no value or lists of text."""
    tables = LazyModule("casacore.tables")
    with tables.table(f"{observed}/OBSERVATION", readonly=False, ack=False) as table:
        table.putcell("LOG", 0, ["begun", "ended"])
    parts = preview(DirectorySource(observed)).parts
    shown = [preview(DirectorySource(observed), PreviewQuery(part=at)) for at in range(2, len(parts))]

    assert [found.trouble for found in shown] == [""] * (len(parts) - 2)
    table = shown[parts.index("OBSERVATION") - 2]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["LOG"], row["SCHEDULE"], row["TELESCOPE_NAME"]) == ("begun, ended", "", "WSRT")


def test_a_damaged_subtable_has_its_problem(observed: Path) -> None:
    """It is named in the list; the other subtables are shown, and the summary, too, if it needs no value of it."""
    (observed / "HISTORY" / "table.dat").write_bytes(b"\xbe\xbe")
    found = preview(DirectorySource(observed))
    assert (found.trouble, dict(found.facts)["Telescope"], dict(found.rows)["HISTORY"]) == ("", "WSRT", "damaged")
    (observed / "FIELD" / "table.dat").write_bytes(b"\xbe\xbe")
    found = preview(DirectorySource(observed))
    assert "the measurement set cannot be read" in found.trouble
    antennas = preview(DirectorySource(observed), PreviewQuery(part=found.parts.index("ANTENNA")))
    assert (len(antennas.rows), antennas.trouble) == (3, "")
    assert "the table of casacore cannot be read" in preview(DirectorySource(observed / "FIELD")).trouble


def test_a_damaged_one_has_its_problem(observed: Path) -> None:
    """A file that is cut off, and a link out of it, which is not followed."""
    with observed.joinpath("table.dat").open("r+b") as file:
        file.truncate(100)
    assert "the measurement set cannot be read" in preview(DirectorySource(observed)).trouble
    observed.joinpath("more").symlink_to("/etc")
    assert "symbolic links" in preview(DirectorySource(observed)).trouble


def test_tables_that_read_others_are_not_followed(observed: Path, tmp_path: Path) -> None:
    """A selection, a concatenation and a column of another table have paths, which lead to anywhere on the host."""
    tables = LazyModule("casacore.tables")
    with tables.table(str(observed), ack=False) as main:
        main.query("ANTENNA1 = 0", name=str(tmp_path / "selected")).close()
    joined = tables.table([str(observed), str(observed)], ack=False, concatsubtables=[])
    joined.rename(str(tmp_path / "joined"))
    joined.close()
    (tmp_path / "forwarded").mkdir()
    description = (observed / "table.dat").read_bytes()
    (tmp_path / "forwarded" / "table.dat").write_bytes(description + b"ForwardColumnEngine")
    (tmp_path / "selected").rename(observed / "SELECTED")

    for directory in (observed / "SELECTED", tmp_path / "joined", tmp_path / "forwarded"):
        found = preview(DirectorySource(directory))
        assert "reads other tables" in found.trouble
        assert found.kind == "directory"
    found = preview(DirectorySource(observed))
    assert (found.trouble, dict(found.rows)["SELECTED"]) == ("", "reads other tables")


def test_without_casacore_its_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names the extra that has it."""
    for name in ("casacore", "casacore.tables"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in _TABLES:
        tmp_path.joinpath(name).mkdir(exist_ok=True)
        tmp_path.joinpath(name, "table.dat").write_bytes(b"x")
    found = preview(DirectorySource(tmp_path))

    assert "measurement sets need the package casacore" in found.trouble
    assert "radio" in found.trouble
    assert len(found.rows) == 3


# How two contents differ, as ``dropflow diff`` shows it.


def _found(directory: Path, left: bytes, right: bytes, ending: str = "") -> list[str]:
    """Return how two contents differ."""
    paths = directory / f"left{ending}", directory / f"right{ending}"
    for path, content in zip(paths, (left, right), strict=True):
        path.write_bytes(content)
    return [*differences(*paths)]


def test_long_lines_differ(tmp_path: Path) -> None:
    """Such as JSON on one line: the csv module, which finds fields in lines, takes no fields of that length."""
    left, right = tmp_path / "a.json", tmp_path / "b.json"
    left.write_text("x" * 200_000)
    right.write_text("x" * 199_999 + "y")

    assert [*differences(left, right)][-1] == "1 line differs; 1 / 1 lines"


def test_text_and_tables_differ_in_lines_and_fields(tmp_path: Path) -> None:
    """Of tables, the row and the column; of text, the line; nothing for the same contents."""
    table = b"name,flux\na,1.0\nb,2.0\n"

    assert _found(tmp_path, table, table.replace(b"2.0", b"2.5"), ".csv") == [
        "row 2, flux: 2.0 / 2.5",
        "1 line differs; 3 / 3 lines",
    ]
    assert _found(tmp_path, b"one\ntwo\n", b"one\n")[0] == "line 2: 'two' / none"
    assert _found(tmp_path, table, table, ".csv") == []


def test_bytes_differ_at_a_place_and_are_not_unpickled(tmp_path: Path) -> None:
    """Of pickles, the first byte that differs."""
    one, two = pickle.dumps((1, 2, b"\xff")), pickle.dumps((1, 3, b"\xff"))
    at = next(at for at, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)

    assert _found(tmp_path, one, two) == [f"the first byte that differs is number {at}"]


@pytest.mark.slow
def test_directories_differ_in_their_files(tmp_path: Path) -> None:
    """Files on one side only are named; those on both are compared as what they are, such as parts of a table."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    left, right = tmp_path / "left", tmp_path / "right"
    for root, last in ((left, 3.0), (right, 4.0)):
        for year, flux in ((2025, [1.0]), (2026, [2.0, last])):
            part = root / f"year={year}" / "part-0.parquet"
            part.parent.mkdir(parents=True)
            parquet.write_table(arrow.table({"flux": flux}), part)
    (left / "_SUCCESS").touch()

    assert [*differences(left, right)] == [
        "_SUCCESS is on the left only",
        "year=2026/part-0.parquet: column flux: 1 number of 2 differs (0.5 of all)",
        "year=2026/part-0.parquet: column flux: largest difference 1 at [1]: 3.0 / 4.0",
        "year=2026/part-0.parquet: column flux: largest relative difference 0.25 at [1]: 3.0 / 4.0",
        "1 file of 2 differs",
    ]
    assert [*differences(left, left)] == []
    assert [*differences(left, left / "_SUCCESS")] == ["a directory / a file"]


@pytest.mark.slow
def test_arrays_that_are_no_numbers_differ_in_rows(tmp_path: Path) -> None:
    """Also one text, no rows, and arrays of different lengths in the cells of a table, in which NaN is NaN."""
    fits = pytest.importorskip("astropy.io.fits")
    paths = tmp_path / "a.fits", tmp_path / "b.fits"
    for path, last in zip(paths, ([3.0], [4.0, 5.0]), strict=True):
        cells = np.empty(2, object)
        cells[:] = [np.array([1.0, np.nan]), np.array(last)]
        column = fits.Column(name="v", format="PD()", array=cells)
        fits.BinTableHDU.from_columns([column]).writeto(path)

    assert [*differences(*paths)][-1] == "unit 1: column v: 1 row of 2 differs, the first is 1"
    assert _found(tmp_path, npy(np.array("abc")), npy(np.array("abx"))) == ["1 row of 1 differs, the first is 0"]
    assert _found(tmp_path, npy(np.zeros(0, "U3")), npy(np.zeros(0, "U5"))) == ["type str96 / str160"]


def test_fits_files_differ_in_cards_and_pixels(tmp_path: Path) -> None:
    """The largest and the largest relative difference, with their places; NaN on both sides is the same."""
    fits = pytest.importorskip("astropy.io.fits")
    pixels = np.array([[1.0, 2.0], [100.0, np.nan]], np.float32)
    other = np.array([[1.0, 3.0], [110.0, np.nan]], np.float32)
    for name, values, cards in (("a.fits", pixels, {"BUNIT": "Jy"}), ("b.fits", other, {"BUNIT": "K", "MORE": 1})):
        fits.PrimaryHDU(values, fits.Header(cards)).writeto(tmp_path / name)

    assert [*differences(tmp_path / "a.fits", tmp_path / "b.fits")] == [
        "BUNIT = Jy / K",
        "MORE is on the right only",
        "2 numbers of 4 differ (0.5 of all)",
        "largest difference 10 at [1, 0]: 100.0 / 110.0",
        "largest relative difference 0.333333 at [0, 1]: 2.0 / 3.0",
    ]


def test_arrays_of_other_shapes_or_types_differ_in_these(tmp_path: Path) -> None:
    """Large integers are compared exactly."""
    for name, values in (("a", np.array([2**60, 1])), ("b", np.array([2**60 + 1, 1])), ("c", np.zeros((3, 2)))):
        np.save(tmp_path / name, values)

    assert next(differences(tmp_path / "a.npy", tmp_path / "b.npy")) == "1 number of 2 differs (0.5 of all)"
    assert [*differences(tmp_path / "a.npy", tmp_path / "c.npy")] == ["shape (2,) / (3, 2)"]
