"""Index maps of ordinary links and of carries: spec 3.11, "recommended semantics (closed form)".

Two nodes share their outermost levels, where indices are equal. A loop-aware link leaves a loop from its last iteration
and enters a loop at its first, whatever the numbers of iterations. Of the other levels, those left on the source's side
are collected, those left on the target's side are broadcast to; where there are some on both sides they must be paired:
loops run in step.
"""

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from translator.options import UnrollOptions
from translator.unroll.index_map import IndexCounter, IndexMap
from translator.unroll.levels import LOOP, MPI, Level, Levels, Parting, part, strides

__all__ = [
    "Joint",
    "Unpairable",
    "assemble",
    "carry_level",
    "in_step",
    "join",
    "joined",
    "link_map",
    "restricted",
    "unpaired",
]


class Unpairable(Exception):  # noqa: N818 - a verdict for the caller, who turns it into a finding
    """The levels of the two ends cannot be paired: those left on either side.

    Parameters
    ----------
    left, right : tuple of Level
        Levels of the source alone, and of the target alone.
    """

    def __init__(self, left: Levels, right: Levels) -> None:
        super().__init__()
        self.left, self.right = left, right


class Joint(NamedTuple):
    """What a link does with the levels of its ends, by their positions.

    Attributes
    ----------
    shared : int
        Number of outermost levels that both ends have.
    pairs : list of (int, int)
        Other levels that run in step.
    left, right : list of int
        Levels of the source that are collected, and of the target that are broadcast to.
    last, first : set of int
        Loops of the source that are left from the last iteration, and of the target that are entered at the first.
    """

    shared: int
    pairs: list[tuple[int, int]]
    left: list[int]
    right: list[int]
    last: set[int]
    first: set[int]


def join(source: Levels, target: Levels, *, aware: bool, options: UnrollOptions) -> Joint:
    """Decide what a link does with each level of its ends; see `link_map`, which may still find it impossible."""
    parting = part(source, target)
    last = restricted(source, parting.left, aware=aware, options=options)
    first = restricted(target, parting.right, aware=aware, options=options)
    rest = Parting(
        parting.shared,
        [level for level in parting.left if level not in last],
        [level for level in parting.right if level not in first],
    )
    pairs = in_step(source, rest.left, target, rest.right, options)
    return Joint(parting.shared, pairs, *unpaired(rest, pairs), last, first)


def link_map(
    source: Levels,
    target: Levels,
    *,
    aware: bool,
    options: UnrollOptions,
    carry: int | None = None,
    once: Collection[str] = (),
) -> IndexMap:
    """The edges of a link between two nodes.

    Parameters
    ----------
    source, target : tuples of Level
        Index spaces of the ends.
    aware : bool
        Whether the link is loop-aware: it leaves loops from the last iteration, and enters loops at the first.
    options : UnrollOptions
        What may be paired, and what loop-aware means.
    carry : int, optional
        Position of the shared loop from one iteration of which the link leads to the next.
    once : collection of str
        Ids of loops that the link enters at the first iteration even if it is not loop-aware.

    Raises
    ------
    Unpairable
        Levels are left on both sides.
    """
    joint = join(source, target, aware=aware, options=options)
    if joint.left and joint.right:
        raise Unpairable(tuple(source[level] for level in joint.left), tuple(target[level] for level in joint.right))
    return joined(source, target, joint, carry=carry, once=once)


def joined(
    source: Levels, target: Levels, joint: Joint, *, carry: int | None = None, once: Collection[str] = ()
) -> IndexMap:
    """The edges of a link of which it is decided what it does with each level; see `link_map` for the parameters."""
    return assemble(
        source,
        target,
        pairs=[*((level, level) for level in range(joint.shared)), *joint.pairs],
        left=[*joint.left, *joint.last],
        right=[*joint.right, *joint.first],
        last=joint.last,
        first=joint.first | {level for level in joint.right if target[level].construct in once},
        carry=carry,
    )


