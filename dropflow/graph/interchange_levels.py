"""Index spaces of templates, from the instance ids of drops."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.templates import Axis, Template

__all__ = ["counted", "index_in", "with_axes"]

_MOST_INSTANCES = 2**31 - 1
_DIGITS = 10


def index_in(drop: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the index tuple of a drop, with the root level in front, or None if it has no valid one."""
    text = drop.get("iid")
    pieces = text.replace("/", "-").split("-") if isinstance(text, str) else drop.get("rank")
    if not isinstance(pieces, list) or not pieces:
        return None
    index = tuple(int(piece) if str(piece).isdecimal() and len(str(piece)) <= _DIGITS else -1 for piece in pieces)
    return None if min(index) < 0 or index[0] else index


def counted(template: Sequence[int]) -> npt.NDArray[np.int32]:
    """Return the number of each row among the rows of its template."""
    seen: dict[int, int] = {}
    found = np.empty(len(template), dtype=np.int32)
    for row, one in enumerate(template):
        found[row] = seen.setdefault(one, 0)
        seen[one] += 1
    return found


def with_axes(
    templates: list[Template],
    template: list[int],
    indices: list[tuple[int, ...] | None],
    trailing: dict[int, tuple[int, bool]],
) -> tuple[list[Template], npt.NDArray[np.int32]]:
    """Return the templates with the index spaces of their drops, and the position of each drop in its index space.

    Drops with missing or repeated indices, or indices of different lengths, are numbered in the order of the document.
    """
    members: dict[int, list[int]] = {}
    for row, one in enumerate(template):
        members.setdefault(one, []).append(row)
    instance = counted(template)
    found = list(templates)
    for one, rows in members.items():
        known = {index[1:] for row in rows if (index := indices[row]) is not None}
        depths = {len(index) for index in known}
        shape: tuple[int, ...] = ()
        if len(known) == len(rows) and len(depths) == 1:
            shape = tuple(max(level) + 1 for level in zip(*known, strict=True))
        if len(known) < len(rows) or len(depths) != 1 or math.prod(shape) > _MOST_INSTANCES:
            axes = _axes((len(rows),) if len(rows) > 1 else (), 0, is_mpi=False)
        else:
            loops, is_mpi = trailing[one]
            axes = _axes(shape, loops, is_mpi=is_mpi, job=templates[one].key)
            if _has_room(templates[one].axes, shape):
                axes = templates[one].axes
                shape = tuple(axis.size for axis in axes)
            instance[rows] = [_flat((indices[row] or (0,))[1:], shape) for row in rows]
        found[one] = msgspec.structs.replace(found[one], axes=axes)
    return found, instance


def _axes(shape: tuple[int, ...], loops: int, *, is_mpi: bool, job: str = "") -> tuple[Axis, ...]:
    kinds = ["list"] * (len(shape) - loops) + ["loop"] * loops
    found = [Axis("", "", kind, size) for kind, size in zip(kinds, shape, strict=True)]
    if is_mpi and found:
        found[-1] = Axis(job, job, "mpi", shape[-1])  # the ranks of two jobs are two groups
    return tuple(found)


def _has_room(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> bool:
    """Whether an index space that a document declares has all indices of its drops."""
    sizes = tuple(axis.size for axis in axes)
    return (
        len(sizes) == len(shape)
        and all(size >= least for size, least in zip(sizes, shape, strict=True))
        and math.prod(sizes) <= _MOST_INSTANCES
    )


def _flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    position = 0
    for at, size in zip(index, shape, strict=True):
        position = position * size + at
    return position
