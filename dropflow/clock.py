"""Time as a parameter. The only file of dropflow that asks the operating system what time it is."""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where times come from."""

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
