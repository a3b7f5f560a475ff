"""Values that leave memory when they are more than a budget."""

from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

from dropflow.dask.translate import TranslatedGraph, translate
from dropflow.dask.values import MemoryBudget


def _task(key: str, needs: list[str]) -> Task:
    return Task(key, max, *(TaskRef(name) for name in needs))


def _translated(needs: list[list[int]]) -> TranslatedGraph:
    """Return a graph in which each task needs others before it. What no task reads is a result."""
    nodes = {f"t{task}": _task(f"t{task}", [f"t{other}" for other in others]) for task, others in enumerate(needs)}
    ends = [f"t{task}" for task in range(len(needs)) if not any(task in others for others in needs)]
    return translate(nodes, ends, {})


@st.composite
def _graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 25))
    return [sorted(draw(st.sets(st.integers(0, task - 1), max_size=3))) if task else [] for task in range(size)]


def _order(tasks: TranslatedGraph) -> list[int]:
    assert tasks.graph.priority is not None
    return np.argsort(-tasks.graph.priority[: tasks.tasks]).tolist()


def _inputs(tasks: TranslatedGraph, task: int) -> list[int]:
    before = tasks.graph.predecessors
    found: list[int] = before.neighbour[before.ptr[task] : before.ptr[task + 1]].tolist()
    return found


@given(_graphs(), st.integers(0, 60), st.data())
def test_what_is_needed_last_leaves(needs: list[list[int]], limit: int, data: Any) -> None:
    """Whenever values leave, each is needed later than all that stay, and no more leave than is necessary."""
    tasks = _translated(needs)
    budget = MemoryBudget(limit, tasks)
    order = _order(tasks)
    place = {task: at for at, task in enumerate(order)}
    readers = {
        row + tasks.tasks: [task for task in order if row + tasks.tasks in _inputs(tasks, task)] for row in order
    }
    held: dict[int, int] = {}
    begun: set[int] = set()

    def needed(drop: int) -> int:
        left = [place[task] for task in readers[drop] if task not in begun]
        return min(left) if left else len(order) if drop in tasks.results.values() else -1

    # Threads begin tasks in the order, but for some that overtake others.
    pending, done = list(order), set[int]()
    while pending:
        ready = [task for task in pending if all(drop - tasks.tasks in done for drop in _inputs(tasks, task))]
        task = data.draw(st.sampled_from(ready[:2]))
        pending.remove(task)
        begun.add(task)
        budget.begin(task, _inputs(tasks, task))
        for drop in _inputs(tasks, task):
            if all(reader in begun for reader in readers[drop]):
                budget.remove(drop)
                held.pop(drop, None)
        drop = task + tasks.tasks
        held[drop] = data.draw(st.integers(0, 20))
        budget.add(drop, held[drop])
        leaving = budget.leaving()
        done.add(task)

        places = [needed(one) for one in leaving]
        assert places == sorted(places, reverse=True)
        assert all(at >= 0 for at in places)
        if leaving:
            assert sum(size for one, size in held.items() if one not in leaving[:-1]) > limit
        for one in leaving:
            del held[one]
        stay = [needed(one) for one in held]
        assert not leaving or max(stay, default=-1) <= places[-1]
        assert sum(held.values()) <= limit or max(stay, default=-1) == -1
        assert budget.held == sum(held.values())
