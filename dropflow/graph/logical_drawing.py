"""Draws the logical graph of a physical one: its logical nodes, in frames of the constructs around them.

Nodes are where an editor drew them, as the note of `drawn_positions` has it: in its proportions, moved apart where
they would overlap. In a frame without such positions the nodes are in columns, each right of those that it depends on.
A frame is laid out first, and is then one node of the frame around it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.notes import Position, positions_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind

Numbers = npt.NDArray[np.float64]

_FITS = 0.75
"""Share of the nodes that do not overlap only by the scale; the others are moved."""
_SMALLEST, _LARGEST = 0.3, 2.5
NODE_WIDTH = 168.0
"""Units of the drawing: the width of a node."""
NODE_HEIGHT = 48.0
"""Units of the drawing: the height of a node."""
_COLUMN_GAP = 56.0
"""Units of the drawing between two columns."""
_ROW_GAP = 20.0
"""Units of the drawing between two nodes of a column."""
_PADDING = 18.0
"""Units of the drawing between a frame and what is in it."""
_HEADER = 26.0
"""Units of the drawing: the height of the name of a frame."""
_WITHOUT_FRAME = ("chunk", "store")
"""Levels of single nodes: the chunks of an array are its drops."""
_DRAWN_GAPS = (40.0, 24.0)
_MOST_DRAWN = 2000
"""A frame with more nodes has them in columns: each two nodes that were drawn are compared."""
_DISTINCT = 0.75
"""Share of the nodes of a frame that must have a position of their own; else they were not drawn by hand."""

# Rectangles near the positions where they are wanted, without overlaps.


def scale_for(positions: Numbers, wide: float, high: float) -> float:
    """Return by how much distances between positions grow so that most nodes of this size do not overlap.

    Parameters
    ----------
    positions : float array, shape (nodes, 2)
        Middles of the nodes.
    wide, high : float
        Size of a node with the gap to the next one.
    """
    if len(positions) <= 1:
        return 1.0
    needed = np.zeros(len(positions))
    with np.errstate(divide="ignore"):
        for at, position in enumerate(positions):
            x, y = np.abs(positions - position).T
            apart = np.minimum(wide / x, high / y)
            apart[at] = 0.0
            needed[at] = apart.max()
    at = int((len(needed) - 1) * _FITS)
    return float(np.clip(np.sort(needed)[at], _SMALLEST, _LARGEST))


def separated(positions: Numbers, sizes: Numbers, gaps: tuple[float, float]) -> Numbers:
    """Return the middles of rectangles that are at least the gaps apart in one direction, and in their wanted order.

    Each two are kept apart in the direction in which they are farther apart for their sizes. In this direction the
    later one moves right or down if there is too little room. So no two overlap, in one pass for each direction.

    Parameters
    ----------
    positions : float array, shape (rectangles, 2)
        Wanted middles.
    sizes : float array, shape (rectangles, 2)
        Widths and heights.
    gaps : tuple of float
        Least distance beside and below each other.
    """
    middles = positions.copy()
    for axis in (0, 1):
        order = np.argsort(positions[:, axis], kind="stable")
        for count, at in enumerate(order.tolist()):
            before = order[:count]
            needed = (sizes[before] + sizes[at]) / 2 + gaps
            share = np.abs(positions[before] - positions[at]) / needed
            is_beside = share[:, 0] >= share[:, 1]
            held = is_beside if axis == 0 else ~is_beside
            if held.any():
                least = (middles[before, axis] + needed[:, axis])[held].max()
                middles[at, axis] = max(middles[at, axis], least)
    return middles


class LogicalShape(msgspec.Struct, frozen=True, kw_only=True):
    """A logical node: the row of its template, and where it is."""

    template: int
    key: str
    name: str
    category: str
    is_app: bool
    x: float
    y: float


class LogicalFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A construct around logical nodes, with the number of its instances in one of the construct around it."""

    name: str
    kind: str
    size: int
    x: float
    y: float
    width: float
    height: float


class LogicalArrow(msgspec.Struct, frozen=True, kw_only=True):
    """A link between two logical nodes: rows of their templates."""

    source: int
    target: int
    is_carry: bool
    is_streaming: bool


class LogicalDrawing(msgspec.Struct, frozen=True, kw_only=True):
    """A drawing of a logical graph; frames that are around others come first."""

    width: float
    height: float
    node_width: float
    node_height: float
    nodes: tuple[LogicalShape, ...]
    frames: tuple[LogicalFrame, ...]
    arrows: tuple[LogicalArrow, ...]


