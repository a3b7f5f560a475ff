"""Applications on arrays, tiled and run, make what numpy makes of the whole arrays."""

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.data.zarr_store import create_array, write_chunk
from dropflow.states import SessionState
from tests.array_drawings import ArrayDrawing, chunk_lengths, run_in, stored, tilings

METHODS = ("sum", "prod", "min", "max", "mean", "any", "all")
_LETTERS = "ijk"


def counted(shape: list[int]) -> Any:
    """Return what sources of drawings make."""
    return np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)


@pytest.mark.slow
@settings(max_examples=20)
@given(tilings(), st.data())
def test_tiled_graphs_make_what_numpy_makes(
    tiling: tuple[list[int], list[Any], list[Any], list[int]], data: st.DataObject
) -> None:
    """A source, a function of each chunk, a change of chunks and a reduction give the result of the whole arrays."""
    shape, before, after, regular = tiling
    labels = _LETTERS[: len(shape)]
    kept = "".join(label for label in labels if data.draw(st.booleans(), label=label))
    method = data.draw(st.sampled_from(METHODS))
    at = [labels.index(label) for label in kept]
    small, chunks = [shape[axis] for axis in at], [after[axis] for axis in at]
    drawing = ArrayDrawing().array("x", shape, before).array("y", shape, before).array("z", shape, after)
    drawing.array("whole", shape, regular, store="whole.zarr").array("r", small, chunks)
    drawing.array("reduced", small, [regular[axis] for axis in at], store="reduced.zarr").source("x")
    drawing.blockwise("f", f"{labels} -> {labels}", "def f(x):\n    return (x % 5 + 1) / 2\n")
    drawing.reduction("reduce", f"{labels}->{kept}", method, split=data.draw(st.integers(2, 9)))
    drawing.rechunk("one").rechunk("two").rechunk("three")
    drawing.link("x", "f", "y", "one", "z", "two", "whole").link("z", "reduce", "r", "three", "reduced")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "run")
        result = run_in(directory, drawing)
        found = stored(directory, "whole.zarr", shape), stored(directory, "reduced.zarr", small)

    assert result.status is SessionState.FINISHED, result.failures
    expected = (counted(shape) % 5 + 1) / 2
    axes = tuple(axis for axis, label in enumerate(labels) if label not in kept)
    assert np.array_equal(found[0], expected)
    assert np.allclose(found[1], getattr(np, method)(expected, axis=axes), rtol=1e-12)


@pytest.mark.slow
@settings(max_examples=10)
@given(st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6)), st.data())
def test_labels_of_no_output_are_given_whole(sizes: tuple[int, int, int], data: st.DataObject) -> None:
    """A product of matrices is a blockwise application whose inner label no output has, whatever the chunks are."""
    rows, inner, columns = sizes
    one, other = data.draw(chunk_lengths(inner)), data.draw(chunk_lengths(inner))
    down, across = (data.draw(st.integers(1, size)) for size in (rows, columns))
    drawing = ArrayDrawing().array("a", [rows, inner], [down, one]).array("b", [inner, columns], [other, across])
    drawing.array("c", [rows, columns], [down, across], store="c.zarr").source("a").source("b")
    drawing.blockwise("product", "x: ij, y: jk -> ik", "def f(x, y):\n    return x @ y\n", "x", "y")
    drawing.read("a", "product", "x").read("b", "product", "y").link("product", "c")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "run")
        result = run_in(directory, drawing)
        found = stored(directory, "c.zarr", (rows, columns))

    assert result.status is SessionState.FINISHED, result.failures
    assert np.array_equal(found, counted([rows, inner]) @ counted([inner, columns]))


