"""Gathers: the inputs of one context, flattened row-major and taken `width` at a time.

The chunk number is a level like any other, so a gather may stand anywhere. Chunks never cross the border of a context:
a gather inside a scatter gathers in each copy for itself; one at the top level counts through all levels of its input.
"""

from collections.abc import Sequence

from translator.logical import LogicalNode
from translator.options import UnrollOptions
from translator.problems import problem
from translator.unroll.index_map import IndexMap, Run
from translator.unroll.levels import LOOP, Level, Levels, part, strides
from translator.unroll.links import assemble, in_step, restricted, unpaired
from translator.unroll.values import Findings, multiplicity, pointer

__all__ = ["chunks", "gather_map", "width"]


def width(node: LogicalNode, findings: Findings) -> int:
    """How many inputs a gather takes at a time; 0 for all of its context."""
    if node.value("num_of_inputs") is None:
        return 0
    # Zero is the documented way of saying "all": it is no multiplicity that makes anything vanish.
    found: Findings = []
    size = multiplicity(node, "num_of_inputs", found)
    findings.extend(finding for finding in found if finding.code != "LG021")
    return size


def chunks(
    node: LogicalNode,
    context: Levels,
    sources: Sequence[tuple[Levels, bool]],
    options: UnrollOptions,
    findings: Findings,
) -> int:
    """Number of instances of a gather in each instance of its context.

    Parameters
    ----------
    node : LogicalNode
        The gather.
    context : tuple of Level
        Levels of the place where it stands.
    sources : sequence of (levels, loop-aware)
        Of each link that enters it. The one with most inputs decides.
    options : UnrollOptions
        What loop-aware means.
    findings : list of Problem
        LG020, LG022 and LG072 are added.
    """
    taken = width(node, findings)
    if not sources:
        findings.append(problem("LG072", f"gather {node.name!r} has no input", where=node.pointer))
        return 1
    inputs = [_inputs(levels, context, aware=aware, options=options) for levels, aware in sources]
    for number in sorted(set(inputs)):
        if taken and number % taken:
            text = f"gather {node.name!r} takes {taken} inputs at a time, which does not divide {number}"
            findings.append(problem("LG022", text, where=pointer(node, "num_of_inputs")))
    return max(-(-number // taken) for number in inputs) if taken else 1


def _inputs(source: Levels, context: Levels, *, aware: bool, options: UnrollOptions) -> int:
    left = _parted(source, context, options)[1]
    fixed = restricted(source, left, aware=aware, options=options)
    number = 1
    for level in left:
        number *= min(source[level].size, 1) if level in fixed else source[level].size
    return number


def gather_map(
    source: Levels, target: Levels, *, position: int, width: int, aware: bool, options: UnrollOptions
) -> IndexMap:
    """The edges of a link that enters a gather.

    Parameters
    ----------
    source, target : tuples of Level
        Index spaces of the input, and of what receives it inside the gather.
    position : int
        Where the gather's level stands among those of the target.
    width : int
        Inputs in a chunk; 0 for all.
    aware : bool
        Whether the link is loop-aware.
    options : UnrollOptions
        What may be paired.
    """
    context = target[:position]
    pairs, left, right = _parted(source, context, options)
    last = restricted(source, left, aware=aware, options=options)
    plain = assemble(
        source,
        target,
        pairs=pairs,
        left=left,
        right=[*right, *range(position + 1, len(target))],
        last=last,
    )
    counted = [level for level in left if level not in last]
    flat = dict(
        zip((source[level] for level in counted), strides(tuple(source[level] for level in counted)), strict=True)
    )
    runs = tuple(Run(run.level, run.size, run.source, run.target, _flat(run, flat)) for run in plain.runs)
    return IndexMap(
        runs=runs,
        source_start=plain.source_start,
        target_start=plain.target_start,
        chunk=target[position],
        width=width or max(_inputs(source, context, aware=aware, options=options), 1),
        chunk_stride=strides(target)[position],
    )


def _parted(
    source: Levels, context: Levels, options: UnrollOptions
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Levels that input and context share or run through in step, levels to gather, levels to broadcast to."""
    parting = part(source, context)
    loops = [level for level in parting.right if context[level].kind == LOOP]
    pairs = in_step(source, [level for level in parting.left if source[level].kind == LOOP], context, loops, options)
    left, right = unpaired(parting, pairs)
    return [*((level, level) for level in range(parting.shared)), *pairs], left, right


def _flat(run: Run, flat: dict[Level, int]) -> int:
    """Counters of the source alone run through the inputs of a context."""
    return flat.get(run.level, 0) if run.source and not run.target else 0
