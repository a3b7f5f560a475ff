"""Gathers and MKN constructs: how many inputs they take, findings about that, and their index maps.

A gather takes the inputs of one context, flattened in row-major order, in chunks of its width. The chunk number is a
level like any other, so a gather may be anywhere. A chunk has inputs of one context only: a gather inside a scatter
gathers in each copy separately, and one at the top level counts through all levels of its input. It gathers all
iterations of a loop, also through loop-aware links: DALiuGE does so, and graphs rely on it, such as one that gathers 25
copies of 4 iterations through a loop-aware edge, 100 inputs at a time. LG064 reports it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from dropflow.failure import Problem
from translator.logical import LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
from translator.options import UnrollOptions
from translator.problem_codes import ZERO_MULTIPLICITY, problem
from translator.unroll.levels import (
    GATHER,
    LOOP,
    SCATTER,
    Findings,
    Level,
    Levels,
    multiplicity,
    part,
    pointer,
    strides,
    whole,
)
from translator.unroll.link_maps import IndexCounter, IndexMap, assemble, in_step, unpaired


def width(node: LogicalNode, findings: Findings) -> int:
    """Return the number of inputs in a chunk; 0 for all inputs of a context."""
    name = _width_field(node)
    if node.value(name) is None:
        return 0
    # Zero is documented to mean "all inputs", so it is not reported.
    own_findings: Findings = []
    size = multiplicity(node, name, own_findings)
    findings.extend(finding for finding in own_findings if finding.code != ZERO_MULTIPLICITY)
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
        Index spaces of the sources of links into it. The source with most inputs decides.
    options : UnrollOptions
        Options that decide which levels may be paired.
    findings : list of Problem
        LG020, LG022 and LG072 are added.
    """
    taken = width(node, findings)
    if not sources:
        if node.category != "MKN":  # the input application of an MKN may be the source of the data itself
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
        Options that decide which levels may be paired.
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


# MKN: from M inputs to K copies of its content, and from them to N outputs.
#
# The input application is a gather: in each context it has one instance for every M inputs, counted and chunked as
# those of a gather. Its content is repeated K times for each of these instances, and the output application has one
# instance for each. Data beside the construct that the output application writes are repeated N times for each of its
# instances, if N is more than 1; with N = 1, one data drop outside collects from all instances, as after a gather.
#
# So the levels of the content are those of the context, the chunks, and the K copies. The applications have all but the
# last of them.


@dataclass
class Mkn:
    """The applications and outputs of all MKN constructs of a graph, by node id.

    Attributes
    ----------
    inputs : dict
        The construct of each input application.
    apps : dict
        The construct of each input or output application.
    outputs : dict
        The construct of each data node that is repeated N times.
    copies : dict
        The level of the N outputs, by construct id.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    apps: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    copies: dict[str, Levels] = field(default_factory=dict)

    def owners(self, node: str) -> Iterator[str]:
        """Yield the construct on whose levels the levels of a node depend."""
        for table in (self.apps, self.outputs):
            if node in table:
                yield table[node]


def find_applications(mkn: Mkn, graph: LogicalGraph, home: Mapping[str, str | None], findings: Findings) -> None:
    """Find the applications of MKN constructs, and the data nodes that are repeated N times.

    Adds LG086 for outputs that cannot be repeated.
    """
    several: dict[str, str] = {}
    for construct, apps in graph.embedded.items():
        owner = graph.by_id.get(construct)
        if owner is None or owner.category != "MKN":
            continue
        count = whole(owner, "n", 1, findings, lowest=1, highest=2**63)  # LG120 judges the size
        mkn.copies[construct] = (_level(owner, SCATTER, count, 2),) if count > 1 else ()
        for app in apps:
            mkn.apps[app.id] = construct
            if app.role is Role.INPUT:
                mkn.inputs[app.id] = construct
            elif count > 1:
                several[app.id] = construct
    for link in graph.links:
        construct = several.get(link.source, "")
        if construct and link.target in home:
            target = graph.by_id[link.target]
            is_beside = target.kind is NodeKind.DATA and home[target.id] == home[construct]
            if not is_beside or mkn.outputs.setdefault(target.id, construct) != construct:
                findings.append(_not_repeatable(link, target, graph.by_id[construct], is_beside=is_beside))


def _not_repeatable(link: LogicalLink, target: LogicalNode, owner: LogicalNode, *, is_beside: bool) -> Problem:
    why = "is written by several constructs" if is_beside else "is not a data node beside the construct"
    text = f"MKN {owner.name!r} has {owner.value('n')} outputs, but {target.name!r}, which it writes, {why}"
    hint = "link its output application to a data node of its own beside the construct, or set n to 1"
    return problem("LG086", text, where=link.pointer, hint=hint)


def mkn_levels(node: LogicalNode, number: int, findings: Findings) -> Levels:
    """Return the levels that an MKN adds to those of its context: a number of chunks of M inputs, and the K copies."""
    return (_level(node, GATHER, number, 0), _level(node, SCATTER, multiplicity(node, "k", findings), 1))


def _level(node: LogicalNode, kind: str, size: int, place: int) -> Level:
    return Level(node.id, node.name, kind, size, place, group_keys=(node.name, node.id))
