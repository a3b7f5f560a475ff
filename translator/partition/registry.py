"""The partitioners by name."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import msgspec
import numpy as np

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.problems import Problem, refuse_errors
from translator.partition.blocks import blocks
from translator.partition.exclusive import check_exclusive, partition_groups
from translator.partition.metis import metis
from translator.partition.weights import check_weights
from translator.problem_codes import problem
from translator.stage_options import PartitionOptions

__all__ = ["ALGORITHMS", "check_partition", "partition"]

Partitioner = Callable[[PhysicalGraph, PartitionOptions], IntColumn]

_ELSEWHERE = frozenset({"mysarkar", "min_num_parts", "pso", "sarkar", "heft", "kahypar"})
"""Partitioners of DALiuGE and other systems that dropflow does not have."""


def _none(graph: PhysicalGraph, _options: PartitionOptions) -> IntColumn:
    return np.zeros(graph.drops, dtype=np.int32)


ALGORITHMS: Mapping[str, Partitioner] = MappingProxyType({"metis": metis, "blocks": blocks, "none": _none})
"""Partitioners by name. Each makes 1 to `drops` parts, none of them empty (``none`` makes one part).

`partition` keeps the constraints of placement groups for them.
"""


def check_partition(graph: PhysicalGraph, options: PartitionOptions) -> tuple[Problem, ...]:
    """Return all problems of partitioning a graph: errors PT001 and PT002, warnings PT003 and PT004."""
    found = check_weights(graph)
    names = ", ".join(sorted(ALGORITHMS))
    if options.algorithm not in ALGORITHMS:
        known = "is not available here" if options.algorithm in _ELSEWHERE else "is unknown"
        text = f"partitioner {options.algorithm!r} {known}"
        found.append(problem("PT002", text, where="algorithm", hint=f"choose one of {names}"))
    if options.parts < 1:
        found.append(problem("PT002", f"{options.parts} parts", where="parts", hint="give at least 1 part"))
    if not (math.isfinite(options.imbalance) and options.imbalance >= 0):
        text = f"imbalance {options.imbalance}"
        found.append(problem("PT002", text, where="imbalance", hint="give a percentage from 0"))
    if options.parts > max(graph.drops, 1):
        text = f"{graph.drops} drops cannot fill {options.parts} parts"
        hint = f"the graph is partitioned into {graph.drops} parts"
        found.append(problem("PT003", text, where="parts", hint=hint))
    if options.algorithm != "none":
        found += check_exclusive(graph, options.parts)
    return tuple(found)


def partition(graph: PhysicalGraph, options: PartitionOptions) -> PhysicalGraph:
    """Partition a graph. An earlier placement is removed.

    If there are fewer drops than parts, every drop becomes a part. The drops of an ExclusiveForceNode share their part
    with no others, if there are enough parts; the ranks of an MPI job are in one part.

    Raises
    ------
    BadGraphError
        PT001 (a weight), PT002 (the options), or LG050 (a cycle).
    """
    refuse_errors(check_partition(graph, options))
    parts = min(options.parts, graph.drops)
    chosen = ALGORITHMS[options.algorithm] if parts > 1 else _none
    options = msgspec.structs.replace(options, parts=max(parts, 1))
    part = chosen(graph, options) if chosen is _none else partition_groups(graph, options, chosen)
    part.flags.writeable = False
    return replace(graph, part=part, places=())
