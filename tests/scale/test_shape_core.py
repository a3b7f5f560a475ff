"""The cost of the core per drop does not grow with the graph: each size is compared with the next."""

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from dropflow.clock import SystemClock
from dropflow.engine.core import Core
from dropflow.engine.events import Begin, Event, Finished, Run
from dropflow.graph.builder import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template

SIZES = (1_000, 10_000, 100_000)
FACTOR = 4.0


def scatter(drops: int) -> PhysicalGraph:
    """One data drop, `drops / 2` applications with a data drop each, one gather."""
    copies = drops // 2
    axes = (Axis("s", "s", "scatter", copies),)
    each = np.arange(copies, dtype=np.int32)
    one = np.zeros(copies, dtype=np.int32)
    return from_columns(
        name="scatter",
        prefix="scatter",
        templates=(
            Template(key="r", name="r", kind=Kind.DATA),
            Template(key="a", name="a", kind=Kind.APP, axes=axes),
            Template(key="d", name="d", kind=Kind.DATA, axes=axes),
            Template(key="g", name="g", kind=Kind.APP),
        ),
        links=(Link(source=0, target=1), Link(source=1, target=2), Link(source=2, target=3)),
        template=np.concatenate([[0], one + 1, one + 2, [3]]).astype(np.int32),
        instance=np.concatenate([[0], each, each, [0]]).astype(np.int32),
        source=np.concatenate([one, 1 + each, 1 + copies + each]),
        target=np.concatenate([1 + each, 1 + copies + each, one + 2 * copies + 1]),
        link=np.repeat(np.arange(3, dtype=np.int32), copies),
    )


def chain(drops: int) -> PhysicalGraph:
    """Applications and data by turns, one after the other."""
    axes = (Axis("c", "c", "loop", drops // 2),)
    rows = np.arange(drops // 2 * 2, dtype=np.int32)
    return from_columns(
        name="chain",
        prefix="chain",
        templates=(
            Template(key="a", name="a", kind=Kind.APP, axes=axes),
            Template(key="d", name="d", kind=Kind.DATA, axes=axes),
        ),
        links=(Link(source=0, target=1), Link(source=1, target=0, carry=True)),
        template=rows % 2,
        instance=rows // 2,
        source=rows[:-1],
        target=rows[1:],
        link=rows[:-1] % 2,
    )


def play(graph: PhysicalGraph) -> None:
    """Drive a core from its beginning to its end, everything succeeding."""
    core = Core(graph)
    events: list[Event] = [Begin()]
    while events:
        events = [Finished(action.drop, action.attempt) for action in core.handle(events) if isinstance(action, Run)]
    assert core.open == 0


def seconds_per_drop(body: Callable[[PhysicalGraph], None], graph: PhysicalGraph) -> float:
    """The best of three, with the collector off: what the work costs, not what the machine was doing."""
    clock, best = SystemClock(), float("inf")
    gc.disable()
    try:
        for _ in range(3):
            started = clock.monotonic()
            body(graph)
            best = min(best, clock.monotonic() - started)
    finally:
        gc.enable()
    return best / graph.drops


@pytest.mark.slow
@pytest.mark.parametrize("shape", [scatter, chain])
def test_the_cost_per_drop_is_flat(shape: Callable[[int], PhysicalGraph]) -> None:
    """A hundred times more drops cost about a hundred times more, not more than that."""
    costs = [seconds_per_drop(play, shape(size)) for size in SIZES]

    assert costs[2] < FACTOR * costs[0], costs


def test_the_state_of_a_drop_takes_few_bytes() -> None:
    """The engine keeps at most 16 bytes a drop beside the graph; raising this takes a line in the changelog."""
    graph = scatter(100_000)
    _ = graph.predecessors  # belongs to the graph
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    core = Core(graph)
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert core.open == graph.drops
    assert kept / graph.drops <= 16
