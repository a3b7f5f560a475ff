"""Checks of the columns of a physical graph."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Template

__all__ = ["faults"]

_MOST_PARTS = 1 << 20
_MOST_INSTANCES = np.iinfo(np.int32).max


def faults(graph: PhysicalGraph) -> list[str]:
    """Return what is wrong with the columns of a graph, one text for each error; empty if they are valid.

    For graphs from files and other processes, and for tests. Takes a few passes over the columns.
    """
    return _row_faults(graph) or _edge_faults(graph)


def _row_faults(graph: PhysicalGraph) -> list[str]:
    found = []
    if not all(math.isfinite(template.error_threshold) for template in graph.templates):
        found.append("a template has an error threshold that is not a number")
    drops, templates = graph.drops, len(graph.templates)
    parts = len(graph.places) or _MOST_PARTS
    found += [
        f"column {name} has {len(column)} rows, not {drops}"
        for name, column in _columns(graph).items()
        if len(column) != drops
    ]
    if graph.oids is not None and len(graph.oids) != drops:
        found.append(f"there are {len(graph.oids)} text ids for {drops} drops")
    if found or not drops:
        return found
    if not (graph.template.min() >= 0 and graph.template.max() < templates):
        return ["a drop has a template that does not exist"]
    sizes = np.array([_size(template) for template in graph.templates], dtype=np.int64)
    if not (graph.instance.min() >= 0 and (graph.instance < sizes[graph.template]).all()):
        found.append("a drop lies outside the index space of its template")
    elif graph.oids is None and _repeats(graph):
        found.append("two drops are the same instance of a template")
    if graph.oids is not None and len(set(graph.oids)) != drops:
        found.append("two drops have the same text id")
    if not (graph.part.min() >= 0 and graph.part.max() < parts):
        found.append("a drop is in a part that does not exist")
    return found


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
    found = _link_faults(graph)
    if ptr[0] != 0 or ptr[-1] != len(target) or not (ptr[1:] >= ptr[:-1]).all():
        found.append("the pointers to the edges are not ascending")
    if len(target) and not (target.min() >= 0 and target.max() < graph.drops):
        found.append("an edge ends on a drop that does not exist")
    if len(link) and not (link.min() >= 0 and link.max() < len(graph.links)):
        found.append("an edge belongs to a link that does not exist")
    return found or _order_faults(graph)


def _link_faults(graph: PhysicalGraph) -> list[str]:
    rows = len(graph.templates)
    if any(not (0 <= link.source < rows and 0 <= link.target < rows) for link in graph.links):
        return ["a link ends on a template that does not exist"]
    if any(graph.templates[link.source].kind == graph.templates[link.target].kind for link in graph.links):
        return ["a link joins two templates of the same kind"]
    return []


def _order_faults(graph: PhysicalGraph) -> list[str]:
    found: list[str] = []
    target, link = graph.successors.neighbour, graph.successors.link
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))
    sources = np.fromiter((link.source for link in graph.links), dtype=np.int32, count=len(graph.links))
    targets = np.fromiter((link.target for link in graph.links), dtype=np.int32, count=len(graph.links))
    if not ((graph.template[source] == sources[link]).all() and (graph.template[target] == targets[link]).all()):
        found.append("an edge joins drops of other templates than its link")
    rank = target if graph.rank is None else graph.rank[target]
    later = (link[1:] > link[:-1]) | ((link[1:] == link[:-1]) & (rank[1:] >= rank[:-1]))
    if not (later | (source[1:] > source[:-1])).all():
        found.append("the edges of a drop are not sorted")
    return found
