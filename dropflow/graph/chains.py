"""Chains of applications that run as one unit: each one hands its only output to the next one.

Application B *follows* application A if the only output of A is a data drop with no other producer, whose only consumer
is B, and that is the only input of B. `follower_column` has the rest of the rule.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind

__all__ = ["follower_column", "is_fused", "with_fusion", "without_fusion"]

_FUSE, _NO = "fuse", "no"


def without_fusion(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph with the note that its chains do not run as units. Files keep it."""
    return replace(graph, meta={**graph.meta, _FUSE: _NO})


def with_fusion(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph without the note of `without_fusion`."""
    return replace(graph, meta={name: text for name, text in graph.meta.items() if name != _FUSE})


def is_fused(graph: PhysicalGraph) -> bool:
    """Return whether chains of the graph run as units: unless it has a note against that."""
    return graph.meta.get(_FUSE) != _NO


def follower_column(
    graph: PhysicalGraph, groups: Sequence[int], place: npt.NDArray[Any] | None = None
) -> IntColumn | None:
    """Return the application that follows each application in its chain.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph.
    groups : sequence of int, shape (templates,)
        For an application, the group of templates that may be in one chain; 0 for one that is in none. For data, 1 if
        it may be handed from one application to the next.
    place : array, shape (drops,), optional
        Where each drop is. A chain is in one place.

    Returns
    -------
    int32 array, shape (drops,), or None
        Row of the application that follows; -1 for none. None if there are no chains, or the graph is not fused.
    """
    if not is_fused(graph) or not any(groups):
        return None
    out, before = graph.successors, graph.predecessors
    outputs, inputs = np.diff(out.ptr), np.diff(before.ptr)
    group = np.array(groups, dtype=np.int32)[graph.template]
    # What tolerates the failure of its only input runs without it, and what is kept moves to its place.
    tolerant = np.array([one.error_threshold >= 100.0 for one in graph.templates])[graph.template]  # noqa: PLR2004
    kept = np.array([one.persist is True for one in graph.templates])[graph.template]
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    data = np.flatnonzero(is_data & ~kept & (group > 0) & (outputs == 1) & (inputs == 1))
    first, then = before.neighbour[before.ptr[data]], out.neighbour[out.ptr[data]]
    fits = (outputs[first] == 1) & (inputs[then] == 1) & (group[first] == group[then]) & (group[first] > 0)
    fits &= ~tolerant[then]
    if place is not None:
        fits &= (place[first] == place[data]) & (place[data] == place[then])
    if not fits.any():
        return None
    column = np.full(graph.drops, -1, dtype=np.int32)
    column[first[fits]] = then[fits]
    column.flags.writeable = False
    return column
