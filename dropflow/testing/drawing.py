"""Physical graphs from drawings as text: ``draw("a -> B -> c, c -> D")``."""

from itertools import pairwise
from typing import Any

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid


def draw(drawing: str, *, name: str = "drawing", **fields: dict[str, Any]) -> PhysicalGraph:
    """Return the graph of a drawing: chains joined by arrows, separated by commas.

    A name that starts with a capital is an application, any other is data. Rows are in the order of first appearance.

    Parameters
    ----------
    drawing : str
        Such as ``"a -> B -> c, c -> D"``.
    **fields : dict
        Fields of `dropflow.graph.templates.Template` for the drop of that name.
    """
    builder = GraphBuilder(name)
    known: set[str] = set()
    for chain in drawing.split(","):
        names = [part.strip() for part in chain.split("->")]
        for drop in names:
            if drop and drop not in known:
                known.add(drop)
                add = builder.app if drop[0].isupper() else builder.data
                add(drop, **fields.get(drop, {}))
        for source, target in pairwise(names):
            builder.connect(source, target)
    return builder.build()


def row(graph: PhysicalGraph, name: str) -> int:
    """Return the row of the drop that a drawing calls `name`."""
    return next(number for number in range(graph.drops) if oid(graph, number) == f"{graph.prefix}_{name}_0")
