"""The planners that form clusters: `sarkar` for time, and `min_parts` for few parts under a deadline."""

import math

import msgspec
import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.problems import refuse_errors
from translator.partition.clustering import dominant_clusters, merged
from translator.partition.heft import heft, with_best_order
from translator.partition.list_scheduling import task_ranks
from translator.partition.planned_parts import PlannedParts, shares_of
from translator.planning.graph_work import work_of
from translator.planning.machines import Machines
from translator.planning.simulation import simulate
from translator.planning.task_graph import task_graph
from translator.problem_codes import problem
from translator.stage_options import PartitionOptions

__all__ = ["min_parts", "sarkar"]

_SLACKS = (1.02, 1.2, 1.6)
"""Factors by which parts may exceed their shares for data to stay together; the one that completes first is used."""


def sarkar(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return clusters by edge zeroing, merged into parts of about equal load."""
    tasks = task_graph(work_of(graph))
    dop = max(node.cores for node in machines.nodes)
    cluster = dominant_clusters(tasks, machines, task_ranks(tasks, machines).tolist(), dop)
    shares = shares_of(machines)
    best, least = None, math.inf
    for slack in _SLACKS:
        part = tasks.expanded(merged(tasks, cluster, shares, slack))
        made = with_best_order(graph, tasks, machines, part)
        completion = simulate(tasks.work, machines, part, made.priority).completion
        if completion < least:
            best, least = made, completion
    assert best is not None  # noqa: S101 - the completion time of a checked graph is finite
    return best


def min_parts(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return a plan on as few nodes as keep the deadline, the fastest nodes first.

    Without a deadline, the plan may take longer than the fastest one known: by 100 % at a greediness of 0, and not at
    all at 100.

    Raises
    ------
    BadGraphError
        PT011: no plan that was found keeps the deadline.
    """
    work = work_of(graph)
    power = [(-node.cores * node.speed, number) for number, node in enumerate(machines.nodes)]
    order = [number for _, number in sorted(power)]

    def plan(count: int) -> tuple[float, PlannedParts]:
        chosen = order[:count]
        some = msgspec.structs.replace(machines, nodes=tuple(machines.nodes[number] for number in chosen))
        found = []
        for algorithm in (heft, sarkar):
            made = algorithm(graph, options, some)
            part = np.array(chosen, dtype=np.int32)[made.part]
            completion = simulate(work, some, made.part, made.priority).completion
            found.append((completion, PlannedParts(part, made.priority)))
        return min(found, key=lambda one: one[0])

    best, made = plan(len(order))
    deadline = options.deadline
    if deadline is None:
        deadline = best * (2.0 - min(max(options.greediness, 0.0), 100.0) / 100.0)
    if best > deadline * (1 + 1e-9):
        text = f"the best plan for {len(order)} nodes takes {best:.6g} s, the deadline is {deadline:.6g} s"
        hint = "give a later deadline, or more or faster nodes"
        refuse_errors([problem("PT011", text, where="deadline", hint=hint)])
    low, high = 1, len(order)  # `high` nodes keep the deadline
    while low < high:
        middle = (low + high) // 2
        completion, candidate = plan(middle)
        if completion <= deadline * (1 + 1e-9):
            high, best, made = middle, completion, candidate
        else:
            low = middle + 1
    nodes = "1 node keeps" if high == 1 else f"{high} nodes keep"
    return PlannedParts(made.part, made.priority, f"{nodes} the deadline of {deadline:.6g} s with {best:.6g} s")
