"""Draws the pictures of the design: ``python docs/explanation/draw_pictures.py`` writes the SVG files beside it.

Names of modules in the pictures are checked by ``tests/docs/test_pictures.py``.
"""

from pathlib import Path
from xml.sax.saxutils import escape

__all__ = ["PICTURES", "Picture", "event", "house"]

_STYLE = """
  text { font: 13px sans-serif; fill: #1f2328; }
  .name { font-weight: 600; }
  .small { font-size: 11.5px; fill: #57606a; }
  .box { fill: #f6f8fa; stroke: #8c959f; }
  .decides { fill: #ddf4ff; stroke: #0969da; }
  .shape { fill: #fff8c5; stroke: #9a6700; }
  .lane { fill: none; stroke: #8c959f; stroke-dasharray: 5 4; }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5; marker-end: url(#head); }
  #head path { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .box { fill: #212830; stroke: #656c76; }
    .decides { fill: #10243e; stroke: #4493f8; }
    .shape { fill: #3a2d0b; stroke: #d29922; }
    .lane { stroke: #656c76; }
    .arrow { stroke: #9198a1; }
    #head path { fill: #9198a1; }
  }
"""


_TWO_LINES = 42

Place = tuple[int, int, int, int]
"""Left, top, width and height of a box."""


class Picture:
    """An SVG picture under construction, and the modules and classes that it names."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.names: list[str] = []
        self._width, self._height, self._title = width, height, title
        self._parts: list[str] = []

    def box(self, place: Place, kind: str = "box") -> None:
        """Draw a rectangle."""
        x, y, width, height = place
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')

    def text(self, x: int, y: int, text: str, kind: str = "", anchor: str = "start") -> None:
        """Write one line."""
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')

    def room(self, place: Place, name: str, text: str = "", *, kind: str = "box", inner: bool = False) -> None:
        """Draw a box with the name of a module or class and a line about it; an `inner` one without its package."""
        self.names.append(name)
        label = name.rpartition(".")[2] if inner else name
        x, y, _, height = place
        self.box(place, kind)
        self.text(x + 10, y + 18, label, "name")
        if height < _TWO_LINES:
            self.text(x + 22 + 8 * len(label), y + 18, text, "small")
        else:
            self.text(x + 10, y + 34, text, "small")

    def arrow(self, *points: tuple[int, int]) -> None:
        """Draw an arrow along these points."""
        path = " L ".join(f"{x} {y}" for x, y in points)
        self._parts.append(f'<path class="arrow" d="M {path}"/>')

    def svg(self) -> str:
        """Return the file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
            f'width="{self._width}" height="{self._height}" role="img" aria-label="{escape(self._title)}">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>'
        )
        return "\n".join([head, f"<style>{_STYLE}</style>", marker, *self._parts, "</svg>", ""])


