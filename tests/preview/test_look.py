"""Previews of contents: every format, hostile files, and how much is read."""

import io
import json
import re
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers

from dropflow.errors import BadFileError
from dropflow.preview.image import BUDGET
from dropflow.preview.look import picture, preview
from dropflow.preview.source import BytesSource, DirectorySource, PreviewQuery
from tests.lazy_module import LazyModule
from tests.preview.made_files import Array, fits, npy, png, zarr

zarr_library = LazyModule("zarr")
fits_library = LazyModule("astropy.io.fits")

_TYPES = ["u1", "<i2", ">i4", "<f4", ">f8", "<f2", "?"]


class Counted(BytesSource):
    """A content that counts what is read of it, and is as large as it is said to be, with zeros at its end."""

    def __init__(self, content: bytes, size: int) -> None:
        super().__init__(content)
        self.size, self.taken = size, 0

    def read(self, at: int, count: int) -> bytes:
        """Return bytes, and count them."""
        self.taken += count
        return self._content[at : at + count].ljust(count, b"\0")


def _pixels(data: bytes) -> Array:
    """Return the indices of colours in a picture."""
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    at = data.index(b"IDAT")
    length = int.from_bytes(data[at - 4 : at], "big")
    lines = np.frombuffer(zlib.decompress(data[at + 4 : at + 4 + length]), np.uint8)
    return lines.reshape(height, width + 1)[:, 1:]


