"""Draws the logical graph of a physical one: its logical nodes, in frames of the constructs around them.

The nodes of a frame are in columns, each right of those that it depends on. A frame is laid out first, and is then one
node of the frame around it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind

__all__ = ["LogicalArrow", "LogicalDrawing", "LogicalFrame", "LogicalShape", "draw_logical"]

NODE_WIDTH = 168.0
NODE_HEIGHT = 48.0
_COLUMN_GAP = 56.0
_ROW_GAP = 20.0
_PADDING = 18.0
_HEADER = 26.0


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


def draw_logical(graph: PhysicalGraph) -> LogicalDrawing:
    """Return the drawing of the logical graph of a physical graph."""
    whole, path_of = _tree(graph)
    ends = {(link.source, link.target) for link in graph.links if not link.carry and link.source != link.target}
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
    known: dict[tuple[str, ...], _Block] = {(): whole}
    path_of: list[list[_Block]] = []
    for row, template in enumerate(graph.templates):
        path: tuple[str, ...] = ()
        blocks = []
        for axis in template.axes:
            around = known[path]
            path = (*path, axis.construct)
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
            inner = {id(one) for one in block.inside}
            own = [
                pair
                for pair in ends
                if all(len(path_of[end]) > depth + 1 and id(path_of[end][depth + 1]) in inner for end in pair)
            ]
            _lay_out(block, path_of, own, depth=depth + 1)
    number = {id(block): at for at, block in enumerate(around.inside)}
    pairs = {(number[id(path_of[source][depth])], number[id(path_of[target][depth])]) for source, target in ends}
    layer = _layers(len(around.inside), {pair for pair in pairs if pair[0] != pair[1]})
    top = _HEADER + _PADDING if depth else 0.0
    side = _PADDING if depth else 0.0
    columns = [
        [block for at, block in enumerate(around.inside) if layer[at] == one]
        for one in range(max(layer, default=-1) + 1)
    ]
    heights = [sum(block.height for block in column) + _ROW_GAP * (len(column) - 1) for column in columns]
    tallest = max(heights, default=0.0)
    left = side
    before: dict[int, float] = {}
    for column, height in zip(columns, heights, strict=True):
        column.sort(
            key=lambda block: _mean([before[one] for one, two in pairs if two == number[id(block)] and one in before])
        )
        wide = max(block.width for block in column)
        down = top + (tallest - height) / 2
        for block in column:
            block.x, block.y = left + (wide - block.width) / 2, down
            before[number[id(block)]] = down + block.height / 2
            down += block.height + _ROW_GAP
        left += wide + _COLUMN_GAP
    around.width = max(left - _COLUMN_GAP + side, NODE_WIDTH if depth else 0.0)
    around.height = top + tallest + side


def _layers(count: int, pairs: set[tuple[int, int]]) -> list[int]:
    """Return the longest path to each block; of blocks that depend on each other, the first one begins."""
    waiting = [sum(target == one for _, target in pairs) for one in range(count)]
    layer = [0] * count
    left = set(range(count))
    while left:
        ready = sorted(one for one in left if waiting[one] <= 0) or [min(left)]
        for one in ready:
            left.discard(one)
            for source, target in pairs:
                if source == one and target in left:
                    layer[target] = max(layer[target], layer[one] + 1)
                    waiting[target] -= 1
    return layer


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _place(graph: PhysicalGraph, block: _Block, nodes: list[LogicalShape], frames: list[LogicalFrame]) -> None:
    """Add what is in a block, which has its place, to the nodes and frames."""
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
