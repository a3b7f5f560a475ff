"""The order of drops: which are settled before others begin, from templates and links alone.

The result is the same on every node of a session, for any part of the graph, and the time does not depend on the number
of drops.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from dropflow.graph.templates import Axis, Link, Template

__all__ = ["Precedence"]

_LOOP, _GATHER = "loop", "gather"


class _Name(NamedTuple):
    """Identity of an axis: its construct, and its number among the axes of that construct.

    In lists of drops of other programs, axes have no construct, and are comparable only within one template.
    """

    construct: str
    place: int


class Precedence:
    """The order of the drops of a graph that its links imply.

    Parameters
    ----------
    templates, links : sequences
        Templates and links of the graph.
    """

    def __init__(self, templates: Sequence[Template], links: Sequence[Link]) -> None:
        self._axes = [dict(zip(_names(template.axes), template.axes, strict=True)) for template in templates]
        self._after: dict[int, list[Link]] = {}
        for link in links:
            self._after.setdefault(link.source, []).append(link)

    def holds(self, first: int, index: Sequence[int], second: int, other: Sequence[int]) -> bool:
        """Whether one drop is settled before another one begins, because the other depends on it.

        A chain of links keeps the position on the axes that all of its nodes share. If two drops differ on such an
        axis, the chain must leave that axis, as a gather does, or lead from one iteration of a loop to a later one.

        Parameters
        ----------
        first, second : int
            Rows of their templates.
        index, other : sequence of int
            Their positions on the axes of these templates.
        """
        here = dict(zip(self._axes[first], index, strict=True))
        there = dict(zip(self._axes[second], other, strict=True))
        shared = {name for name in here.keys() & there.keys() if name.construct or first == second}
        differing = {name for name in shared if here[name] != there[name]}
        if first == second and not differing:
            return False
        later = {name for name in differing if here[name] < there[name] and self._axes[first][name].kind == _LOOP}
        # Without names of constructs, carries of loops are unknown.
        crossed = frozenset(name for name in differing if name.construct or name not in later)
        return self._reaches(first, second, crossed, later)

    def _reaches(self, start: int, goal: int, differing: frozenset[_Name], later: set[_Name]) -> bool:
        seen = {(start, differing)}
        queue = deque(seen)
        while queue:
            row, before = queue.popleft()
            for link in self._after.get(row, ()):
                left = frozenset(name for name in before if name in self._axes[link.target] or not name.construct)
                if link.carry:
                    loop = self._loop_of(link)
                    if loop not in later:
                        continue
                    left -= {loop}
                if link.target == goal and not left:
                    return True
                if (link.target, left) not in seen:
                    seen.add((link.target, left))
                    queue.append((link.target, left))
        return False

    def _loop_of(self, carry: Link) -> _Name | None:
        """Return the innermost loop around both ends of a carry.

        None for one that leads from a gather into other copies: it may feed back to the scatter that is gathered. Which
        copies are later then depends on the width of the gather, which templates do not have.
        """
        source, target = self._axes[carry.source], self._axes[carry.target]
        left, entered = (
            [axis for name, axis in one.items() if name not in other]
            for one, other in ((source, target), (target, source))
        )
        if left and entered and left[0].kind == _GATHER:
            return None
        return next((name for name in reversed(source) if source[name].kind == _LOOP and name in target), None)


def _names(axes: Sequence[Axis]) -> list[_Name]:
    seen: Counter[str] = Counter()
    names = []
    for axis in axes:
        names.append(_Name(axis.construct, seen[axis.construct]))
        seen[axis.construct] += 1
    return names
