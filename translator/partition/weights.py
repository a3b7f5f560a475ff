"""Weights for partitioners: loads of drops, and volumes of edges."""

import math

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.problems import Problem
from translator.problem_codes import problem

__all__ = ["check_weights", "edge_sources", "edge_volumes", "loads", "scaled"]

Floats = npt.NDArray[np.float64]


def check_weights(graph: PhysicalGraph) -> list[Problem]:
    """Return PT001 for every template with a negative or infinite weight."""
    return [
        problem(
            "PT001",
            f"the weight of {template.name!r} is {template.weight}",
            where=template.key,
            hint="execution_time and data_volume are finite numbers from 0",
        )
        for template in graph.templates
        if not (math.isfinite(template.weight) and template.weight >= 0)
    ]


def loads(graph: PhysicalGraph) -> Floats:
    """Return the work of every drop in core seconds, shape (drops,).

    That of an application is its seconds times its cores, that of a data drop is 0. If no application has a weight,
    that of every drop is 1.
    """
    cores = [max(one.cpus, 1) if one.kind is Kind.APP else 0 for one in graph.templates]
    load: Floats = graph.drop_weights * np.array(cores, dtype=np.float64)[graph.template]
    return load if load.any() else np.ones(graph.drops)


def edge_volumes(graph: PhysicalGraph) -> Floats:
    """Return the volume of the data drop of every edge, shape (edges,), in the unit of the graph."""
    source, target = edge_sources(graph), graph.successors.neighbour
    from_data = graph.kinds[graph.template[source]] == Kind.DATA
    volumes: Floats = graph.drop_weights[np.where(from_data, source, target)]
    return volumes


def edge_sources(graph: PhysicalGraph) -> IntColumn:
    """Return the source of every edge, shape (edges,)."""
    return np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))


def scaled(values: Floats, *, least: int, most: int) -> npt.NDArray[np.int64]:
    """Return `values` scaled to integers, the largest being `most` and none below `least`."""
    top = float(values.max(initial=0.0))
    if top <= 0:
        return np.full(len(values), max(least, 1), dtype=np.int64)
    whole = bool((values == np.floor(values)).all()) and top <= most
    # Integers are not scaled, so that a result can be checked by hand.
    integers = values if whole else np.rint(values * (most / top))
    return np.maximum(integers.astype(np.int64), least)
