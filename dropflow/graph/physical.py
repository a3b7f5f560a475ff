"""The physical graph: drops as columns, edges as CSR arrays.

All instances of a logical node share a `Template`; a drop is one row of three int32 columns, and an edge is two int32
values, so that a million drops with two million edges take less than 40 MB. Everything else about a drop (its text id,
its index tuple) is computed on demand (`dropflow.graph.text_ids`).
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dropflow.graph.templates import Kind, Link, Template

__all__ = ["Adjacency", "FloatColumn", "IntColumn", "PhysicalGraph", "PointerColumn", "SecondsColumn"]

IntColumn = npt.NDArray[np.int32]
PointerColumn = npt.NDArray[np.int64]
FloatColumn = npt.NDArray[np.float64]
SecondsColumn = npt.NDArray[np.float32]


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
        from dropflow.notebook import graph_html  # noqa: PLC0415 - only notebooks need it

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
        column = np.array([max(one.weight, 0.0) for one in self.templates], dtype=np.float64)[self.template]
        column.flags.writeable = False
        return column

    @cached_property
    def template_seconds(self) -> FloatColumn:
        """Estimated execution time of every template, shape (templates,); 0 for data."""
        seconds = [max(one.weight, 0.0) if one.kind is Kind.APP else 0.0 for one in self.templates]
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
        # Successors are sorted by source, and the sort is stable: the remaining key is (target, link), packed.
        # If it is ascending already (chains, scatters), no sort is needed.
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
