"""Partition of graphs whose drops have constraints: exclusive groups get parts of their own before anything else.

The other drops are partitioned into the remaining parts, so that they are balanced among themselves.
"""

from collections.abc import Callable

import msgspec
import numpy as np

from dropflow.graph.builder import from_columns
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.placement_groups import PlacementGroups, kept_together, placement_groups
from dropflow.problems import Problem
from translator.partition.weights import edge_sources, loads
from translator.problem_codes import problem
from translator.stage_options import PartitionOptions

__all__ = ["check_exclusive", "partition_groups"]


def check_exclusive(graph: PhysicalGraph, parts: int) -> list[Problem]:
    """Return PT004 if there are fewer parts than the exclusive groups need."""
    groups = placement_groups(graph)
    if groups is None or not groups.exclusive.any() or parts >= groups.needed:
        return []
    count = int(groups.exclusive.sum())
    names = ", ".join(repr(name) for name in dict.fromkeys(np.array(groups.names)[groups.exclusive].tolist()))
    others = " and one for the other drops" if groups.needed > count else ""
    text = f"{names} in {count} copies wants a node for each{others}, but there are {parts} parts: some share a node"
    return [problem("PT004", text, where="parts", hint=f"give at least {groups.needed} parts")]


def partition_groups(
    graph: PhysicalGraph, options: PartitionOptions, chosen: Callable[[PhysicalGraph, PartitionOptions], IntColumn]
) -> IntColumn:
    """Return the parts of all drops by a partitioner, with the constraints of the graph kept.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph.
    options : PartitionOptions
        At most as many parts as there are drops.
    chosen : callable
        The partitioner, which knows no constraints.
    """
    groups = placement_groups(graph)
    if groups is None:
        return chosen(graph, options)
    alone = groups.is_exclusive
    rest = int(np.count_nonzero(~alone))
    own = min(int(groups.exclusive.sum()), options.parts - int(rest > 0))
    if own < 1 or not rest:
        part = chosen(graph, options) if not own else np.zeros(graph.drops, dtype=np.int32)
        return kept_together(part, groups, options.parts, loads(graph))
    part = np.zeros(graph.drops, dtype=np.int32)
    remaining = min(options.parts - own, rest)
    if remaining > 1:
        part[~alone] = chosen(_without(graph, groups), msgspec.structs.replace(options, parts=remaining))
    return kept_together(part, groups, remaining + own, loads(graph))


def _without(graph: PhysicalGraph, groups: PlacementGroups) -> PhysicalGraph:
    """Return the graph without the drops of exclusive groups."""
    kept = ~groups.is_exclusive
    row = np.cumsum(kept, dtype=np.int32) - 1
    source, target = edge_sources(graph), graph.successors.neighbour
    inside = kept[source] & kept[target]
    return from_columns(
        name=graph.name,
        prefix=graph.prefix,
        templates=graph.templates,
        links=graph.links,
        template=graph.template[kept],
        instance=graph.instance[kept],
        source=row[source[inside]],
        target=row[target[inside]],
        link=graph.successors.link[inside],
    )
