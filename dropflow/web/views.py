"""Parts of pages: the first rows of lists, fields of forms, bars of states, and tables of what nodes moved.

``managers/web/static/bars.js`` does the same in the browser; a test compares the two.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from dropflow.graph.drop_counts import DropCounts
from dropflow.states import DropState, SessionState
from dropflow.times.statistics import NodeTraffic

_ACTIVE = "active"
"""A drop in WRITING: its attempt runs or is queued, or it has some of its contents."""
_LEAST = 0.8
"""Smallest width of a group that is not empty, in per cent: one failure among a million drops must be visible."""
VALUE = "value-"
"""Prefix of the names of fields that hold values of parameters."""
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
_NODE_STYLES = {"alive": "completed", "draining": "running", "suspect": "running", "drained": "skipped"}
_T = TypeVar("_T")
_MOST_PAIRS = 50
"""Pairs of nodes that are listed below the table of what nodes moved."""
_MOST_NODES = 64
"""Nodes in a table of what nodes moved, those that moved most."""
_MOST_WIDE = 10
"""Nodes above which the table is drawn without numbers in its cells."""
_SHADES = 8
"""Shades of a cell, by the bytes that were moved."""
_OTHERS = "other nodes"


class Listed(msgspec.Struct, Generic[_T], frozen=True, kw_only=True):
    """The first rows of a list, and how many it has; ``more.tpl`` shows how many are left out."""

    rows: tuple[_T, ...] = ()
    total: int = 0

    @property
    def left_out(self) -> int:
        """How many rows are left out."""
        return self.total - len(self.rows)


def listed(rows: Sequence[_T], most: int) -> Listed[_T]:
    """Return the first rows of a list."""
    return Listed(rows=tuple(rows[:most]), total=len(rows))


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a form, as ``fields.tpl`` shows it: what a browser needs to ask for a value.

    `kind` is the type of an input in HTML, or ``lines`` for a text with several lines; with `choices` it is one of
    them. `value` is its text, or ``yes`` for a box that is checked; `note` stands beside its title, and `help` below.
    """

    name: str
    title: str
    value: str = ""
    kind: str = "text"
    note: str = ""
    help: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    step: str = ""
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False


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
    parts, start = [], 0.0
    for style, width in widths.items():
        parts.append(Segment(style, round(start, 2), round(width, 2)))
        start += width
    return tuple(parts)


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


def node_style(state: str) -> str:
    """Return the style of the state of a node or of another manager below: that of an error if it is lost."""
    return _NODE_STYLES.get(state, "error")


# What nodes moved to each other, as the rows of a table with a shade for each cell.


class TrafficGrid(msgspec.Struct, frozen=True, kw_only=True):
    """A table of pairs of nodes.

    Attributes
    ----------
    nodes : tuple of str
        Its rows and columns: those that moved most, by name, and at last all others together.
    rows : tuple of (str, tuple, int)
        For each node, what it moved to each of them, or None, and the bytes that it sent to all of them.
    received : tuple of int
        Bytes that each of them got.
    whole : NodeTraffic
        All pairs together.
    most : int
        The most bytes that a cell has.
    pairs : Listed of NodeTraffic
        The pairs that moved most.
    is_compact : bool
        Whether there are so many nodes that cells have only a shade.
    has_plan : bool
        Whether it is known what was planned.
    """

    nodes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[NodeTraffic | None, ...], int], ...]
    received: tuple[int, ...]
    whole: NodeTraffic
    most: int
    pairs: Listed[NodeTraffic]
    is_compact: bool
    has_plan: bool

    def shade(self, size: int, most: int) -> int:
        """Return a shade from 1 to 8, in proportion to the bytes."""
        return max(-(-_SHADES * size // max(most, 1)), 1)

    def share(self, cell: NodeTraffic) -> str:
        """Return the share of a cell of all bytes."""
        share = 100 * cell.total / max(self.whole.total, 1)
        return f"{share:.0f} %" if share >= 1 or not cell.total else "less than 1 %"


def traffic_grid(traffic: Sequence[NodeTraffic], most_nodes: int = _MOST_NODES) -> TrafficGrid:
    """Return the table of the nodes that moved most."""
    by_node: dict[str, int] = {}
    for pair in traffic:
        for name in (pair.source, pair.target):
            by_node[name] = by_node.get(name, 0) + max(pair.total, pair.planned)
    named = sorted(by_node, key=lambda name: (-by_node[name], name))
    # One row for all others, unless it would be of one node.
    kept = named if len(named) <= most_nodes else named[: most_nodes - 1]
    nodes = tuple(sorted(kept, key=_in_words_and_numbers)) + ((_OTHERS,) if len(kept) < len(named) else ())
    cells: dict[tuple[str, str], NodeTraffic] = {}
    known = set(kept)
    for pair in traffic:
        source = pair.source if pair.source in known else _OTHERS
        target = pair.target if pair.target in known else _OTHERS
        before = cells.get((source, target)) or NodeTraffic(source=source, target=target)
        cells[source, target] = _sum(before, pair)
    rows = [(source, tuple(cells.get((source, target)) for target in nodes)) for source in nodes]
    whole = NodeTraffic(source="", target="")
    for pair in traffic:
        whole = _sum(whole, pair)
    return TrafficGrid(
        nodes=nodes,
        rows=tuple((name, row, sum(entry.total for entry in row if entry is not None)) for name, row in rows),
        received=tuple(sum(cell.total for _, row in rows if (cell := row[at])) for at in range(len(nodes))),
        whole=whole,
        most=max((entry.total for entry in cells.values()), default=0),
        pairs=listed(traffic, _MOST_PAIRS),
        is_compact=len(nodes) > _MOST_WIDE,
        has_plan=whole.planned > 0,
    )


def _in_words_and_numbers(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which node-10 comes after node-9."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def _sum(first: NodeTraffic, second: NodeTraffic) -> NodeTraffic:
    """Return both together, as the pair of the first."""
    return NodeTraffic(
        source=first.source,
        target=first.target,
        size=first.size + second.size,
        contents=first.contents + second.contents,
        shared_size=first.shared_size + second.shared_size,
        shared_contents=first.shared_contents + second.shared_contents,
        planned=first.planned + second.planned,
    )
