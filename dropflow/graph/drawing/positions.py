"""Positions of boxes: layers from left to right, each a column of boxes or several, in lines like the words of a text.

Units are those of the drawing: at full size, one is a pixel.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
import numpy.typing as npt

from dropflow.graph.drawing.cells import Cells
from dropflow.graph.physical import IntColumn

CELL_WIDTH = 176.0
"""Units of the drawing from one cell of a box to the next one beside it."""
CELL_HEIGHT = 60.0
"""Units of the drawing from one cell of a box to the next one below it."""
HEADER = 30.0
"""Height of the label of a box."""
MARGIN = 10.0
"""Between the border of a box and its cells."""
_GAP = 22.0
"""Units of the drawing between two boxes of one layer."""
_LAYER_GAP = 84.0
"""Units of the drawing between two layers."""
_LINE_GAP = 120.0
"""Units of the drawing between two lines of layers."""
_PAGES = (1.1, 1.5, 2.0, 2.8, 4.0)
"""Heights of columns that are tried, for the square root of the area of all boxes."""
_UNWRAPPED = 1.4
"""How much smaller boxes may be, so that all of them are in one line and edges lead to the right only."""


@dataclass(frozen=True)
class Positions:
    """Places and sizes of boxes, float32 arrays of shape (boxes,), and the size of the whole drawing.

    `header` is the height above the drops of a box: a box of one drop that is in no construct has no label. `lines` are
    the top and the bottom of each line of boxes.
    """

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    width: npt.NDArray[np.float32]
    height: npt.NDArray[np.float32]
    header: npt.NDArray[np.float32]
    whole_width: float
    whole_height: float
    lines: tuple[tuple[float, float], ...] = ()


@dataclass
class _BoxColumn:
    """Boxes above each other."""

    boxes: list[int]
    layer: int
    width: float
    height: float


def positions(
    inside: Cells, layer: IntColumn, order: npt.NDArray[np.int64], is_single: npt.NDArray[np.bool_], aspect: float
) -> Positions:
    """Return where each box is.

    Parameters
    ----------
    inside : Cells
        Sizes of the boxes.
    layer : int32 array, shape (boxes,)
        Layer of each box.
    order : int array, shape (boxes,)
        All boxes by layer, and in a layer from top to bottom.
    is_single : bool array, shape (boxes,)
        Whether a box has no label.
    aspect : float
        Width of the whole drawing, divided by its height, that is aimed at.
    """
    width = inside.columns * CELL_WIDTH + 2 * MARGIN
    header = np.where(is_single, MARGIN, HEADER)
    height = inside.rows * CELL_HEIGHT + header + MARGIN
    x, y = np.zeros(len(width), dtype=np.float32), np.zeros(len(width), dtype=np.float32)
    area = float(((width + _GAP) * (height + _GAP)).sum())
    best = _best(
        order.tolist(), layer.tolist(), width.tolist(), height.tolist(), side=sqrt(area / aspect), aspect=aspect
    )
    top = right = 0.0
    lines = []
    for line in best:
        tallest = max(column.height for column in line)
        left, before = 0.0, line[0].layer
        for column in line:
            left += 0.0 if column is line[0] else _between(before, column)
            before = column.layer
            down = top + (tallest - column.height) / 2
            for box in column.boxes:
                x[box], y[box] = left + (column.width - float(width[box])) / 2, down
                down += float(height[box]) + _GAP
            left += column.width
        right = max(right, left)
        lines.append((top, top + tallest))
        top += tallest + _LINE_GAP
    return Positions(
        x=x,
        y=y,
        width=width.astype(np.float32),
        height=height.astype(np.float32),
        header=header.astype(np.float32),
        whole_width=right,
        whole_height=max(top - _LINE_GAP, 0.0),
        lines=tuple(lines),
    )


def _best(
    order: list[int], layer: list[int], width: list[float], height: list[float], *, side: float, aspect: float
) -> list[list[_BoxColumn]]:
    """Return the boxes in columns and lines such that they are as large as possible on a page of this aspect."""
    best: list[list[_BoxColumn]] = []
    size = 0.0
    tallest = max(height, default=0.0)
    for page in sorted({max(side * factor, tallest) for factor in _PAGES}):
        columns = _columns(order, layer, width, height, page)
        widest = max((column.width for column in columns), default=0.0)
        for lines in ([columns] if columns else [], _lines(columns, max(page * aspect, widest))):
            scale = _size(lines, aspect) * (_UNWRAPPED if len(lines) == 1 else 1.0)
            if scale > size:
                best, size = lines, scale
    return best


def _size(lines: list[list[_BoxColumn]], aspect: float) -> float:
    """Return how large boxes are if all is seen, for the same page."""
    across = max(
        (
            sum(_between(first.layer, second) + second.width for first, second in pairwise(line)) + line[0].width
            for line in lines
        ),
        default=1.0,
    )
    down = sum(max(column.height for column in line) + _LINE_GAP for line in lines)
    return min(aspect / max(across, 1.0), 1 / max(down, 1.0))


def _between(layer: int, column: _BoxColumn) -> float:
    return _GAP if column.layer == layer else _LAYER_GAP


def _columns(
    order: list[int], layer: list[int], width: list[float], height: list[float], page: float
) -> list[_BoxColumn]:
    """Return the boxes in columns of about the height of the page at most, each of one layer, and as high as others."""
    total: dict[int, float] = {}
    for box in order:
        total[layer[box]] = total.get(layer[box], 0.0) + height[box] + _GAP
    share = {stage: high / -(-high // page) for stage, high in total.items()}
    columns: list[_BoxColumn] = []
    before, used, number = -1, 0.0, 0
    for box in order:
        if layer[box] != before:
            before, used, number = layer[box], 0.0, -1
        at = int((used + (height[box] + _GAP) / 2) / share[before])
        used += height[box] + _GAP
        if at != number:
            number = at
            columns.append(_BoxColumn([box], before, width[box], height[box]))
        else:
            last = columns[-1]
            last.boxes.append(box)
            last.width = max(last.width, width[box])
            last.height += _GAP + height[box]
    return columns


def _lines(columns: list[_BoxColumn], across: float) -> list[list[_BoxColumn]]:
    """Return the columns in lines that are at most so wide."""
    lines: list[list[_BoxColumn]] = []
    used = 0.0
    for column in columns:
        if not lines or used + _between(lines[-1][-1].layer, column) + column.width > across:
            lines.append([column])
            used = column.width
        else:
            used += _between(lines[-1][-1].layer, column) + column.width
            lines[-1].append(column)
    return lines
