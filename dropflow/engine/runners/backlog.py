"""The attempts that a worker process has, by what they are expected to cost, and how many more it can be given."""

from typing import NamedTuple

from dropflow.engine.chained_tasks import LONG_SECONDS

__all__ = ["AHEAD_SECONDS", "MOST_AHEAD", "NO_ROOM", "Backlog", "Room"]

MOST_AHEAD = 512
"""The most attempts that a worker is given ahead."""
AHEAD_SECONDS = 0.02
"""What the attempts that a worker is given ahead cost together. A message to a worker and its answer take the pool and
the session 0.3 ms, however many attempts are in them."""


class Room(NamedTuple):
    """What a worker can be given: the greater the better.

    Attributes
    ----------
    seconds : float
        What the attempts may cost together. The first of them may cost more.
    attempts : int
        How many it may be given; 0 for none.
    """

    seconds: float
    attempts: int


NO_ROOM = Room(-1.0, 0)


class Backlog:
    """What the attempts that a worker has are expected to cost. None waits behind one that takes long, or may."""

    __slots__ = ("_costs", "_longs", "_sum")

    def __init__(self) -> None:
        self._costs: dict[int, float] = {}
        self._sum, self._longs = 0.0, 0
        """Of the short attempts together, and the number of the long ones."""

    def add(self, number: int, cost: float) -> None:
        """Add an attempt by its number; `cost` is inf if nothing is known."""
        self._costs[number] = cost
        if cost >= LONG_SECONDS:
            self._longs += 1
        else:
            self._sum += cost

    def remove(self, number: int) -> None:
        """Remove an attempt."""
        cost = self._costs.pop(number)
        if cost >= LONG_SECONDS:
            self._longs -= 1
        else:
            # Sums of floats are not exact.
            self._sum = self._sum - cost if self._costs else 0.0

    @property
    def has_long(self) -> bool:
        """Whether one of the attempts takes long, or may."""
        return self._longs > 0

    @property
    def room(self) -> Room:
        """How many attempts can be added."""
        count = len(self._costs)
        if self._longs or count >= MOST_AHEAD:
            return NO_ROOM
        spare = AHEAD_SECONDS - self._sum
        if spare > 0.0:
            return Room(spare, MOST_AHEAD - count)
        return Room(0.0, 1) if count == 1 else NO_ROOM  # so that the next one is there when this one ends
