"""The attempts of a worker process with their expected costs, and how many more it can get."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dropflow.clock import Clock
from dropflow.execution.chains import LONG_SECONDS
from dropflow.execution.tasks import Task
from dropflow.graph.templates import Template

_LATE_SECONDS = 0.5
"""Seconds by which a wait may end late and count as running time: more is a stop of this process."""
MOST_AHEAD = 512
"""Most attempts that wait with a worker while it runs another one."""
AHEAD_SECONDS = 0.02
"""Most seconds that the attempts which wait with a worker cost together. A message to a worker and its answer take the
pool and the session 0.3 ms, for any number of attempts."""
_UNKNOWN = float("inf")
_WEIGHT = 0.3
"""Weight of the last attempt in the mean."""
_SECONDS_PER_BYTE = AHEAD_SECONDS / (4 << 20)
"""Attempts that a worker is given ahead write 4 MB at most, which is held until others read it. Without this limit, ten
times as many values of 0.5 MB were held as the order of execution needs."""

# The time of a pool's thread. It does not count time in which this process was stopped.


class PoolClock:
    """Advances once per turn of the pool's thread. A suspended laptop must not look like workers that hang.

    Parameters
    ----------
    clock : Clock
        Real time.
    """

    def __init__(self, clock: Clock) -> None:
        self.now = 0.0
        """Seconds of running time since the start."""
        self._clock = clock
        self._read = clock.monotonic()

    def advance(self, timeout: float | None) -> None:
        """Add the time since the last call, but at most a little more than the `timeout` that the thread waited."""
        read = self._clock.monotonic()
        passed, self._read = read - self._read, read
        self.now += passed if timeout is None else min(passed, timeout + _LATE_SECONDS)


class Room(NamedTuple):
    """Limits of the attempts that a worker can get. The worker with the most room gets the next attempts.

    Attributes
    ----------
    seconds : float
        Most seconds that the attempts may cost together. The first of them may cost more.
    attempts : int
        Most attempts that it may get; 0 for none.
    """

    seconds: float
    attempts: int


NO_ROOM = Room(-1.0, 0)


class Backlog:
    """The expected costs of the attempts of a worker. No attempt waits behind one that takes, or may take, long."""

    __slots__ = ("_costs", "_longs", "_sum")

    def __init__(self) -> None:
        self._costs: dict[int, float] = {}
        self._sum, self._longs = 0.0, 0
        """The cost of the short attempts together, and the number of the long ones."""

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
        """Whether one of the attempts takes, or may take, long."""
        return self._longs > 0

    @property
    def room(self) -> Room:
        """The limits of the attempts that can be added."""
        count = len(self._costs)
        if self._longs or count >= MOST_AHEAD:
            return NO_ROOM
        spare = AHEAD_SECONDS - self._sum
        if spare > 0.0:
            return Room(spare, MOST_AHEAD - count)
        return Room(0.0, 1) if count == 1 else NO_ROOM  # so that the next attempt is with the worker when this one ends


# The expected seconds and bytes of the next attempts of a session, from the attempts that have ended.


class ExpectedSeconds:
    """Exponentially weighted means of the seconds of attempts, and of the bytes that they write, by template.

    If no attempt of a template has ended, the mean of all applications, or of all data, is used. The two are kept
    apart: data without producers take nearly no time, unlike applications.

    Parameters
    ----------
    templates : sequence of Template
        The templates of the session.
    """

    __slots__ = ("_kinds", "_of_kind", "_of_template", "_written")

    def __init__(self, templates: Sequence[Template]) -> None:
        self._kinds = [int(template.kind) for template in templates]
        self._of_kind = dict.fromkeys(self._kinds, _UNKNOWN)
        self._of_template = [_UNKNOWN] * len(templates)
        self._written = [0.0] * len(templates)

    def note(self, template: int, seconds: float, written: int = 0) -> None:
        """Add the time of an attempt that has ended, and the bytes that it wrote."""
        kind = self._kinds[template]
        before = self._of_template[template]
        self._written[template] = written if before == _UNKNOWN else _mean(self._written[template], written)
        self._of_template[template] = _mean(self._of_template[template], seconds)
        self._of_kind[kind] = _mean(self._of_kind[kind], seconds)

    def of(self, template: int) -> float:
        """Return the seconds that an attempt is expected to take; inf if nothing is known."""
        seconds = self._of_template[template]
        return self._of_kind[self._kinds[template]] if seconds == _UNKNOWN else seconds

    def cost(self, template: int) -> float:
        """Return the cost of an attempt that waits with a worker: its seconds, and some for the bytes that it writes.

        The bytes alone do not make it a long attempt, behind which no other attempt waits.
        """
        return self.of(template) + min(self._written[template] * _SECONDS_PER_BYTE, AHEAD_SECONDS)

    def together(self, tasks: Iterable[Task]) -> float:
        """Return the cost of attempts together, if they wait with a worker."""
        return sum(self.cost(task.template) for task in tasks)


def _mean(before: float, seconds: float) -> float:
    return seconds if before == _UNKNOWN else before + _WEIGHT * (seconds - before)
