"""Which box each drop is in."""

import numpy as np

from dropflow.graph.build import from_columns
from dropflow.graph.drawing import boxes_by_construct, boxes_by_place, boxes_by_template
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Template
from dropflow.testing.drawing import fan, triples


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
    assert [(one.path, one.parent, one.instances) for one in boxes.constructs] == [("r", -1, 2), ("r/c", 0, 4)]


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
