"""The timetable of nodes while tasks are assigned one by one: when processors and memory are free."""

import heapq
import math

from translator.planning.machines import Machines

__all__ = ["StartSlot", "Timetable"]

StartSlot = tuple[float, int]
"""When a task starts, and the number of the gap that it goes into; -1 behind all other tasks."""

_MOST_GAPS = 64
"""Only the latest gaps of a node are kept: tasks come in the order of their ranks, so early gaps stay empty."""
_MOST_RESERVED = 64
"""Tasks with declared memory that are looked at for each node, the latest ones."""


class Timetable:
    """Busy times of all nodes."""

    def __init__(self, machines: Machines) -> None:
        self._free = [[0.0] * node.cores for node in machines.nodes]
        self._gaps: list[list[tuple[float, float]]] = [[] for _ in machines.nodes]
        self._memory = [node.memory for node in machines.nodes]
        self._reserved: list[list[tuple[float, float, float]]] = [[] for _ in machines.nodes]

    def earliest(self, node: int, ready: float, seconds: float, cpus: int, memory: float = 0.0) -> StartSlot:
        """Return when a task can start on a node, not before it is ready."""
        is_limited = memory > 0 and not math.isinf(self._memory[node])
        if cpus > 1:
            begin = max(ready, heapq.nsmallest(cpus, self._free[node])[-1])
        else:
            for number, (start, end) in enumerate(self._gaps[node]):
                begin = max(ready, start)
                if is_limited:
                    begin = self._with_room(node, begin, seconds, memory)
                if begin + seconds <= end:
                    return begin, number
            begin = max(ready, self._free[node][0])
        return self._with_room(node, begin, seconds, memory) if is_limited else begin, -1

    def _with_room(self, node: int, begin: float, seconds: float, memory: float) -> float:
        """Return when a node has so much memory for so many seconds, not before `begin`."""
        most = self._memory[node] * (1 + 1e-12) - memory
        while True:
            near = [one for one in self._reserved[node] if one[0] < begin + seconds and one[1] > begin]
            times = [begin, *(start for start, _, _ in near if start > begin)]
            if all(sum(one[2] for one in near if one[0] <= time < one[1]) <= most for time in times):
                return begin
            begin = min(end for _, end, _ in near)

    def place(self, node: int, slot: StartSlot, seconds: float, cpus: int, memory: float = 0.0) -> None:
        """Reserve the time of a task."""
        start, gap = slot
        if memory > 0 and not math.isinf(self._memory[node]):
            self._reserved[node].append((start, start + seconds, memory))
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
