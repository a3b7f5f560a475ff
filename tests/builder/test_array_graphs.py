"""Arrays in graphs that are written in Python."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow import Graph
from dropflow.errors import UsageError
from dropflow.graph.physical import PhysicalGraph
from tests.array_drawings import ArrayDrawing, run_graph, stored
from translator.pipeline import translate


def count(slices: Any, shape: Any, first: int) -> Any:
    """Return numbers that are counted from `first`."""
    import numpy  # noqa: ICN001, PLC0415 - code of a graph imports what it uses

    return (numpy.arange(numpy.prod(shape)).reshape(shape) + first)[slices].astype(float)


def scaled(x: Any, factors: Any) -> Any:
    """Return rows times their factors."""
    return x * factors[:, None]


def low(x: Any, axis: Any) -> Any:
    """Return the least values."""
    return x.min(axis)


def lowest(parts: Any) -> Any:
    """Return the least of several results."""
    import functools  # noqa: PLC0415 - as above

    import numpy  # noqa: ICN001, PLC0415

    return functools.reduce(numpy.minimum, parts)


def built() -> Graph:
    """Return a graph with all kinds of applications on arrays."""
    with Graph("arrays") as graph:
        x = graph.source(graph.array([6, 4], [2, 3], name="x"), count, first=1)
        factors = graph.source(graph.array([6], [2], name="factors"), count, first=0)
        y = graph.array([6, 4], [2, 3], name="y")
        graph.blockwise("x: ij, factors: i -> ij", y, scaled, x=x, factors=factors)
        graph.reduction("x: ij -> i", graph.array([6], [2], name="sums", store="sums.zarr"), "sum", x=y)
        graph.reduction("x: ij -> j", graph.array([4], [3], name="low", store="low.zarr"), low, combine=lowest, x=y)
        packed = {"id": "bz2", "level": 9}
        graph.rechunk(y, graph.array([6, 4], [4, 2], name="stored", store="y.zarr", compressor=packed))
    return graph


def test_a_graph_of_python_runs(tmp_path: Path) -> None:
    """Sources, blockwise functions, reductions and changes of chunks have the values of numpy."""
    graph = built()
    result = run_graph(tmp_path / "run", translate(graph.document()).graph)
    expected = (np.arange(24).reshape(6, 4) + 1) * np.arange(6)[:, None]

    assert graph.check() == ()
    assert result.failures == ()
    assert np.array_equal(stored(tmp_path / "run", "y.zarr", (6, 4)), expected)
    assert np.array_equal(stored(tmp_path / "run", "sums.zarr", (6,)), expected.sum(axis=1))
    assert np.array_equal(stored(tmp_path / "run", "low.zarr", (4,)), expected.min(axis=0))


def centred(x: Any, mean: Any = 0.0) -> Any:
    """Return half of what differs from a mean."""
    return (x - mean) / 2


def test_a_loop_carries_arrays(tmp_path: Path) -> None:
    """Each chunk goes to the next iteration, and so does what a reduction makes; the last array is used after it."""
    with Graph("loops") as graph:
        x = graph.source(graph.array([6, 4], [2, 3], name="x"), count, first=1)
        means = graph.source(graph.array([4], [3], name="means"), count, first=1)
        with graph.loop(iterations=3) as loop:
            carried, carried_mean = loop.carry(x), loop.carry(means)
            y = graph.array([6, 4], [2, 3], name="y")
            graph.blockwise("x: ij, mean: j -> ij", y, centred, x=carried, mean=carried_mean)
            loop.again(carried, y)
            loop.again(carried_mean, graph.reduction("x: ij -> j", graph.array([4], [3], name="mean"), "mean", x=y))
        graph.rechunk(loop.last(y), graph.array([6, 4], [4, 2], name="stored", store="y.zarr"))

    result = run_graph(tmp_path / "run", translate(graph.document()).graph)
    expected, mean = np.arange(24.0).reshape(6, 4) + 1, np.arange(4.0) + 1
    for _ in range(3):
        expected = (expected - mean) / 2
        mean = expected.mean(axis=0)

    assert graph.check() == ()
    assert result.failures == ()
    assert np.allclose(stored(tmp_path / "run", "y.zarr", (6, 4)), expected, rtol=1e-12)


def shape_of(graph: PhysicalGraph) -> Any:
    """Return the drops of each class, and how many edges join two of them, whatever their names are."""
    kinds = [(template.component, template.shape) for template in graph.templates]
    counts = np.bincount(graph.template, minlength=len(kinds)).tolist()
    links = np.bincount(graph.successors.link, minlength=len(graph.links)).tolist()
    ends = [(kinds[link.source], kinds[link.target]) for link in graph.links]
    return sorted(zip(kinds, counts, strict=True)), sorted(zip(ends, links, strict=True))


def test_a_graph_of_python_is_the_drawn_graph() -> None:
    """The physical graph is that of the same graph drawn in EAGLE: the same drops, and the same edges."""
    drawn = ArrayDrawing("arrays").array("x", [6, 4], [2, 3]).array("factors", [6], [2]).array("y", [6, 4], [2, 3])
    drawn.array("sums", [6], [2], store="sums.zarr").array("low", [4], [3], store="low.zarr")
    drawn.array("stored", [6, 4], [4, 2], store="y.zarr").source("x").source("factors")
    drawn.blockwise("scaled", "x: ij, factors: i -> ij", "def f(x, factors): ...", "x", "factors")
    names = {"func_name": "low", "func_code": "def low(x): ...", "combine_name": "builtins.sum"}
    drawn.reduction("sum", "ij -> i").reduction("lowest", "ij -> j", "function", **names).rechunk("change")
    drawn.read("x", "scaled", "x").read("factors", "scaled", "factors").link("scaled", "y", "sum", "sums")
    drawn.link("y", "lowest", "low").link("y", "change", "stored")

    assert shape_of(translate(built().document()).graph) == shape_of(translate(drawn.graph()).graph)


@pytest.mark.parametrize(
    ("method", "text"),
    [("median", "the method 'median' of a reduction is not one of sum"), (low, "needs another one that combines")],
)
def test_a_reduction_that_cannot_be_is_refused(method: Any, text: str) -> None:
    """A call that is wrong raises, and adds nothing."""
    with Graph("arrays") as graph:
        x, y = graph.array([4], [2]), graph.array([], [])
        before = msgspec.json.encode(len(graph.drawing.nodes))
        with pytest.raises(UsageError, match=text):
            graph.reduction("x: i ->", y, method, x=x)

    assert msgspec.json.encode(len(graph.drawing.nodes)) == before
