"""The order in which tasks are best executed, so that few results are held at a time."""

import numpy as np

from dropflow.graph.physical import IntColumn, PointerColumn

__all__ = ["best_order"]


def best_order(ptr: PointerColumn, inputs: IntColumn, ends: IntColumn, sorted_tasks: IntColumn) -> IntColumn:
    """Return the position of each task in an order that computes depth first, and releases results early.

    The inputs of a task are computed before anything else starts. Of several, those come first whose own computation
    holds the most results at a time (the rule of Sethi and Ullman for expressions): while the others are computed, only
    one result is held of it. After each task, those follow at once that can run and are the last consumer of a result.

    Parameters
    ----------
    ptr : int64 array, shape (tasks + 1,)
        The inputs of task ``i`` are ``inputs[ptr[i]:ptr[i + 1]]``.
    inputs : int32 array
        Tasks, each at most once and ascending for each task.
    ends : int32 array
        Tasks whose results are wanted, in this order. Every task is an input of one of them, directly or not.
    sorted_tasks : int32 array, shape (tasks,)
        All tasks in a topological order.
    """
    walk = _Walk(ptr, inputs, ends, sorted_tasks)
    for end in ends.tolist():
        walk.reach(end)
    return walk.position


class _Walk:
    """A walk over all tasks, from results to their inputs."""

    def __init__(self, ptr: PointerColumn, inputs: IntColumn, ends: IntColumn, sorted_tasks: IntColumn) -> None:
        tasks = len(ptr) - 1
        consumers = np.repeat(np.arange(tasks, dtype=np.int32), np.diff(ptr))
        uses = np.bincount(inputs, minlength=tasks)
        after = np.zeros(tasks + 1, dtype=np.int64)
        np.cumsum(uses, out=after[1:])
        uses[ends] += 1  # what is wanted is never released
        self.position = np.full(tasks, -1, dtype=np.int32)
        # Elements of lists and memoryviews are plain ints, and much faster to read than elements of an array.
        self._position = self.position.data
        self._inputs, self._first = inputs.tolist(), ptr.tolist()
        self._consumers, self._after = consumers[np.argsort(inputs, kind="stable")].tolist(), after.tolist()
        self._uses: list[int] = uses.tolist()
        """Consumers of each result that have not run."""
        self._missing: list[int] = np.diff(ptr).tolist()
        """Inputs of each task that have not run."""
        self._held = _held(self._first, self._inputs, sorted_tasks.tolist())
        self._count = 0

    def reach(self, end: int) -> None:
        """Run a task, and before it those that it needs."""
        position, first, near, held = self._position, self._first, self._inputs, self._held
        stack = [end]
        while stack:
            task = stack[-1]
            if position[task] >= 0:
                stack.pop()
            elif not self._missing[task]:
                stack.pop()
                self._run(task)
            else:
                waiting = [other for other in near[first[task] : first[task + 1]] if position[other] < 0]
                if len(waiting) > 1:
                    waiting.sort(key=lambda other: (held[other], -other))
                stack += waiting  # the last one is next

    def _run(self, task: int) -> None:
        """Run a task, and then those that can run now and release a result."""
        position, uses, missing = self._position, self._uses, self._missing
        candidates = [task]
        while candidates:
            task = candidates.pop()
            if position[task] >= 0:
                continue
            position[task] = self._count
            self._count += 1
            inputs = self._inputs[self._first[task] : self._first[task + 1]]
            consumers = self._consumers[self._after[task] : self._after[task + 1]]
            for other in inputs:
                uses[other] -= 1
            for other in consumers:
                missing[other] -= 1
            for other in inputs:
                if uses[other] == 1:
                    last = self._consumers[self._after[other] : self._after[other + 1]]
                    candidates += [each for each in last if position[each] < 0 and not missing[each]]
            for other in consumers:
                if not missing[other] and self._releases(other):
                    candidates.append(other)

    def _releases(self, task: int) -> bool:
        """Return whether a task is the last consumer of one of its inputs."""
        uses = self._uses
        return any(uses[other] == 1 for other in self._inputs[self._first[task] : self._first[task + 1]])


def _held(first: list[int], near: list[int], sorted_tasks: list[int]) -> list[int]:
    """Return how many results the computation of each task holds at a time, as if none had several consumers."""
    held = [1] * len(sorted_tasks)
    for task in sorted_tasks:
        inputs = near[first[task] : first[task + 1]]
        if len(inputs) == 1:
            held[task] = max(held[inputs[0]], 2)
        elif inputs:
            needs = sorted([held[other] for other in inputs], reverse=True)
            held[task] = max(len(inputs) + 1, *[need + done for done, need in enumerate(needs)])
    return held
