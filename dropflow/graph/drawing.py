"""Draws a physical graph: its boxes, the cells of its drops, and where the boxes are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from math import prod, sqrt
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.order import levels
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Template

Grouping = Literal["construct", "template", "node", "island", "part"]

_Path = tuple[tuple[str, int], ...]
_OPEN_BOXES = 400
"""A construct with more instances than this is closed at first, or has boxes of ranges if it is in no other one."""
_MOST_BOXES = 3000
"""Of one construct that is opened. Beyond it, a box is a range of instances."""
_ROWS = 1.5
"""Rows of a box for the square root of its number of drops: cells are wider than high, and a box is about square."""
_WIDE = 0.65
"""Columns of a box with many levels, for the square root of its number of cells. Further levels are below these."""
_LONG = 2.5
"""A box with more columns than so many times the preferred number is wrapped."""
_CELLS_SWEEPS = 2
"""Sweeps over the drops in which the cells inside of boxes are ordered."""
_TYPES: dict[str, type[np.generic]] = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "f32": np.float32}
_NAMES = {np.dtype(kind).str: name for name, kind in _TYPES.items()}
_WORD_BYTES = 4
"""Bytes: the position and the size of each column are multiples of it."""
_LAYERS_SWEEPS = 6
"""Sweeps over the layers, forwards and backwards, in which the boxes are ordered."""
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

# Boxes of drops: one for each instance of a construct, each logical node, each node manager, island or part.
#
# The boxes of constructs form a tree. A construct is either *open*: each of its instances has a box of its own, or a
# range of instances has, if there are very many; or *closed*: its drops are in the box of the instance around it.


class Construct(msgspec.Struct, frozen=True, kw_only=True):
    """A construct of the logical graph, as far as it has drops.

    Attributes
    ----------
    path : str
        Ids of the constructs around it and its own, with slashes between.
    name, kind : str
        As in `dropflow.graph.templates.Axis`.
    parent : int
        Row of the construct around it; -1 if there is none.
    instances : int
        How many there are, over all instances of the constructs around it.
    is_open : bool
        Whether its instances have boxes of their own.
    """

    path: str
    name: str
    kind: str
    parent: int
    instances: int
    is_open: bool


@dataclass(frozen=True)
class Boxes:
    """The box of each drop.

    Attributes
    ----------
    box : int32 array, shape (drops,)
        Row of the box of each drop.
    labels : tuple of str
        Name of each box.
    construct : int32 array, shape (boxes,)
        Row in `constructs` of the construct of each box; -1 for none.
    constructs : tuple of Construct
        Outer ones before those inside them. Empty if drops are not grouped by construct.
    """

    box: IntColumn
    labels: tuple[str, ...]
    construct: IntColumn
    constructs: tuple[Construct, ...] = ()


def boxes_by_construct(graph: PhysicalGraph, wanted: Mapping[int, bool] | None = None) -> Boxes:
    """Return one box for each instance of an open construct, and one for each logical node outside of constructs.

    Parameters
    ----------
    wanted : mapping of int to bool, optional
        Whether a construct is open, by its row in `Boxes.constructs`. The others are open if they have few instances.
    """
    wanted = wanted or {}
    constructs, shapes, rows = _constructs(graph, wanted)
    # Per template: the construct of its boxes, drops per box instance, and the first number of those boxes.
    labels: list[str] = []
    owners: list[int] = []
    stride, block, bases = [], [], []
    base: dict[int | str, int] = {}
    for template in graph.templates:
        row, depth = _shown(_path_of(template), constructs, rows)
        key = row if row >= 0 else template.key
        sizes = template.shape
        split = prod(sizes[:depth])
        ranged = _round(split / (_MOST_BOXES if depth > 1 or row in wanted else _OPEN_BOXES))
        if key not in base:
            base[key] = len(labels)
            box_labels = [template.name] if row < 0 else _labels(constructs[row], shapes[row][:depth], ranged)
            labels += box_labels
            owners += [row] * len(box_labels)
        bases.append(base[key])
        stride.append(max(prod(sizes[depth:]), 1) if depth else 0)
        block.append(ranged)
    strides, blocks, starts = (np.array(column, dtype=np.int64) for column in (stride, block, bases))
    outer = np.zeros(graph.drops, dtype=np.int64)
    split_rows = strides[graph.template] > 0
    split_template = graph.template[split_rows]
    outer[split_rows] = graph.instance[split_rows] // (strides * blocks)[split_template]
    box = starts[graph.template] + outer if len(graph.templates) else outer
    found_boxes = _compressed(box, labels, np.array(owners, dtype=np.int32), tuple(constructs))
    loose = int(np.count_nonzero(found_boxes.construct < 0))
    return _levels_merged(graph, found_boxes) if loose > _MOST_BOXES else found_boxes


def boxes_by_template(graph: PhysicalGraph) -> Boxes:
    """Return one box for each logical node that has drops."""
    names = [template.name for template in graph.templates]
    return _compressed(graph.template.astype(np.int64), names, np.full(len(names), -1, dtype=np.int32), ())


def boxes_by_place(graph: PhysicalGraph, names: Sequence[str] = ()) -> Boxes:
    """Return one box for each part, or for each of the different `names` of the parts.

    Parameters
    ----------
    names : sequence of str
        Name of the place of each part, such as its node or its island. Empty for a box of each part.
    """
    if not names:
        labels = [f"part {part}" for part in range(graph.parts)]
        column = graph.part.astype(np.int64)
    else:
        labels = sorted(set(names))
        at = np.array([labels.index(name) for name in names], dtype=np.int64)
        column = at[graph.part]
    return _compressed(column, labels, np.full(len(labels), -1, dtype=np.int32), ())


def _path_of(template: Template) -> _Path:
    """Return the constructs around a template. In graphs of other programs, they differ by their sizes alone."""
    return tuple((axis.construct, axis.size) for axis in template.axes)


def _constructs(
    graph: PhysicalGraph, wanted: Mapping[int, bool]
) -> tuple[list[Construct], list[tuple[int, ...]], dict[_Path, int]]:
    """Return all constructs around templates, the outer ones first, the sizes of their index spaces, and their rows."""
    paths: dict[_Path, tuple[str, str, tuple[int, ...]]] = {}
    for template in graph.templates:
        for depth, axis in enumerate(template.axes, 1):
            paths.setdefault(_path_of(template)[:depth], (axis.name, axis.kind, template.shape[:depth]))
    order = sorted(paths, key=len)
    rows = {path: row for row, path in enumerate(order)}
    constructs: list[Construct] = []
    for path in order:
        name, kind, shape = paths[path]
        parent, instances, text = rows.get(path[:-1], -1), prod(shape), "/".join(id_ for id_, _ in path)
        is_open = wanted.get(len(constructs), parent < 0 or instances <= _OPEN_BOXES)
        is_open = is_open and (parent < 0 or constructs[parent].is_open)
        constructs.append(
            Construct(path=text, name=name, kind=kind, parent=parent, instances=instances, is_open=is_open)
        )
    return constructs, [paths[path][2] for path in order], rows


def _shown(path: _Path, constructs: Sequence[Construct], rows: Mapping[_Path, int]) -> tuple[int, int]:
    """Return the construct in whose boxes the drops at a path are, and how many of its levels tell its boxes apart."""
    row, depth = -1, 0
    for count in range(1, len(path) + 1):
        construct = rows[path[:count]]
        if not constructs[construct].is_open:
            return (construct, 0) if row < 0 else (row, depth)
        row, depth = construct, count
    return row, depth


def _round(number: float) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50 and so on that is not less than a number."""
    rounded = 1
    for factor in cycle((2, 2.5, 2)):
        if rounded >= number:
            break
        rounded = int(rounded * factor)
    return rounded


