"""The time in which this process ran, without its pauses: a pure state machine.

A process that was stopped (SIGSTOP), swapped out or starved received nothing in that time, and finds every deadline
passed when it continues. That time must not count as silence of other processes.
"""


class Uptime:
    """A monotonic clock that stands still while this process does not run.

    Its owner reads it at least every `period` seconds while anything depends on it. A longer gap between two readings
    means that the process was paused, and none of the gap counts.

    Parameters
    ----------
    period : float
        Longest gap between two readings, in seconds, that counts.
    now : float
        The monotonic time.
    """

    def __init__(self, period: float, now: float) -> None:
        if not period > 0:
            raise ValueError(f"period must be more than 0, not {period}")
        self._period = period
        self._read = self._time = now
        self._paused = 0.0

    def read(self, now: float) -> float:
        """Return monotonic time `now` less all pauses; it never goes back."""
        gap = max(now - self._read, 0.0)
        self._read += gap
        if gap > self._period:
            self._paused += gap
        else:
            self._time += gap
        return self._time

    @property
    def paused(self) -> float:
        """Seconds that did not count so far."""
        return self._paused
