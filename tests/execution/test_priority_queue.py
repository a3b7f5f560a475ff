"""What waits has one order: the greatest priority first, and among equals what came first."""

from hypothesis import given
from hypothesis import strategies as st

from dropflow.execution.chains import LONG_SECONDS
from dropflow.execution.priority_queue import PriorityQueue, by_priority, should_await_successors


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(-3, 3), st.integers()))))
def test_a_priority_queue_is_a_stable_sort(steps: list[tuple[int, int] | None]) -> None:
    """Items leave by priority, and among equals in the order in which they were added."""
    queue: PriorityQueue[tuple[int, int]] = PriorityQueue(lambda item: item[0])
    model: list[tuple[int, int]] = []
    for step in steps:
        if step is not None:
            queue.append(step)
            model.append(step)
        elif model:
            first = max(model, key=lambda item: item[0])
            assert queue.first == first
            assert queue.popleft() == first
            model.remove(first)
        if model:
            assert queue.least == min(priority for priority, _ in model)
        assert list(queue) == sorted(model, key=lambda item: -item[0])
        assert len(queue) == len(model)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers())))
def test_the_order_of_a_queue_is_that_of_what_waits(items: list[tuple[int, int]]) -> None:
    """Also of negative priorities, which wait behind priority 0."""
    queue: PriorityQueue[tuple[int, int]] = PriorityQueue(lambda item: item[0])
    queue.extend(items)

    assert list(by_priority(items, lambda item: item[0])) == list(queue)


def test_a_runner_waits_for_the_successors_of_long_attempts_of_graphs_with_priorities() -> None:
    """Not if nothing waits, or if what waits has no priorities; negative ones count."""
    assert should_await_successors(LONG_SECONDS, 0, -1)
    assert should_await_successors(LONG_SECONDS, 2, 2)
    assert not should_await_successors(LONG_SECONDS, 0, 0)
    assert not should_await_successors(LONG_SECONDS)
    assert not should_await_successors(LONG_SECONDS / 2, 2, 1)
