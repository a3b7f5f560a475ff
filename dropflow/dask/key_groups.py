"""Division of dask's keys into groups of one name, whose members differ by their indices.

A key such as ``("add-1f3", 0, 2)`` is member (0, 2) of the group ``add-1f3``. Other keys are numbered within the group
of their prefix: ``inc-7d1`` and ``inc-902`` are the members 0 and 1 of the group ``inc``.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.utils import key_split

from dropflow.graph.physical import IntColumn

__all__ = ["KeyGroup", "KeyGroups", "group_keys"]

_MOST_INSTANCES = 2**31 - 1


@dataclass(frozen=True)
class KeyGroup:
    """Keys of one name.

    Attributes
    ----------
    name : str
        First part of the keys, or their common prefix.
    shape : tuple of int
        Number of indices on each axis; empty for a single key without indices.
    is_indexed : bool
        Whether the keys are tuples of the name and the indices; else the index of a key is its number in the group.
    """

    name: str
    shape: tuple[int, ...]
    is_indexed: bool


@dataclass(frozen=True)
class KeyGroups:
    """Keys in groups.

    Attributes
    ----------
    groups : tuple of KeyGroup
        The groups, in the order of their first keys.
    group : int32 array, shape (keys,)
        Row of each key's group.
    instance : int32 array, shape (keys,)
        Position of each key in the row-major index space of its group.
    """

    groups: tuple[KeyGroup, ...]
    group: IntColumn
    instance: IntColumn


def group_keys(keys: Sequence[Hashable]) -> KeyGroups:
    """Return the groups of different keys."""
    rows: dict[Hashable, int] = {}
    group = np.fromiter((rows.setdefault(_label(key), len(rows)) for key in keys), dtype=np.int32, count=len(keys))
    instance = np.zeros(len(keys), dtype=np.int32)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=len(rows))).tolist()
    groups: list[KeyGroup] = []
    start = 0
    for label, end in zip(rows, ends, strict=True):
        members = order[start:end]
        start = end
        name, axes = label if isinstance(label, tuple) else (label, 0)
        found = _indices([keys[row] for row in members.tolist()]) if axes else None
        if found is None:
            shape: tuple[int, ...] = () if len(members) == 1 else (len(members),)
            instance[members] = np.arange(len(members), dtype=np.int32)
        else:
            shape, instance[members] = found
        groups.append(KeyGroup(str(name), shape, found is not None))
    return KeyGroups(tuple(groups), group, instance)


def _label(key: Any) -> Hashable:
    """Return what the keys of a group have in common: name and number of indices, or a prefix."""
    if type(key) is tuple and len(key) > 1 and type(key[0]) is str:
        return key[0], len(key) - 1
    return str(key_split(key))


def _indices(keys: Sequence[Any]) -> tuple[tuple[int, ...], npt.NDArray[np.integer[Any]]] | None:
    """Return the shape of the index space of keys, and the position of each in it; None if some index is no integer."""
    try:
        index = np.array([key[1:] for key in keys])
    except (ValueError, OverflowError):  # nested indices, or integers beyond 64 bits
        return None
    if index.ndim != 2 or index.dtype.kind != "i" or index.min() < 0:  # noqa: PLR2004 - rows and axes
        return None
    shape = tuple(int(last) + 1 for last in index.max(axis=0))
    size = 1
    for length in shape:
        size *= length
    if size > _MOST_INSTANCES:
        return None
    return shape, np.ravel_multi_index(tuple(index.T), shape)