def _facts(content: bytes, **query: object) -> dict[str, str]:
    return dict(preview(BytesSource(content), PreviewQuery(**query)).facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", _TYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_drawn_row_by_row(kind: str, order: str) -> None:
    """The picture of a small .npy array has a pixel for each value, brighter for larger ones, row by row."""
    array = np.array([[0, 0, 1], [1, 0, 0]], dtype=kind, order=order)  # type: ignore[call-overload]
    found = preview(BytesSource(npy(array)))

    assert (found.kind, found.width, found.height) == ("array", 3, 2)
    assert dict(found.facts)["Shape"] == "2 × 3"
    assert (_pixels(picture(BytesSource(npy(array)))) > 100).tolist() == array.astype(bool).tolist()


@given(numbers.arrays(np.float64, numbers.array_shapes(min_dims=2, max_dims=3, max_side=9)), st.integers(0, 9))
def test_statistics_are_those_of_numpy(array: Array, plane: int) -> None:
    """Least, largest and mean of a plane are those of its finite values; the others are counted."""
    found = preview(BytesSource(npy(array)), PreviewQuery(plane=plane))
    shown = array.reshape(-1, *array.shape[-2:])[found.plane]
    finite, facts = shown[np.isfinite(shown)], dict(found.facts)

    assert int(facts.get("Not a number", "0").replace(",", "")) == shown.size - finite.size
    if finite.size:
        assert facts["Minimum"] == f"{finite.min() + 0.0:.6g}"
        assert facts["Maximum"] == f"{finite.max() + 0.0:.6g}"


@pytest.mark.slow
def test_a_fits_image_begins_at_its_lower_left_corner() -> None:
    """The last row of a FITS image is at the top; BSCALE, BZERO and BLANK are applied; the first image is chosen."""
    image = np.array([[5, -1], [0, 2]], np.int16)
    content = fits(
        np.zeros(0, np.uint8), image, cards=[("BSCALE", 2.0), ("BZERO", 1.0), ("BLANK", -1), ("BUNIT", "JY")]
    )
    found = preview(BytesSource(content))
    facts = dict(found.facts)

    assert found.parts == ("0: image no data", "1: image 2 × 2")
    assert (found.part, facts["Minimum"], facts["Maximum"], facts["Not a number"]) == (1, "1", "11", "1")
    assert facts["Bunit"] == "JY"
    assert "NAXIS1" in found.header
    pixels = _pixels(picture(BytesSource(content)))
    assert pixels[1, 1] == 0  # a colour that no number has, on light and dark pages
    assert b"tRNS" not in picture(BytesSource(content))
    assert pixels[1, 0] == 255


@pytest.mark.slow
@given(st.data(), st.sampled_from(["C", "F", "fits", "zarr"]))
@settings(max_examples=60, deadline=None)
def test_a_part_of_a_picture_is_that_of_the_same_part_of_the_array(data: st.DataObject, kind: str) -> None:
    """Cut out by left, top, right and bottom, it has the picture, the scale and the statistics of the cut array."""
    array = data.draw(numbers.arrays(np.float32, st.tuples(st.integers(4, 9), st.integers(4, 9))))
    top, left = data.draw(st.integers(0, array.shape[0] - 3)), data.draw(st.integers(0, array.shape[1] - 3))
    bottom, right = data.draw(st.integers(top + 2, array.shape[0])), data.draw(st.integers(left + 2, array.shape[1]))
    query = PreviewQuery(left=left, top=top, right=right, bottom=bottom)
    wanted = BytesSource(npy(np.ascontiguousarray(array[top:bottom, left:right])))
    with tempfile.TemporaryDirectory() as folder:
        if kind == "zarr":
            zarr(Path(folder, "x"), array, (3, 3))
        written = fits(array[::-1]) if kind == "fits" else npy(np.array(array, order="F" if kind == "F" else "C"))
        source = DirectorySource(Path(folder)) if kind == "zarr" else BytesSource(written)
        found, cut = preview(source, query), preview(wanted)

        assert picture(source, query) == picture(wanted)
        assert (found.region, found.across, found.down) == ((left, top, right, bottom), *array.shape[::-1])
        assert found.scale == cut.scale
        numbers_of = {"Minimum", "Maximum", "Mean", "Deviation", "Not a number"}
        assert {fact for fact in found.facts if fact[0] in numbers_of} == set(cut.facts[2:])


@pytest.mark.slow
def test_a_single_value_is_told_with_its_place() -> None:
    """Of one value: the value, its index from 0, or pixel from 1 with right ascension, declination and frequency."""
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    where = {"plane": 1, "left": 3, "top": 0, "right": 4, "bottom": 1}
    assert _facts(npy(array), **where) == {"Value": "15", "Index": "1, 0, 3"}
    assert _facts(npy(np.asfortranarray(array)), **where) == {"Value": "9", "Index": "0, 2, 1"}
    cards = [("CTYPE1", "RA---TAN"), ("CRPIX1", 4.0), ("CRVAL1", 83.6333), ("CDELT1", -0.01), ("CUNIT1", "deg")]
    cards += [("CTYPE2", "DEC--TAN"), ("CRPIX2", 3.0), ("CRVAL2", 22.0145), ("CDELT2", 0.01), ("CUNIT2", "deg")]
    cards += [("CTYPE3", "FREQ"), ("CRPIX3", 1.0), ("CRVAL3", 1.4e9), ("CDELT3", 1e6), ("CUNIT3", "Hz")]
    place = {"RA": "05:34:31.992", "DEC": "22:00:52.20", "FREQ": "1.401e+09 Hz"}
    assert _facts(fits(array, cards=cards), **where) == {"Value": "23", "Pixel": "4, 3, 2", **place}
    assert _facts(fits(array, cards=[("CTYPE1", "RA---XXX")]), **where) == {"Value": "23", "Pixel": "4, 3, 2"}


def test_phases_of_complex_values_are_in_radians() -> None:
    """Amplitude is shown first, phase on request; the preview tells that values are complex."""
    content = npy(np.array([[1, 2j], [-3, -4j]]))
    assert _facts(content)["Maximum"] == "4"
    phases = _facts(content, number="phase")
    assert (phases["Minimum"], phases["Maximum"]) == ("-1.5708", "3.14159")
    assert preview(BytesSource(content)).is_complex


@pytest.mark.parametrize("stretch", ["linear", "sqrt", "log", "asinh"])
def test_the_scale_has_the_values_of_its_colours(stretch: Literal["linear", "sqrt", "log", "asinh"]) -> None:
    """A value of the scale has the colour at its place along the scale."""
    query = PreviewQuery(stretch=stretch, keep=100)
    ramp = np.linspace(-2, 6, 200 * 200, dtype=np.float32).reshape(200, 200)
    scale = preview(BytesSource(npy(ramp)), query).scale
    ramp.flat[:5] = scale
    drawn = _pixels(picture(BytesSource(npy(ramp)), query)).ravel()[:5].astype(int)

    assert scale[::4] == pytest.approx((-2, 6))
    assert np.abs(drawn - np.linspace(2, 255, 5)).max() <= 1


@pytest.mark.slow
@given(
    numbers.arrays(st.sampled_from([np.uint8, np.int32, np.float32]), st.tuples(st.integers(2, 9), st.integers(2, 9))),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from([(2, "zlib"), (2, ""), (3, "gzip"), (3, "")]),
)
@settings(max_examples=40, deadline=None)
def test_zarr_has_the_same_picture_as_npy(array: Array, chunks: tuple[int, int], stored: tuple[int, str]) -> None:
    """An array in chunks, without those that are zero, has the statistics and picture of the same array in a file."""
    with tempfile.TemporaryDirectory() as folder:
        zarr(Path(folder, "group/data"), array, chunks, version=stored[0], codec=stored[1])
        source = DirectorySource(Path(folder))
        found, plain = preview(source), preview(BytesSource(npy(array)))

        assert found.format == "Zarr array"
        assert dict(plain.facts).items() - {("Type", dict(plain.facts)["Type"])} <= dict(found.facts).items()
        assert picture(source) == picture(BytesSource(npy(array)))


@pytest.mark.parametrize("codec", ["blosc", "zstd", "lz4"])
def test_chunks_of_other_compressors_are_read(tmp_path: Path, codec: str) -> None:
    """Chunks compressed with blosc, zstd or lz4 are read; a chunk that has another size is refused."""
    array = np.arange(64, dtype=np.float32).reshape(8, 8)
    zarr(tmp_path, array, (4, 4), codec=codec)

    assert picture(DirectorySource(tmp_path)) == picture(BytesSource(npy(array)))
    metadata = json.loads(tmp_path.joinpath(".zarray").read_text())
    tmp_path.joinpath(".zarray").write_text(json.dumps(metadata | {"chunks": [2, 4], "shape": [4, 8]}))
    assert "the zarr array cannot be read" in preview(DirectorySource(tmp_path)).trouble


@pytest.mark.parametrize(
    "change",
    [
        lambda chunk: chunk[: len(chunk) // 2],
        lambda chunk: chunk[:12] + (len(chunk) + 9).to_bytes(4, "little") + chunk[16:],
        lambda chunk: chunk[:8] + bytes(4) + chunk[12:],
        lambda chunk: chunk[:8] + b"\1\0\0\0" + chunk[12:],
        lambda chunk: chunk[:16] + b"\xff\xff\xff\x7f" + chunk[20:],
        lambda chunk: chunk[:2] + b"\2" + chunk[3:],
        lambda _: struct.pack("<BBBBIII", 2, 1, 2, 1, 1 << 16, 1 << 16, (1 << 16) + 16) + b"A" * 16,
    ],
)
def test_a_blosc_chunk_whose_header_has_other_sizes_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    """The library believes the header, and reads memory that is not of the chunk, or ends the process."""
    array = np.arange(1 << 16, dtype=np.uint8).reshape(256, 256) % 97
    zarr(tmp_path, array, (256, 256), codec="blosc")
    chunk = tmp_path / "0.0"
    whole = chunk.read_bytes()

    assert preview(DirectorySource(tmp_path)).trouble == ""
    chunk.write_bytes(change(whole))

    assert re.search("should have|do not fit together|blosc decompression", preview(DirectorySource(tmp_path)).trouble)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(60_000, 60_000), (3, 2**40), (2**40, 3), (7, 40_000, 300), (2**42,), (2**42, 1)])
