"""Pictures of timelines: a row for each processor or worker and a box for each attempt, as SVG."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

_MOST_BOXES = 4_000
"""Pictures of more attempts show how many processors of each node are busy."""
_WIDTH, LANE, _LEFT = 1000, 14, 120
"""Pixels: of the time axis, of the height of a lane, and of the names before it."""
_MOST_LANES = 64
"""Lanes of a node that are drawn."""
_COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#76b7b2",
    "#edc948",
    "#b07aa1",
    "#9c755f",
    "#ff9da7",
    "#86bcb6",
)
_TOP, _SAMPLES = 30, 500
_FONT_SIZE = 11
"""Pixels: the size of letters."""
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot have, and a surrogate, which UTF-8 does not have either."""
_LINE_COLOUR, _NOTE_COLOUR = "#cccccc", "#767676"


@dataclass(frozen=True)
class _Row:
    """The name of a node, the top of its processors, and why nothing has run there; empty if something has."""

    name: str
    top: float
    note: str = ""


@dataclass(frozen=True)
class _Box:
    """An application, or an attempt of one."""

    left: float
    top: float
    width: float
    colour: str
    text: str


@dataclass(frozen=True)
class TimelinePicture:
    """A picture of a run, in pixels.

    Attributes
    ----------
    title : str
        What it shows.
    width, height : int
        Its size.
    rows : tuple
        The nodes.
    boxes : tuple
        The applications; none if there are too many.
    areas : tuple
        Polygons with the number of busy processors of each node instead.
    """

    title: str
    width: int
    height: int
    rows: tuple[_Row, ...]
    boxes: tuple[_Box, ...] = ()
    areas: tuple[tuple[tuple[float, float], ...], ...] = ()


class Bars(NamedTuple):
    """The bars of a timeline, as columns with a place for each application or attempt.

    Attributes
    ----------
    node, lane, template : int arrays
        The node, its processor or worker, and the logical node.
    start, end : float64 arrays
        Seconds from the left.
    need : int array
        How many processors it keeps busy.
    """

    node: npt.NDArray[np.integer]
    lane: npt.NDArray[np.integer]
    template: npt.NDArray[np.integer]
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    need: npt.NDArray[np.integer]


def picture_of(
    title: str, nodes: Sequence[tuple[str, int, str]], bars: Bars, names: Sequence[str], length: float
) -> TimelinePicture:
    """Return a picture of a run: a row for each lane of a node, and a box for each bar.

    Pictures of very many bars show how many processors of each node are busy instead.

    Parameters
    ----------
    nodes : sequence
        The name of each node, its lanes, and why nothing has run there; empty if something has.
    names : sequence of str
        Names of the logical nodes.
    length : float
        Seconds of the whole axis.
    """
    is_large = len(bars.start) > _MOST_BOXES
    heights = [LANE * (2 if is_large else min(max(lanes, 1), _MOST_LANES)) + 8 for _, lanes, _ in nodes]
    tops: list[float] = (np.concatenate([[0], np.cumsum(heights)]) + _TOP).tolist()
    return TimelinePicture(
        title=title,
        width=_LEFT + _WIDTH + 20,
        height=int(tops[-1]) + 30,
        rows=tuple(_Row(name, top, note) for (name, _, note), top in zip(nodes, tops, strict=False)),
        boxes=() if is_large else tuple(_boxes(bars, names, tops, length)),
        areas=tuple(
            _busy_area(bars, number, length=length, most=max(lanes, 1), top=tops[number])
            for number, (_, lanes, _) in enumerate(nodes)
        )
        if is_large
        else (),
    )


def _boxes(bars: Bars, names: Sequence[str], tops: Sequence[float], length: float) -> Iterator[_Box]:
    scale = _WIDTH / length if length > 0 else 0.0
    for node, lane, template, start, end in zip(*(column.tolist() for column in bars[:5]), strict=True):
        yield _Box(
            left=_LEFT + start * scale,
            top=tops[node] + LANE * min(lane, _MOST_LANES - 1),
            width=max((end - start) * scale, 0.5),
            colour=_COLOURS[template % len(_COLOURS)],
            text=f"{names[template]}: {start:.6g} to {end:.6g} s",
        )


def _busy_area(bars: Bars, node: int, *, length: float, most: int, top: float) -> tuple[tuple[float, float], ...]:
    """Return a polygon with how many of `most` processors of a node are busy."""
    here = bars.node == node
    start, end, need = bars.start[here], bars.end[here], bars.need[here]
    times = np.linspace(0.0, length, _SAMPLES)
    scale = _WIDTH / length if length > 0 else 0.0
    begun, ended = np.argsort(start), np.argsort(end)
    up, down = np.append(0, np.cumsum(need[begun])), np.append(0, np.cumsum(need[ended]))
    busy = up[np.searchsorted(start[begun], times, side="right")]
    busy = busy - down[np.searchsorted(end[ended], times, side="right")]
    bottom, height = top + 2 * LANE, 2.0 * LANE
    points = [
        (_LEFT + time * scale, bottom - height * min(count / most, 1.0))
        for time, count in zip(times.tolist(), busy.tolist(), strict=True)
    ]
    return ((float(_LEFT), bottom), *points, (float(_LEFT + _WIDTH), bottom))


def write_svg(picture: TimelinePicture, stream: BinaryIO) -> None:
    """Write a picture as SVG."""
    stream.writelines(piece.encode() for piece in _svg(picture))


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def _svg(picture: TimelinePicture) -> Iterator[str]:
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{picture.width}" height="{picture.height}" '
    yield f'viewBox="0 0 {picture.width} {picture.height}" font-family="sans-serif" font-size="{_FONT_SIZE}">\n'
    yield f'<text x="{_LEFT}" y="18">{_text(picture.title)}</text>\n'
    for row in picture.rows:
        yield f'<text x="4" y="{row.top + 11:g}">{_text(row.name)}</text>\n'
        yield f'<line x1="{_LEFT}" y1="{row.top - 3:g}" x2="{picture.width - 20}" y2="{row.top - 3:g}" '
        yield f'stroke="{_LINE_COLOUR}"/>\n'
        if row.note:
            yield f'<text x="{_LEFT}" y="{row.top + 11:g}" fill="{_NOTE_COLOUR}">{_text(row.note)}</text>\n'
    for box in picture.boxes:
        yield f'<rect x="{box.left:.2f}" y="{box.top:g}" width="{box.width:.2f}" height="{LANE - 2}" '
        yield f'fill="{box.colour}"><title>{_text(box.text)}</title></rect>\n'
    for area in picture.areas:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in area)
        yield f'<polygon points="{points}" fill="{_COLOURS[0]}"/>\n'
    yield "</svg>\n"
