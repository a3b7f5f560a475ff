"""Boxes of drops: one for each instance of a construct, each logical node, each node manager, island or part.

The boxes of constructs form a tree. A construct is either *open*: each of its instances has a box of its own, or a
range of instances has, if there are very many; or *closed*: its drops are in the box of the instance around it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import prod

import msgspec
import numpy as np

from dropflow.graph.order import levels
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Template

_Path = tuple[tuple[str, int], ...]
_OPEN_BOXES = 400
"""A construct with more instances than this is closed at first, or has boxes of ranges if it is in no other one."""
_MOST_BOXES = 3000
"""Most boxes of one opened construct. Beyond it, a box is a range of instances."""


class Construct(msgspec.Struct, frozen=True, kw_only=True):
    """A construct of the logical graph, as far as it has drops.

    Attributes
    ----------
    path : str
        Ids of the constructs around it and its own, with slashes between.
    name, kind : str
        As in `dropflow.graph.templates.Axis`.
    parent : int
        Row of the construct around it; -1 if there is none.
    instances : int
        How many there are, over all instances of the constructs around it.
    is_open : bool
        Whether its instances have boxes of their own.
    """

    path: str
    name: str
    kind: str
    parent: int
    instances: int
    is_open: bool


@dataclass(frozen=True)
class Boxes:
    """The box of each drop.

    Attributes
    ----------
    box : int32 array, shape (drops,)
        Row of the box of each drop.
    labels : tuple of str
        Name of each box.
    construct : int32 array, shape (boxes,)
        Row in `constructs` of the construct of each box; -1 for none.
    constructs : tuple of Construct
        Outer ones before those inside them. Empty if drops are not grouped by construct.
    """

    box: IntColumn
    labels: tuple[str, ...]
    construct: IntColumn
    constructs: tuple[Construct, ...] = ()


def boxes_by_construct(graph: PhysicalGraph, wanted: Mapping[int, bool] | None = None) -> Boxes:
    """Return one box for each instance of an open construct, and one for each logical node outside of constructs.

    Parameters
    ----------
    wanted : mapping of int to bool, optional
        Whether a construct is open, by its row in `Boxes.constructs`. The others are open if they have few instances.
    """
    wanted = wanted or {}
    constructs, shapes, rows = _constructs(graph, wanted)
    # Per template: the construct of its boxes, drops per box instance, and the first number of those boxes.
    labels: list[str] = []
    owners: list[int] = []
    stride, block, bases = [], [], []
    base: dict[int | str, int] = {}
    for template in graph.templates:
        row, depth = _shown(_path_of(template), constructs, rows)
        key = row if row >= 0 else template.key
        sizes = template.shape
        split = prod(sizes[:depth])
        ranged = _round(split / (_MOST_BOXES if depth > 1 or row in wanted else _OPEN_BOXES))
        if key not in base:
            base[key] = len(labels)
            box_labels = [template.name] if row < 0 else _labels(constructs[row], shapes[row][:depth], ranged)
            labels += box_labels
            owners += [row] * len(box_labels)
        bases.append(base[key])
        stride.append(max(prod(sizes[depth:]), 1) if depth else 0)
        block.append(ranged)
    strides, blocks, starts = (np.array(column, dtype=np.int64) for column in (stride, block, bases))
    outer = np.zeros(graph.drops, dtype=np.int64)
    split_rows = strides[graph.template] > 0
    split_template = graph.template[split_rows]
    outer[split_rows] = graph.instance[split_rows] // (strides * blocks)[split_template]
    box = starts[graph.template] + outer if len(graph.templates) else outer
    found_boxes = _compressed(box, labels, np.array(owners, dtype=np.int32), tuple(constructs))
    loose = int(np.count_nonzero(found_boxes.construct < 0))
    return _levels_merged(graph, found_boxes) if loose > _MOST_BOXES else found_boxes


def boxes_by_template(graph: PhysicalGraph) -> Boxes:
    """Return one box for each logical node that has drops."""
    names = [template.name for template in graph.templates]
    return _compressed(graph.template.astype(np.int64), names, np.full(len(names), -1, dtype=np.int32), ())


def boxes_by_place(graph: PhysicalGraph, names: Sequence[str] = ()) -> Boxes:
    """Return one box for each part, or for each of the different `names` of the parts.

    Parameters
    ----------
    names : sequence of str
        Name of the place of each part, such as its node or its island. Empty for a box of each part.
    """
    if not names:
        labels = [f"part {part}" for part in range(graph.parts)]
        column = graph.part.astype(np.int64)
    else:
        labels = sorted(set(names))
        at = np.array([labels.index(name) for name in names], dtype=np.int64)
        column = at[graph.part]
    return _compressed(column, labels, np.full(len(labels), -1, dtype=np.int32), ())


def _path_of(template: Template) -> _Path:
    """Return the constructs around a template. In graphs of other programs, they differ by their sizes alone."""
    return tuple((axis.construct, axis.size) for axis in template.axes)


def _constructs(
    graph: PhysicalGraph, wanted: Mapping[int, bool]
) -> tuple[list[Construct], list[tuple[int, ...]], dict[_Path, int]]:
    """Return all constructs around templates, the outer ones first, the sizes of their index spaces, and their rows."""
    paths: dict[_Path, tuple[str, str, tuple[int, ...]]] = {}
    for template in graph.templates:
        for depth, axis in enumerate(template.axes, 1):
            paths.setdefault(_path_of(template)[:depth], (axis.name, axis.kind, template.shape[:depth]))
    order = sorted(paths, key=len)
    rows = {path: row for row, path in enumerate(order)}
    constructs: list[Construct] = []
    for path in order:
        name, kind, shape = paths[path]
        parent, instances, text = rows.get(path[:-1], -1), prod(shape), "/".join(id_ for id_, _ in path)
        is_open = wanted.get(len(constructs), parent < 0 or instances <= _OPEN_BOXES)
        is_open = is_open and (parent < 0 or constructs[parent].is_open)
        constructs.append(
            Construct(path=text, name=name, kind=kind, parent=parent, instances=instances, is_open=is_open)
        )
    return constructs, [paths[path][2] for path in order], rows


def _shown(path: _Path, constructs: Sequence[Construct], rows: Mapping[_Path, int]) -> tuple[int, int]:
    """Return the construct in whose boxes the drops at a path are, and how many of its levels tell its boxes apart."""
    row, depth = -1, 0
    for count in range(1, len(path) + 1):
        construct = rows[path[:count]]
        if not constructs[construct].is_open:
            return (construct, 0) if row < 0 else (row, depth)
        row, depth = construct, count
    return row, depth


def _round(number: float) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50 and so on that is not less than a number."""
    rounded = 1
    for factor in cycle((2, 2.5, 2)):
        if rounded >= number:
            break
        rounded = int(rounded * factor)
    return rounded


