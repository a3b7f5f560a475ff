"""Which box each drop is in."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.daliuge_read import read_pg
from dropflow.graph.drawing.boxes import boxes_by_construct, boxes_by_place, boxes_by_template
from dropflow.graph.drawing.draw import Drawing, Grouping, draw
from dropflow.graph.drawing.packing import narrowest, pack_columns, pack_drawing, pack_edges
from dropflow.graph.logical_drawing import LogicalDrawing, draw_logical, scale_for, separated
from dropflow.graph.order import (
    critical,
    downstream,
    matching,
    of_template,
    taken_along,
    upstream,
    waiting_chain,
    waits_for,
)
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template
from dropflow.states import DropState
from tests.regular_graphs import chain, fan, triples
from translator.pipeline import translate


def nested(rows: int, cells: int) -> PhysicalGraph:
    """Return drops without edges: one outside, one in each row, and one in each cell of each row."""
    row = Axis("r", "Row", "scatter", rows)
    cell = Axis("c", "Cell", "scatter", cells)
    return from_columns(
        name="nested",
        prefix="n",
        templates=(
            Template(key="a", name="outside", kind=Kind.DATA),
            Template(key="b", name="row", kind=Kind.DATA, axes=(row,)),
            Template(key="c", name="cell", kind=Kind.DATA, axes=(row, cell)),
        ),
        links=(),
        template=np.repeat(np.arange(3, dtype=np.int32), [1, rows, rows * cells]),
        instance=np.concatenate([np.arange(count) for count in (1, rows, rows * cells)]).astype(np.int32),
        source=np.zeros(0, dtype=np.int32),
        target=np.zeros(0, dtype=np.int32),
        link=np.zeros(0, dtype=np.int32),
    )


def test_each_instance_of_a_construct_has_a_box() -> None:
    """Drops outside of constructs have a box of their logical node, and boxes have the indices of their instance."""
    boxes = boxes_by_construct(nested(2, 2))

    assert boxes.labels == ("outside", "Row 0", "Row 1", "Cell 0-0", "Cell 0-1", "Cell 1-0", "Cell 1-1")
    assert boxes.box.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert boxes.construct.tolist() == [-1, 0, 0, 1, 1, 1, 1]
    assert [(construct.path, construct.parent, construct.instances) for construct in boxes.constructs] == [
        ("r", -1, 2),
        ("r/c", 0, 4),
    ]


def test_a_closed_construct_is_in_the_box_around_it() -> None:
    """If an inner construct is closed, its drops are with the outer instance; if an outer one is, all are together."""
    inner = boxes_by_construct(nested(2, 2), {1: False})
    outer = boxes_by_construct(nested(2, 2), {0: False})

    assert (inner.labels, inner.box.tolist()) == (("outside", "Row 0", "Row 1"), [0, 1, 2, 1, 1, 2, 2])
    assert (outer.labels, outer.box.tolist()) == (("outside", "Row"), [0, 1, 1, 1, 1, 1, 1])


def test_a_construct_with_very_many_instances_has_boxes_of_ranges() -> None:
    """The boxes stay few: ranges of 1, 2, 5, 10 and so on. An inner construct with many instances begins closed."""
    ranges = boxes_by_construct(fan(100_000))
    closed = boxes_by_construct(nested(10, 1000))
    opened = boxes_by_construct(nested(10, 1000), {1: True})

    assert ranges.labels[:3] == ("root", "fan 0–199", "fan 200–399")  # noqa: RUF001 - as it is shown
    assert len(ranges.labels) == 251
    assert len(closed.labels) == 11
    assert len(opened.labels) == 1 + 10 + 2000


def test_the_other_kinds_of_boxes() -> None:
    """A box is a logical node, a part, or a node or an island with all of its parts."""
    graph = triples(30, 3)

    assert boxes_by_template(graph).labels == ("in", "app", "out")
    assert boxes_by_place(graph).labels == ("part 0", "part 1", "part 2")
    assert boxes_by_place(graph, ("x", "y", "x")).labels == ("x", "y")
    counts = np.bincount(boxes_by_place(graph, ("x", "y", "x")).box)
    assert counts.tolist() == [int((graph.part != 1).sum()), int((graph.part == 1).sum())]


def test_copies_of_other_programs_are_drawn_by_their_number() -> None:
    """Lists of drops have no names of constructs: nodes with as many copies share boxes and a frame, others do not."""
    copies = (("A", 3), ("B", 7), ("C", 3))
    document = [
        {"oid": f"{key}{at}", "iid": f"0-{at}", "lg_key": key, "categoryType": "Data", "category": "Memory"}
        for key, count in copies
        for at in range(count)
    ]
    graph = read_pg(document, name="drops")

    drawing = draw(graph)

    assert drawing.boxes.box.tolist() == [*range(10), 0, 1, 2]
    assert pack_drawing(graph, drawing)
    assert [frame.size for frame in draw_logical(graph).frames] == [3, 7]


def test_drops_that_each_have_a_logical_node_are_together_by_level() -> None:
    """A graph without constructs, with as many logical nodes as drops, has boxes of levels."""
    drops = 4000
    graph = from_columns(
        name="flat",
        prefix="f",
        templates=tuple(Template(key=str(row), name=str(row), kind=Kind.DATA) for row in range(drops)),
        links=(),
        template=np.arange(drops, dtype=np.int32),
        instance=np.zeros(drops, dtype=np.int32),
        source=np.zeros(0, dtype=np.int32),
        target=np.zeros(0, dtype=np.int32),
        link=np.zeros(0, dtype=np.int32),
    )

    assert boxes_by_construct(graph).labels == ("level 0",)


_TYPES = {"u8": "u1", "u16": "<u2", "u32": "<u4", "f32": "<f4"}


def unpack_columns(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read the head and the columns as the script of the page does."""
    start = 4 + int.from_bytes(data[:4], "little")
    head = msgspec.json.decode(data[4:start])
    found = {
        entry["name"]: np.frombuffer(data, _TYPES[entry["type"]], entry["length"], start + entry["at"])
        for entry in head.pop("columns")
    }
    return head, found


