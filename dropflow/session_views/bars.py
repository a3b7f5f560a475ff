"""The states of many drops as a stacked bar of eight groups, in the order in which a drop passes them.

``managers/web/static/bars.js`` does the same in the browser; a test compares the two.
"""

from collections.abc import Mapping

import msgspec

from dropflow.drop_counts import DropCounts
from dropflow.states import DropState, SessionState

__all__ = [
    "GROUPS",
    "Group",
    "Segment",
    "grouped",
    "segments",
    "session_style",
    "state_style",
    "state_word",
]

_ACTIVE = "active"
"""A drop in WRITING: its attempt runs or is queued, or it has some of its contents."""
_LEAST = 0.8
"""Smallest width of a group that is not empty, in per cent: one failure among a million drops must be visible."""


class Group(msgspec.Struct, frozen=True):
    """Drops that are shown as one: style, word, names of the states, and their numbers in `DropCounts`.

    `elsewhere` is the filter that finds its drops, if they are in the state of another group.
    """

    style: str
    word: str
    states: tuple[str, ...]
    counted: tuple[str, ...]
    elsewhere: str = ""

    @property
    def query(self) -> str:
        """The filter that finds its drops."""
        return ",".join(self.states) or self.elsewhere


GROUPS = (
    # Content that was released or removed was completed before.
    Group("completed", "completed", ("COMPLETED", "EXPIRED", "DELETED"), ("completed",)),
    Group("error", "in error", ("ERROR",), ("failed", "took_along")),
    Group("skipped", "skipped", ("SKIPPED",), ("skipped",)),
    Group("cancelled", "cancelled", ("CANCELLED",), ("cancelled",)),
    Group("lost", "lost", (), ("lost",), "CANCELLED"),
    # Of the applications in WRITING, some run, and the others wait for a worker.
    Group("running", "running", ("WRITING",), ("running",)),
    Group("queued", "queued", (), ("queued",), "WRITING"),
    Group("waiting", "waiting", ("INITIALIZED",), ("waiting",)),
)

_SESSION_STYLES = {
    SessionState.PRISTINE: "waiting",
    SessionState.BUILDING: "waiting",
    SessionState.DEPLOYING: "running",
    SessionState.RUNNING: "running",
    SessionState.FINISHED: "completed",
    SessionState.CANCELLED: "cancelled",
    SessionState.CANCELLING: "cancelled",
    SessionState.PAUSED: "waiting",
    SessionState.FAILED: "error",
}


class Segment(msgspec.Struct, frozen=True):
    """One part of a bar: its style, and its start and width in per cent of the bar."""

    style: str
    start: float
    width: float


def grouped(counts: DropCounts) -> dict[str, int]:
    """Return the number of drops in each of the eight groups, by the style of the group. They add up to all drops."""
    return {group.style: sum(getattr(counts, name) for name in group.counted) for group in GROUPS}


def segments(numbers: Mapping[str, int]) -> tuple[Segment, ...]:
    """Return a segment for each group of `grouped`, of width 0 if the group is empty."""
    total = sum(numbers.values())
    if total <= 0:
        return tuple(Segment(style, 0.0, 0.0) for style in numbers)
    widths = {style: max(100 * number / total, _LEAST) if number else 0.0 for style, number in numbers.items()}
    widest = max(widths, key=lambda style: widths[style])
    widths[widest] -= sum(widths.values()) - 100
    found, start = [], 0.0
    for style, width in widths.items():
        found.append(Segment(style, round(start, 2), round(width, 2)))
        start += width
    return tuple(found)


def state_style(state: str, *, is_running: bool | None = None) -> str:
    """Return the style of a state; ``unknown`` for one that this version does not know. See `state_word`."""
    if is_running is False:
        return "queued"
    return next((group.style for group in GROUPS if state in group.states), "unknown")


def state_word(state: str, *, is_running: bool | None = None) -> str:
    """Return the word for a state; of a drop in WRITING, whether it runs or is queued, if that is known."""
    if is_running is not None:
        return "running" if is_running else "queued"
    group = next((group for group in GROUPS if group.states == (state,)), None)
    known = _ACTIVE if state == DropState.WRITING.name else group.word if group else state.lower()
    return known if state in DropState.__members__ else state


def session_style(status: str) -> str:
    """Return the style of the status of a session."""
    return _SESSION_STYLES[SessionState[status]] if status in SessionState.__members__ else "unknown"
