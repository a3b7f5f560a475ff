"""Positions of drops in their boxes: a column for each level of the box, wrapped if it is long, and a row in it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph

_ROWS = 1.5
"""Rows of a box for the square root of its number of drops: cells are wider than high, and a box is about square."""
_WIDE = 0.65
"""Columns of a box with many levels, for the square root of its number of cells. Further levels are below these."""
_LONG = 2.5
"""A box with more columns than so many times the preferred number is wrapped."""
_CELLS_SWEEPS = 2
"""Sweeps over the drops in which the cells inside of boxes are ordered."""


@dataclass(frozen=True)
class Cells:
    """The cell of each drop, and the size of each box in cells.

    Attributes
    ----------
    column, row : int32 arrays, shape (drops,)
        Position in the box of the drop.
    columns, rows : int32 arrays, shape (boxes,)
        Size of each box.
    """

    column: IntColumn
    row: IntColumn
    columns: IntColumn
    rows: IntColumn


def cells(graph: PhysicalGraph, box: IntColumn, boxes: int, level: IntColumn) -> Cells:
    """Return the cell of each drop.

    Within a level, drops are in the order of the mean of their neighbours in the level before (barycentre; K. Sugiyama,
    S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical system structures", IEEE Trans. SMC 11,
    1981), so that few edges cross.

    Parameters
    ----------
    box : int32 array, shape (drops,)
        Box of each drop.
    boxes : int
        How many boxes there are.
    level : int32 array, shape (drops,)
        As `dropflow.graph.order.levels` returns them.
    """
    if not graph.drops:
        nothing = np.zeros(0, dtype=np.int32)
        return Cells(nothing, nothing, np.zeros(boxes, dtype=np.int32), np.zeros(boxes, dtype=np.int32))
    stack, stacks, stack_box = _stacks(box, level)
    size = np.bincount(stack, minlength=stacks)
    place = _order(graph, box, stack, size)
    total = np.bincount(box, minlength=boxes)
    height = np.maximum(np.ceil(np.sqrt(total) * _ROWS), 1).astype(np.int64)
    wraps = -(-size // height[stack_box])
    before = np.cumsum(wraps) - wraps
    first = np.searchsorted(stack_box, np.arange(boxes))
    start = before - before[first[stack_box]]
    tallest = np.zeros(boxes, dtype=np.int64)
    np.maximum.at(tallest, stack_box, np.minimum(size, height[stack_box]))
    wrap, row = np.divmod(place, height[box])
    # A short level is in the middle of its box.
    row += np.where(wraps[stack] == 1, (tallest[box] - size[stack]) // 2, 0)
    columns = np.zeros(boxes, dtype=np.int64)
    np.add.at(columns, stack_box, wraps)
    column = start[stack] + wrap
    preferred = np.maximum(np.ceil(np.sqrt(columns * tallest) * _WIDE), 1).astype(np.int64)
    across = np.where(columns > _LONG * preferred, preferred, np.maximum(columns, 1))
    line, column = np.divmod(column, across[box])
    return Cells(
        column=column.astype(np.int32),
        row=(row + line * tallest[box]).astype(np.int32),
        columns=np.minimum(columns, across).astype(np.int32),
        rows=(tallest * -(-columns // across)).astype(np.int32),
    )


def _stacks(box: IntColumn, level: IntColumn) -> tuple[npt.NDArray[np.int64], int, npt.NDArray[np.int64]]:
    """Return the number of each drop's level in its box, how many there are, and the box of each."""
    depth = int(level.max(initial=0)) + 1
    key = box.astype(np.int64) * depth + level
    span = (int(box.max(initial=0)) + 1) * depth
    if span <= 4 * len(box) + 1024:  # a table is faster than a sort
        used = np.zeros(span, dtype=np.bool_)
        used[key] = True
        number = np.cumsum(used) - 1
        stack_keys = np.flatnonzero(used)
        return number[key], len(stack_keys), stack_keys // depth
    stack_keys, stack = np.unique(key, return_inverse=True)
    return stack, len(stack_keys), stack_keys // depth


def _order(
    graph: PhysicalGraph, box: IntColumn, stack: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the place of each drop in its level of its box."""
    first = np.cumsum(size) - size
    order = np.argsort(stack, kind="stable")
    place = np.empty(graph.drops, dtype=np.int64)
    place[order] = np.arange(graph.drops) - first[stack[order]]
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))
    target = graph.successors.neighbour
    inner = box[source] == box[target]
    if not inner.any() or int(size.max()) == 1:
        return place
    source, target = source[inner], target[inner]
    inputs = np.bincount(target, minlength=graph.drops)
    for _ in range(_CELLS_SWEEPS):
        share = place / np.maximum(size[stack], 1)
        mean = np.bincount(target, weights=share[source], minlength=graph.drops) / np.maximum(inputs, 1)
        # Without inputs in the box a drop keeps its place.
        mean = np.where(inputs > 0, mean, share)
        # One key: the stack, then the mean in 20 bits; a stable sort keeps the order of rows among equals.
        key = (stack << 20) + np.minimum((mean * (1 << 20)).astype(np.int64), (1 << 20) - 1)
        order = np.argsort(key, kind="stable")
        place[order] = np.arange(graph.drops) - first[stack[order]]
    return place