def _labels(construct: Construct, shape: tuple[int, ...], block: int) -> list[str]:
    if not shape:
        return [construct.name]
    count = prod(shape)
    if block > 1:
        starts = range(0, count, block)
        return [f"{construct.name} {start}\N{EN DASH}{min(start + block, count) - 1}" for start in starts]
    index = np.unravel_index(np.arange(count), shape)
    rows = zip(*(column.tolist() for column in index), strict=True)
    return [f"{construct.name} {'-'.join(map(str, row))}" for row in rows]


def _compressed(
    box: np.ndarray[tuple[int], np.dtype[np.int64]],
    labels: Sequence[str],
    construct: IntColumn,
    constructs: tuple[Construct, ...],
) -> Boxes:
    """Return the boxes without those that have no drops."""
    used = np.bincount(box, minlength=len(labels)) > 0
    number = np.cumsum(used) - 1
    return Boxes(
        box=number[box].astype(np.int32),
        labels=tuple(label for label, is_used in zip(labels, used.tolist(), strict=True) if is_used),
        construct=construct[used],
        constructs=constructs,
    )


def _levels_merged(graph: PhysicalGraph, boxes: Boxes) -> Boxes:
    """Return boxes in which drops outside of constructs are together by level, if each had its own logical node."""
    loose = (boxes.construct < 0)[boxes.box]
    level = levels(graph).astype(np.int64)
    count = len(boxes.labels)
    labels = (*boxes.labels, *(f"level {number}" for number in range(int(level.max(initial=0)) + 1)))
    construct = np.concatenate([boxes.construct, np.full(len(labels) - count, -1, dtype=np.int32)])
    return _compressed(np.where(loose, count + level, boxes.box), labels, construct, boxes.constructs)


