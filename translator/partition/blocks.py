"""Partition by equal-weight blocks of a topological order: nothing moves backwards, at no cost.

The order goes depth first, so that a chain inside a scatter stays together: a drop is taken as soon as its last
predecessor is, before the siblings of that predecessor. Consecutive blocks of such an order have edges in one
direction only, so the graph of parts is acyclic.
"""

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import refuse_cycle, roots
from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.options import PartitionOptions
from translator.partition.weights import Floats, loads

__all__ = ["blocks", "cut_evenly", "depth_first_order"]


def blocks(graph: PhysicalGraph, options: PartitionOptions) -> IntColumn:
    """Parts of all drops, shape (drops,): consecutive blocks of about equal load, none of them empty."""
    order = depth_first_order(graph)
    part = np.empty(graph.drops, dtype=np.int32)
    part[order] = cut_evenly(loads(graph)[order], options.parts)
    return part


def cut_evenly(load: Floats, parts: int) -> IntColumn:
    """Part of each row when rows in this order are cut into `parts` consecutive blocks of about equal load.

    No block is empty; there must be at least as many rows as parts.
    """
    rows = len(load)
    # A drop without load still needs a place: an equal share of next to nothing.
    weight = load + float(load.sum() or 1.0) * 1e-6 / max(rows, 1)
    middle = np.cumsum(weight) - weight / 2
    wanted = np.arange(1, parts) * (float(weight.sum()) / parts)
    first: npt.NDArray[np.int64] = np.searchsorted(middle, wanted).astype(np.int64)
    step = np.arange(1, parts)
    first = np.maximum.accumulate(np.maximum(first, 1) - step) + step
    first = np.minimum(first, rows - parts + step)
    part = np.zeros(rows, dtype=np.int32)
    part[first] = 1
    return np.cumsum(part, dtype=np.int32)


def depth_first_order(graph: PhysicalGraph) -> IntColumn:
    """A topological order in which chains stay together, shape (drops,).

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
        # Backwards, so that the first successor is taken first.
        for edge in range(ptr[drop + 1] - 1, ptr[drop] - 1, -1):
            target = neighbour[edge]
            waiting[target] -= 1
            if not waiting[target]:
                stack.append(target)
    if count < graph.drops:
        refuse_cycle(graph)
    return order