def test_a_reduction_with_functions(tmp_path: Path) -> None:
    """Functions of the graph reduce chunks, combine lists of any results, and make the chunk of the last one."""
    code = (
        "def spread(chunk, axis):\n    return {'low': chunk.min(axis), 'high': chunk.max(axis)}\n"
        "def merge(parts):\n    import numpy as np\n"
        "    return {'low': np.min([p['low'] for p in parts], 0), 'high': np.max([p['high'] for p in parts], 0)}\n"
        "def width(part):\n    return part['high'] - part['low']\n"
    )
    names = {"func_name": "spread", "combine_name": "merge", "finish_name": "width", "func_code": code}
    drawing = ArrayDrawing().array("x", [9, 4], [2, 3]).array("y", [4], [3], store="y.zarr").source("x")
    drawing.reduction("spread", "ij -> j", "function", split=2, **names).link("x", "spread", "y")
    result = run_in(tmp_path / "run", drawing)

    assert result.status is SessionState.FINISHED, result.failures
    assert stored(tmp_path / "run", "y.zarr", [4]).tolist() == [32.0] * 4


def test_an_array_is_read_from_a_store_that_exists(tmp_path: Path) -> None:
    """An array without an application that makes it is read from its store; chunks need not be those of the store."""
    whole = counted([5, 6])
    path = tmp_path / "given.zarr"
    create_array(path, (5, 6), (2, 4), "float64", "other")
    for index in np.ndindex(3, 2):
        region = tuple(slice(one * size, (one + 1) * size) for one, size in zip(index, (2, 4), strict=True))
        write_chunk(path, index, whole[region], (2, 4), "float64")
    drawing = ArrayDrawing().array("x", [5, 6], [3, 5], store=str(path)).array("y", [5], [3], store="y.zarr")
    drawing.reduction("sum", "ij -> i").link("x", "sum", "y")
    result = run_in(tmp_path / "run", drawing)

    assert result.status is SessionState.FINISHED, result.failures
    assert stored(tmp_path / "run", "y.zarr", [5]).tolist() == whole.sum(axis=1).tolist()


def test_ordinary_applications_meet_arrays_at_their_stores(tmp_path: Path) -> None:
    """One that reads an array waits for all its chunks and gets the store; chunks are read from what another writes."""
    copy, directory = "dlg.apps.simple.CopyApp", "dlg.data.drops.directory.DirectoryDROP"
    drawing = ArrayDrawing().array("x", [7], [2], store="x.zarr").array("y", [7], [3], store="y.zarr").source("x")
    drawing.array("z", [], [], store="z.zarr").reduction("sum", "i ->").app("copy", dropclass=copy)
    drawing.app("keep", dropclass=copy).data("kept", "Directory", dropclass=directory, dirname="kept.zarr")
    drawing.link("x", "copy", "y", "sum", "z", "keep", "kept")
    result = run_in(tmp_path / "run", drawing)

    assert result.status is SessionState.FINISHED, result.failures
    assert stored(tmp_path / "run", "kept.zarr", ()) == 21
    assert stored(tmp_path / "run", "y.zarr", [7]).tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("def f(x): return x[:1]", r"the result of f\(\) has the shape \[1\], and the chunk \[2\]"),
        ("def f(x): return 1j * x", r"the result of f\(\) has the type complex128, and the array float64"),
        ("def f(x): return 'two'", r"the result of f\(\) is a str, not an array of numbers"),
    ],
)
def test_a_function_that_returns_no_chunk_fails(code: str, text: str, tmp_path: Path) -> None:
    """A result of another shape or type is an error with both, and no silent conversion."""
    drawing = ArrayDrawing().array("x", [2], [2]).array("y", [2], [2]).source("x")
    drawing.blockwise("f", "i -> i", code).link("x", "f", "y")
    result = run_in(tmp_path / "run", drawing)

    assert re.search(text, result.failures[0].text)


def test_copies_of_an_array_have_their_own_stores(tmp_path: Path) -> None:
    """Inside a scatter each copy has an array of its own, in a store of its own."""
    drawing = ArrayDrawing()
    with drawing.scatter("three", 3):
        drawing.array("x", [4], [2], store="part-{auto}.zarr").source("x")
    result = run_in(tmp_path / "run", drawing)

    assert result.status is SessionState.FINISHED, result.failures
    stores = sorted(path.name for path in (tmp_path / "run" / "files").iterdir())
    assert len(stores) == 3
    assert all(stored(tmp_path / "run", name, [4]).tolist() == [0, 1, 2, 3] for name in stores)
