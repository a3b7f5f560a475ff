"""Sequentialised scatters: a gather that feeds the start of the scatter that it gathers.

A link from inside a gather to an application with `group_start`, in the scatter around the input of the gather, orders
the copies: those of the first chunk run, then those of the second, and so on. With width w, chunk i feeds the copies
(i + 1) w to (i + 2) w - 1. The first w copies get nothing through the link.
"""

from collections.abc import Iterable

import msgspec

from translator.logical import NodeKind
from translator.problem_codes import problem
from translator.unroll.gather import gathered_levels, width
from translator.unroll.index_map import IndexCounter, IndexMap
from translator.unroll.layout import Layout
from translator.unroll.levels import GATHER, LOOP, Level, Levels, part, strides
from translator.unroll.values import Findings, is_on
from translator.unroll.wires import Unit, Wire

__all__ = ["feedback_hint", "feedback_map", "with_feedback"]


def with_feedback(layout: Layout, units: dict[str, Unit], wires: Iterable[Wire], findings: Findings) -> list[Wire]:
    """Return the wires, with `feedback` set on those from a gather to the start of its scatter.

    Adds LG073 if the gather takes all copies at once.
    """
    found = []
    for wire in wires:
        gather = "" if wire.entry or wire.closes else _gather_of(layout, units, wire)
        if gather:
            levels = units[wire.source].levels
            if next(level for level in levels if level.construct == gather).size <= 1:
                node = layout.graph.by_id[gather]
                text = (
                    f"gather {node.name!r} takes all its inputs at once, so the edge back to its scatter has no effect"
                )
                hint = "set its num_of_inputs to the number of copies that may run at a time"
                findings.append(problem("LG073", text, where=wire.pointer, hint=hint))
        found.append(msgspec.structs.replace(wire, feedback=gather) if gather else wire)
    return found


def _gather_of(layout: Layout, units: dict[str, Unit], wire: Wire) -> str:
    """Return the id of the gather that a wire feeds back; empty for an ordinary wire."""
    source, target = units[wire.source], units[wire.target]
    node = layout.graph.by_id[target.node]
    if node.kind is not NodeKind.APP or not is_on(node.value("group_start")):
        return ""
    level = _leaving(source.levels, target.levels)
    if level is None:
        return ""
    taken = _taken(layout, level.construct)
    return level.construct if _start_of(target.levels, source.levels, taken) is not None else ""


def _leaving(source: Levels, target: Levels) -> Level | None:
    """Return the outermost level that only the source has, if it is that of a gather."""
    rest = part(source, target).left
    return source[rest[0]] if rest and source[rest[0]].kind == GATHER else None


def _taken(layout: Layout, gather: str) -> Levels:
    """Return the levels of its input that a gather counts through; those of the first link that has any."""
    context = layout.context(gather)
    found = [
        gathered_levels(layout.levels_of(link.source), context, layout.options)
        for link in layout.entries.get(gather, ())
    ]
    return next((levels for levels in found if levels), ())


def _start_of(target: Levels, source: Levels, taken: Levels) -> int | None:
    """Return the position of the gathered levels in the target, directly inside those that both ends share."""
    rest = part(source, target).right
    inner = [target[position].id for position in rest[: len(taken)]]
    return rest[0] if taken and inner == [level.id for level in taken] else None


def feedback_map(layout: Layout, units: dict[str, Unit], wire: Wire) -> IndexMap:
    """Return the edges of a wire from a gather to the copies after those of each chunk."""
    source, target = units[wire.source].levels, units[wire.target].levels
    taken = _taken(layout, wire.feedback)
    parting = part(source, target)
    out, into = strides(source), strides(target)
    first = parting.right[0]
    last = parting.right[len(taken) - 1]
    copies = 1
    for level in taken:
        copies *= level.size
    at = parting.left[0]
    step = width(layout.graph.by_id[wire.feedback], []) or max(copies, 1)
    counters = [
        IndexCounter(source[level], source[level].size, out[level], into[level]) for level in range(parting.shared)
    ]
    counters += [IndexCounter(source[level], source[level].size, out[level]) for level in parting.left[1:]]
    counters.append(IndexCounter(target[first], max(copies - step, 0), 0, into[last], 1))
    counters += [
        IndexCounter(target[level], target[level].size, 0, into[level]) for level in parting.right[len(taken) :]
    ]
    return IndexMap(
        counters=tuple(counters),
        target_start=min(step, copies) * into[last],
        chunk=source[at],
        width=step,
        chunk_stride=out[at],
        chunk_of_source=True,
    )


def feedback_hint(layout: Layout, source: Levels, target: Levels) -> str:
    """Return how to run the copies of a scatter chunk by chunk; empty if the edge does not come from a gather."""
    level = _leaving(source, target)
    right = [target[position] for position in part(source, target).right]
    if level is None or any(one.kind == LOOP for one in right):
        return ""
    if level.construct not in layout.entries:
        return f"link what {level.label} is to gather to it, as it has no input"
    return (
        f"if {level.label} gathers these copies and the next ones are to wait for it, set group_start on the "
        "application that the edge leads to"
    )
