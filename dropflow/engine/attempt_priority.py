"""The priority of each attempt, from that of the drops."""

import numpy as np

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind

__all__ = ["attempt_priority"]


def attempt_priority(graph: PhysicalGraph) -> IntColumn | None:
    """Return the priority of the attempt of each drop.

    That of an application is its own. Data without producers are attempted, too: they are as urgent as the most urgent
    of their consumers, which otherwise would wait for all applications that are ready.

    Returns
    -------
    int32 array, shape (drops,), or None
        Higher ones start first. None if the graph has no priorities.
    """
    if graph.priority is None:
        return None
    before, after = graph.predecessors, graph.successors
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    consumers = np.diff(after.ptr)
    is_root = is_data & (np.diff(before.ptr) == 0) & (consumers > 0)
    column = graph.priority.copy()
    if is_root.any():
        urgent = graph.priority[after.neighbour[np.repeat(is_root, consumers)]]
        first = np.cumsum(consumers[is_root]) - consumers[is_root]
        column[is_root] = np.maximum.reduceat(urgent, first)
    return column
