"""Hypothesis strategy for small logical graphs without mistakes: nested constructs and random links between them."""

from typing import Any

from hypothesis import strategies as st

from tests.translator.drawing import Drawing
from tests.translator.oracle import Oracle
from translator.logical import LogicalGraph

__all__ = ["logical_graphs"]

_DEPTH = 4
_MOST_INSTANCES = 8


@st.composite
def logical_graphs(draw: Any) -> LogicalGraph:
    """A graph of scatters, loops, gathers and group-bys, nested up to four deep, with links that have a meaning."""
    author = _Author(draw)
    author.body(0, 1)
    author.more_links()
    return author.drawing.graph()


class _Author:
    """Draws a graph, and remembers what exists already: links only lead to what comes later, so there is no cycle."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.drawing = Drawing()
        self.made: list[str] = []
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
            start = self.app(depth, instances)
            self.body(depth + 1, instances * size)
            end = self.data(depth, instances)
        self.drawing.link(end, start, closes=True)

    def gather(self, depth: int, instances: int) -> None:
        if not self.made:
            return
        sources = self.draw(st.lists(st.sampled_from(self.made), min_size=1, max_size=2, unique=True))
        width = self.draw(st.sampled_from([None, 0, 1, 2, 3]))
        application = self.name("g")
        with self.drawing.gather(self.name("G"), width, app=application):
            for source in sources:
                self.drawing.link(source, application, aware=self.draw(st.booleans()))
            self.made.append(application)
            self.body(depth + 1, instances)

    def groupby(self, depth: int, instances: int) -> None:
        name = self.name("K")
        scatters = self._scatters()
        sources = [source for source in self.made if source.startswith("d") and scatters(source)]
        if not sources:
            return
        source = self.draw(st.sampled_from(sources))
        keys = self.draw(st.lists(st.sampled_from(scatters(source)), max_size=2, unique=True))
        with self.drawing.groupby(name, ",".join(keys)):
            self.drawing.link(source, name)
            self.body(depth + 1, instances)

    def _scatters(self) -> Any:
        """Answers the scatters around a node that are not around the place where drawing goes on."""
        here = self.name("h")
        oracle = Oracle(self.drawing.data(here).graph())
        self.made.append(here)
        around = oracle.constructs(here)

        def scatters(source: str) -> list[str]:
            return [
                construct
                for construct in oracle.constructs(source)
                if construct not in around and oracle.nodes[construct].category == "Scatter"
            ]

        return scatters

    def more_links(self) -> None:
        oracle = Oracle(self.drawing.graph())
        later = [(one, other) for place, one in enumerate(self.made) for other in self.made[place + 1 :]]
        pairs = [pair for pair in later if not other_is_collector(oracle, pair[1]) and oracle.legal(*pair)]
        if pairs:
            for source, target in self.draw(st.lists(st.sampled_from(pairs), max_size=8, unique=True)):
                self.drawing.link(source, target, aware=self.draw(st.booleans()))


def other_is_collector(oracle: Oracle, name: str) -> bool:
    """Whether links to this node enter a gather."""
    construct = oracle.nodes[name].embedded_in
    return construct is not None and oracle.nodes[construct].category == "Gather"
