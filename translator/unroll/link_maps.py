"""Index maps of links and carries: the instances that a link joins, and the levels that it pairs.

Two nodes share their outermost levels, in which indices are equal. A loop-aware link leaves a loop from its last
iteration and enters a loop at its first, for any number of iterations. Other levels of the source are collected, and
other levels of the target are broadcast to. If both sides have other levels they must be paired: loops of equal size
are.
"""

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from translator.logical import LogicalGraph, LogicalNode, NodeKind
from translator.options import UnrollOptions
from translator.problem_codes import problem
from translator.unroll.levels import (
    GATHER,
    LOOP,
    MPI,
    SCATTER,
    Findings,
    Level,
    Levels,
    Parting,
    part,
    pointer,
    strides,
)

FIELD = "zip_with"


# Index maps: the instances that a link joins, as nested counters with strides.
#
# All edges of a link are enumerated by a few nested counters (`IndexCounter`). Each adds its stride to the number of
# the source, to that of the target, or to both; a gather in addition divides a running number by its width. So a link
# of a million edges is a handful of integers until the arrays are needed, and its number of edges is a product.


class IndexCounter(msgspec.Struct, frozen=True):
    """One counter of an index map.

    Attributes
    ----------
    level : Level
        The level that is counted.
    size : int
        Number of steps: the size of the level, or one less for the carry of a loop.
    source, target : int
        Strides of the instance numbers; 0 if the level does not belong to that end.
    flat : int
        Stride of the number that a gather divides by its width.
    """

    level: Level
    size: int
    source: int = 0
    target: int = 0
    flat: int = 0


class IndexMap(msgspec.Struct, frozen=True, kw_only=True):
    """The edges of one link.

    Attributes
    ----------
    counters : tuple of IndexCounter
        The counters. Those of the source are first, so that edges are sorted by source, then by target.
    source_start, target_start : int
        First instance numbers.
    chunk : Level or None
        The level of the gather that the link enters, or feeds back from.
    width : int
        Number of inputs in a chunk of that gather.
    chunk_stride : int
        Stride of the number of the target (or source) from one chunk to the next.
    chunk_of_source : bool
        Whether the chunk is at the source: the link feeds back from the gather to the nodes that it gathers.
    is_group : bool
        Whether the target gets a group of a group-by, which is a list also if every level is a key.
    """

    counters: tuple[IndexCounter, ...] = ()
    source_start: int = 0
    target_start: int = 0
    chunk: Level | None = None
    width: int = 1
    chunk_stride: int = 0
    chunk_of_source: bool = False
    is_group: bool = False

    @property
    def edges(self) -> int:
        """Number of edges."""
        return prod(counter.size for counter in self.counters)

    @property
    def collects(self) -> bool:
        """Whether a target may have several edges. This depends on the kinds of levels, and not on their sizes.

        So a scatter of one copy is collected, too, and all inputs of a gather. But a gather of all its inputs has one
        instance, and gives a value. So does any gather with one copy, as in DALiuGE, unless it always gives a list.
        """
        is_gathered = self.chunk is not None and not self.chunk_of_source
        return (
            is_gathered
            or self.is_group
            or any(
                counter.source
                and not counter.target
                and not counter.level.is_transparent
                and not (counter.level.kind == GATHER and counter.level.size == 1 and not counter.level.is_list)
                for counter in self.counters
            )
        )

    def write(self, source: npt.NDArray[np.int32], target: npt.NDArray[np.int32]) -> None:
        """Add the instance numbers at both ends of every edge to two arrays.

        Parameters
        ----------
        source, target : int32 arrays, shape (edges,)
            Changed in place. Only the target of a gather needs more memory.
        """
        if not self.edges:
            return
        counters = _merged(self.counters)
        sizes = [counter.size for counter in counters]
        _count(source, self.source_start, sizes, [counter.source for counter in counters])
        _count(target, self.target_start, sizes, [counter.target for counter in counters])
        if self.chunk is not None:
            flat = np.zeros(len(target), dtype=np.int32)
            _count(flat, 0, sizes, [counter.flat for counter in counters])
            flat //= min(self.width, np.iinfo(np.int32).max)  # a number of inputs in a graph has no upper bound
            flat *= self.chunk_stride
            if self.chunk_of_source:
                source += flat
            else:
                target += flat


