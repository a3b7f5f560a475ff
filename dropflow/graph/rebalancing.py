"""Which drops leave a node that has more to do than its share: whole chains that have not begun, and no more."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import topological_order
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.placement_groups import FREE, placement_groups
from dropflow.graph.templates import Kind

__all__ = ["excess_drops", "may_move"]

FloatColumn = npt.NDArray[np.float64]
BooleanColumn = npt.NDArray[np.bool_]

_NOTHING = -1


def may_move(graph: PhysicalGraph, has_not_begun: BooleanColumn, written: BooleanColumn) -> BooleanColumn:
    """Return which drops can be given to another node without anything being done twice.

    Applications that have not begun, and data that have not begun and have nothing of what their producers write. Drops
    that must be on one node (`dropflow.graph.placement_groups`) may move only if all of them may.

    Parameters
    ----------
    has_not_begun : bool array, shape (drops,)
        Drops that are not settled, and have no attempt that runs.
    written : bool array, shape (drops,)
        Data drops that have a part already.
    """
    is_app: BooleanColumn = graph.kinds[graph.template] == np.uint8(Kind.APP)
    found: BooleanColumn = has_not_begun & (is_app | ~written)
    groups = placement_groups(graph)
    if groups is not None:
        # The last element is for drops without a group, whose number is -1.
        split = np.zeros(len(groups.names) + 1, dtype=np.bool_)
        split[groups.group[~found]] = True
        split[FREE] = False
        found &= ~split[groups.group]
    return found


def excess_drops(
    graph: PhysicalGraph,
    owner: IntColumn,
    movable: BooleanColumn,
    work: FloatColumn,
    *,
    members: Sequence[int],
    capacities: Sequence[float],
) -> BooleanColumn:
    """Return the drops that should leave their members so that all have the same to do in relation to their capacity.

    Each drop follows its first input if that is movable and on the same member, which makes trees. A member that has
    more than its share gives away whole trees that fit into the difference, and of trees that are larger than that,
    whole subtrees. So what depends on each other stays together, and no member has less than its share afterwards.
    Drops of placement groups stay, and a member with an exclusive group is not one that others give to.

    Parameters
    ----------
    graph : PhysicalGraph
        All drops.
    owner : int array, shape (drops,)
        Number of the member of each drop; any other number for drops without one.
    movable : bool array, shape (drops,)
        Drops that may move.
    work : float array, shape (drops,)
        What is to be done for each drop.
    members : sequence of int
        Numbers of the members.
    capacities : sequence of float
        How much each does in the same time.
    """
    chosen = np.zeros(graph.drops, dtype=np.bool_)
    groups = placement_groups(graph)
    if groups is not None:
        alone = set(owner[groups.is_exclusive & (work > 0)].tolist())
        pairs = [pair for pair in zip(members, capacities, strict=True) if pair[0] not in alone]
        members, capacities = [member for member, _ in pairs], [capacity for _, capacity in pairs]
        movable = movable & (groups.group == FREE)
    load = np.bincount(owner[owner >= 0], weights=work[owner >= 0], minlength=max(members, default=0) + 1)
    total, speed = float(load[list(members)].sum()), float(sum(capacities))
    surplus = {
        member: float(load[member]) - total * capacity / speed
        for member, capacity in zip(members, capacities, strict=True)
        if speed > 0
    }
    rich = np.array([member for member, more in surplus.items() if more > 0], dtype=np.int32)
    candidate = movable & np.isin(owner, rich)
    if not candidate.any():
        return chosen
    order = topological_order(graph)
    ordered: list[int] = order[candidate[order]].tolist()
    leader = _leaders(graph, owner, candidate)
    sums = np.where(candidate, work, 0.0)
    allowed = dict(surplus)
    below, first, is_chosen = sums.data, leader.data, chosen.view(np.uint8).data
    is_kept = bytearray(graph.drops)
    for drop in reversed(ordered):
        if first[drop] != _NOTHING:
            below[first[drop]] += below[drop]
    for drop in ordered:
        if first[drop] != _NOTHING and is_chosen[first[drop]]:
            is_chosen[drop] = 1
            continue
        if first[drop] != _NOTHING and is_kept[first[drop]]:
            is_kept[drop] = 1
            continue
        member = int(owner[drop])
        if 0 < below[drop] <= surplus[member]:
            is_chosen[drop] = 1
            surplus[member] -= below[drop]
        elif below[drop] <= allowed[member]:
            is_kept[drop] = 1
    return chosen


def _leaders(graph: PhysicalGraph, owner: IntColumn, candidate: BooleanColumn) -> IntColumn:
    """Return the first input of each candidate that is a candidate on the same member; -1 without one."""
    before = graph.predecessors
    target = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(before.ptr))
    source = before.neighbour
    inside = np.flatnonzero(candidate[target] & candidate[source] & (owner[target] == owner[source]))[::-1]
    leader: IntColumn = np.full(graph.drops, _NOTHING, dtype=np.int32)
    leader[target[inside]] = source[inside]  # of several, the first is written last
    return leader
