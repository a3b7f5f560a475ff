"""The nodes of tasks: initial tasks breadth-first, equally many for each core, and the others near their data."""

from dataclasses import replace

import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.reassignment import app_weights, reassign
from dropflow.graph.templates import Kind
from translator.planning.machines import Machines

__all__ = ["BREADTH_FIRST", "with_parts"]

BREADTH_FIRST = "breadth_first"
"""Name of the algorithm."""


def with_parts(graph: PhysicalGraph, machines: Machines) -> PhysicalGraph:
    """Return a graph with one part for each machine.

    `translator.partition.breadth_first` gives nodes equal work as far as weights tell it. The weights of tasks of dask
    are not known, so here the numbers of initial tasks are equal: on equal nodes they differ by one at most.

    Notes
    -----
    After the Mars project, "Graph preparation", https://docs.pymars.org.
    """
    count = len(machines.nodes)
    capacities = [node.cores * node.speed for node in machines.nodes]
    is_app = graph.kinds[graph.template] == np.uint8(Kind.APP)
    initial = is_app & (np.diff(graph.predecessors.ptr) == 0)
    everything = np.ones(graph.drops, dtype=np.bool_)
    first = reassign(
        graph,
        np.zeros(graph.drops, dtype=np.int32),
        everything,
        range(count),
        [0.0] * count,
        capacities=capacities,
        work=initial.astype(np.float64),
    )
    load = np.bincount(first[initial], minlength=count).astype(np.float64).tolist()
    part = reassign(
        graph, first, everything & ~initial, range(count), load, capacities=capacities, work=app_weights(graph)
    )
    return replace(graph, part=part)
