"""The partitioners by name, behind one signature."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import msgspec
import numpy as np

from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.options import PartitionOptions
from translator.partition.blocks import blocks
from translator.partition.metis import metis
from translator.partition.weights import check_weights
from translator.problems import Problem, problem, refuse_errors

__all__ = ["ALGORITHMS", "check_partition", "partition"]

Partitioner = Callable[[PhysicalGraph, PartitionOptions], IntColumn]

_ELSEWHERE = frozenset({"mysarkar", "min_num_parts", "pso", "sarkar", "heft", "kahypar"})
"""Names that people know from DALiuGE or other systems, and that nothing here answers to yet."""


def _none(graph: PhysicalGraph, _options: PartitionOptions) -> IntColumn:
    return np.zeros(graph.drops, dtype=np.int32)


ALGORITHMS: Mapping[str, Partitioner] = MappingProxyType({"metis": metis, "blocks": blocks, "none": _none})
"""What partitions, by name. Each takes 1 to `drops` parts and leaves none of them empty (``none`` makes one part)."""


def check_partition(graph: PhysicalGraph, options: PartitionOptions) -> tuple[Problem, ...]:
    """Everything that speaks against partitioning this graph so: PT001 and PT002 are errors, PT003 is a warning."""
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
        hint = f"the graph is cut into {graph.drops} parts"
        found.append(problem("PT003", text, where="parts", hint=hint))
    return tuple(found)


def partition(graph: PhysicalGraph, options: PartitionOptions) -> PhysicalGraph:
    """The same graph, cut into parts; an earlier placement is forgotten.

    Where there are fewer drops than parts, every drop becomes a part of its own.

    Raises
    ------
    BadGraphError
        PT001 (a weight), PT002 (the options), or LG050 (a cycle).
    """
    refuse_errors(check_partition(graph, options))
    parts = min(options.parts, graph.drops)
    chosen = ALGORITHMS[options.algorithm] if parts > 1 else _none
    part = chosen(graph, msgspec.structs.replace(options, parts=max(parts, 1)))
    part.flags.writeable = False
    return replace(graph, part=part, places=())
