"""Adapters: drops between two nodes of the same kind, so that every edge joins data and an application.

Between two applications it is a memory drop (a null drop if only events pass) for each output of the source, so that
each has one producer. Between two data nodes it is a copying application for each input of the target.
"""

from itertools import count

import msgspec

from dropflow.graph.templates import Kind, Template
from translator.unroll.levels import Levels, strides
from translator.unroll.link_maps import IndexCounter, IndexMap
from translator.unroll.node_template import COPY, MEMORY, NULL
from translator.unroll.wires import Unit, Wire


class Adapted(msgspec.Struct, frozen=True):
    """An adapter, and the two maps that replace the map of its link."""

    template: Template
    before: IndexMap
    after: IndexMap


def adapt(wire: Wire, source: Unit, target: Unit, plain: IndexMap, taken: set[str]) -> Adapted:
    """Insert an adapter into a wire.

    Parameters
    ----------
    wire : Wire
        The wire.
    source, target : Unit
        Its ends, of the same kind.
    plain : IndexMap
        The edges of the wire without adapter.
    taken : set of str
        Keys of templates; the key of the adapter is added.
    """
    at_source = source.is_app
    if plain.chunk_of_source:
        return _at_gather(wire, source, target, plain, taken)
    standing = [
        counter
        for counter in plain.counters
        # A counter of neither end is that of a loop without iterations: there are no edges then, and no adapters.
        if (counter.source if at_source else counter.target) or not (counter.source or counter.target)
    ]
    levels: Levels = tuple(msgspec.structs.replace(counter.level, size=counter.size) for counter in standing)
    steps = dict(zip(map(id, standing), strides(levels), strict=True))

    def step(counter: IndexCounter) -> int:
        return steps.get(id(counter), 0)

    if at_source:
        before = tuple(IndexCounter(counter.level, counter.size, counter.source, step(counter)) for counter in standing)
        after = tuple(
            IndexCounter(counter.level, counter.size, step(counter), counter.target, counter.flat)
            for counter in plain.counters
        )
    else:
        before = tuple(
            IndexCounter(counter.level, counter.size, counter.source, step(counter)) for counter in plain.counters
        )
        after = tuple(IndexCounter(counter.level, counter.size, step(counter), counter.target) for counter in standing)
    return Adapted(
        template=_template(wire, source, target, levels, taken),
        before=IndexMap(counters=before, source_start=plain.source_start),
        after=msgspec.structs.replace(plain, counters=after, source_start=0),
    )


def _at_gather(wire: Wire, source: Unit, target: Unit, plain: IndexMap, taken: set[str]) -> Adapted:
    """Insert an adapter for each instance of a source that feeds back, so that its chunks keep their numbers."""
    counters = tuple(
        IndexCounter(level, level.size, step, step)
        for level, step in zip(source.levels, strides(source.levels), strict=True)
    )
    return Adapted(
        template=_template(wire, source, target, source.levels, taken), before=IndexMap(counters=counters), after=plain
    )


def _template(wire: Wire, source: Unit, target: Unit, levels: Levels, taken: set[str]) -> Template:
    stem = f"{source.template.key}-to-{target.template.key}"
    key = next(key for number in count(1) if (key := stem if number == 1 else f"{stem}-{number}") not in taken)
    taken.add(key)
    component = COPY if not source.is_app else NULL if wire.event else MEMORY
    return Template(
        key=key,
        name=f"{source.template.name} to {target.template.name}",
        kind=Kind.DATA if source.is_app else Kind.APP,
        component=component,
        category={COPY: "DALiuGEApp", NULL: "null", MEMORY: "Memory"}[component],
        axes=tuple(level.axis for level in levels),
        artificial=True,
        origin=wire.pointer or f"{source.node} to {target.node}",
    )
