"""Statistics of a running session, at most five times a second, and less often for graphs with many logical nodes."""

import math
from collections.abc import Callable

from dropflow.clock import Clock
from dropflow.engine.core import Core
from dropflow.engine.statistics import Attempts, Statistics, snapshot

__all__ = ["StatisticsPublisher"]

_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.2, 1.0
_SECONDS_PER_NODE = 0.0006
"""Managers and clients read each publication, which costs them about 60 us a logical node: a tenth of the time."""


class StatisticsPublisher:
    """Calls back with fresh statistics after a change, and again after the last one. Used by the session's thread.

    Parameters
    ----------
    clock : Clock
        For the interval.
    publish : callable
        Takes the statistics.
    nodes : int
        Number of the logical nodes of the graph.
    """

    def __init__(self, clock: Clock, publish: Callable[[Statistics], None], nodes: int) -> None:
        self._clock = clock
        self._interval = min(max(_SHORTEST_SECONDS, nodes * _SECONDS_PER_NODE), _LONGEST_SECONDS)
        self._publish = publish
        self._published = -math.inf
        self._has_changed = False

    @property
    def deadline(self) -> float:
        """Time of the next delayed call, in monotonic seconds; inf if no change waits to be published."""
        return self._published + self._interval if self._has_changed else math.inf

    def note_change(self) -> None:
        """Have the statistics published again soon."""
        self._has_changed = True

    def update(self, core: Core, began: float, attempts: Callable[[], Attempts], *, is_last: bool = False) -> None:
        """Publish, unless that was done less than an interval ago; the last ones in any case.

        Parameters
        ----------
        core : Core
            Of the session.
        began : float
            When the session began, in monotonic seconds.
        attempts : callable
            Returns where attempts are.
        is_last : bool
            Whether the session is over.
        """
        now = self._clock.monotonic()
        self._has_changed = not is_last and now < self._published + self._interval
        if not self._has_changed:
            self._published = now
            self._publish(snapshot(core, now - began, attempts()))
