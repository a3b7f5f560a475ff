"""The attempts that a worker process has, by how long they are expected to take, and how many more it can be given."""

from typing import NamedTuple

from dropflow.engine.chained_tasks import LONG_SECONDS

__all__ = ["MOST_AHEAD", "NO_ROOM", "Backlog", "Room"]

MOST_AHEAD = 512
"""The most attempts that a worker is given ahead."""
_AHEAD_SECONDS = 0.005
"""How long the attempts that a worker is given ahead are expected to take together. What they make is held until others
read it, so that with 20 ms, ten times as many values of 0.5 MB were held as the order of execution needs."""


class Room(NamedTuple):
    """What a worker can be given: the greater the better.

    Attributes
    ----------
    seconds : float
        How long the attempts may be expected to take together. The first of them may take longer.
    attempts : int
        How many it may be given; 0 for none.
    """

    seconds: float
    attempts: int


NO_ROOM = Room(-1.0, 0)


class Backlog:
    """Expected seconds of the attempts that a worker has. None waits behind one that takes long, or may."""

    __slots__ = ("_expected", "_longs", "_seconds")

    def __init__(self) -> None:
        self._expected: dict[int, float] = {}
        self._seconds, self._longs = 0.0, 0
        """Of the short attempts together, and the number of the long ones."""

    def add(self, number: int, seconds: float) -> None:
        """Add an attempt by its number; `seconds` is inf if nothing is known."""
        self._expected[number] = seconds
        if seconds >= LONG_SECONDS:
            self._longs += 1
        else:
            self._seconds += seconds

    def remove(self, number: int) -> None:
        """Remove an attempt."""
        seconds = self._expected.pop(number)
        if seconds >= LONG_SECONDS:
            self._longs -= 1
        else:
            # Sums of floats are not exact.
            self._seconds = self._seconds - seconds if self._expected else 0.0

    @property
    def has_long(self) -> bool:
        """Whether one of the attempts takes long, or may."""
        return self._longs > 0

    @property
    def room(self) -> Room:
        """How many attempts can be added."""
        count = len(self._expected)
        if self._longs or count >= MOST_AHEAD:
            return NO_ROOM
        spare = _AHEAD_SECONDS - self._seconds
        if spare > 0.0:
            return Room(spare, MOST_AHEAD - count)
        return Room(0.0, 1) if count == 1 else NO_ROOM  # so that the next one is there when this one ends
