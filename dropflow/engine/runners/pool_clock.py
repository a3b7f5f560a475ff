"""The time of a pool's thread, which does not count the time in which this process was stopped."""

from dropflow.clock import Clock

__all__ = ["PoolClock"]

_LATE_SECONDS = 0.5


class PoolClock:
    """Advances once per turn of the pool's thread. A suspended laptop must not look like workers that hang.

    Parameters
    ----------
    clock : Clock
        Real time.
    """

    def __init__(self, clock: Clock) -> None:
        self.now = 0.0
        """Seconds."""
        self._clock = clock
        self._read = clock.monotonic()

    def advance(self, timeout: float | None) -> None:
        """Add the time since the last call, but at most a little more than the `timeout` that the thread waited."""
        read = self._clock.monotonic()
        passed, self._read = read - self._read, read
        self.now += passed if timeout is None else min(passed, timeout + _LATE_SECONDS)
