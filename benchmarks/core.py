"""The core alone: microseconds per drop, from `Begin` to `Finish`, with every attempt succeeding at once.

The reference, measured in the same run, is Kahn's algorithm over the same graph in plain Python lists: the least that
any executor of a graph must do. Usage: ``python benchmarks/core.py [SIZE ...]``; prints JSON.
"""

import gc
import json
import sys
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from dropflow.engine.core import Core
from dropflow.engine.events import Begin, Event, Finished, Run
from dropflow.graph.builder import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template

SIZES = (1_000, 10_000, 100_000, 1_000_000)


def scatter(drops: int) -> PhysicalGraph:
    """One data drop, then applications with a data drop each."""
    copies = drops // 2
    axes = (Axis("s", "s", "scatter", copies),)
    each = np.arange(copies, dtype=np.int32)
    zero = np.zeros(copies, dtype=np.int32)
    return from_columns(
        name="scatter",
        prefix="scatter",
        templates=(
            Template(key="r", name="r", kind=Kind.DATA),
            Template(key="a", name="a", kind=Kind.APP, axes=axes),
            Template(key="d", name="d", kind=Kind.DATA, axes=axes),
        ),
        links=(Link(source=0, target=1), Link(source=1, target=2)),
        template=np.concatenate([[0], zero + 1, zero + 2]).astype(np.int32),
        instance=np.concatenate([[0], each, each]).astype(np.int32),
        source=np.concatenate([zero, 1 + each]),
        target=np.concatenate([1 + each, 1 + copies + each]),
        link=np.repeat(np.arange(2, dtype=np.int32), copies),
    )


def chain(drops: int) -> PhysicalGraph:
    """Applications and data by turns."""
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
    """Drive a core to its end."""
    core = Core(graph)
    events: list[Event] = [Begin()]
    while events:
        events = [Finished(action.drop, action.attempt) for action in core.handle(events) if isinstance(action, Run)]


def kahn(graph: PhysicalGraph) -> None:
    """Visit every drop once all its predecessors were visited."""
    ptr, neighbour = graph.successors.ptr.tolist(), graph.successors.neighbour.tolist()
    waiting = np.diff(graph.predecessors.ptr).tolist()
    ready = deque(drop for drop, count in enumerate(waiting) if not count)
    while ready:
        drop = ready.popleft()
        for target in neighbour[ptr[drop] : ptr[drop + 1]]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)


def best(body: Callable[[PhysicalGraph], None], graph: PhysicalGraph) -> float:
    """Microseconds per drop, the best of three, collector off."""
    found = float("inf")
    for _ in range(3):
        gc.collect()
        gc.disable()
        started = time.perf_counter()
        body(graph)
        found = min(found, time.perf_counter() - started)
        gc.enable()
    return found / graph.drops * 1e6


def main() -> None:
    """Measure all sizes and print one JSON object."""
    rows = []
    for size in map(int, sys.argv[1:] or SIZES):
        for shape in (scatter, chain):
            graph = shape(size)
            _ = graph.predecessors
            core, reference = best(play, graph), best(kahn, graph)
            rows.append(
                {
                    "shape": shape.__name__,
                    "drops": graph.drops,
                    "core_us_per_drop": round(core, 3),
                    "kahn_us_per_drop": round(reference, 3),
                    "ratio": round(core / reference, 2),
                }
            )
    print(json.dumps({"benchmark": "core", "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
