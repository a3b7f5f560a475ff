"""Graphs, sessions and failures as HTML, for notebooks.

The functions return elements without scripts, and without styles that reach other parts of a page. All names and texts
are escaped: they may come from anywhere. The classes that notebooks show call them in `_repr_html_`.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dropflow.errors import MissingDependencyError
from dropflow.formatting import format_duration, plural, single_line
from dropflow.graph.logical_svg import MOST_SHAPES, STATE_COLOURS, logical_svg
from dropflow.graph.physical import PhysicalGraph

_OPEN_COLOUR = "#d0d7de"
_LOG_LINES = 20
_LOG_BYTES = 16_384
_MOST_FAILURES = 10
_BOX = "font-family:system-ui,sans-serif;margin:.3em 0"
_PRE = (
    "white-space:pre-wrap;overflow-x:auto;max-height:20em;border-left:3px solid #8b949e;padding-left:.8em;margin:.4em 0"
)


def graph_html(graph: PhysicalGraph, states: Mapping[str, Mapping[str, int]] | None = None) -> str:
    """Return a graph: its size, and the picture of its logical graph.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph.
    states : mapping, optional
        See `dropflow.graph.logical_svg.logical_svg`.
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
    shown = "".join(failures[:_MOST_FAILURES])
    if len(failures) > _MOST_FAILURES:
        shown += f"<div>and {plural(len(failures) - _MOST_FAILURES, 'more cause')}</div>"
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
    items = "".join(f"<li>{_lines(one)}</li>" for one in problems)
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


def last_lines(content: bytes) -> str:
    """Return the last lines of the end of a log."""
    return "\n".join(content.decode(errors="replace").splitlines()[-_LOG_LINES:])


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
    found: Callable[..., Any] = display
    return found


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
    return escape("".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text))


def _text(text: str) -> str:
    return escape(single_line(text))
