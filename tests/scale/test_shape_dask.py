"""The cost of a task of dask does not grow with the graph, in time or in memory."""

import itertools
import time
import tracemalloc
from collections.abc import Callable, Hashable
from typing import Any

import dask.array as da
import pytest
from dask.core import convert_legacy_graph, flatten

from dropflow.dask import Scheduler
from dropflow.dask.portable import portable
from dropflow.dask.translate import translate
from dropflow.dask_tasks.task_app import TASKS_FIELD

pytestmark = pytest.mark.slow

_FACTOR = 4.0
_MOST_BYTES = 250
_MOST_CODE = 150
_LEAST_SECONDS = 0.02
_ONE_SERIES = 50_000

Graph = tuple[dict[Hashable, Any], list[Hashable]]


def _sum(tasks: int) -> Graph:
    """The sum of an array and its transposed one, whose blocks meet across the whole graph."""
    side = round((tasks / 4.3) ** 0.5)
    ones = [da.ones((side, side), chunks=1) for _ in range(2)]
    found = (ones[0] + ones[1].T).sum()
    return convert_legacy_graph(dict(found.__dask_graph__())), list(flatten(found.__dask_keys__()))


def _costs(sizes: tuple[int, ...], run: Callable[[Graph], object]) -> list[float]:
    """Return the processor time of a task of each size: the least of three series, and of one for the largest."""
    costs = []
    for size in sizes:
        graph, best = _sum(size), float("inf")
        for _ in range(1 if size > _ONE_SERIES else 3):
            calls, start = 0, time.process_time()
            while time.process_time() - start < _LEAST_SECONDS:
                run(graph)
                calls += 1
            best = min(best, (time.process_time() - start) / calls)
        costs.append(best / len(graph[0]))
    return costs


def test_cost_per_task_never_grows() -> None:
    """Translation and pickles of a task take at most four times what they take in a graph of a tenth of the size."""
    costs = _costs((1_000, 10_000, 100_000), lambda graph: portable(translate(*graph, {}, runs_constants=True)))

    assert all(large <= _FACTOR * small for small, large in itertools.pairwise(costs)), costs


def test_execution_of_a_task_never_grows() -> None:
    """So does a task that is executed in this thread."""
    get = Scheduler(runner="inline").get
    costs = _costs((1_000, 10_000), lambda graph: get(*graph))

    assert costs[1] <= _FACTOR * costs[0], costs


def test_bytes_per_task_are_bounded() -> None:
    """A translated graph keeps columns and pickles, and no object for each task. Code is in it once for a template."""
    graph = _sum(30_000)
    tracemalloc.start()
    try:
        made = translate(*graph, {}, runs_constants=True)
        travels = portable(made)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert held <= _MOST_BYTES * made.tasks
    fields = [argument.value for one in travels.templates for argument in one.arguments if argument.name == TASKS_FIELD]
    code = sum(len(value["shared"]) + sum(map(len, value["pages"])) for value in fields)
    assert code <= _MOST_CODE * made.tasks