def carry_level(source: Levels, target: Levels) -> int | None:
    """Position of the innermost loop that two nodes share, or None."""
    shared = part(source, target).shared
    return next((level for level in reversed(range(shared)) if source[level].kind == LOOP), None)


def in_step(
    source: Levels, left: Sequence[int], target: Levels, right: Sequence[int], options: UnrollOptions
) -> list[tuple[int, int]]:
    """Pair all levels that are left on one side with levels of the other, in their order; none where that fails.

    Loops pair with loops and MPI ranks with MPI ranks, of equal size; other levels only where zipping is switched on.
    """
    if not (left and right):
        return []
    forth = _match(left, right, lambda one, other: _may_pair(source[one], target[other], options))
    if forth is not None:
        return forth
    back = _match(right, left, lambda other, one: _may_pair(source[one], target[other], options))
    return [(one, other) for other, one in back or ()]


def _match(
    inner: Sequence[int], outer: Sequence[int], fits: Callable[[int, int], bool]
) -> list[tuple[int, int]] | None:
    """Each of `inner` with the next of `outer` that fits, or None if one of them finds none."""
    rest = iter(outer)
    pairs: list[tuple[int, int]] = []
    for one in inner:
        other = next((other for other in rest if fits(one, other)), None)
        if other is None:
            return None
        pairs.append((one, other))
    return pairs


def unpaired(parting: Parting, pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """What is left on either side."""
    ones, others = {one for one, _ in pairs}, {other for _, other in pairs}
    return (
        [level for level in parting.left if level not in ones],
        [level for level in parting.right if level not in others],
    )


def _may_pair(first: Level, second: Level, options: UnrollOptions) -> bool:
    if first.size != second.size:
        return False
    if first.kind in (LOOP, MPI) or second.kind in (LOOP, MPI):
        return first.kind == second.kind
    return options.zip_scatters


def restricted(levels: Levels, rest: Sequence[int], *, aware: bool, options: UnrollOptions) -> set[int]:
    """Positions of the loops in `rest` of which a loop-aware link sees one iteration only."""
    if not aware:
        return set()
    if options.loop_aware == "innermost":
        innermost = len(levels) - 1
        return {innermost} if innermost in rest and levels[innermost].kind == LOOP else set()
    return {level for level in rest if levels[level].kind == LOOP}


def assemble(
    source: Levels,
    target: Levels,
    *,
    pairs: Sequence[tuple[int, int]] = (),
    left: Sequence[int] = (),
    right: Sequence[int] = (),
    last: AbstractSet[int] = frozenset(),
    first: AbstractSet[int] = frozenset(),
    carry: int | None = None,
) -> IndexMap:
    """Turn pairs of levels, and levels of one end only, into counters with strides."""
    out, into = strides(source), strides(target)
    moving: list[tuple[int, IndexCounter]] = []
    source_start = target_start = 0
    vanishes = False
    for one, other in pairs:
        size = source[one].size
        if one == carry:
            size = max(size - 1, 0)
            target_start += into[other]
        moving.append((one, IndexCounter(source[one], size, out[one], into[other])))
    for one in left:
        if one in last:
            vanishes |= source[one].size == 0
            source_start += max(source[one].size - 1, 0) * out[one]
        else:
            moving.append((one, IndexCounter(source[one], source[one].size, out[one])))
    broadcast = []
    for other in right:
        if other in first:
            vanishes |= target[other].size == 0
        else:
            broadcast.append(IndexCounter(target[other], target[other].size, 0, into[other]))
    counters = [counter for _, counter in sorted(moving, key=lambda entry: entry[0])] + broadcast
    if vanishes:
        # One of no iterations: the link has no edge, whatever its other levels say.
        counters.append(IndexCounter(source[0] if source else target[0], 0))
    return IndexMap(counters=tuple(counters), source_start=source_start, target_start=target_start)
