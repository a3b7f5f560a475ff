"""The use of the processors of this host, near real time."""

import psutil

from dropflow.clock import Clock

__all__ = ["ProcessorUse"]

_SHORTEST, _LONGEST = 0.5, 10.0
"""Seconds that a figure is the average of: clocks of processors are too coarse for less, and more is no longer now."""
_SAMPLE = 0.1


class ProcessorUse:
    """Measures how busy the processors are. It may be asked from any thread.

    `psutil.cpu_percent` counts from the last call in the same thread, and so returns 0 to most threads of a server.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Replaced as a whole: two threads that measure at the same time get about the same figure, without a lock.
        self._last: tuple[float, float, float, float | None] = (clock.monotonic(), *_seconds(), None)

    def percent(self) -> float:
        """Return the use of all processors in per cent, averaged over at most the last ten seconds.

        At first, and after a longer pause, it takes a tenth of a second.
        """
        measured, busy, total, percent = self._last
        now = self._clock.monotonic()
        is_recent = now - measured < _SHORTEST
        if is_recent and percent is not None:
            return percent
        more_busy, more_total = _seconds()
        if is_recent or now - measured > _LONGEST or more_total <= total:
            return self._keep(now, psutil.cpu_percent(interval=_SAMPLE))
        return self._keep(now, min(max(100.0 * (more_busy - busy) / (more_total - total), 0.0), 100.0))

    def _keep(self, now: float, percent: float) -> float:
        percent = round(percent, 1)
        self._last = (now, *_seconds(), percent)
        return percent


def _seconds() -> tuple[float, float]:
    """Return the seconds that all processors were busy, and those that have passed for them."""
    times = psutil.cpu_times()
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # counted in user and nice
    return total - times.idle - getattr(times, "iowait", 0.0), total