def test_columns_are_read_as_they_were_written() -> None:
    """Head, names, types and values are the same, and each column begins at a multiple of four octets."""
    columns = {
        "small": np.array([1, 2, 3], dtype=np.uint8),
        "none": np.zeros(0, dtype=np.uint16),
        "place": np.array([0.5, -2.0], dtype=np.float32),
        "row": np.array([1 << 20], dtype=np.uint32),
    }
    data = pack_columns({"name": "ä"}, columns)
    head, found = unpack_columns(data)

    assert head == {"name": "ä"}
    assert {name: (column.dtype, column.tolist()) for name, column in found.items()} == {
        name: (column.dtype, column.tolist()) for name, column in columns.items()
    }
    addresses = [int(column.__array_interface__["data"][0]) for column in found.values() if len(column)]
    first = int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])
    assert {(address - first) % 4 for address in addresses} == {0}


def test_a_column_that_a_browser_does_not_read_is_refused() -> None:
    """Such as one of int64."""
    with pytest.raises(ValueError, match="column 'x' has type int64, which a browser does not read"):
        pack_columns({}, {"x": np.zeros(1, dtype=np.int64)})


def test_numbers_take_no_more_room_than_they_need() -> None:
    """One octet up to 255, two up to 65,535, else four."""
    sizes = [narrowest(np.array([most])).dtype.itemsize for most in (0, 255, 256, 65_535, 65_536)]

    assert sizes == [1, 1, 2, 2, 4]


def test_a_drawing_has_all_that_a_browser_needs() -> None:
    """The ids of drops follow from the head and the columns; edges are in the order of the graph."""
    graph = fan(10)
    head, columns = unpack_columns(pack_drawing(graph, draw(graph)))
    _, edges = unpack_columns(pack_edges(graph))

    assert (head["drops"], head["edges"], head["prefix"], head["named"]) == (11, 10, "fan", False)
    assert [template["key"] for template in head["templates"]] == ["r", "a", "d"]
    assert columns["instance"].tolist() == graph.instance.tolist()
    assert {len(columns[name]) for name in ("box", "column", "row", "template", "instance", "part")} == {11}
    assert edges["target"].tolist() == graph.successors.neighbour.tolist()


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


