"""What a state machine will do at a later time."""

from collections.abc import Callable
from math import inf

__all__ = ["Timers"]

Key = tuple[str, str | int]


class Timers:
    """Functions that are due at monotonic times, one for each key."""

    def __init__(self) -> None:
        self._timers: dict[Key, tuple[float, Callable[[float], None]]] = {}

    def __contains__(self, key: Key) -> bool:
        """Return whether something is to be done for `key`."""
        return key in self._timers

    def set(self, key: Key, when: float, function: Callable[[float], None]) -> None:
        """Call `function` with the time once it is `when`, instead of what was set for `key` before."""
        self._timers[key] = (when, function)

    def clear(self, key: Key) -> None:
        """Do nothing for `key`. Idempotent."""
        self._timers.pop(key, None)

    def run(self, now: float) -> None:
        """Call what is due, in the order of time."""
        for _, key in sorted((when, key) for key, (when, _) in self._timers.items() if when <= now):
            timer = self._timers.pop(key, None)
            if timer is not None:  # another one may have cleared it
                timer[1](now)

    def deadline(self) -> float:
        """Return when something is due next; infinity if never."""
        return min((when for when, _ in self._timers.values()), default=inf)
