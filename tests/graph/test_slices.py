from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadGraphError
from dropflow.graph.codec import dump
from dropflow.graph.daliuge_read import read_pg, read_pg_stream
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.physical import PhysicalGraph, faults
from dropflow.graph.slices import (
    Slice,
    kept_together,
    placement_groups,
    slice_for,
    violations,
    with_placement,
)
from dropflow.graph.text_ids import oids
from tests.graph.shapes import drops_of, edges_of, exclusive_and_mpi, graphs, scatter, slice_by_place
from translator.options import PartitionOptions
from translator.plan.registry import ALGORITHMS, check_partition, partition

Edge = tuple[int, int, int]


def _placed(graph: PhysicalGraph, nodes: int = 3) -> PhysicalGraph:
    """Part k on node k modulo `nodes`."""
    return replace(graph, places=tuple(f"n{part % nodes}" for part in range(graph.parts)))


def _edges(one: Slice) -> list[Edge]:
    """Edges of a slice, in rows of the whole graph."""
    drop = one.drop.tolist()
    return [(drop[source], link, drop[target]) for source, link, target in edges_of(one.graph)]


def _described(one: Slice) -> dict[int, tuple[object, ...]]:
    """All that a slice holds about each of its drops that has a neighbour or is an own drop, by its row in the graph.

    Inputs and outputs are in their order.
    """
    graph = one.graph
    found = {}
    for row, drop in enumerate(one.drop.tolist()):
        near = []
        for edges in (graph.predecessors, graph.successors):
            here = slice(edges.ptr[row], edges.ptr[row + 1])
            near.append(list(zip(one.drop[edges.neighbour[here]].tolist(), edges.link[here].tolist(), strict=True)))
        if any(near) or one.is_own[row]:
            columns = graph.template[row], graph.instance[row], graph.part[row], one.is_own[row]
            found[drop] = (oids(graph, [row])[0], *(column.item() for column in columns), *near)
    return found


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


