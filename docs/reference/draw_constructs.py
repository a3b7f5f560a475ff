"""Draws the pictures of constructs: ``python docs/reference/draw_constructs.py`` writes SVG files in ``constructs``.

Each picture is a small logical graph that dropflow unrolls: its drops in columns by the order in which they run, data
as rounded boxes, applications as plain ones. ``tests/docs/test_pictures.py`` checks that they are fresh.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from dropflow.graph.order import levels
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import index_of
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
from translator.unroll import outline_of, unroll

__all__ = ["PICTURES", "Sketch", "picture"]

_STYLE = """
  text { font: 12px sans-serif; fill: #1f2328; }
  .small { font-size: 10px; fill: #57606a; }
  .data { fill: #fff8c5; stroke: #9a6700; }
  .app { fill: #ddf4ff; stroke: #0969da; }
  .edge { fill: none; stroke: #8c959f; stroke-width: 1.2; marker-end: url(#head); }
  #head path { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .data { fill: #3a2d0b; stroke: #d29922; }
    .app { fill: #10243e; stroke: #4493f8; }
    .edge { stroke: #656c76; }
    #head path { fill: #656c76; }
  }
"""
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 74, 34, 112, 46, 14


class Sketch:
    """A small logical graph: `app` and `data` in the construct that is open, linked by `link`."""

    def __init__(self) -> None:
        self._nodes: list[LogicalNode] = []
        self._links: list[LogicalLink] = []
        self._around: list[str] = []

    def app(self, name: str, **values: Any) -> "Sketch":
        """Add an application."""
        category = values.pop("category", "DALiuGEApp")
        return self._add(name, category, NodeKind.APP, {"dropclass": "dlg.apps.simple.SleepApp", **values})

    def data(self, name: str, **values: Any) -> "Sketch":
        """Add a data node."""
        return self._add(name, "Memory", NodeKind.DATA, values)

    def link(self, *names: str, aware: bool = False, closes: bool = False) -> "Sketch":
        """Link nodes in a chain."""
        for source, target in pairwise(names):
            self._links.append(LogicalLink(source=source, target=target, loop_aware=aware, closes_loop=closes))
        return self

    @contextmanager
    def construct(self, category: str, name: str, *, app: str = "", out: str = "", **values: Any) -> Iterator[None]:
        """Open a construct with an input and an output application."""
        self._add(name, category, NodeKind.CONSTRUCT, values)
        for embedded, role in ((app, Role.INPUT), (out, Role.OUTPUT)):
            if embedded:
                self.app(embedded)
                self._nodes[-1] = _embedded(self._nodes[-1], name, role)
        self._around.append(name)
        yield
        self._around.pop()

    def graph(self) -> LogicalGraph:
        """Return the logical graph."""
        return LogicalGraph(name="g", family="sketch", nodes=tuple(self._nodes), links=tuple(self._links))

    def _add(self, name: str, category: str, kind: NodeKind, values: dict[str, Any]) -> "Sketch":
        fields = tuple(Field(id=f"{name}.{key}", name=key, value=value) for key, value in values.items())
        around = self._around[-1] if self._around else None
        self._nodes.append(
            LogicalNode(id=name, name=name, category=category, kind=kind, parent=around, key=name, fields=fields)
        )
        return self


def _embedded(node: LogicalNode, construct: str, role: Role) -> LogicalNode:
    return LogicalNode(
        id=node.id,
        name=node.name,
        category=node.category,
        kind=node.kind,
        embedded_in=construct,
        role=role,
        key=node.key,
        fields=node.fields,
    )


def scatter() -> Sketch:
    """Three copies, with an input and an output application."""
    sketch = Sketch().data("all")
    with sketch.construct("Scatter", "S", app="Split", out="Join", num_of_copies=3):
        sketch.data("part").app("Work").data("done")
    return sketch.data("result").link("all", "Split", "part", "Work", "done", "Join", "result")


def gather() -> Sketch:
    """Four data, gathered two at a time, and the two results again."""
    sketch = Sketch()
    with sketch.construct("Scatter", "S", num_of_copies=4):
        sketch.data("part")
    with sketch.construct("Gather", "G", app="Add", num_of_inputs=2):
        sketch.data("sum")
    with sketch.construct("Gather", "H", app="Total", num_of_inputs=2):
        sketch.data("total")
    return sketch.link("part", "Add", "sum", "Total", "total")


def groupby() -> Sketch:
    """Two times three data, grouped by the inner scatter: the corner turn."""
    sketch = Sketch()
    with sketch.construct("Scatter", "Outer", num_of_copies=2), sketch.construct("Scatter", "Inner", num_of_copies=3):
        sketch.data("d")
    with sketch.construct("GroupBy", "K", app="Group"):
        sketch.app("Use").data("used")
    return sketch.link("d", "Group").link("Use", "used")


def loop() -> Sketch:
    """Three iterations: the first reads from before the loop, the last one is read after it."""
    sketch = Sketch().data("first")
    with sketch.construct("Loop", "L", num_of_iter=3):
        sketch.app("Step", group_start=True).data("value", group_end=True)
    sketch.app("After")
    sketch.link("first", "Step", aware=True).link("Step", "value").link("value", "Step", closes=True)
    return sketch.link("value", "After", aware=True)


def mkn() -> Sketch:
    """M = 2 of four inputs, K = 2 copies inside, N = 2 outputs."""
    sketch = Sketch()
    with sketch.construct("Scatter", "S", num_of_copies=4):
        sketch.data("in")
    with sketch.construct("MKN", "M", app="Take", out="Give", m=2, k=2, n=2):
        sketch.data("a").app("Work").data("b")
    sketch.data("out")
    return sketch.link("in", "Take", "a", "Work", "b", "Give", "out")


def subgraph() -> Sketch:
    """A SubGraph with both applications, in a scatter of two."""
    sketch = Sketch().data("d")
    with (
        sketch.construct("Scatter", "S", num_of_copies=2),
        sketch.construct("SubGraph", "G", app="Enter", out="Leave"),
    ):
        sketch.data("a").app("Work").data("b")
    return sketch.data("e").link("d", "Enter", "a", "Work", "b", "Leave", "e")


def zipped() -> Sketch:
    """Two scatters of three, the second with zip_with."""
    sketch = Sketch()
    with sketch.construct("Scatter", "S", num_of_copies=3):
        sketch.app("One").data("one")
    with sketch.construct("Scatter", "T", num_of_copies=3, zip_with="S"):
        sketch.app("Two").data("two")
    return sketch.link("One", "one", "Two", "two")


def sequential() -> Sketch:
    """Four copies, two at a time: a gather feeds back to the start of its scatter."""
    sketch = Sketch()
    with sketch.construct("Scatter", "S", num_of_copies=4):
        sketch.app("Begin", group_start=True).data("d")
    with sketch.construct("Gather", "G", app="Take", num_of_inputs=2):
        sketch.data("chunk")
    return sketch.link("Begin", "d", "Take", "chunk", "Begin")


def mpi() -> Sketch:
    """Three ranks, with data for all and of all."""
    return Sketch().data("in").app("Job", category="Mpi", num_of_procs=3).data("out").link("in", "Job", "out")


def exclusive() -> Sketch:
    """In each of two copies, an application alone on a node."""
    sketch = Sketch().data("d")
    with sketch.construct("Scatter", "S", num_of_copies=2):
        sketch.app("Before").data("a")
        with sketch.construct("ExclusiveForceNode", "X"):
            sketch.app("Alone").data("b")
    return sketch.link("d", "Before", "a", "Alone", "b")


PICTURES: dict[str, Callable[[], Sketch]] = {
    "scatter.svg": scatter,
    "gather.svg": gather,
    "groupby.svg": groupby,
    "loop.svg": loop,
    "mkn.svg": mkn,
    "subgraph.svg": subgraph,
    "zipped.svg": zipped,
    "sequential.svg": sequential,
    "mpi.svg": mpi,
    "exclusive.svg": exclusive,
}


def picture(graph: PhysicalGraph, title: str) -> str:
    """Return a physical graph as SVG: drops in columns by their level, in each column in their order."""
    column = levels(graph)
    tall = int(np.bincount(column).max())
    row = np.zeros(graph.drops, dtype=np.int64)
    for level in range(int(column.max()) + 1):
        here = np.flatnonzero(column == level)
        row[here] = np.arange(len(here))
    counts = np.bincount(column)
    places = [
        (
            _MARGIN + _ACROSS * int(column[drop]),
            round(_MARGIN + _DOWN * (int(row[drop]) + (tall - int(counts[column[drop]])) / 2)),
        )
        for drop in range(graph.drops)
    ]
    width = 2 * _MARGIN + _ACROSS * int(column.max()) + _WIDTH
    height = 2 * _MARGIN + _DOWN * (tall - 1) + _HEIGHT
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">'
    marker = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    parts = [head, f"<style>{_STYLE}</style>", f'<defs>{marker}<path d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>']
    sources = np.repeat(np.arange(graph.drops), np.diff(graph.successors.ptr))
    for source, target in zip(sources.tolist(), graph.successors.neighbour.tolist(), strict=True):
        (x, y), (to_x, to_y) = places[source], places[target]
        middle = _HEIGHT // 2
        parts.append(
            f'<path class="edge" d="M {x + _WIDTH} {y + middle} C {x + _WIDTH + 18} {y + middle}, '
            f'{to_x - 18} {to_y + middle}, {to_x} {to_y + middle}"/>'
        )
    for drop, (x, y) in enumerate(places):
        template = graph.templates[graph.template[drop]]
        is_data = template.kind is Kind.DATA
        kind, radius = ("data", _HEIGHT // 2) if is_data else ("app", 3)
        index = "-".join(map(str, index_of(graph, drop)))
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="{radius}"/>')
        parts.append(f'<text x="{x + _WIDTH // 2}" y="{y + 15}" text-anchor="middle">{escape(template.name)}</text>')
        parts.append(f'<text class="small" x="{x + _WIDTH // 2}" y="{y + 28}" text-anchor="middle">{index}</text>')
    return "\n".join([*parts, "</svg>", ""])


def draw(name: str) -> str:
    """Return the picture of a construct."""
    sketch = PICTURES[name]
    return picture(unroll(outline_of(sketch().graph())), sketch.__doc__ or name)


if __name__ == "__main__":
    folder = Path(__file__).with_name("constructs")
    folder.mkdir(exist_ok=True)
    for file in PICTURES:
        (folder / file).write_text(draw(file), encoding="utf-8")
