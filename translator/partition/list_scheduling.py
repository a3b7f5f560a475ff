"""List scheduling on unequal nodes: HEFT, HEFT with lookahead, and PEFT.

Sources: H. Topcuoglu, S. Hariri and M. Wu, IEEE Trans. Parallel Distrib. Syst. 13, 2002 (HEFT); L. F. Bittencourt,
R. Sakellariou and E. R. M. Madeira, PDP 2010 (lookahead); H. Arabnejad and J. G. Barbosa, IEEE Trans. Parallel Distrib.
Syst. 25, 2014 (PEFT). Tasks are taken by rank, and each goes to the node where it ends first, also into a gap between
tasks that are there. Lookahead takes the node where the successors of the task end first; PEFT adds an optimistic
estimate of what follows.
"""

import heapq
import math

import numpy as np
import numpy.typing as npt

from translator.partition.timetable import StartSlot, Timetable
from translator.planning.graph_work import Floats
from translator.planning.machines import Machines
from translator.planning.task_graph import TaskGraph

__all__ = ["Schedule", "ranked_order", "schedule_heft", "schedule_lookahead", "schedule_peft", "task_ranks"]

_Numbers = npt.NDArray[np.int64]


class Schedule:
    """A schedule that grows task by task.

    Parameters
    ----------
    tasks : TaskGraph
        What is scheduled.
    machines : Machines
        Moves have their links to themselves here.
    """

    def __init__(self, tasks: TaskGraph, machines: Machines) -> None:
        self.machines = machines
        self._nodes = range(len(machines.nodes))
        self._timetable = Timetable(machines)
        self._seconds: list[list[float]] = [(tasks.seconds / node.speed).tolist() for node in machines.nodes]
        fits = np.array([(tasks.cpus <= node.cores) & (tasks.memory <= node.memory) for node in machines.nodes])
        # What asks for more than a node has takes all of its processors, and so runs alone.
        self._cpus: list[list[int]] = [
            np.where(fitting, np.maximum(tasks.cpus, 1), node.cores).tolist()
            for fitting, node in zip(fits, machines.nodes, strict=True)
        ]
        self._memory: list[list[float]] = [np.minimum(tasks.memory, node.memory).tolist() for node in machines.nodes]
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

        A node without the processors or the memory for it is never free if another one has them.
        """
        ready = self._ready(task)
        earliest, seconds, cpus, memory = self._timetable.earliest, self._seconds, self._cpus, self._memory
        found = [
            earliest(node, ready[node], seconds[node][task], cpus[node][task], memory[node][task])
            for node in self._nodes
        ]
        for node in self._avoided.get(task, ()):
            found[node] = (math.inf, -1)
        return found

    def put(self, task: int, node: int, slot: StartSlot) -> None:
        """Put a task on a node."""
        seconds = self._seconds[node][task]
        self._timetable.place(node, slot, seconds, self._cpus[node][task], self._memory[node][task])
        self.node[task], self.start[task], self.end[task] = node, slot[0], slot[0] + seconds
        for data in self._root_data[self._root_ptr[task] : self._root_ptr[task + 1]]:
            self._root_home.setdefault(data, node)

    def assume(self, task: int, node: int, end: float) -> None:
        """Assume that a task ends on a node at some time, without reserving it; -1 for no node."""
        self.node[task], self.end[task] = node, end

    def _inputs(self, task: int) -> list[tuple[int, float, float]]:
        """Return node, time and bytes of each input that has a node."""
        found = []
        for edge in range(self._before_ptr[task], self._before_ptr[task + 1]):
            before = self._before[edge]
            if self.node[before] >= 0:
                found.append((self.node[before], self.end[before], self._volume[self._before_data[edge]]))
        for data in self._root_data[self._root_ptr[task] : self._root_ptr[task + 1]]:
            home = self._root_home.get(data, -1)
            if home >= 0:
                found.append((home, 0.0, self._volume[data]))
        return found

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
    """Put each task where it ends first."""
    made = Schedule(tasks, machines)
    for task in order:
        slots = made.slots(task)
        node = min(range(len(slots)), key=lambda one: (slots[one][0] + made.seconds(task, one), one))
        made.put(task, node, slots[node])
    return made


def schedule_lookahead(tasks: TaskGraph, machines: Machines, order: list[int]) -> Schedule:
    """Put each task where the last of its successors ends first."""
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


def schedule_peft(tasks: TaskGraph, machines: Machines) -> Schedule:
    """Put each task where its end, and what follows at best, is first."""
    table = _optimistic_costs(tasks, machines)
    order = ranked_order(tasks, table.mean(axis=1))
    made = Schedule(tasks, machines)
    rows = table.tolist()
    for task in order:
        slots, rest = made.slots(task), rows[task]
        node = min(range(len(slots)), key=lambda one: (slots[one][0] + made.seconds(task, one) + rest[one], one))
        made.put(task, node, slots[node])
    return made


def _optimistic_costs(tasks: TaskGraph, machines: Machines) -> Floats:
    """Return the seconds that follow each task on each node, if all its successors go where they end first."""
    nodes = len(machines.nodes)
    speed = np.array([node.speed for node in machines.nodes], dtype=np.float64)
    share = (nodes - 1) / nodes
    table = np.zeros((tasks.tasks, nodes))
    ptr, after = tasks.after_ptr.tolist(), tasks.after.tolist()
    costs = (machines.links.latency + tasks.work.volume[tasks.after_data] / machines.links.bandwidth) * share
    moves: list[float] = costs.tolist()
    for task in reversed(tasks.topological):
        row = table[task]
        for edge in range(ptr[task], ptr[task + 1]):
            target = after[edge]
            there = table[target] + tasks.seconds[target] / speed
            np.maximum(row, np.minimum(there, float(there.min()) + moves[edge]), out=row)
    return table
