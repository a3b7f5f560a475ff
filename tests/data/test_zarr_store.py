"""Zarr arrays that processes write chunk by chunk."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.data.zarr_store import absent_chunks, create_array, read_region, write_chunk
from dropflow.errors import BadFileError


def written(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str) -> np.ndarray:
    """Write an array of numbers that are counted, and return it."""
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    create_array(path, shape, chunks, dtype, "session")
    for index in np.ndindex(*(-(-length // size) for length, size in zip(shape, chunks, strict=True))):
        region = tuple(slice(one * size, (one + 1) * size) for one, size in zip(index, chunks, strict=True))
        write_chunk(path, index, whole[region], chunks, dtype)
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


def test_the_zarr_library_reads_what_is_written(tmp_path: Path) -> None:
    """The directory is a zarr array for others."""
    zarr = pytest.importorskip("zarr")
    whole = written(tmp_path / "x.zarr", (5, 7), (2, 3), "float32")

    assert np.array_equal(zarr.open_array(str(tmp_path / "x.zarr"), mode="r")[:], whole)


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