def test_what_is_read_of_a_large_array_is_bounded(shape: tuple[int, ...]) -> None:
    """At most 16 million values of an array of terabytes are read, and the page says that it is a sample."""
    header = npy(np.zeros((1,) * len(shape), np.float32))[:-4]
    wanted = f"{shape}, }}".encode()
    at = header.index(b"(")
    header = header[:at] + wanted + header[at + len(wanted) : -1] + b"\n"
    source = Counted(header, 2**60)
    found = preview(source)

    assert found.trouble == ""
    assert source.taken <= 5 * BUDGET
    assert found.kind == "array"
    assert found.notes
    assert max(found.width, found.height) <= 1024


@pytest.mark.parametrize(
    ("content", "kind", "first"),
    [
        (b"a,b\n1,2\n3,4\n", "table", ("a", "b")),
        (b"1\t2\t3\n4\t5\t6\n7\t8\t9\n", "table", ("1", "2", "3")),
        (b'[{"a": 1}, {"b": [1, 2]}]', "table", ("a", "b")),
        (b'{"a": 1}', "table", ("Name", "Value")),
        (b"[[1, 2], [3]]", "table", ("1", "2")),
        (b"Sing, goddess,\nthe anger, of Peleus' son,\nand more\n", "text", ()),
        (b"#!/bin/sh\ntrue\n", "code", ()),
        (b"\x00\x01", "dump", ()),
        (b"<script>alert(1)</script>", "text", ()),
        (b"[" * 100_000, "text", ()),
        (b"9" * 10_000, "text", ()),
    ],
)
def test_text_is_a_table_if_it_looks_like_one(content: bytes, kind: str, first: tuple[str, ...]) -> None:
    """CSV and JSON are tables; other text is text, code begins with #!, and the rest is in hexadecimal."""
    found = preview(BytesSource(content))

    assert (found.kind, found.columns) == (kind, first)


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_long_text_is_cut_between_characters(letter: str) -> None:
    """The beginning of a large text is shown; lines are cut as well."""
    found = preview(BytesSource(("x" + letter * 1_000_000).encode()))

    assert (found.kind, found.is_cut, found.text) == ("text", True, "x" + letter * 1999)
    assert "Lines are cut after 2,000 characters." in found.notes


