"""Draws simulated runs: a row for each processor and a box for each application, as SVG or PNG."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from translator.planning.graph_work import GraphWork
from translator.planning.machines import Machines
from translator.planning.simulation import Timeline
from translator.planning.timeline_trace import processors_of

__all__ = ["TimelinePicture", "has_png", "timeline_picture", "write_png", "write_svg"]

_MOST_BOXES = 4_000
"""Pictures of more applications show how many processors of each node are busy."""
_WIDTH, _LANE, _LEFT, _TOP = 1000, 14, 120, 30
_SAMPLES = 500
_MOST_LANES = 64
_MOST_PIXELS = 100_000_000
_FONT = 11
_LINE_COLOUR = "#cccccc"
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


@dataclass(frozen=True)
class _Row:
    """The name of a node, and the top of its processors."""

    name: str
    top: float


@dataclass(frozen=True)
class _Box:
    """An application."""

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


def has_png() -> bool:
    """Whether PNG can be written: Pillow is installed."""
    try:
        import PIL.ImageDraw  # noqa: F401, PLC0415 - optional
    except ImportError:
        return False
    return True


def timeline_picture(graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline) -> TimelinePicture:
    """Return a picture of a run: a row for each processor, and a box for each application.

    Pictures of very many applications show the number of busy processors of each node instead.
    """
    is_large = len(work.apps) > _MOST_BOXES
    heights = [_LANE * (2 if is_large else min(node.cores, _MOST_LANES)) + 8 for node in machines.nodes]
    tops = np.concatenate([[0], np.cumsum(heights)]) + _TOP
    return TimelinePicture(
        title=f"{graph.name}: {run.completion:.6g} s on {len(heights)} nodes",
        width=_LEFT + _WIDTH + 20,
        height=int(tops[-1]) + 30,
        rows=tuple(_Row(node.name, float(top)) for node, top in zip(machines.nodes, tops.tolist(), strict=False)),
        boxes=() if is_large else tuple(_boxes(graph, work, machines, run, tops)),
        areas=tuple(_busy_areas(graph, work, machines, run, tops)) if is_large else (),
    )


def _boxes(
    graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline, tops: npt.NDArray[np.int64]
) -> Iterator[_Box]:
    lanes = processors_of(graph, work, machines, run)
    scale = _WIDTH / run.completion if run.completion > 0 else 0.0
    for app in work.apps.tolist():
        start, end = float(run.start[app]), float(run.end[app])
        yield _Box(
            left=_LEFT + start * scale,
            top=float(tops[graph.part[app]]) + _LANE * min(lanes[app], _MOST_LANES - 1),
            width=max((end - start) * scale, 0.5),
            colour=_COLOURS[int(graph.template[app]) % len(_COLOURS)],
            text=f"{graph.templates[graph.template[app]].name}: {start:.6g} to {end:.6g} s",
        )


def _busy_areas(
    graph: PhysicalGraph, work: GraphWork, machines: Machines, run: Timeline, tops: npt.NDArray[np.int64]
) -> Iterator[tuple[tuple[float, float], ...]]:
    times = np.linspace(0.0, run.completion, _SAMPLES)
    scale = _WIDTH / run.completion if run.completion > 0 else 0.0
    for number, node in enumerate(machines.nodes):
        here = work.apps[graph.part[work.apps] == number]
        need = np.minimum(work.cpus[here], node.cores)
        begun, ended = np.argsort(run.start[here]), np.argsort(run.end[here])
        up, down = np.append(0, np.cumsum(need[begun])), np.append(0, np.cumsum(need[ended]))
        busy = up[np.searchsorted(run.start[here][begun], times, side="right")]
        busy = busy - down[np.searchsorted(run.end[here][ended], times, side="right")]
        bottom, height = float(tops[number]) + 2 * _LANE, 2.0 * _LANE
        points = [
            (_LEFT + time * scale, bottom - height * count / node.cores)
            for time, count in zip(times.tolist(), busy.tolist(), strict=True)
        ]
        yield ((float(_LEFT), bottom), *points, (float(_LEFT + _WIDTH), bottom))


def write_svg(picture: TimelinePicture, stream: BinaryIO) -> None:
    """Write a picture as SVG."""
    stream.writelines(piece.encode() for piece in _svg(picture))


def _svg(picture: TimelinePicture) -> Iterator[str]:
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{picture.width}" height="{picture.height}" '
    yield f'viewBox="0 0 {picture.width} {picture.height}" font-family="sans-serif" font-size="{_FONT}">\n'
    yield f'<text x="{_LEFT}" y="18">{escape(picture.title)}</text>\n'
    for row in picture.rows:
        yield f'<text x="4" y="{row.top + 11:g}">{escape(row.name)}</text>\n'
        yield f'<line x1="{_LEFT}" y1="{row.top - 3:g}" x2="{picture.width - 20}" y2="{row.top - 3:g}" '
        yield f'stroke="{_LINE_COLOUR}"/>\n'
    for box in picture.boxes:
        yield f'<rect x="{box.left:.2f}" y="{box.top:g}" width="{box.width:.2f}" height="{_LANE - 2}" '
        yield f'fill="{box.colour}"><title>{escape(box.text)}</title></rect>\n'
    for area in picture.areas:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in area)
        yield f'<polygon points="{points}" fill="{_COLOURS[0]}"/>\n'
    yield "</svg>\n"


def write_png(picture: TimelinePicture, stream: BinaryIO) -> None:
    """Write a picture as PNG; of very many nodes, only as many rows as fit into 100 million pixels.

    Raises
    ------
    ImportError
        Pillow is not installed; see `has_png`.
    """
    from PIL import Image, ImageDraw  # noqa: PLC0415 - optional

    height = min(picture.height, _MOST_PIXELS // picture.width)
    image = Image.new("RGB", (picture.width, height), "white")
    draw = ImageDraw.Draw(image)
    draw.text((_LEFT, 8), picture.title, fill="black", font_size=_FONT)
    for row in picture.rows:
        draw.text((4, row.top), row.name, fill="black", font_size=_FONT)
        draw.line((_LEFT, row.top - 3, picture.width - 20, row.top - 3), fill=_LINE_COLOUR)
    for box in picture.boxes:
        # Both corners are drawn; a box of half a pixel still has one.
        right = max(box.left + box.width - 1, box.left)
        draw.rectangle((box.left, box.top, right, box.top + _LANE - 3), fill=box.colour)
    for area in picture.areas:
        draw.polygon(area, fill=_COLOURS[0])
    image.save(stream, format="PNG", optimize=True)
