"""Hypothesis strategy for small logical graphs without mistakes: nested constructs and random links between them."""

from typing import Any

from hypothesis import strategies as st

from tests.translator.drawing import Drawing
from tests.translator.oracle import Oracle
from translator.logical import Field, LogicalGraph, LogicalLink

_DEPTH = 5
_MOST_INSTANCES = 8
_GROUPED = ("scatter", "groupby")


@st.composite
def logical_graphs(draw: Any) -> LogicalGraph:
    """A graph of scatters, loops, gathers and group-bys, nested up to five deep, with links that have a meaning."""
    author = _Author(draw)
    author.body(0, 1)
    author.more_links()
    return author.drawing.graph()


class _Author:
    """Draws a graph without cycles: links lead only to nodes that are drawn later."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.drawing = Drawing()
        self.made: list[str] = []
        self.ports: dict[str, str] = {}
        self.number = 0

    def name(self, letter: str) -> str:
        self.number += 1
        return f"{letter}{self.number}"

    def body(self, depth: int, instances: int) -> None:
        for _ in range(self.draw(st.integers(1, 3))):
            kinds = ["data", "app"]
            if depth < _DEPTH and instances <= _MOST_INSTANCES:
                kinds += ["scatter", "loop", "gather", "groupby"]
            getattr(self, self.draw(st.sampled_from(kinds)))(depth, instances)

    def data(self, _depth: int, _instances: int) -> str:
        self.made.append(self.name("d"))
        self.drawing.data(self.made[-1])
        return self.made[-1]

    def app(self, _depth: int, _instances: int) -> str:
        self.made.append(self.name("a"))
        self.drawing.app(self.made[-1])
        return self.made[-1]

    def scatter(self, depth: int, instances: int) -> None:
        size = self.draw(st.integers(0, 3))
        application = self.name("x") if self.draw(st.booleans()) else ""
        with self.drawing.scatter(self.name("S"), size, app=application):
            self.made += [application] if application else []
            self.body(depth + 1, instances * size)

    def loop(self, depth: int, instances: int) -> None:
        size = self.draw(st.integers(1, 3))
        with self.drawing.loop(self.name("L"), size):
            start = self.name("a")
            self.made.append(start)
            self.ports[start] = f"{start}.port"
            self.drawing.app(start, port=Field(id=self.ports[start], name="port", usage="InputPort"))
            self.body(depth + 1, instances * size)
            end = self.data(depth, instances)
        self.drawing.link(end, start, closes=True, ports=("", self.ports[start]))

    def gather(self, depth: int, _instances: int) -> None:
        if not self.made:
            return
        sources = self.draw(st.lists(st.sampled_from(self.made), min_size=1, max_size=2, unique=True))
        width = self.draw(st.sampled_from([None, 0, 1, 2, 3]))
        application = self.name("g")
        with self.drawing.gather(self.name("G"), width, app=application):
            for source in sources:
                self.drawing.link(source, application, aware=self.draw(st.booleans()))
            self.made.append(application)
            self.body(depth + 1, len(Oracle(self.drawing.graph()).instances(application)))

    def groupby(self, depth: int, instances: int) -> None:
        name, here = self.name("K"), self.data(depth, instances)
        oracle = Oracle(self.drawing.graph())
        inputs = {source: oracle.own(source, here) for source in self.made if source.startswith("d")}
        inputs = {source: levels for source, levels in inputs.items() if any(kind in _GROUPED for _, kind, _ in levels)}
        if not inputs:
            return
        source = self.draw(st.sampled_from(list(inputs)))
        names = {name for level, _, _ in inputs[source] for name in level.split(":")}
        good = sorted(name for name in names if len(oracle.answering(name, inputs[source])) == 1)
        keys = self.draw(st.lists(st.sampled_from(good), max_size=3, unique=True)) if good else []
        with self.drawing.groupby(name, ",".join(keys)):
            self.drawing.link(source, name, aware=self.draw(st.booleans()))
            self.body(depth + 1, len(Oracle(self.drawing.graph()).groups(name)))

    def more_links(self) -> None:
        oracle = Oracle(self.drawing.graph())
        later = [(earlier, other) for place, earlier in enumerate(self.made) for other in self.made[place + 1 :]]
        links = [
            LogicalLink(source=source, target=target, source_port="", target_port="", loop_aware=aware)
            for source, target in later
            for aware in (False, True)
            if not other_is_collector(oracle, target)
        ]
        legal = [link for link in links if oracle.legal(link)]
        if legal:
            ends = st.lists(st.sampled_from(legal), max_size=8, unique_by=lambda link: (link.source, link.target))
            for link in self.draw(ends):
                port = self.ports.get(link.target, "") if self.draw(st.booleans()) else ""
                self.drawing.link(link.source, link.target, aware=link.loop_aware, ports=("", port))


def other_is_collector(oracle: Oracle, name: str) -> bool:
    """Whether links to this node enter a gather."""
    construct = oracle.nodes[name].embedded_in
    return construct is not None and oracle.nodes[construct].category == "Gather"