# Where each drop is in its box: a column for each level of the box, wrapped if it is long, and a row in it.


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


# Packs a head and columns of numbers for a browser: a JSON object, then the octets of each column.
#
# The first four octets are the length of the JSON, little-endian. Its member ``columns`` has, for each column, its
# name, its type (``u8``, ``u16``, ``u32`` or ``f32``), its first octet after the JSON and its length in items. Every
# column begins at a multiple of four octets from the beginning, so that a browser views it without copying.


def pack_columns(head: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return the octets of a head and columns.

    Raises
    ------
    ValueError
        A column has another type than those above.
    """
    entries, pieces, at = [], [], 0
    for name, column in columns.items():
        kind = _NAMES.get(column.dtype.str)
        if kind is None:
            raise ValueError(f"column {name!r} has type {column.dtype}, which a browser does not read")
        octets = column.tobytes()
        entries.append({"name": name, "type": kind, "at": at, "length": len(column)})
        pieces += [octets, bytes(-len(octets) % _WORD_BYTES)]
        at += len(octets) + len(pieces[-1])
    text = msgspec.json.encode({**head, "columns": entries})
    text += b" " * (-len(text) % _WORD_BYTES)
    return b"".join((len(text).to_bytes(_WORD_BYTES, "little"), text, *pieces))


def narrowest(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of numbers that are not negative in the smallest of the unsigned types that holds them."""
    most = int(column.max(initial=0))
    return column.astype(np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.uint32)


# Edges between boxes, the layer of each box, and the order of the boxes in a layer.


@dataclass(frozen=True)
class Pairs:
    """The pairs of different boxes with edges between them.

    Attributes
    ----------
    source, target : int32 arrays, shape (pairs,)
        Boxes, sorted by source, then by target.
    edges, cut : int32 arrays, shape (pairs,)
        Number of edges from the one to the other, and of those that join two parts.
    """

    source: IntColumn
    target: IntColumn
    edges: IntColumn
    cut: IntColumn


def pairs(graph: PhysicalGraph, box: IntColumn, boxes: int) -> Pairs:
    """Return the pairs of boxes with edges between them."""
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))
    target = graph.successors.neighbour
    begin, end = box[source], box[target]
    outer = begin != end
    key = begin[outer].astype(np.int64) * max(boxes, 1) + end[outer]
    is_cut = graph.part[source[outer]] != graph.part[target[outer]]
    pair_keys, where = np.unique(key, return_inverse=True)
    count = np.bincount(where, minlength=len(pair_keys))
    cut = np.bincount(where[is_cut], minlength=len(pair_keys))
    start, stop = np.divmod(pair_keys, max(boxes, 1))
    columns = (column.astype(np.int32) for column in (start, stop, count, cut))
    return Pairs(*columns)


def layers(arrows: Pairs, box: IntColumn, boxes: int, level: IntColumn) -> IntColumn:
    """Return the layer of each box, from the left: the length of the longest path of boxes to it.

    Boxes may depend on each other in both directions. An edge counts if it leads to a box whose drops have, on average,
    a higher level.
    """
    total = np.maximum(np.bincount(box, minlength=boxes), 1)
    mean = np.bincount(box, weights=level, minlength=boxes) / total
    rank = np.empty(boxes, dtype=np.int64)
    rank[np.lexsort((np.arange(boxes), mean))] = np.arange(boxes)
    forward = rank[arrows.source] < rank[arrows.target]
    source, target = arrows.source[forward], arrows.target[forward]
    order = np.argsort(rank[source], kind="stable")
    layer = [0] * boxes
    for begin, end in zip(source[order].tolist(), target[order].tolist(), strict=True):
        if layer[end] <= layer[begin]:
            layer[end] = layer[begin] + 1
    return np.array(layer, dtype=np.int32)


