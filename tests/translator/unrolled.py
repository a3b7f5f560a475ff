"""What tests want to see of an unrolled drawing: counts, edges by name, ports, codes of problems."""

import numpy as np

from dropflow.failure import Severity
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import index_of
from tests.translator.drawing import Drawing
from translator.options import UnrollOptions
from translator.unroll import UnrollPlan, plan, unroll

__all__ = ["codes", "counts", "edges", "errors", "ports"]


def planned(drawing: Drawing, **options: object) -> UnrollPlan:
    """The plan of a drawing."""
    return plan(drawing.graph(), UnrollOptions(**options))  # type: ignore[arg-type]


def counts(drawing: Drawing) -> tuple[int, int]:
    """Numbers of drops and edges."""
    graph = unroll(planned(drawing))
    return graph.drops, graph.edges


def edges(drawing: Drawing, source: str, target: str, **options: object) -> list[tuple[tuple[int, ...], ...]]:
    """Index tuples at both ends of every edge between the instances of two nodes."""
    graph = unroll(planned(drawing, **options))
    return [
        (index_of(graph, one), index_of(graph, other))
        for one, other, _ in _rows(graph)
        if (_key(graph, one), _key(graph, other)) == (source, target)
    ]


def ports(drawing: Drawing, source: str, target: str) -> list[tuple[str, str]]:
    """Ports of the links between two nodes."""
    graph = planned(drawing)
    return [
        (link.source_port, link.target_port)
        for link in graph.links
        if (graph.templates[link.source].key, graph.templates[link.target].key) == (source, target)
    ]


def codes(drawing: Drawing, **options: object) -> list[str]:
    """Codes of everything found."""
    return [finding.code for finding in planned(drawing, **options).problems]


def errors(drawing: Drawing, **options: object) -> list[str]:
    """Codes of the errors found."""
    found = planned(drawing, **options).problems
    return [finding.code for finding in found if finding.severity is Severity.ERROR]


def _rows(graph: PhysicalGraph) -> list[tuple[int, int, int]]:
    sources = np.repeat(np.arange(graph.drops), np.diff(graph.successors.ptr))
    columns = (sources, graph.successors.neighbour, graph.successors.link)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _key(graph: PhysicalGraph, drop: int) -> str:
    return graph.templates[graph.template[drop]].key
