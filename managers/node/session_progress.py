"""How far a hosted session has come: its state, version, times and statistics."""

from collections.abc import Callable

import msgspec

from dropflow.clock import Clock
from dropflow.engine.statistics import Statistics
from dropflow.states import SessionState
from managers.node.settling_rate import SettlingRate

__all__ = ["Progress", "ProgressLog"]


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
        Drops settled per second: recently; of a session that is over, on average.
    typical : float
        The same, typically during the last minutes.
    changed : float
        When a drop settled last, or the session was started, in monotonic seconds; 0 before.
    usual_quiet : float
        For how many seconds no drop may settle before the rates say nothing about what is left.
    text : str
        Why it ended so, once it has ended.
    """

    version: int = 1
    state: SessionState = SessionState.DEPLOYING
    started: float = 0.0
    finished: float = 0.0
    statistics: Statistics | None = None
    rate: float = 0.0
    typical: float = 0.0
    changed: float = 0.0
    usual_quiet: float = 0.0
    text: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the session has its result."""
        return self.state.is_terminal

    def quiet(self, now: float) -> float:
        """Return for how many seconds no drop has settled, at `now` in monotonic seconds; 0 unless the session runs."""
        return max(0.0, now - self.changed) if self.changed and not self.is_over else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds that the rest takes at the typical rate, as far as that is known."""
        if self.statistics is None or self.typical <= 0 or self.is_over:
            return None
        return (self.statistics.drops - self.statistics.settled) / self.typical


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
        self._rate = SettlingRate()

    def start(self) -> None:
        """Note that the session was started."""
        now = self._clock.monotonic()
        self._rate.begin(now)
        self._change(
            state=SessionState.RUNNING,
            started=self._clock.now(),
            changed=now,
            usual_quiet=self._rate.usual_quiet,
        )

    def count(self, statistics: Statistics) -> None:
        """Note new statistics."""
        self._rate.add(self._clock.monotonic(), statistics.settled)
        average = statistics.rate
        self._change(
            statistics=statistics,
            rate=self._rate.recent or average,
            typical=self._rate.typical or average,
            changed=self._rate.changed,
            usual_quiet=self._rate.usual_quiet,
        )

    def end(self, state: SessionState, text: str) -> None:
        """Note the result of the session."""
        now, statistics = self._clock.now(), self.latest.statistics
        seconds = now - self.latest.started if self.latest.started else 0.0
        rate = statistics.settled / seconds if statistics is not None and seconds > 0 else 0.0
        self._change(state=state, finished=now, text=text, rate=rate)

    def touch(self) -> None:
        """Note that something else has changed that users see. While no thread is at work in the session."""
        self._change()

    def _change(self, **changes: object) -> None:
        self.latest = msgspec.structs.replace(self.latest, version=self.latest.version + 1, **changes)
        self._on_change(self.latest)
