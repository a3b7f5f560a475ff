"""Sizes of a logical graph before it is unrolled: counts, volumes, the critical path, and how much runs at a time.

Counts and sums are products of the outline. Times are those of the unrolled graph; if that is too large, of the graph
with one copy of each scatter, as if copies did not wait for each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.order import longest_before
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template
from translator.expressions import with_estimates
from translator.logical import LogicalGraph, LogicalNode
from translator.options import UnrollOptions
from translator.unroll import GraphOutline, outline_of, unroll

MOST_UNROLLED = 2_000_000
"""Drops and edges of a graph up to which it is unrolled to compute its times: about a second."""

_COUNTED = 10**18
"""Copies of a node that are counted at most: products with weights stay numbers."""

_SINGLE: Mapping[str, tuple[str, ...]] = {"Scatter": ("num_of_copies",), "MKN": ("k", "n")}
_Floats = npt.NDArray[np.float64]
_DROP_BYTES = 4 + 4 + 4 + 8
"""Bytes of a drop in the columns of a physical graph."""
_EDGE_BYTES = 4 + 4
"""Bytes of an edge in the columns of a physical graph."""


class ParallelPhase(msgspec.Struct, frozen=True):
    """A time in which the same number of applications runs.

    Attributes
    ----------
    start, end : float
        Seconds since the start of the session, with as many processors as can be used.
    running : int
        Applications that run.
    cores : int
        Processors that they use.
    """

    start: float
    end: float
    running: int
    cores: int


class GraphSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a physical graph, from its logical graph.

    Attributes
    ----------
    drops, data_drops, app_drops, edges : int
        Sizes of the physical graph.
    volume : float
        Sum of the volumes of all data drops, in the unit of the graph.
    work : float
        Sum of execution times of all applications, each times its processors, in core seconds.
    critical_path : float or None
        Least time of a session in seconds; None if loops make the graph too large to compute it.
    phases : tuple of ParallelPhase
        The degree of parallelism over time.
    """

    drops: int
    data_drops: int
    app_drops: int
    edges: int
    volume: float
    work: float
    critical_path: float | None = None
    phases: tuple[ParallelPhase, ...] = ()

    @property
    def most_cores(self) -> int:
        """Largest number of processors in use at a time."""
        return max((phase.cores for phase in self.phases), default=0)

    @property
    def mean_cores(self) -> float:
        """Processors that would be busy on average: work over the critical path."""
        return self.work / self.critical_path if self.critical_path else 0.0


def graph_sizes(graph: LogicalGraph, outline: GraphOutline, options: UnrollOptions | None = None) -> GraphSizes:
    """Return what a graph will become.

    Parameters
    ----------
    graph : LogicalGraph
        The graph, with its values filled in.
    outline : GraphOutline
        Its outline, without errors.
    options : UnrollOptions, optional
        The options of the outline.

    Raises
    ------
    BadGraphError
        Drops wait for each other. Outlines do not show that.
    """
    unrolled = _unrolled(outline)
    if unrolled is not None:
        outline = replace(outline, templates=unrolled.templates)  # with the means of their drops
    sizes = outline.sizes
    counted = list(zip(sizes, outline.templates, strict=True))
    data = sum(size for size, template in counted if template.kind is Kind.DATA)
    plain = GraphSizes(
        drops=outline.drops,
        data_drops=data,
        app_drops=outline.drops - data,
        edges=outline.edges,
        volume=sum(min(size, _COUNTED) * _weight(template, Kind.DATA) for size, template in counted),
        work=sum(min(size, _COUNTED) * _weight(template, Kind.APP) * template.cpus for size, template in counted),
    )
    # A gather that feeds back to its scatter makes copies wait for each other.
    if unrolled is None and not any(edges.chunk_of_source for edges in outline.maps):
        unrolled = _unrolled(replace(outline_of(_single(graph), options), meta=outline.meta))
    if unrolled is None:
        return plain
    times = _times(unrolled, {template.key: size for size, template in counted})
    return msgspec.structs.replace(plain, critical_path=times.end, phases=times.phases)


def _weight(template: Template, kind: Kind) -> float:
    return max(template.weight, 0.0) if template.kind is kind else 0.0


