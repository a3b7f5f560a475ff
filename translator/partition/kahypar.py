"""Partition of the hypergraph of data with Mt-KaHyPar (L. Gottesbueren et al., ACM J. Exp. Algorithmics 2021).

A data drop that is read in ten parts moves nine or ten times, not as often as it has readers there. METIS counts edges;
here each data drop is a net, and the price, connectivity minus one, is what really moves. The partitions of METIS are
refined and combined with those of Mt-KaHyPar, so that the result moves no more than either.
"""

from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from dropflow.errors import MissingDependencyError
from dropflow.graph.order import topological_order
from dropflow.graph.physical import PhysicalGraph
from translator.partition.kahypar_process import Hypergraph, kahypar_cuts
from translator.partition.metis import filled, least_movement, metis_cuts, numbered
from translator.partition.planned_parts import PlannedParts, shares_of
from translator.partition.weights import scaled
from translator.planning.graph_work import work_of
from translator.planning.machines import Machines
from translator.planning.task_graph import TaskGraph, task_graph
from translator.stage_options import PartitionOptions

__all__ = ["has_kahypar", "kahypar"]

_MOST_LOAD = 1_000_000
_MOST_VOLUME = 1_000_000
_SMALL = 5_000
"""Graphs with at most so many tasks get several seeds."""
_SEEDS = 8


def has_kahypar() -> bool:
    """Whether Mt-KaHyPar is installed."""
    return find_spec("mtkahypar") is not None


def kahypar(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return parts between which the least bytes move.

    Raises
    ------
    MissingDependencyError
        Mt-KaHyPar is not installed.
    WorkerDiedError
        It ended without an answer.
    """
    if not has_kahypar():
        hint = "install it with `pip install dropflow[kahypar]`, or use metis"
        raise MissingDependencyError("the partitioner kahypar needs the package mtkahypar", hint=hint)
    tasks = task_graph(work_of(graph))
    order = topological_order(graph)
    part = np.arange(graph.drops, dtype=np.int32)
    if options.parts < graph.drops:
        found = metis_cuts(tasks, options, machines)
        if tasks.tasks > options.parts and len(tasks.nets.volume):
            found += _cuts(tasks, options, machines)
        part = tasks.expanded(least_movement(tasks, options, machines, found, thorough=True))
        part = filled(graph, part, options.parts, order)
    return PlannedParts(numbered(part, order, machines))


def _cuts(tasks: TaskGraph, options: PartitionOptions, machines: Machines) -> list[npt.NDArray[np.int64]]:
    """Return what Mt-KaHyPar finds; for small graphs with several seeds."""
    load = tasks.load if tasks.load.any() else np.ones(tasks.tasks)
    weights = scaled(load, least=0, most=_MOST_LOAD)
    shares, most = shares_of(machines), np.zeros(0, dtype=np.int64)
    if not np.allclose(shares, shares[0]):
        most = np.ceil(weights.sum() * shares * (1 + options.imbalance / 100.0)).astype(np.int64) + 1
    nets = tasks.nets
    volumes = scaled(nets.volume, least=1, most=_MOST_VOLUME)
    graph = Hypergraph(ptr=nets.ptr, task=nets.task, volumes=volumes, weights=weights)
    tries = _SEEDS if tasks.tasks <= _SMALL else 1
    return kahypar_cuts(graph, options.parts, imbalance=options.imbalance, most=most, seed=options.seed, tries=tries)
