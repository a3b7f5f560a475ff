"""Partition with METIS (G. Karypis and V. Kumar, SIAM J. Sci. Comput. 20, 1998), through pymetis.

METIS gets the graph of tasks (`translator.plan.task_graph`). Both of its methods run, recursive bisection and direct
k-way, with several seeds. It counts cut edges and may exceed the given imbalance, so the best results are refined by
the bytes that really move, within the limits. If no result keeps the limits, an even partition is refined.
"""

import heapq
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.failure import Problem
from dropflow.graph.build import from_columns
from dropflow.graph.order import refuse_cycle, roots, topological_order
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.reassign import reassign
from dropflow.graph.slices import PlacementGroups, kept_together, placement_groups
from dropflow.standard_output import native_output_on_stderr
from translator.options import PartitionOptions
from translator.plan.machines import Machines
from translator.plan.planner import Floats, PlannedParts, edge_sources, loads, scaled, shares_of
from translator.plan.refine import PartLimits, evenest, limits_for, moved_bytes, polished, refined
from translator.plan.task_graph import TaskGraph, task_graph, work_of
from translator.problem_codes import problem

_MOST_LOAD = 10_000
"""Integer that the largest load becomes, since METIS takes integers, in units of `_LOAD_UNIT`."""
_MOST_VOLUME = 1_000_000
"""Integer that the largest volume of an edge becomes, if there are so few edges that the sum fits."""
_MOST_SUM = 1_000_000_000
"""Sum of the integer volumes of all edges: METIS adds them in 32 bits."""
_LOAD_UNIT = 100
"""Integer of the smallest load; a task without load has 1, a hundredth of it, so that it is distributed, too."""
_REFINED_PARTITIONS = 4
"""Best partitions that are refined."""
_SMALL = 5_000
"""Most tasks of graphs that get the largest number of seeds."""
_LARGE = 30_000
"""Graphs with more tasks get one seed, and their partitions are refined only if they exceed a limit."""
_Wide = npt.NDArray[np.int64]


# Partition into blocks of equal weight of a topological order: very fast, and the graph of parts is acyclic.
#
# The order is depth first, so that a chain inside a scatter stays together: a drop follows directly after its last
# predecessor, before the siblings of that predecessor. Edges between consecutive blocks of such an order have one
# direction.


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


_SEEDS, _MOST_SEEDS = 3, 4


