"""The core alone: microseconds per drop, from `Begin` to `Finish`, with every attempt succeeding at once.

The reference, measured in the same run, is Kahn's algorithm over the same graph in plain Python lists: the least that
any executor of a graph must do. Usage: ``python benchmarks/core.py [SIZE ...]``; prints JSON.
"""

import argparse
import gc
import json
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Begin, Event, Finished, Run
from dropflow.graph.physical import PhysicalGraph
from tests.regular_graphs import chain, fan

SIZES = (1_000, 10_000, 100_000, 1_000_000)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", metavar="SIZE", nargs="*", type=int, default=SIZES, help="numbers of drops")
    rows = []
    for size in parser.parse_args().sizes:
        for shape in (fan, chain):
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
