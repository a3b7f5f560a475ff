"""The order in which tasks are executed."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.dask.translate import best_order


def _order(needs: list[list[int]], ends: list[int]) -> list[int]:
    """Return the tasks in their order. Each one needs tasks before it only."""
    ptr = np.cumsum([0, *map(len, needs)]).astype(np.int64)
    inputs = np.array([other for each in needs for other in sorted(each)], dtype=np.int32)
    tasks = np.arange(len(needs), dtype=np.int32)
    return np.argsort(best_order(ptr, inputs, np.array(ends, dtype=np.int32), tasks)).tolist()


def _is_valid(needs: list[list[int]], order: list[int]) -> bool:
    place = {task: number for number, task in enumerate(order)}
    return all(place[other] < place[task] for task, others in enumerate(needs) for other in others)


def _most_held(needs: list[list[int]], order: list[int]) -> int:
    """Return how many results are held at a time: each until its last consumer has run."""
    uses = [sum(task in others for others in needs) for task in range(len(needs))]
    held = most = 0
    for task in order:
        held += 1
        most = max(most, held)
        for other in needs[task]:
            uses[other] -= 1
            held -= not uses[other]
    return most


@st.composite
def _graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 30))
    return [sorted(draw(st.sets(st.integers(0, task - 1), max_size=3))) if task else [] for task in range(size)]


@given(_graphs())
def test_every_task_runs_once_after_its_inputs(needs: list[list[int]]) -> None:
    """The order has each task once, and no task before one that it needs."""
    ends = [task for task in range(len(needs)) if not any(task in others for others in needs)]

    order = _order(needs, ends)

    assert sorted(order) == list(range(len(needs)))
    assert _is_valid(needs, order)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=6))
def test_a_tree_holds_as_few_results_as_possible(parents: list[int]) -> None:
    """If no result has several consumers, no other order holds fewer results at a time."""
    size = len(parents) + 1
    # Task n - 1 - i is the input of one of those after it.
    needs: list[list[int]] = [[] for _ in range(size)]
    for number, draw in enumerate(parents):
        task = size - 2 - number
        needs[task + 1 + draw % (size - 1 - task)].append(task)
    valid = (order for order in permutations(range(size)) if _is_valid(needs, list(order)))

    fewest = min(_most_held(needs, list(order)) for order in valid)

    assert _most_held(needs, _order(needs, [size - 1])) == fewest


def test_pairs_that_need_each_other_are_released_together() -> None:
    """In x + x.T, the second of a pair follows the first at once, because then both inputs are released."""
    size = 8
    number = {(row, column): row * size + column for row in range(size) for column in range(size)}
    chunks, count = len(number), len(number)
    # Chunks, their transposes, the sums of both, and the sum of all.
    needs: list[list[int]] = [[] for _ in range(chunks)]
    needs += [[number[column, row]] for row, column in number]
    needs += [[number[place], count + number[place]] for place in number]
    needs += [[2 * count + number[place]] for place in number]
    needs.append(list(range(3 * count, 4 * count)))

    order = _order(needs, [4 * count])
    without_partial_sums = [task for task in order if task < 3 * count]

    assert _most_held(needs[: 3 * count], without_partial_sums) >= count  # the sums themselves have no consumer there
    assert _most_held(needs, order) <= count + 6
