"""The planner `auto`: tries the algorithms that suit the size of a graph, improves the best plan, and gives a reason.

What it tries depends on the size of the graph and not on the speed of this machine, so the result is repeatable.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

import msgspec
import numpy as np

from dropflow.errors import BadGraphError
from dropflow.graph.physical import PhysicalGraph
from dropflow.problems import refuse_errors
from translator.partition.blocks import blocks
from translator.partition.breadth_first import breadth_first
from translator.partition.heft import MOST_LOOKAHEAD, heft, lookahead, peft
from translator.partition.kahypar import has_kahypar, kahypar
from translator.partition.local_search import search
from translator.partition.metis import metis
from translator.partition.planned_parts import PlannedParts, Planner
from translator.partition.refinement import fitting
from translator.partition.sarkar import min_parts, sarkar
from translator.planning.graph_work import GraphWork, work_of
from translator.planning.judge import Verdict, lower_bound, verdict_of
from translator.planning.machines import Machines
from translator.planning.move_bound import bound_with_moves
from translator.planning.ranks import priorities, upward_ranks
from translator.planning.simulation import Timeline, simulate
from translator.planning.task_graph import task_graph
from translator.problem_codes import problem
from translator.stage_options import PartitionOptions

__all__ = ["auto"]

_SMALL, _MIDDLE, _SCHEDULED, _LARGE = 5_000, 60_000, 150_000, 300_000
"""Most drops of graphs that all algorithms get, slow ones, those that schedule tasks, and several tries."""
_SEARCHED = 20_000
"""Most drops of graphs that the local search improves."""
_SEARCH_BUDGET = 400_000
"""Drops that the local search simulates altogether: about two seconds."""
_LONG_RUN = 40.0
"""These two seconds are 5 % of a run of so many seconds. The budget of longer runs is larger in proportion..."""
_MOST_TIMES = 4
"""...but at most so many times as large."""
_MOVE_COST = 10
"""Drops whose simulation takes as long as that of a move that shares its links."""
_MOST_STEPS = 1_500
_MOST_ASSIGNMENTS = 300
"""Of a graph with no more assignments of its tasks to nodes, all are tried."""
_SINGLE, _ALMOST = 1e-9, 1e-6


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
    found = [
        _judged(name, planner, graph, work, options=options, machines=machines, bound=bound)
        for name, planner in tried.items()
    ]
    if options.objective in ("time", "balanced"):
        found += _best_of_all(graph, work, machines, bound)
    key = _KEYS[options.objective](found, options)
    best = min(found, key=key)
    if options.objective in ("time", "balanced") and graph.drops <= _SEARCHED:
        bound = max(bound, bound_with_moves(task_graph(work), machines))
        best = min([best, _searched(best, graph, work, options=options, machines=machines, bound=bound)], key=key)
    if options.deadline is not None and best.verdict.makespan_s > options.deadline * (1 + _SINGLE):
        quickest = min(one.verdict.makespan_s for one in (*found, best))
        text = f"the best plan takes {quickest:.6g} s, the deadline is {options.deadline:.6g} s"
        refuse_errors([problem("PT011", text, where="deadline", hint="give a later deadline, or more or faster nodes")])
    return replace(best.made, note=_reason(best, found, options, bound))


def _tried(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> Mapping[str, Planner]:
    drops, nodes = graph.drops, len(machines.nodes)
    if options.objective == "movement":
        best: Planner = kahypar if has_kahypar() and drops <= _MIDDLE else metis
        return MappingProxyType({best.__name__: best} | ({"blocks": blocks} if drops > _LARGE else {}))
    found: dict[str, Planner] = {"metis": metis, "one node": _one_node}
    if drops <= _LARGE:
        found |= {"blocks": blocks, "breadth_first": breadth_first}
    if drops <= _SCHEDULED and drops * nodes <= 32 * _SCHEDULED:
        found |= {"heft": heft, "sarkar": sarkar}
    if drops <= _SMALL:
        found["peft"] = peft
        if graph.edges * nodes**2 <= MOST_LOOKAHEAD // 20:
            found["lookahead"] = lookahead
    if options.objective == "nodes" and drops <= _MIDDLE:
        found["min_parts"] = _fewest
    if options.objective == "balanced" and has_kahypar() and drops <= _MIDDLE:
        found["kahypar"] = kahypar
        del found["metis"]  # which `kahypar` includes
    if drops > _LARGE:
        found = {"blocks": blocks, "metis": metis}
    return MappingProxyType(found)


def _one_node(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    power = [node.cores * node.speed for node in machines.nodes]
    return PlannedParts(np.full(graph.drops, power.index(max(power)), dtype=np.int32))


def _best_of_all(graph: PhysicalGraph, work: GraphWork, machines: Machines, bound: float) -> list[_Candidate]:
    """Return the quickest of all assignments of the tasks, if there are few."""
    nodes = len(machines.nodes)
    most = int(math.log(_MOST_ASSIGNMENTS, nodes)) if nodes > 1 else 0
    # Applications are counted first, since to find the tasks of a large graph takes long.
    if work.is_app.sum() > most or (tasks := task_graph(work)).tasks > most:
        return []
    best = None
    fits = tasks.fits(machines)
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
    # Only `min_parts` plans for a deadline; that of the best plan is checked at the end.
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
    assert best.made.priority is not None  # noqa: S101 - `_judged` sets it
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


def _by_time(_found: list[_Candidate], options: PartitionOptions) -> _Key:
    """The least time, within the imbalance if one is asked for."""
    most = math.inf if options.imbalance is None else options.imbalance + _ALMOST
    return lambda one: (max(one.verdict.imbalance - most, 0.0), one.worst, one.verdict.bytes_moved)


def _by_movement(found: list[_Candidate], options: PartitionOptions) -> _Key:
    """Within the imbalance; if no plan keeps it, within that of the evenest plan."""
    most = max(options.allowed_imbalance, min(one.verdict.imbalance for one in found)) + _ALMOST
    return lambda one: (
        max(one.verdict.imbalance - most, 0.0),
        one.verdict.bytes_moved - one.verdict.bytes_given,
        one.verdict.bytes_moved,
        one.verdict.makespan_s,
    )


def _by_nodes(found: list[_Candidate], options: PartitionOptions) -> _Key:
    quickest = min(one.verdict.makespan_s for one in found)
    allowed = quickest * (2.0 - min(max(options.greediness, 0.0), 100.0) / 100.0)
    deadline = allowed if options.deadline is None else options.deadline
    return lambda one: (
        max(one.verdict.makespan_s - deadline * (1 + _SINGLE), 0.0),
        one.verdict.nodes_used,
        one.verdict.makespan_s,
    )


def _by_both(found: list[_Candidate], _options: PartitionOptions) -> _Key:
    """The product of time and movement, each as a ratio; what moves counts against all that is written."""
    quickest = max(min(one.verdict.makespan_s for one in found), 1e-300)
    most = max(*(one.verdict.bytes_moved for one in found), 1e-300)
    return lambda one: (
        one.verdict.makespan_s / quickest * (1 + one.verdict.bytes_moved / most),
        one.verdict.makespan_s,
    )


_KEYS: Mapping[str, Callable[[list[_Candidate], PartitionOptions], _Key]] = MappingProxyType(
    {"time": _by_time, "movement": _by_movement, "nodes": _by_nodes, "balanced": _by_both}
)


def _reason(best: _Candidate, found: list[_Candidate], options: PartitionOptions, bound: float) -> str:
    """Return in one line which plan won, by how much, and what the lower bound is."""
    made = best.verdict
    others = [one for one in found if one.name != best.name.removesuffix(" and local search")]
    text = f"{best.name} is best for {options.objective}: {made.makespan_s:.6g} s, {made.bytes_moved:.6g} bytes moved"
    if others:
        second = min(others, key=_KEYS[options.objective](found, options))
        text += f"; next {second.name} with {second.verdict.makespan_s:.6g} s, {second.verdict.bytes_moved:.6g} bytes"
    return f"{text}; no plan takes less than {bound:.6g} s"
