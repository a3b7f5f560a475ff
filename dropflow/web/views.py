"""Parts of pages: fields of forms; of sessions bars of states, filters and orders of drops, paths of results.

``managers/web/static/bars.js`` does the same in the browser; a test compares the two.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.drop_records import DropInfo, DropPage, DropQuery
from dropflow.errors import AmbiguousError, LinkError, NotFoundError, UsageError
from dropflow.graph.drop_counts import DropCounts
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.text_ids import ambiguous, drops_named, oids
from dropflow.states import DropState, SessionState
from dropflow.times.statistics import NodeTraffic

_ACTIVE = "active"
"""A drop in WRITING: its attempt runs or is queued, or it has some of its contents."""
_LEAST = 0.8
"""Smallest width of a group that is not empty, in per cent: one failure among a million drops must be visible."""
VALUE = "value-"
"""What the names of fields that hold values of parameters begin with."""


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


# Which drops of a graph match a query, and their order: vectors, for lists of a million drops.

States = npt.NDArray[np.uint8]


def matching(graph: PhysicalGraph, rows: IntColumn, states: States, query: DropQuery) -> IntColumn:
    """Return those of `rows` whose state, logical node and names match, in their order.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        State of each drop of the graph.

    Raises
    ------
    UsageError
        The query names a state that does not exist.
    """
    is_wanted = np.ones(graph.drops, dtype=np.bool_)
    if query.state:
        is_wanted &= np.isin(states, [DropState[name].value for name in _state_names(query.state)])
    if query.key:
        keys = [row for row, template in enumerate(graph.templates) if template.key == query.key]
        is_wanted &= np.isin(graph.template, keys)
    if query.name:
        is_named = np.zeros_like(is_wanted)
        is_named[drops_named(graph, query.name)] = True
        is_wanted &= is_named
    found = rows[is_wanted[rows]]
    if query.text:
        wanted = query.text.lower()
        by_name = np.array([wanted in template.name.lower() for template in graph.templates], dtype=np.bool_)
        hits = by_name[graph.template[found]]
        hits |= np.fromiter((wanted in name.lower() for name in oids(graph, found)), dtype=np.bool_, count=len(found))
        found = found[hits]
    if query.ending:
        ends = (name.endswith(query.ending) for name in oids(graph, found))
        found = found[np.fromiter(ends, dtype=np.bool_, count=len(found))]
    return found


def in_order(
    graph: PhysicalGraph, found: IntColumn, whole: IntColumn, values: npt.NDArray[np.int64] | None, query: DropQuery
) -> IntColumn:
    """Return rows in the order of `dropflow.web.cause_groups`, which compares single drops.

    Parameters
    ----------
    found : int32 array
        The rows.
    whole : int32 array
        The row of each in the whole graph, which decides between equal ones.
    values : int array or None
        What the rows are sorted by, if it is neither their row nor a name.
    """
    match query.sort.removeprefix("-"):
        case "":
            return found
        case "id":
            values = np.unique(np.array(oids(graph, found), dtype=object), return_inverse=True)[1]
        case "name":
            names = np.array([template.name.casefold() for template in graph.templates], dtype=object)
            values = np.unique(names, return_inverse=True)[1][graph.template[found]]
    order = np.lexsort((whole, np.zeros(len(found), dtype=np.int64) if values is None else values))
    return found[order[::-1] if query.sort.startswith("-") else order]


def _state_names(text: str) -> list[str]:
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in DropState.__members__]
    if unknown:
        raise UsageError(
            f"there is no state {unknown[0]!r}", where="state", hint=f"one of {', '.join(DropState.__members__)}"
        )
    return names


# Finds a drop of a session by its whole id, by the end of an id that no other drop has, or by its
# name.
#
# A row number is never an id: rows are found with `DropQuery.row`.

_SHOWN = 3


def find_drop(find: Callable[[DropQuery], DropPage], text: str, *, session: str) -> DropInfo:
    """Return the drop with this id.

    Parameters
    ----------
    find : callable
        Finds drops of the session, on all nodes at or below a manager.
    text : str
        A whole id, the end of one, or a name; see `dropflow.graph.text_ids.drops_named`.
    session : str
        Its name, for errors.

    Raises
    ------
    NotFoundError
        There is no such drop.
    AmbiguousError
        It is not a whole id, and several ids end in it, or several drops have that name, or may: some drops of the
        session are not at or below the manager.
    LinkError
        A node does not answer that may hold the drop, or another one whose id ends in it.
    """
    if not text:
        raise NotFoundError("no drop has an empty id", where=session)
    whole = find(DropQuery(oid=text, limit=1))
    if whole.drops:
        return whole.drops[0]
    page, what = find(DropQuery(ending=text, limit=_SHOWN)), "end in"
    if not page.drops and not page.missing:
        page, what = find(DropQuery(name=text, limit=_SHOWN)), "are named"
    if page.total > 1:
        raise ambiguous(text, page.total, [drop.oid for drop in page.drops], what=what)
    if page.missing:
        silent = ", ".join(page.missing)
        if page.drops:
            raise LinkError(
                f"{text!r} may name several drops, because {silent} does not answer",
                where=session,
                hint=f"give the whole id, for example {page.drops[0].oid}",
            )
        raise LinkError(
            f"drop {text!r} of session {session!r} is on no node that answers",
            where=session,
            hint=f"it may be on {silent}, which does not answer",
        )
    if not page.drops:
        raise NotFoundError(f"there is no drop {text!r}", where=session, hint="see the list of its drops")
    if page.held < page.whole:
        raise AmbiguousError(
            f"{text!r} may be the end of several ids: only {page.held} of {page.whole} drops are here",
            where=session,
            hint=f"give the whole id, for example {page.drops[0].oid}, or ask a manager of the whole session",
        )
    return page.drops[0]


# What nodes moved to each other, as the rows of a table with a shade for each cell.

_MOST_NODES = 64
_MOST_WIDE = 10
_SHADES = 8
_OTHERS = "other nodes"


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
    for one in traffic:
        for name in (one.source, one.target):
            by_node[name] = by_node.get(name, 0) + max(one.total, one.planned)
    named = sorted(by_node, key=lambda name: (-by_node[name], name))
    # One row for all others, unless it would be of one node.
    kept = named if len(named) <= most_nodes else named[: most_nodes - 1]
    nodes = tuple(sorted(kept, key=_in_words_and_numbers)) + ((_OTHERS,) if len(kept) < len(named) else ())
    cells: dict[tuple[str, str], NodeTraffic] = {}
    known = set(kept)
    for one in traffic:
        source = one.source if one.source in known else _OTHERS
        target = one.target if one.target in known else _OTHERS
        before = cells.get((source, target)) or NodeTraffic(source=source, target=target)
        cells[source, target] = _sum(before, one)
    rows = [(source, tuple(cells.get((source, target)) for target in nodes)) for source in nodes]
    whole = NodeTraffic(source="", target="")
    for one in traffic:
        whole = _sum(whole, one)
    return TrafficGrid(
        nodes=nodes,
        rows=tuple((name, row, sum(one.total for one in row if one is not None)) for name, row in rows),
        received=tuple(sum(cell.total for _, row in rows if (cell := row[at])) for at in range(len(nodes))),
        whole=whole,
        most=max((one.total for one in cells.values()), default=0),
        is_compact=len(nodes) > _MOST_WIDE,
        has_plan=whole.planned > 0,
    )


def _in_words_and_numbers(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which node-10 comes after node-9."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def _sum(one: NodeTraffic, other: NodeTraffic) -> NodeTraffic:
    """Return both together, as the pair of the first."""
    return NodeTraffic(
        source=one.source,
        target=one.target,
        size=one.size + other.size,
        contents=one.contents + other.contents,
        shared_size=one.shared_size + other.shared_size,
        shared_contents=one.shared_contents + other.shared_contents,
        planned=one.planned + other.planned,
    )
