"""The states of many drops as a stacked bar of seven groups, in the order in which a drop passes them.

``static/bars.js`` does the same in the browser; a test compares the two.
"""

from collections.abc import Mapping

import msgspec

from dropflow.rest.schema import LogicalNodeInfo, SessionInfo
from dropflow.states import DropState, SessionState

__all__ = [
    "GROUPS",
    "Group",
    "Segment",
    "grouped",
    "grouped_node",
    "grouped_session",
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
    """States that are shown as one: style, word, and names of the states."""

    style: str
    word: str
    states: tuple[str, ...]

    @property
    def query(self) -> str:
        """The filter that finds its drops; those that run and those that are queued are in the same state."""
        return ",".join(self.states) or "WRITING"


GROUPS = (
    # Content that was released or removed was completed before.
    Group("completed", "completed", ("COMPLETED", "EXPIRED", "DELETED")),
    Group("error", "error", ("ERROR",)),
    Group("skipped", "skipped", ("SKIPPED",)),
    Group("cancelled", "cancelled", ("CANCELLED",)),
    # Of the applications in WRITING, some run, and the others wait for a worker.
    Group("running", "running", ("WRITING",)),
    Group("queued", "queued", ()),
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


def grouped(states: Mapping[str, int], running: int, queued: int) -> dict[str, int]:
    """Return the number of drops in each of the seven groups, by the style of the group. They add up to all drops.

    Data in WRITING, which have some of their contents, wait for the rest.

    Parameters
    ----------
    states : mapping
        Number of drops by state.
    running, queued : int
        How many of the drops in WRITING run, and wait for a worker.
    """
    numbers = {group.style: sum(states.get(state, 0) for state in group.states) for group in GROUPS}
    writing = numbers["running"]
    numbers["running"] = min(running, writing)
    numbers["queued"] = min(queued, writing - numbers["running"])
    numbers["waiting"] += writing - numbers["running"] - numbers["queued"]
    return numbers


def grouped_session(session: SessionInfo) -> dict[str, int]:
    """Return the number of drops of a session in each group."""
    return grouped(session.states, session.running, session.queued + session.ready)


def grouped_node(node: LogicalNodeInfo) -> dict[str, int]:
    """Return the number of drops of a logical node in each group."""
    return grouped(node.states, node.running, node.queued)


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
