"""The schedule that a graph is submitted with, which its timeline compares with what is executed."""

from dataclasses import replace

import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.times.planned import planned_seconds
from translator.planning.graph_work import work_of
from translator.planning.machines import Machines
from translator.planning.simulation import simulate

__all__ = ["MOST_SCHEDULED", "with_schedule"]

MOST_SCHEDULED = 200_000
"""Larger graphs are submitted without a schedule, which would take seconds of processor time."""


def with_schedule(graph: PhysicalGraph, machines: Machines) -> PhysicalGraph:
    """Return the graph with the simulated run of its parts on machines, part k on the k-th.

    Without one, if the graph has too many drops, or if the time of no application was declared or measured.
    """
    work = work_of(graph)
    is_timed = graph.weight is not None or any(
        seconds and template.kind for seconds, template in zip(planned_seconds(graph), graph.templates, strict=True)
    )
    if graph.drops > MOST_SCHEDULED or not is_timed or graph.parts > len(machines.nodes):
        return replace(graph, planned=None)
    run = simulate(work, machines, graph.part, graph.priority)
    columns = []
    for times in (run.start, run.end):
        column = np.where(work.is_app, times[: graph.drops], np.nan).astype(np.float32)
        column.flags.writeable = False
        columns.append(column)
    return replace(graph, planned=(columns[0], columns[1]))
