"""The writers of graphs for other programs, by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dropflow.graph.exports.csv_tables import write_csv_drops, write_csv_edges
from dropflow.graph.exports.dot import write_dot
from dropflow.graph.exports.graphml import write_graphml
from dropflow.graph.interchange_write import ByteSink
from dropflow.graph.physical import PhysicalGraph

__all__ = ["WRITERS", "Writer"]

Writer = Callable[[PhysicalGraph, ByteSink], None]

WRITERS: Mapping[str, Writer] = MappingProxyType(
    {"dot": write_dot, "graphml": write_graphml, "csv": write_csv_drops, "edges.csv": write_csv_edges}
)
"""What writes each format; a table of edges is the other half of a table of drops."""
