"""Clusters of tasks by edge zeroing, for the least completion time under a limit to the applications at once.

Edge zeroing (V. Sarkar, "Partitioning and Scheduling Parallel Programs for Multiprocessors", 1989) puts the ends of an
edge into one cluster if that does not lengthen the schedule. Trying every edge costs a schedule each, so the order is
that of dominant sequence clustering (T. Yang and A. Gerasoulis, IEEE Trans. Parallel Distrib. Syst. 5, 1994): tasks are
taken in topological order, first the one on the longest path, and its heaviest incoming edges are zeroed as long as it
starts earlier by that. This takes O((v + e) log v).
"""

import heapq

import numpy as np
import numpy.typing as npt

from translator.planning.machines import Machines
from translator.planning.task_graph import TaskGraph

__all__ = ["dominant_clusters", "merged"]

_Numbers = npt.NDArray[np.int64]
_MOST_CANDIDATES = 16
"""Clusters of predecessors that a task tries, those first whose data come last."""


def dominant_clusters(tasks: TaskGraph, machines: Machines, ranks: list[float], dop: int) -> _Numbers:
    """Return the cluster of each task, numbered from 0 without gaps, shape (tasks,).

    Parameters
    ----------
    ranks : list of float
        Upward rank of each task.
    dop : int
        Processors that the applications of a cluster may use at a time.
    """
    speed, latency, bandwidth = machines.fastest, machines.links.latency, machines.links.bandwidth
    seconds: list[float] = (tasks.seconds / speed).tolist()
    cpus: list[int] = np.clip(tasks.cpus, 1, dop).tolist()
    before_ptr, before = tasks.before_ptr.tolist(), tasks.before.tolist()
    moves: list[float] = (latency + tasks.work.volume[tasks.before_data] / bandwidth).tolist()
    after_ptr, after = tasks.after_ptr.tolist(), tasks.after.tolist()
    waiting = np.diff(tasks.before_ptr).tolist()
    cluster, end = [-1] * tasks.tasks, [0.0] * tasks.tasks
    lanes: list[list[float]] = []
    heap = [(-ranks[task], task) for task in range(tasks.tasks) if not waiting[task]]
    heapq.heapify(heap)
    while heap:
        _, task = heapq.heappop(heap)
        edges = range(before_ptr[task], before_ptr[task + 1])
        arrivals = [(cluster[before[edge]], end[before[edge]], end[before[edge]] + moves[edge]) for edge in edges]
        alone = max((arrival for _, _, arrival in arrivals), default=0.0)
        chosen, start = _joined(arrivals, lanes, cpus[task], alone)
        if chosen < 0:
            chosen = len(lanes)
            lanes.append([0.0] * dop)
        cluster[task], end[task] = chosen, start + seconds[task]
        free = lanes[chosen]
        for _ in range(cpus[task]):
            heapq.heappop(free)
        for _ in range(cpus[task]):
            heapq.heappush(free, end[task])
        for target in after[after_ptr[task] : after_ptr[task + 1]]:
            waiting[target] -= 1
            if not waiting[target]:
                arrival = end[task]
                heapq.heappush(heap, (-(arrival + ranks[target]), target))
    return np.array(cluster, dtype=np.int64)


def _joined(
    arrivals: list[tuple[int, float, float]], lanes: list[list[float]], cpus: int, alone: float
) -> tuple[int, float]:
    """Return the cluster of a predecessor in which a task starts earliest, not later than alone; -1 if none.

    `arrivals` has the cluster of each predecessor, when it ends, and when its data are elsewhere.
    """
    local: dict[int, float] = {}
    remote: dict[int, float] = {}
    for number, ended, arrival in arrivals:
        local[number] = max(local.get(number, 0.0), ended)
        remote[number] = max(remote.get(number, 0.0), arrival)
    latest = sorted(remote, key=lambda number: (-remote[number], number))
    best, start = -1, alone
    for number in latest[:_MOST_CANDIDATES]:
        others = remote[latest[1]] if number == latest[0] and len(latest) > 1 else remote[latest[0]]
        others = 0.0 if len(latest) == 1 else others
        free = lanes[number][0] if cpus == 1 else heapq.nsmallest(cpus, lanes[number])[-1]
        begin = max(local[number], others, free)
        if begin < start or (begin == start and best < 0):
            best, start = number, begin
    return best, start


def merged(tasks: TaskGraph, cluster: _Numbers, shares: npt.NDArray[np.float64], slack: float) -> _Numbers:
    """Return the part of each task: clusters, the heaviest first, go where most of their data are and room is.

    Parameters
    ----------
    shares : float array, shape (parts,)
        Share of the work that each part should get.
    slack : float
        Factor by which a part may exceed its share before a cluster goes to another one.
    """
    count = int(cluster.max(initial=-1)) + 1
    least = 1e-9 * (tasks.load.sum() or 1.0) / max(tasks.tasks, 1)
    load = np.bincount(cluster, weights=tasks.load + least, minlength=count)
    one = cluster[np.repeat(np.arange(tasks.tasks), np.diff(tasks.after_ptr))]
    other = cluster[tasks.after]
    volume = tasks.work.volume[tasks.after_data]
    crosses = one != other
    key, where = np.unique(
        np.concatenate([one[crosses] * count + other[crosses], other[crosses] * count + one[crosses]]),
        return_inverse=True,
    )
    weight = np.bincount(where.reshape(-1), weights=np.tile(volume[crosses], 2), minlength=len(key)).tolist()
    ptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(key // max(count, 1), minlength=count), out=ptr[1:])
    first, near = ptr.tolist(), (key % max(count, 1)).tolist()
    limit = (shares * load.sum() * slack).tolist()
    place = [-1] * count
    sums = [0.0] * len(shares)
    inverse = (1.0 / shares).tolist()
    heap = [(0.0, part) for part in range(len(shares))]
    for number in np.argsort(-load, kind="stable").tolist():
        size = float(load[number])
        held: dict[int, float] = {}
        for edge in range(first[number], first[number + 1]):
            part = place[near[edge]]
            if part >= 0:
                held[part] = held.get(part, 0.0) + weight[edge]
        wanted = [part for part in held if sums[part] + size <= limit[part]]
        if wanted:
            chosen = min(wanted, key=lambda part: (-held[part], sums[part] * inverse[part], part))
        else:
            while heap[0][0] != sums[heap[0][1]] * inverse[heap[0][1]]:
                heapq.heapreplace(heap, (sums[heap[0][1]] * inverse[heap[0][1]], heap[0][1]))
            chosen = heap[0][1]
        place[number] = chosen
        sums[chosen] += size
    return np.array(place, dtype=np.int64)[cluster]
