"""Improves a plan: moves tasks and groups of tasks, and joins the best of two plans.

The moves are those of C. M. Fiduccia and R. M. Mattheyses ("A linear-time heuristic for improving network partitions",
DAC 1982), for any number of parts: a pass makes the best allowed move again and again, even if the partition becomes
worse. It never moves a task twice, and keeps the best partition that it has found. The cost is the bytes that really
move: a net whose tasks are in n parts moves n - 1 times. No part becomes empty, and empty parts get the tasks that cost
least.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from translator.plan.machines import Machines
from translator.plan.planner import PlannedParts
from translator.plan.task_graph import Bits, Floats, GraphWork, Nets, TaskGraph, task_graph

_Parts = npt.NDArray[np.int64]
_PASSES = 6
"""Passes over all tasks of one refinement."""
_PATIENCE = 80
"""Number of moves without a better partition after which a pass ends."""
_ANY = 1e9
"""An imbalance, in percent, that every partition keeps."""
_WIDE = 32
"""After a move, tasks of larger nets, and tasks of more nets, are not evaluated again in the same pass."""
_ROUNDING = 1e-9
"""Relative difference of two loads, below which it counts as an error of rounding."""
_SLACKS = (1.1, 1.3, 1.05)
"""Factors of the looser limits that `polished` passes through, one after the other."""
_DEEPEST = 200
"""Most tasks with load for which the evenest partition is searched by branch and bound..."""
_MOST_BRANCHES = 20_000
"""...with at most this many branches."""
_MOST_SWAPS = 200
"""Exchanges of tasks of the fullest part with another part."""
_MOST_EXCHANGED = 1_000
"""Tasks of a part that are compared for an exchange."""


@dataclass(frozen=True)
class PartLimits:
    """The limits of each part.

    Attributes
    ----------
    load : float array, shape (tasks,)
        Core seconds of each task.
    most : float array, shape (parts,)
        Largest sum of each part.
    fits : bool array, shape (tasks, parts), or None
        Whether a part has the processors, the memory and the GPUs for a task; None if all parts have them for all.
    island : int64 array, shape (parts,)
        The island of each part.
    least_island, most_island : float arrays, shape (islands,)
        Smallest and largest sum of each island.
    """

    load: Floats
    most: Floats
    fits: Bits | None
    island: _Parts
    least_island: Floats
    most_island: Floats

    def sums(self, part: _Parts) -> Floats:
        """Return the load of each part."""
        return np.bincount(part, weights=self.load, minlength=len(self.most)).astype(np.float64)

    def excess(self, part: _Parts) -> float:
        """Return by how much the limits are exceeded, as a share of them; 0 if they are kept.

        A task in a part where it does not fit counts 1.
        """
        sums = self.sums(part)
        excess = _largest(sums / np.maximum(self.most, 1e-300) - 1)
        if len(self.most_island) > 1:
            islands = np.bincount(self.island, weights=sums, minlength=len(self.most_island))
            excess = max(
                excess,
                _largest(islands / np.maximum(self.most_island, 1e-300) - 1),
                _largest(1 - islands / np.maximum(self.least_island, 1e-300)),
            )
        wrong = 0 if self.fits is None else int(np.count_nonzero(~self.fits[np.arange(len(part)), part]))
        return excess + wrong

    def looser(self, factor: float) -> "PartLimits":
        """Return these limits with more room in each part; islands keep theirs."""
        return replace(self, most=self.most * factor)


def _largest(excess: Floats) -> float:
    largest = float(excess.max(initial=0.0))
    return largest if largest > _ROUNDING else 0.0


def limits_for(graph: TaskGraph, machines: Machines, imbalance: float) -> PartLimits:
    """Return the limits for an imbalance in percent.

    A part may exceed its share of the work, by cores and speed, by this imbalance. The loads of any two islands may
    differ by it.
    """
    load = graph.load if graph.load.any() else np.ones(graph.tasks)
    power = np.array([node.cores * node.speed for node in machines.nodes], dtype=np.float64)
    shares = power / power.sum()
    factor = 1.0 + imbalance / 100.0
    island = np.array([machines.islands.index(node.island) for node in machines.nodes], dtype=np.int64)
    islands = np.bincount(island, weights=shares) * load.sum()
    fits = graph.allowed(machines)
    return PartLimits(
        load=load,
        most=load.sum() * shares * factor,
        fits=None if fits.all() else fits,
        island=island,
        least_island=islands * 2 / (1 + factor),
        most_island=islands * 2 * factor / (1 + factor),
    )


def evenest(limits: PartLimits) -> _Parts:
    """Return a partition that keeps the limits of the parts, if one is found, or exceeds them least.

    The heaviest task goes to the part with the most room; then tasks are exchanged; then branch and bound begins, if
    there are few tasks, and ends with the first partition that keeps the limits.
    """
    load, most = limits.load, np.maximum(limits.most, 1e-300)
    order = np.argsort(-load, kind="stable")
    part = np.zeros(len(load), dtype=np.int64)
    if limits.fits is None:
        heap = [(0.0, number) for number in range(len(most))]
        for task in order.tolist():
            fullness, number = heap[0]
            part[task] = number
            heapq.heapreplace(heap, (fullness + float(load[task] / most[number]), number))
    else:
        sums = np.zeros(len(most))
        # Tasks that fit in fewer parts come first.
        order = order[np.argsort(limits.fits[order].sum(axis=1), kind="stable")]
        for task in order.tolist():
            part[task] = np.where(limits.fits[task], (sums + load[task]) / most, np.inf).argmin()
            sums[part[task]] += load[task]
    part = _exchanged(part, limits, most)
    heavy = order[load[order] > 0]
    fullest = float((limits.sums(part) / most).max(initial=0.0))
    if fullest > 1 + _ROUNDING and len(heavy) <= _DEEPEST:
        _Branches(limits, heavy.tolist(), fullest).search(part)
    return part


def _exchanged(part: _Parts, limits: PartLimits, most: Floats) -> _Parts:
    """Return the partition after moves and exchanges that relieve the fullest part."""
    load, allowed = limits.load, limits.fits
    for _ in range(_MOST_SWAPS):
        sums = limits.sums(part)
        full = int((sums / most).argmax())
        if sums[full] <= most[full] * (1 + _ROUNDING):
            break
        best, chosen = float(sums[full] / most[full]) * (1 - _ROUNDING), (-1, -1, -1)
        here = np.flatnonzero((part == full) & (load > 0))
        for other in np.flatnonzero(np.arange(len(most)) != full).tolist():
            leaving, coming = here, np.flatnonzero((part == other) & (load > 0))
            if allowed is not None:
                leaving, coming = leaving[allowed[leaving, other]], coming[allowed[coming, full]]
            leaving, coming = _some(leaving, load), np.append(_some(coming, load), -1)  # -1: nothing comes back
            given = load[leaving][:, None] - np.append(load, 0.0)[coming][None, :]
            after = np.maximum((sums[full] - given) / most[full], (sums[other] + given) / most[other])
            row, column = np.unravel_index(int(after.argmin()), after.shape) if after.size else (0, 0)
            if after.size and after[row, column] < best:
                best, chosen = float(after[row, column]), (int(leaving[row]), int(coming[column]), other)
        if chosen[0] < 0:
            break
        part[chosen[0]] = chosen[2]
        if chosen[1] >= 0:
            part[chosen[1]] = full
    return part


def _some(tasks: _Parts, load: Floats) -> _Parts:
    """Return the tasks, of very many some of each load: all pairs of 30,000 tasks take gigabytes."""
    if len(tasks) <= _MOST_EXCHANGED:
        return tasks
    order = np.argsort(load[tasks], kind="stable")
    return tasks[order[np.linspace(0, len(tasks) - 1, _MOST_EXCHANGED).astype(np.int64)]]


class _Branches:
    """Branch and bound: the heaviest task first, in each part with room, the emptiest first."""

    def __init__(self, limits: PartLimits, order: list[int], fullest: float) -> None:
        self._load: list[float] = limits.load.tolist()
        self._most: list[float] = np.maximum(limits.most, 1e-300).tolist()
        self._fits = None if limits.fits is None else limits.fits.tolist()
        self._order, self._left = order, _MOST_BRANCHES
        self._best = fullest
        self._sums = [0.0] * len(self._most)
        self._place = [0] * len(order)

    def search(self, part: _Parts) -> None:
        """Write the best partition into `part`, if one is better."""
        self._branch(0, part)

    def _branch(self, depth: int, part: _Parts) -> bool:
        """Return whether the search is over."""
        if depth == len(self._order):
            self._best = max(total / most for total, most in zip(self._sums, self._most, strict=True))
            part[self._order] = self._place
            return self._best <= 1 + _ROUNDING
        self._left -= 1
        if self._left < 0:
            return True
        task = self._order[depth]
        load, tried = self._load[task], set()
        for number in sorted(
            range(len(self._most)), key=lambda number: (self._sums[number] + load) / self._most[number]
        ):
            before = self._sums[number]
            if (before + load) / self._most[number] >= self._best * (1 - _ROUNDING):
                break
            kind = (before, self._most[number])
            if (self._fits is None and kind in tried) or not (self._fits is None or self._fits[task][number]):
                continue
            tried.add(kind)
            self._sums[number], self._place[depth] = before + load, number
            if self._branch(depth + 1, part):
                return True
            self._sums[number] = before
        return False


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


def fitting(work: GraphWork, machines: Machines, made: PlannedParts) -> PlannedParts:
    """Return a plan with each application on a node that has the resources for it, if there is such a node."""
    if not work.exceeds(machines, made.part).any():
        return made
    tasks = task_graph(work)
    part, limits = made.part[tasks.row].astype(np.int64), limits_for(tasks, machines, _ANY)
    one = np.zeros(len(limits.island), dtype=np.int64)  # an island without work is no reason to move anything
    limits = replace(limits, island=one, least_island=np.zeros(1), most_island=np.full(1, np.inf))
    if not limits.excess(part):
        return made
    state = _Refinement(tasks.nets, part, limits)
    state.balance()
    return PlannedParts(tasks.expanded(np.array(state.part)), note=made.note)


def polished(nets: Nets, part: _Parts, limits: PartLimits) -> _Parts:
    """Refine a partition again and again through looser limits, where single moves of heavy tasks are possible."""
    best, moved = part, moved_bytes(nets, part)
    for slack in _SLACKS:
        loose, _ = refined(nets, best, limits.looser(slack), passes=2)
        again, fewer = refined(nets, loose, limits, passes=3)
        if (limits.excess(again), fewer) < (limits.excess(best), moved):
            best, moved = again, fewer
    return best


def _rows(ptr: _Parts, items: _Parts) -> list[list[int]]:
    starts, values = ptr.tolist(), items.tolist()
    return [values[start:end] for start, end in pairwise(starts)]


class _Refinement:
    """A partition that is being changed. It uses lists, because single items are read and written."""

    def __init__(self, nets: Nets, part: _Parts, limits: PartLimits) -> None:
        self._parts = len(limits.most)
        self._pins = _rows(nets.ptr, nets.task)
        self._volume: list[float] = nets.volume.tolist()
        self._nets_of = _rows(*nets.of_tasks(len(part)))
        self.part: list[int] = part.tolist()
        self._load: list[float] = limits.load.tolist()
        self._most: list[float] = (limits.most * (1 + _ROUNDING)).tolist()
        sums = limits.sums(part)
        self._sums: list[float] = sums.tolist()
        self._fits: list[list[bool]] | None = None if limits.fits is None else limits.fits.tolist()
        self._island: list[int] = limits.island.tolist()
        self._has_islands = len(limits.most_island) > 1
        self._of_islands: list[float] = np.bincount(limits.island, weights=sums).tolist()
        self._least_island: list[float] = (limits.least_island * (1 - _ROUNDING)).tolist()
        self._most_island: list[float] = (limits.most_island * (1 + _ROUNDING)).tolist()
        self._size: list[int] = np.bincount(part, minlength=self._parts).tolist()
        self._count: list[dict[int, int]] = [{} for _ in self._volume]
        for net, task in zip(nets.net.tolist(), nets.task.tolist(), strict=True):
            count, where = self._count[net], self.part[task]
            count[where] = count.get(where, 0) + 1

    def moved(self) -> float:
        """Return the bytes that move."""
        return sum(volume * (len(count) - 1) for volume, count in zip(self._volume, self._count, strict=True))

    def fill(self) -> None:
        """Move the task that costs least into each empty part, as long as a part has several tasks."""
        empty = [part for part, size in enumerate(self._size) if not size]
        if not empty:
            return
        heap = [(self._leaving(task), -self._load[task], task) for task in range(len(self.part))]
        heapq.heapify(heap)
        while heap and empty:
            cost, weight, task = heapq.heappop(heap)
            if self._size[self.part[task]] == 1:
                continue
            now = self._leaving(task)
            if now > cost:
                heapq.heappush(heap, (now, weight, task))
                continue
            target = next((part for part in empty if self._is_allowed(task, part)), -1)
            if target >= 0:
                empty.remove(target)
                self._move(task, target)

    def balance(self) -> None:
        """Move tasks to parts where they fit, then out of parts and islands above their limits; cheap moves first."""
        everywhere = range(self._parts)
        for task, where in enumerate(self.part if self._fits is not None else ()):
            if not self._is_allowed(task, where) and (target := self._cheapest(task, everywhere)[1]) >= 0:
                self._move(task, target)
        for source in sorted(everywhere, key=lambda source: -self._sums[source]):
            self._relieve([source], everywhere, partial(self._keeps, source))
        for island in range(len(self._of_islands) if self._has_islands else 0):
            inside = [part for part in everywhere if self._island[part] == island]
            outside = [part for part in everywhere if self._island[part] != island]
            self._relieve(inside, outside, partial(self._is_light, island))
            self._relieve(outside, inside, partial(self._is_heavy, island))

    def _keeps(self, part: int) -> bool:
        return self._sums[part] <= self._most[part]

    def _is_light(self, island: int) -> bool:
        return self._of_islands[island] <= self._most_island[island]

    def _is_heavy(self, island: int) -> bool:
        return self._of_islands[island] >= self._least_island[island]

    def _relieve(self, sources: Sequence[int], targets: Sequence[int], is_done: Callable[[], bool]) -> None:
        """Move tasks from some parts to others until `is_done`, or no task can be moved."""
        if is_done():
            return
        here = [task for task, where in enumerate(self.part) if where in sources and self._load[task] > 0]
        heap = [(self._cheapest(task, targets)[0] / self._load[task], task) for task in here]
        heapq.heapify(heap)
        while heap and not is_done():
            _, task = heapq.heappop(heap)
            _, target = self._cheapest(task, targets)
            if target >= 0 and self._size[self.part[task]] > 1:
                self._move(task, target)

    def _cheapest(self, task: int, targets: Sequence[int]) -> tuple[float, int]:
        """Return the cost and the target of the cheapest move that keeps the limits, or relieves the source."""
        away, savings = self._prices(task)
        source, best, chosen = self.part[task], (float("inf"), 0.0), -1
        load, is_wrong = self._load[task], not self._is_allowed(task, self.part[task])
        fullness = self._sums[source] / max(self._most[source], 1e-300)
        for target in targets:
            if target == source or not self._is_allowed(task, target):
                continue
            cost = away - savings.get(target, 0.0)
            after = (self._sums[target] + load) / max(self._most[target], 1e-300)
            if not self._has_room(task, target):
                if after >= fullness and not is_wrong:
                    continue
                cost += 1e18 * (1 + after)
            if (cost, after) < best:
                best, chosen = (cost, after), target
        return best[0], chosen

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
            near = [pins for net in self._nets_of[task] if len(pins := self._pins[net]) <= _WIDE]
            for other in dict.fromkeys(chain.from_iterable(near)):
                if other not in locked and len(self._nets_of[other]) <= _WIDE:
                    self._offer(heap, other, push=True)
        for task, source in reversed(trail[best_length:]):
            self._move(task, source)
        return best_length > 0

    def _offer(self, heap: list[tuple[float, int, int]], task: int, *, push: bool = False) -> None:
        move = self._best_move(task)
        if move is not None:
            entry = (move[0], task, move[1])
            if push:
                heapq.heappush(heap, entry)
            else:
                heap.append(entry)

    def _best_move(self, task: int) -> tuple[float, int] | None:
        """Return the cost and the target of the best allowed move to a part with tasks of its nets."""
        if self._size[self.part[task]] == 1:
            return None
        away, savings = self._prices(task)
        best, chosen = float("inf"), -1
        for target, gain in savings.items():
            if away - gain < best and self._has_room(task, target) and self._is_allowed(task, target):
                best, chosen = away - gain, target
        return None if chosen < 0 else (best, chosen)

    def _leaving(self, task: int) -> float:
        """Return the additional bytes that move if a task goes to a part without any of its nets."""
        return self._prices(task)[0]

    def _prices(self, task: int) -> tuple[float, dict[int, float]]:
        """Return the additional bytes that move if a task goes to a part without any of its nets, and savings by part.

        If the task leaves a part that the net then leaves too, or enters a part of the net, the net moves once less.
        """
        source, volumes, counts = self.part[task], self._volume, self._count
        more = 0.0
        saved: dict[int, float] = {}
        for net in self._nets_of[task]:
            count, volume = counts[net], volumes[net]
            if count[source] > 1:
                more += volume
                if len(count) == 1:
                    continue
            for where in count:
                if where != source:
                    saved[where] = saved.get(where, 0.0) + volume
        return more, saved

    def _is_allowed(self, task: int, target: int) -> bool:
        return self._fits is None or self._fits[task][target]

    def _has_room(self, task: int, target: int) -> bool:
        load = self._load[task]
        if self._sums[target] + load > self._most[target] and load > 0:
            return False
        if self._has_islands:
            old_island, new_island = self._island[self.part[task]], self._island[target]
            if old_island != new_island and load > 0:
                is_full = self._of_islands[new_island] + load > self._most_island[new_island]
                return not is_full and self._of_islands[old_island] - load >= self._least_island[old_island]
        return True

    def _move(self, task: int, target: int) -> None:
        source, load = self.part[task], self._load[task]
        for net in self._nets_of[task]:
            count = self._count[net]
            if count[source] == 1:
                del count[source]
            else:
                count[source] -= 1
            count[target] = count.get(target, 0) + 1
        self._sums[source] -= load
        self._sums[target] += load
        self._of_islands[self._island[source]] -= load
        self._of_islands[self._island[target]] += load
        self._size[source] -= 1
        self._size[target] += 1
        self.part[task] = target
