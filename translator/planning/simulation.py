"""Runs an assignment on virtual time: when each application starts and ends, and when data have moved.

The rules are those of a session on several nodes (`dropflow.engine.core`), with which tests compare them: an
application is ready when all its inputs are on its node; of the ready ones of a node, those with the highest priority
start first, as soon as the processors and the memory that they need are free; none overtakes another one that waits for
these. Without priorities, the first that is ready comes first. What needs more than its node has gets all of it. Data
move to each node with consumers once, from the moment when they are complete.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from dropflow.graph.physical import IntColumn
from translator.planning.event_graph import EventGraph, event_graph
from translator.planning.graph_work import Floats, GraphWork
from translator.planning.machines import Machines
from translator.planning.shared_links import SharedLinks

__all__ = ["Timeline", "simulate"]


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
        What the moves are.
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
        Higher ones start first in each node. Of equal ones, the first row.
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
        cores = np.array([node.cores for node in nodes], dtype=np.int64)
        memory = np.array([node.memory for node in nodes], dtype=np.float64)
        speed = np.array([node.speed for node in nodes], dtype=np.float64)
        self._part = part.tolist()
        self._seconds: list[float] = (work.seconds / speed[part]).tolist()
        # What asks for more than there is takes all processors, as in the runners, so that it runs alone.
        excessive = (work.cpus > cores[part]) | (work.memory > memory[part])
        need = np.where(excessive, cores[part], work.cpus)
        self._need: list[int] = need.tolist()
        bytes_needed = np.minimum(work.memory, memory[part])
        self._memory: list[float] = bytes_needed.tolist()
        self._is_app: list[bool] = work.is_app.tolist()
        self._is_plain = bool((need[work.is_app] == 1).all()) and not bytes_needed.any()
        self._free = cores.tolist()
        self._free_memory = memory.tolist()
        self._ready: list[list[tuple[float, int]]] = [[] for _ in nodes]
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

    def run(self) -> None:  # noqa: C901, PLR0912 - one loop: a call for each event would double its time
        """Process events until none is left."""
        ptr, successors = self._events.ptr.tolist(), self._events.successors.tolist()
        waiting = self._events.waiting.tolist()
        drops, is_app, part, queue, end = self._drops, self._is_app, self._part, self._queue, self.end
        need, memory, free, free_memory = self._need, self._memory, self._free, self._free_memory
        ready, order = self._ready, self._order
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
                    push(ready[node], (now if order is None else order[vertex], vertex))
                    touched.add(node)
                else:
                    end[vertex] = now
                    for after in successors[ptr[vertex] : ptr[vertex + 1]]:
                        waiting[after] -= 1
                        if not waiting[after]:
                            now_ready.append(after)
            if touched:
                for node in touched:
                    if ready[node]:
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
            for item in done:
                vertex = abs(item)  # a move whose latency is over has a negative number
                if item < 0 and self._transmit(now, vertex):
                    continue
                end[vertex] = now
                if vertex < drops:
                    node = part[vertex]
                    free[node] += need[vertex]
                    free_memory[node] += memory[vertex]
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
        """Start applications in the order of their priorities, until one does not fit: none overtakes it."""
        heap = self._ready[node]
        while heap:
            app = heap[0][1]
            # Bytes are compared with a tolerance: sums of declared sizes are not exact.
            fits = self._memory[app] <= self._free_memory[node] * (1 + 1e-12)
            if self._need[app] > self._free[node] or not fits:
                return
            heapq.heappop(heap)
            self._free[node] -= self._need[app]
            if self._memory[app]:
                self._free_memory[node] -= self._memory[app]
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