def house() -> Picture:
    """Return the picture of the rings: rooms import what is below them, never what is above."""
    picture = Picture(900, 750, "Rings and rooms of dropflow: each ring imports only the rings below it")
    picture.arrow((24, 40), (24, 708))
    picture.text(32, 30, "imports go down only", "small")

    picture.room((50, 42, 260, 30), "dropflow.cli", "the commands")
    picture.room((320, 42, 270, 30), "dropflow.builder", "graphs in Python")
    picture.room((600, 42, 270, 30), "dropflow.dask", "collections of dask")
    picture.room((50, 86, 400, 30), "dropflow.submission", "graphs on nodes of managers")
    picture.room((470, 86, 400, 30), "dropflow.sessions", "one graph on this machine")

    picture.room((50, 130, 400, 182), "managers", "node, island, master, daemon")
    for number, (name, line, kind) in enumerate(
        [
            ("managers.routes", "REST paths", "box"),
            ("managers.web", "pages", "box"),
            ("managers.node", "sessions of one host", "decides"),
            ("managers.composite", "islands and masters", "decides"),
            ("managers.recovery", "who goes on after a loss", "decides"),
            ("managers.links", "connections between nodes", "decides"),
        ]
    ):
        x, y = 60 + 193 * (number % 2), 170 + 47 * (number // 2)
        picture.room((x, y, 187, 42), name, line, kind=kind, inner=True)

    picture.room((470, 130, 290, 182), "translator", "logical to physical graphs")
    for number, (name, line, kind) in enumerate(
        [
            ("translator.web", "service for EAGLE", "box"),
            ("translator.pipeline", "all stages in order", "box"),
            ("translator.formats", "reads EAGLE's files", "box"),
            ("translator.validate", "finds mistakes", "box"),
            ("translator.unroll", "index arithmetic", "decides"),
            ("translator.plan", "parts and nodes", "box"),
        ]
    ):
        x, y = 480 + 138 * (number % 2), 170 + 47 * (number // 2)
        picture.room((x, y, 132, 42), name, line, kind=kind, inner=True)
    picture.room((780, 130, 90, 182), "palettes")
    picture.text(790, 168, "for EAGLE", "small")

    picture.room((50, 326, 820, 30), "dropflow.web", "what pages of all servers share: report, comparison, origin")
    picture.room((50, 370, 400, 118), "dropflow.api", "operations, client and server")
    picture.room((470, 370, 400, 30), "dropflow.runners", "threads, processes, Dask, Ray")
    picture.room((470, 414, 400, 30), "dropflow.reuse", "results of earlier runs")
    picture.room((470, 458, 400, 30), "dropflow.apps", "functions, commands, your own")
    picture.room(
        (50, 502, 820, 30), "dropflow.data", "contents: memory, files, directories, streams; commit and release"
    )

    picture.room((50, 546, 820, 88), "dropflow.execution", "executes one session")
    picture.room(
        (60, 586, 395, 42), "dropflow.execution.decisions.core", "handle(events) -> actions", kind="decides", inner=True
    )
    picture.room((465, 586, 395, 42), "dropflow.execution.session", "one thread, one inbox, the journal", inner=True)

    picture.room((50, 648, 490, 30), "dropflow.graph", "physical graphs as columns, slices, .dfg, DALiuGE's JSON")
    picture.room((560, 648, 310, 30), "dropflow.host", "processors, memory, GPUs")
    picture.room((50, 692, 820, 30), "dropflow.errors", "and states, ids, failure, clock, formatting ...")
    picture.box((50, 730, 14, 14), "decides")
    picture.text(72, 742, "decides without I/O: events in, actions out, time is passed in", "small")
    return picture


def event() -> Picture:
    """Return the picture of an event that crosses nodes: a drop completes on node A, its consumer is on node B."""
    picture = Picture(900, 470, "The way of an event from node A to node B, in four shapes")
    for x, node in ((10, "Node A"), (460, "Node B")):
        picture.box((x, 10, 430, 292), "lane")
        picture.text(x + 10, 30, f"{node}: the session's thread", "small")
        picture.box((x, 312, 430, 100), "lane")
        picture.text(x + 10, 332, f"{node}: the thread of the links", "small")

    picture.room((30, 44, 390, 42), "dropflow.execution.decisions.core.Core", "the drop is completed", kind="decides")
    _shape(
        picture,
        (30, 106),
        "dropflow.execution.decisions.events.Publish",
        "1  an action of the core: drop, state, cause, attempt",
    )
    picture.room(
        (30, 178, 390, 42),
        "managers.node.event_sender.EventSender",
        "one message per node, with contents",
        inner=True,
    )
    _shape(picture, (30, 240), "managers.messages.Events", "2  a message on the wire: columns of rows and states")
    picture.room(
        (30, 346, 390, 42), "managers.links.outbound", "numbers it, keeps it until it is acknowledged", kind="decides"
    )

    picture.room(
        (480, 346, 390, 42), "managers.links.inbound", "acknowledges it, skips what came twice", kind="decides"
    )
    _shape(picture, (480, 240), "dropflow.execution.interfaces.Arrival", "3  the message, in the inbox of the session")
    picture.room(
        (480, 178, 390, 42),
        "managers.node.event_receiver.EventReceiver",
        "opens it when its contents are here",
        inner=True,
    )
    _shape(
        picture,
        (480, 106),
        "dropflow.execution.decisions.events.Reported",
        "4  an event for the core: the drop of the other node",
    )
    picture.room(
        (480, 44, 390, 42),
        "dropflow.execution.decisions.core.Core",
        "runs the consumers that are ready",
        kind="decides",
    )

    for upper, lower in ((86, 106), (158, 178), (220, 240), (292, 346)):
        picture.arrow((225, upper), (225, lower))
        picture.arrow((675, lower), (675, upper))
    picture.arrow((420, 367), (480, 367))
    picture.text(450, 430, "ZeroMQ, encrypted with the cluster key", "small", "middle")
    picture.box((30, 446, 14, 14), "shape")
    picture.text(52, 458, "a shape of the event", "small")
    picture.box((200, 446, 14, 14), "decides")
    picture.text(222, 458, "decides without I/O", "small")
    return picture


def _shape(picture: Picture, corner: tuple[int, int], name: str, text: str) -> None:
    picture.room((*corner, 390, 52), name, text, kind="shape")


PICTURES = {"house.svg": house, "event.svg": event}


if __name__ == "__main__":
    for file, draw in PICTURES.items():
        Path(__file__).with_name(file).write_text(draw().svg(), encoding="utf-8")
