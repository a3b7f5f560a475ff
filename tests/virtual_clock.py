"""A clock that a test advances."""


class VirtualClock:
    """Implements `dropflow.clock.Clock`; both times move together, by `advance`."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Add seconds to both times."""
        self._now += seconds
        self._monotonic += seconds