@dataclass
class _Block:
    """A frame with what is in it, or a single node."""

    template: int = -1
    name: str = ""
    kind: str = ""
    size: int = 0
    inside: list["_Block"] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    width: float = NODE_WIDTH
    height: float = NODE_HEIGHT
    drawn: Position | None = None


def draw_logical(graph: PhysicalGraph) -> LogicalDrawing:
    """Return the drawing of the logical graph of a physical graph."""
    whole, path_of = _tree(graph)
    ends = {(link.source, link.target) for link in graph.links if not link.carry and link.source != link.target}
    _take_positions(whole, _scaled(positions_of(graph)))
    _lay_out(whole, path_of, sorted(ends), depth=0)
    nodes: list[LogicalShape] = []
    frames: list[LogicalFrame] = []
    _place(graph, whole, nodes, frames)
    arrows = [
        LogicalArrow(source=link.source, target=link.target, is_carry=link.carry, is_streaming=link.streaming)
        for link in graph.links
    ]
    return LogicalDrawing(
        width=whole.width,
        height=whole.height,
        node_width=NODE_WIDTH,
        node_height=NODE_HEIGHT,
        nodes=tuple(sorted(nodes, key=lambda node: node.template)),
        frames=tuple(frames),
        arrows=tuple(arrows),
    )


def _tree(graph: PhysicalGraph) -> tuple[_Block, list[list[_Block]]]:
    """Return the block of the whole graph, and for each template the blocks around it and its own, outermost first."""
    whole = _Block()
    known: dict[tuple[tuple[str, int], ...], _Block] = {(): whole}
    path_of: list[list[_Block]] = []
    for row, template in enumerate(graph.templates):
        path: tuple[tuple[str, int], ...] = ()
        blocks = []
        for axis in template.axes:
            if axis.kind in _WITHOUT_FRAME:
                continue
            around = known[path]
            path = (*path, (axis.construct, axis.size))  # in graphs of other programs, the size alone tells them apart
            if path not in known:
                known[path] = _Block(name=axis.name, kind=axis.kind, size=axis.size)
                around.inside.append(known[path])
            blocks.append(known[path])
        own = _Block(template=row)
        known[path].inside.append(own)
        path_of.append([*blocks, own])
    return whole, path_of


def _lay_out(
    around: _Block, path_of: Sequence[Sequence[_Block]], ends: Sequence[tuple[int, int]], *, depth: int
) -> None:
    """Place what is in a block relative to it, and set its size."""
    for block in around.inside:
        if block.template < 0:
            inner = {id(inner_block) for inner_block in block.inside}
            own = [
                pair
                for pair in ends
                if all(len(path_of[end]) > depth + 1 and id(path_of[end][depth + 1]) in inner for end in pair)
            ]
            _lay_out(block, path_of, own, depth=depth + 1)
    number = {id(block): at for at, block in enumerate(around.inside)}
    pairs = {(number[id(path_of[source][depth])], number[id(path_of[target][depth])]) for source, target in ends}
    pairs = {pair for pair in pairs if pair[0] != pair[1]}
    if _is_drawn(around, pairs):
        _as_drawn(around)
    else:
        _in_columns(around, pairs, number)
    _enclose(around, is_frame=depth > 0)


