"""The work of a graph as columns: times, processors, memory and volumes of its drops."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.resource_needs import needs_of
from dropflow.graph.templates import Kind

__all__ = ["Bits", "Floats", "GraphWork", "work_of"]

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GraphWork:
    """What the drops of a graph need.

    Attributes
    ----------
    drops : int
        Number of drops.
    is_app : bool array, shape (drops,)
        Which drops are applications.
    seconds : float array, shape (drops,)
        Execution time on a node of speed 1; 0 for data.
    cpus : int32 array, shape (drops,)
        Processors, at least 1; 0 for data.
    memory : float array, shape (drops,)
        Bytes of memory that an application declares; 0 for data.
    volume : float array, shape (drops,)
        Bytes of a data drop; 0 for applications.
    source, target : int32 arrays, shape (edges,)
        Ends of the edges, sorted by source.
    """

    drops: int
    is_app: Bits
    seconds: Floats
    cpus: IntColumn
    memory: Floats
    volume: Floats
    source: IntColumn
    target: IntColumn

    @cached_property
    def work(self) -> Floats:
        """Core seconds of each drop, shape (drops,)."""
        found: Floats = self.seconds * self.cpus
        return found

    @cached_property
    def is_made(self) -> Bits:
        """Which drops an application writes, shape (drops,)."""
        found = np.zeros(self.drops, dtype=np.bool_)
        found[self.target[~self.is_app[self.target]]] = True
        return found

    def without_given(self) -> "GraphWork | None":
        """Return the work as it is where data that no application makes need not move; None if there are none."""
        given = ~self.is_app & ~self.is_made & (self.volume > 0)
        return replace(self, volume=np.where(given, 0.0, self.volume)) if given.any() else None

    @cached_property
    def apps(self) -> IntColumn:
        """The applications, ascending."""
        return np.flatnonzero(self.is_app).astype(np.int32)


def work_of(graph: PhysicalGraph) -> GraphWork:
    """Return the work of a graph, from its measured weights or those of its templates."""
    kinds = [template.kind is Kind.APP for template in graph.templates]

    def column(values: list[Any], dtype: Any) -> npt.NDArray[Any]:
        return np.array(values, dtype=dtype)[graph.template]

    pairs = list(zip(graph.templates, kinds, strict=True))
    is_app = column(kinds, np.bool_)
    weight = graph.drop_weights
    return GraphWork(
        drops=graph.drops,
        is_app=is_app,
        seconds=np.where(is_app, weight, 0.0),
        cpus=column([needs_of(one).cpus if app else 0 for one, app in pairs], np.int32),
        memory=column([needs_of(one).memory for one in graph.templates], np.float64),
        volume=np.where(is_app, 0.0, weight),
        source=np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr)),
        target=graph.successors.neighbour,
    )
