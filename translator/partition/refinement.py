"""Moves tasks between parts so that fewer bytes move, within limits to the load of each part.

The moves are those of C. M. Fiduccia and R. M. Mattheyses ("A linear-time heuristic for improving network partitions",
DAC 1982), for any number of parts: a pass takes the best allowed move again and again, also one that makes it worse,
never moves a task twice, and in the end keeps the best partition that it saw. The price is what really moves: a net
whose tasks are in n parts moves n - 1 times. No part becomes empty, and empty parts get the tasks that cost least.
"""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from translator.planning.graph_work import Floats
from translator.planning.task_graph import Nets, TaskGraph

__all__ = ["PartLimits", "heaviest_first", "limits_for", "moved_bytes", "refined"]

_Parts = npt.NDArray[np.int64]
_PASSES = 6
_PATIENCE = 150
"""Moves of a pass without a better partition before it ends."""
_WIDE = 32
"""After a move, the tasks of nets that are larger, and tasks of more nets, are not looked at again in the same pass."""
_EXACT = 1e-9


@dataclass(frozen=True)
class PartLimits:
    """How much each part may have.

    Attributes
    ----------
    weights : float array, shape (constraints, tasks)
        Core seconds of each task, and its memory if any is declared.
    most : float array, shape (constraints, parts)
        Largest sum of each part.
    """

    weights: Floats
    most: Floats

    def sums(self, part: _Parts) -> Floats:
        """Return what each part has, shape (constraints, parts)."""
        parts = self.most.shape[1]
        return np.array([np.bincount(part, weights=one, minlength=parts) for one in self.weights])

    def excess(self, part: _Parts) -> float:
        """Return by how much the limits are exceeded, as a share of them; 0 if they are kept."""
        over = self.sums(part) - self.most * (1 + _EXACT)
        return float(np.maximum(over / np.maximum(self.most, 1e-300), 0.0).max(initial=0.0)) if over.size else 0.0


def limits_for(graph: TaskGraph, shares: Floats, imbalance: float, memory: Floats) -> PartLimits:
    """Return the limits for an imbalance in percent.

    Parameters
    ----------
    shares : float array, shape (parts,)
        Share of the work of each part.
    imbalance : float
        Percentage by which a part may exceed its share.
    memory : float array, shape (parts,)
        Memory of each part; declared memory is shared accordingly, or evenly if a part has no limit.
    """
    load = graph.load if graph.load.any() else np.ones(graph.tasks)
    weights, wanted = [load], [shares]
    if graph.memory.any():
        weights.append(graph.memory)
        wanted.append(memory / memory.sum() if np.isfinite(memory).all() else np.full(len(shares), 1 / len(shares)))
    factor = 1.0 + imbalance / 100.0
    most = [one.sum() * share * factor for one, share in zip(weights, wanted, strict=True)]
    return PartLimits(np.array(weights), np.array(most))


def heaviest_first(graph: TaskGraph, limits: PartLimits) -> _Parts:
    """Return a partition that is as even as can be: the heaviest task goes to the part with the most room."""
    scale = np.maximum(limits.most.sum(axis=1, keepdims=True), 1e-300)
    heaviness = (limits.weights / scale).max(axis=0)
    order = np.argsort(-heaviness, kind="stable").tolist()
    part = np.zeros(graph.tasks, dtype=np.int64)
    most, weights = np.maximum(limits.most, 1e-300).tolist(), limits.weights.tolist()
    if len(most) == 1:
        heap = [(0.0, number) for number in range(len(most[0]))]
        for task in order:
            fullness, number = heap[0]
            part[task] = number
            heapq.heapreplace(heap, (fullness + weights[0][task] / most[0][number], number))
        return part
    sums = np.zeros(limits.most.shape)
    for task in order:
        after = (sums + limits.weights[:, task : task + 1]) / np.maximum(limits.most, 1e-300)
        chosen = int(after.max(axis=0).argmin())
        part[task] = chosen
        sums[:, chosen] += limits.weights[:, task]
    return part


