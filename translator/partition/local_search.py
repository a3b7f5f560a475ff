"""Improves a plan by moves and swaps of the tasks that its completion time waits for.

The price of a step is the completion time of the simulated run. A step changes a task that ran just before the end, or
one that it waited for: to another node, or before others on its node, or in exchange with a task of another node. Worse
plans are accepted as long as they are not worse than the one of some steps ago (late acceptance: E. K. Burke and
Y. Bykov, European J. Operational Research 258, 2017). A plan is only kept as the best if it is also better where data
that no application makes are on all nodes when the run begins: otherwise the search finds orders that fit these moves
exactly, and take far longer when a file comes a moment earlier. The number of steps is given, so a seed decides the
result.
"""

import random

import numpy as np

from dropflow.graph.physical import IntColumn
from translator.planning.machines import Machines
from translator.planning.simulation import Timeline, simulate
from translator.planning.task_graph import TaskGraph

__all__ = ["Found", "search"]

_HISTORY = 20
_ALMOST = 1e-9
_AT_THE_BOUND = 1e-6
"""A plan that exceeds the lower bound by a smaller share is not improved: a few bytes that move take as long."""
_MOVE, _EXCHANGE = 0.5, 0.75
"""Below the first, a random number means a move to another node; below the second, an exchange."""
_NEAR_DATA = 0.4
"""Probability of a move to the node of a predecessor."""
_LONGEST_CHAIN = 60

Found = tuple[float, IntColumn, IntColumn]
"""Completion time, parts and priorities."""


def search(
    tasks: TaskGraph, machines: Machines, start: tuple[IntColumn, IntColumn], *, steps: int, bound: float, seed: int
) -> Found:
    """Return the best plan after some steps; fewer if it reaches the lower bound.

    Parameters
    ----------
    start : pair of int32 arrays, shape (drops,)
        Parts and priorities.
    bound : float
        Completion time that cannot be beaten.
    """
    return _Search(tasks, machines, start, seed).run(steps, bound)


class _Search:
    def __init__(self, tasks: TaskGraph, machines: Machines, start: tuple[IntColumn, IntColumn], seed: int) -> None:
        self._tasks, self._machines = tasks, machines
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        part, priority = start
        self._node = part[tasks.row].astype(np.int64)
        self._order = priority[tasks.row].astype(np.float64)
        self._apps = tasks.work.is_app[tasks.row]
        ptr, before = tasks.before_ptr.tolist(), tasks.before.tolist()
        self._before = [before[ptr[task] : ptr[task + 1]] for task in range(tasks.tasks)]
        self._fits: list[list[bool]] = tasks.fits(machines).tolist()
        self._elsewhere = tasks.work.without_given()
        self._start, self._end = np.zeros(0), np.zeros(0)
        self.now = self._judge()

    def _plan(self) -> tuple[IntColumn, IntColumn]:
        order = np.empty(len(self._order), dtype=np.int64)
        order[np.argsort(self._order, kind="stable")] = np.arange(1, len(self._order) + 1)
        priority = self._tasks.of_drops(np.where(self._apps, order, 0))
        return self._tasks.expanded(self._node), priority

    def _judge(self) -> float:
        run: Timeline = simulate(self._tasks.work, self._machines, *self._plan())
        self._start, self._end = run.start[self._tasks.row], run.end[self._tasks.row]
        return run.completion

    def _worst(self, cost: float) -> float:
        """Return the completion time of the plan, or that with given data on all nodes, whichever is larger."""
        if self._elsewhere is None:
            return cost
        return max(cost, simulate(self._elsewhere, self._machines, *self._plan()).completion)

    def run(self, steps: int, bound: float) -> Found:
        history = [self.now] * _HISTORY
        best = (self._worst(self.now), *self._plan())
        now, times = self.now, (self._start, self._end)
        for step in range(steps):
            if best[0] <= bound * (1 + _AT_THE_BOUND):
                break
            saved = self._node.copy(), self._order.copy()
            self._change()
            cost = self._judge()
            if cost <= now or cost <= history[step % _HISTORY]:
                now, times = cost, (self._start, self._end)
                if cost < best[0] * (1 - _ALMOST) and (worst := self._worst(cost)) < best[0] * (1 - _ALMOST):
                    best = (worst, *self._plan())
            else:
                (self._node, self._order), (self._start, self._end) = saved, times
            history[step % _HISTORY] = min(now, history[step % _HISTORY])
        return best

    def _change(self) -> None:
        task = self._critical()
        if task < 0:
            return
        draw, nodes = self._random, len(self._machines.nodes)
        kind = draw.random()
        if nodes > 1 and kind < _MOVE:
            node = self._other_node(task)
            if self._fits[task][node]:
                self._node[task] = node
        elif nodes > 1 and kind < _EXCHANGE:
            # In exchange with a task that runs elsewhere at about the same time.
            near = np.flatnonzero((self._node != self._node[task]) & (self._end > self._start[task]) & self._apps)
            if len(near):
                other = int(near[draw.randrange(len(near))])
                if self._fits[task][self._node[other]] and self._fits[other][self._node[task]]:
                    self._node[task], self._node[other] = self._node[other], self._node[task]
        else:
            self._advance(task)

    def _other_node(self, task: int) -> int:
        """Return the node of a predecessor, or any other node."""
        draw, before = self._random, self._before[task]
        if before and draw.random() < _NEAR_DATA:
            node = int(self._node[before[draw.randrange(len(before))]])
            if node != self._node[task]:
                return node
        return (int(self._node[task]) + draw.randrange(1, len(self._machines.nodes))) % len(self._machines.nodes)

    def _advance(self, task: int) -> None:
        """Put a task before one that starts earlier on its node."""
        here = np.flatnonzero((self._node == self._node[task]) & (self._start < self._start[task]) & self._apps)
        if not len(here):
            return
        latest = here[np.argsort(-self._start[here], kind="stable")][:12]
        other = int(latest[self._random.randrange(len(latest))])
        self._order[task] = max(self._order[other], self._order[task]) + 0.5

    def _critical(self) -> int:
        """Return a task on a chain of tasks: each waited for the one before, for its data or its processor."""
        if not len(self._end):
            return -1
        draw, task = self._random, int(self._end.argmax())
        chain = [task]
        while len(chain) < _LONGEST_CHAIN:
            start = self._start[task]
            waited = [one for one in self._before[task] if self._end[one] <= start + _ALMOST]
            data = max(waited, key=lambda one: self._end[one], default=-1)
            slack = _ALMOST * max(1.0, abs(float(start)))
            on_node = np.flatnonzero(
                (self._node == self._node[task]) & (np.abs(self._end - start) <= slack) & (self._start < start)
            )
            if len(on_node) and (data < 0 or self._end[data] < start - slack or draw.getrandbits(1)):
                task = int(on_node[0])
            elif data >= 0:
                task = data
            else:
                break
            chain.append(task)
        return chain[draw.randrange(len(chain))]