def _count(out: npt.NDArray[Any], start: int, sizes: list[int], strides: list[int]) -> None:
    """Add ``start + sum(index * stride)`` for all indices, row-major."""
    if start:
        out += np.int32(start)
    grid = out.reshape(sizes)
    for position, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if stride:
            steps = np.arange(size, dtype=np.int32)
            steps *= np.int32(stride)
            grid += steps.reshape([size if axis == position else 1 for axis in range(len(sizes))])


def _merged(counters: tuple[IndexCounter, ...]) -> list[IndexCounter]:
    """Return equivalent counters, with neighbours joined if the outer continues where the inner wraps."""
    merged: list[IndexCounter] = []
    for counter in counters:
        if counter.size == 1:
            continue
        last = merged[-1] if merged else None
        if last is not None and all(
            outer == counter.size * inner
            for outer, inner in (
                (last.source, counter.source),
                (last.target, counter.target),
                (last.flat, counter.flat),
            )
        ):
            merged[-1] = IndexCounter(
                counter.level, last.size * counter.size, counter.source, counter.target, counter.flat
            )
        else:
            merged.append(counter)
    return merged


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
        Options that decide which levels may be paired, and the meaning of loop-aware.
    carry : int, optional
        Position of the shared loop, if the link leads from one iteration to the next; None for an ordinary link.
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
    forth = _match(left, right, lambda level, other: _may_pair(source[level], target[other], options))
    if forth is not None:
        return forth
    back = _match(right, left, lambda other, level: _may_pair(source[level], target[other], options))
    return [(level, other) for other, level in back or ()]


def _match(
    inner: Sequence[int], outer: Sequence[int], fits: Callable[[int, int], bool]
) -> list[tuple[int, int]] | None:
    """Pair each of `inner` with the next of `outer` that fits; None if one of them has no partner."""
    rest = iter(outer)
    pairs: list[tuple[int, int]] = []
    for level in inner:
        other = next((other for other in rest if fits(level, other)), None)
        if other is None:
            return None
        pairs.append((level, other))
    return pairs


def unpaired(parting: Parting, pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the levels of either side that are not paired."""
    ones, others = {level for level, _ in pairs}, {other for _, other in pairs}
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
    """Return the positions of the loops in `rest` from which a loop-aware link uses one iteration."""
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
    for level, other in pairs:
        size = source[level].size
        if level == carry:
            size = max(size - 1, 0)
            target_start += into[other]
        moving.append((level, IndexCounter(source[level], size, out[level], into[other])))
    for level in left:
        if level in last:
            vanishes |= source[level].size == 0
            source_start += max(source[level].size - 1, 0) * out[level]
        else:
            moving.append((level, IndexCounter(source[level], source[level].size, out[level])))
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


# Zipped scatters: with the field `zip_with`, a scatter names others whose copies are linked to its own by number.


def zip_with(graph: LogicalGraph, node: LogicalNode, findings: Findings) -> tuple[str, ...]:
    """Return the names or ids of scatters in the field `zip_with` of a scatter; LG087 for those that do not exist."""
    value = node.value(FIELD)
    if node.category != "Scatter" or value is None:
        return ()
    parts = value if isinstance(value, list) else str(value).split(",")
    names = tuple(name for part in parts if (name := str(part).strip()))
    known = {
        key
        for other in graph.nodes
        if other.kind is NodeKind.CONSTRUCT and other.category in ("Scatter", "MKN") and other.id != node.id
        for key in (other.id, other.name)
    }
    for name in names:
        if name not in known:
            text = f"scatter {node.name!r} is to be zipped with {name!r}, which is not another scatter of this graph"
            hint = f"write the name or id of a scatter into its field {FIELD}"
            findings.append(problem("LG087", text, where=pointer(node, FIELD), hint=hint))
    return names


def zip_hint(left: Levels, right: Levels) -> str:
    """Return how to zip the innermost levels of the two ends of a link; empty if they are not equal scatters."""
    level, other = left[-1], right[-1]
    if not (level.kind == other.kind == SCATTER and level.size == other.size):
        return ""
    return f"set the field {FIELD} of {other.label} to {level.name!r}, to link their copies by number"


def why_not_zipped(left: Levels, right: Levels) -> str:
    """Return why levels that are to be zipped cannot be; empty if none are."""
    pairs = [(level, other) for level in left for other in right if level.is_zipped(other)]
    unequal: list[tuple[Level, Level]] = [pair for pair in pairs if pair[0].size != pair[1].size]
    if not unequal:
        return ""
    level, other = unequal[0]
    return f"{level.label} and {other.label} are zipped, but have {level.size} and {other.size} copies"