def moved_bytes(nets: Nets, part: _Parts) -> float:
    """Return the bytes that move between the parts."""
    parts = int(part.max(initial=0)) + 1
    places = np.unique(nets.net * parts + part[nets.task]) // parts
    return float(nets.volume[places].sum() - nets.volume.sum())


def refined(nets: Nets, part: _Parts, limits: PartLimits, *, passes: int = _PASSES) -> tuple[_Parts, float]:
    """Return a partition that moves fewer bytes, or keeps the limits better, and the bytes that move."""
    state = _Refinement(nets, part, limits)
    state.fill()
    state.balance()
    for _ in range(passes):
        if not state.improve():
            break
    return np.array(state.part, dtype=np.int64), state.moved()


class _Refinement:
    """A partition that is being changed. Lists: single items are read and written."""

    def __init__(self, nets: Nets, part: _Parts, limits: PartLimits) -> None:
        self._parts = limits.most.shape[1]
        self._ptr: list[int] = nets.ptr.tolist()
        self._pins: list[int] = nets.task.tolist()
        self._volume: list[float] = nets.volume.tolist()
        first, nets_of = nets.of_tasks(len(part))
        self._first: list[int] = first.tolist()
        self._nets_of: list[int] = nets_of.tolist()
        self.part: list[int] = part.tolist()
        self._weights: list[list[float]] = limits.weights.tolist()
        self._most: list[list[float]] = (limits.most * (1 + _EXACT)).tolist()
        self._sums: list[list[float]] = limits.sums(part).tolist()
        self._size: list[int] = np.bincount(part, minlength=self._parts).tolist()
        self._count: list[dict[int, int]] = [{} for _ in self._volume]
        for net, task in zip(nets.net.tolist(), self._pins, strict=True):
            count, where = self._count[net], self.part[task]
            count[where] = count.get(where, 0) + 1

    def moved(self) -> float:
        """Return the bytes that move."""
        return sum(volume * (len(count) - 1) for volume, count in zip(self._volume, self._count, strict=True))

    def fill(self) -> None:
        """Move a task into each empty part, one that costs least, as long as a part has several."""
        empty = [part for part, size in enumerate(self._size) if not size]
        if not empty:
            return
        heap = [(self._leaving(task), -self._weights[0][task], task) for task in range(len(self.part))]
        heapq.heapify(heap)
        while heap and empty:
            cost, weight, task = heapq.heappop(heap)
            if self._size[self.part[task]] == 1:
                continue
            now = self._leaving(task)
            if now > cost:
                heapq.heappush(heap, (now, weight, task))
                continue
            self._move(task, empty.pop(0))

    def balance(self) -> None:
        """Move tasks out of parts that exceed a limit, those first that cost least for what they weigh."""
        for limit, sums in enumerate(self._sums):
            weights = self._weights[limit]
            for source in sorted(range(self._parts), key=lambda one: -sums[one]):
                if sums[source] <= self._most[limit][source]:
                    continue
                here = [task for task, where in enumerate(self.part) if where == source and weights[task] > 0]
                heap = [(self._cheapest(task, limit)[0] / weights[task], task) for task in here]
                heapq.heapify(heap)
                while heap and sums[source] > self._most[limit][source] and self._size[source] > 1:
                    _, task = heapq.heappop(heap)
                    _, target = self._cheapest(task, limit)
                    if target >= 0:
                        self._move(task, target)

    def _cheapest(self, task: int, limit: int) -> tuple[float, int]:
        """Return the cost and the target of the cheapest move that keeps the limits, or relieves the source."""
        savings = self._savings(task)
        away = self._leaving(task)
        source, best = self.part[task], (float("inf"), -1)
        sums, weight = self._sums[limit], self._weights[limit][task]
        for target in range(self._parts):
            if target == source or not self._has_room(task, target):
                lighter = target != source and (sums[target] + weight) / max(self._most[limit][target], 1e-300) < sums[
                    source
                ] / max(self._most[limit][source], 1e-300)
                if not lighter:
                    continue
                penalty = 1e18
            else:
                penalty = 0.0
            cost = away - savings.get(target, 0.0) + penalty
            if cost < best[0]:
                best = (cost, target)
        return best

    def improve(self) -> bool:  # noqa: C901 - one loop over a heap with stale entries
        """Make one pass; return whether it found a better partition."""
        heap: list[tuple[float, int, int]] = []
        for task in range(len(self.part)):
            self._offer(heap, task)
        heapq.heapify(heap)
        locked: set[int] = set()
        trail: list[tuple[int, int]] = []
        total, best, best_length = 0.0, -1e-12, 0
        while heap and len(trail) - best_length < _PATIENCE:
            cost, task, target = heapq.heappop(heap)
            if task in locked:
                continue
            now = self._best_move(task)
            if now is None:
                continue
            if now != (cost, target):
                if now[0] > cost:
                    heapq.heappush(heap, (now[0], task, now[1]))
                    continue
                cost, target = now
            locked.add(task)
            trail.append((task, self.part[task]))
            self._move(task, target)
            total += cost
            if total < best:
                best, best_length = total, len(trail)
            for net in self._nets_of[self._first[task] : self._first[task + 1]]:
                pins = self._pins[self._ptr[net] : self._ptr[net + 1]]
                if len(pins) <= _WIDE:
                    for other in pins:
                        if other not in locked and self._first[other + 1] - self._first[other] <= _WIDE:
                            self._offer(heap, other, push=True)
        for task, source in reversed(trail[best_length:]):
            self._move(task, source)
        return best_length > 0

    def _offer(self, heap: list[tuple[float, int, int]], task: int, *, push: bool = False) -> None:
        found = self._best_move(task)
        if found is not None:
            entry = (found[0], task, found[1])
            if push:
                heapq.heappush(heap, entry)
            else:
                heap.append(entry)

    def _best_move(self, task: int) -> tuple[float, int] | None:
        """Return the cost and the target of the best allowed move to a part with tasks of its nets."""
        savings = self._savings(task)
        if not savings or self._size[self.part[task]] == 1:
            return None
        away, best, chosen = self._leaving(task), float("inf"), -1
        for target, gain in savings.items():
            if away - gain < best and self._has_room(task, target):
                best, chosen = away - gain, target
        return None if chosen < 0 else (best, chosen)

    def _leaving(self, task: int) -> float:
        """Return the bytes that move more if a task goes where none of its nets is."""
        source = self.part[task]
        more = 0.0
        for net in self._nets_of[self._first[task] : self._first[task + 1]]:
            if self._count[net][source] > 1:
                more += self._volume[net]
        return more

    def _savings(self, task: int) -> dict[int, float]:
        """Return what each other part with tasks of its nets saves of that.

        A net that the task leaves alone, or enters where it is already, moves once less.
        """
        source = self.part[task]
        saved: dict[int, float] = {}
        for net in self._nets_of[self._first[task] : self._first[task + 1]]:
            volume = self._volume[net]
            for where in self._count[net]:
                if where != source:
                    saved[where] = saved.get(where, 0.0) + volume
        return saved

    def _has_room(self, task: int, target: int) -> bool:
        for weights, sums, most in zip(self._weights, self._sums, self._most, strict=True):
            if sums[target] + weights[task] > most[target] and weights[task] > 0:
                return False
        return True

    def _move(self, task: int, target: int) -> None:
        source = self.part[task]
        for net in self._nets_of[self._first[task] : self._first[task + 1]]:
            count = self._count[net]
            if count[source] == 1:
                del count[source]
            else:
                count[source] -= 1
            count[target] = count.get(target, 0) + 1
        for weights, sums in zip(self._weights, self._sums, strict=True):
            sums[source] -= weights[task]
            sums[target] += weights[task]
        self._size[source] -= 1
        self._size[target] += 1
        self.part[task] = target
