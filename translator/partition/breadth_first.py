"""The initial assignment of Mars: initial applications in breadth-first order, the others where most inputs are.

It is the one that distributes the drops of lost nodes, `dropflow.graph.reassignment`, applied to a whole graph.
"""

import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.reassignment import reassign
from translator.partition.planned_parts import PlannedParts
from translator.partition.weights import loads
from translator.planning.machines import Machines
from translator.stage_options import PartitionOptions

__all__ = ["breadth_first"]


def breadth_first(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return blocks of initial applications near each other, and what follows from them near its data."""
    nodes = len(machines.nodes)
    part = reassign(
        graph,
        np.zeros(graph.drops, dtype=np.int32),
        np.ones(graph.drops, dtype=np.bool_),
        range(nodes),
        [0.0] * nodes,
        capacities=[node.cores * node.speed for node in machines.nodes],
        work=loads(graph),
    )
    return PlannedParts(part)
