"""Packs a head and columns of numbers for a browser: a JSON object, then the octets of each column.

The first four octets are the length of the JSON, little-endian. Its member ``columns`` has, for each column, its
name, its type (``u8``, ``u16``, ``u32`` or ``f32``), its first octet after the JSON and its length in items. Every
column begins at a multiple of four octets from the beginning, so that a browser views it without copying.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.drawing.draw import Drawing
from dropflow.graph.drawing.positions import CELL_HEIGHT, CELL_WIDTH, MARGIN
from dropflow.graph.physical import IntColumn, PhysicalGraph

_TYPES: dict[str, type[np.generic]] = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "f32": np.float32}
_NAMES = {np.dtype(kind).str: name for name, kind in _TYPES.items()}
_WORD_BYTES = 4
"""Bytes: the position and the size of each column are multiples of it."""


def pack_columns(head: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return the octets of a head and columns.

    Raises
    ------
    ValueError
        A column has another type than those above.
    """
    entries, pieces, at = [], [], 0
    for name, column in columns.items():
        kind = _NAMES.get(column.dtype.str)
        if kind is None:
            raise ValueError(f"column {name!r} has type {column.dtype}, which a browser does not read")
        octets = column.tobytes()
        entries.append({"name": name, "type": kind, "at": at, "length": len(column)})
        pieces += [octets, bytes(-len(octets) % _WORD_BYTES)]
        at += len(octets) + len(pieces[-1])
    text = msgspec.json.encode({**head, "columns": entries})
    text += b" " * (-len(text) % _WORD_BYTES)
    return b"".join((len(text).to_bytes(_WORD_BYTES, "little"), text, *pieces))


def narrowest(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of numbers that are not negative in the smallest of the unsigned types that holds them."""
    most = int(column.max(initial=0))
    return column.astype(np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.uint32)


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
        "cell": [CELL_WIDTH, CELL_HEIGHT],
        "margin": MARGIN,
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
