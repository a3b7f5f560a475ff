"""Drawings of logical graphs."""

from itertools import combinations
from pathlib import Path

import pytest

from dropflow.graph.logical_drawing import LogicalDrawing, draw_logical
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.drawing import chain, fan
from translator.pipeline import translate

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.graph"))
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
