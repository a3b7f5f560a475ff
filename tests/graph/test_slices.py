from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from dropflow.errors import BadFileError
from dropflow.graph.digest import digest
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slice_codec import dump_slice, parse_slice
from dropflow.graph.slices import Slice, join, slice_by_place
from dropflow.graph.text_ids import oids
from dropflow.graph.validity import faults
from tests.graph.shapes import edges_of, graphs, scatter

Edge = tuple[int, int, int]


def _placed(graph: PhysicalGraph, nodes: int = 3) -> PhysicalGraph:
    """Part k on node k modulo `nodes`."""
    return replace(graph, places=tuple(f"n{part % nodes}" for part in range(graph.parts)))


def _edges(one: Slice) -> list[Edge]:
    """Edges of a slice, in rows of the whole graph."""
    drop = one.drop.tolist()
    return [(drop[source], link, drop[target]) for source, link, target in edges_of(one.graph)]


@given(graphs())
def test_a_slice_holds_its_own_drops_and_all_their_edges(graph: PhysicalGraph) -> None:
    """Own drops are those placed on the node; the edges are those that touch one; ghosts are their other ends."""
    placed = _placed(graph)
    home = [placed.places[part] for part in placed.part.tolist()]
    for node, one in slice_by_place(placed).items():
        own = {drop for drop in range(graph.drops) if home[drop] == node}
        touching = [edge for edge in edges_of(placed) if edge[0] in own or edge[2] in own]

        assert {int(drop) for drop in one.drop[one.is_own]} == own
        assert _edges(one) == touching
        assert {int(drop) for drop in one.drop[one.ghosts]} == {end for a, _, b in touching for end in (a, b)} - own


@given(graphs())
def test_every_drop_is_an_own_drop_of_one_slice(graph: PhysicalGraph) -> None:
    """No drop is lost, and none is in two slices."""
    found = [int(drop) for one in slice_by_place(_placed(graph)).values() for drop in one.drop[one.is_own]]

    assert sorted(found) == list(range(graph.drops))


@given(graphs())
def test_drops_keep_their_properties_in_a_slice(graph: PhysicalGraph) -> None:
    """A slice keeps all rules of a graph; its drops keep their template, instance, part, name and order of inputs."""
    back = graph.predecessors
    for one in slice_by_place(_placed(graph)).values():
        near = one.graph.predecessors

        assert faults(one.graph) == []
        for column in ("template", "instance", "part"):
            assert getattr(one.graph, column).tolist() == getattr(graph, column)[one.drop].tolist()
        assert oids(one.graph, range(one.graph.drops)) == oids(graph, one.drop)
        for row in np.flatnonzero(one.is_own).tolist():
            here, whole = slice(near.ptr[row], near.ptr[row + 1]), slice(*back.ptr[one.drop[row] : one.drop[row] + 2])
            assert one.drop[near.neighbour[here]].tolist() == back.neighbour[whole].tolist()


@given(graphs())
def test_joined_slices_are_the_whole_graph(graph: PhysicalGraph) -> None:
    """The graph that is joined from all slices has the digest of the original."""
    placed = _placed(graph)
    slices = slice_by_place(placed)
    if slices:
        assert digest(join(slices.values())) == digest(placed)


@given(graphs())
def test_a_slice_round_trips_through_bytes(graph: PhysicalGraph) -> None:
    """The node, the rows and the digest of the graph are unchanged."""
    for one in slice_by_place(_placed(graph)).values():
        back = parse_slice(b"".join(dump_slice(one)))

        assert (back.node, back.drop.tolist(), digest(back.graph)) == (one.node, one.drop.tolist(), digest(one.graph))


def test_a_graph_without_one_slice_is_valid() -> None:
    """Joining the slices without one node gives a valid graph."""
    placed = replace(scatter(2), part=np.array([0, 0, 0, 1, 1, 1, 1], dtype=np.int32), places=("a", "b"))
    left = join([slice_by_place(placed)["b"]])

    assert faults(left) == []
    assert oids(left, range(left.drops)) == ["s_work_0-1", "s_out_0-0", "s_out_0-1", "s_join_0"]


def test_a_place_without_drops_has_no_slice() -> None:
    """No slice is made for a node without drops."""
    placed = replace(scatter(2), part=np.array([0, 0, 0, 2, 2, 2, 2], dtype=np.int32), places=("a", "b", "c"))

    assert sorted(slice_by_place(placed)) == ["a", "c"]


def test_parts_on_one_node_make_one_slice() -> None:
    """A node may hold several parts; edges between them are not cut."""
    placed = replace(scatter(2), part=np.array([0, 0, 1, 2, 2, 2, 2], dtype=np.int32), places=("a", "a", "a"))
    (one,) = slice_by_place(placed).values()

    assert one.graph.drops == 7
    assert one.ghosts.tolist() == []


def test_a_graph_that_is_not_placed_is_refused() -> None:
    """A graph can only be cut into slices if its parts have nodes."""
    with pytest.raises(ValueError, match="place the graph first"):
        slice_by_place(scatter(2))


@pytest.mark.parametrize("harm", ["cut", "flip", "foreign"])
def test_damaged_bytes_are_refused(harm: str) -> None:
    """Truncated, changed and foreign bytes are refused."""
    (one,) = slice_by_place(replace(scatter(2), places=("a",))).values()
    data = bytearray(b"".join(dump_slice(one)))
    if harm == "cut":
        del data[-3:]
    elif harm == "flip":
        data[-10] ^= 1
    else:
        data = bytearray(b"{}")

    with pytest.raises(BadFileError, match="slice"):
        parse_slice(data)


def test_a_row_of_the_whole_graph_is_found_in_the_slice() -> None:
    """Ids on the wire are rows of the whole graph; those that are not here have no row."""
    placed = replace(scatter(2), part=np.array([0, 0, 0, 1, 1, 1, 1], dtype=np.int32), places=("a", "b"))
    one = slice_by_place(placed)["b"]

    assert [one.local(drop) for drop in (*range(7), 99)] == [None, 0, 1, 2, 3, 4, 5, None]
