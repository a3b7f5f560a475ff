"""New nodes for drops whose node is lost, or gives them away: balanced at the start of work, near their data later."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import topological_order
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.slices import FREE, PlacementGroups, placement_groups
from dropflow.graph.templates import Kind

FloatColumn = npt.NDArray[np.float64]
BooleanColumn = npt.NDArray[np.bool_]

FAIR_SHARE = 1.1
"""How much of the average a node may have to do before applications leave their data for another one."""

_NOWHERE = -1
"""Place of a drop that has no node yet."""
_NOTHING = -1
"""Row of the leader of a drop that leads itself."""


def app_weights(graph: PhysicalGraph) -> FloatColumn:
    """Return the execution time of each application in seconds, 1 where the graph gives none; 0 for data."""
    column: FloatColumn = graph.template_seconds[graph.template]
    return column


def reassign(
    graph: PhysicalGraph,
    placement: IntColumn,
    moving: BooleanColumn,
    members: Sequence[int],
    load: Sequence[float],
    *,
    capacities: Sequence[float] | None = None,
    work: FloatColumn | None = None,
) -> IntColumn:
    """Return a placement in which each drop of `moving` is on one of the members, and the others are where they were.

    *Initial* applications are those without an input that stays or that another application writes. In breadth-first
    order, each member gets a block of them, so large that all have the same to do in the end: each stands for the work
    that follows from it. Other applications go where most bytes of their inputs are. If that member would have more to
    do than 1.1 times the average, another one that has some of the inputs gets them, or else the one with least to do;
    but an application that alone reads an output of a moving application stays with it, because chains gain nothing
    from being spread. A data drop goes where its first producer is, or without producers, where its first consumer is.

    Parameters
    ----------
    graph : PhysicalGraph
        All drops.
    placement : int array, shape (drops,)
        Number of the node of each drop. Anything for those that move.
    moving : bool array, shape (drops,)
        Drops that get another node.
    members : sequence of int
        Numbers of the nodes that may get drops, at least one. Others may keep theirs.
    load : sequence of float
        Work that each member has to do already, in the unit of `work`.
    capacities : sequence of float, optional
        Number of cores of each member; 1 each by default.
    work : float array, shape (drops,), optional
        What is to be done for each drop; by default the weights of applications. Drops that are settled have none.

    Raises
    ------
    ValueError
        There are no members.

    Notes
    -----
    After the assignment of Mars (the Mars project, "Graph preparation" and "Fault tolerance", https://docs.pymars.org):
    initial nodes in breadth-first order in blocks of equal size, the others where most of their inputs are; adaptively
    after losses, when members get less the more they have. The same arguments give the same result. Time is linear in
    the moving drops and their edges, beside a few operations on whole columns.
    """
    if not members:
        raise ValueError("there is no member to move drops to")
    what = app_weights(graph) if work is None else work
    cores = [1.0] * len(members) if capacities is None else capacities
    return _Reassignment(graph, placement, moving, members, load=load, capacities=cores, work=what).run()


class _Reassignment:
    """The state of `reassign`. Members are numbered in their order here."""

    def __init__(
        self,
        graph: PhysicalGraph,
        placement: IntColumn,
        moving: BooleanColumn,
        members: Sequence[int],
        *,
        load: Sequence[float],
        capacities: Sequence[float],
        work: FloatColumn,
    ) -> None:
        self._graph = graph
        self._moving_rows = moving
        self._members = members
        self._load = [float(amount) for amount in load]
        self._capacity = [float(amount) for amount in capacities]
        self._new = np.array(placement, dtype=np.int32)
        numbers = np.full(int(max(self._new.max(initial=0), *members)) + 2, _NOWHERE, dtype=np.int32)
        numbers[np.array(members)] = np.arange(len(members), dtype=np.int32)
        place = np.where(moving, np.int32(_NOWHERE), numbers[self._new])
        self._place_column = place
        # Elements of a memoryview are plain numbers, and much faster to read than elements of an array.
        self._place = place.data
        self._moving = moving.view(np.uint8).data
        self._work_column = work
        self._work = np.ascontiguousarray(work).data
        volumes = [max(template.weight, 0.0) if template.kind is Kind.DATA else 0.0 for template in graph.templates]
        self._volume = np.array(volumes, dtype=np.float64)[graph.template].data
        self._is_app = (graph.kinds[graph.template] == np.uint8(Kind.APP)).view(np.uint8).data
        self._before, self._before_ptr = graph.predecessors.neighbour.data, graph.predecessors.ptr.data
        self._after, self._after_ptr = graph.successors.neighbour.data, graph.successors.ptr.data
        total = sum(self._load) + float(work[moving].sum())
        cores = sum(self._capacity)
        # Two applications more do not matter, and moving them away from their data would.
        slack = 2 * float(work[moving].max(initial=0.0))
        self._most = [FAIR_SHARE * total * capacity / cores + slack for capacity in self._capacity]

    def run(self) -> IntColumn:
        order = topological_order(self._graph)
        ordered: list[int] = order[self._moving_rows[order]].tolist()
        for drop in ordered:
            if not self._is_app[drop] and self._before_ptr[drop] == self._before_ptr[drop + 1]:
                self._follow_consumer(drop)
        self._place_initial(ordered)
        for drop in ordered:
            if self._place[drop] != _NOWHERE:
                continue
            if self._is_app[drop]:
                self._put(drop, self._choose(drop))
            elif self._before_ptr[drop] != self._before_ptr[drop + 1]:
                first = self._place[self._before[self._before_ptr[drop]]]
                self._place[drop] = first if first != _NOWHERE else self._least_loaded()
            else:
                self._follow_consumer(drop)
        for drop in ordered:
            if self._place[drop] == _NOWHERE:  # root data whose first consumer is on a node that gets nothing
                self._place[drop] = self._least_loaded()
        moving = self._moving_rows
        self._new[moving] = np.array(self._members, dtype=np.int32)[self._place_column[moving]]
        self._new.flags.writeable = False
        return self._new

    # Initial drops.

    def _place_initial(self, ordered: list[int]) -> None:
        """Place the applications with which work begins, in blocks, and what else has no neighbour that decides."""
        initial = self._breadth_first([drop for drop in ordered if self._is_initial(drop)])
        if not initial:
            return
        share = self._shares(ordered)[initial]
        if not share.sum() > 0:
            share = np.ones(len(initial))
        room = _room(self._load, self._capacity, float(share.sum()))
        middle = np.cumsum(share) - share / 2
        block = np.minimum(np.searchsorted(np.cumsum(room), middle, side="left"), len(room) - 1)
        for drop, member in zip(initial, block.tolist(), strict=True):
            self._put(drop, member)

    def _is_initial(self, drop: int) -> bool:
        """Return whether nothing that is placed, or is to be placed by something else, decides where a drop goes."""
        ptr = self._before_ptr
        inputs = self._before[ptr[drop] : ptr[drop + 1]]
        if self._is_app[drop]:
            return all(
                self._moving[data] and self._place[data] == _NOWHERE and ptr[data] == ptr[data + 1] for data in inputs
            )
        return not inputs and self._after_ptr[drop] == self._after_ptr[drop + 1]

    def _breadth_first(self, initial: list[int]) -> list[int]:
        """Return initial drops in the order in which a search along edges of moving drops meets them, either way.

        So those with a near common neighbour are near each other.
        """
        wanted, seen = frozenset(initial), set[int]()
        ordered = []
        for start in initial:
            if start in seen:
                continue
            seen.add(start)
            queue = deque([start])
            while queue:
                drop = queue.popleft()
                if drop in wanted:
                    ordered.append(drop)
                for neighbour, ptr in ((self._before, self._before_ptr), (self._after, self._after_ptr)):
                    for other in neighbour[ptr[drop] : ptr[drop + 1]]:
                        if self._moving[other] and other not in seen:
                            seen.add(other)
                            queue.append(other)
        return ordered

    def _shares(self, ordered: list[int]) -> FloatColumn:
        """Return how much work follows from each drop: what it has itself, and those that it is the first input of."""
        before = self._graph.predecessors
        target = np.repeat(np.arange(self._graph.drops, dtype=np.int32), np.diff(before.ptr))
        leads = self._moving_rows & (np.diff(before.ptr) > 0)
        leads |= self._moving_rows & (np.frombuffer(self._is_app, dtype=np.uint8) > 0)
        led = np.flatnonzero(leads[before.neighbour] & self._moving_rows[target])[::-1]
        leader = np.full(self._graph.drops, _NOWHERE, dtype=np.int32)
        leader[target[led]] = before.neighbour[led]  # of several inputs the last one written, the first, counts
        share = self._work_column.astype(np.float64)
        sums, first = share.data, leader.data
        for drop in reversed(ordered):
            if first[drop] != _NOWHERE:
                sums[first[drop]] += sums[drop]
        return share

    # Other drops.

    def _choose(self, app: int) -> int:
        """Return the member for an application that has inputs."""
        held: dict[int, float] = {}
        follows = set()
        for data in self._before[self._before_ptr[app] : self._before_ptr[app + 1]]:
            member = self._place[data]
            if member == _NOWHERE:
                continue
            held[member] = held.get(member, 0.0) + self._volume[data]
            start = self._before_ptr[data]
            is_inside = start != self._before_ptr[data + 1] and self._moving[self._before[start]]
            if is_inside and self._after_ptr[data + 1] - self._after_ptr[data] == 1:
                follows.add(member)
        if not held:
            return self._least_loaded()
        # Of equal ones, the member with less to do.
        nearest = sorted(held, key=lambda member: (-held[member], self._relative_load(member), member))
        work = self._work[app]
        for member in nearest:
            if self._load[member] + work <= self._most[member]:
                return member
        return nearest[0] if nearest[0] in follows else self._least_loaded()

    def _put(self, drop: int, member: int) -> None:
        """Place a drop, and data without producers that it is the first to read."""
        self._place[drop] = member
        self._load[member] += self._work[drop]
        if not self._is_app[drop]:
            return
        for data in self._before[self._before_ptr[drop] : self._before_ptr[drop + 1]]:
            is_root = self._before_ptr[data] == self._before_ptr[data + 1]
            if is_root and self._place[data] == _NOWHERE and self._moving[data]:
                self._follow_consumer(data)

    def _follow_consumer(self, data: int) -> None:
        """Place a data drop without producers where its first consumer is, if that is placed."""
        start = self._after_ptr[data]
        if start != self._after_ptr[data + 1]:
            self._place[data] = self._place[self._after[start]]

    def _least_loaded(self) -> int:
        return min(range(len(self._load)), key=self._relative_load)

    def _relative_load(self, member: int) -> float:
        return self._load[member] / self._capacity[member]


def _room(load: Sequence[float], capacity: Sequence[float], work: float) -> list[float]:
    """Return how much of the work each member gets so that what they have to do for each core is as equal as can be."""
    order = sorted(range(len(load)), key=lambda member: load[member] / capacity[member])
    total, cores, level = work, 0.0, 0.0
    for at, member in enumerate(order):
        total, cores = total + load[member], cores + capacity[member]
        level = total / cores
        if at + 1 < len(order) and level <= load[order[at + 1]] / capacity[order[at + 1]]:
            break
    return [max(level * cores_of - load_of, 0.0) for load_of, cores_of in zip(load, capacity, strict=True)]


# `reassign` for graphs with placement groups: what must be on one node stays together.


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
    """Members for groups whose places do not depend on their neighbours. Members are numbered in their order.

    Attributes
    ----------
    chosen : dict of int to int
        By group: the member that its moving drops go to.
    exclusive : set of int
        Members that have an exclusive group.
    load : list of float
        Work that each member has to do already.
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
        self.load = [float(amount) for amount in load]
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


# Which drops leave a node that has more to do than its share: whole chains that have not begun, and no more.


def may_move(graph: PhysicalGraph, has_not_begun: BooleanColumn, written: BooleanColumn) -> BooleanColumn:
    """Return which drops can be given to another node without anything being done twice.

    Applications that have not begun, and data that have not begun and have nothing of what their producers write. Drops
    that must be on one node (`dropflow.graph.slices`) may move only if all of them may.

    Parameters
    ----------
    has_not_begun : bool array, shape (drops,)
        Drops that are not settled, and have no attempt that runs.
    written : bool array, shape (drops,)
        Data drops that have a part already.
    """
    is_app: BooleanColumn = graph.kinds[graph.template] == np.uint8(Kind.APP)
    movable: BooleanColumn = has_not_begun & (is_app | ~written)
    groups = placement_groups(graph)
    if groups is not None:
        # The last element is for drops without a group, whose number is -1.
        split = np.zeros(len(groups.names) + 1, dtype=np.bool_)
        split[groups.group[~movable]] = True
        split[FREE] = False
        movable &= ~split[groups.group]
    return movable


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
        Work of each drop.
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
