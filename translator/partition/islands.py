"""Numbers the parts so that those that exchange much are in one island."""

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.partition.weights import edge_sources, edge_volumes

__all__ = ["grouped_in_islands", "island_of"]


def island_of(part: int, parts: int, islands: int) -> int:
    """Return the island of a part: islands have consecutive parts, and differ by one part at most."""
    return part * min(islands, parts) // parts


def grouped_in_islands(graph: PhysicalGraph, part: IntColumn, parts: int, islands: int) -> IntColumn:
    """Return the same partition with other numbers of the parts.

    An island begins with the part that exchanges most with those that are left, and grows by the one that exchanges
    most with it. Only for equal machines, where the numbers of parts mean nothing.
    """
    if islands <= 1 or parts <= 2 or not graph.edges:  # noqa: PLR2004 - of two parts, each is an island
        return part
    traffic = np.zeros((parts, parts))
    one, other = part[edge_sources(graph)], part[graph.successors.neighbour]
    np.add.at(traffic, (one, other), edge_volumes(graph))
    np.fill_diagonal(traffic, 0.0)
    traffic += traffic.T
    number = np.empty(parts, dtype=np.int32)
    left = np.ones(parts, dtype=np.bool_)
    inside: npt.NDArray[np.float64] = np.zeros(parts)
    for position in range(parts):
        is_first = position == 0 or island_of(position, parts, islands) != island_of(position - 1, parts, islands)
        pull = traffic @ left if is_first else inside
        chosen = int(np.where(left, pull, -1.0).argmax())
        inside = traffic[chosen].copy() if is_first else inside + traffic[chosen]
        number[chosen] = position
        left[chosen] = False
    return number[part]
