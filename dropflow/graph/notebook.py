"""Graphs, sessions and failures as HTML, for notebooks, and logical graphs as SVG.

The functions return elements without scripts, and without styles that reach other parts of a page. All names and texts
are escaped: they may come from anywhere. The classes that notebooks show call them in `_repr_html_`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from dropflow.errors import MissingDependencyError
from dropflow.formatting import format_duration, last_lines, plural, single_line
from dropflow.graph.logical_drawing import LogicalArrow, LogicalDrawing, LogicalShape, draw_logical
from dropflow.graph.physical import PhysicalGraph

_OPEN_COLOUR = "#d0d7de"
_LOG_BYTES = 16_384
"""Bytes at the end of a log that are read for its last lines."""
_SHOWN_CAUSES = 10
"""Causes of failures that are shown."""
_BOX = "font-family:system-ui,sans-serif;margin:.3em 0"
_PRE = (
    "white-space:pre-wrap;overflow-x:auto;max-height:20em;border-left:3px solid #8b949e;padding-left:.8em;margin:.4em 0"
)
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
"""Units of the drawing around it."""
_NAME_CHARACTERS = 22
"""Characters of a name that fit into a node."""
_BAR_HEIGHT = 5.0
"""Units of the drawing: the height of the bar of states in a node."""
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


def graph_html(graph: PhysicalGraph, states: Mapping[str, Mapping[str, int]] | None = None) -> str:
    """Return a graph: its size, and the picture of its logical graph.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph.
    states : mapping, optional
        See `logical_svg`.
    """
    nodes = plural(len(graph.templates), "logical node")
    head = f"<b>{_text(graph.name)}</b>: {nodes}, {plural(graph.drops, 'drop')}, {plural(graph.edges, 'edge')}"
    picture = logical_svg(graph, states)
    if not picture and len(graph.templates) > MOST_SHAPES:
        picture = f"<div>no picture: there are more than {MOST_SHAPES} logical nodes</div>"
    return f'<div class="dropflow" style="{_BOX}"><div>{head}</div>{picture}</div>'


def session_html(
    title: str,
    *,
    status: str,
    states: Mapping[str, int],
    drops: int,
    seconds: float,
    failures: Sequence[str] = (),
    time_left: str = "",
    link: str = "",
) -> str:
    """Return a session: its status, a bar of the states of its drops, and the causes of failures.

    Parameters
    ----------
    title : str
        Name of the session.
    status : str
        Name of its state.
    states : mapping
        Number of drops by state.
    drops : int
        Number of all drops.
    seconds : float
        How long it has run.
    failures : sequence of str
        What `failure_html` returns.
    time_left : str
        How much time is left, if that is known.
    link : str
        Address of its page; only ``http`` and ``https`` are used.
    """
    name = f"<b>{_text(title)}</b>"
    if link.startswith(("http://", "https://")):
        name = f'<a href="{escape(link)}" rel="noopener">{name}</a>'
    counts = ", ".join(f"{count:,} {_text(state)}" for state, count in states.items() if count)
    rest = f", {_text(time_left)}" if time_left else ""
    head = f"{name} <b>{_text(status)}</b> {plural(drops, 'drop')} in {format_duration(seconds)}{rest}"
    shown = "".join(failures[:_SHOWN_CAUSES])
    if len(failures) > _SHOWN_CAUSES:
        shown += f"<div>and {plural(len(failures) - _SHOWN_CAUSES, 'more cause')}</div>"
    return (
        f'<div class="dropflow" style="{_BOX}"><div>{head}</div>{_bar(states, drops)}<div>{counts}</div>{shown}</div>'
    )


def failure_html(
    name: str,
    drop: str,
    *,
    code: str,
    text: str,
    hint: str = "",
    detail: str = "",
    inputs: Sequence[str] = (),
    count: int = 1,
    log: str = "",
) -> str:
    """Return the root cause of failures: the drop, the error, what to do, the traceback and the end of the log."""
    others = f", and {plural(count - 1, 'drop')} because of it" if count > 1 else ""
    parts = [
        f'<div style="border-left:3px solid {STATE_COLOURS["ERROR"]};padding-left:.8em;margin:.5em 0">',
        f"<div><b>failed: {_text(name)}</b> ({_text(drop)}){others}</div>",
        f"<div>{_text(code)} {_lines(text)}</div>",
        f"<div>{_lines(hint)}</div>" if hint else "",
        _folded("inputs", "\n".join(inputs)),
        _folded("traceback", detail),
        _folded("end of the log", log, is_open=not detail),
        "</div>",
    ]
    return "".join(parts)


def problems_html(title: str, problems: Sequence[str]) -> str:
    """Return why a graph has no picture: its problems as a list."""
    items = "".join(f"<li>{_lines(problem)}</li>" for problem in problems)
    return f'<div class="dropflow" style="{_BOX}"><b>{_text(title)}</b><ul>{items}</ul></div>'


def log_end(path: str | Path) -> str:
    """Return the last lines of a log file; empty if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_BYTES))
            text = file.read()
    except OSError:
        return ""
    return last_lines(text)


