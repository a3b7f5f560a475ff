"""A lower bound of the completion time that counts what has to move, and when the work can begin and must be done.

Each task gets a head, before which it cannot start, and a tail, seconds that follow its end in any case. What is on the
same node as a task shares its processors with the other tasks there; what is elsewhere arrives later by its move. So of
the predecessors those that would arrive last are on its node, as many as are done there before the next one could
arrive, whatever the plan (M. A. Al-Mouhamed, IEEE Trans. Software Eng. 16, 1990). Tails are the heads of the graph in
reverse. All work of the tasks whose heads and tails are at least so and so long is done in between, by all processors
(E. B. Fernandez and B. Bussell, IEEE Trans. Computers 22, 1973).
"""

import numpy as np
import numpy.typing as npt

from translator.planning.graph_work import Floats
from translator.planning.machines import Machines
from translator.planning.task_graph import TaskGraph

__all__ = ["MOST_BOUNDED", "bound_with_moves"]

MOST_BOUNDED = 200_000
"""Graphs with more drops have no such bound: it takes several microseconds for each edge."""
_MOST_TAILS = 256
_TAIL_BUDGET = 4_000_000
"""Tasks that are looked at for all tails together; of large graphs, fewer tails are tried."""

_Wide = npt.NDArray[np.int64]


def bound_with_moves(tasks: TaskGraph, machines: Machines) -> float:
    """Return seconds that no assignment can beat; moves have their links to themselves.

    Parameters
    ----------
    tasks : TaskGraph
        Without cycles.
    machines : Machines
        Times are those of the fastest node, and moves those of the fastest link.
    """
    if not tasks.tasks:
        return 0.0
    seconds = tasks.seconds / machines.fastest
    order = tasks.topological
    moves = _moves(tasks, tasks.before_data, machines)
    heads = _heads(order, (tasks.before_ptr, tasks.before, moves), seconds, machines)
    moves = _moves(tasks, tasks.after_data, machines)
    tails = _heads(order[::-1], (tasks.after_ptr, tasks.after, moves), seconds, machines)
    longest = float((heads + seconds + tails).max())
    # What asks for more processors than its node has gets all of them.
    fewest = min(node.cores for node in machines.nodes)
    work = tasks.seconds * np.minimum(tasks.cpus, fewest) / machines.power
    return max(longest, _done_between(heads, tails, work))


def _moves(tasks: TaskGraph, data: _Wide, machines: Machines) -> Floats:
    """Return the seconds that each edge takes at least if its ends are on different nodes."""
    links = [machines.links]
    if machines.between_islands is not None and len(machines.islands) > 1:
        links.append(machines.between_islands)
    # A move between islands passes the links of its nodes, too.
    found: Floats = min(one.latency for one in links) + tasks.work.volume[data] / machines.links.bandwidth
    return found


def _heads(order: tuple[int, ...], edges: tuple[_Wide, _Wide, Floats], seconds: Floats, machines: Machines) -> Floats:
    """Return when each task can start at the earliest, shape (tasks,).

    Parameters
    ----------
    order : tuple of int
        The tasks, predecessors first.
    edges : triple of arrays
        Pointers and predecessors of each task, and the seconds of the moves in between.
    """
    cores = max(node.cores for node in machines.nodes)
    is_alone = len(machines.nodes) == 1
    (first, before, move), run = (one.tolist() for one in edges), seconds.tolist()
    head = [0.0] * len(run)
    for task in order:
        inward = range(first[task], first[task + 1])
        if not inward:
            continue
        if len(inward) == 1:
            head[task] = head[before[inward[0]]] + run[before[inward[0]]]
            continue
        slowest: dict[int, float] = {}
        for edge in inward:
            one = before[edge]
            slowest[one] = max(slowest.get(one, 0.0), move[edge])
        if is_alone:
            slowest = dict.fromkeys(slowest, float("inf"))
        # Arrival from elsewhere, start and end of each, the last to arrive first.
        inputs = sorted(((head[one] + run[one] + slowest[one], head[one], run[one]) for one in slowest), reverse=True)
        here, begin, work, end = 0.0, float("inf"), 0.0, 0.0
        best = inputs[0][0]
        for number, (_, start, length) in enumerate(inputs):
            begin, work, end = min(begin, start), work + length, max(end, start + length)
            here = max(end, begin + work / cores)
            elsewhere = inputs[number + 1][0] if number + 1 < len(inputs) else 0.0
            best = min(best, max(here, elsewhere))
            if here >= elsewhere:
                break
        head[task] = best
    return np.array(head, dtype=np.float64)


def _done_between(heads: Floats, tails: Floats, work: Floats) -> float:
    """Return the largest sum of a head, the work of all tasks with no shorter head and tail, and a tail."""
    order = np.argsort(heads, kind="stable")
    heads, tails, work = heads[order], tails[order], work[order]
    most = max(min(_MOST_TAILS, _TAIL_BUDGET // max(len(heads), 1)), 8)
    tried = np.unique(tails)
    if len(tried) > most:
        tried = tried[np.unique(np.linspace(0, len(tried) - 1, most).astype(np.int64))]
    best = 0.0
    for tail in tried.tolist():
        has_it = tails >= tail
        rest = np.cumsum(np.where(has_it, work, 0.0)[::-1])[::-1]
        best = max(best, float((heads + rest)[has_it].max()) + tail)
    return best
