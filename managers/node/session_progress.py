"""How far a hosted session has come: its state, version, times and statistics."""

from collections import deque
from collections.abc import Callable

import msgspec

from dropflow.clock import Clock
from dropflow.engine.statistics import Statistics
from dropflow.states import SessionState

__all__ = ["Progress", "ProgressLog"]

_RATE_SECONDS = 5.0
"""Time over which the rate is taken."""


class Progress(msgspec.Struct, frozen=True):
    """One version of the progress of a session.

    Attributes
    ----------
    version : int
        Grows with each change.
    state : SessionState
        DEPLOYING until it is started.
    started, finished : float
        Seconds since the epoch; 0 while it is not.
    statistics : Statistics or None
        The latest; None before the first.
    rate : float
        Drops per second.
    text : str
        Why it ended so, once it has ended.
    """

    version: int = 1
    state: SessionState = SessionState.DEPLOYING
    started: float = 0.0
    finished: float = 0.0
    statistics: Statistics | None = None
    rate: float = 0.0
    text: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the session has its result."""
        return self.state.is_terminal

    @property
    def remaining(self) -> float | None:
        """Seconds that the rest takes at this rate, as far as that is known."""
        if self.statistics is None or self.rate <= 0 or self.is_over:
            return None
        return (self.statistics.drops - self.statistics.settled) / self.rate


class ProgressLog:
    """Keeps the latest progress of one session.

    One thread writes: first the one that starts the session, from then on the session's. Any thread may read `latest`,
    which is replaced as a whole.

    Parameters
    ----------
    clock : Clock
        Time.
    on_change : callable
        Takes each new `Progress`, in the writing thread.
    """

    def __init__(self, clock: Clock, on_change: Callable[[Progress], None]) -> None:
        self.latest = Progress()
        self._clock = clock
        self._on_change = on_change
        self._samples: deque[tuple[float, int]] = deque()

    def start(self) -> None:
        """Note that the session was started."""
        self._change(state=SessionState.RUNNING, started=self._clock.now())

    def count(self, statistics: Statistics) -> None:
        """Note new statistics."""
        now = self._clock.monotonic()
        self._samples.append((now, statistics.settled))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SECONDS:  # noqa: PLR2004 - a span
            self._samples.popleft()
        self._change(statistics=statistics, rate=self._rate() if len(self._samples) > 1 else statistics.rate)

    def _rate(self) -> float:
        (began, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after - before) / (ended - began) if ended > began else 0.0

    def end(self, state: SessionState, text: str) -> None:
        """Note the result of the session."""
        self._change(state=state, finished=self._clock.now(), text=text)

    def touch(self) -> None:
        """Note that something else has changed that users see. While no thread is at work in the session."""
        self._change()

    def _change(self, **changes: object) -> None:
        self.latest = msgspec.structs.replace(self.latest, version=self.latest.version + 1, **changes)
        self._on_change(self.latest)
