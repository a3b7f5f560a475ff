"""Runs an assignment on virtual time: the start and end of each application, and of moves of data.

The rules are those of a session on several nodes (`dropflow.execution.decisions.core`), with which tests compare them:

* An application is ready when all its inputs are on its node.
* The ready application with the highest priority starts first; without priorities, the one that was ready first.
* It starts when the processors and the memory that it needs are free. No other application overtakes it meanwhile.
* Applications without GPUs overtake an application that waits for GPUs.
* If an application needs more than its node has, it gets all of it.
* Data move once to each node with consumers, as soon as they are complete.
"""

import heapq
import math
from dataclasses import dataclass, replace

import numpy as np

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.times.attempts import planned_seconds
from translator.plan.machines import Machines
from translator.plan.task_graph import EventGraph, Floats, GraphWork, capacities, event_graph, work_of

_TOLERANCE = 1e-9
"""Share of a move that may be missing at its end: sums of rates are not exact."""
MOST_SCHEDULED = 200_000
"""Most drops of graphs with a schedule: for larger ones it would take seconds of processor time."""

# Moves of data that share links: each gets its max-min fair share of the bandwidth of the links on its path.
#
# Fair shares are found by progressive filling (D. Bertsekas and R. Gallager, "Data Networks", 1992, section 6.5.2). All
# moves from one node to another have the same share, so they are one group: how many bytes each of its moves has got
# since it began is the difference of one number, and the next to end is the first of a heap.


class _MoveGroup:
    """The moves from one node to another."""

    __slots__ = ("ends", "links", "rate", "received", "since", "waiting")

    def __init__(self, links: tuple[int, ...]) -> None:
        self.links = links
        self.waiting: list[tuple[float, int, float]] = []
        """A heap of moves: bytes received by each move of the group when it ends, its number, and its volume."""
        self.received = 0.0
        self.rate = 0.0
        self.since = 0.0
        self.ends = math.inf


class SharedLinks:
    """The moves under way at a time of the simulation.

    Parameters
    ----------
    machines : Machines
        Each node has a link in each direction, and each island, if there is a speed between islands.
    """

    def __init__(self, machines: Machines) -> None:
        nodes = len(machines.nodes)
        self._nodes = nodes
        self._island_of = [machines.islands.index(node.island) for node in machines.nodes]
        self._islands = len(machines.islands)
        self._has_islands = machines.between_islands is not None
        self._capacity = [machines.links.bandwidth] * (2 * nodes)
        if machines.between_islands is not None:
            self._capacity += [machines.between_islands.bandwidth] * (2 * self._islands)
        self._groups: dict[int, _MoveGroup] = {}
        self._active: dict[int, _MoveGroup] = {}
        self._has_changed = False
        self.next_end = math.inf
        """Time at which the next move ends."""

    def start(self, now: float, source: int, target: int, volume: float, move: int) -> None:
        """Add a move. `settle` must be called before time goes on."""
        key = source * self._nodes + target
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _MoveGroup(self._path(source, target))
        if not group.waiting:
            group.received, group.since = 0.0, now
            self._active[key] = group
        elif group.since < now:
            group.received += group.rate * (now - group.since)
            group.since = now
        heapq.heappush(group.waiting, (group.received + volume, move, volume))
        self._has_changed = True

    def finish(self, now: float) -> list[int]:
        """Remove and return the moves that end now."""
        done: list[int] = []
        for key, group in list(self._active.items()):
            if group.ends > now:
                continue
            received = group.waiting[0][0]  # exact, where a product with the rate is not
            waiting = group.waiting
            while waiting and waiting[0][0] - received <= _TOLERANCE * waiting[0][2]:
                done.append(heapq.heappop(waiting)[1])
            group.received, group.since = received, now
            self._has_changed = True
            if not waiting:
                del self._active[key]
        return done

    def settle(self, now: float) -> None:
        """Compute the shares of all moves, if any was added or removed."""
        if not self._has_changed:
            return
        self._has_changed = False
        groups = list(self._active.values())
        for group in groups:
            if group.since < now:
                group.received += group.rate * (now - group.since)
                group.since = now
        self._share(groups)
        self.next_end = math.inf
        for group in groups:
            left = max(group.waiting[0][0] - group.received, 0.0)
            group.ends = now + left / group.rate
            self.next_end = min(self.next_end, group.ends)

    def _share(self, groups: list[_MoveGroup]) -> None:  # noqa: C901, PLR0912 - the innermost loop of the simulation
        """Set the rates: the link with the smallest share for each of its moves is filled first, then the next one."""
        users: dict[int, list[_MoveGroup]] = {}
        moves: dict[int, int] = {}
        for group in groups:
            group.rate = 0.0
            count = len(group.waiting)
            for link in group.links:
                if link in users:
                    users[link].append(group)
                    moves[link] += count
                else:
                    users[link] = [group]
                    moves[link] = count
        room = {link: self._capacity[link] for link in users}
        while moves:
            fullest, share = -1, math.inf
            for link, count in moves.items():
                if room[link] < share * count:
                    fullest, share = link, room[link] / count
            if fullest < 0:  # all remaining links are infinitely fast
                for group in groups:
                    group.rate = group.rate or math.inf
                return
            for group in users[fullest]:
                if group.rate:
                    continue
                group.rate = share
                count = len(group.waiting)
                for link in group.links:
                    room[link] = max(room[link] - share * count, 0.0)
                    moves[link] -= count
                    if not moves[link]:
                        del moves[link]

    def _path(self, source: int, target: int) -> tuple[int, ...]:
        nodes = self._nodes
        path = (source, nodes + target)
        first, last = self._island_of[source], self._island_of[target]
        if first == last or not self._has_islands:
            return path
        return (*path, 2 * nodes + first, 2 * nodes + self._islands + last)


