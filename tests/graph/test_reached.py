"""The drops that are reached from others along edges."""

import numpy as np
import pytest

from dropflow.graph.order import reached
from dropflow.graph.physical import Adjacency, PhysicalGraph
from dropflow.testing.drawing import chain, chains, fan


def _walk(edges: Adjacency, starts: list[int], may_pass: list[bool]) -> list[tuple[int, int]]:
    """Return the distance and the row of what is reached, one edge at a time."""
    found, left = dict.fromkeys(starts, 0), list(starts)
    for drop in left:
        for near in edges.neighbour[edges.ptr[drop] : edges.ptr[drop + 1]].tolist():
            if may_pass[near] and near not in found:
                found[near] = found[drop] + 1
                left.append(near)
    return sorted((away, drop) for drop, away in found.items())


@pytest.mark.parametrize("graph", [chains(600, 20), fan(400), chain(300)], ids=["chains", "fan", "chain"])
@pytest.mark.parametrize("passed", [1, 7], ids=["all", "not every seventh"])
def test_the_nearest_come_first(graph: PhysicalGraph, passed: int) -> None:
    """From none, one or several drops, in both directions, in wide and in deep graphs, also around some drops."""
    last = graph.drops - 1
    may_pass = np.arange(graph.drops) % passed != passed - 1 if passed > 1 else np.ones(graph.drops, np.bool_)
    for edges in (graph.predecessors, graph.successors):
        for starts in ([], [0], [last], [last, 1, 1, last // 2]):
            rows, away = reached(edges, starts, may_pass)

            assert list(zip(away.tolist(), rows.tolist(), strict=True)) == _walk(edges, starts, may_pass.tolist())
    assert reached(graph.successors, [0])[0].tolist() == reached(graph.successors, [0], may_pass | True)[0].tolist()
