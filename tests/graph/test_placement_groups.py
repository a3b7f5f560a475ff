import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.placement_groups import kept_together, placement_groups
from tests.graph.shapes import scatter
from tests.translator.drawing import Drawing
from translator.partition.registry import ALGORITHMS, check_partition, partition
from translator.stage_options import PartitionOptions, UnrollOptions
from translator.unroll import plan, unroll


def graph_of(copies: int, ranks: int = 2) -> PhysicalGraph:
    """Return a root, and in each copy data, an application of two alone on a node, and an MPI job."""
    drawing = Drawing().data("root")
    with drawing.scatter("S", copies):
        drawing.app("first").data("given")
        with drawing.construct("ExclusiveForceNode", "X"):
            drawing.app("alone").data("made")
        drawing.app("job", category="Mpi", num_of_procs=ranks).data("end")
    drawing.link("root", "first", "given", "alone", "made", "job", "end")
    return unroll(plan(drawing.graph(), UnrollOptions()))


def drops_of(graph: PhysicalGraph, *keys: str) -> list[int]:
    """Return the drops of some nodes."""
    return [drop for drop in range(graph.drops) if graph.templates[graph.template[drop]].key in keys]


def test_the_content_of_an_exclusive_node_is_a_group_in_each_copy() -> None:
    """Two copies: groups 0 and 1 of `alone` and `made`, groups 2 and 3 of the ranks of the jobs; others are free."""
    graph = graph_of(2)
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
    graph = graph_of(3)
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
    graph = graph_of(3)
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
    graph = graph_of(copies)
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
