"""The planners by list scheduling: `heft` and `lookahead`, and `min_parts` for few nodes under a deadline."""

import heapq
import math

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.failure import refuse_errors
from dropflow.graph.order import levels
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import ResourceNeeds
from translator.options import PartitionOptions
from translator.plan.judge import simulate
from translator.plan.machines import Machines, NodeCapacity
from translator.plan.planner import PlannedParts
from translator.plan.task_graph import Floats, GraphWork, TaskGraph, task_graph, work_of
from translator.problem_codes import problem

StartSlot = tuple[float, int]
"""Start time of a task, and the number of its gap; -1 behind all other tasks."""

_MOST_GAPS = 64
"""Number of latest gaps of a node that are kept: tasks come in the order of their ranks, so early gaps stay empty."""
_MOST_RESERVED = 64
"""Number of latest tasks with declared memory or GPUs that are compared for each node."""
_Numbers = npt.NDArray[np.int64]
MOST_LOOKAHEAD = 20_000_000
"""Largest product of edges and the square of nodes for lookahead; larger graphs get plain HEFT."""
_MOST_COMPARED = 60_000
"""Most drops of graphs whose order in the schedule is compared with the order of the ranks."""

# The timetable of nodes while tasks are assigned one by one: the times at which processors, memory and GPUs are free.


class Timetable:
    """Busy times of all nodes."""

    def __init__(self, machines: Machines) -> None:
        self._free = [[0.0] * node.cores for node in machines.nodes]
        self._gaps: list[list[tuple[float, float]]] = [[] for _ in machines.nodes]
        self._memory = [node.memory for node in machines.nodes]
        self._gpus = [node.gpus for node in machines.nodes]
        self._reserved: list[list[tuple[float, float, ResourceNeeds]]] = [[] for _ in machines.nodes]

    def earliest(self, node: int, ready: float, seconds: float, needs: ResourceNeeds) -> StartSlot:
        """Return when a task can start on a node, not before it is ready."""
        cpus, is_limited = needs.cpus, self._is_limited(node, needs)
        if cpus > 1:
            begin = max(ready, heapq.nsmallest(cpus, self._free[node])[-1])
        else:
            for number, (start, end) in enumerate(self._gaps[node]):
                begin = max(ready, start)
                if is_limited:
                    begin = self._with_room(node, begin, seconds, needs)
                if begin + seconds <= end:
                    return begin, number
            begin = max(ready, self._free[node][0])
        return self._with_room(node, begin, seconds, needs) if is_limited else begin, -1

    def _is_limited(self, node: int, needs: ResourceNeeds) -> bool:
        has_limit = needs.memory > 0 and not math.isinf(self._memory[node])
        return has_limit or (needs.gpus > 0 and not math.isinf(self._gpus[node]))

    def _with_room(self, node: int, begin: float, seconds: float, needs: ResourceNeeds) -> float:
        """Return the first time from `begin` on at which a node has the memory and the GPUs for `seconds`."""
        memory, gpus = self._memory[node] * (1 + 1e-12) - needs.memory, self._gpus[node] - needs.gpus
        while True:
            near = [
                reservation
                for reservation in self._reserved[node]
                if reservation[0] < begin + seconds and reservation[1] > begin
            ]
            times = [begin, *(start for start, _, _ in near if start > begin)]
            taken = [[held for start, end, held in near if start <= time < end] for time in times]
            if all(
                sum(need.memory for need in held) <= memory and sum(need.gpus for need in held) <= gpus
                for held in taken
            ):
                return begin
            begin = min(end for _, end, _ in near)

    def place(self, node: int, slot: StartSlot, seconds: float, needs: ResourceNeeds) -> None:
        """Reserve the time of a task."""
        (start, gap), cpus = slot, needs.cpus
        if self._is_limited(node, needs):
            self._reserved[node].append((start, start + seconds, needs))
            del self._reserved[node][:-_MOST_RESERVED]
        gaps = self._gaps[node]
        if gap >= 0:
            first, last = gaps[gap]
            gaps[gap : gap + 1] = [
                piece for piece in ((first, start), (start + seconds, last)) if piece[1] - piece[0] > 0
            ]
            return
        free = self._free[node]
        for _ in range(cpus):
            idle = heapq.heappop(free)
            if start > idle:
                gaps.append((idle, start))
        for _ in range(cpus):
            heapq.heappush(free, start + seconds)
        if len(gaps) > _MOST_GAPS:
            del gaps[: len(gaps) - _MOST_GAPS]


