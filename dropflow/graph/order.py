"""Levels, topological order, cycles and the critical path.

The sweep over the drops is Kahn's (A. B. Kahn, "Topological sorting of large networks", CACM 5, 1962), one frontier at
a time. If the frontier is wide, a step is a few operations on whole arrays. If it is narrow, as in a chain, their
overhead would be paid for every drop, so the step is done drop by drop. Both ways work on the same arrays, and are
chosen at each level.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadGraphError
from dropflow.failure import Problem, Severity
from dropflow.graph.physical import Adjacency, IntColumn, PhysicalGraph
from dropflow.graph.templates import Axis, Link, Template
from dropflow.graph.text_ids import oid, oids
from dropflow.ids import DropId
from dropflow.states import DropState

_NARROW = 48
"""Frontiers with fewer drops are advanced drop by drop. Measured: at this width both ways take the same time."""

_SHOWN_DROPS = 8
"""Drops of a cycle in a message."""
_Mask = npt.NDArray[np.bool_]
States = npt.NDArray[np.uint8]


class CriticalPath(msgspec.Struct, frozen=True):
    """The longest chain of dependent work.

    Attributes
    ----------
    length : float
        Sum of the execution times of its applications in seconds.
    drops : tuple of DropId
        Its drops, first to last.
    """

    length: float
    drops: tuple[DropId, ...]


def levels(graph: PhysicalGraph) -> IntColumn:
    """Return the length in edges of the longest path that ends at each drop.

    Returns
    -------
    int32 array, shape (drops,)
        0 for roots.

    Raises
    ------
    BadGraphError
        The graph has a cycle; its problem LG050 names the drops on it.
    """
    level = _sweep(graph)
    if len(level) and level.min() < 0:
        _refuse(graph, level)
    return level


def topological_order(graph: PhysicalGraph) -> IntColumn:
    """Return all drops, each after its predecessors: by level, and within a level by row.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    return np.argsort(levels(graph), kind="stable").astype(np.int32)


def roots(graph: PhysicalGraph) -> IntColumn:
    """Return the drops without predecessors, ascending."""
    reached = np.zeros(graph.drops, dtype=np.bool_)
    reached[graph.successors.neighbour] = True
    return np.flatnonzero(~reached).astype(np.int32)


def leaves(graph: PhysicalGraph) -> IntColumn:
    """Return the drops without successors, ascending."""
    ptr = graph.successors.ptr
    return np.flatnonzero(ptr[1:] == ptr[:-1]).astype(np.int32)


def find_cycle(graph: PhysicalGraph) -> list[DropId] | None:
    """Return the drops of a cycle, in order, or None. It is a shortest cycle through its first drop."""
    level = _sweep(graph)
    return _cycle(graph, level) if len(level) and level.min() < 0 else None


def cycle_problem(graph: PhysicalGraph) -> Problem | None:
    """Return LG050 if drops wait for each other: none of them, nor any drop after them, would ever run."""
    cycle = find_cycle(graph)
    return None if cycle is None else _problem_of(graph, cycle)


def refuse_cycle(graph: PhysicalGraph) -> None:
    """Raise if the graph has a cycle.

    Raises
    ------
    BadGraphError
        Its problem LG050 names the drops on the cycle.
    """
    levels(graph)


