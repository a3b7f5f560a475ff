"""Upward ranks: how much work and movement follows from each drop (Topcuoglu et al., IEEE TPDS 13, 2002)."""

import numpy as np

from dropflow.graph.order import levels
from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.planning.graph_work import Floats, GraphWork
from translator.planning.machines import Machines

__all__ = ["priorities", "upward_ranks"]


def upward_ranks(graph: PhysicalGraph, work: GraphWork, machines: Machines, part: IntColumn) -> Floats:
    """Return the seconds from the start of each drop to the end of the graph on its longest path, shape (drops,).

    Nodes are those of the assignment, and moves have their links to themselves.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    speed = np.array([node.speed for node in machines.nodes], dtype=np.float64)
    own = work.seconds / speed[part]
    crosses = part[work.source] != part[work.target]
    volume = np.maximum(work.volume[work.source], work.volume[work.target])
    moves = np.where(crosses, volume / machines.links.bandwidth + machines.links.latency, 0.0)
    level = levels(graph)
    # Edges by the level of their source, the last level first: all targets of a level are done before it.
    order = np.argsort(-level[work.source], kind="stable")
    source, target, cost = work.source[order], work.target[order], moves[order]
    ends = np.cumsum(np.bincount(level[work.source], minlength=int(level.max(initial=0)) + 1)[::-1])
    rank = own.copy()
    first = 0
    for last in ends.tolist():
        if last - first > 0:
            _pass_back(rank, own, source[first:last], target[first:last], cost[first:last])
        first = last
    return rank


def _pass_back(rank: Floats, own: Floats, source: IntColumn, target: IntColumn, cost: Floats) -> None:
    if len(source) == 1:
        before = source[0]
        rank[before] = max(rank[before], own[before] + cost[0] + rank[target[0]])
        return
    np.maximum.at(rank, source, own[source] + cost + rank[target])


def priorities(rank: Floats, work: GraphWork) -> IntColumn:
    """Return a priority for each application, 1 and up: the higher its rank, the higher; 0 for data."""
    apps = work.apps
    order = np.lexsort((-apps, rank[apps]))
    column = np.zeros(work.drops, dtype=np.int32)
    column[apps[order]] = np.arange(1, len(apps) + 1, dtype=np.int32)
    column.flags.writeable = False
    return column
