"""A queue by priority, with the methods of `collections.deque` that queues of attempts use."""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["PriorityQueue"]

T = TypeVar("T")


class PriorityQueue(Generic[T]):
    """The item of the greatest priority is the first; among equals, the one that was added first.

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
        """Heap of the negative priorities that have a level."""
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

    def append(self, item: T) -> None:
        """Add an item behind those of its priority."""
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
            There is none.
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
