"""The priority of attempts."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.engine.ready import attempt_priority
from dropflow.graph.physical import Adjacency, PhysicalGraph
from dropflow.graph.templates import Kind
from tests.graph.shapes import graphs


@given(graphs(), st.integers(0, 100))
def test_data_without_producers_are_as_urgent_as_their_consumers(graph: PhysicalGraph, seed: int) -> None:
    """Their attempts have the greatest priority of their consumers; all others have that of their drop."""
    priority = np.random.default_rng(seed).integers(-5, 5, graph.drops, dtype=np.int32)
    found = attempt_priority(replace(graph, priority=priority))

    assert found is not None
    for drop in range(graph.drops):
        is_data = graph.templates[graph.template[drop]].kind is Kind.DATA
        consumers, producers = _neighbours(graph.successors, drop), _neighbours(graph.predecessors, drop)
        wanted = max(priority[consumers]) if is_data and len(consumers) and not len(producers) else priority[drop]
        assert found[drop] == wanted


@given(graphs())
def test_without_priorities_nothing_is_stored(graph: PhysicalGraph) -> None:
    """Attempts of a graph without priorities have none."""
    assert attempt_priority(replace(graph, priority=None)) is None


def _neighbours(adjacency: Adjacency, drop: int) -> list[int]:
    return adjacency.neighbour[adjacency.ptr[drop] : adjacency.ptr[drop + 1]].tolist()