def test_pictures_that_are_too_large_are_not_drawn() -> None:
    """A picture of more than 100 million pixels, which would exhaust the browser, is only offered as a download."""
    whole = png(np.zeros((3, 4), np.uint8))
    assert preview(BytesSource(whole)).facts == (("Width", "4"), ("Height", "3"))
    assert picture(BytesSource(whole)) == whole
    for side, words in ((11_000, "too many for a page"), (100_000, "exceeds limit")):
        head = b"IHDR" + side.to_bytes(4, "big") * 2 + whole[24:29]
        bomb = whole[:12] + head + zlib.crc32(head).to_bytes(4, "big") + whole[33:]
        assert words in preview(BytesSource(bomb)).trouble
        with pytest.raises(BadFileError, match=words):
            picture(BytesSource(bomb))


def test_objects_are_never_unpickled() -> None:
    """An array of objects is refused by its header."""
    found = preview(BytesSource(npy(np.array([{}], dtype=object))))

    assert (found.kind, found.trouble) == ("header", "the .npy file has objects, which only Python's pickle reads")


def test_links_out_of_a_directory_are_not_followed(tmp_path: Path) -> None:
    """A chunk or folder that is a symbolic link is refused, and not listed as what it points to."""
    zarr(tmp_path / "a", np.ones((2, 2), np.uint8), (2, 2), codec="")
    secret = tmp_path / "secret"
    secret.write_bytes(b"1234")
    (tmp_path / "a/0.0").unlink()
    (tmp_path / "a/0.0").symlink_to(secret)

    assert "cannot be read" in preview(DirectorySource(tmp_path / "a")).trouble
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c").symlink_to(tmp_path / "a")
    assert preview(DirectorySource(tmp_path / "b")).format == "Directory"
    with pytest.raises(BadFileError, match="behind a symbolic link"):
        DirectorySource(tmp_path / "b").read("c/.zarray", 1000)


