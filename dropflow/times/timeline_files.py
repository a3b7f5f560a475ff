"""Pictures of timelines: a row for each processor or worker and a box for each attempt, as SVG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

__all__ = [
    "COLOURS",
    "LANE",
    "LEFT",
    "MOST_BOXES",
    "MOST_LANES",
    "WIDTH",
    "Box",
    "Row",
    "TimelinePicture",
    "busy_area",
    "tops_of",
    "write_svg",
]


MOST_BOXES = 4_000
"""Pictures of more attempts show how many processors of each node are busy."""
WIDTH, LANE, LEFT = 1000, 14, 120
"""Pixels: of the time axis, of the height of a lane, and of the names before it."""
MOST_LANES = 64
"""Lanes of a node that are drawn."""
COLOURS = (
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
_FONT = 11
_LINE_COLOUR, _NOTE_COLOUR = "#cccccc", "#767676"


@dataclass(frozen=True)
class Row:
    """The name of a node, the top of its processors, and why nothing has run there; empty if something has."""

    name: str
    top: float
    note: str = ""


@dataclass(frozen=True)
class Box:
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
    rows: tuple[Row, ...]
    boxes: tuple[Box, ...] = ()
    areas: tuple[tuple[tuple[float, float], ...], ...] = ()


def tops_of(lanes: Sequence[int], *, is_large: bool) -> list[float]:
    """Return the top of each node with so many lanes, and the bottom of the last one."""
    heights = [LANE * (2 if is_large else min(max(count, 1), MOST_LANES)) + 8 for count in lanes]
    tops: list[float] = (np.concatenate([[0], np.cumsum(heights)]) + _TOP).tolist()
    return tops


def busy_area(
    start: npt.NDArray[np.float64],
    end: npt.NDArray[np.float64],
    need: npt.NDArray[np.integer],
    *,
    length: float,
    most: int,
    top: float,
) -> tuple[tuple[float, float], ...]:
    """Return a polygon with how many processors of a node are busy.

    Parameters
    ----------
    start, end : float64 arrays
        When its attempts run, in seconds from the left.
    need : array
        How many processors each keeps busy.
    length : float
        Seconds of the whole axis.
    most : int
        Processors of the node.
    top : float
        Of the node.
    """
    times = np.linspace(0.0, length, _SAMPLES)
    scale = WIDTH / length if length > 0 else 0.0
    begun, ended = np.argsort(start), np.argsort(end)
    up, down = np.append(0, np.cumsum(need[begun])), np.append(0, np.cumsum(need[ended]))
    busy = up[np.searchsorted(start[begun], times, side="right")]
    busy = busy - down[np.searchsorted(end[ended], times, side="right")]
    bottom, height = top + 2 * LANE, 2.0 * LANE
    points = [
        (LEFT + time * scale, bottom - height * min(count / most, 1.0))
        for time, count in zip(times.tolist(), busy.tolist(), strict=True)
    ]
    return ((float(LEFT), bottom), *points, (float(LEFT + WIDTH), bottom))


def write_svg(picture: TimelinePicture, stream: BinaryIO) -> None:
    """Write a picture as SVG."""
    stream.writelines(piece.encode() for piece in _svg(picture))


def _svg(picture: TimelinePicture) -> Iterator[str]:
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{picture.width}" height="{picture.height}" '
    yield f'viewBox="0 0 {picture.width} {picture.height}" font-family="sans-serif" font-size="{_FONT}">\n'
    yield f'<text x="{LEFT}" y="18">{escape(picture.title)}</text>\n'
    for row in picture.rows:
        yield f'<text x="4" y="{row.top + 11:g}">{escape(row.name)}</text>\n'
        yield f'<line x1="{LEFT}" y1="{row.top - 3:g}" x2="{picture.width - 20}" y2="{row.top - 3:g}" '
        yield f'stroke="{_LINE_COLOUR}"/>\n'
        if row.note:
            yield f'<text x="{LEFT}" y="{row.top + 11:g}" fill="{_NOTE_COLOUR}">{escape(row.note)}</text>\n'
    for box in picture.boxes:
        yield f'<rect x="{box.left:.2f}" y="{box.top:g}" width="{box.width:.2f}" height="{LANE - 2}" '
        yield f'fill="{box.colour}"><title>{escape(box.text)}</title></rect>\n'
    for area in picture.areas:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in area)
        yield f'<polygon points="{points}" fill="{COLOURS[0]}"/>\n'
    yield "</svg>\n"
