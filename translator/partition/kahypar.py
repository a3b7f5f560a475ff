"""Partition of the hypergraph of data with Mt-KaHyPar (L. Gottesbueren et al., ACM J. Exp. Algorithmics 2021).

A data drop that is read in ten parts moves nine or ten times, not as often as it has readers there. METIS counts edges;
here each data drop is a net, and the price, connectivity minus one, is what really moves.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from dropflow.errors import MissingDependencyError
from dropflow.graph.order import topological_order
from dropflow.graph.physical import PhysicalGraph
from dropflow.standard_output import native_output_on_stderr
from translator.partition.metis import filled, least_movement, numbered
from translator.partition.planned_parts import PlannedParts, shares_of
from translator.partition.weights import scaled
from translator.planning.graph_work import work_of
from translator.planning.machines import Machines
from translator.planning.task_graph import TaskGraph, task_graph
from translator.stage_options import PartitionOptions

__all__ = ["has_kahypar", "kahypar"]

_MOST_LOAD = 1_000_000
_MOST_VOLUME = 1_000_000


def has_kahypar() -> bool:
    """Whether Mt-KaHyPar is installed."""
    return find_spec("mtkahypar") is not None


def kahypar(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return parts between which the least bytes move.

    Raises
    ------
    MissingDependencyError
        Mt-KaHyPar is not installed.
    """
    if not has_kahypar():
        hint = "install it with `pip install dropflow[kahypar]`, or use metis"
        raise MissingDependencyError("the partitioner kahypar needs the package mtkahypar", hint=hint)
    tasks = task_graph(work_of(graph))
    order = topological_order(graph)
    part = np.arange(graph.drops, dtype=np.int32)
    if options.parts < graph.drops:
        found = [_cut(tasks, options, machines)] if tasks.tasks > options.parts and len(tasks.nets.volume) else []
        start = found or [np.arange(tasks.tasks, dtype=np.int64) % options.parts]
        part = tasks.expanded(least_movement(tasks, options, machines, start))
        part = filled(graph, part, options.parts, order)
    return PlannedParts(numbered(part, order, machines))


@cache
def _library() -> Any:
    """Return Mt-KaHyPar with one thread, with which a seed decides the result."""
    import mtkahypar  # noqa: PLC0415 - optional

    with native_output_on_stderr():
        return mtkahypar.initialize(1)


def _cut(
    tasks: TaskGraph, options: PartitionOptions, machines: Machines
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    import mtkahypar  # noqa: PLC0415 - optional

    library = _library()
    mtkahypar.set_seed(options.seed)
    context = library.context_from_preset(mtkahypar.PresetType.QUALITY)
    context.set_partitioning_parameters(options.parts, max(options.imbalance, 0.1) / 100.0, mtkahypar.Objective.KM1)
    context.logging = False
    load = tasks.load if tasks.load.any() else np.ones(tasks.tasks)
    weights = scaled(load, least=0, most=_MOST_LOAD)
    shares = shares_of(machines)
    if not np.allclose(shares, shares[0]):
        most = np.ceil(weights.sum() * shares * (1 + options.imbalance / 100.0)).astype(np.int64) + 1
        context.set_individual_target_block_weights(most.tolist())
    nets = tasks.nets
    hypergraph = library.create_hypergraph(
        context,
        tasks.tasks,
        len(nets.volume),
        [one.tolist() for one in np.split(nets.task, nets.ptr[1:-1])],
        weights.tolist(),
        scaled(nets.volume, least=1, most=_MOST_VOLUME).tolist(),
    )
    with native_output_on_stderr():
        cut = hypergraph.partition(context)
    return np.array([cut.block_id(task) for task in range(tasks.tasks)], dtype=np.int64)
