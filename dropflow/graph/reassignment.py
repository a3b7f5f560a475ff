"""Where drops go whose node is lost, or gives them away: balanced at the start of work, near their data afterwards."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import topological_order
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind

__all__ = ["FAIR_SHARE", "app_weights", "reassign"]

FloatColumn = npt.NDArray[np.float64]
BooleanColumn = npt.NDArray[np.bool_]

FAIR_SHARE = 1.1
"""How much of the average a node may have to do before applications leave their data for another one."""

_NOWHERE = -1


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
        What each member has to do already, in the unit of `work`.
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
        self._load = [float(one) for one in load]
        self._capacity = [float(one) for one in capacities]
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
        volumes = [max(one.weight, 0.0) if one.kind is Kind.DATA else 0.0 for one in graph.templates]
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
        """Whether nothing that is placed, or is to be placed by something else, decides where a drop goes."""
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
        found = []
        for start in initial:
            if start in seen:
                continue
            seen.add(start)
            queue = deque([start])
            while queue:
                drop = queue.popleft()
                if drop in wanted:
                    found.append(drop)
                for neighbour, ptr in ((self._before, self._before_ptr), (self._after, self._after_ptr)):
                    for other in neighbour[ptr[drop] : ptr[drop + 1]]:
                        if self._moving[other] and other not in seen:
                            seen.add(other)
                            queue.append(other)
        return found

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
