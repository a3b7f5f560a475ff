"""The states of many drops as a stacked bar of six groups, in the order in which a drop passes them.

``static/bars.js`` does the same in the browser; a test compares the two.
"""

from collections.abc import Mapping

import msgspec

from dropflow.states import DropState, SessionState

__all__ = ["GROUPS", "Group", "Segment", "grouped", "segments", "session_style", "state_style", "state_word"]

_LEAST = 0.8
"""Smallest width of a group that is not empty, in per cent: one failure among a million drops must be visible."""


class Group(msgspec.Struct, frozen=True):
    """States that are shown as one: style, word, and names of the states."""

    style: str
    word: str
    states: tuple[str, ...]

    @property
    def query(self) -> str:
        """The filter that finds its drops."""
        return ",".join(self.states)


GROUPS = (
    # Content that was released or removed was completed before.
    Group("completed", "completed", ("COMPLETED", "EXPIRED", "DELETED")),
    Group("error", "error", ("ERROR",)),
    Group("skipped", "skipped", ("SKIPPED",)),
    Group("cancelled", "cancelled", ("CANCELLED",)),
    # An attempt may still wait for a worker; running attempts are counted separately.
    Group("running", "active", ("WRITING",)),
    Group("waiting", "waiting", ("INITIALIZED",)),
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


def grouped(states: Mapping[str, int]) -> dict[str, int]:
    """Return the number of drops in each of the six groups, by the style of the group."""
    return {group.style: sum(states.get(state, 0) for state in group.states) for group in GROUPS}


def segments(states: Mapping[str, int]) -> tuple[Segment, ...]:
    """Return a segment for each group, of width 0 if the group is empty."""
    numbers = grouped(states)
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


def state_style(state: str) -> str:
    """Return the style of a state; ``unknown`` for one that this version does not know."""
    return next((group.style for group in GROUPS if state in group.states), "unknown")


def state_word(state: str) -> str:
    """Return the word for a state."""
    group = next((group for group in GROUPS if group.states == (state,)), None)
    known = group.word if group else state.lower()
    return known if state in DropState.__members__ else state


def session_style(status: str) -> str:
    """Return the style of the status of a session."""
    return _SESSION_STYLES[SessionState[status]] if status in SessionState.__members__ else "unknown"