@dataclass(frozen=True)
class Timeline:
    """The course of a simulated run.

    Attributes
    ----------
    completion : float
        Seconds until the last drop is complete.
    start, end : float arrays, shape (drops + moves,)
        When each application and move starts and ends. A data drop ends when it is complete.
    events : EventGraph
        The applications and moves as vertices.
    """

    completion: float
    start: Floats
    end: Floats
    events: EventGraph


def simulate(work: GraphWork, machines: Machines, part: IntColumn, priority: IntColumn | None = None) -> Timeline:
    """Run a graph.

    Parameters
    ----------
    work : GraphWork
        The graph, which has no cycle.
    machines : Machines
        Part k is on the k-th node.
    part : int32 array, shape (drops,)
        Part of each drop.
    priority : int32 array, shape (drops,), optional
        Priorities. Higher ones start first on each node; among equal ones, the first row.
    """
    events = event_graph(work, part)
    state = _Simulation(work, machines, part, priority, events)
    state.run()
    start, end = np.array(state.start, dtype=np.float64), np.array(state.end, dtype=np.float64)
    end[: work.drops] = end[events.stands_for]
    return Timeline(completion=float(end.max(initial=0.0)), start=start, end=end, events=events)


class _Simulation:
    """One run. Lists instead of arrays: single items are read and written."""

    def __init__(
        self, work: GraphWork, machines: Machines, part: IntColumn, priority: IntColumn | None, events: EventGraph
    ) -> None:
        nodes = machines.nodes
        self._drops = work.drops
        self._machines = machines
        self._events = events
        cores, memory, gpus = capacities(machines)
        speed = np.array([node.speed for node in nodes], dtype=np.float64)
        self._part = part.tolist()
        self._seconds: list[float] = (work.seconds / speed[part]).tolist()
        # An application that needs more than exists takes all processors, as in the runners, so it runs alone.
        need = np.where(work.exceeds(machines, part), cores[part], work.cpus)
        self._need: list[int] = need.tolist()
        bytes_needed = np.minimum(work.memory, memory[part])
        self._memory: list[float] = bytes_needed.tolist()
        gpus_needed = np.minimum(work.gpus, gpus[part])
        self._gpus: list[float] = gpus_needed.tolist()
        self._is_app: list[bool] = work.is_app.tolist()
        self._is_plain = bool((need[work.is_app] == 1).all()) and not bytes_needed.any() and not work.gpus.any()
        self._free = cores.tolist()
        self._free_memory = memory.tolist()
        self._free_gpus = gpus.tolist()
        self._ready: list[list[tuple[float, int]]] = [[] for _ in nodes]
        self._ready_for_gpus: list[list[tuple[float, int]]] = [[] for _ in nodes]
        self._order: list[float] | None = None if priority is None else (-priority.astype(np.float64)).tolist()
        self._queue: list[tuple[float, int]] = []
        self._links = SharedLinks(machines) if machines.contention else None
        self._from: list[int] = events.move_from.tolist()
        self._to: list[int] = events.move_to.tolist()
        self._volume: list[float] = events.volume.tolist()
        self._has_latency = machines.links.latency > 0 or (
            machines.between_islands is not None and machines.between_islands.latency > 0
        )
        self.start = [0.0] * events.vertices
        self.end = [0.0] * events.vertices

    def run(self) -> None:  # noqa: C901, PLR0912, PLR0915 - one loop: a call for each event would double its time
        """Process events until none is left."""
        ptr, successors = self._events.ptr.tolist(), self._events.successors.tolist()
        waiting = self._events.waiting.tolist()
        drops, is_app, part, queue, end = self._drops, self._is_app, self._part, self._queue, self.end
        need, memory, free, free_memory = self._need, self._memory, self._free, self._free_memory
        gpus, free_gpus = self._gpus, self._free_gpus
        ready, ready_for_gpus, order = self._ready, self._ready_for_gpus, self._order
        links, push = self._links, heapq.heappush
        admit = self._admit_plain if self._is_plain else self._admit
        now, now_ready = 0.0, self._events.begins.tolist()
        touched: set[int] = set()
        while True:
            while now_ready:
                vertex = now_ready.pop()
                if vertex >= drops and self._takes_time(now, vertex):
                    continue
                if vertex < drops and is_app[vertex]:
                    node = part[vertex]
                    waits_in = ready_for_gpus if gpus[vertex] else ready
                    push(waits_in[node], (now if order is None else order[vertex], vertex))
                    touched.add(node)
                else:
                    end[vertex] = now
                    for after in successors[ptr[vertex] : ptr[vertex + 1]]:
                        waiting[after] -= 1
                        if not waiting[after]:
                            now_ready.append(after)
            if touched:
                for node in touched:
                    if ready[node] or ready_for_gpus[node]:
                        admit(now, node)
                touched.clear()
            if links is not None:
                links.settle(now)
                now = min(queue[0][0] if queue else math.inf, links.next_end)
            else:
                now = queue[0][0] if queue else math.inf
            if now == math.inf:
                return
            done = links.finish(now) if links is not None and links.next_end <= now else []
            while queue and queue[0][0] <= now:
                done.append(heapq.heappop(queue)[1])
            for number in done:
                vertex = abs(number)  # a move whose latency is over has a negative number
                if number < 0 and self._transmit(now, vertex):
                    continue
                end[vertex] = now
                if vertex < drops:
                    node = part[vertex]
                    free[node] += need[vertex]
                    free_memory[node] += memory[vertex]
                    free_gpus[node] += gpus[vertex]
                    touched.add(node)
                for after in successors[ptr[vertex] : ptr[vertex + 1]]:
                    waiting[after] -= 1
                    if not waiting[after]:
                        now_ready.append(after)

    def _admit_plain(self, now: float, node: int) -> None:
        """Start applications of one processor each."""
        heap, free = self._ready[node], self._free[node]
        start, seconds, queue = self.start, self._seconds, self._queue
        while free and heap:
            _, app = heapq.heappop(heap)
            start[app] = now
            heapq.heappush(queue, (now + seconds[app], app))
            free -= 1
        self._free[node] = free

    def _admit(self, now: float, node: int) -> None:
        """Start applications in the order of their priorities, until one does not fit: none overtakes it.

        If an application waits only for GPUs, applications without GPUs overtake it.
        """
        others, of_gpus = self._ready[node], self._ready_for_gpus[node]
        while True:
            has_gpus = bool(of_gpus) and self._gpus[of_gpus[0][1]] <= self._free_gpus[node]
            heap = of_gpus if has_gpus and not (others and others[0] < of_gpus[0]) else others
            if not heap:
                return
            app = heap[0][1]
            # Bytes are compared with a tolerance: sums of declared sizes are not exact.
            fits = self._memory[app] <= self._free_memory[node] * (1 + 1e-12)
            if self._need[app] > self._free[node] or not fits:
                return
            heapq.heappop(heap)
            self._free[node] -= self._need[app]
            if self._memory[app]:
                self._free_memory[node] -= self._memory[app]
            self._free_gpus[node] -= self._gpus[app]
            self.start[app] = now
            heapq.heappush(self._queue, (now + self._seconds[app], app))

    def _takes_time(self, now: float, vertex: int) -> bool:
        """Start a move; return False if it has ended already."""
        self.start[vertex] = now
        move = vertex - self._drops
        latency = self._machines.latency(self._from[move], self._to[move]) if self._has_latency else 0.0
        if latency:
            heapq.heappush(self._queue, (now + latency, -vertex))
            return True
        return self._transmit(now, vertex)

    def _transmit(self, now: float, vertex: int) -> bool:
        """Begin to move bytes; return False if there are none."""
        move = vertex - self._drops
        source, target, volume = self._from[move], self._to[move], self._volume[move]
        if not volume:
            return False
        if self._links is not None:
            self._links.start(now, source, target, volume, vertex)
        else:
            seconds = volume / self._machines.bandwidth(source, target)
            heapq.heappush(self._queue, (now + seconds, vertex))
        return True


# The schedule with which a graph is submitted. Its timeline compares it with the execution.


def with_schedule(graph: PhysicalGraph, machines: Machines) -> PhysicalGraph:
    """Return the graph with the simulated run of its parts on machines, part k on the k-th machine.

    The run is left out if the graph has too many drops, or if the time of no application was declared or measured.
    """
    work = work_of(graph)
    is_timed = graph.weight is not None or any(
        seconds and template.kind for seconds, template in zip(planned_seconds(graph), graph.templates, strict=True)
    )
    if graph.drops > MOST_SCHEDULED or not is_timed or graph.parts > len(machines.nodes):
        return replace(graph, planned=None)
    run = simulate(work, machines, graph.part, graph.priority)
    columns = []
    for times in (run.start, run.end):
        column = np.where(work.is_app, times[: graph.drops], np.nan).astype(np.float32)
        column.flags.writeable = False
        columns.append(column)
    return replace(graph, planned=(columns[0], columns[1]))
