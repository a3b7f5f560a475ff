"""The order by priority: of a list, of a queue with the methods of `collections.deque`, and after a long attempt."""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from dropflow.execution.chains import LONG_SECONDS

T = TypeVar("T")

ANSWER_SECONDS = 0.05
"""Most seconds to wait until a session has taken a result: it may be busy."""


def by_priority(items: Iterable[T], priority: Callable[[T], int]) -> deque[T]:
    """Return items with the greatest priority first; among equals, in the order in which they are given."""
    return deque(sorted(items, key=priority, reverse=True))


class PriorityQueue(Generic[T]):
    """A queue in the order of `by_priority`: among equals, the item that was added first is the first.

    Parameters
    ----------
    priority : callable
        Returns the priority of an item.
    """

    __slots__ = ("_count", "_levels", "_order", "_priority")

    def __init__(self, priority: Callable[[T], int]) -> None:
        self._priority = priority
        self._levels: dict[int, deque[T]] = {}
        self._order: list[int] = []
        """Heap of the negated priorities of the items in the queue."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for level in sorted(self._levels, reverse=True):
            yield from self._levels[level]

    @property
    def first(self) -> T:
        """The item that `popleft` returns next. There must be one."""
        return self._levels[-self._order[0]][0]

    @property
    def least(self) -> int:
        """The least priority of the items. There must be one."""
        return -max(self._order)

    def append(self, item: T) -> None:
        """Add an item behind the other items of its priority."""
        priority = self._priority(item)
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = deque()
            heapq.heappush(self._order, -priority)
        level.append(item)
        self._count += 1

    def extend(self, items: Iterable[T]) -> None:
        """Add items, in their order."""
        for item in items:
            self.append(item)

    def popleft(self) -> T:
        """Remove and return the first item.

        Raises
        ------
        IndexError
            The queue is empty.
        """
        priority = -self._order[0]
        level = self._levels[priority]
        item = level.popleft()
        self._count -= 1
        if not level:
            del self._levels[priority]
            heapq.heappop(self._order)
        return item

    def clear(self) -> None:
        """Remove all items."""
        self._levels.clear()
        self._order.clear()
        self._count = 0


def should_await_successors(seconds: float, *waiting: int) -> bool:
    """Return whether a runner begins nothing until the session has taken a result, for at most `ANSWER_SECONDS`.

    A successor may be more urgent than all attempts that wait. After a short attempt, that is not worth the time.

    Parameters
    ----------
    seconds : float
        How long the attempt took.
    waiting : int
        The greatest and the least priority of the attempts that wait; none if no attempt waits.
    """
    return seconds >= LONG_SECONDS and any(waiting)