class HtmlView:
    """Something that a notebook shows as HTML, and a terminal as text."""

    def __init__(self, html: str, text: str) -> None:
        self._html = html
        self._text = text

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return both forms, as IPython asks for them."""
        return {"text/html": self._html, "text/plain": self._text}


def notebook_display() -> Callable[..., Any]:
    """Return IPython's function that shows objects and updates them.

    Raises
    ------
    MissingDependencyError
        IPython is not installed.
    """
    try:
        from IPython.display import display  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependencyError(
            "there is no IPython, which shows live progress in notebooks", hint="pip install ipython, or use wait()"
        ) from None
    show: Callable[..., Any] = display
    return show


def _folded(title: str, text: str, *, is_open: bool = False) -> str:
    if not text.strip():
        return ""
    opened = " open" if is_open else ""
    return f'<details{opened}><summary>{title}</summary><pre style="{_PRE}">{_lines(text)}</pre></details>'


def _bar(states: Mapping[str, int], drops: int) -> str:
    whole = max(drops, sum(states.values()), 1)
    cells = "".join(_cell(state, count, whole) for state, count in states.items() if count)
    label = ", ".join(f"{count} {_text(state)}" for state, count in states.items() if count)
    return (
        f'<div role="img" aria-label="{label}" style="height:12px;max-width:40em;margin:.3em 0;border-radius:3px;'
        f'overflow:hidden;background:{_OPEN_COLOUR};font-size:0">{cells}</div>'
    )


def _cell(state: str, count: int, whole: int) -> str:
    style = f"width:{100 * count / whole:.2f}%;background:{STATE_COLOURS.get(state, _OPEN_COLOUR)}"
    return f'<span title="{count:,} {_text(state)}" style="display:inline-block;height:100%;{style}"></span>'


def _lines(text: str) -> str:
    """Return text of several lines without other control characters, escaped."""
    return escape(
        "".join(
            character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
            for character in text
        )
    )


def _text(text: str) -> str:
    return escape(single_line(text))


# The logical graph as SVG, for notebooks and files: boxes of nodes, frames of constructs, arrows.


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
    tip = "\n".join(line for line in (single_line(node.name), single_line(node.category), counts) if line)
    return (
        f'<g><title>{escape(tip)}</title><rect class="df-n {kind}" x="{node.x:g}" y="{node.y:g}" width="{wide:g}" '
        f'height="{high:g}" rx="{round_:g}"/>'
        f'<text class="df-t" x="{middle:g}" y="{node.y + 21:g}" text-anchor="middle">{escape(_short(node.name))}</text>'
        f'<text class="df-s" x="{middle:g}" y="{node.y + 35:g}" text-anchor="middle">'
        f"{escape(_short(node.category))}</text>{''.join(_state_bar(drawing, node, states))}</g>"
    )


def _state_bar(drawing: LogicalDrawing, node: LogicalShape, states: Mapping[str, int]) -> Iterator[str]:
    total, left = sum(states.values()), node.x + 14
    whole = drawing.node_width - 28
    for state, count in states.items():
        width = whole * count / total if total else 0.0
        colour = STATE_COLOURS.get(state, "#d0d7de")
        yield (
            f'<rect x="{left:.1f}" y="{node.y + drawing.node_height - _BAR_HEIGHT - 3:g}" width="{width:.1f}" '
            f'height="{_BAR_HEIGHT:g}" fill="{colour}"/>'
        )
        left += width


def _short(text: str) -> str:
    line = single_line(text)
    return line if len(line) <= _NAME_CHARACTERS else f"{line[: _NAME_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