_SEEDS = [
    npy(np.arange(12.0).reshape(3, 4)),
    npy(np.array(["a", "b"])),
    fits(np.arange(6, dtype=np.int16).reshape(2, 3), np.ones((2, 2), np.float32)),
    png(np.zeros((2, 2), np.uint8)),
    b'[{"a": 1}]',
    b"a,b\n1,2\n3,4\n",
]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_files_only_have_problems(data: st.DataObject) -> None:
    """Whatever bytes are changed, inserted or cut off, a preview returns, and a picture at most raises BadFileError."""
    content = bytearray(data.draw(st.sampled_from(_SEEDS)))
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(content)))
        match data.draw(st.sampled_from(["change", "cut", "insert", "digit"])):
            case "change":
                content[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del content[at:]
            case "insert":
                content[at:at] = data.draw(st.binary(max_size=8))
            case _:
                content[at : at + 1] = b"9"
    query = PreviewQuery(
        part=data.draw(st.integers(-1, 3)),
        plane=data.draw(st.integers(0, 2**53)),
        stretch=data.draw(st.sampled_from(["linear", "sqrt", "log", "asinh"])),
    )
    found = preview(BytesSource(bytes(content)), query)
    try:
        picture(BytesSource(bytes(content)), query)
    except BadFileError:
        assert not found.width


@pytest.mark.slow
def test_only_the_beginning_of_very_many_chunks_is_read(tmp_path: Path) -> None:
    """The time that a preview takes does not grow with the number of chunks; each is a file."""
    zarr(tmp_path, np.ones((2, 2), np.uint8), (1, 1))
    metadata = json.loads((tmp_path / ".zarray").read_text())
    (tmp_path / ".zarray").write_text(json.dumps(metadata | {"shape": [10**6, 10**6]}))

    found = preview(DirectorySource(tmp_path))

    assert (found.width, found.height) == (64, 64)
    assert "Only the beginning of the array is shown" in found.notes[0]


@pytest.mark.parametrize("where", ["filters", "compressor"])
def test_codecs_that_execute_code_are_refused(tmp_path: Path, where: str) -> None:
    """Codecs of numcodecs that unpickle are refused by the metadata."""
    zarr(tmp_path, np.ones((2, 2), np.uint8), (2, 2))
    metadata = json.loads((tmp_path / ".zarray").read_text())
    pickled = {"id": "pickle"}
    changes = {where: [pickled] if where == "filters" else pickled}
    (tmp_path / ".zarray").write_text(json.dumps(metadata | changes))

    assert "stored with 'pickle', which is not supported" in preview(DirectorySource(tmp_path)).trouble


@pytest.mark.parametrize("version", [2, 3])
def test_what_zarr_wrote_is_shown(tmp_path: Path, version: Literal[2, 3]) -> None:
    """An array of zarr itself has the picture of the same array in a file, also in shards."""
    array = np.arange(64, dtype=np.float32).reshape(8, 8)
    shards = (4, 8) if version == 3 else None
    stored = zarr_library.create_array(
        tmp_path / "a", shape=array.shape, chunks=(4, 4), dtype="f4", shards=shards, zarr_format=version
    )
    stored[:] = array

    assert picture(DirectorySource(tmp_path / "a")) == picture(BytesSource(npy(array)))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(["shape", "chunks", "dtype", "order", "compressor", "fill_value", "filters"]), _JSON
    )
)
@settings(max_examples=200, deadline=None)
def test_damaged_zarr_only_has_problems(changes: dict[str, object]) -> None:
    """Whatever the metadata of an array hold, a preview returns."""
    whole = {"shape": [4, 4], "chunks": [2, 2], "dtype": "<f4", "compressor": None, "filters": None, "fill_value": 0}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".zarray").write_text(json.dumps(whole | changes))
        Path(folder, "0.0").write_bytes(b"1234" * 4)

        assert preview(DirectorySource(Path(folder))).kind in ("array", "directory")


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["shape", "data_type", "chunk_grid", "codecs", "chunk_key_encoding"]), _JSON))
@settings(max_examples=100, deadline=None)
def test_damaged_zarr_of_version_3_only_has_problems(changes: dict[str, object]) -> None:
    """Whatever the metadata of an array hold, a preview returns."""
    with tempfile.TemporaryDirectory() as folder:
        zarr(Path(folder), np.ones((4, 4), np.float32), (2, 2), version=3, codec="gzip")
        whole = json.loads(Path(folder, "zarr.json").read_text())
        Path(folder, "zarr.json").write_text(json.dumps(whole | changes))

        assert preview(DirectorySource(Path(folder))).kind in ("array", "directory")


_VALUES = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-5, 5), st.just(""))


