"""Unrolls an outline: writes the columns of drops and edges. Only this module's time grows with the number of drops."""

from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.errors import InternalError
from dropflow.failure import refuse_errors
from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from translator.unroll.outline import GraphOutline


def unroll(outline: GraphOutline) -> PhysicalGraph:
    """Make the physical graph of an outline, in time and memory proportional to its drops and edges.

    Drops are in the order of templates, and for each template in row-major order of their index tuples.

    Raises
    ------
    BadGraphError
        The outline has errors; all its problems are attached.
    InternalError
        An edge leads to a drop of another template than that of its link: a bug in the outline.
    """
    refuse_errors(outline.problems)
    sizes = outline.sizes
    offsets = [0, *accumulate(sizes)]
    template = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    instance = np.arange(outline.drops, dtype=np.int32)
    for offset, size in zip(offsets, sizes, strict=False):
        instance[offset : offset + size] -= np.int32(offset)
    edges = outline.edges
    source, target, link = (np.empty(edges, dtype=np.int32) for _ in range(3))
    # Links are written in the order of their sources, so that most edges are sorted already.
    position = 0
    for row in sorted(range(len(outline.links)), key=lambda row: outline.links[row].source):
        index_map, ends = outline.maps[row], outline.links[row]
        rows = slice(position, position + index_map.edges)
        source[rows] = offsets[ends.source]
        target[rows] = offsets[ends.target]
        link[rows] = row
        index_map.write(source[rows], target[rows])
        _check_inside(outline, row, source[rows], offsets[ends.source], sizes[ends.source])
        _check_inside(outline, row, target[rows], offsets[ends.target], sizes[ends.target])
        position = rows.stop
    return from_columns(
        name=outline.name,
        prefix=outline.prefix,
        templates=outline.templates,
        links=outline.links,
        template=template,
        instance=instance,
        source=source,
        target=target,
        link=link,
        meta=outline.meta,
    )


def _check_inside(outline: GraphOutline, row: int, drops: npt.NDArray[Any], offset: int, size: int) -> None:
    """Raise if the edges of a link join drops of other templates, which no later stage could detect."""
    if len(drops) and not (offset <= int(drops.min()) and int(drops.max()) < offset + size):
        link = outline.links[row]
        names = f"{outline.templates[link.source].name!r} to {outline.templates[link.target].name!r}"
        raise InternalError(
            f"the edges from {names} lead outside their templates",
            hint="this is a bug in dropflow, not in the graph: please report it with the graph",
        )