def critical_path(graph: PhysicalGraph) -> CriticalPath:
    """Return the path with the longest execution time, from the weights of templates. Data drops take no time.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    if not graph.drops:
        return CriticalPath(0.0, ())
    cost = graph.template_seconds[graph.template]
    before = longest_before(graph, cost)
    done = before + cost
    last = int(done.argmax())
    return CriticalPath(float(done[last]), _walk_back(graph, done, last))


def _walk_back(graph: PhysicalGraph, done: npt.NDArray[np.float64], drop: int) -> tuple[DropId, ...]:
    """Return the path to `drop` on which each drop is the predecessor of the next one that ends last."""
    ptr, neighbour = graph.predecessors.ptr.data, graph.predecessors.neighbour.data
    at = done.data
    path = [DropId(drop)]
    while near := neighbour[ptr[drop] : ptr[drop + 1]].tolist():
        drop = max(near, key=at.__getitem__)
        path.append(DropId(drop))
    return tuple(reversed(path))


def _sweep(graph: PhysicalGraph) -> IntColumn:
    """Return the levels; -1 for drops on a cycle or after one."""
    drops, ptr, neighbour = graph.drops, graph.successors.ptr, graph.successors.neighbour
    waiting = np.bincount(neighbour, minlength=drops).astype(np.int32)
    level: IntColumn = np.full(drops, -1, dtype=np.int32)
    seen = np.empty(drops, dtype=np.int32)
    frontier = np.flatnonzero(waiting == 0).astype(np.int32)
    depth = 0
    while len(frontier):
        if len(frontier) < _NARROW:
            frontier, depth = _narrow_steps(graph, waiting, level, frontier, depth)
            continue
        level[frontier] = depth
        target = neighbour[edges_of(ptr, frontier)]
        np.subtract.at(waiting, target, np.int32(1))
        target = target[waiting[target] == 0]
        # Several edges of this step may reach one drop: only the last edge that wrote its row counts.
        rows = np.arange(len(target), dtype=np.int32)
        seen[target] = rows
        frontier = target[seen[target] == rows]
        depth += 1
    return level


def _narrow_steps(
    graph: PhysicalGraph, waiting: IntColumn, level: IntColumn, frontier: IntColumn, depth: int
) -> tuple[IntColumn, int]:
    """Advance drop by drop until the frontier is wide or empty."""
    # Elements of a memoryview are plain ints, and much faster to read than elements of an array.
    ptr, neighbour = graph.successors.ptr.data, graph.successors.neighbour.data
    open_inputs, level_of = waiting.data, level.data
    current: list[int] = frontier.tolist()
    while 0 < len(current) < 2 * _NARROW:
        following = []
        for drop in current:
            level_of[drop] = depth
            for edge in range(ptr[drop], ptr[drop + 1]):
                target = neighbour[edge]
                open_inputs[target] -= 1
                if not open_inputs[target]:
                    following.append(target)
        current = following
        depth += 1
    return np.array(current, dtype=np.int32), depth


def edges_of(ptr: npt.NDArray[np.int64], drops: IntColumn) -> npt.NDArray[np.int64]:
    """Return the rows of all edges that leave these drops."""
    start = ptr[drops]
    count = ptr[drops + 1] - start
    ends = np.cumsum(count)
    rows = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64)
    rows += np.repeat(start - ends + count, count)
    return rows


def longest_before(graph: PhysicalGraph, cost: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the largest sum of costs over the paths that end before each drop, shape (drops,).

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    level = levels(graph)
    order = np.argsort(level, kind="stable").astype(np.int32)
    width = np.bincount(level)
    end = np.cumsum(width)
    ptr, neighbour = graph.successors.ptr, graph.successors.neighbour
    before = np.zeros(graph.drops, dtype=np.float64)
    start = 0
    for wide in np.flatnonzero(width >= _NARROW).tolist():
        first, last = int(end[wide] - width[wide]), int(end[wide])
        _narrow_costs(graph, before, cost, order[start:first])
        drops = order[first:last]
        done = np.repeat(before[drops] + cost[drops], ptr[drops + 1] - ptr[drops])
        np.maximum.at(before, neighbour[edges_of(ptr, drops)], done)
        start = last
    _narrow_costs(graph, before, cost, order[start:])
    return before


def _narrow_costs(
    graph: PhysicalGraph, before: npt.NDArray[np.float64], cost: npt.NDArray[np.float64], drops: IntColumn
) -> None:
    """Pass costs on drop by drop. `drops` are in topological order, over any number of levels."""
    ptr, neighbour = graph.successors.ptr.data, graph.successors.neighbour.data
    best, own = before.data, cost.data
    for drop in drops.tolist():
        done = best[drop] + own[drop]
        for edge in range(ptr[drop], ptr[drop + 1]):
            target = neighbour[edge]
            if best[target] < done:  # noqa: PLR1730 - writing only changes halves the time of this loop
                best[target] = done


def _cycle(graph: PhysicalGraph, level: IntColumn) -> list[DropId]:
    """Return a cycle among the drops that the sweep did not reach.

    Each of them has a predecessor among them, so walking back ends in a cycle. A breadth-first search forward from
    there finds a shortest cycle through that drop, which is the easiest to read.
    """
    left = level.data
    back, forth = graph.predecessors, graph.successors
    drop, met = int(np.flatnonzero(level < 0)[0]), set[int]()
    while drop not in met:
        met.add(drop)
        near = back.neighbour[back.ptr[drop] : back.ptr[drop + 1]]
        drop = int(near[level[near] < 0][0])
    came_from: dict[int, int] = {}
    queue = deque([drop])
    while drop not in came_from:
        here = queue.popleft()
        for there in forth.of(here):
            if left[there] < 0 and there not in came_from:
                came_from[there] = here
                queue.append(there)
    path = [drop]
    while (here := came_from[path[-1]]) != drop:
        path.append(here)
    return [DropId(row) for row in (drop, *reversed(path[1:]))]


def _problem_of(graph: PhysicalGraph, cycle: list[DropId]) -> Problem:
    shown = [oid(graph, drop) for drop in cycle[:_SHOWN_DROPS]]
    dots = ["..."] if len(cycle) > _SHOWN_DROPS else []
    text = f"{len(cycle)} drops wait for each other: {' -> '.join([*shown, *dots, shown[0]])}"
    hint = (
        "remove one of these edges; an edge back to the start of a loop must be marked as closing the loop, and all "
        "nodes between the start and the end of a loop must be in it"
    )
    return Problem(code="LG050", severity=Severity.ERROR, where="", text=text, hint=hint)


def _refuse(graph: PhysicalGraph, level: IntColumn) -> None:
    problem = _problem_of(graph, _cycle(graph, level))
    raise BadGraphError(f"LG050 {problem.text}", problems=(problem,), where=graph.name, hint=problem.hint)


# The drops that are reached from others along edges: what they were made from, or what depends on them.


def reached(edges: Adjacency, starts: Iterable[int], may_pass: _Mask | None = None) -> tuple[IntColumn, IntColumn]:
    """Return drops and all that are reached from them, nearest first, and how many edges each is away.

    Drops at the same distance are in the order of their rows.

    Parameters
    ----------
    edges : Adjacency
        The predecessors of a graph lead to what drops were made from, its successors to what depends on them.
    starts : iterable of int
        The drops to begin with.
    may_pass : bool array, shape (drops,), optional
        Which of the other drops are reached, and lead on; all unless given.
    """
    seen = np.zeros(len(edges.ptr) - 1, np.bool_) if may_pass is None else ~may_pass
    frontier = np.array(sorted(set(starts)), np.int32)
    seen[frontier] = True
    rows, away = [frontier], [0]
    while len(frontier):
        frontier = _few_next(edges, frontier, seen) if len(frontier) < _NARROW else _next(edges, frontier, seen)
        rows.append(frontier)
        away.append(away[-1] + 1)
    return np.concatenate(rows), np.repeat(np.array(away, np.int32), [len(part) for part in rows])


def _few_next(edges: Adjacency, frontier: IntColumn, seen: _Mask) -> IntColumn:
    # Elements of a memoryview are plain ints, and much faster to read than elements of an array.
    ptr, neighbour, known = edges.ptr.data, edges.neighbour.data, seen.data
    following = set()
    for drop in frontier.tolist():
        for row in range(ptr[drop], ptr[drop + 1]):
            near = neighbour[row]
            if not known[near]:
                known[near] = True
                following.add(near)
    return np.array(sorted(following), np.int32)


def _next(edges: Adjacency, frontier: IntColumn, seen: _Mask) -> IntColumn:
    near = np.unique(edges.neighbour[edges_of(edges.ptr, frontier)])
    following: IntColumn = near[~seen[near]].astype(np.int32)
    seen[following] = True
    return following


# The order of drops: which are settled before others begin, from templates and links alone.
#
# The result is the same on every node of a session, for any part of the graph, and the time does not depend on the
# number of drops.

_LOOP, _GATHER = "loop", "gather"


class _Name(NamedTuple):
    """Identity of an axis: its construct, and its number among the axes of that construct.

    In lists of drops of other programs, axes have no construct, and are comparable only within one template.
    """

    construct: str
    place: int


class Precedence:
    """The order of the drops of a graph that its links imply.

    Parameters
    ----------
    templates, links : sequences
        Templates and links of the graph.
    """

    def __init__(self, templates: Sequence[Template], links: Sequence[Link]) -> None:
        self._axes = [dict(zip(_names(template.axes), template.axes, strict=True)) for template in templates]
        self._after: dict[int, list[Link]] = {}
        for link in links:
            self._after.setdefault(link.source, []).append(link)

    def holds(self, first: int, index: Sequence[int], second: int, other: Sequence[int]) -> bool:
        """Return whether one drop is settled before another one begins, because the other depends on it.

        A chain of links keeps the position on the axes that all of its nodes share. If two drops differ on such an
        axis, the chain must leave that axis, as a gather does, or lead from one iteration of a loop to a later one.

        Parameters
        ----------
        first, second : int
            Rows of their templates.
        index, other : sequence of int
            Their positions on the axes of these templates.
        """
        here = dict(zip(self._axes[first], index, strict=True))
        there = dict(zip(self._axes[second], other, strict=True))
        shared = {name for name in here.keys() & there.keys() if name.construct or first == second}
        differing = {name for name in shared if here[name] != there[name]}
        if first == second and not differing:
            return False
        later = {name for name in differing if here[name] < there[name] and self._axes[first][name].kind == _LOOP}
        # Without names of constructs, carries of loops are unknown.
        crossed = frozenset(name for name in differing if name.construct or name not in later)
        return self._reaches(first, second, crossed, later)

    def _reaches(self, start: int, goal: int, differing: frozenset[_Name], later: set[_Name]) -> bool:
        seen = {(start, differing)}
        queue = deque(seen)
        while queue:
            row, before = queue.popleft()
            for link in self._after.get(row, ()):
                left = frozenset(name for name in before if name in self._axes[link.target] or not name.construct)
                if link.carry:
                    loop = self._loop_of(link)
                    if loop not in later:
                        continue
                    left -= {loop}
                if link.target == goal and not left:
                    return True
                if (link.target, left) not in seen:
                    seen.add((link.target, left))
                    queue.append((link.target, left))
        return False

    def _loop_of(self, carry: Link) -> _Name | None:
        """Return the innermost loop around both ends of a carry.

        None for one that leads from a gather into other copies: it may feed back to the scatter that is gathered. Which
        copies are later then depends on the width of the gather, which templates do not have.
        """
        source, target = self._axes[carry.source], self._axes[carry.target]
        left, entered = (
            [axis for name, axis in axes.items() if name not in axes_beyond]
            for axes, axes_beyond in ((source, target), (target, source))
        )
        if left and entered and left[0].kind == _GATHER:
            return None
        return next((name for name in reversed(source) if source[name].kind == _LOOP and name in target), None)


def _names(axes: Sequence[Axis]) -> list[_Name]:
    seen: Counter[str] = Counter()
    names = []
    for axis in axes:
        names.append(_Name(axis.construct, seen[axis.construct]))
        seen[axis.construct] += 1
    return names


# Drops to be shown apart from the others: what is before or after one, what a failure took along, a path, a text.


def upstream(graph: PhysicalGraph, drop: int) -> IntColumn:
    """Return a drop and all that it depends on, ascending."""
    return np.sort(reached(graph.predecessors, [drop])[0])


def downstream(graph: PhysicalGraph, drop: int) -> IntColumn:
    """Return a drop and all that depend on it, ascending."""
    return np.sort(reached(graph.successors, [drop])[0])


def taken_along(graph: PhysicalGraph, drop: int, states: States) -> IntColumn:
    """Return a drop that failed and those downstream of it that are in ERROR through drops in ERROR, ascending.

    If two failures have reached a drop, it belongs to both.
    """
    return np.sort(reached(graph.successors, [drop], states == DropState.ERROR)[0])


def waits_for(graph: PhysicalGraph, drop: int, states: States) -> IntColumn:
    """Return a drop and all drops upstream of it that are not settled, ascending: what it waits for."""
    return np.sort(reached(graph.predecessors, [drop], states <= DropState.WRITING)[0])


def waiting_chain(graph: PhysicalGraph, drop: int, states: States) -> IntColumn:
    """Return a chain of drops that wait for each other, from `drop` to one that waits for no drop.

    Of several drops that one waits for, an active one comes first, then the one of the lowest row.
    """
    is_open = states <= DropState.WRITING
    ptr, neighbour = graph.predecessors.ptr, graph.predecessors.neighbour
    chain = [drop]
    while True:
        near = neighbour[ptr[drop] : ptr[drop + 1]]
        near = near[is_open[near]]
        if not len(near):
            return np.array(chain, dtype=np.int32)
        drop = int(near[np.lexsort((near, states[near] != DropState.WRITING))[0]])
        chain.append(drop)


def critical(graph: PhysicalGraph) -> IntColumn:
    """Return the drops of the critical path, from the estimates of the graph, first to last."""
    return np.array(critical_path(graph).drops, dtype=np.int32)


def of_template(graph: PhysicalGraph, key: str) -> IntColumn:
    """Return the drops of the logical node with this key, ascending."""
    rows = [row for row, template in enumerate(graph.templates) if template.key == key]
    return np.flatnonzero(np.isin(graph.template, rows)).astype(np.int32)


def matching(graph: PhysicalGraph, text: str) -> IntColumn:
    """Return the drops whose id, or the name of whose logical node, contains a text, ignoring case; ascending."""
    wanted = text.casefold()
    by_name = np.array([wanted in template.name.casefold() for template in graph.templates], dtype=np.bool_)
    hits = by_name[graph.template] if graph.drops else np.zeros(0, dtype=np.bool_)
    others = np.flatnonzero(~hits).astype(np.int32)
    names = oids(graph, others)
    hits[others] = np.fromiter((wanted in name.casefold() for name in names), dtype=np.bool_, count=len(names))
    return np.flatnonzero(hits).astype(np.int32)
