"""Drawings of arrays and of the applications on them, for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from dropflow import local
from dropflow.data.zarr_store import read_region
from dropflow.engine.reports import SessionResult
from dropflow.graph.physical import PhysicalGraph
from tests.translator.drawing import Drawing
from translator.logical import Field
from translator.pipeline import translate

__all__ = ["ArrayDrawing", "chunk_lengths", "run_in", "stored", "tilings"]

SOURCE = """
import numpy as np
def make(slices, shape, dtype):
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)[slices]
"""


class ArrayDrawing(Drawing):
    """A drawing with arrays. Names of ports are those that functions have for their arguments."""

    def array(self, name: str, shape: Any, chunks: Any, **values: Any) -> "ArrayDrawing":
        """Add an array."""
        self.data(name, dropclass="dropflow.data.Array", shape=shape, chunks=chunks, **values)
        return self

    def source(self, array: str, code: str = SOURCE) -> "ArrayDrawing":
        """Add a source of an array, whose values are counted."""
        name = f"make {array}"
        self.app(name, "PyFuncApp", dropclass="dropflow.apps.ArraySource", func_name="make", func_code=code)
        self.link(name, array)
        return self

    def blockwise(self, name: str, labels: str, code: str, *ports: str, **values: Any) -> "ArrayDrawing":
        """Add a blockwise application, with input ports of these names."""
        fields = {port: Field(id=f"{name}.{port}", name=port, usage="InputPort") for port in ports}
        kind = "dropflow.apps.ArrayBlockwise"
        self.app(name, "PyFuncApp", dropclass=kind, labels=labels, func_name="f", func_code=code, **fields, **values)
        return self

    def reduction(self, name: str, labels: str, method: str = "sum", **values: Any) -> "ArrayDrawing":
        """Add a reduction."""
        kind = "dropflow.apps.ArrayReduction"
        self.app(name, "PyFuncApp", dropclass=kind, labels=labels, method=method, **values)
        return self

    def rechunk(self, name: str) -> "ArrayDrawing":
        """Add an application that changes chunks."""
        self.app(name, dropclass="dropflow.apps.ArrayRechunk")
        return self

    def read(self, array: str, app: str, port: str) -> "ArrayDrawing":
        """Link an array to a port of an application."""
        self.link(array, app, ports=("", f"{app}.{port}"))
        return self


def chunk_lengths(length: int) -> st.SearchStrategy[Any]:
    """Return a strategy of the chunks of an axis: of one length, or of different ones."""
    return st.integers(1, length) | _lists(length)


@st.composite
def _lists(draw: st.DrawFn, length: int) -> list[int]:
    cuts = sorted(draw(st.sets(st.integers(1, length - 1), max_size=4))) if length > 1 else []
    return np.diff([0, *cuts, length]).tolist()


@st.composite
def tilings(draw: st.DrawFn, *, axes: int = 3, longest: int = 7) -> tuple[list[int], list[Any], list[Any], list[int]]:
    """Return a shape, twice its chunks of any lengths, and chunks of one length for each axis."""
    shape = draw(st.lists(st.integers(1, longest), min_size=1, max_size=axes))
    one, other = ([draw(chunk_lengths(length)) for length in shape] for _ in range(2))
    return shape, one, other, [draw(st.integers(1, length)) for length in shape]


def run_in(directory: Path, drawing: Drawing) -> SessionResult:
    """Translate and run a drawing."""
    return run_graph(directory, translate(drawing.graph()).graph)


def run_graph(directory: Path, graph: PhysicalGraph, runner: str = "inline") -> SessionResult:
    """Run a physical graph."""
    return local.run(graph, directory=local.prepare_directory(directory), runner=runner, workers=2)


def stored(directory: Path, name: str, shape: Any) -> npt.NDArray[Any]:
    """Return the values of a store of a session."""
    return read_region(directory / "files" / name, [slice(0, length) for length in shape])
