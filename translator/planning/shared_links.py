"""Moves of data that share links: each gets its max-min fair share of the bandwidth of the links on its path.

Fair shares are found by progressive filling (D. Bertsekas and R. Gallager, "Data Networks", 1992, section 6.5.2). All
moves from one node to another have the same share, so they are one group: how many bytes each of its moves has got
since it began is the difference of one number, and the next to end is the first of a heap.
"""

import heapq
import math

from translator.planning.machines import Machines

__all__ = ["SharedLinks"]

_TOLERANCE = 1e-9
"""Share of a move that may be missing at its end: sums of rates are not exact."""


class _MoveGroup:
    """The moves from one node to another."""

    __slots__ = ("ends", "links", "rate", "received", "since", "waiting")

    def __init__(self, links: tuple[int, ...]) -> None:
        self.links = links
        self.waiting: list[tuple[float, int, float]] = []
        """Bytes received when each ends, its number, and its volume; a heap."""
        self.received = 0.0
        self.rate = 0.0
        self.since = 0.0
        self.ends = math.inf


class SharedLinks:
    """The moves under way at a time of the simulation.

    Parameters
    ----------
    machines : Machines
        Each node has a link in each direction, and each island, if there is a speed between islands.
    """

    def __init__(self, machines: Machines) -> None:
        nodes = len(machines.nodes)
        self._nodes = nodes
        self._island_of = [machines.islands.index(node.island) for node in machines.nodes]
        self._islands = len(machines.islands)
        self._has_islands = machines.between_islands is not None
        self._capacity = [machines.links.bandwidth] * (2 * nodes)
        if machines.between_islands is not None:
            self._capacity += [machines.between_islands.bandwidth] * (2 * self._islands)
        self._groups: dict[int, _MoveGroup] = {}
        self._active: dict[int, _MoveGroup] = {}
        self._has_changed = False
        self.next_end = math.inf
        """When the next move ends."""

    def start(self, now: float, source: int, target: int, volume: float, move: int) -> None:
        """Add a move. `settle` must be called before time goes on."""
        key = source * self._nodes + target
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _MoveGroup(self._path(source, target))
        if not group.waiting:
            group.received, group.since = 0.0, now
            self._active[key] = group
        elif group.since < now:
            group.received += group.rate * (now - group.since)
            group.since = now
        heapq.heappush(group.waiting, (group.received + volume, move, volume))
        self._has_changed = True

    def finish(self, now: float) -> list[int]:
        """Remove and return the moves that end now."""
        done: list[int] = []
        for key, group in list(self._active.items()):
            if group.ends > now:
                continue
            received = group.waiting[0][0]  # exact, where a product with the rate is not
            waiting = group.waiting
            while waiting and waiting[0][0] - received <= _TOLERANCE * waiting[0][2]:
                done.append(heapq.heappop(waiting)[1])
            group.received, group.since = received, now
            self._has_changed = True
            if not waiting:
                del self._active[key]
        return done

    def settle(self, now: float) -> None:
        """Compute the shares of all moves, if any was added or removed."""
        if not self._has_changed:
            return
        self._has_changed = False
        groups = list(self._active.values())
        for group in groups:
            if group.since < now:
                group.received += group.rate * (now - group.since)
                group.since = now
        self._share(groups)
        self.next_end = math.inf
        for group in groups:
            left = max(group.waiting[0][0] - group.received, 0.0)
            group.ends = now + left / group.rate
            self.next_end = min(self.next_end, group.ends)

    def _share(self, groups: list[_MoveGroup]) -> None:  # noqa: C901, PLR0912 - the innermost loop of the simulation
        """Set the rates: the link with the smallest share for each of its moves is filled first, then the next one."""
        users: dict[int, list[_MoveGroup]] = {}
        moves: dict[int, int] = {}
        for group in groups:
            group.rate = 0.0
            count = len(group.waiting)
            for link in group.links:
                if link in users:
                    users[link].append(group)
                    moves[link] += count
                else:
                    users[link] = [group]
                    moves[link] = count
        room = {link: self._capacity[link] for link in users}
        while moves:
            fullest, share = -1, math.inf
            for link, count in moves.items():
                if room[link] < share * count:
                    fullest, share = link, room[link] / count
            if fullest < 0:  # all remaining links are infinitely fast
                for group in groups:
                    group.rate = group.rate or math.inf
                return
            for group in users[fullest]:
                if group.rate:
                    continue
                group.rate = share
                count = len(group.waiting)
                for link in group.links:
                    room[link] = max(room[link] - share * count, 0.0)
                    moves[link] -= count
                    if not moves[link]:
                        del moves[link]

    def _path(self, source: int, target: int) -> tuple[int, ...]:
        nodes = self._nodes
        path = (source, nodes + target)
        first, last = self._island_of[source], self._island_of[target]
        if first == last or not self._has_islands:
            return path
        return (*path, 2 * nodes + first, 2 * nodes + self._islands + last)
