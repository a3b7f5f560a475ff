"""Partition into blocks of equal weight of a topological order: very fast, and the graph of parts is acyclic.

The order is depth first, so that a chain inside a scatter stays together: a drop follows directly after its last
predecessor, before the siblings of that predecessor. Edges between consecutive blocks of such an order have one
direction.
"""

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import refuse_cycle, roots
from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.partition.planned_parts import PlannedParts, shares_of
from translator.partition.weights import Floats, loads
from translator.planning.machines import Machines
from translator.stage_options import PartitionOptions

__all__ = ["blocks", "cut_evenly", "depth_first_order"]


def blocks(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return consecutive blocks of about equal load for equal machines, none of them empty."""
    order = depth_first_order(graph)
    part = np.empty(graph.drops, dtype=np.int32)
    part[order] = cut_evenly(loads(graph)[order], options.parts, shares_of(machines))
    return PlannedParts(part)


def cut_evenly(load: Floats, parts: int, shares: Floats | None = None) -> IntColumn:
    """Return the part of each row for `parts` consecutive blocks of about equal load, shape (rows,).

    With `shares`, shape (parts,), the loads of the blocks are in their proportion. No block is empty; there must be at
    least as many rows as parts.
    """
    rows = len(load)
    # Drops without load get a tiny equal share, so that they are distributed, too.
    weight = load + float(load.sum() or 1.0) * 1e-6 / max(rows, 1)
    middle = np.cumsum(weight) - weight / 2
    wanted = np.arange(1, parts) * (float(weight.sum()) / parts)
    if shares is not None and not np.allclose(shares, shares[0]):
        wanted = np.cumsum(shares)[:-1] * float(weight.sum())
    first: npt.NDArray[np.int64] = np.searchsorted(middle, wanted).astype(np.int64)
    step = np.arange(1, parts)
    first = np.maximum.accumulate(np.maximum(first, 1) - step) + step
    first = np.minimum(first, rows - parts + step)
    part = np.zeros(rows, dtype=np.int32)
    part[first] = 1
    return np.cumsum(part, dtype=np.int32)


def depth_first_order(graph: PhysicalGraph) -> IntColumn:
    """Return a topological order in which chains stay together, shape (drops,).

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    ptr, neighbour = graph.successors.ptr.data, graph.successors.neighbour.data
    waiting = np.bincount(graph.successors.neighbour, minlength=graph.drops).astype(np.int32).data
    stack = roots(graph)[::-1].tolist()
    order = np.empty(graph.drops, dtype=np.int32)
    place, count = order.data, 0
    while stack:
        drop = stack.pop()
        place[count] = drop
        count += 1
        # In reverse, so that the first successor is on top of the stack.
        for edge in range(ptr[drop + 1] - 1, ptr[drop] - 1, -1):
            target = neighbour[edge]
            waiting[target] -= 1
            if not waiting[target]:
                stack.append(target)
    if count < graph.drops:
        refuse_cycle(graph)
    return order
