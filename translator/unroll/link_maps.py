"""Index maps of ordinary links and of carries.

Two nodes share their outermost levels, in which indices are equal. A loop-aware link leaves a loop from its last
iteration and enters a loop at its first, for any number of iterations. Other levels of the source are collected, and
other levels of the target are broadcast to. If both sides have other levels they must be paired: loops of equal size
are.
"""

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from translator.stage_options import UnrollOptions
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


class Unpairable(Exception):  # noqa: N818 - the caller turns it into a finding
    """Raised if the levels of the two ends cannot be paired.

    Parameters
    ----------
    left, right : tuple of Level
        Levels of the source alone, and of the target alone.
    """

    def __init__(self, left: Levels, right: Levels) -> None:
        super().__init__()
        self.left, self.right = left, right


class Joint(NamedTuple):
    """The treatment of the levels of both ends of a link, by their positions.

    Attributes
    ----------
    shared : int
        Number of outermost levels that both ends have.
    pairs : list of (int, int)
        Other levels that are paired.
    left, right : list of int
        Levels of the source that are collected, and of the target that are broadcast to.
    last, first : set of int
        Loops of the source whose last iteration is used, and loops of the target whose first iteration is used.
    """

    shared: int
    pairs: list[tuple[int, int]]
    left: list[int]
    right: list[int]
    last: set[int]
    first: set[int]


def join(source: Levels, target: Levels, *, aware: bool, options: UnrollOptions) -> Joint:
    """Decide how a link treats each level of its ends. `link_map` checks that the result is possible."""
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
    """Return the edges of a link between two nodes.

    Parameters
    ----------
    source, target : tuples of Level
        Index spaces of the ends.
    aware : bool
        Whether the link is loop-aware: it leaves loops from the last iteration, and enters loops at the first.
    options : UnrollOptions
        Which levels may be paired, and the meaning of loop-aware.
    carry : int, optional
        Position of the shared loop, if the link leads from one iteration to the next.
    once : collection of str
        Ids of loops that the link enters at the first iteration even if it is not loop-aware.

    Raises
    ------
    Unpairable
        Both sides have levels that are not paired.
    """
    joint = join(source, target, aware=aware, options=options)
    if joint.left and joint.right:
        raise Unpairable(tuple(source[level] for level in joint.left), tuple(target[level] for level in joint.right))
    return joined(source, target, joint, carry=carry, once=once)


def joined(
    source: Levels, target: Levels, joint: Joint, *, carry: int | None = None, once: Collection[str] = ()
) -> IndexMap:
    """Return the edges of a link with a given treatment of levels; see `link_map` for the parameters."""
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
    """Return the position of the innermost loop that two nodes share, or None."""
    shared = part(source, target).shared
    return next((level for level in reversed(range(shared)) if source[level].kind == LOOP), None)


def in_step(
    source: Levels, left: Sequence[int], target: Levels, right: Sequence[int], options: UnrollOptions
) -> list[tuple[int, int]]:
    """Pair all remaining levels of one side with levels of the other, in order; return no pairs if that is impossible.

    Loops are paired with loops and MPI ranks with MPI ranks, of equal size. Other levels of equal size are paired only
    if one of them names the other in its field `zip_with`, or with the option `zip_scatters`.
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
    """Pair each of `inner` with the next of `outer` that fits; None if one of them has no partner."""
    rest = iter(outer)
    pairs: list[tuple[int, int]] = []
    for one in inner:
        other = next((other for other in rest if fits(one, other)), None)
        if other is None:
            return None
        pairs.append((one, other))
    return pairs


def unpaired(parting: Parting, pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the levels of either side that are not paired."""
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
    return options.zip_scatters or first.is_zipped(second)


def restricted(levels: Levels, rest: Sequence[int], *, aware: bool, options: UnrollOptions) -> set[int]:
    """Return the positions of the loops in `rest` that a loop-aware link uses one iteration of."""
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
    """Make counters with strides from pairs of levels, and from levels of one end only."""
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
        # A loop without iterations: the link has no edges.
        counters.append(IndexCounter(source[0] if source else target[0], 0))
    return IndexMap(counters=tuple(counters), source_start=source_start, target_start=target_start)
