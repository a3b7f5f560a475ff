"""Drops to be shown apart from the others: what is before or after one, what a failure took along, a path, a text."""

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import critical_path
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.reached import reached
from dropflow.graph.text_ids import oids
from dropflow.states import DropState

__all__ = ["critical", "downstream", "matching", "of_template", "taken_along", "upstream", "waiting_chain", "waits_for"]

States = npt.NDArray[np.uint8]


def upstream(graph: PhysicalGraph, drop: int) -> IntColumn:
    """Return a drop and all that it depends on, ascending."""
    return np.sort(reached(graph.predecessors, [drop])[0])


def downstream(graph: PhysicalGraph, drop: int) -> IntColumn:
    """Return a drop and all that depend on it, ascending."""
    return np.sort(reached(graph.successors, [drop])[0])


def taken_along(graph: PhysicalGraph, drop: int, states: States) -> IntColumn:
    """Return a drop that failed and those downstream of it that are in ERROR through drops in ERROR, ascending.

    If two failures have reached a drop, it belongs to both.
    """
    return np.sort(reached(graph.successors, [drop], states == DropState.ERROR)[0])


def waits_for(graph: PhysicalGraph, drop: int, states: States) -> IntColumn:
    """Return a drop and all drops upstream of it that are not settled, ascending: what it waits for."""
    return np.sort(reached(graph.predecessors, [drop], states <= DropState.WRITING)[0])


def waiting_chain(graph: PhysicalGraph, drop: int, states: States) -> IntColumn:
    """Return a chain of drops that wait for each other, from `drop` to one that waits for no drop.

    Of several drops that one waits for, an active one comes first, then the one of the lowest row.
    """
    is_open = states <= DropState.WRITING
    ptr, neighbour = graph.predecessors.ptr, graph.predecessors.neighbour
    chain = [drop]
    while True:
        near = neighbour[ptr[drop] : ptr[drop + 1]]
        near = near[is_open[near]]
        if not len(near):
            return np.array(chain, dtype=np.int32)
        drop = int(near[np.lexsort((near, states[near] != DropState.WRITING))[0]])
        chain.append(drop)


def critical(graph: PhysicalGraph) -> IntColumn:
    """Return the drops of the critical path, from the estimates of the graph, first to last."""
    return np.array(critical_path(graph).drops, dtype=np.int32)


def of_template(graph: PhysicalGraph, key: str) -> IntColumn:
    """Return the drops of the logical node with this key, ascending."""
    rows = [row for row, template in enumerate(graph.templates) if template.key == key]
    return np.flatnonzero(np.isin(graph.template, rows)).astype(np.int32)


def matching(graph: PhysicalGraph, text: str) -> IntColumn:
    """Return the drops whose id, or the name of whose logical node, contains a text, ignoring case; ascending."""
    wanted = text.casefold()
    by_name = np.array([wanted in template.name.casefold() for template in graph.templates], dtype=np.bool_)
    hits = by_name[graph.template] if graph.drops else np.zeros(0, dtype=np.bool_)
    others = np.flatnonzero(~hits).astype(np.int32)
    names = oids(graph, others)
    hits[others] = np.fromiter((wanted in name.casefold() for name in names), dtype=np.bool_, count=len(names))
    return np.flatnonzero(hits).astype(np.int32)