def _unrolled(outline: GraphOutline) -> PhysicalGraph | None:
    """Return the physical graph with its estimates; None if it is too large."""
    if max(outline.drops, outline.edges) > MOST_UNROLLED or any(
        problem.severity.value == "error" for problem in outline.problems
    ):
        return None
    return with_estimates(unroll(outline))


def _single(graph: LogicalGraph) -> LogicalGraph:
    return msgspec.structs.replace(graph, nodes=tuple(_with_one_copy(node) for node in graph.nodes))


def _with_one_copy(node: LogicalNode) -> LogicalNode:
    names = _SINGLE.get(node.category, ())
    if not any(field.name in names for field in node.fields):
        return node
    fields = tuple(
        msgspec.structs.replace(field, value=1) if field.name in names and not _is_zero(field.effective) else field
        for field in node.fields
    )
    return msgspec.structs.replace(node, fields=fields)


def _is_zero(value: Any) -> bool:
    try:
        return float(value) == 0
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True)
class _Times:
    end: float
    phases: tuple[ParallelPhase, ...]


def _times(graph: PhysicalGraph, sizes: Mapping[str, int]) -> _Times:
    """Return when applications run if each starts as early as possible, counted with all copies."""
    if not graph.drops:
        return _Times(0.0, ())
    seconds = np.where(graph.kinds[graph.template] == np.uint8(Kind.APP), graph.drop_weights, 0.0)
    start: _Floats = longest_before(graph, seconds)
    here = np.bincount(graph.template, minlength=len(graph.templates))
    copies = np.array(
        [
            min(sizes.get(template.key, 0), _COUNTED) / max(count, 1)
            for template, count in zip(graph.templates, here, strict=True)
        ]
    )
    cpus = np.array([template.cpus for template in graph.templates], dtype=np.float64)
    running = np.flatnonzero(seconds > 0)
    template = graph.template[running]
    change = copies[template]
    at = np.concatenate([start[running], start[running] + seconds[running]])
    moments, place = np.unique(np.round(at, 9), return_inverse=True)
    steps = [
        np.cumsum(np.bincount(place, weights=np.concatenate([delta, -delta]), minlength=len(moments)))
        for delta in (change, change * cpus[template])
    ]
    phases = tuple(
        ParallelPhase(
            float(moments[row]), float(moments[row + 1]), round(float(steps[0][row])), round(float(steps[1][row]))
        )
        for row in range(len(moments) - 1)
    )
    return _Times(float((start + seconds).max()), phases)


# The size of a physical graph, computed from its outline before it is made.


class NodeEstimate(msgspec.Struct, frozen=True):
    """One logical node: its key in text ids, its name, and its number of drops."""

    key: str
    name: str
    drops: int


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a physical graph. Numbers are Python integers and never overflow.

    Attributes
    ----------
    drops, data_drops, app_drops : int
        Numbers of drops.
    edges : int
        Number of edges.
    bytes : int
        Memory of the columns: 20 bytes for each drop and 8 for each edge. Unrolling needs about twice as much.
    nodes : tuple of NodeEstimate
        The logical nodes, in the order of the file.
    """

    drops: int
    data_drops: int
    app_drops: int
    edges: int
    bytes: int
    nodes: tuple[NodeEstimate, ...]

    @property
    def largest(self) -> tuple[NodeEstimate, ...]:
        """The nodes by number of drops, largest first."""
        return tuple(sorted(self.nodes, key=lambda node: -node.drops))


def estimate(outline: GraphOutline) -> Estimate:
    """Return the size of the physical graph of an outline.

    The size is exact. If it exceeds the limits, the outline has the problem LG120.
    """
    sizes = outline.sizes
    data = sum(size for size, template in zip(sizes, outline.templates, strict=True) if template.kind is Kind.DATA)
    return Estimate(
        drops=outline.drops,
        data_drops=data,
        app_drops=outline.drops - data,
        edges=outline.edges,
        bytes=outline.drops * _DROP_BYTES + outline.edges * _EDGE_BYTES,
        nodes=tuple(
            NodeEstimate(template.key, template.name, size)
            for template, size in zip(outline.templates, sizes, strict=True)
        ),
    )
