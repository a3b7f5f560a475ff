"""Index maps of ordinary links and of carries: spec 3.11, "recommended semantics (closed form)".

Two nodes share their outermost levels, where indices are equal. What is left on the source's side is collected, what is
left on the target's side is broadcast to. Where levels are left on both sides they must be paired: loops run in step.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from translator.options import UnrollOptions
from translator.unroll.index_map import IndexMap, Run
from translator.unroll.levels import LOOP, MPI, Level, Levels, Parting, part, strides

__all__ = ["Unpairable", "assemble", "carry_level", "in_step", "link_map", "restricted", "unpaired"]


class Unpairable(Exception):  # noqa: N818 - a verdict for the caller, who turns it into a finding
    """The levels of the two ends cannot be paired."""


def link_map(
    source: Levels, target: Levels, *, aware: bool, options: UnrollOptions, carry: int | None = None
) -> IndexMap:
    """The edges of a link between two nodes.

    Parameters
    ----------
    source, target : tuples of Level
        Index spaces of the ends.
    aware : bool
        Whether the link is loop-aware: of a loop that is collected only the last iteration counts, of a loop that is
        broadcast to only the first.
    options : UnrollOptions
        What may be paired, and what loop-aware means.
    carry : int, optional
        Position of the shared loop from one iteration of which the link leads to the next.

    Raises
    ------
    Unpairable
        Levels are left on both sides.
    """
    parting = part(source, target)
    pairs = in_step(source, parting.left, target, parting.right, options)
    left, right = unpaired(parting, pairs)
    if left and right:
        raise Unpairable
    return assemble(
        source,
        target,
        pairs=[*((level, level) for level in range(parting.shared)), *pairs],
        left=left,
        right=right,
        last=restricted(source, left, aware=aware, options=options),
        first=restricted(target, right, aware=aware, options=options),
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
    moving: list[tuple[int, Run]] = []
    source_start = target_start = 0
    vanishes = False
    for one, other in pairs:
        size = source[one].size
        if one == carry:
            size = max(size - 1, 0)
            target_start += into[other]
        moving.append((one, Run(source[one], size, out[one], into[other])))
    for one in left:
        if one in last:
            vanishes |= source[one].size == 0
            source_start += max(source[one].size - 1, 0) * out[one]
        else:
            moving.append((one, Run(source[one], source[one].size, out[one])))
    broadcast = []
    for other in right:
        if other in first:
            vanishes |= target[other].size == 0
        else:
            broadcast.append(Run(target[other], target[other].size, 0, into[other]))
    runs = [run for _, run in sorted(moving, key=lambda entry: entry[0])] + broadcast
    if vanishes:
        # One of no iterations: the link has no edge, whatever its other levels say.
        runs.append(Run(source[0] if source else target[0], 0))
    return IndexMap(runs=tuple(runs), source_start=source_start, target_start=target_start)
