"""The drawing of a logical graph as SVG, for notebooks and files: boxes of nodes, frames of constructs, arrows."""

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

from dropflow.formatting import single_line
from dropflow.graph.logical_drawing import LogicalArrow, LogicalDrawing, LogicalShape, draw_logical
from dropflow.graph.physical import PhysicalGraph

MOST_SHAPES = 400
"""A picture of more nodes would be too small to read, and too large for a notebook."""

STATE_COLOURS: Mapping[str, str] = {
    "COMPLETED": "#14936c",
    "ERROR": "#d1560a",
    "SKIPPED": "#8b949e",
    "CANCELLED": "#6e5494",
    "WRITING": "#3f8fd2",
}
"""Colours of states, those of the pages of managers."""

_MARGIN = 12.0
_LETTERS = 22
_BAR = 5.0
_STYLE = (
    "<style>"
    ".df-n{stroke:#57606a;stroke-width:1}"
    ".df-d{fill:#d2992233}.df-a{fill:#3f8fd233}"
    ".df-f{fill:#8b949e14;stroke:#8b949e;stroke-dasharray:4 3}"
    ".df-e{fill:none;stroke:#8b949e;stroke-width:1.4}"
    ".df-t{font:12px system-ui,sans-serif;fill:currentColor}"
    ".df-s{font:10px system-ui,sans-serif;fill:currentColor;opacity:.7}"
    "</style>"
)


def logical_svg(graph: PhysicalGraph, states: Mapping[str, Mapping[str, int]] | None = None) -> str:
    """Return the logical graph of a physical one as an SVG element.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph.
    states : mapping, optional
        Numbers of drops by state, by the key of the logical node: drawn as a bar in each node.

    Returns
    -------
    str
        One element; empty if the graph has no nodes, or more than `MOST_SHAPES`.
    """
    if not 0 < len(graph.templates) <= MOST_SHAPES:
        return ""
    drawing = draw_logical(graph)
    return "".join(_parts(graph, drawing, states or {}))


def _parts(graph: PhysicalGraph, drawing: LogicalDrawing, states: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    wide, high = drawing.width + 2 * _MARGIN, drawing.height + 2 * _MARGIN
    title = f"logical graph {single_line(graph.name)}, {len(drawing.nodes)} nodes"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(title)} '
        f'viewBox="{-_MARGIN:g} {-_MARGIN:g} {wide:g} {high:g}" width="{wide:g}" '
        f'style="max-width:100%;height:auto">{_STYLE}'
        '<defs><marker id="df-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#8b949e"/></marker></defs>'
    )
    for frame in drawing.frames:
        label = f"{_short(frame.name)} \N{MULTIPLICATION SIGN}{frame.size}"
        yield (
            f'<rect class="df-f" x="{frame.x:g}" y="{frame.y:g}" width="{frame.width:g}" height="{frame.height:g}" '
            f'rx="10"/><text class="df-s" x="{frame.x + 10:g}" y="{frame.y + 16:g}">{escape(label)}'
            f"<title>{escape(single_line(frame.kind))} {escape(single_line(frame.name))}</title></text>"
        )
    places = {node.template: node for node in drawing.nodes}
    for arrow in drawing.arrows:
        yield _arrow(drawing, places, arrow)
    for node in drawing.nodes:
        yield _node(drawing, node, states.get(node.key, {}))
    yield "</svg>"


def _arrow(drawing: LogicalDrawing, places: Mapping[int, LogicalShape], arrow: LogicalArrow) -> str:
    source, target = places[arrow.source], places[arrow.target]
    half = drawing.node_height / 2
    x1, y1 = source.x + drawing.node_width, source.y + half
    x2, y2 = target.x, target.y + half
    bend = max(24.0, abs(x2 - x1) / 2)
    dashes = ' stroke-dasharray="5 4"' if arrow.is_carry or arrow.is_streaming else ""
    if x2 < x1:  # back to an earlier column, as the carry of a loop: around, below both
        low = max(source.y, target.y) + drawing.node_height + 22
        path = f"M{x1:g} {y1:g}C{x1 + 40:g} {low:g} {x2 - 40:g} {low:g} {x2:g} {y2:g}"
    else:
        path = f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
    return f'<path class="df-e" d="{path}" marker-end="url(#df-head)"{dashes}/>'


def _node(drawing: LogicalDrawing, node: LogicalShape, states: Mapping[str, int]) -> str:
    wide, high = drawing.node_width, drawing.node_height
    kind, round_ = ("df-a", 4) if node.is_app else ("df-d", high / 2)
    middle = node.x + wide / 2
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    tip = "\n".join(one for one in (single_line(node.name), single_line(node.category), counts) if one)
    return (
        f'<g><title>{escape(tip)}</title><rect class="df-n {kind}" x="{node.x:g}" y="{node.y:g}" width="{wide:g}" '
        f'height="{high:g}" rx="{round_:g}"/>'
        f'<text class="df-t" x="{middle:g}" y="{node.y + 21:g}" text-anchor="middle">{escape(_short(node.name))}</text>'
        f'<text class="df-s" x="{middle:g}" y="{node.y + 35:g}" text-anchor="middle">'
        f"{escape(_short(node.category))}</text>{''.join(_bar(drawing, node, states))}</g>"
    )


def _bar(drawing: LogicalDrawing, node: LogicalShape, states: Mapping[str, int]) -> Iterator[str]:
    total, left = sum(states.values()), node.x + 14
    whole = drawing.node_width - 28
    for state, count in states.items():
        width = whole * count / total if total else 0.0
        colour = STATE_COLOURS.get(state, "#d0d7de")
        yield (
            f'<rect x="{left:.1f}" y="{node.y + drawing.node_height - _BAR - 3:g}" width="{width:.1f}" '
            f'height="{_BAR:g}" fill="{colour}"/>'
        )
        left += width


def _short(text: str) -> str:
    line = single_line(text)
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
