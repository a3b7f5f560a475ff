"""The planners that form clusters: `sarkar` for time, and `min_parts` for few parts under a deadline."""

import heapq
import math

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.failure import refuse_errors
from dropflow.graph.physical import PhysicalGraph
from translator.options import PartitionOptions
from translator.plan.heft import heft, task_ranks, with_best_order
from translator.plan.judge import simulate
from translator.plan.machines import Machines
from translator.plan.steering import PlannedParts, shares_of
from translator.plan.task_graph import TaskGraph, task_graph, work_of
from translator.problem_codes import problem

__all__ = [
    "dominant_clusters",
    "merged",
    "min_parts",
    "sarkar",
]


# Clusters of tasks by edge zeroing, for the least completion time under a limit to the applications
# at once.
#
# Edge zeroing (V. Sarkar, "Partitioning and Scheduling Parallel Programs for Multiprocessors", 1989)
# puts the ends of an edge into one cluster if that does not lengthen the schedule. Trying every edge
# costs a schedule each, so the order is that of dominant sequence clustering (T. Yang and A.
# Gerasoulis, IEEE Trans. Parallel Distrib. Syst. 5, 1994): tasks are taken in topological order,
# first the one on the longest path, and its heaviest incoming edges are zeroed as long as it starts
# earlier by that. This takes O((v + e) log v).

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


_SLACKS = (1.02, 1.2, 1.6)
"""Factors by which parts may exceed their shares for data to stay together; the one that completes first is used."""


def sarkar(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return clusters by edge zeroing, merged into parts of about equal load."""
    tasks = task_graph(work_of(graph))
    dop = max(node.cores for node in machines.nodes)
    cluster = dominant_clusters(tasks, machines, task_ranks(tasks, machines).tolist(), dop)
    shares = shares_of(machines)
    best, least = None, math.inf
    for slack in _SLACKS:
        part = tasks.expanded(merged(tasks, cluster, shares, slack))
        made = with_best_order(graph, tasks, machines, part)
        completion = simulate(tasks.work, machines, part, made.priority).completion
        if completion < least:
            best, least = made, completion
    assert best is not None  # noqa: S101 - the completion time of a checked graph is finite
    return best


def min_parts(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return a plan on as few nodes as keep the deadline, the fastest nodes first.

    Without a deadline, the plan may take longer than the fastest one known: by 100 % at a greediness of 0, and not at
    all at 100.

    Raises
    ------
    BadGraphError
        PT011: no plan that was found keeps the deadline.
    """
    work = work_of(graph)
    power = [(-node.cores * node.speed, number) for number, node in enumerate(machines.nodes)]
    order = [number for _, number in sorted(power)]

    def plan(count: int) -> tuple[float, PlannedParts]:
        chosen = order[:count]
        some = msgspec.structs.replace(machines, nodes=tuple(machines.nodes[number] for number in chosen))
        found = []
        for algorithm in (heft, sarkar):
            made = algorithm(graph, options, some)
            part = np.array(chosen, dtype=np.int32)[made.part]
            completion = simulate(work, some, made.part, made.priority).completion
            found.append((completion, PlannedParts(part, made.priority)))
        return min(found, key=lambda one: one[0])

    best, made = plan(len(order))
    deadline = options.deadline
    if deadline is None:
        deadline = best * (2.0 - min(max(options.greediness, 0.0), 100.0) / 100.0)
    if best > deadline * (1 + 1e-9):
        text = f"the best plan for {len(order)} nodes takes {best:.6g} s, the deadline is {deadline:.6g} s"
        hint = "give a later deadline, or more or faster nodes"
        refuse_errors([problem("PT011", text, where="deadline", hint=hint)])
    low, high = 1, len(order)  # `high` nodes keep the deadline
    while low < high:
        middle = (low + high) // 2
        completion, candidate = plan(middle)
        if completion <= deadline * (1 + 1e-9):
            high, best, made = middle, completion, candidate
        else:
            low = middle + 1
    nodes = "1 node keeps" if high == 1 else f"{high} nodes keep"
    return PlannedParts(made.part, made.priority, f"{nodes} the deadline of {deadline:.6g} s with {best:.6g} s")
