"""A drawing, the edges of its graph, or a selection of drops, as columns for a browser."""

from typing import Any

import msgspec
import numpy as np

from dropflow.graph.drawing import positions
from dropflow.graph.drawing.columns import narrowest, pack_columns
from dropflow.graph.drawing.draw import Drawing
from dropflow.graph.physical import IntColumn, PhysicalGraph

__all__ = ["pack_drawing", "pack_edges", "pack_selection"]


def pack_drawing(graph: PhysicalGraph, drawing: Drawing) -> bytes:
    """Return a drawing: boxes, pairs of boxes, and for each drop its box, cell, template, instance and part."""
    boxes, cells, places, pairs = drawing.boxes, drawing.cells, drawing.positions, drawing.pairs
    head = {
        "graph": graph.name,
        "prefix": graph.prefix,
        "drops": graph.drops,
        "edges": graph.edges,
        "parts": graph.parts,
        "places": graph.places,
        "named": graph.oids is not None,
        "grouping": drawing.grouping,
        "size": [places.whole_width, places.whole_height],
        "cell": [positions.CELL_WIDTH, positions.CELL_HEIGHT],
        "margin": positions.MARGIN,
        "lines": places.lines,
        "labels": boxes.labels,
        "constructs": boxes.constructs,
        "templates": [_template(template) for template in graph.templates],
    }
    columns = {
        "x": places.x,
        "y": places.y,
        "width": places.width,
        "height": places.height,
        "header": places.header,
        "columns": cells.columns.astype(np.uint32),
        "rows": cells.rows.astype(np.uint32),
        "construct": (boxes.construct + 1).astype(np.uint32),
        "pairSource": pairs.source.astype(np.uint32),
        "pairTarget": pairs.target.astype(np.uint32),
        "pairEdges": pairs.edges.astype(np.uint32),
        "pairCut": pairs.cut.astype(np.uint32),
        "box": narrowest(boxes.box),
        "column": narrowest(cells.column),
        "row": narrowest(cells.row),
        "template": narrowest(graph.template),
        "instance": narrowest(graph.instance),
        "part": narrowest(graph.part),
    }
    return pack_columns(msgspec.to_builtins(head), columns)


def _template(template: Any) -> dict[str, Any]:
    return {
        "key": template.key,
        "name": template.app_name or template.name,
        "category": template.category,
        "isApp": bool(template.kind),
        "shape": template.shape,
    }


def pack_edges(graph: PhysicalGraph) -> bytes:
    """Return the edges of a graph by source: ``ptr``, ``target`` and ``link``, and the ports of each link."""
    out = graph.successors
    links = [[link.source_port, link.target_port, link.streaming] for link in graph.links]
    columns = {"ptr": out.ptr.astype(np.uint32), "target": narrowest(out.neighbour), "link": narrowest(out.link)}
    return pack_columns({"links": links}, columns)


def pack_selection(drops: IntColumn, title: str) -> bytes:
    """Return drops that are shown apart, and what they are."""
    return pack_columns({"title": title, "count": len(drops)}, {"drops": drops.astype(np.uint32)})
