from dataclasses import replace

import numpy as np
from hypothesis import given

from dropflow.graph.names import oids
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slicing import Boundary, NodeSlice, slice_by_part
from dropflow.graph.validity import faults
from tests.graph.shapes import edges_of, graphs, scatter

Edge = tuple[int, int, int]


def _inside(one: NodeSlice) -> list[Edge]:
    """Edges within a slice, in rows of the whole graph."""
    drop = one.drop.tolist()
    return [(drop[source], link, drop[target]) for source, link, target in edges_of(one.graph)]


def _rows(boundary: Boundary) -> list[tuple[int, int, int, int]]:
    columns = (boundary.drop, boundary.part, boundary.remote, boundary.link)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(graphs())
def test_slices_put_together_are_the_whole_graph(graph: PhysicalGraph) -> None:
    """Every drop is in the slice of its part with its own row; every edge is in one slice or in two tables."""
    slices = slice_by_part(graph)
    drops = {int(row): (one.part, at) for one in slices for at, row in enumerate(one.drop)}
    out = {(one.drop[a], link, b) for one in slices for a, _, b, link in _rows(one.outgoing)}
    into = {(a, link, one.drop[b]) for one in slices for b, _, a, link in _rows(one.incoming)}
    inside = [edge for one in slices for edge in _inside(one)]

    assert sorted(drops) == list(range(graph.drops))
    assert all(graph.part[row] == part for row, (part, _) in drops.items())
    assert sorted([*inside, *out]) == edges_of(graph)
    assert out == into


@given(graphs())
def test_each_slice_is_a_graph_of_its_own(graph: PhysicalGraph) -> None:
    """A slice keeps all rules of a graph, and its drops keep their template, instance, part and name."""
    for one in slice_by_part(graph):
        assert faults(one.graph) == []
        assert one.graph.template.tolist() == graph.template[one.drop].tolist()
        assert one.graph.instance.tolist() == graph.instance[one.drop].tolist()
        assert set(one.graph.part.tolist()) <= {one.part}
        assert oids(one.graph, range(one.graph.drops)) == oids(graph, one.drop)


@given(graphs())
def test_boundaries_say_where_the_other_end_is(graph: PhysicalGraph) -> None:
    """Each row of a table names the part that holds the drop at the other end, and rows come sorted."""
    for one in slice_by_part(graph):
        for boundary in (one.outgoing, one.incoming):
            rows = _rows(boundary)
            assert all(graph.part[remote] == part != one.part for _, part, remote, _ in rows)
            assert [(a, link, b) for a, _, b, link in rows] == sorted((a, link, b) for a, _, b, link in rows)
            assert len(boundary) == len(rows)


@given(graphs())
def test_the_order_of_inputs_can_be_restored(graph: PhysicalGraph) -> None:
    """Predecessors here and elsewhere, merged by link and row in the whole graph, are the inputs in their order."""
    for one in slice_by_part(graph):
        near, back = one.graph.predecessors, graph.predecessors
        for at, row in enumerate(one.drop.tolist()):
            here = slice(near.ptr[at], near.ptr[at + 1])
            inputs = [*zip(near.link[here].tolist(), one.drop[near.neighbour[here]].tolist(), strict=True)]
            inputs += [(link, remote) for drop, _, remote, link in _rows(one.incoming) if drop == at]
            whole = slice(back.ptr[row], back.ptr[row + 1])
            wanted = list(zip(back.link[whole].tolist(), back.neighbour[whole].tolist(), strict=True))
            assert sorted(inputs) == wanted


def test_a_part_without_drops_has_an_empty_slice() -> None:
    """Slices are found by the number of their part, also when a part is empty."""
    graph = replace(scatter(2), part=np.array([0, 0, 0, 2, 2, 2, 2], dtype=np.int32), places=("a", "b", "c"))
    slices = slice_by_part(graph)

    assert [one.graph.drops for one in slices] == [3, 0, 4]
    assert (len(slices[1].outgoing), len(slices[1].incoming)) == (0, 0)
    assert slices[1].graph.places == ("a", "b", "c")


def test_a_slice_keeps_the_ids_that_its_drops_came_with() -> None:
    """Text ids from elsewhere go where their drops go."""
    graph = replace(scatter(1), oids=("w", "x", "y", "z"), part=np.array([0, 1, 0, 1], dtype=np.int32))

    assert [one.graph.oids for one in slice_by_part(graph)] == [("w", "y"), ("x", "z")]
