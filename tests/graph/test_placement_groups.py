from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadGraphError
from dropflow.graph.daliuge_write import read_pg, read_pg_stream, write_pg
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import kept_together, placement_groups, violations
from tests.graph.constrained import exclusive_and_mpi
from tests.graph.shapes import scatter
from translator.options import PartitionOptions
from translator.plan.registry import ALGORITHMS, check_partition, partition


def drops_of(graph: PhysicalGraph, *keys: str) -> list[int]:
    """Return the drops of some nodes."""
    return [drop for drop in range(graph.drops) if graph.templates[graph.template[drop]].key in keys]


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
