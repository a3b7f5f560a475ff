"""Edges between boxes, the layer of each box, and the order of the boxes in a layer."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph

_LAYERS_SWEEPS = 6
"""Sweeps over the layers, forwards and backwards, in which the boxes are ordered."""


@dataclass(frozen=True)
class Pairs:
    """The pairs of different boxes with edges between them.

    Attributes
    ----------
    source, target : int32 arrays, shape (pairs,)
        Boxes, sorted by source, then by target.
    edges, cut : int32 arrays, shape (pairs,)
        Number of edges from the one to the other, and of those that join two parts.
    """

    source: IntColumn
    target: IntColumn
    edges: IntColumn
    cut: IntColumn


def pairs(graph: PhysicalGraph, box: IntColumn, boxes: int) -> Pairs:
    """Return the pairs of boxes with edges between them."""
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr))
    target = graph.successors.neighbour
    begin, end = box[source], box[target]
    outer = begin != end
    key = begin[outer].astype(np.int64) * max(boxes, 1) + end[outer]
    is_cut = graph.part[source[outer]] != graph.part[target[outer]]
    pair_keys, where = np.unique(key, return_inverse=True)
    count = np.bincount(where, minlength=len(pair_keys))
    cut = np.bincount(where[is_cut], minlength=len(pair_keys))
    start, stop = np.divmod(pair_keys, max(boxes, 1))
    columns = (column.astype(np.int32) for column in (start, stop, count, cut))
    return Pairs(*columns)


def layers(arrows: Pairs, box: IntColumn, boxes: int, level: IntColumn) -> IntColumn:
    """Return the layer of each box, from the left: the length of the longest path of boxes to it.

    Boxes may depend on each other in both directions. An edge counts if it leads to a box whose drops have, on average,
    a higher level.
    """
    total = np.maximum(np.bincount(box, minlength=boxes), 1)
    mean = np.bincount(box, weights=level, minlength=boxes) / total
    rank = np.empty(boxes, dtype=np.int64)
    rank[np.lexsort((np.arange(boxes), mean))] = np.arange(boxes)
    forward = rank[arrows.source] < rank[arrows.target]
    source, target = arrows.source[forward], arrows.target[forward]
    order = np.argsort(rank[source], kind="stable")
    layer = [0] * boxes
    for begin, end in zip(source[order].tolist(), target[order].tolist(), strict=True):
        if layer[end] <= layer[begin]:
            layer[end] = layer[begin] + 1
    return np.array(layer, dtype=np.int32)


def ordered(arrows: Pairs, layer: IntColumn) -> npt.NDArray[np.int64]:
    """Return all boxes by layer, and in a layer in an order in which few edges cross (barycentre, as in `cells`)."""
    boxes = len(layer)
    order = np.argsort(layer, kind="stable")
    if not boxes or not len(arrows.source):
        return order
    size = np.bincount(layer)
    first = np.cumsum(size) - size
    place = np.empty(boxes, dtype=np.float64)

    def number() -> None:
        place[order] = (np.arange(boxes) - first[layer[order]] + 0.5) / size[layer[order]]

    number()
    forward = layer[arrows.source] < layer[arrows.target]
    source, target, weight = arrows.source[forward], arrows.target[forward], arrows.edges[forward].astype(np.float64)
    for sweep in range(_LAYERS_SWEEPS):
        here, there = (target, source) if sweep % 2 == 0 else (source, target)
        total = np.bincount(here, weights=weight, minlength=boxes)
        mean = np.bincount(here, weights=weight * place[there], minlength=boxes) / np.maximum(total, 1e-9)
        value = np.where(total > 0, mean, place)
        order = np.lexsort((place, np.round(value, 9), layer))
        number()
    return order
