"""When a session whose nodes end at very different times is to be rebalanced: a pure rule over their reports."""

from collections.abc import Sequence

from dropflow.rest.schema import SessionDetail
from managers.composite.merging import SessionPart

__all__ = ["Imbalance"]

_LONGER = 30.0
"""Seconds by which the slowest part must exceed the mean: a rebalance stops all nodes for a moment."""
_FACTOR = 1.5
"""How many times the mean the slowest part must take."""
_LASTS = 10.0
"""Seconds for which that must be so: rates vary."""
_AGAIN = 60.0
_MOST = 5
_REMEMBERED = 1000


class Imbalance:
    """Notes for how long sessions have been uneven, and how often they were rebalanced."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}
        self._done: dict[tuple[str, int], tuple[int, float]] = {}
        """By session and epoch: number of rebalances, and when the next one may be."""

    def is_due(self, session: SessionDetail, parts: Sequence[SessionPart], now: float) -> bool:
        """Return whether a session is to be rebalanced now; then it counts as rebalanced.

        Parameters
        ----------
        parts : sequence of SessionPart
            The last report of each child.
        now : float
            Monotonic seconds.
        """
        key = (session.session, session.epoch)
        is_uneven = _is_uneven(parts)
        if not is_uneven:
            if is_uneven is not None:
                self._since.pop(key, None)
            return False
        since = self._since.setdefault(key, now)
        count, not_before = self._done.get(key, (0, 0.0))
        if now < since + _LASTS or now < not_before or count >= _MOST:
            return False
        del self._since[key]
        self._done.pop(key, None)
        self._done[key] = (count + 1, now + _AGAIN)
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]
        return True


def _is_uneven(parts: Sequence[SessionPart]) -> bool | None:
    """Return whether the slowest child ends much later than the others; None if one with open drops has no rate now."""
    open_parts = [part.detail for part in parts if part.detail.settled < part.detail.drops]
    seconds = [detail.remaining for detail in open_parts if detail.remaining is not None]
    if len(parts) < 2 or not open_parts:  # noqa: PLR2004 - one has nothing to balance
        return False
    if len(seconds) < len(open_parts):
        return None
    mean = sum(seconds) / len(parts)
    return max(seconds) > max(mean + _LONGER, _FACTOR * mean)
