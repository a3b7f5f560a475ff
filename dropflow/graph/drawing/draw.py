"""Draws a physical graph: its boxes, the cells of its drops, and where the boxes are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dropflow.graph.drawing.boxes import Boxes, boxes_by_construct, boxes_by_place, boxes_by_template
from dropflow.graph.drawing.cells import Cells, cells
from dropflow.graph.drawing.layers import Pairs, layers, ordered, pairs
from dropflow.graph.drawing.positions import Positions, positions
from dropflow.graph.order import levels
from dropflow.graph.physical import PhysicalGraph

Grouping = Literal["construct", "template", "node", "island", "part"]


@dataclass(frozen=True)
class Drawing:
    """A drawing of a graph: what `draw` returns."""

    grouping: Grouping
    boxes: Boxes
    cells: Cells
    positions: Positions
    pairs: Pairs
    level: npt.NDArray[np.int32]


def draw(
    graph: PhysicalGraph,
    grouping: Grouping = "construct",
    *,
    wanted: Mapping[int, bool] | None = None,
    islands: Sequence[str] = (),
    aspect: float = 1.7,
) -> Drawing:
    """Return the drawing of a graph.

    Parameters
    ----------
    grouping : str
        Meaning of a box.
    wanted : mapping of int to bool, optional
        See `boxes_by_construct`.
    islands : sequence of str
        Island of each of `graph.places`; without it, boxes of islands are those of nodes.
    aspect : float
        Width of the drawing, divided by its height, that is aimed at.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    level = levels(graph)
    boxes = _boxes(graph, grouping, wanted, islands)
    count = len(boxes.labels)
    arrows = pairs(graph, boxes.box, count)
    inside = cells(graph, boxes.box, count, level)
    layer = layers(arrows, boxes.box, count, level)
    order = ordered(arrows, layer)
    is_single = (np.bincount(boxes.box, minlength=count) == 1) & (boxes.construct < 0)
    return Drawing(
        grouping=grouping,
        boxes=boxes,
        cells=inside,
        positions=positions(inside, layer, order, is_single, aspect),
        pairs=arrows,
        level=level,
    )


def _boxes(
    graph: PhysicalGraph, grouping: Grouping, wanted: Mapping[int, bool] | None, islands: Sequence[str]
) -> Boxes:
    match grouping:
        case "construct":
            return boxes_by_construct(graph, wanted)
        case "template":
            return boxes_by_template(graph)
        case "part":
            return boxes_by_place(graph)
        case "node":
            return boxes_by_place(graph, graph.places)
        case "island":
            return boxes_by_place(graph, islands or graph.places)
