"""The decision which values leave memory when they are more than a budget. No value and no file is touched here."""

from collections.abc import Collection
from heapq import heappop, heappush

import numpy as np

from dropflow.dask.translate import TranslatedGraph

__all__ = ["MemoryBudget"]


class MemoryBudget:
    """Bytes of values that are held, and which of them are needed last.

    A value whose next reader is furthest away in the order of execution leaves first (the rule of Belady, "A study of
    replacement algorithms for a virtual-storage computer", 1966). Results have no reader, and leave before all others.
    A value whose readers have all begun does not leave: it is released when they end.

    Parameters
    ----------
    limit : int
        Bytes.
    tasks : TranslatedGraph
        The graph. Its values are counted by the rows of their data drops.
    """

    def __init__(self, limit: int, tasks: TranslatedGraph) -> None:
        self._limit = limit
        self._sizes: dict[int, int] = {}
        """Bytes of each value that is held."""
        self.held = 0
        """Sum of them."""
        graph, self._first = tasks.graph, tasks.tasks
        self._end = tasks.tasks
        self._results = frozenset(tasks.results.values())
        assert graph.priority is not None  # noqa: S101 - `translate` always has them
        position = tasks.tasks - graph.priority
        source = np.repeat(np.arange(graph.drops), np.diff(graph.successors.ptr))
        is_read = source >= tasks.tasks
        source, reader = source[is_read], position[graph.successors.neighbour[is_read]]
        order = np.lexsort((reader, source))
        self._readers = np.ascontiguousarray(reader[order]).data
        ends = np.searchsorted(source[order], np.arange(tasks.tasks, graph.drops + 1))
        self._ptr, self._next = ends.tolist(), ends[:-1].tolist()
        """First reader of each value, and the first one that has not begun."""
        self._position = np.ascontiguousarray(position[: tasks.tasks]).data
        self._early: set[tuple[int, int]] = set()
        """Values, and readers of them that have begun before another one with an earlier place in the order."""
        self._queue: list[tuple[int, int]] = []
        """Heap of values with their next readers, negative. Entries that are out of date are skipped."""

    def add(self, drop: int, size: int) -> None:
        """Count a value."""
        self._sizes[drop] = size
        self.held += size
        self._enqueue(drop)

    def begin(self, task: int, drops: Collection[int]) -> None:
        """Note that a task begins, which reads these values."""
        position = self._position[task]
        for drop in drops:
            row = drop - self._first
            at, end = self._next[row], self._ptr[row + 1]
            if at == end:
                continue
            self._early.add((drop, position))
            while at < end and (drop, self._readers[at]) in self._early:
                self._early.discard((drop, self._readers[at]))
                at += 1
            if at != self._next[row]:
                self._next[row] = at
                if drop in self._sizes:
                    self._enqueue(drop)

    def remove(self, drop: int) -> None:
        """Count a value no more, if it is counted: it is released."""
        self.held -= self._sizes.pop(drop, 0)

    def leaving(self) -> list[int]:
        """Return the values that leave memory now. They are counted no more."""
        found = []
        while self.held > self._limit and self._queue:
            place, drop = heappop(self._queue)
            if drop in self._sizes and -place == self._next_reader(drop):
                found.append(drop)
                self.remove(drop)
        return found

    def _enqueue(self, drop: int) -> None:
        place = self._next_reader(drop)
        if place >= 0:
            heappush(self._queue, (-place, drop))

    def _next_reader(self, drop: int) -> int:
        """Return the place of the next reader; the end for a result, and -1 for what is about to be released."""
        row = drop - self._first
        if self._next[row] < self._ptr[row + 1]:
            return int(self._readers[self._next[row]])
        return self._end if drop in self._results else -1
