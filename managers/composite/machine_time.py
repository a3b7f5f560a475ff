"""The time of a composite's state machine."""

from math import inf, nextafter

from managers.uptime import Uptime

__all__ = ["MachineTime"]


class MachineTime:
    """The times of the event that is handled.

    Deadlines count time in which the process ran (`managers.uptime`): after a pause of this process, no child is late.

    Parameters
    ----------
    offset : float
        Seconds since the epoch, less the monotonic time.
    period : float
        Longest gap between two events, in seconds, that counts.
    """

    def __init__(self, *, offset: float, period: float) -> None:
        self._offset = offset
        self._period = period
        self._uptime: Uptime | None = None
        self.raw = 0.0
        """The monotonic time."""
        self.now = 0.0
        """The monotonic time without pauses of this process."""

    @property
    def wall(self) -> float:
        """Seconds since the epoch."""
        return self.raw + self._offset

    def read(self, raw: float) -> None:
        """Set the time to monotonic time `raw`."""
        if self._uptime is None:
            self._uptime = Uptime(self._period, raw)
        self.raw = max(self.raw, raw)
        self.now = self._uptime.read(raw)

    def until(self, deadline: float) -> float:
        """Return the monotonic time at which `now` will be `deadline` if this process does not pause."""
        moment = self.raw + (deadline - self.now)
        # Rounding must not make it due now: then `now` would never reach the deadline on a clock that does not move.
        return moment if deadline <= self.now else max(moment, nextafter(self.raw, inf))