@pytest.mark.slow
@given(graphs(), st.data())
def test_a_slice_with_given_first_rows_describes_the_same_drops(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Given rows come first; whatever their order, each drop keeps its properties and the order of its neighbours."""
    placed = _placed(graph)
    first = np.array(data.draw(st.lists(st.sampled_from(range(graph.drops)), unique=True)), dtype=np.int32)
    for node in ("n0", "n1", "n2"):
        plain, one = slice_for(placed, node), slice_for(placed, node, first=first)
        others = one.drop[len(first) :].tolist()

        assert one.drop[: len(first)].tolist() == first.tolist()
        assert others == sorted(set(plain.drop.tolist()) - set(first.tolist()))
        assert faults(one.graph) == []
        assert _described(one) == _described(plain)


@given(graphs(), st.data())
def test_drops_keep_their_rows_when_the_placement_changes(graph: PhysicalGraph, data: st.DataObject) -> None:
    """The slice for another placement, with the earlier rows first, has every earlier drop in its earlier row."""
    before = slice_for(_placed(graph), "n0")
    nodes = data.draw(st.lists(st.integers(0, 2), min_size=graph.drops, max_size=graph.drops))
    moved = with_placement(graph, np.array(nodes, dtype=np.int32), ("n0", "n1", "n2"))
    after = slice_for(moved, "n0", first=before.drop)

    assert after.drop[: len(before.drop)].tolist() == before.drop.tolist()
    assert {int(drop) for drop in after.drop[after.is_own]} == {drop for drop, node in enumerate(nodes) if node == 0}
    assert _described(after) == _described(slice_for(moved, "n0"))


@given(graphs(), st.data())
def test_rows_are_found_in_a_slice_of_any_order(graph: PhysicalGraph, data: st.DataObject) -> None:
    """One by one and many at a time: the row of each drop of the slice, and none for others, known or not."""
    first = data.draw(st.lists(st.sampled_from(range(graph.drops)), unique=True))
    one = slice_for(_placed(graph), "n0", first=np.array(first, dtype=np.int32))
    row = {drop: at for at, drop in enumerate(one.drop.tolist())}
    asked = [-1, graph.drops, *range(graph.drops)]

    assert [one.local(drop) for drop in asked] == [row.get(drop) for drop in asked]
    assert one.find(np.array(asked, dtype=np.int32)).tolist() == [row.get(drop, -1) for drop in asked]
    assert one.drop[one.order].tolist() == sorted(row)


@pytest.mark.parametrize("first", [[0, 0], [-1], [7]])
def test_first_rows_that_are_not_rows_of_the_graph_are_refused(first: list[int]) -> None:
    """Repeated rows and rows that do not exist are an error, and never a wrong slice."""
    placed = replace(scatter(2), places=("a",))

    with pytest.raises(ValueError, match="different rows of 7 drops"):
        slice_for(placed, "a", first=np.array(first, dtype=np.int32))


def test_another_placement_shares_the_columns_of_the_graph() -> None:
    """Only the parts and the places differ; no other column is copied."""
    graph = scatter(2)
    moved = with_placement(graph, np.array([0, 0, 0, 1, 1, 1, 1]), ["a", "b"])

    assert moved.places == ("a", "b")
    assert moved.part.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert moved.template is graph.template
    assert moved.successors is graph.successors


@pytest.mark.parametrize(
    ("part", "says"), [([0] * 6, "6 rows for 7 drops"), ([0] * 6 + [2], "on 2 places"), ([-1] * 7, "on 2 places")]
)
def test_a_placement_that_does_not_fit_is_refused(part: list[int], says: str) -> None:
    """A column of another length, and parts without a place, are errors."""
    with pytest.raises(ValueError, match=says):
        with_placement(scatter(2), np.array(part), ["a", "b"])


def test_a_slice_in_another_order_is_not_written() -> None:
    """The container has no place for the order of inputs of such a slice, which would be lost."""
    one = slice_for(replace(scatter(2), places=("a",)), "a", first=np.array([3], dtype=np.int32))

    with pytest.raises(ValueError, match="write the whole graph"):
        dump(one.graph)


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


def test_a_row_of_the_whole_graph_is_found_in_the_slice() -> None:
    """Ids on the wire are rows of the whole graph; those that are not here have no row."""
    placed = replace(scatter(2), part=np.array([0, 0, 0, 1, 1, 1, 1], dtype=np.int32), places=("a", "b"))
    one = slice_by_place(placed)["b"]

    assert [one.local(drop) for drop in (*range(7), 99)] == [None, 0, 1, 2, 3, 4, 5, None]


def test_the_content_of_an_exclusive_node_is_a_group_in_each_copy() -> None:
    """Two copies: groups 0 and 1 of `alone` and `made`, groups 2 and 3 of the ranks of the jobs; others are free."""
    graph = exclusive_and_mpi(2)
    groups = placement_groups(graph)

    assert groups is not None
    assert groups.group[drops_of(graph, "alone")].tolist() == groups.group[drops_of(graph, "made")].tolist() == [0, 1]
    assert groups.group[drops_of(graph, "job")].tolist() == [2, 2, 3, 3]
    assert set(groups.group[drops_of(graph, "root", "first", "given", "end")].tolist()) == {-1}
    assert (groups.exclusive.tolist(), groups.names) == ([True, True, False, False], ("X", "X", "job", "job"))
    assert groups.needed == 3


def test_a_graph_without_constraints_has_no_groups() -> None:
    """Scatters and loops bind no drops."""
    assert placement_groups(scatter(4)) is None


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - {"none"}))
@pytest.mark.parametrize("parts", [4, 5, 8])
def test_partitioners_keep_exclusive_groups_alone_and_ranks_together(algorithm: str, parts: int) -> None:
    """With three exclusive groups and at least four parts, each group has its own part; ranks of a job share one."""
    graph = exclusive_and_mpi(3)
    made = partition(graph, PartitionOptions(algorithm=algorithm, parts=parts))
    exclusive = drops_of(graph, "alone", "made")
    others = sorted(set(range(graph.drops)) - set(exclusive))

    assert made.part[exclusive[:3]].tolist() == made.part[exclusive[3:]].tolist()
    assert len(set(made.part[exclusive].tolist())) == 3
    assert set(made.part[exclusive].tolist()).isdisjoint(made.part[others].tolist())
    assert all(len(set(made.part[drops_of(graph, "job")][pair : pair + 2].tolist())) == 1 for pair in (0, 2, 4))
    assert check_partition(graph, PartitionOptions(algorithm=algorithm, parts=parts)) == ()


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_too_few_parts_for_exclusive_groups_are_a_warning(parts: int) -> None:
    """PT004 names the number that is needed; exclusive groups share parts, and the others have one if there are two."""
    graph = exclusive_and_mpi(3)
    options = PartitionOptions(algorithm="blocks", parts=parts)
    (found,) = check_partition(graph, options)
    made = partition(graph, options)
    exclusive = drops_of(graph, "alone", "made")
    others = sorted(set(range(graph.drops)) - set(exclusive))

    assert (found.code, found.hint) == ("PT004", "give at least 4 parts")
    assert sorted(set(made.part.tolist())) == list(range(parts))
    assert parts == 1 or set(made.part[exclusive].tolist()).isdisjoint(made.part[others].tolist())


@given(st.integers(1, 4), st.integers(1, 9), st.data())
def test_any_partition_can_be_corrected(copies: int, parts: int, data: st.DataObject) -> None:
    """A random partition becomes one with the constraints; with enough parts every exclusive group is alone."""
    graph = exclusive_and_mpi(copies)
    groups = placement_groups(graph)
    assert groups is not None
    size = {"min_size": graph.drops, "max_size": graph.drops}
    part = np.array(data.draw(st.lists(st.integers(0, parts - 1), **size)), dtype=np.int32)
    made = kept_together(part, groups, parts, np.ones(graph.drops))

    assert made.min() >= 0
    assert made.max() < parts
    for group in range(len(groups.names)):
        places = set(made[groups.group == group].tolist())
        assert len(places) == 1
        if groups.exclusive[group] and parts >= groups.needed:
            assert places.isdisjoint(made[groups.group != group].tolist())


def test_violations_are_told_in_words() -> None:
    """One part breaks every exclusive group. Cut at random, groups are torn; a partitioner breaks none."""
    graph = exclusive_and_mpi(3)
    torn = np.arange(graph.drops, dtype=np.int32)

    assert violations(graph, graph.part) == ("3 of 3 copies of 'X' share a node with other drops",)
    assert violations(graph, torn) == (
        "3 of 3 copies of 'X' have drops on several nodes, which must be on one",
        "3 of 3 copies of 'job' have drops on several nodes, which must be on one",
    )
    assert violations(graph, partition(graph, PartitionOptions(parts=4)).part) == ()
    assert violations(scatter(4), scatter(4).part) == ()


@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_violations_are_those_of_a_search(copies: int, ranks: int, data: st.DataObject) -> None:
    """A group is torn or crowded if looking at all pairs of its drops, and of others, finds so."""
    graph = exclusive_and_mpi(copies, ranks)
    groups = placement_groups(graph)
    assert groups is not None
    part = np.array(data.draw(st.lists(st.integers(0, 3), min_size=graph.drops, max_size=graph.drops)), dtype=np.int32)
    torn, crowded = set(), set()
    for one, other in np.ndindex(graph.drops, graph.drops):
        first, second = int(groups.group[one]), int(groups.group[other])
        if first == second != -1 and part[one] != part[other]:
            torn.add(first)
        if first not in (-1, second) and groups.exclusive[first] and part[one] == part[other]:
            crowded.add(first)
    found = violations(graph, part)

    for wrong, word in ((torn, "several nodes"), (crowded, "share a node")):
        counts = {name: sum(groups.names[group] == name for group in wrong) for name in groups.names}
        texts = [text for text in found if word in text]
        assert {text.split("'")[1]: int(text.split()[0]) for text in texts} == {
            name: count for name, count in counts.items() if count
        }


@pytest.mark.slow
@given(st.integers(1, 3), st.integers(1, 3))
def test_groups_survive_the_json_of_daliuge(copies: int, ranks: int) -> None:
    """A graph that was written and read has the same groups, so that it can be partitioned after that, too."""
    graph = exclusive_and_mpi(copies, ranks)
    stream = BytesIO()
    write_pg(graph, stream)
    again = read_pg_stream(BytesIO(stream.getvalue()), name="g")
    before, after = placement_groups(graph), placement_groups(again)

    assert before is not None
    assert after is not None
    assert after.group.tolist() == before.group.tolist()
    assert (after.names, after.exclusive.tolist()) == (before.names, before.exclusive.tolist())


def test_ranks_of_two_jobs_of_daliuge_are_two_groups() -> None:
    """A list of DALiuGE has only the numbers of ranks; its jobs are told apart by their nodes."""
    documents = [
        {"oid": f"{job}{rank}", "lg_key": job, "categoryType": "Application", "category": "Mpi", "name": job}
        | {"dropclass": "dlg.apps.mpi.MPIApp", "iid": f"0-{rank}", "proc_index": rank}
        for job in "ab"
        for rank in range(2)
    ]
    groups = placement_groups(read_pg(documents, name="g"))

    assert groups is not None
    assert groups.group.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("axes", ["exclusive", [1], [{"construct": "", "name": "", "kind": "mpi"}]])
def test_axes_that_cannot_be_used_are_a_problem(axes: object) -> None:
    """The problem has the place in the document."""
    drop = {"oid": "a", "categoryType": "Data", "category": "Memory", "placement_axes": axes}

    with pytest.raises(BadGraphError, match="placement_axes of drop 'a' cannot be used") as caught:
        read_pg([drop], name="g")
    assert caught.value.problems[0].where == "/0/placement_axes"
