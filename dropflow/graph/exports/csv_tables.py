"""Writing a physical graph as two tables of comma-separated values (RFC 4180): its drops, and its edges."""

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any

from dropflow.graph.exports.drop_rows import drop_blocks, edge_blocks, has_parts, node_names, write_texts
from dropflow.graph.interchange_write import ByteSink
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids

__all__ = ["DROP_COLUMNS", "EDGE_COLUMNS", "write_csv_drops", "write_csv_edges"]

DROP_COLUMNS = ("oid", "kind", "name", "component", "weight", "part", "node", "priority")
EDGE_COLUMNS = ("source", "target", "source_port", "target_port", "streaming")


def write_csv_drops(graph: PhysicalGraph, stream: ByteSink) -> None:
    """Write the table of drops, in UTF-8. What a graph does not have (parts, nodes, priorities) is empty.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    write_texts(graph, stream, _drops(graph))


def write_csv_edges(graph: PhysicalGraph, stream: ByteSink) -> None:
    """Write the table of edges, in UTF-8, with the text ids of the drops at their ends.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    """
    write_texts(graph, stream, _edges(graph))


def _drops(graph: PhysicalGraph) -> Iterator[str]:
    yield _lines([DROP_COLUMNS])
    names = [template.name for template in graph.templates]
    components = [template.component for template in graph.templates]
    kinds = ["application" if template.kind is Kind.APP else "data" for template in graph.templates]
    is_parted, nodes = has_parts(graph), node_names(graph)
    for block in drop_blocks(graph):
        yield _lines(
            zip(
                block.oid,
                [kinds[row] for row in block.template],
                [names[row] for row in block.template],
                [components[row] for row in block.template],
                block.weight,
                block.part if is_parted else [""] * len(block.part),
                [nodes[part] for part in block.part],
                block.priority,
                strict=True,
            )
        )


def _edges(graph: PhysicalGraph) -> Iterator[str]:
    yield _lines([EDGE_COLUMNS])
    ends = [(one.source_port, one.target_port, "true" if one.streaming else "false") for one in graph.links]
    for edges in edge_blocks(graph):
        names = zip(oids(graph, edges.source), oids(graph, edges.target), edges.link, strict=True)
        yield _lines([(source, target, *ends[link]) for source, target, link in names])


def _lines(rows: Iterable[tuple[Any, ...]]) -> str:
    text = StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()
