"""How fast drops of a session settle, recently and typically during the last minutes; how long none does."""

from collections import deque
from itertools import pairwise
from statistics import median

__all__ = ["SettlingRate"]

_RECENT_SECONDS = 5.0
"""Time over which the recent rate is taken."""
_WINDOW_SECONDS = 180.0
_SPANS = 12
_SHORTEST_QUIET = 10.0
"""Seconds without a settled drop that are usual in any session."""
_FACTOR = 3


class SettlingRate:
    """Takes the number of settled drops from time to time. Used by one thread."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque()
        self._samples: deque[tuple[float, int]] = deque()
        self._settled = 0
        self.changed = 0.0
        """When drops settled last, or the session began, in monotonic seconds."""

    def begin(self, now: float) -> None:
        """Note when the session began, in monotonic seconds."""
        self.changed = now

    def add(self, now: float, settled: int) -> None:
        """Note how many drops are settled now, in monotonic seconds."""
        if settled != self._settled:
            self._settled, self.changed = settled, now
        self._recent.append((now, settled))
        while len(self._recent) > 2 and now - self._recent[0][0] > _RECENT_SECONDS:  # noqa: PLR2004 - a span
            self._recent.popleft()
        # One sample a second is enough for minutes.
        if len(self._samples) > 1 and now - self._samples[-2][0] < 1:
            self._samples.pop()
        self._samples.append((now, settled))
        while len(self._samples) > 2 and now - self._samples[1][0] > _WINDOW_SECONDS:  # noqa: PLR2004 - a span
            self._samples.popleft()

    @property
    def recent(self) -> float:
        """Drops per second during the last seconds; 0 if it is not known yet."""
        return _rate(self._recent[0], self._recent[-1]) if self._recent else 0.0

    @property
    def typical(self) -> float:
        """Median of the drops per second in twelve equal spans of the last three minutes, or of the time so far.

        One burst or one pause does not change it. If nothing settled in most spans, it is the mean of all.
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
        """Return for how many seconds no drop may settle before the rates say nothing about what is left.

        Three times the longest pause between settled drops during the last minutes, because several attempts that began
        together also end together.
        """
        moments = [self._samples[0][0]] if self._samples else []
        moments += [after[0] for before, after in pairwise(self._samples) if after[1] != before[1]]
        longest = max((after - before for before, after in pairwise(moments)), default=0.0)
        return max(_SHORTEST_QUIET, _FACTOR * longest)

    def _settled_at(self, moment: float) -> float:
        """Return how many drops were settled at a moment, evenly between two samples."""
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
