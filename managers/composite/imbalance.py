"""When a session whose nodes end at very different times is to be rebalanced: a pure rule over their reports."""

from collections.abc import Sequence
from dataclasses import dataclass

from dropflow.rest.session_records import SessionDetail
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


@dataclass(slots=True)
class _Notes:
    """Since when a session has been uneven, how often it was rebalanced, and when that may be done again."""

    since: float | None = None
    count: int = 0
    not_before: float = 0.0


class Imbalance:
    """Notes for how long sessions have been uneven, and how often they were rebalanced."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, int], _Notes] = {}
        """By session and epoch."""

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
        notes = self._notes.pop(key, None) or _Notes()
        self._notes[key] = notes  # the last one again: the first ones are forgotten
        while len(self._notes) > _REMEMBERED:
            del self._notes[next(iter(self._notes))]
        is_uneven = _is_uneven(parts)
        if not is_uneven:
            notes.since = notes.since if is_uneven is None else None
            return False
        if notes.since is None:
            notes.since = now
        if now < max(notes.since + _LASTS, notes.not_before) or notes.count >= _MOST:
            return False
        notes.since, notes.count, notes.not_before = None, notes.count + 1, now + _AGAIN
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
