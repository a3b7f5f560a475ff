"""The nodes of tasks: initial tasks breadth-first, equally many for each core, and the others near their data."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.reassignment import app_weights, reassign
from dropflow.graph.templates import Kind
from translator.placement import place
from translator.planning.machines import Machines
from translator.planning.schedule import with_schedule

__all__ = ["BREADTH_FIRST", "with_drops_on", "with_parts"]

BREADTH_FIRST = "breadth_first"
"""Name of the algorithm."""


def with_parts(graph: PhysicalGraph, machines: Machines, fixed: Mapping[int, str] | None = None) -> PhysicalGraph:
    """Return a graph with one part for each machine; on these machines, if some drops are `fixed`.

    `translator.partition.breadth_first` gives nodes equal work as far as weights tell it. The weights of tasks of dask
    are not known, so here the numbers of initial tasks are equal: on equal nodes they differ by one at most.

    Parameters
    ----------
    graph : PhysicalGraph
        All drops.
    machines : Machines
        Where they may be.
    fixed : mapping of int to str, optional
        Data without producers that are on machines already, and the names of those. Tasks that read them go there,
        unless a machine would have much more to do than the others.

    Notes
    -----
    After the Mars project, "Graph preparation", https://docs.pymars.org.
    """
    count = len(machines.nodes)
    capacities = [node.cores * node.speed for node in machines.nodes]
    is_app = graph.kinds[graph.template] == np.uint8(Kind.APP)
    initial = is_app & (np.diff(graph.predecessors.ptr) == 0)
    everything = np.ones(graph.drops, dtype=np.bool_)
    names = [node.name for node in machines.nodes]
    start = np.zeros(graph.drops, dtype=np.int32)
    for drop, name in (fixed or {}).items():
        if name in names:
            start[drop] = names.index(name)
            everything[drop] = False
    first = reassign(
        graph,
        start,
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
    parted = replace(graph, part=part)
    # Without fixed drops, parts may go to any machines.
    return with_schedule(place(parted, names), machines) if fixed else parted


def with_drops_on(graph: PhysicalGraph, fixed: Mapping[int, str]) -> PhysicalGraph:
    """Return a placed graph with these drops on these nodes, and all others where they are."""
    if not fixed or not graph.places:
        return graph
    places = list(dict.fromkeys([*graph.places, *fixed.values()]))
    part = graph.part.copy()
    for drop, name in fixed.items():
        part[drop] = places.index(name)
    part.flags.writeable = False
    return replace(graph, part=part, places=tuple(places[: int(part.max()) + 1]))
