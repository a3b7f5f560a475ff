"""Drops that must stay together on one node: of an ExclusiveForceNode, an MPI job, a service.

The axes of the templates have these constraints: an axis of the kind ``exclusive`` is that of the content of an
ExclusiveForceNode, one of the kind ``mpi`` that of the ranks of a job, one of the kind ``service`` that of the drops
that start and stop a service. The drops of an exclusive group share their node with no other drop, if there are enough
nodes.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Axis

__all__ = ["FREE", "PlacementGroups", "binding", "kept_together", "placement_groups", "violations"]

FREE = -1
"""Number of the group of a drop without constraint."""
_EXCLUSIVE, _MPI, _SERVICE = "exclusive", "mpi", "service"


@dataclass(frozen=True)
class PlacementGroups:
    """The groups of a graph.

    Attributes
    ----------
    group : int32 array, shape (drops,)
        Number of the group of each drop; -1 for a drop without constraint.
    names : tuple of str
        Name of the construct of each group, for messages.
    exclusive : bool array, shape (groups,)
        Whether the drops of a group share their node with no other drop.
    """

    group: IntColumn
    names: tuple[str, ...]
    exclusive: npt.NDArray[np.bool_]

    @property
    def is_exclusive(self) -> npt.NDArray[np.bool_]:
        """Which drops are in an exclusive group, shape (drops,)."""
        return np.append(self.exclusive, False)[self.group]

    @property
    def needed(self) -> int:
        """Number of parts with which every exclusive group has a part of its own, and all other drops have one."""
        count = int(self.exclusive.sum())
        return count + int(not self.is_exclusive.all())


def placement_groups(graph: PhysicalGraph) -> PlacementGroups | None:
    """Return the groups of a graph; None if no drop has a constraint.

    Takes time only for the drops of templates that have a constraint. Of nested ExclusiveForceNodes the innermost
    counts. Groups without drops, in a part of a graph, keep their numbers.
    """
    bound = [(row, at) for row, one in enumerate(graph.templates) if (at := binding(one.axes)) is not None]
    if not bound:
        return None
    spaces: dict[str, tuple[int, tuple[Axis, ...]]] = {}
    names: list[str] = []
    exclusive: list[bool] = []
    first = np.full(len(graph.templates), FREE, dtype=np.int32)
    step = np.ones(len(graph.templates), dtype=np.int32)
    for row, at in bound:
        around, inside = graph.templates[row].axes[:at], graph.templates[row].axes[at:]
        if inside[0].construct not in spaces:
            spaces[inside[0].construct] = (len(names), around)
            count = prod(one.size for one in around)
            names += [inside[0].name] * count
            exclusive += [inside[0].kind == _EXCLUSIVE] * count
        start, known = spaces[inside[0].construct]
        if around == known:  # an adapter of a loop-aware edge has fewer axes: it is free
            first[row] = start
            step[row] = max(prod(one.size for one in inside), 1)
    group = np.full(graph.drops, FREE, dtype=np.int32)
    rows = np.flatnonzero((first != FREE)[graph.template])
    template = graph.template[rows]
    group[rows] = first[template] + graph.instance[rows] // step[template]
    group.flags.writeable = False
    return PlacementGroups(group, tuple(names), np.array(exclusive, dtype=np.bool_))


def binding(axes: tuple[Axis, ...]) -> int | None:
    """Return the position of the axis that binds the drops of a template: the innermost exclusive one, else another."""
    for kind in (_EXCLUSIVE, _MPI, _SERVICE):
        found = [position for position, axis in enumerate(axes) if axis.kind == kind]
        if found:
            return found[-1]
    return None


def violations(graph: PhysicalGraph, part: IntColumn) -> tuple[str, ...]:
    """Return in words which constraints a partition does not keep, one text for each construct and constraint."""
    groups = placement_groups(graph)
    if groups is None:
        return ()
    bound = np.flatnonzero(groups.group != FREE)
    parts, count = int(part.max(initial=0)) + 1, len(groups.names)
    pairs = np.unique(groups.group[bound].astype(np.int64) * parts + part[bound])
    group, place = pairs // parts, pairs % parts
    torn = np.bincount(group, minlength=count) > 1
    tenants = np.bincount(place, minlength=parts)
    tenants[np.unique(part[groups.group == FREE])] += 1
    crowded = np.zeros(count, dtype=np.bool_)
    crowded[group[groups.exclusive[group] & (tenants[place] > 1)]] = True
    return (
        *_worded(groups, torn, "have drops on several nodes, which must be on one"),
        *_worded(groups, crowded, "share a node with other drops"),
    )


def _worded(groups: PlacementGroups, wrong: npt.NDArray[np.bool_], what: str) -> list[str]:
    counts: dict[str, int] = {}
    for group in np.flatnonzero(wrong).tolist():
        counts[groups.names[group]] = counts.get(groups.names[group], 0) + 1
    return [f"{count} of {groups.names.count(name)} copies of {name!r} {what}" for name, count in counts.items()]


def kept_together(part: IntColumn, groups: PlacementGroups, parts: int, load: npt.NDArray[np.float64]) -> IntColumn:
    """Return a partition that keeps the constraints, changed as little as possible from one that does not.

    The drops of a group go where most of them are. Exclusive groups get parts of their own: those with the least load
    of other drops, which go to the part that then has the least load. One part remains for the other drops; if there
    are fewer parts than exclusive groups, these share them evenly.

    Parameters
    ----------
    part : int array, shape (drops,)
        Partition of each drop.
    groups : PlacementGroups
        The constraints.
    parts : int
        Number of parts.
    load : float array, shape (drops,)
        Load of each drop.
    """
    made = np.array(part, dtype=np.int32)
    bound = np.flatnonzero(groups.group != FREE)
    made[bound] = _majority(made[bound], groups.group[bound], parts)[groups.group[bound]]
    alone = groups.is_exclusive
    own = min(int(groups.exclusive.sum()), parts - int(not alone.all()))
    if own < 1:
        return made
    loads = np.bincount(made[~alone], weights=load[~alone], minlength=parts)
    order = np.argsort(loads, kind="stable")
    vacated, others = np.sort(order[:own]), order[own:]
    for one in vacated.tolist():
        if not len(others):
            break
        target = others[np.argmin(loads[others])]
        moving = ~alone & (made == one)
        loads[target] += loads[one]
        made[moving] = target
    place = _evenly(groups, vacated)
    made[alone] = place[groups.group[alone]]
    return made


def _majority(part: IntColumn, group: IntColumn, parts: int) -> IntColumn:
    """Return for each group the part with most of its drops, of equal ones the first."""
    groups = int(group.max(initial=-1)) + 1
    counts = np.bincount(group.astype(np.int64) * parts + part, minlength=groups * parts).reshape(groups, parts)
    best: IntColumn = np.argmax(counts, axis=1).astype(np.int32)
    return best


def _evenly(groups: PlacementGroups, places: npt.NDArray[np.integer]) -> IntColumn:
    """Return the part of each exclusive group, in the order of their numbers; neighbours share if there are too few."""
    count = int(groups.exclusive.sum())
    number = np.cumsum(groups.exclusive) - 1
    chosen: IntColumn = places[np.minimum(number * len(places) // max(count, len(places)), len(places) - 1)]
    return chosen.astype(np.int32)