def ordered(arrows: Pairs, layer: IntColumn) -> npt.NDArray[np.int64]:
    """Return all boxes by layer, and in a layer in an order in which few edges cross (barycentre, as in `cells`)."""
    boxes = len(layer)
    order = np.argsort(layer, kind="stable")
    if not boxes or not len(arrows.source):
        return order
    size = np.bincount(layer)
    first = np.cumsum(size) - size
    place = np.empty(boxes, dtype=np.float64)

    def number() -> None:
        place[order] = (np.arange(boxes) - first[layer[order]] + 0.5) / size[layer[order]]

    number()
    forward = layer[arrows.source] < layer[arrows.target]
    source, target, weight = arrows.source[forward], arrows.target[forward], arrows.edges[forward].astype(np.float64)
    for sweep in range(_LAYERS_SWEEPS):
        here, there = (target, source) if sweep % 2 == 0 else (source, target)
        total = np.bincount(here, weights=weight, minlength=boxes)
        mean = np.bincount(here, weights=weight * place[there], minlength=boxes) / np.maximum(total, 1e-9)
        value = np.where(total > 0, mean, place)
        order = np.lexsort((place, np.round(value, 9), layer))
        number()
    return order


# Where boxes are: layers from left to right, each a column of boxes or several, in lines like the words of a text.
#
# Units are those of the drawing: at full size, one is a pixel.


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
        What a box is.
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


# A drawing, the edges of its graph, or a selection of drops, as columns for a browser.


def pack_drawing(graph: PhysicalGraph, drawing: Drawing) -> bytes:
    """Return a drawing: boxes, pairs of boxes, and for each drop its box, cell, template, instance and part."""
    boxes, cells, places, pairs = drawing.boxes, drawing.cells, drawing.positions, drawing.pairs
    head = {
        "graph": graph.name,
        "prefix": graph.prefix,
        "drops": graph.drops,
        "edges": graph.edges,
        "parts": graph.parts,
        "places": graph.places,
        "named": graph.oids is not None,
        "grouping": drawing.grouping,
        "size": [places.whole_width, places.whole_height],
        "cell": [CELL_WIDTH, CELL_HEIGHT],
        "margin": MARGIN,
        "lines": places.lines,
        "labels": boxes.labels,
        "constructs": boxes.constructs,
        "templates": [_template(template) for template in graph.templates],
    }
    columns = {
        "x": places.x,
        "y": places.y,
        "width": places.width,
        "height": places.height,
        "header": places.header,
        "columns": cells.columns.astype(np.uint32),
        "rows": cells.rows.astype(np.uint32),
        "construct": (boxes.construct + 1).astype(np.uint32),
        "pairSource": pairs.source.astype(np.uint32),
        "pairTarget": pairs.target.astype(np.uint32),
        "pairEdges": pairs.edges.astype(np.uint32),
        "pairCut": pairs.cut.astype(np.uint32),
        "box": narrowest(boxes.box),
        "column": narrowest(cells.column),
        "row": narrowest(cells.row),
        "template": narrowest(graph.template),
        "instance": narrowest(graph.instance),
        "part": narrowest(graph.part),
    }
    return pack_columns(msgspec.to_builtins(head), columns)


def _template(template: Any) -> dict[str, Any]:
    return {
        "key": template.key,
        "name": template.app_name or template.name,
        "category": template.category,
        "isApp": bool(template.kind),
        "shape": template.shape,
    }


def pack_edges(graph: PhysicalGraph) -> bytes:
    """Return the edges of a graph by source: ``ptr``, ``target`` and ``link``, and the ports of each link."""
    out = graph.successors
    links = [[link.source_port, link.target_port, link.streaming] for link in graph.links]
    columns = {"ptr": out.ptr.astype(np.uint32), "target": narrowest(out.neighbour), "link": narrowest(out.link)}
    return pack_columns({"links": links}, columns)


def pack_selection(drops: IntColumn, title: str) -> bytes:
    """Return drops that are shown apart, and what they are."""
    return pack_columns({"title": title, "count": len(drops)}, {"drops": drops.astype(np.uint32)})
