"""Hypothesis strategy for graphs that are written call by call; their drops and edges are counted alongside."""

from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

from hypothesis import strategies as st

from dropflow import Data, Graph, app

_DEPTH = 3
_MOST = 12


@dataclass(frozen=True)
class Level:
    """A construct that repeats nodes."""

    number: int
    size: int
    is_loop: bool = False


Levels = tuple[Level, ...]


@app
def work(values: object) -> object:
    """Return the values."""
    return values


@dataclass
class WrittenGraph:
    """A graph, and how many drops and edges it must become, by multiplication."""

    graph: Graph = field(default_factory=lambda: Graph("random", "A random graph."))
    drops: int = 0
    edges: int = 0
    made: list[tuple[Data, Levels]] = field(default_factory=list)
    levels: int = 0

    def level(self, size: int, *, is_loop: bool = False) -> Level:
        """Return a new level."""
        self.levels += 1
        return Level(self.levels, size, is_loop)

    def add(self, data: Data, levels: Levels, *, app_levels: Levels | None = None) -> tuple[Data, Levels]:
        """Count an application and the data that it writes."""
        writer = levels if app_levels is None else app_levels
        self.drops += size(levels) + size(writer)
        self.edges += pairs(writer, levels)
        self.made.append((data, levels))
        return data, levels


def size(levels: Levels) -> int:
    """Return the number of copies of a node."""
    return prod(level.size for level in levels)


def pairs(source: Levels, target: Levels, *, aware: bool = False) -> int:
    """Return the number of edges of a link; one that is aware meets only one iteration of each loop that it crosses."""
    shared = [level for level in source if level in target]
    crossed = [level for level in (*source, *target) if level not in shared]
    return prod(level.size for level in shared) * prod(
        1 if aware and level.is_loop else level.size for level in crossed
    )


@st.composite
def written_graphs(draw: Any) -> WrittenGraph:
    """A graph of functions in scatters, gathers, loops, subgraphs and branches, nested up to three deep."""
    written = WrittenGraph()
    first = written.graph.value(0)
    written.drops += 1
    written.made.append((first, ()))
    _body(draw, written, ())
    return written


def _body(draw: Any, written: WrittenGraph, around: Levels) -> None:
    kinds = ["call", "call", "several", "branch"]
    if len(around) < _DEPTH and size(around) <= _MOST:
        kinds += ["scatter", "gather", "loop", "subgraph"]
    for _ in range(draw(st.integers(1, 3))):
        _PARTS[draw(st.sampled_from(kinds))](draw, written, around)


def _readable(draw: Any, written: WrittenGraph, around: Levels) -> tuple[Data, Levels]:
    """Choose data that nodes with these levels can read: those around them, or in constructs that are closed."""
    return draw(st.sampled_from([one for one in written.made if _is_readable(one[1], around)]))  # type: ignore[no-any-return]


def _is_readable(source: Levels, target: Levels) -> bool:
    shared = [level for level in source if level in target]
    return len(shared) in (len(source), len(target))


def _call(draw: Any, written: WrittenGraph, around: Levels) -> None:
    data, levels = _readable(draw, written, around)
    written.edges += pairs(levels, around)
    written.add(written.graph.call(work, data), around)


def _several(draw: Any, written: WrittenGraph, around: Levels) -> None:
    known = [one for one in written.made if _is_readable(one[1], around)]
    if len(known) < 2:
        return
    chosen = draw(st.lists(st.sampled_from(range(len(known))), min_size=2, max_size=3, unique=True))
    written.edges += sum(pairs(known[place][1], around) for place in chosen)
    written.add(work([known[place][0] for place in chosen]), around)


def _branch(draw: Any, written: WrittenGraph, around: Levels) -> None:
    data, levels = _readable(draw, written, around)
    written.edges += pairs(levels, around)
    yes, no = written.graph.branch(work, data)
    written.add(yes, around)
    written.drops += size(around)
    written.edges += size(around)
    written.made.append((no, around))


def _scatter(draw: Any, written: WrittenGraph, around: Levels) -> None:
    data, levels = _readable(draw, written, around)
    level = written.level(draw(st.integers(1, 3)))
    each = draw(st.booleans())
    written.edges += pairs(levels, around)
    method = written.graph.each if each else written.graph.scatter
    with method(data, copies=level.size) as part:
        written.add(part, (*around, level), app_levels=around)
        _body(draw, written, (*around, level))


def _gather(draw: Any, written: WrittenGraph, around: Levels) -> None:
    inside = [one for one in written.made if set(around) <= set(one[1])]
    if not inside:
        return
    data, levels = draw(st.sampled_from(inside))
    width = draw(st.integers(0, 3))
    inputs = size(tuple(level for level in levels if level not in around))
    level = written.level(ceil(inputs / width) if width else 1)
    written.edges += size(levels)
    with written.graph.gather(data, width=width) as chunk:
        written.add(chunk, (*around, level))
        _body(draw, written, (*around, level))


def _loop(draw: Any, written: WrittenGraph, around: Levels) -> None:
    known = [one for one in written.made if set(one[1]) <= set(around)]
    data, levels = draw(st.sampled_from(known))
    level = written.level(draw(st.integers(1, 3)), is_loop=True)
    inner = (*around, level)
    with written.graph.loop(iterations=level.size) as loop:
        carried = loop.carry(data)
        # The carry enters the loop once, and outer loops in every iteration.
        written.edges += size(around) + size(around) * (level.size - 1)
        found, _ = written.add(work(carried), inner)
        _body(draw, written, inner)
        loop.again(carried, found)
    if draw(st.booleans()):
        written.edges += pairs(inner, around, aware=True)
        written.add(work(loop.last(found)), around)
    del levels


def _subgraph(draw: Any, written: WrittenGraph, around: Levels) -> None:
    level = written.level(1)
    with written.graph.subgraph(f"Part {level.number}"):
        _body(draw, written, (*around, level))


_PARTS = {
    "call": _call,
    "several": _several,
    "branch": _branch,
    "scatter": _scatter,
    "gather": _gather,
    "loop": _loop,
    "subgraph": _subgraph,
}