def _in_columns(around: _Block, pairs: set[tuple[int, int]], number: dict[int, int]) -> None:
    """Place what is in a block in columns, each right of those that it depends on."""
    layer = _layers(len(around.inside), pairs)
    columns: list[list[_Block]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for at, block in enumerate(around.inside):
        columns[layer[at]].append(block)
    inputs: dict[int, list[int]] = {}
    for source, target in pairs:
        inputs.setdefault(target, []).append(source)
    heights = [sum(block.height for block in column) + _ROW_GAP * (len(column) - 1) for column in columns]
    tallest = max(heights, default=0.0)
    left = 0.0
    before: dict[int, float] = {}
    for column, height in zip(columns, heights, strict=True):
        column.sort(
            key=lambda block: _mean(
                [before[source] for source in inputs.get(number[id(block)], ()) if source in before]
            )
        )
        wide = max(block.width for block in column)
        down = (tallest - height) / 2
        for block in column:
            block.x, block.y = left + (wide - block.width) / 2, down
            before[number[id(block)]] = down + block.height / 2
            down += block.height + _ROW_GAP
        left += wide + _COLUMN_GAP


def _scaled(positions: dict[int, Position]) -> dict[int, Position]:
    """Return the positions in units of the drawing."""
    if not 0 < len(positions) <= _MOST_DRAWN:
        return {}
    wide, high = NODE_WIDTH + _DRAWN_GAPS[0], NODE_HEIGHT + _DRAWN_GAPS[1]
    scale = scale_for(np.array(list(positions.values()), dtype=np.float64), wide, high)
    return {row: (x * scale, y * scale) for row, (x, y) in positions.items()}


def _take_positions(block: _Block, positions: dict[int, Position]) -> None:
    """Set where blocks were drawn: a frame is in the middle of what is in it."""
    block.drawn = positions.get(block.template)
    if block.template < 0:
        for inner in block.inside:
            _take_positions(inner, positions)
        block.drawn = _middle([inner.drawn for inner in block.inside if inner.drawn is not None])


def _middle(positions: Sequence[Position]) -> Position | None:
    if not positions:
        return None
    xs, ys = zip(*positions, strict=True)
    return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


def _is_drawn(around: _Block, pairs: set[tuple[int, int]]) -> bool:
    """Return whether all nodes in a block have a position; those of the translator get one between their neighbours."""
    blocks = around.inside
    known = {at: block.drawn for at, block in enumerate(blocks) if block.drawn is not None}
    if not known or len({(round(x), round(y)) for x, y in known.values()}) < len(known) * _DISTINCT:
        return False
    near: dict[int, list[Position]] = {}
    for first, second in [*pairs, *((second, first) for first, second in pairs)]:
        if first not in known and second in known:
            near.setdefault(first, []).append(known[second])
    for at, positions in near.items():
        xs, ys = zip(*sorted(positions), strict=True)
        blocks[at].drawn = _mean(xs), _mean(ys)
    return len(blocks) <= _MOST_DRAWN and all(block.drawn is not None for block in blocks)


def _as_drawn(around: _Block) -> None:
    """Place what is in a block where it was drawn, without overlaps."""
    blocks = around.inside
    wanted = np.array([block.drawn for block in blocks], dtype=np.float64)
    sizes = np.array([(block.width, block.height) for block in blocks], dtype=np.float64)
    for block, (x, y) in zip(blocks, separated(wanted, sizes, _DRAWN_GAPS).tolist(), strict=True):
        block.x, block.y = x - block.width / 2, y - block.height / 2


def _enclose(around: _Block, *, is_frame: bool) -> None:
    """Move what is in a block to its upper left corner, and set its size."""
    blocks = around.inside
    side, top, least = (_PADDING, _HEADER + _PADDING, NODE_WIDTH) if is_frame else (0.0, 0.0, 0.0)
    left = min((block.x for block in blocks), default=0.0)
    upper = min((block.y for block in blocks), default=0.0)
    for block in blocks:
        block.x += side - left
        block.y += top - upper
    around.width = max(max((block.x + block.width for block in blocks), default=0.0) + side, least)
    around.height = max((block.y + block.height for block in blocks), default=top) + side


def _layers(count: int, pairs: set[tuple[int, int]]) -> list[int]:
    """Return the longest path to each block; of blocks that depend on each other, the first one begins."""
    waiting, layer = [0] * count, [0] * count
    following: list[list[int]] = [[] for _ in range(count)]
    for source, target in pairs:
        waiting[target] += 1
        following[source].append(target)
    left = set(range(count))
    ready = [block for block in range(count) if not waiting[block]]
    while left:
        now, ready = ready or [min(left)], []
        left.difference_update(now)
        for block in now:
            for target in following[block]:
                if target in left:
                    layer[target] = max(layer[target], layer[block] + 1)
                    waiting[target] -= 1
                    if not waiting[target]:
                        ready.append(target)
    return layer


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _place(graph: PhysicalGraph, block: _Block, nodes: list[LogicalShape], frames: list[LogicalFrame]) -> None:
    """Add what is in a block, which has its position, to the nodes and frames."""
    for inner in block.inside:
        inner.x += block.x
        inner.y += block.y
        left, top = inner.x, inner.y
        if inner.template < 0:
            frames.append(
                LogicalFrame(
                    name=inner.name,
                    kind=inner.kind,
                    size=inner.size,
                    x=left,
                    y=top,
                    width=inner.width,
                    height=inner.height,
                )
            )
            _place(graph, inner, nodes, frames)
            continue
        template = graph.templates[inner.template]
        nodes.append(
            LogicalShape(
                template=inner.template,
                key=template.key,
                name=template.app_name or template.name,
                category=template.category,
                is_app=template.kind is Kind.APP,
                x=left,
                y=top,
            )
        )
