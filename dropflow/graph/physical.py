"""The physical graph: drops as columns, edges as CSR arrays.

All instances of a logical node share a `Template`; a drop is one row of three int32 columns, and an edge is two int32
values, so that a million drops with two million edges take less than 40 MB. Everything else about a drop (its text id,
its index tuple) is computed on demand (`dropflow.graph.text_ids`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.drop_counts import MOST_PARTS
from dropflow.graph.templates import Kind, Link, Template

IntColumn = npt.NDArray[np.int32]
PointerColumn = npt.NDArray[np.int64]
FloatColumn = npt.NDArray[np.float64]
SecondsColumn = npt.NDArray[np.float32]
MOST_ROWS = 2**31 - 1
"""Drops or edges of a graph, and instances of a logical node: their numbers must fit into 32 bits with a sign."""
_MOST_INSTANCES = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Adjacency:
    """Neighbours of every drop in compressed sparse rows.

    Attributes
    ----------
    ptr : int64 array, shape (drops + 1,)
        The neighbours of drop ``i`` are ``neighbour[ptr[i]:ptr[i + 1]]``.
    neighbour : int32 array, shape (edges,)
        The drop at the other end.
    link : int32 array, shape (edges,)
        Row of `PhysicalGraph.links` that the edge was expanded from.
    """

    ptr: PointerColumn
    neighbour: IntColumn
    link: IntColumn

    def of(self, drop: int) -> list[int]:
        """Return the neighbours of one drop."""
        drops: list[int] = self.neighbour[self.ptr[drop] : self.ptr[drop + 1]].tolist()
        return drops


@dataclass(frozen=True)
class PhysicalGraph:
    """A whole physical graph, or the part of it that one node holds.

    Attributes
    ----------
    name : str
        Name of the logical graph.
    prefix : str
        First part of every text id: ``<prefix>_<template key>_<instance index>``.
    templates, links : tuples
        The templates and links that the columns refer to.
    template : int32 array, shape (drops,)
        Row of the drop's template.
    instance : int32 array, shape (drops,)
        Position in the row-major index space of that template.
    part : int32 array, shape (drops,)
        Partition; all zero until the graph is partitioned.
    successors : Adjacency
        Edges, sorted by source; within a source by link, then by target (by its `rank`, if there are ranks).
    places : tuple of str
        Name of the node of each part; empty until the graph is placed.
    oids : tuple of str or None
        Text ids of the drops, row by row, for graphs of other programs; None if they are computed.
    meta : dict
        Notes about the graph.
    rank : int32 array, shape (drops,), or None
        Position of each drop among the inputs or outputs of another drop, if that is not the order of the rows: a
        slice of a graph may have its rows in any order (`dropflow.graph.slices`).
    priority : int32 array, shape (drops,), or None
        Of the applications of a node that are ready, those with the highest number start first; None for the order in
        which they become ready.
    planned : pair of float32 arrays, shape (drops,), or None
        When each application begins and ends in the plan that the graph was submitted with, in seconds from its
        beginning; NaN for data. None without a plan.
    weight : float array, shape (drops,), or None
        Measured weight of each drop, in place of that of its template: seconds of an application, bytes of data. For
        planning only; files do not have it.
    """

    name: str
    prefix: str
    templates: tuple[Template, ...]
    links: tuple[Link, ...]
    template: IntColumn
    instance: IntColumn
    part: IntColumn
    successors: Adjacency
    places: tuple[str, ...] = ()
    oids: tuple[str, ...] | None = None
    meta: dict[str, str] = field(default_factory=dict)
    rank: IntColumn | None = None
    priority: IntColumn | None = None
    planned: tuple[SecondsColumn, SecondsColumn] | None = None
    weight: FloatColumn | None = None

    @property
    def drops(self) -> int:
        """Number of drops."""
        return len(self.template)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.successors.neighbour)

    def _repr_html_(self) -> str:
        """Return its size and the picture of its logical graph, for notebooks."""
        from dropflow.graph.notebook import graph_html  # noqa: PLC0415 - only notebooks need it

        return graph_html(self)

    @cached_property
    def joined_pairs(self) -> int:
        """Number of pairs of drops with an edge; less than `edges` if several links join the same drops."""
        ends = [(link.source, link.target) for link in self.links]
        if len(set(ends)) == len(ends):
            return self.edges
        sources = np.repeat(np.arange(self.drops, dtype=np.int64), np.diff(self.successors.ptr))
        return len(np.unique(sources * max(self.drops, 1) + self.successors.neighbour))

    @property
    def parts(self) -> int:
        """Number of parts, at least one."""
        return int(self.part.max(initial=0)) + 1

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        """`Kind` of every template, shape (templates,); index it with `template` for the kinds of all drops."""
        return np.array([template.kind for template in self.templates], dtype=np.uint8)

    @cached_property
    def drop_weights(self) -> FloatColumn:
        """Weight of each drop, shape (drops,): what was measured, or else the estimate of its template, at least 0."""
        if self.weight is not None:
            return self.weight
        column = np.array([max(template.weight, 0.0) for template in self.templates], dtype=np.float64)[self.template]
        column.flags.writeable = False
        return column

    @cached_property
    def template_seconds(self) -> FloatColumn:
        """Estimated execution time of every template, shape (templates,); 0 for data."""
        seconds = [max(template.weight, 0.0) if template.kind is Kind.APP else 0.0 for template in self.templates]
        column = np.array(seconds, dtype=np.float64)
        column.flags.writeable = False
        return column

    @cached_property
    def predecessors(self) -> Adjacency:
        """Edges seen from their targets, sorted by target; within a target by link, then by source (by its `rank`).

        This is the order in which an application sees its inputs.
        """
        out = self.successors
        sources = np.repeat(np.arange(self.drops, dtype=np.int32), np.diff(out.ptr))
        ptr = np.zeros(self.drops + 1, dtype=np.int64)
        np.cumsum(np.bincount(out.neighbour, minlength=self.drops), out=ptr[1:])
        # Successors are sorted by source, and the sort is stable: the remaining key is (target, link), packed. If it is
        # ascending already (chains, scatters), no sort is needed.
        key = out.neighbour.astype(np.int64) * max(len(self.links), 1) + out.link
        if self.rank is not None:
            order = np.lexsort((self.rank[sources], key))
            neighbour, link = sources[order], out.link[order]
        elif (key[1:] >= key[:-1]).all():
            neighbour, link = sources, out.link
        else:
            order = np.argsort(key, kind="stable")
            neighbour, link = sources[order], out.link[order]
        for column in (ptr, neighbour, link):
            column.flags.writeable = False
        return Adjacency(ptr=ptr, neighbour=neighbour, link=link)


# Checks of the columns of a physical graph.


def faults(graph: PhysicalGraph) -> list[str]:
    """Return what is wrong with the columns of a graph, one text for each error; empty if they are valid.

    For graphs from files and other processes, and for tests. Takes a few passes over the columns.
    """
    return _row_faults(graph) or _edge_faults(graph)


def _row_faults(graph: PhysicalGraph) -> list[str]:
    row_faults = []
    if not all(math.isfinite(template.error_threshold) for template in graph.templates):
        row_faults.append("a template has an error threshold that is not a number")
    drops, templates = graph.drops, len(graph.templates)
    parts = len(graph.places) or MOST_PARTS
    row_faults += [
        f"column {name} has {len(column)} rows, not {drops}"
        for name, column in _columns(graph).items()
        if len(column) != drops
    ]
    if graph.oids is not None and len(graph.oids) != drops:
        row_faults.append(f"there are {len(graph.oids)} text ids for {drops} drops")
    if row_faults or not drops:
        return row_faults
    if not (graph.template.min() >= 0 and graph.template.max() < templates):
        return ["a drop has a template that does not exist"]
    sizes = np.array([_size(template) for template in graph.templates], dtype=np.int64)
    if not (graph.instance.min() >= 0 and (graph.instance < sizes[graph.template]).all()):
        row_faults.append("a drop lies outside the index space of its template")
    elif graph.oids is None and _repeats(graph):
        row_faults.append("two drops are the same instance of a template")
    if graph.oids is not None and len(set(graph.oids)) != drops:
        row_faults.append("two drops have the same text id")
    if not (graph.part.min() >= 0 and graph.part.max() < parts):
        row_faults.append("a drop is in a part that does not exist")
    return row_faults


def _columns(graph: PhysicalGraph) -> dict[str, npt.NDArray[Any]]:
    """Return the columns that must have as many rows as the one of templates."""
    columns: dict[str, npt.NDArray[Any]] = {"instance": graph.instance, "part": graph.part}
    if graph.priority is not None:
        columns["priority"] = graph.priority
    if graph.planned is not None:
        columns["planned_begin"], columns["planned_end"] = graph.planned
    return columns


def _size(template: Template) -> int:
    """Return the number of instances; 0 for a template with invalid axes."""
    size = 1
    for length in template.shape:
        size *= max(length, 0)
    return size if size <= _MOST_INSTANCES else 0


def _repeats(graph: PhysicalGraph) -> bool:
    same = graph.template[1:] == graph.template[:-1]
    if bool(((graph.template[1:] > graph.template[:-1]) | (same & (graph.instance[1:] > graph.instance[:-1]))).all()):
        return False
    keys = (graph.template.astype(np.int64) << 32) | graph.instance
    return len(np.unique(keys)) != graph.drops


def _edge_faults(graph: PhysicalGraph) -> list[str]:
    ptr, target, link = graph.successors.ptr, graph.successors.neighbour, graph.successors.link
    if len(ptr) != graph.drops + 1 or len(link) != len(target):
        return ["the columns of the edges differ in length"]
    edge_faults = _link_faults(graph)
    if ptr[0] != 0 or ptr[-1] != len(target) or not (ptr[1:] >= ptr[:-1]).all():
        edge_faults.append("the pointers to the edges are not ascending")
    if len(target) and not (target.min() >= 0 and target.max() < graph.drops):
        edge_faults.append("an edge ends on a drop that does not exist")
    if len(link) and not (link.min() >= 0 and link.max() < len(graph.links)):
        edge_faults.append("an edge belongs to a link that does not exist")
    return edge_faults or _order_faults(graph)


def _link_faults(graph: PhysicalGraph) -> list[str]:
    rows = len(graph.templates)
    if any(not (0 <= link.source < rows and 0 <= link.target < rows) for link in graph.links):
        return ["a link ends on a template that does not exist"]
    if any(graph.templates[link.source].kind == graph.templates[link.target].kind for link in graph.links):
        return ["a link joins two templates of the same kind"]
    return []


def _order_faults(graph: PhysicalGraph) -> list[str]:
    order_faults: list[str] = []
    target, link = graph.successors.neighbour, graph.successors.link
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))
    sources = np.fromiter((link.source for link in graph.links), dtype=np.int32, count=len(graph.links))
    targets = np.fromiter((link.target for link in graph.links), dtype=np.int32, count=len(graph.links))
    if not ((graph.template[source] == sources[link]).all() and (graph.template[target] == targets[link]).all()):
        order_faults.append("an edge joins drops of other templates than its link")
    rank = target if graph.rank is None else graph.rank[target]
    later = (link[1:] > link[:-1]) | ((link[1:] == link[:-1]) & (rank[1:] >= rank[:-1]))
    if not (later | (source[1:] > source[:-1])).all():
        order_faults.append("the edges of a drop are not sorted")
    return order_faults


# Chains of applications that run as one unit: each one hands its only output to the next one.
#
# Application B *follows* application A if the only output of A is a data drop with no other producer, whose only
# consumer is B, and that is the only input of B. `follower_column` has the rest of the rule.

_FUSE, _NO = "fuse", "no"


def without_fusion(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph with the note that its chains do not run as units. Files keep it."""
    return replace(graph, meta={**graph.meta, _FUSE: _NO})


