"""Another placement for a graph: the same drops and edges, on other nodes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dropflow.graph.physical import IntColumn, PhysicalGraph

__all__ = ["with_placement"]


def with_placement(graph: PhysicalGraph, part: IntColumn, places: Sequence[str]) -> PhysicalGraph:
    """Return the graph with each drop on the node ``places[part[drop]]``.

    All other columns are shared with `graph`.

    Parameters
    ----------
    part : int array, shape (drops,)
        Partition of each drop. Copied.
    places : sequence of str
        Name of the node of each part.

    Raises
    ------
    ValueError
        The column has another number of rows than the graph, or a part without a place.
    """
    column = np.array(part, dtype=np.int32)
    if len(column) != graph.drops:
        raise ValueError(f"the placement has {len(column)} rows for {graph.drops} drops")
    if len(column) and (column.min() < 0 or column.max() >= len(places)):
        raise ValueError(f"parts {column.min()} to {column.max()} are on {len(places)} places")
    column.flags.writeable = False
    return replace(graph, part=column, places=tuple(places))
