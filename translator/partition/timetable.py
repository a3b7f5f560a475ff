"""The timetable of nodes while tasks are assigned one by one: when processors are free, with gaps between tasks."""

import heapq

from translator.planning.machines import Machines

__all__ = ["StartSlot", "Timetable"]

StartSlot = tuple[float, int]
"""When a task starts, and the number of the gap that it goes into; -1 behind all other tasks."""

_MOST_GAPS = 64
"""Only the latest gaps of a node are kept: tasks come in the order of their ranks, so early gaps stay empty."""


class Timetable:
    """Busy times of all nodes."""

    def __init__(self, machines: Machines) -> None:
        self._free = [[0.0] * node.cores for node in machines.nodes]
        self._gaps: list[list[tuple[float, float]]] = [[] for _ in machines.nodes]

    def earliest(self, node: int, ready: float, seconds: float, cpus: int) -> StartSlot:
        """Return when a task can start on a node, not before it is ready."""
        if cpus > 1:
            return max(ready, heapq.nsmallest(cpus, self._free[node])[-1]), -1
        for number, (start, end) in enumerate(self._gaps[node]):
            begin = max(ready, start)
            if begin + seconds <= end:
                return begin, number
        return max(ready, self._free[node][0]), -1

    def place(self, node: int, slot: StartSlot, seconds: float, cpus: int) -> None:
        """Reserve the time of a task."""
        start, gap = slot
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
