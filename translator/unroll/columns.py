"""Carries out a plan: writes the columns of drops and edges. The only code here whose work grows with the drops."""

from itertools import accumulate

import numpy as np

from dropflow.graph.builder import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.problems import refuse_errors
from translator.unroll.plan import Plan

__all__ = ["unroll"]


def unroll(plan: Plan) -> PhysicalGraph:
    """The physical graph of a plan, in time and memory proportional to its drops and edges.

    Drops come template by template, and within one in row-major order of their index tuples.

    Raises
    ------
    BadGraphError
        The plan has errors; all its problems are attached.
    """
    refuse_errors(plan.problems)
    sizes = plan.sizes
    offsets = [0, *accumulate(sizes)]
    template = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    instance = np.arange(plan.drops, dtype=np.int32)
    for offset, size in zip(offsets, sizes, strict=False):
        instance[offset : offset + size] -= np.int32(offset)
    edges = plan.edges
    source, target, link = (np.empty(edges, dtype=np.int32) for _ in range(3))
    # Links are written in the order of their sources: most edges then come sorted, and the rest nearly so.
    position = 0
    for row in sorted(range(len(plan.links)), key=lambda row: plan.links[row].source):
        found, ends = plan.maps[row], plan.links[row]
        rows = slice(position, position + found.edges)
        source[rows] = offsets[ends.source]
        target[rows] = offsets[ends.target]
        link[rows] = row
        found.write(source[rows], target[rows])
        position = rows.stop
    return from_columns(
        name=plan.name,
        prefix=plan.prefix,
        templates=plan.templates,
        links=plan.links,
        template=template,
        instance=instance,
        source=source,
        target=target,
        link=link,
        meta=plan.meta,
    )
