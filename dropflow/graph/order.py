"""Levels, topological order, cycles and the critical path.

The sweep over the drops is Kahn's (A. B. Kahn, "Topological sorting of large networks", CACM 5, 1962), one frontier at
a time. If the frontier is wide, a step is a few operations on whole arrays. If it is narrow, as in a chain, their
overhead would be paid for every drop, so the step is done drop by drop. Both ways work on the same arrays, and are
chosen at each level.
"""

from collections import deque

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadGraphError
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.ids import DropId
from dropflow.problems import Problem, Severity

__all__ = [
    "CriticalPath",
    "critical_path",
    "cycle_problem",
    "find_cycle",
    "leaves",
    "levels",
    "longest_before",
    "refuse_cycle",
    "roots",
    "topological_order",
]

_NARROW = 48
"""Frontiers with fewer drops are advanced drop by drop. Measured: at this width both ways take the same time."""

_SHOWN = 8


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
        target = neighbour[_edges_of(ptr, frontier)]
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
    open_inputs, found = waiting.data, level.data
    current: list[int] = frontier.tolist()
    while 0 < len(current) < 2 * _NARROW:
        following = []
        for drop in current:
            found[drop] = depth
            for edge in range(ptr[drop], ptr[drop + 1]):
                target = neighbour[edge]
                open_inputs[target] -= 1
                if not open_inputs[target]:
                    following.append(target)
        current = following
        depth += 1
    return np.array(current, dtype=np.int32), depth


def _edges_of(ptr: npt.NDArray[np.int64], drops: IntColumn) -> npt.NDArray[np.int64]:
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
        np.maximum.at(before, neighbour[_edges_of(ptr, drops)], done)
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
        for there in forth.neighbour[forth.ptr[here] : forth.ptr[here + 1]].tolist():
            if left[there] < 0 and there not in came_from:
                came_from[there] = here
                queue.append(there)
    path = [drop]
    while (here := came_from[path[-1]]) != drop:
        path.append(here)
    return [DropId(row) for row in (drop, *reversed(path[1:]))]


def _problem_of(graph: PhysicalGraph, cycle: list[DropId]) -> Problem:
    shown = [oid(graph, drop) for drop in cycle[:_SHOWN]]
    dots = ["..."] if len(cycle) > _SHOWN else []
    text = f"{len(cycle)} drops wait for each other: {' -> '.join([*shown, *dots, shown[0]])}"
    hint = (
        "remove one of these edges; an edge back to the start of a loop must be marked as closing the loop, and all "
        "nodes between the start and the end of a loop must be in it"
    )
    return Problem(code="LG050", severity=Severity.ERROR, where="", text=text, hint=hint)


def _refuse(graph: PhysicalGraph, level: IntColumn) -> None:
    found = _problem_of(graph, _cycle(graph, level))
    raise BadGraphError(f"LG050 {found.text}", problems=(found,), where=graph.name, hint=found.hint)