# List scheduling on unequal nodes: HEFT, and HEFT with lookahead.
#
# Sources: H. Topcuoglu, S. Hariri and M. Wu, IEEE Trans. Parallel Distrib. Syst. 13, 2002 (HEFT); L. F. Bittencourt, R.
# Sakellariou and E. R. M. Madeira, PDP 2010 (lookahead). Tasks are taken by rank, and each goes to the node where it
# ends first, also into a gap between tasks that are there. Lookahead takes the node where the successors of the task
# end first.


class Schedule:
    """A schedule that grows task by task.

    Parameters
    ----------
    tasks : TaskGraph
        The tasks that are scheduled.
    machines : Machines
        The nodes and links. Moves do not share links here.
    """

    def __init__(self, tasks: TaskGraph, machines: Machines) -> None:
        self.machines = machines
        self._nodes = range(len(machines.nodes))
        self._timetable = Timetable(machines)
        self._seconds: list[list[float]] = [(tasks.seconds / node.speed).tolist() for node in machines.nodes]
        fits = tasks.fits(machines).T
        columns = (np.maximum(tasks.cpus, 1), tasks.memory, tasks.gpus)
        own = list(map(ResourceNeeds, *(column.tolist() for column in columns)))
        # A task that needs more than a node has takes all of its processors, so it runs alone.
        self._needs: list[list[ResourceNeeds]] = [
            own
            if fitting.all()
            else [needs if fit else _all_of(node, needs) for needs, fit in zip(own, fitting.tolist(), strict=True)]
            for fitting, node in zip(fits, machines.nodes, strict=True)
        ]
        # The nodes on which a task does not fit, if it fits on others.
        avoided = ~fits & fits.any(axis=0)
        self._avoided = {
            task: np.flatnonzero(avoided[:, task]).tolist() for task in np.flatnonzero(avoided.any(axis=0)).tolist()
        }
        self._is_uniform = machines.between_islands is None
        self._latency, self._bandwidth = machines.links.latency, machines.links.bandwidth
        self._before_ptr, self._before = tasks.before_ptr.tolist(), tasks.before.tolist()
        self._before_data = tasks.before_data.tolist()
        self._root_ptr, self._root_data = tasks.root_ptr.tolist(), tasks.root_data.tolist()
        self._volume: list[float] = tasks.work.volume.tolist()
        self._root_home: dict[int, int] = {}
        self.node = [-1] * tasks.tasks
        self.start = [0.0] * tasks.tasks
        self.end = [0.0] * tasks.tasks

    def seconds(self, task: int, node: int) -> float:
        """Return how long a task runs on a node."""
        return self._seconds[node][task]

    def slots(self, task: int) -> list[StartSlot]:
        """Return the earliest slot of a task on each node. Predecessors without a node yet are ignored.

        A node without the processors, the memory or the GPUs for it is never free if another one has them.
        """
        ready = self._ready(task)
        earliest, seconds, needs = self._timetable.earliest, self._seconds, self._needs
        slots = [earliest(node, ready[node], seconds[node][task], needs[node][task]) for node in self._nodes]
        for node in self._avoided.get(task, ()):
            slots[node] = (math.inf, -1)
        return slots

    def put(self, task: int, node: int, slot: StartSlot) -> None:
        """Put a task on a node."""
        seconds = self._seconds[node][task]
        self._timetable.place(node, slot, seconds, self._needs[node][task])
        self.node[task], self.start[task], self.end[task] = node, slot[0], slot[0] + seconds
        for data in self._root_data[self._root_ptr[task] : self._root_ptr[task + 1]]:
            self._root_home.setdefault(data, node)

    def assume(self, task: int, node: int, end: float) -> None:
        """Assume that a task ends on a node at some time, without reserving it; -1 for no node."""
        self.node[task], self.end[task] = node, end

    def _inputs(self, task: int) -> list[tuple[int, float, float]]:
        """Return node, time and bytes of each input that has a node."""
        inputs = []
        for edge in range(self._before_ptr[task], self._before_ptr[task + 1]):
            before = self._before[edge]
            if self.node[before] >= 0:
                inputs.append((self.node[before], self.end[before], self._volume[self._before_data[edge]]))
        for data in self._root_data[self._root_ptr[task] : self._root_ptr[task + 1]]:
            home = self._root_home.get(data, -1)
            if home >= 0:
                inputs.append((home, 0.0, self._volume[data]))
        return inputs

    def _ready(self, task: int) -> list[float]:
        """Return when the inputs of a task are on each node."""
        inputs = self._inputs(task)
        if not self._is_uniform:
            return [
                max((time + self._move_time(where, node, volume) for where, time, volume in inputs), default=0.0)
                for node in self._nodes
            ]
        local: dict[int, float] = {}
        remote: dict[int, float] = {}
        for where, time, volume in inputs:
            arrival = time + self._latency + volume / self._bandwidth
            if time > local.get(where, 0.0):
                local[where] = time
            if arrival > remote.get(where, 0.0):
                remote[where] = arrival
        # From all other nodes: the largest arrival, and the second one for the node that has the largest.
        largest, second, holder = 0.0, 0.0, -1
        for where, arrival in remote.items():
            if arrival > largest:
                largest, second, holder = arrival, largest, where
            elif arrival > second:
                second = arrival
        return [
            max(local.get(node, 0.0), second if node == holder else largest) if node in remote else largest
            for node in self._nodes
        ]

    def _move_time(self, source: int, target: int, volume: float) -> float:
        if source == target:
            return 0.0
        return self.machines.latency(source, target) + volume / self.machines.bandwidth(source, target)


