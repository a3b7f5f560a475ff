"""`dropflow.graph.reassignment.reassign` for graphs with placement groups: what must be on one node stays together."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.placement_groups import FREE, PlacementGroups, placement_groups
from dropflow.graph.reassignment import reassign

__all__ = ["reassign_together"]

BooleanColumn = npt.NDArray[np.bool_]
FloatColumn = npt.NDArray[np.float64]


def reassign_together(
    graph: PhysicalGraph,
    placement: IntColumn,
    moving: BooleanColumn,
    members: Sequence[int],
    load: Sequence[float],
    *,
    capacities: Sequence[float],
    work: FloatColumn,
    runs: BooleanColumn,
) -> IntColumn:
    """Return a placement as `reassign` does, which keeps placement groups together, and exclusive ones alone.

    The drops of a group that move go where drops of it stay that are to run. An exclusive group without such drops goes
    to a member with nothing else to run, as long as one is left for what is not exclusive, or else to the one with
    least to do. Drops of other groups go where most of them would go. What is not exclusive goes to members without an
    exclusive group, if there are any. Nothing moves that need not: a member that must take both has both.

    Parameters
    ----------
    graph, placement, moving, members, load, capacities, work :
        As of `reassign`.
    runs : bool array, shape (drops,)
        Drops that are to run. Groups without any count no more.
    """
    groups = placement_groups(graph)
    open_groups = np.zeros(0, dtype=np.int32) if groups is None else np.unique(groups.group[runs])
    open_groups = open_groups[open_groups != FREE]
    if groups is None or not len(open_groups):
        return reassign(graph, placement, moving, members, load, capacities=capacities, work=work)
    places = _GroupPlaces(groups, placement, moving, members, load=load, capacities=capacities, work=work, runs=runs)
    places.choose(open_groups.tolist())
    made = np.array(placement, dtype=np.int32)
    left = np.array(moving, dtype=np.bool_)
    for group, at in places.chosen.items():
        drops = moving & (groups.group == group)
        made[drops] = members[at]
        left &= ~drops
    targets = [at for at in range(len(members)) if at not in places.exclusive] or list(range(len(members)))
    if left.any():
        made = np.array(
            reassign(
                graph,
                made,
                left,
                [members[at] for at in targets],
                [places.load[at] for at in targets],
                capacities=[capacities[at] for at in targets],
                work=work,
            )
        )
    for group in set(open_groups.tolist()) - places.chosen.keys():
        drops = moving & (groups.group == group)
        if drops.any():
            made[drops] = np.bincount(made[drops]).argmax()
    made.flags.writeable = False
    return made


class _GroupPlaces:
    """Which member gets each group whose place does not depend on its neighbours. Members are numbered in their order.

    Attributes
    ----------
    chosen : dict of int to int
        By group: the member that its moving drops go to.
    exclusive : set of int
        Members that have an exclusive group.
    load : list of float
        What each member has to do.
    """

    def __init__(
        self,
        groups: PlacementGroups,
        placement: IntColumn,
        moving: BooleanColumn,
        members: Sequence[int],
        *,
        load: Sequence[float],
        capacities: Sequence[float],
        work: FloatColumn,
        runs: BooleanColumn,
    ) -> None:
        self.chosen: dict[int, int] = {}
        self.exclusive: set[int] = set()
        self.load = [float(one) for one in load]
        self._groups = groups
        self._capacities = capacities
        self._work = work
        self._moving = moving
        self._members = range(len(members))
        stays = runs & ~moving
        of_exclusive = groups.is_exclusive
        self._shared = {at for at in self._members if (stays & ~of_exclusive & (placement == members[at])).any()}
        """Members with something to run that is not exclusive."""
        self._others_move = bool((moving & runs & ~of_exclusive).any())
        self._anchor: dict[int, int] = {}
        for at in self._members:
            here = groups.group[stays & (placement == members[at])]
            for group in np.unique(here[here != FREE]).tolist():
                self._anchor.setdefault(group, at)
                if groups.exclusive[group]:
                    self.exclusive.add(at)

    def choose(self, groups: Sequence[int]) -> None:
        """Choose members for groups that are to run: first for those that have drops that stay."""
        for group in groups:
            if group in self._anchor:
                self._put(group, self._anchor[group])
        for group in groups:
            if group not in self._anchor and self._groups.exclusive[group]:
                self._put(group, self._free_member())

    def _put(self, group: int, at: int) -> None:
        self.chosen[group] = at
        self.load[at] += float(self._work[self._moving & (self._groups.group == group)].sum())
        if self._groups.exclusive[group]:
            self.exclusive.add(at)

    def _free_member(self) -> int:
        """Return a member without anything else to run, if one is left, or else the one with least to do."""
        empty = [at for at in self._members if at not in self._shared and at not in self.exclusive]
        if self._others_move and not self._shared - self.exclusive:
            # The others need a member, too: the one that can do most.
            empty.sort(key=lambda at: (-self._capacities[at], at))
            del empty[:1]
        return min(empty or self._members, key=lambda at: (self.load[at] / self._capacities[at], at))
