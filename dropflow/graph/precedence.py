"""Which drops are over before others begin, read off the templates and links alone.

The answer is the same on every node of a session, whatever part of the graph it has, and costs nothing per drop.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from dropflow.graph.templates import Axis, Link, Template

__all__ = ["Precedence"]

_LOOP = "loop"


class _Name(NamedTuple):
    """What tells an axis from others: its construct, and which of the axes of that construct it is.

    Lists of drops that other programs wrote have axes without construct, which only mean something within one template.
    """

    construct: str
    place: int


class Precedence:
    """The order that the links of a graph put its drops into.

    Parameters
    ----------
    templates, links : sequences
        Of the graph.
    """

    def __init__(self, templates: Sequence[Template], links: Sequence[Link]) -> None:
        self._axes = [dict(zip(_names(template.axes), template.axes, strict=True)) for template in templates]
        self._after: dict[int, list[Link]] = {}
        for link in links:
            self._after.setdefault(link.source, []).append(link)

    def holds(self, first: int, index: Sequence[int], second: int, other: Sequence[int]) -> bool:
        """Whether one drop is settled before another one begins, because the other depends on it.

        A chain of links keeps the position on the axes that all of its nodes share. So where two drops differ on such
        an axis, the chain must leave it on the way, as a gather does, or lead from one iteration of a loop to a later
        one.

        Parameters
        ----------
        first, second : int
            Rows of their templates.
        index, other : sequence of int
            Their positions on the axes of these.
        """
        here = dict(zip(self._axes[first], index, strict=True))
        there = dict(zip(self._axes[second], other, strict=True))
        shared = {name for name in here.keys() & there.keys() if name.construct or first == second}
        differing = {name for name in shared if here[name] != there[name]}
        if first == second and not differing:
            return False
        later = {name for name in differing if here[name] < there[name] and self._axes[first][name].kind == _LOOP}
        # Without the names of constructs no link is known as the carry of a loop.
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
        """The innermost loop around both ends of a carry."""
        source, target = self._axes[carry.source], self._axes[carry.target]
        return next((name for name in reversed(source) if source[name].kind == _LOOP and name in target), None)


def _names(axes: Sequence[Axis]) -> list[_Name]:
    seen: Counter[str] = Counter()
    names = []
    for axis in axes:
        names.append(_Name(axis.construct, seen[axis.construct]))
        seen[axis.construct] += 1
    return names