@given(st.lists(st.tuples(_VALUES, st.text("abAB ", max_size=3)), min_size=2, max_size=40), st.booleans())
def test_a_table_is_sorted_and_filtered_as_python_does(rows: list[tuple[object, str]], is_descending: bool) -> None:  # noqa: FBT001
    """Numbers are sorted as numbers, empty ones last; the rows that are greater than a value are those of Python."""
    content = "number,word\n" + "".join(f"{number},{word}\n" for number, word in rows)
    order: Literal["ascending", "descending"] = "descending" if is_descending else "ascending"
    found = preview(BytesSource(content.encode(), "t.csv"), PreviewQuery(sort="number", order=order))
    greater = preview(
        BytesSource(content.encode(), "t.csv"), PreviewQuery(column="number", condition="greater", value="1")
    )

    known = sorted((float(str(number)) for number, _ in rows if number != ""), reverse=is_descending)
    assert [float(row[0]) for row in found.rows if row[0]] == known
    assert [row[0] for row in found.rows[len(known) :]] == [""] * (len(rows) - len(known))
    assert [row[0] for row in greater.rows] == [str(number) for number, _ in rows if number != "" and number > 1]  # type: ignore[operator]


@pytest.mark.parametrize("values", [["5", "", "6"], ["x", "", "5"]])
def test_an_empty_cell_is_not_a_value(values: list[str]) -> None:
    """In a column of numbers as in one of texts."""
    content = "number,word\n" + "".join(f"{value},\n" for value in values)
    query = PreviewQuery(column="number", condition="is not", value="5")

    assert len(preview(BytesSource(content.encode(), "t.csv"), query).rows) == 2


@pytest.mark.slow
def test_rows_are_chosen_from_the_whole_of_a_large_table() -> None:
    """A row that is not among the first ones is found in text and FITS, and a note tells how many rows there are."""
    count = 30_000
    text = "name,flux\n" + "".join(f"s{row},{row * 7919 % count}\n" for row in range(count))
    column = fits_library.Column("flux", "D", unit="Jy", array=[row * 7919 % count for row in range(count)])
    stored = io.BytesIO()
    fits_library.HDUList([fits_library.PrimaryHDU(), fits_library.BinTableHDU.from_columns([column])]).writeto(stored)
    of_text = preview(BytesSource(text.encode(), "t.csv"), PreviewQuery(sort="flux", order="descending"))
    query = PreviewQuery(part=1, sort="flux [Jy]", column="flux [Jy]", condition="less", value="300")
    of_fits = preview(BytesSource(stored.getvalue()), query)

    assert [row[1] for row in of_text.rows] == [str(count - 1 - at) for at in range(200)]
    assert [row[0] for row in of_fits.rows] == [str(at) for at in range(200)]
    assert "300 of 30,000 rows meet the condition." in of_fits.notes
    assert "There is no column 'gone'." in preview(BytesSource(text.encode(), "t.csv"), PreviewQuery(sort="gone")).notes


def test_a_cell_may_have_ends_of_lines() -> None:
    """They stay in a cell in quotes; what only some programs take for the end of a line ends no row."""
    content = "name,number\r\n" + "a\u2028b,2\r\n" * 20 + '"two\nlines",1\r\n'
    rows = preview(BytesSource(content.encode(), "t.csv")).rows
    assert (len(rows), rows[0], rows[-1]) == (21, ("a\u2028b", "2"), ("two\nlines", "1"))


def test_tables_in_text_have_the_limits_and_notes_of_other_tables() -> None:
    """The first rows and columns, cut values, and how many there are; what is not known is left out."""
    header = ",".join(f"c{at}" for at in range(70))
    content = f"{header}\n" + f"{'x' * 300}{',1' * 69}\n" * 250
    found = preview(BytesSource(content.encode(), "t.csv"))
    assert found.notes == ("These are the first 200 of 250 rows.", "These are the first 60 of 70 columns.")
    assert (len(found.rows), len(found.columns), found.is_cut) == (200, 60, True)
    assert found.rows[0][0] == "x" * 200 + "…"
    assert dict(found.facts) == {"Rows": "250", "Columns": "70"}
    query = PreviewQuery(column="c0", condition="contains", value="x" * 300)
    assert "250 of 250 rows meet the condition." in preview(BytesSource(content.encode(), "t.csv"), query).notes
    long = preview(BytesSource(b"a,b\n" + b"1,2\n" * 400_000, "t.csv"))
    assert (long.notes, long.facts) == (("These are the first 200 rows.",), ())
