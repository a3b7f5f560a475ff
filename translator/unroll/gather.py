"""Gathers: the inputs of one context, flattened in row-major order, in chunks of `width`.

The chunk number is a level like any other, so a gather may be anywhere. A chunk has inputs of one context only: a
gather inside a scatter gathers in each copy separately, and one at the top level counts through all levels of its
input. It gathers all iterations of a loop, also through loop-aware links: DALiuGE does so, and graphs rely on it, such
as one that gathers 25 copies of 4 iterations through a loop-aware edge, 100 inputs at a time. LG064 reports it.
"""

from collections.abc import Sequence
from math import prod

from translator.logical import LogicalNode
from translator.problem_codes import ZERO_MULTIPLICITY, problem
from translator.stage_options import UnrollOptions
from translator.unroll.index_map import IndexCounter, IndexMap
from translator.unroll.levels import LOOP, Level, Levels, part, strides
from translator.unroll.link_maps import assemble, in_step, unpaired
from translator.unroll.values import Findings, multiplicity, pointer

__all__ = ["chunks", "gather_map", "gathered_levels", "width"]


def width(node: LogicalNode, findings: Findings) -> int:
    """Return the number of inputs in a chunk; 0 for all inputs of a context."""
    name = _width_field(node)
    if node.value(name) is None:
        return 0
    # Zero is documented to mean "all inputs", so it is not reported.
    found: Findings = []
    size = multiplicity(node, name, found)
    findings.extend(finding for finding in found if finding.code != ZERO_MULTIPLICITY)
    return size


def _width_field(node: LogicalNode) -> str:
    """Return the name of the field with the width: the M of an MKN is one."""
    return "m" if node.category == "MKN" else "num_of_inputs"


def chunks(
    node: LogicalNode,
    context: Levels,
    sources: Sequence[Levels],
    options: UnrollOptions,
    findings: Findings,
) -> int:
    """Return the number of instances of a gather in each instance of its context.

    Parameters
    ----------
    node : LogicalNode
        The gather or MKN.
    context : tuple of Level
        Levels of its context.
    sources : sequence of tuples of Level
        Index spaces of the sources of links into it. The one with most inputs decides.
    options : UnrollOptions
        Which levels may be paired.
    findings : list of Problem
        LG020, LG022 and LG072 are added.
    """
    taken = width(node, findings)
    if not sources:
        if node.category != "MKN":  # the input application of an MKN may be where the data come from
            findings.append(problem("LG072", f"gather {node.name!r} has no input", where=node.pointer))
        return 1
    inputs = [_inputs(levels, context, options) for levels in sources]
    for number in sorted(set(inputs)):
        if taken and number % taken:
            kind = "MKN" if node.category == "MKN" else "gather"
            text = f"{kind} {node.name!r} takes {taken} inputs at a time, which does not divide {number}"
            findings.append(problem("LG022", text, where=pointer(node, _width_field(node))))
    return max(-(-number // taken) for number in inputs) if taken else 1


def _inputs(source: Levels, context: Levels, options: UnrollOptions) -> int:
    """Return the number of instances of the source for each instance of the context."""
    return prod(source[level].size for level in _parted(source, context, options)[1])


def gathered_levels(source: Levels, context: Levels, options: UnrollOptions) -> Levels:
    """Return the levels of an input that a gather in a context counts through, outermost first."""
    return tuple(source[level] for level in _parted(source, context, options)[1])


def gather_map(source: Levels, target: Levels, *, position: int, width: int, options: UnrollOptions) -> IndexMap:
    """Return the edges of a link that enters a gather.

    Parameters
    ----------
    source, target : tuples of Level
        Index spaces of the input, and of its consumer inside the gather.
    position : int
        Position of the level of the gather among those of the target.
    width : int
        Inputs in a chunk; 0 for all.
    options : UnrollOptions
        Which levels may be paired.
    """
    context = target[:position]
    pairs, left, right = _parted(source, context, options)
    plain = assemble(
        source,
        target,
        pairs=pairs,
        left=left,
        right=[*right, *range(position + 1, len(target))],
    )
    counted = tuple(source[level] for level in left)
    flat = dict(zip(counted, strides(counted), strict=True))
    counters = tuple(
        IndexCounter(counter.level, counter.size, counter.source, counter.target, _flat(counter, flat))
        for counter in plain.counters
    )
    return IndexMap(
        counters=counters,
        source_start=plain.source_start,
        target_start=plain.target_start,
        chunk=target[position],
        width=width or max(_inputs(source, context, options), 1),
        chunk_stride=strides(target)[position],
    )


def _parted(
    source: Levels, context: Levels, options: UnrollOptions
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Return pairs of levels that input and context share or pair, levels to gather, and levels to broadcast to."""
    parting = part(source, context)
    loops = [level for level in parting.right if context[level].kind == LOOP]
    pairs = in_step(source, [level for level in parting.left if source[level].kind == LOOP], context, loops, options)
    left, right = unpaired(parting, pairs)
    return [*((level, level) for level in range(parting.shared)), *pairs], left, right


def _flat(counter: IndexCounter, flat: dict[Level, int]) -> int:
    """Return the stride of a counter in the inputs of a context: not 0 only for levels of the source alone."""
    return flat.get(counter.level, 0) if counter.source and not counter.target else 0
