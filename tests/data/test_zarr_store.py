"""Zarr arrays that processes write chunk by chunk."""

import contextlib
import itertools
import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.data.zarr_store import absent_chunks, create_array, read_region, write_chunk
from dropflow.errors import BadFileError, BadParameterError, MissingDependencyError
from dropflow.graph.compressors import compressor_record


def written(
    path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str, compressor: object = None
) -> np.ndarray:
    """Write an array of numbers that are counted, and return it."""
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    record = compressor_record(compressor)
    create_array(path, shape, chunks, dtype, "session", compressor=record)
    for index in np.ndindex(*(-(-length // size) for length, size in zip(shape, chunks, strict=True))):
        region = tuple(slice(one * size, (one + 1) * size) for one, size in zip(index, chunks, strict=True))
        write_chunk(path, index, whole[region], chunks, dtype, compressor=record)
    return whole


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=3),
    st.sampled_from(["float32", "int16", "complex64", "bool", ">f8"]),
    st.data(),
)
def test_any_part_of_an_array_is_read(
    tmp_path_factory: pytest.TempPathFactory, axes: list[tuple[int, int]], dtype: str, data: st.DataObject
) -> None:
    """A region has the values of the whole array, whatever the chunks are."""
    path = tmp_path_factory.mktemp("zarr") / "x.zarr"
    whole = written(path, tuple(one for one, _ in axes), tuple(size for _, size in axes), dtype)
    region = []
    for length, _ in axes:
        first, last = sorted(data.draw(st.tuples(st.integers(0, length), st.integers(0, length))))
        region.append(slice(first, last))

    assert np.array_equal(read_region(path, region), whole[tuple(region)])


_COMPRESSORS = ("", "zlib", "gzip", "bz2", "zstd", "lz4", "blosc", '{"id": "blosc", "cname": "zstd", "shuffle": 2}')


@pytest.mark.parametrize("compressor", _COMPRESSORS)
def test_chunks_are_compressed(tmp_path: Path, compressor: str) -> None:
    """They are smaller, and are read again by us and by the zarr library if it is installed."""
    if compressor not in ("", "zlib", "gzip", "bz2"):
        pytest.importorskip("numcodecs")
    path = tmp_path / "x.zarr"
    whole = written(path, (50, 70), (20, 30), "int64", compressor)

    assert np.array_equal(read_region(path, [slice(0, 50), slice(0, 70)]), whole)
    assert ((path / "0.0").stat().st_size < 20 * 30 * 8) is bool(compressor)
    with contextlib.suppress(ImportError):
        zarr = import_module("zarr")
        assert np.array_equal(zarr.open_array(str(path), mode="r")[:], whole)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("zip", "there is no compressor 'zip'"),
        ({"id": "zlib", "strength": 3}, "the compressor zlib has no setting 'strength' of 3"),
        ({"id": "blosc", "clevel": "best"}, "no setting 'clevel' of 'best'"),
        ('{"id": ', "is not JSON"),
    ],
)
def test_unknown_compressors_are_refused(given: object, text: str) -> None:
    """Names and settings are those of zarr; the error has those that there are."""
    with pytest.raises(BadParameterError, match=re.escape(text)) as caught:
        compressor_record(given)
    assert "blosc" in caught.value.hint


def test_a_compressor_that_is_not_installed_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the store of another session is replaced; the error says what to install."""
    monkeypatch.setitem(sys.modules, "numcodecs", None)
    whole = written(tmp_path / "x.zarr", (4,), (2,), "float64")
    with pytest.raises(MissingDependencyError, match="the compressor zstd of a store needs numcodecs"):
        written(tmp_path / "x.zarr", (4,), (2,), "float64", "zstd")

    assert np.array_equal(read_region(tmp_path / "x.zarr", [slice(0, 4)]), whole)


def test_an_array_that_the_session_has_begun_keeps_its_chunks(tmp_path: Path) -> None:
    """Making it again changes nothing in the same session; another session replaces it."""
    path = tmp_path / "x.zarr"
    written(path, (4,), (2,), "float64")

    create_array(path, (4,), (2,), "float64", "session")
    assert absent_chunks(path, (2,)) == []
    create_array(path, (4,), (2,), "float64", "another")
    assert absent_chunks(path, (2,)) == ["0", "1"]


def test_an_array_of_the_only_session_has_no_attributes(tmp_path: Path) -> None:
    """Its bytes are the same in each session, and it keeps its chunks unless its shape has changed."""
    path = tmp_path / "x.zarr"
    create_array(path, (4,), (2,), "float64", "")
    write_chunk(path, (0,), np.ones(2), (2,), "float64")

    create_array(path, (4,), (2,), "float64", "")
    assert sorted(each.name for each in path.iterdir()) == [".zarray", "0"]
    create_array(path, (6,), (2,), "float64", "")
    assert absent_chunks(path, (3,)) == ["0", "1", "2"]


def test_what_is_no_array_is_not_replaced(tmp_path: Path) -> None:
    """A directory with other files, or a file, stays as it is."""
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.tex").write_text("all of it")
    file.write_text("text")

    for path in (folder, file):
        with pytest.raises(BadFileError, match="is not a zarr array, and is not replaced by one"):
            create_array(path, (4,), (2,), "float64", "session")
    assert (folder / "thesis.tex").read_text() == "all of it"


def test_parts_of_interrupted_writers_are_removed(tmp_path: Path) -> None:
    """What a killed process has left beside the chunks does not stay in the array."""
    path = tmp_path / "x.zarr"
    written(path, (4,), (2,), "float64")
    (path / ".part-1-00ff").write_bytes(b"half")

    assert absent_chunks(path, (2,)) == []
    assert not list(itertools.chain(path.glob(".part-*")))


@pytest.mark.parametrize(
    ("region", "text"),
    [([slice(0, 5)], r"has the shape \[4\], and values up to \[5\]"), ([slice(0, 1)] * 2, r"values up to \[1, 1\]")],
)
def test_values_that_are_not_there_are_refused(region: list[slice], text: str, tmp_path: Path) -> None:
    """Reading beyond an array, or along axes that it does not have, is an error with both shapes."""
    path = tmp_path / "x.zarr"
    written(path, (4,), (2,), "float64")

    with pytest.raises(BadFileError, match=text):
        read_region(path, region)
    with pytest.raises(BadFileError, match="the directory does not exist"):
        read_region(tmp_path / "none.zarr", region)