def _labels(construct: Construct, shape: tuple[int, ...], block: int) -> list[str]:
    if not shape:
        return [construct.name]
    count = prod(shape)
    if block > 1:
        starts = range(0, count, block)
        return [f"{construct.name} {start}\N{EN DASH}{min(start + block, count) - 1}" for start in starts]
    index = np.unravel_index(np.arange(count), shape)
    rows = zip(*(column.tolist() for column in index), strict=True)
    return [f"{construct.name} {'-'.join(map(str, row))}" for row in rows]


def _compressed(
    box: np.ndarray[tuple[int], np.dtype[np.int64]],
    labels: Sequence[str],
    construct: IntColumn,
    constructs: tuple[Construct, ...],
) -> Boxes:
    """Return the boxes without those that have no drops."""
    used = np.bincount(box, minlength=len(labels)) > 0
    number = np.cumsum(used) - 1
    return Boxes(
        box=number[box].astype(np.int32),
        labels=tuple(label for label, is_used in zip(labels, used.tolist(), strict=True) if is_used),
        construct=construct[used],
        constructs=constructs,
    )


def _levels_merged(graph: PhysicalGraph, boxes: Boxes) -> Boxes:
    """Return boxes in which drops outside of constructs are together by level, if each had its own logical node."""
    loose = (boxes.construct < 0)[boxes.box]
    level = levels(graph).astype(np.int64)
    count = len(boxes.labels)
    labels = (*boxes.labels, *(f"level {number}" for number in range(int(level.max(initial=0)) + 1)))
    construct = np.concatenate([boxes.construct, np.full(len(labels) - count, -1, dtype=np.int32)])
    return _compressed(np.where(loose, count + level, boxes.box), labels, construct, boxes.constructs)