def with_fusion(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph without the note of `without_fusion`."""
    return replace(graph, meta={name: text for name, text in graph.meta.items() if name != _FUSE})


def is_fused(graph: PhysicalGraph) -> bool:
    """Return whether chains of the graph run as units: unless it has a note against that."""
    return graph.meta.get(_FUSE) != _NO


def follower_column(
    graph: PhysicalGraph, groups: Sequence[int], place: npt.NDArray[Any] | None = None
) -> IntColumn | None:
    """Return the application that follows each application in its chain.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph.
    groups : sequence of int, shape (templates,)
        For an application, the group of templates that may be in one chain; 0 for one that is in none. For data, 1 if
        it may be handed from one application to the next.
    place : array, shape (drops,), optional
        Where each drop is. A chain is in one place.

    Returns
    -------
    int32 array, shape (drops,), or None
        Row of the application that follows; -1 for none. None if there are no chains, or the graph is not fused.
    """
    if not is_fused(graph) or not any(groups):
        return None
    out, before = graph.successors, graph.predecessors
    outputs, inputs = np.diff(out.ptr), np.diff(before.ptr)
    group = np.array(groups, dtype=np.int32)[graph.template]
    # What tolerates the failure of its only input runs without it, and what is kept moves to its place.
    tolerant = np.array([template.error_threshold >= 100.0 for template in graph.templates])[graph.template]
    kept = np.array([template.persist is True for template in graph.templates])[graph.template]
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    data = np.flatnonzero(is_data & ~kept & (group > 0) & (outputs == 1) & (inputs == 1))
    first, then = before.neighbour[before.ptr[data]], out.neighbour[out.ptr[data]]
    fits = (outputs[first] == 1) & (inputs[then] == 1) & (group[first] == group[then]) & (group[first] > 0)
    fits &= ~tolerant[then]
    if place is not None:
        fits &= (place[first] == place[data]) & (place[data] == place[then])
    if not fits.any():
        return None
    column = np.full(graph.drops, -1, dtype=np.int32)
    column[first[fits]] = then[fits]
    column.flags.writeable = False
    return column