@pytest.mark.slow
@pytest.mark.parametrize("drops", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("shape", SHAPES, ids=["fan", "chain", "triples"])
def test_every_drop_has_a_cell_of_its_own(shape: Callable[[int], PhysicalGraph], drops: int) -> None:
    """At each size and for each kind of box; and the drawing is about as wide as it is wanted."""
    graph = shape(drops)
    groupings: tuple[Grouping, ...] = get_args(Grouping) if drops < 100_000 else ("construct", "part")
    for grouping in groupings:
        drawing = draw(graph, grouping)

        check(graph, drawing)
        assert 0.6 < drawing.positions.whole_width / drawing.positions.whole_height < 6
        assert len(drawing.boxes.labels) <= 500


@given(graph=layered(), grouping=st.sampled_from(get_args(Grouping)), aspect=st.sampled_from([0.6, 1.7]))
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


def reached(graph: PhysicalGraph, drop: int, may_pass: list[bool], *, backward: bool = False) -> set[int]:
    """Return what is reached from a drop over drops that may be passed, one step at a time."""
    edges = graph.predecessors if backward else graph.successors
    seen, left = {drop}, [drop]
    while left:
        here = left.pop()
        for near in edges.neighbour[edges.ptr[here] : edges.ptr[here + 1]].tolist():
            if may_pass[near] and near not in seen:
                seen.add(near)
                left.append(near)
    return seen


@given(graph=layered(), data=st.data())
def test_what_is_reached_is_what_a_walk_finds(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Upstream, downstream, and over drops in some states only."""
    drop = data.draw(st.integers(0, graph.drops - 1))
    states = np.array(
        data.draw(st.lists(st.integers(0, 7), min_size=graph.drops, max_size=graph.drops)), dtype=np.uint8
    )
    all_of_them = [True] * graph.drops
    is_error = (states == DropState.ERROR).tolist()
    is_open = (states <= DropState.WRITING).tolist()

    assert set(downstream(graph, drop).tolist()) == reached(graph, drop, all_of_them)
    assert set(upstream(graph, drop).tolist()) == reached(graph, drop, all_of_them, backward=True)
    assert set(taken_along(graph, drop, states).tolist()) == reached(graph, drop, is_error)
    assert set(waits_for(graph, drop, states).tolist()) == reached(graph, drop, is_open, backward=True)


@given(graph=layered(), data=st.data())
def test_a_waiting_chain_ends_where_nothing_is_waited_for(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Each drop of it but the first is an open input of the one before, and the last one has no open input."""
    states = np.array(
        data.draw(st.lists(st.integers(0, 7), min_size=graph.drops, max_size=graph.drops)), dtype=np.uint8
    )
    found = waiting_chain(graph, data.draw(st.integers(0, graph.drops - 1)), states).tolist()
    ptr, neighbour = graph.predecessors.ptr, graph.predecessors.neighbour
    open_inputs = [
        {near for near in neighbour[ptr[drop] : ptr[drop + 1]].tolist() if states[near] <= DropState.WRITING}
        for drop in found
    ]

    assert all(after in near for after, near in zip(found[1:], open_inputs, strict=False))
    assert open_inputs[-1] == set()


def test_drops_are_found_by_text_and_by_logical_node() -> None:
    """Text is in the id or in the name of the logical node; case does not matter."""
    graph = fan(6)

    assert matching(graph, "ROOT").tolist() == [0]
    assert matching(graph, "a_0-1").tolist() == [2]
    assert matching(graph, "nothing").tolist() == []
    assert of_template(graph, "d").tolist() == [4, 5, 6]


def test_the_critical_path_is_in_its_order() -> None:
    """From first to last."""
    assert critical(chain(6)).tolist() == [0, 1, 2, 3, 4]


# Drawings of logical graphs.


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.graph"))
Box = tuple[float, float, float, float]


def sides(drawing: LogicalDrawing) -> tuple[list[Box], list[Box]]:
    """Return the sides of nodes and of frames."""
    wide, high = drawing.node_width, drawing.node_height
    nodes = [(node.x, node.y, node.x + wide, node.y + high) for node in drawing.nodes]
    frames = [(frame.x, frame.y, frame.x + frame.width, frame.y + frame.height) for frame in drawing.frames]
    return nodes, frames


def overlap(one: Box, two: Box) -> bool:
    """Whether two rectangles have a common area."""
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def inside(inner: Box, outer: Box) -> bool:
    """Whether a rectangle is in another one."""
    return inner[0] >= outer[0] and inner[1] >= outer[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def logical_drawing_check(graph: PhysicalGraph) -> None:
    """Assert that nothing overlaps, and that each node is in the frames of its constructs and in no other."""
    drawing = draw_logical(graph)
    nodes, frames = sides(drawing)
    assert len(nodes) == len(graph.templates)
    assert not any(overlap(one, two) for one, two in combinations(nodes, 2))
    assert all(inside(one, two) or inside(two, one) or not overlap(one, two) for one, two in combinations(frames, 2))
    whole = (0.0, 0.0, drawing.width + 0.01, drawing.height + 0.01)
    assert all(inside(one, whole) for one in (*nodes, *frames))
    for node, place in zip(drawing.nodes, nodes, strict=True):
        around = [frame for frame, box in zip(drawing.frames, frames, strict=True) if inside(place, box)]
        axes = graph.templates[node.template].axes  # the chunks of an array are its drops, and no construct
        assert [frame.name for frame in around] == [axis.name for axis in axes if axis.kind not in ("chunk", "store")]


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_examples_are_drawn_without_overlaps(path: Path) -> None:
    """Each node is in the frames of its constructs, the outer ones first."""
    logical_drawing_check(translate(path).graph)


@pytest.mark.slow
def test_thousands_of_logical_nodes_are_drawn() -> None:
    """The time does not grow with the square of the nodes, and a chain has a column for each."""
    builder = GraphBuilder().data("d0")
    for number in range(1, 3_000):
        builder.app(f"a{number}").data(f"d{number}")
        builder.connect(f"d{number - 1}", f"a{number}").connect(f"a{number}", f"d{number}")
    nodes = draw_logical(builder.build()).nodes

    assert len({node.x for node in nodes}) == len(nodes)


def test_links_lead_to_the_right_unless_they_carry() -> None:
    """A link to the next iteration of a loop leads back."""
    logical_drawing_check(fan(10))
    drawing = draw_logical(chain(10))
    nodes = {node.template: node for node in drawing.nodes}

    assert [nodes[arrow.source].x < nodes[arrow.target].x for arrow in drawing.arrows] == [True, False]
    assert [arrow.is_carry for arrow in drawing.arrows] == [False, True]


_NUMBERS = st.integers(-300, 300).map(float)
_SIDES = st.integers(1, 200).map(float)


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, _SIDES, _SIDES), min_size=1, max_size=12))
def test_rectangles_do_not_overlap_and_move_right_or_down_only(given: list[tuple[float, ...]]) -> None:
    """Each two have the gap between them in one direction at least; also if they are wanted in one place."""
    rows = np.array(given)
    places, sizes = rows[:, :2], rows[:, 2:]
    found = separated(places, sizes, (7.0, 5.0))

    assert (found >= places).all()
    for one, two in combinations(range(len(rows)), 2):
        needed = (sizes[one] + sizes[two]) / 2 + (7.0, 5.0)
        assert (np.abs(found[one] - found[two]) >= needed - 1e-9).any()


def test_rectangles_with_enough_room_stay() -> None:
    """Where they were drawn apart, nothing moves."""
    places = np.array([[0.0, 0.0], [300.0, 10.0], [20.0, 200.0]])
    assert (separated(places, np.full((3, 2), 100.0), (10.0, 10.0)) == places).all()


def test_the_scale_is_that_at_which_nodes_fit() -> None:
    """Nodes that are drawn near each other move apart, those far apart come nearer, both within limits."""
    row = np.array([[0.0, 0.0], [100.0, 3.0], [200.0, 0.0]])
    assert scale_for(row, 150.0, 60.0) == pytest.approx(1.5)
    assert scale_for(row * 2, 150.0, 60.0) == pytest.approx(0.75)
    assert scale_for(row / 100, 150.0, 60.0) == 2.5
    assert scale_for(row * 100, 150.0, 60.0) == 0.3
    assert scale_for(row[:1], 150.0, 60.0) == 1.0