def _all_of(node: NodeCapacity, needs: ResourceNeeds) -> ResourceNeeds:
    return ResourceNeeds(node.cores, min(needs.memory, node.memory), int(min(needs.gpus, node.gpus)))


def task_ranks(tasks: TaskGraph, machines: Machines) -> Floats:
    """Return the upward rank of each task, with mean times of all nodes and mean times of moves, shape (tasks,)."""
    nodes = len(machines.nodes)
    slowness = float(np.mean([1.0 / node.speed for node in machines.nodes]))
    own = (tasks.seconds * slowness).tolist()
    share = (nodes - 1) / nodes
    latency, bandwidth = machines.links.latency * share, machines.links.bandwidth / max(share, 1e-300)
    costs = (latency + tasks.work.volume[tasks.after_data] / bandwidth).tolist()
    ptr, after = tasks.after_ptr.tolist(), tasks.after.tolist()
    rank = [0.0] * tasks.tasks
    for task in reversed(tasks.topological):
        best = 0.0
        for edge in range(ptr[task], ptr[task + 1]):
            following = costs[edge] + rank[after[edge]]
            best = max(best, following)
        rank[task] = own[task] + best
    return np.array(rank, dtype=np.float64)


def ranked_order(tasks: TaskGraph, rank: Floats) -> list[int]:
    """Return the tasks by rank, the highest first, each after its predecessors."""
    waiting = np.diff(tasks.before_ptr).tolist()
    ptr, after, key = tasks.after_ptr.tolist(), tasks.after.tolist(), (-rank).tolist()
    heap = [(key[task], task) for task in np.flatnonzero(np.diff(tasks.before_ptr) == 0).tolist()]
    heapq.heapify(heap)
    order = []
    while heap:
        _, task = heapq.heappop(heap)
        order.append(task)
        for target in after[ptr[task] : ptr[task + 1]]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(heap, (key[target], target))
    return order


def schedule_heft(tasks: TaskGraph, machines: Machines, order: list[int]) -> Schedule:
    """Put each task on the node where it ends first."""
    made = Schedule(tasks, machines)
    for task in order:
        slots = made.slots(task)
        node = min(
            range(len(slots)), key=lambda candidate: (slots[candidate][0] + made.seconds(task, candidate), candidate)
        )
        made.put(task, node, slots[node])
    return made


def schedule_lookahead(tasks: TaskGraph, machines: Machines, order: list[int]) -> Schedule:
    """Put each task on the node with which the last of its successors ends first."""
    made = Schedule(tasks, machines)
    ptr, after = tasks.after_ptr.tolist(), tasks.after.tolist()
    for task in order:
        slots = made.slots(task)
        best, chosen = (float("inf"), float("inf"), -1), -1
        following = dict.fromkeys(after[ptr[task] : ptr[task + 1]])
        for node, slot in enumerate(slots):
            end = slot[0] + made.seconds(task, node)
            made.assume(task, node, end)
            last = end
            for target in following:
                ends = (
                    max(start, end) + made.seconds(target, other)
                    if other == node
                    else start + made.seconds(target, other)
                    for other, (start, _) in enumerate(made.slots(target))
                )
                last = max(last, min(ends))
            if (last, end, node) < best:
                best, chosen = (last, end, node), node
        made.assume(task, -1, 0.0)
        made.put(task, chosen, slots[chosen])
    return made


