"""The planner `auto`: tries the algorithms that suit the size of a graph, improves the best plan, and gives a reason.

The choice of algorithms depends on the size of the graph and not on the speed of this machine, so the result is
repeatable.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

import msgspec
import numpy as np

from dropflow.errors import BadGraphError
from dropflow.failure import refuse_errors
from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.options import PartitionOptions
from translator.plan.heft import MOST_LOOKAHEAD, heft, lookahead, min_parts, priorities, upward_ranks
from translator.plan.judge import Timeline, simulate
from translator.plan.kahypar import has_kahypar, kahypar
from translator.plan.machines import Machines
from translator.plan.metis import blocks, breadth_first, metis
from translator.plan.move_bound import Verdict, bound_with_moves, lower_bound, verdict_of
from translator.plan.planner import PlannedParts, Planner
from translator.plan.refine import fitting
from translator.plan.task_graph import GraphWork, TaskGraph, task_graph, work_of
from translator.problem_codes import problem

_HISTORY_STEPS = 20
"""Steps of the local search, after which a plan must not be worse than the one before them."""
_ROUNDING = 1e-9
"""Relative difference of two times, below which it counts as an error of rounding."""
_AT_THE_BOUND = 1e-6
"""Share: a plan that exceeds the lower bound by less is not improved, since a few bytes that move take as long."""
_MOVE, _EXCHANGE = 0.5, 0.75
"""Below the first, a random number means a move to another node; below the second, an exchange."""
_NEAR_DATA = 0.4
"""Probability of a move to the node of a predecessor."""
_LONGEST_CHAIN_TASKS = 60
"""Tasks of the chain before the end of a run, from which a step is chosen."""

Found = tuple[float, IntColumn, IntColumn]
"""Completion time, parts and priorities."""
_SEARCHED = 20_000
"""Most drops of graphs that the local search improves."""
_SEARCH_BUDGET = 400_000
"""Drops that the local search simulates altogether: about two seconds."""
_LONG_RUN = 40.0
"""Seconds of a run: these two seconds are 5 % of them. The budget of longer runs is larger in proportion..."""
_MOST_TIMES = 4
"""...but at most this many times as large."""
_MOVE_COST = 10
"""Number of drops whose simulation takes as long as that of one move that shares its links."""
_MOST_STEPS = 1_500
"""Steps of the local search, for a graph of any small size, before they are multiplied for a long run."""
_MOST_ASSIGNMENTS = 300
"""If a graph has at most this many assignments of its tasks to nodes, all are tried."""

# Improves a plan by moves and swaps of the tasks that its completion time waits for.
#
# The price of a step is the completion time of the simulated run. A step changes a task that ran just before the end,
# or one that it waited for: to another node, or before others on its node, or in exchange with a task of another node.
# Worse plans are accepted as long as they are not worse than the plan of some steps ago (late acceptance: E. K. Burke
# and Y. Bykov, European J. Operational Research 258, 2017). A plan is only kept as the best if it is also better where
# data that no application makes are on all nodes when the run begins: otherwise the search finds orders that fit these
# moves exactly, and take far longer when a file comes a moment earlier. The number of steps is given, so a seed decides
# the result.


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
        self._fits: list[list[bool]] = tasks.allowed(machines).tolist()
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
        history = [self.now] * _HISTORY_STEPS
        best = (self._worst(self.now), *self._plan())
        now, times = self.now, (self._start, self._end)
        for step in range(steps):
            if best[0] <= bound * (1 + _AT_THE_BOUND):
                break
            saved = self._node.copy(), self._order.copy()
            self._change()
            cost = self._judge()
            if cost <= now or cost <= history[step % _HISTORY_STEPS]:
                now, times = cost, (self._start, self._end)
                if cost < best[0] * (1 - _ROUNDING) and (worst := self._worst(cost)) < best[0] * (1 - _ROUNDING):
                    best = (worst, *self._plan())
            else:
                (self._node, self._order), (self._start, self._end) = saved, times
            history[step % _HISTORY_STEPS] = min(now, history[step % _HISTORY_STEPS])
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
        while len(chain) < _LONGEST_CHAIN_TASKS:
            start = self._start[task]
            waited = [predecessor for predecessor in self._before[task] if self._end[predecessor] <= start + _ROUNDING]
            data = max(waited, key=lambda predecessor: self._end[predecessor], default=-1)
            slack = _ROUNDING * max(1.0, abs(float(start)))
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


_SMALL, _MIDDLE, _SCHEDULED, _LARGE = 5_000, 60_000, 150_000, 300_000
"""Most drops of a graph for all algorithms, for slow ones, for those that schedule tasks, and for several tries."""
_SINGLE, _AUTO_ALMOST = 1e-9, 1e-6


@dataclass(frozen=True)
class _Candidate:
    name: str
    made: PlannedParts
    verdict: Verdict
    moves: int
    worst: float
    """Its completion time, or that with given data on all nodes when the run begins, whichever is larger."""


def auto(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return the best plan that is found under the objective of the options.

    Raises
    ------
    BadGraphError
        PT011: no plan that was found keeps the deadline.
    """
    work = work_of(graph)
    bound = lower_bound(graph, work, machines)
    tried = _tried(graph, options, machines)
    candidates = [
        _judged(name, planner, graph, work, options=options, machines=machines, bound=bound)
        for name, planner in tried.items()
    ]
    if options.objective in ("time", "balanced"):
        candidates += _best_of_all(graph, work, machines, bound)
    key = _KEYS[options.objective](candidates, options)
    best = min(candidates, key=key)
    if options.objective in ("time", "balanced") and graph.drops <= _SEARCHED:
        bound = max(bound, bound_with_moves(task_graph(work), machines))
        best = min([best, _searched(best, graph, work, options=options, machines=machines, bound=bound)], key=key)
    if options.deadline is not None and best.verdict.makespan_s > options.deadline * (1 + _SINGLE):
        quickest = min(candidate.verdict.makespan_s for candidate in (*candidates, best))
        text = f"the best plan takes {quickest:.6g} s, the deadline is {options.deadline:.6g} s"
        refuse_errors([problem("PT011", text, where="deadline", hint="give a later deadline, or more or faster nodes")])
    return replace(best.made, note=_reason(best, candidates, options, bound))


