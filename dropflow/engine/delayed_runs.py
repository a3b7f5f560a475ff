"""Attempts that are to begin later: those of drops that had an infrastructure fault."""

import heapq
import math

from dropflow.clock import Clock
from dropflow.engine.events import Run

__all__ = ["DelayedRuns"]


class DelayedRuns:
    """A queue by time. Used by the session's thread.

    Parameters
    ----------
    clock : Clock
        Time.
    """

    __slots__ = ("_added", "_clock", "_queue")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: list[tuple[float, int, Run]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def drops(self) -> set[int]:
        """The drops whose attempts wait."""
        return {run.drop for _, _, run in self._queue}

    @property
    def next_due(self) -> float:
        """When the first attempt is due, in monotonic seconds; inf if there is none."""
        return self._queue[0][0] if self._queue else math.inf

    def append(self, run: Run) -> None:
        """Add an attempt, which is due after its delay."""
        self._added += 1
        heapq.heappush(self._queue, (self._clock.monotonic() + run.delay, self._added, run))

    def take_due(self) -> list[Run]:
        """Remove and return the attempts that are due, in the order of their times."""
        now, due = self._clock.monotonic(), []
        while self.next_due <= now:
            due.append(heapq.heappop(self._queue)[2])
        return due

    def take_all(self) -> list[Run]:
        """Remove and return all attempts."""
        runs = [run for _, _, run in self._queue]
        self._queue.clear()
        return runs

    def clear(self) -> None:
        """Forget all."""
        self._queue.clear()
