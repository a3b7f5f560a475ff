"""The cost of unrolling a drop does not grow with the graph, in time or in memory."""

import itertools
import time
import tracemalloc

import pytest

from tests.translator.drawing import Drawing
from translator.logical import LogicalGraph
from translator.unroll import plan, unroll

pytestmark = pytest.mark.slow

SIZES = (1_000, 10_000, 100_000, 1_000_000)
_FACTOR = 4.0
_MOST_BYTES = 100
_LEAST_SECONDS = 0.02


def scattered(drops: int) -> LogicalGraph:
    """Data, application, data in each copy of a scatter, gathered by sixteen."""
    drawing = Drawing().data("start")
    with drawing.scatter("scatter", drops * 16 // 50, app="split"):
        drawing.data("part").app("work").data("done")
    with drawing.gather("gather", 16, app="collect"):
        drawing.data("sum")
    return drawing.link("start", "split", "part", "work", "done", "collect", "sum").graph()


def deep(drops: int) -> LogicalGraph:
    """Many levels: a chain in a loop in scatters of two, collected at the top."""
    drawing = Drawing().app("end")
    constructs = [drawing.scatter(f"s{level}", 2) for level in range(4)]
    for construct in constructs:
        construct.__enter__()
    with drawing.loop("loop", drops // 48):
        drawing.app("a", group_start=True).data("b").app("c").data("d", group_end=True)
    for construct in reversed(constructs):
        construct.__exit__(None, None, None)
    return drawing.link("a", "b", "c", "d", "end").graph()


def seconds(graph: LogicalGraph) -> float:
    """Return the processor time of unrolling once: the least of a few series."""
    best = float("inf")
    for _ in range(3):
        calls, start = 0, time.process_time()
        while time.process_time() - start < _LEAST_SECONDS:
            unroll(plan(graph))
            calls += 1
        best = min(best, (time.process_time() - start) / calls)
    return best


def test_cost_per_drop_never_grows() -> None:
    """The cost per drop is at most four times that in a graph of a tenth of the size."""
    for shape in (scattered, deep):
        costs = [seconds(shape(size)) / size for size in SIZES]
        assert all(large <= _FACTOR * small for small, large in itertools.pairwise(costs)), costs


def test_a_million_drops_need_little_memory() -> None:
    """Unrolling uses at most a hundred bytes per drop: a million drops fit in 100 MB."""
    for shape in (scattered, deep):
        graph = shape(SIZES[-1])
        tracemalloc.start()
        made = unroll(plan(graph))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak / made.drops <= _MOST_BYTES
