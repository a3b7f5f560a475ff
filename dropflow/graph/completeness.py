"""How much of the data that a content should be made from it is made from, after failures that were tolerated.

The share of an application is that of the port with the least; the share of a port is the mean of its inputs, where one
that is not completed counts as 0. Inputs that a branch has skipped do not count. So the shares add up along the graph.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dropflow.graph.drop_counts import IncompleteDrop
from dropflow.graph.order import edges_of, leaves, levels, reached
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import ORDER_PORT, Kind
from dropflow.graph.text_ids import oid
from dropflow.states import DropState

__all__ = ["completeness_lines", "incomplete_results", "shares"]

_MOST = 1000
_SHOWN = 5
_GONE = (DropState.ERROR, DropState.CANCELLED)


def shares(graph: PhysicalGraph, states: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return how much of its data each drop is made from, from 0 to 1, shape (drops,).

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    found: npt.NDArray[np.float64] = (states == DropState.COMPLETED).astype(np.float64)
    affected = reached(graph.successors, np.flatnonzero(np.isin(states, _GONE)).tolist())[0]
    affected = affected[states[affected] == DropState.COMPLETED]
    before, level = graph.predecessors, levels(graph)
    counts = np.array([ORDER_PORT not in (link.source_port, link.target_port) for link in graph.links], np.bool_)
    affected = affected[np.argsort(level[affected], kind="stable")]
    for rows in np.split(affected, np.flatnonzero(np.diff(level[affected])) + 1):
        edges = edges_of(before.ptr, rows)
        targets = np.repeat(rows, before.ptr[rows + 1] - before.ptr[rows])
        there = counts[before.link[edges]] & (states[before.neighbour[edges]] != DropState.SKIPPED)
        edges, targets = edges[there], targets[there]
        ports, place = np.unique(targets * np.int64(len(counts)) + before.link[edges], return_inverse=True)
        fed = ports // max(len(counts), 1)
        found[fed] = np.inf
        np.minimum.at(found, fed, np.bincount(place, found[before.neighbour[edges]]) / np.bincount(place))
    return found


def incomplete_results(graph: PhysicalGraph, states: npt.NDArray[np.uint8]) -> tuple[IncompleteDrop, ...]:
    """Return the results that are made from less than all of their data, those with the least first."""
    if not np.isin(states, _GONE).any():
        return ()
    found = shares(graph, states)
    last = leaves(graph)
    is_less = (graph.kinds[graph.template[last]] == np.uint8(Kind.DATA)) & (states[last] == DropState.COMPLETED)
    rows = last[is_less & (found[last] < 1.0)]
    rows = rows[np.argsort(found[rows], kind="stable")][:_MOST]
    return tuple(
        IncompleteDrop(
            drop=oid(graph, row), name=graph.templates[graph.template[row]].name, fraction=round(float(found[row]), 6)
        )
        for row in rows.tolist()
    )


def completeness_lines(graph: PhysicalGraph, row: int, states: npt.NDArray[np.uint8]) -> Sequence[str]:
    """Return what a completed drop lacks, for explanations; nothing if it is made from all of its data."""
    if states[row] != DropState.COMPLETED or not np.isin(states, _GONE).any():
        return ()
    fraction = float(shares(graph, states)[row])
    if fraction >= 1.0:
        return ()
    upstream = np.sort(reached(graph.predecessors, [row])[0])
    failed = upstream[np.isin(states[upstream], _GONE) & (graph.kinds[graph.template[upstream]] == np.uint8(Kind.DATA))]
    names = ", ".join(oid(graph, one) for one in failed[:_SHOWN].tolist())
    more = f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    return (f"it is made from {100 * fraction:.3g} % of its data: {names}{more} failed, and that was tolerated",)
