"""The progress of a hosted session: its state, times and statistics, and how fast its drops settle."""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from statistics import median

import msgspec

from dropflow.clock import Clock
from dropflow.execution.statistics import Statistics
from dropflow.states import SessionState

_RECENT_SECONDS = 5.0
"""Seconds over which the recent rate is taken."""
_WINDOW_SECONDS = 180.0
"""Seconds of samples from which the rates are computed."""
_SPANS = 12
"""Spans of equal length into which the samples are divided: the typical rate is the median of their rates."""
_SHORTEST_QUIET = 10.0
"""Seconds without a settled drop that are usual in any session."""
_QUIET_FACTOR = 3
"""Ratio of the usual quiet time to the longest pause: attempts that began together also end together."""


class SettlingRate:
    """Takes the number of settled drops from time to time. Used by one thread."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque()
        self._samples: deque[tuple[float, int]] = deque()
        self._settled = 0
        self.changed = 0.0
        """Monotonic time at which drops settled last, or the session began."""

    def begin(self, now: float) -> None:
        """Note when the session began, in monotonic seconds."""
        self.changed = now

    def add(self, now: float, settled: int) -> None:
        """Note how many drops are settled now, in monotonic seconds."""
        if settled != self._settled:
            self._settled, self.changed = settled, now
        self._recent.append((now, settled))
        while len(self._recent) > 2 and now - self._recent[0][0] > _RECENT_SECONDS:
            self._recent.popleft()
        # One sample a second is enough for rates over minutes.
        if len(self._samples) > 1 and now - self._samples[-2][0] < 1:
            self._samples.pop()
        self._samples.append((now, settled))
        while len(self._samples) > 2 and now - self._samples[1][0] > _WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def recent(self) -> float:
        """Drops per second during the last seconds; 0 if it is not known yet."""
        return _rate(self._recent[0], self._recent[-1]) if self._recent else 0.0

    @property
    def typical(self) -> float:
        """Median of the drops per second in twelve equal spans of the last three minutes, or of the time so far.

        One burst or one pause does not change it. If no drop settled in most spans, it is the mean of all spans.
        """
        if not self._samples:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        length = (last[0] - first[0]) / _SPANS
        if length <= 0:
            return 0.0
        edges = [self._settled_at(first[0] + span * length) for span in range(_SPANS + 1)]
        return median((after - before) / length for before, after in pairwise(edges)) or _rate(first, last)

    @property
    def usual_quiet(self) -> float:
        """Seconds without a settled drop after which the rates cannot predict the remaining time.

        This is three times the longest pause between settled drops during the last minutes, because attempts that began
        together also end together.
        """
        moments = [self._samples[0][0]] if self._samples else []
        moments += [after[0] for before, after in pairwise(self._samples) if after[1] != before[1]]
        longest = max((after - before for before, after in pairwise(moments)), default=0.0)
        return max(_SHORTEST_QUIET, _QUIET_FACTOR * longest)

    def _settled_at(self, moment: float) -> float:
        """Return how many drops were settled at a moment, interpolated between two samples."""
        before = self._samples[0]
        for sample in self._samples:
            if sample[0] >= moment:
                if sample[0] == before[0]:
                    return sample[1]
                share = (moment - before[0]) / (sample[0] - before[0])
                return before[1] + share * (sample[1] - before[1])
            before = sample
        return before[1]


def _rate(first: tuple[float, int], last: tuple[float, int]) -> float:
    return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0


class Progress(msgspec.Struct, frozen=True):
    """One version of the progress of a session.

    Attributes
    ----------
    version : int
        Grows with each change.
    state : SessionState
        DEPLOYING until it is started.
    started, finished : float
        Seconds since the epoch; 0 if it has not started, or not finished.
    began : float
        Monotonic time at which it was started: the time of day may be set while it runs.
    took : float
        Seconds that it ran; 0 before its end.
    statistics : Statistics or None
        The latest statistics; None before the first ones.
    rate : float
        Drops settled per second recently; for a session that is over, on average.
    typical : float
        Drops settled per second, as the median during the last minutes.
    changed : float
        Monotonic time at which a drop settled last, or the session was started; 0 before.
    usual_quiet : float
        For how many seconds no drop may settle before the rates cannot predict the remaining time.
    text : str
        Why it ended in this state; empty before its end.
    """

    version: int = 1
    state: SessionState = SessionState.DEPLOYING
    started: float = 0.0
    finished: float = 0.0
    began: float = 0.0
    took: float = 0.0
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

    def seconds(self, now: float) -> float:
        """Return for how many seconds the session has run, at `now` in monotonic seconds, or did run."""
        if self.is_over or not self.started:
            return self.took
        return now - self.began

    @property
    def remaining(self) -> float | None:
        """Seconds until the end at the typical rate; None if they cannot be predicted."""
        if self.statistics is None or self.typical <= 0 or self.is_over:
            return None
        return (self.statistics.drops - self.statistics.settled) / self.typical


class ProgressLog:
    """Keeps the latest progress of one session.

    First the thread that starts the session writes, from then on the session's thread. Beside it, the thread that owns
    the node's sessions calls `touch`. Any thread may read `latest`.

    Parameters
    ----------
    clock : Clock
        Tells the time.
    on_change : callable
        Takes each new `Progress`, in the writing thread.
    """

    def __init__(self, clock: Clock, on_change: Callable[[Progress], None]) -> None:
        self._latest = Progress()
        self._touched = 0
        """Number of other changes, which another thread counts: so no lock is needed."""
        self._clock = clock
        self._on_change = on_change
        self._rate = SettlingRate()

    @property
    def latest(self) -> Progress:
        """The progress as it is now."""
        latest = self._latest
        return msgspec.structs.replace(latest, version=latest.version + self._touched)

    def start(self, started: float = 0.0) -> None:
        """Note that the session was started: on other nodes at `started` in seconds since the epoch, or now if it is 0.

        The clocks of nodes may differ: no session was started in the future.
        """
        now, time = self._clock.monotonic(), self._clock.now()
        self._rate.begin(now)
        started = started or time
        self._change(
            state=SessionState.RUNNING,
            started=started,
            began=now - max(0.0, time - started),
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
        seconds, statistics = self.latest.seconds(self._clock.monotonic()), self.latest.statistics
        rate = statistics.settled / seconds if statistics is not None and seconds > 0 else 0.0
        self._change(state=state, finished=self._clock.now(), took=seconds, text=text, rate=rate)

    def touch(self) -> None:
        """Note another change that users see."""
        self._touched += 1
        self._on_change(self.latest)

    def _change(self, **changes: object) -> None:
        self._latest = msgspec.structs.replace(self._latest, version=self._latest.version + 1, **changes)
        self._on_change(self.latest)
