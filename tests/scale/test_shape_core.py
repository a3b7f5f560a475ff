"""The cost of the core per drop does not grow with the graph: each size is compared with the next."""

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from dropflow.engine.core import Core
from dropflow.engine.events import Begin, Event, Finished, Run
from dropflow.graph.physical import PhysicalGraph
from dropflow.testing.drawing import chain, fan

SIZES = (1_000, 10_000, 100_000)
FACTOR = 4.0


def play(graph: PhysicalGraph) -> None:
    """Run a core to its end; all attempts succeed."""
    core = Core(graph)
    events: list[Event] = [Begin()]
    while events:
        events = [Finished(action.drop, action.attempt) for action in core.handle(events) if isinstance(action, Run)]
    assert core.drops.unsettled == 0


def seconds_per_drop(body: Callable[[PhysicalGraph], None], graphs: Sequence[PhysicalGraph]) -> list[float]:
    """Return the processor time per drop of each graph: the least of three turns, without garbage collection.

    Other processes slow a turn down by the caches that they fill; turns of all sizes alternate, so that all are slow.
    """
    best = [float("inf")] * len(graphs)
    gc.disable()
    try:
        for _ in range(3):
            for place, graph in enumerate(graphs):
                started = time.thread_time()
                body(graph)
                best[place] = min(best[place], (time.thread_time() - started) / graph.drops)
    finally:
        gc.enable()
    return best


@pytest.mark.slow
@pytest.mark.parametrize("shape", [fan, chain])
def test_the_cost_per_drop_is_flat(shape: Callable[[int], PhysicalGraph]) -> None:
    """A hundred times more drops cost about a hundred times more."""
    costs = seconds_per_drop(play, [shape(size) for size in SIZES])

    assert costs[2] < FACTOR * costs[0], costs


def test_the_state_of_a_drop_takes_few_bytes() -> None:
    """The engine keeps at most 16 bytes a drop beside the graph; raising this takes a line in the changelog."""
    graph = fan(100_000)
    _ = graph.predecessors  # belongs to the graph
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    core = Core(graph)
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert core.drops.unsettled == graph.drops
    assert kept / graph.drops <= 16