# Upward ranks: how much work and movement follows from each drop (Topcuoglu et al., IEEE TPDS 13, 2002).


def upward_ranks(graph: PhysicalGraph, work: GraphWork, machines: Machines, part: IntColumn) -> Floats:
    """Return the seconds from the start of each drop to the end of the graph on its longest path, shape (drops,).

    Nodes are those of the assignment, and moves do not share links.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    speed = np.array([node.speed for node in machines.nodes], dtype=np.float64)
    own = work.seconds / speed[part]
    crosses = part[work.source] != part[work.target]
    volume = np.maximum(work.volume[work.source], work.volume[work.target])
    moves = np.where(crosses, volume / machines.links.bandwidth + machines.links.latency, 0.0)
    level = levels(graph)
    # Edges by the level of their source, the last level first: all targets of a level are done before it.
    order = np.argsort(-level[work.source], kind="stable")
    source, target, cost = work.source[order], work.target[order], moves[order]
    ends = np.cumsum(np.bincount(level[work.source], minlength=int(level.max(initial=0)) + 1)[::-1])
    rank = own.copy()
    first = 0
    for last in ends.tolist():
        if last - first > 0:
            _pass_back(rank, own, source[first:last], target[first:last], cost[first:last])
        first = last
    return rank


def _pass_back(rank: Floats, own: Floats, source: IntColumn, target: IntColumn, cost: Floats) -> None:
    if len(source) == 1:
        before = source[0]
        rank[before] = max(rank[before], own[before] + cost[0] + rank[target[0]])
        return
    np.maximum.at(rank, source, own[source] + cost + rank[target])


def priorities(rank: Floats, work: GraphWork) -> IntColumn:
    """Return a priority for each application, from 1, in the order of the ranks; 0 for data."""
    apps = work.apps
    order = np.lexsort((-apps, rank[apps]))
    column = np.zeros(work.drops, dtype=np.int32)
    column[apps[order]] = np.arange(1, len(apps) + 1, dtype=np.int32)
    column.flags.writeable = False
    return column


def heft(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return the schedule of HEFT with insertion."""
    tasks = task_graph(work_of(graph))
    order = ranked_order(tasks, task_ranks(tasks, machines))
    return _assigned(graph, tasks, machines, schedule_heft(tasks, machines, order))


def lookahead(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return the schedule of HEFT with lookahead; of plain HEFT if the graph is too large for it."""
    tasks = task_graph(work_of(graph))
    order = ranked_order(tasks, task_ranks(tasks, machines))
    fits = len(tasks.after) * len(machines.nodes) ** 2 <= MOST_LOOKAHEAD
    made = (schedule_lookahead if fits else schedule_heft)(tasks, machines, order)
    return _assigned(graph, tasks, machines, made)


def _assigned(graph: PhysicalGraph, tasks: TaskGraph, machines: Machines, made: Schedule) -> PlannedParts:
    part = tasks.expanded(np.array(made.node, dtype=np.int64))
    start = np.array(made.start, dtype=np.float64)
    ranks = task_ranks(tasks, machines)
    order = np.lexsort((-ranks, start))
    return with_best_order(graph, tasks, machines, part, order)


def with_best_order(
    graph: PhysicalGraph,
    tasks: TaskGraph,
    machines: Machines,
    part: IntColumn,
    order: npt.NDArray[np.integer],
) -> PlannedParts:
    """Return the assignment with the priorities that complete it first: those of an order of the tasks, or of ranks."""
    work = tasks.work
    position = np.empty(tasks.tasks, dtype=np.int64)
    position[order] = np.arange(tasks.tasks, 0, -1)
    candidates = [tasks.of_drops(np.where(work.is_app[tasks.row], position, 0))]
    if work.drops > _MOST_COMPARED:
        return PlannedParts(part, candidates[0])
    candidates.append(priorities(upward_ranks(graph, work, machines, part), work))
    times = [simulate(work, machines, part, priority).completion for priority in candidates]
    return PlannedParts(part, candidates[times.index(min(times))])


def min_parts(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return a plan on as few nodes as keep the deadline, the fastest nodes first.

    Without a deadline, the plan may take longer than the fastest known plan: by 100 % at a greediness of 0, and by 0 %
    at 100.

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
        subset = msgspec.structs.replace(machines, nodes=tuple(machines.nodes[number] for number in chosen))
        made = heft(graph, options, subset)
        part = np.array(chosen, dtype=np.int32)[made.part]
        return simulate(work, subset, made.part, made.priority).completion, PlannedParts(part, made.priority)

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
