"""Time as a parameter. Only this file reads the clocks of the operating system."""

import time
from typing import Protocol

MAX_SKEW_SECONDS = 2.0
"""Seconds by which clocks of hosts may differ; with more, the times of events on pages are confusing."""


class Clock(Protocol):
    """A source of times."""

    def now(self) -> float:
        """Seconds since the epoch, for records that people read."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin that never go back, for durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin that never go back."""
        return time.monotonic()
