"""Drawings of whole graphs."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.build import from_columns
from dropflow.graph.drawing import GROUPINGS, Drawing, Grouping, draw
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template
from dropflow.testing.drawing import chain, fan, triples

SHAPES = (fan, chain, lambda drops: triples(drops, 4))


@st.composite
def layered(draw_: st.DrawFn) -> PhysicalGraph:
    """Return a graph of two logical nodes, data and applications in turn, with edges from lower to higher rows."""
    drops = draw_(st.integers(1, 40))
    pairs = st.tuples(st.integers(0, drops - 1), st.integers(0, drops - 1))
    edges = sorted({(min(pair), max(pair)) for pair in draw_(st.lists(pairs, max_size=80)) if sum(pair) % 2})
    rows = np.arange(drops, dtype=np.int32)
    axes = (Axis("c", "copies", "scatter", drops),)
    return from_columns(
        name="layered",
        prefix="l",
        templates=(
            Template(key="d", name="data", kind=Kind.DATA, axes=axes),
            Template(key="a", name="app", kind=Kind.APP, axes=axes),
        ),
        links=(Link(source=0, target=1), Link(source=1, target=0)),
        template=rows % 2,
        instance=rows // 2,
        source=np.array([one for one, _ in edges], dtype=np.int32),
        target=np.array([two for _, two in edges], dtype=np.int32),
        link=np.array([one % 2 for one, _ in edges], dtype=np.int32),
        part=rows % 3,
    )


def check(graph: PhysicalGraph, drawing: Drawing) -> None:
    """Assert what holds for every drawing."""
    box, cells, places = drawing.boxes.box, drawing.cells, drawing.positions
    assert len(np.unique(box)) == len(drawing.boxes.labels)
    cell = (box.astype(np.int64) * graph.drops + cells.column) * graph.drops + cells.row
    assert len(np.unique(cell)) == graph.drops
    assert (cells.column >= 0).all()
    assert (cells.row >= 0).all()
    assert (cells.column < cells.columns[box]).all()
    assert (cells.row < cells.rows[box]).all()
    assert float(places.x.min()) >= 0
    assert float(places.y.min()) >= 0
    assert float((places.x + places.width).max()) <= places.whole_width + 1
    assert float((places.y + places.height).max()) <= places.whole_height + 1
    tops, bottoms = np.array(places.lines, dtype=np.float64).T
    assert (tops[1:] > bottoms[:-1] + 100).all()  # room for the edges that lead from one line to the next
    line = np.searchsorted(bottoms, places.y + places.height / 2)
    assert (places.y >= tops[line] - 1).all()
    assert (places.y + places.height <= bottoms[line] + 1).all()


def overlapping(drawing: Drawing) -> list[tuple[int, int]]:
    """Return the pairs of boxes that overlap, by comparing all of them."""
    places = drawing.positions
    sides = list(zip(places.x, places.y, places.x + places.width, places.y + places.height, strict=True))
    return [
        (one, two)
        for one, two in combinations(range(len(sides)), 2)
        if sides[one][0] < sides[two][2]
        and sides[two][0] < sides[one][2]
        and sides[one][1] < sides[two][3]
        and sides[two][1] < sides[one][3]
    ]


@pytest.mark.parametrize("drops", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("shape", SHAPES, ids=["fan", "chain", "triples"])
def test_every_drop_has_a_cell_of_its_own(shape: Callable[[int], PhysicalGraph], drops: int) -> None:
    """At each size and for each kind of box; and the drawing is about as wide as it is wanted."""
    graph = shape(drops)
    groupings: tuple[Grouping, ...] = GROUPINGS if drops < 100_000 else ("construct", "part")
    for grouping in groupings:
        drawing = draw(graph, grouping)

        check(graph, drawing)
        assert 0.6 < drawing.positions.whole_width / drawing.positions.whole_height < 6
        assert len(drawing.boxes.labels) <= 500


@given(graph=layered(), grouping=st.sampled_from(GROUPINGS), aspect=st.sampled_from([0.6, 1.7]))
def test_boxes_do_not_overlap(graph: PhysicalGraph, grouping: Grouping, aspect: float) -> None:
    """Whatever the edges are; and each pair of boxes has the number of its edges, and of those between two parts."""
    drawing = draw(graph, grouping, aspect=aspect)
    check(graph, drawing)
    assert overlapping(drawing) == []

    box, expected = drawing.boxes.box, dict[tuple[int, int], list[int]]()
    for source in range(graph.drops):
        for target in graph.successors.neighbour[graph.successors.ptr[source] : graph.successors.ptr[source + 1]]:
            if box[source] != box[target]:
                counted = expected.setdefault((int(box[source]), int(box[target])), [0, 0])
                counted[0] += 1
                counted[1] += int(graph.part[source] != graph.part[target])
    pairs = drawing.pairs
    ends = zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)
    assert (
        dict(zip(ends, map(list, zip(pairs.edges.tolist(), pairs.cut.tolist(), strict=True)), strict=True)) == expected
    )


def test_edges_lead_to_the_right() -> None:
    """In a drawing of one line, each box is right of those that it depends on, and so is each drop in its box."""
    graph = fan(40)
    drawing = draw(graph)
    places, pairs = drawing.positions, drawing.pairs

    assert (places.x[pairs.source] < places.x[pairs.target]).all()
    together = draw(graph, "part").cells
    source = np.repeat(np.arange(graph.drops), np.diff(graph.successors.ptr))
    assert (together.column[source] < together.column[graph.successors.neighbour]).all()


def test_an_empty_graph_has_an_empty_drawing() -> None:
    """No boxes, and no size."""
    nothing = np.zeros(0, dtype=np.int32)
    graph = from_columns(
        name="", prefix="", templates=(), links=(), template=nothing, instance=nothing, source=nothing, target=nothing,
        link=nothing,
    )  # fmt: skip
    drawing = draw(graph)

    assert drawing.boxes.labels == ()
    assert (drawing.positions.whole_width, drawing.positions.whole_height) == (0.0, 0.0)
