"""Tables and compressed images in FITS files, and contents that are compressed by gzip."""

import gzip
import io
import zlib
from contextlib import suppress

import astropy.io.fits as astropy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadFileError
from dropflow.preview.look import picture, preview
from dropflow.preview.source import BytesSource, Preview, PreviewQuery
from tests.preview.made_files import extension, fits, npy, tiled

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


def test_what_gzip_did_not_write_has_a_reason() -> None:
    """Damaged and cut contents, those that are compressed twice, and those that become too large."""
    packed = gzip.compress(bytes(1000) + b"x" * 50)
    stream = zlib.compressobj(wbits=31)
    large = b"".join(stream.compress(fits(_EMPTY) if not at else bytes(1 << 20)) for at in range(70)) + stream.flush()

    assert "is not what gzip writes" in _seen(b"\x1f\x8b\x08" + bytes(40)).trouble
    assert "cut off" in _seen(packed[:-9]).trouble
    assert "compressed twice" in _seen(gzip.compress(packed)).trouble
    with pytest.raises(BadFileError, match="compressed twice"):
        picture(BytesSource(gzip.compress(packed)))
    assert "more than 64 MB" in _seen(large).trouble
