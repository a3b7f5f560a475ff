"""Drawings of logical graphs."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.logical_drawing import LogicalDrawing, draw_logical, scale_for, separated
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.drawing import chain, fan
from translator.pipeline import translate

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.graph"))
Box = tuple[float, float, float, float]


def sides(drawing: LogicalDrawing) -> tuple[list[Box], list[Box]]:
    """Return the sides of nodes and of frames."""
    wide, high = drawing.node_width, drawing.node_height
    nodes = [(node.x, node.y, node.x + wide, node.y + high) for node in drawing.nodes]
    frames = [(one.x, one.y, one.x + one.width, one.y + one.height) for one in drawing.frames]
    return nodes, frames


def overlap(one: Box, two: Box) -> bool:
    """Whether two rectangles have a common area."""
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def inside(inner: Box, outer: Box) -> bool:
    """Whether a rectangle is in another one."""
    return inner[0] >= outer[0] and inner[1] >= outer[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def check(graph: PhysicalGraph) -> None:
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
    check(translate(path).graph)


def test_links_lead_to_the_right_unless_they_carry() -> None:
    """A link to the next iteration of a loop leads back."""
    check(fan(10))
    drawing = draw_logical(chain(10))
    nodes = {node.template: node for node in drawing.nodes}

    assert [nodes[one.source].x < nodes[one.target].x for one in drawing.arrows] == [True, False]
    assert [one.is_carry for one in drawing.arrows] == [False, True]


# Rectangles that are moved apart.


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