def metis(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return parts with little data between them, and loads within the given imbalance where that is possible.

    The same graph, options and seed give the same parts. On equal machines they are numbered in topological order of
    their first drops.
    """
    order = topological_order(graph)
    tasks = task_graph(work_of(graph))
    part = np.arange(graph.drops, dtype=np.int32)
    if options.parts < graph.drops:
        limits = feasible_limits(tasks, options, machines)
        part = tasks.expanded(least_movement(tasks, options, limits, metis_cuts(tasks, options, machines)))
        part = filled(graph, part, options.parts, order)
    return PlannedParts(numbered(part, order, machines))


def feasible_limits(tasks: TaskGraph, options: PartitionOptions, machines: Machines) -> PartLimits:
    """Return the limits for the imbalance of the options; if no partition keeps them, the tightest possible limits."""
    limits = limits_for(tasks, machines, options.allowed_imbalance)
    return limits.looser(1 + _overfull(limits, evenest(limits)))


def _overfull(limits: PartLimits, part: _Wide) -> float:
    over = float((limits.sums(part) / np.maximum(limits.most, 1e-300)).max(initial=0.0)) - 1
    return over + 1e-9 if over > 1e-9 else 0.0


def least_movement(
    tasks: TaskGraph,
    options: PartitionOptions,
    limits: PartLimits,
    partitions: list[_Wide],
    *,
    tries: int = _REFINED_PARTITIONS,
) -> npt.NDArray[np.int64]:
    """Return the best of several partitions of the tasks after refinement: the limits count first, then bytes moved.

    The `tries` best partitions are refined, and also the one that moves the least, for any balance.
    """
    if not tasks.tasks:
        return np.zeros(0, dtype=np.int64)
    nets = tasks.nets
    passes = 0 if tasks.tasks > _LARGE else 6
    priced = sorted((limits.excess(part), moved_bytes(nets, part), number) for number, part in enumerate(partitions))
    least_moved = min(priced, key=lambda entry: entry[1:])
    results = [
        refined(nets, partitions[number], limits, passes=passes)
        for _, _, number in dict.fromkeys([*priced[:tries], least_moved])
    ]
    if all(limits.excess(part) > 0 for part, _ in results):
        results.append(refined(nets, evenest(limits), limits, passes=passes))
    if options.goal == "cut":
        return min(results, key=lambda result: (round(limits.excess(result[0]), 6), _cut_bytes(tasks, result[0])))[0]
    best, _ = min(results, key=lambda result: (round(limits.excess(result[0]), 6), result[1]))
    return polished(nets, best, limits) if tasks.tasks <= _SMALL else best


def _cut_bytes(tasks: TaskGraph, part: _Wide) -> float:
    source_part = part[np.repeat(np.arange(tasks.tasks), np.diff(tasks.after_ptr))]
    return float(tasks.work.volume[tasks.after_data][source_part != part[tasks.after]].sum())


def metis_cuts(tasks: TaskGraph, options: PartitionOptions, machines: Machines) -> list[_Wide]:
    """Return the partitions of METIS from each method and seed."""
    import pymetis  # noqa: PLC0415 - takes 50 ms to load

    if options.parts == 1 or tasks.tasks <= options.parts:
        return [np.arange(tasks.tasks, dtype=np.int64) % max(options.parts, 1)]
    # Tasks without load count a hundredth of the smallest unit, so that they are distributed, too.
    load = tasks.load if tasks.load.any() else np.ones(tasks.tasks)
    vweights = scaled(load, least=0, most=_MOST_LOAD) * _LOAD_UNIT + 1
    shares = shares_of(machines)
    targets = None if np.allclose(shares, shares[0]) else shares.tolist()
    methods = {"best": (True, False), "recursive": (True,), "kway": (False,)}[options.method]
    ufactor = min(max(1, round(10 * options.allowed_imbalance)), 10**6)
    partitions = []
    for shared in (False, True):
        starts, adjacent, eweights = _undirected(tasks, shared=shared)
        for seed, recursive in product(range(_seeds(tasks)), methods):
            with native_output_on_stderr():
                cut = pymetis.part_graph(
                    options.parts,
                    adjacency=pymetis.CSRAdjacency(starts, adjacent),
                    vweights=vweights,
                    eweights=eweights,
                    tpwgts=targets,
                    recursive=recursive,
                    options=pymetis.Options(seed=options.seed + seed, ufactor=ufactor),
                )
            partitions.append(np.asarray(cut.vertex_part, dtype=np.int64))
    return partitions


def _seeds(tasks: TaskGraph) -> int:
    """Return how many seeds are tried."""
    if tasks.tasks > _LARGE:
        return 1
    return _SEEDS if tasks.tasks > _SMALL else _MOST_SEEDS


def _undirected(tasks: TaskGraph, *, shared: bool) -> tuple[_Wide, _Wide, _Wide]:
    """Return starts, neighbours and edge weights with every edge in both directions, as METIS needs them.

    With `shared`, the volume of a data drop is divided among its edges, as if only one of them could be cut. Tasks that
    read the same data without a producer are joined, each to the next, if no task makes data for another.
    """
    first = np.repeat(np.arange(tasks.tasks), np.diff(tasks.after_ptr))
    second, drop = tasks.after, tasks.after_data
    if not tasks.work.volume[drop].any():
        readers = np.repeat(np.arange(tasks.tasks), np.diff(tasks.root_ptr))
        order = np.argsort(tasks.root_data, kind="stable")
        data, readers = tasks.root_data[order], readers[order]
        same = data[1:] == data[:-1]
        first = np.concatenate([first, readers[:-1][same]])
        second = np.concatenate([second, readers[1:][same]])
        drop = np.concatenate([drop, data[1:][same]]).astype(np.int64)
    volume = tasks.work.volume[drop]
    if shared:
        volume = volume / np.maximum(np.bincount(drop, minlength=tasks.work.drops)[drop], 1)
    distinct = first != second
    left, right = first[distinct], second[distinct]
    # Several edges between two tasks are one with the sum of their volumes.
    source, target = np.concatenate([left, right]), np.concatenate([right, left])
    key, where = np.unique(source * max(tasks.tasks, 1) + target, return_inverse=True)
    sums = np.bincount(where.reshape(-1), weights=np.tile(volume[distinct], 2), minlength=len(key)).astype(np.float64)
    starts = np.zeros(tasks.tasks + 1, dtype=np.int64)
    np.cumsum(np.bincount(key // max(tasks.tasks, 1), minlength=tasks.tasks), out=starts[1:])
    # The sum of all weights must fit into 32 bits.
    most = max(min(_MOST_SUM // max(len(key), 1), _MOST_VOLUME), 1)
    return starts, key % max(tasks.tasks, 1), scaled(sums, least=1, most=most)


def filled(graph: PhysicalGraph, part: IntColumn, parts: int, order: IntColumn) -> IntColumn:
    """Return the partition with the heaviest parts halved until no part is empty."""
    empty = np.flatnonzero(np.bincount(part, minlength=parts) == 0).tolist()
    if not empty:
        return part
    part, load = part.copy(), loads(graph)
    ordered = order[np.argsort(part[order], kind="stable")]
    groups = np.split(ordered, np.cumsum(np.bincount(part, minlength=parts))[:-1])
    heap = [(-float(load[rows].sum()), -len(rows), number) for number, rows in enumerate(groups) if len(rows) > 1]
    heapq.heapify(heap)
    for new in empty:
        _, _, old = heapq.heappop(heap)
        half = cut_evenly(load[groups[old]], 2)
        groups[new], groups[old] = groups[old][half == 1], groups[old][half == 0]
        part[groups[new]] = new
        for number in (old, new):
            rows = groups[number]
            if len(rows) > 1:
                heapq.heappush(heap, (-float(load[rows].sum()), -len(rows), number))
    return part


def numbered(part: IntColumn, order: IntColumn, machines: Machines) -> IntColumn:
    """Return the partition with parts numbered by their first drops in `order`, if the machines are equal."""
    kinds = {msgspec.structs.replace(node, name="") for node in machines.nodes}
    if len(kinds) > 1 or len(part) == 0:
        return part
    names, first = np.unique(part[order], return_index=True)
    number = np.empty(int(part.max(initial=-1)) + 1, dtype=np.int32)
    number[names[np.argsort(first)]] = np.arange(len(names), dtype=np.int32)
    return number[part]


# The initial assignment of Mars: initial applications in breadth-first order, all others on the node with most of their
# inputs.
#
# It is the same algorithm that distributes the drops of lost nodes (`dropflow.graph.reassign`), applied to a whole
# graph.


def breadth_first(graph: PhysicalGraph, _options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return blocks of initial applications near each other, with later applications near their data."""
    nodes = len(machines.nodes)
    part = reassign(
        graph,
        np.zeros(graph.drops, dtype=np.int32),
        np.ones(graph.drops, dtype=np.bool_),
        range(nodes),
        [0.0] * nodes,
        capacities=[node.cores * node.speed for node in machines.nodes],
        work=loads(graph),
    )
    return PlannedParts(part)


# Partition of graphs whose drops have constraints: exclusive groups get their own parts first.
#
# The other drops are partitioned into the remaining parts, so that they are balanced among themselves.


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
        The partitioner, which does not handle constraints.
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
    rest = from_columns(
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
    return rest if graph.weight is None else replace(rest, weight=graph.weight[kept])
