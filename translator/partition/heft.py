"""The planners that schedule lists: `heft`, `lookahead` and `peft`."""

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.partition.list_scheduling import (
    Schedule,
    ranked_order,
    schedule_heft,
    schedule_lookahead,
    schedule_peft,
    task_ranks,
)
from translator.partition.planned_parts import PlannedParts
from translator.planning.graph_work import work_of
from translator.planning.machines import Machines
from translator.planning.ranks import priorities, upward_ranks
from translator.planning.simulation import simulate
from translator.planning.task_graph import TaskGraph, task_graph
from translator.stage_options import PartitionOptions

__all__ = ["MOST_LOOKAHEAD", "heft", "lookahead", "peft", "with_best_order"]

MOST_LOOKAHEAD = 20_000_000
"""Largest product of edges and the square of nodes for lookahead; larger graphs get plain HEFT."""

_MOST_COMPARED = 60_000
"""Graphs with more drops keep the order of the schedule, without comparing it with that of the ranks."""


def heft(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return the schedule of HEFT with insertion."""
    tasks = task_graph(work_of(graph))
    order = ranked_order(tasks, task_ranks(tasks, machines))
    return _assigned(graph, tasks, machines, schedule_heft(tasks, machines, order))


def lookahead(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return the schedule of HEFT with lookahead; of plain HEFT if the graph is too large for it."""
    tasks = task_graph(work_of(graph))
    order = ranked_order(tasks, task_ranks(tasks, machines))
    fits = len(tasks.after) * len(machines.nodes) ** 2 <= MOST_LOOKAHEAD
    made = (schedule_lookahead if fits else schedule_heft)(tasks, machines, order)
    return _assigned(graph, tasks, machines, made)


def peft(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return the schedule of PEFT."""
    tasks = task_graph(work_of(graph))
    return _assigned(graph, tasks, machines, schedule_peft(tasks, machines))


def _assigned(graph: PhysicalGraph, tasks: TaskGraph, machines: Machines, made: Schedule) -> PlannedParts:
    part = tasks.expanded(np.array(made.node, dtype=np.int64))
    start = np.array(made.start, dtype=np.float64)
    ranks = task_ranks(tasks, machines)
    order = np.lexsort((-ranks, start))
    return with_best_order(graph, tasks, machines, part, order)


def with_best_order(
    graph: PhysicalGraph,
    tasks: TaskGraph,
    machines: Machines,
    part: IntColumn,
    order: npt.NDArray[np.integer] | None = None,
) -> PlannedParts:
    """Return the assignment with the priorities that complete it first: those of an order of the tasks, or of ranks."""
    work = tasks.work
    found = []
    if order is not None:
        position = np.empty(tasks.tasks, dtype=np.int64)
        position[order] = np.arange(tasks.tasks, 0, -1)
        found.append(tasks.of_drops(np.where(work.is_app[tasks.row], position, 0)))
    if order is None or work.drops <= _MOST_COMPARED:
        found.append(priorities(upward_ranks(graph, work, machines, part), work))
    if len(found) == 1:
        return PlannedParts(part, found[0])
    times = [simulate(work, machines, part, priority).completion for priority in found]
    return PlannedParts(part, found[times.index(min(times))])
