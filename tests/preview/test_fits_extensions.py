"""Tables and compressed images in FITS files, and contents that are compressed by gzip."""

import gzip
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadFileError
from dropflow.preview.fits import decode_rice
from dropflow.preview.look import picture, preview
from dropflow.preview.source import BytesSource, Preview, PreviewQuery
from tests.preview.made_files import extension, fits, npy, rice, tiled

_EMPTY = np.zeros(0, np.uint8)


def _seen(content: bytes, **query: object) -> Preview:
    return preview(BytesSource(content), PreviewQuery(**query))  # type: ignore[arg-type]


@given(
    st.sampled_from([1, 2, 4]).flatmap(
        lambda size: st.tuples(
            st.just(size),
            st.lists(
                st.lists(
                    st.integers(0, 255) if size == 1 else st.integers(-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1),
                    min_size=5,
                    max_size=5,
                )
                | st.lists(st.integers(90, 110), min_size=5, max_size=5),
                min_size=1,
                max_size=4,
            ),
        )
    ),
    st.integers(1, 6),
    st.lists(st.integers(0, 30), min_size=1, max_size=3),
)
@settings(deadline=None)
def test_what_rice_compressed_is_read_again(told: tuple[int, list[list[int]]], block: int, codes: list[int]) -> None:
    """Any values, of several tiles at once, whatever the codes of their blocks."""
    size, tiles = told
    found = decode_rice([rice(tile, size, block, codes) for tile in tiles], 5, size, block)

    assert found.tolist() == tiles


def test_a_short_tile_of_many_values_is_refused_or_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks without differences take no time, though a byte stands for many of them; other long tiles are refused."""
    found = decode_rice([b"\0\5" + bytes(200)], 1 << 23, 2, 1 << 16)

    assert found.shape == (1, 1 << 23)
    assert (found == 5).all()
    monkeypatch.setattr("dropflow.preview.fits._MOST_STEPS", 99)
    with pytest.raises(BadFileError, match="more than 99 values to decode"):
        decode_rice([rice([0, 1] * 50, 2, 32, (3,))], 100, 2, 32)
    with pytest.raises(BadFileError, match="more than 99 values to decode"):
        decode_rice([b"\0\5" + bytes(200)], 100, 2, 1)


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


def test_values_of_a_compressed_image_are_scaled() -> None:
    """Of a quantized one by ZSCALE and ZZERO, with ZBLANK for those that are missing."""
    image = np.array([[1, 2], [-5, 4]], np.int32)
    found = _seen(tiled(image, "RICE_1", (2, 2), ZSCALE=0.5, ZZERO=10.0, ZBLANK=-5, ZBITPIX=-32))

    facts = dict(found.facts)
    assert (facts["Minimum"], facts["Maximum"], facts["Not a number"]) == ("10.5", "12", "1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tiled(np.ones((2, 2), np.int16), "HCOMPRESS_1", (2, 2)), "compressed by HCOMPRESS_1"),
        (tiled(np.ones((2, 2), np.int16), "RICE_1", (2, 2), ZVAL2=3), "no values of 3 bytes|values of 3 bytes"),
        (tiled(np.ones((2, 2), np.int16), "GZIP_1", (2, 2), ZNAXIS1=3, ZTILE1=3), "has 8 bytes"),
        (tiled(np.ones((2, 2), np.int16), "RICE_1", (2, 2), ZTILE1=9), "ZTILE1 is 9"),
        (
            tiled(np.ones((2, 2), np.int16), "RICE_1", (2, 2), ZNAXIS1=9000, ZNAXIS2=9000, ZTILE1=2),
            "too many for a page",
        ),
        (
            tiled(np.ones((2, 2), np.int16), "RICE_1", (1, 1), ZNAXIS1=4000, ZNAXIS2=4000),
            "more than 65,536 tiles",
        ),
        (tiled(np.ones((2, 2), np.int16), "RICE_1", (2, 2), TFORM1="1QB(9)"), "a row has 8"),
        (tiled(np.arange(4, dtype=np.int16).reshape(2, 2), "RICE_1", (2, 2))[:-2880], "is cut off"),
    ],
)
def test_images_that_cannot_be_shown_have_a_reason(content: bytes, words: str) -> None:
    """The header is shown, with a message that names what is wrong."""
    found = _seen(content)

    assert found.header
    assert any(word in found.trouble for word in words.split("|")), found.trouble


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