def _tried(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> Mapping[str, Planner]:
    drops, nodes = graph.drops, len(machines.nodes)
    if options.objective == "movement":
        best: Planner = kahypar if has_kahypar() and drops <= _MIDDLE else metis
        return MappingProxyType({best.__name__: best} | ({"blocks": blocks} if drops > _LARGE else {}))
    planners: dict[str, Planner] = {"metis": metis, "one node": _one_node}
    if drops <= _LARGE:
        planners |= {"blocks": blocks, "breadth_first": breadth_first}
    if drops <= _SCHEDULED and drops * nodes <= 32 * _SCHEDULED:
        planners["heft"] = heft
    if drops <= _SMALL and graph.edges * nodes**2 <= MOST_LOOKAHEAD // 20:
        planners["lookahead"] = lookahead
    if options.objective == "nodes" and drops <= _MIDDLE:
        planners["min_parts"] = _fewest
    if options.objective == "balanced" and has_kahypar() and drops <= _MIDDLE:
        planners["kahypar"] = kahypar
        del planners["metis"]  # `kahypar` includes it
    if drops > _LARGE:
        planners = {"blocks": blocks, "metis": metis}
    return MappingProxyType(planners)


def _one_node(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    power = [node.cores * node.speed for node in machines.nodes]
    return PlannedParts(np.full(graph.drops, power.index(max(power)), dtype=np.int32))


def _best_of_all(graph: PhysicalGraph, work: GraphWork, machines: Machines, bound: float) -> list[_Candidate]:
    """Return the quickest of all assignments of the tasks, if there are few."""
    nodes = len(machines.nodes)
    most = int(math.log(_MOST_ASSIGNMENTS, nodes)) if nodes > 1 else 0
    # Applications are counted first, since finding the tasks of a large graph takes long.
    if work.is_app.sum() > most or (tasks := task_graph(work)).tasks > most:
        return []
    best = None
    fits = tasks.allowed(machines)
    for assignment in product(range(nodes), repeat=tasks.tasks):
        if not fits[range(tasks.tasks), assignment].all():
            continue
        part = tasks.expanded(np.array(assignment, dtype=np.int64))
        made = PlannedParts(part, priorities(upward_ranks(graph, work, machines, part), work))
        run = simulate(work, machines, part, made.priority)
        if best is None or run.completion < best[1].completion:
            best = made, run
    if best is None:
        return []
    made, run = best
    return [_candidate("the best of all assignments", made, run, work=work, machines=machines, bound=bound)]


def _fewest(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return the plan of `min_parts`; on one node if it finds none that keeps the deadline."""
    try:
        return min_parts(graph, options, machines)
    except BadGraphError:
        return _one_node(graph, options, machines)


def _judged(
    name: str,
    planner: Planner,
    graph: PhysicalGraph,
    work: GraphWork,
    *,
    options: PartitionOptions,
    machines: Machines,
    bound: float,
) -> _Candidate:
    # Only `min_parts` plans for a deadline. Whether the best plan keeps it is checked at the end.
    wanted = options if planner is _fewest else msgspec.structs.replace(options, deadline=None)
    made = fitting(work, machines, planner(graph, wanted, machines))
    if made.priority is None:
        made = replace(made, priority=priorities(upward_ranks(graph, work, machines, made.part), work))
    run = simulate(work, machines, made.part, made.priority)
    return _candidate(name, made, run, work=work, machines=machines, bound=bound)


def _searched(
    best: _Candidate,
    graph: PhysicalGraph,
    work: GraphWork,
    *,
    options: PartitionOptions,
    machines: Machines,
    bound: float,
) -> _Candidate:
    cost = graph.drops + (_MOVE_COST * best.moves if machines.contention else best.moves)
    times = min(max(bound / _LONG_RUN, 1.0), _MOST_TIMES)
    steps = int(times * min(_SEARCH_BUDGET // max(cost, 300), _MOST_STEPS))
    steps = steps if options.steps < 0 else options.steps
    assert best.made.priority is not None  # `_judged` sets it
    _, part, priority = search(
        task_graph(work),
        machines,
        (best.made.part, best.made.priority),
        steps=steps,
        bound=bound,
        seed=options.seed,
    )
    run = simulate(work, machines, part, priority)
    name = f"{best.name} and local search"
    return _candidate(
        name, PlannedParts(part, priority), run, work=work, machines=machines, bound=best.verdict.lower_bound_s
    )


def _candidate(
    name: str, made: PlannedParts, run: Timeline, *, work: GraphWork, machines: Machines, bound: float
) -> _Candidate:
    elsewhere = work.without_given() if work.drops <= _SCHEDULED else None
    worst = run.completion
    if elsewhere is not None:
        worst = max(worst, simulate(elsewhere, machines, made.part, made.priority).completion)
    verdict = verdict_of(work, machines, made.part, run, bound)
    return _Candidate(name, made, verdict, len(run.events.volume), worst)


_Key = Callable[[_Candidate], tuple[float, ...]]


def _by_time(_candidates: list[_Candidate], options: PartitionOptions) -> _Key:
    """Return the key for the least time, within the imbalance if the options have one."""
    most = math.inf if options.imbalance is None else options.imbalance + _AUTO_ALMOST
    return lambda candidate: (
        max(candidate.verdict.imbalance - most, 0.0),
        candidate.worst,
        candidate.verdict.bytes_moved,
    )


def _by_movement(candidates: list[_Candidate], options: PartitionOptions) -> _Key:
    """Return the key for the least movement within the imbalance; if none keeps it, that of the evenest plan."""
    most = max(options.allowed_imbalance, min(candidate.verdict.imbalance for candidate in candidates)) + _AUTO_ALMOST
    return lambda candidate: (
        max(candidate.verdict.imbalance - most, 0.0),
        candidate.verdict.bytes_moved - candidate.verdict.bytes_given,
        candidate.verdict.bytes_moved,
        candidate.verdict.makespan_s,
    )


def _by_nodes(candidates: list[_Candidate], options: PartitionOptions) -> _Key:
    quickest = min(candidate.verdict.makespan_s for candidate in candidates)
    allowed = quickest * (2.0 - min(max(options.greediness, 0.0), 100.0) / 100.0)
    deadline = allowed if options.deadline is None else options.deadline
    return lambda candidate: (
        max(candidate.verdict.makespan_s - deadline * (1 + _SINGLE), 0.0),
        candidate.verdict.nodes_used,
        candidate.verdict.makespan_s,
    )


def _by_both(candidates: list[_Candidate], _options: PartitionOptions) -> _Key:
    """Return the key for time times movement, each as a ratio: moved bytes are compared with all written bytes."""
    quickest = max(min(candidate.verdict.makespan_s for candidate in candidates), 1e-300)
    most = max(*(candidate.verdict.bytes_moved for candidate in candidates), 1e-300)
    return lambda candidate: (
        candidate.verdict.makespan_s / quickest * (1 + candidate.verdict.bytes_moved / most),
        candidate.verdict.makespan_s,
    )


_KEYS: Mapping[str, Callable[[list[_Candidate], PartitionOptions], _Key]] = MappingProxyType(
    {"time": _by_time, "movement": _by_movement, "nodes": _by_nodes, "balanced": _by_both}
)


def _reason(best: _Candidate, candidates: list[_Candidate], options: PartitionOptions, bound: float) -> str:
    """Return in one line which plan won, by how much, and what the lower bound is."""
    made = best.verdict
    others = [candidate for candidate in candidates if candidate.name != best.name.removesuffix(" and local search")]
    text = f"{best.name} is best for {options.objective}: {made.makespan_s:.6g} s, {made.bytes_moved:.6g} bytes moved"
    if others:
        second = min(others, key=_KEYS[options.objective](candidates, options))
        text += f"; next {second.name} with {second.verdict.makespan_s:.6g} s, {second.verdict.bytes_moved:.6g} bytes"
    return f"{text}; no plan takes less than {bound:.6g} s"
