import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from tests.translator.planning.drawn_plans import machines, work_graphs
from translator.plan.judge import simulate
from translator.plan.machines import LinkSpeed, Machines, equal_machines
from translator.plan.move_bound import bound_with_moves, judge
from translator.plan.task_graph import task_graph, work_of


def _fork_and_join(volume: float) -> PhysicalGraph:
    """A (1 s) writes a; B and C (4 s each) read it and write b and c; D (1 s) reads both."""
    builder = GraphBuilder().app("A", weight=1).data("a", weight=volume).connect("A", "a")
    for name in "BC":
        builder.app(name, weight=4).data(name.lower(), weight=volume)
        builder.connect("a", name).connect(name, name.lower())
    builder.app("D", weight=1).connect("b", "D").connect("c", "D")
    return builder.build()


@pytest.mark.parametrize(("volume", "seconds"), [(0, 6), (10, 7), (20, 8), (1000, 10)])
def test_moves_or_a_shared_processor_delay_a_join(volume: float, seconds: float) -> None:
    """Links of 10 bytes a second, two nodes of one core.

    The head of D: B and C start after 1 s. With both on the node of D, they end at 9 s; with one elsewhere, its data
    are there at 1 + 4 s and the time of a move. So the head is 5 s without bytes, 6 s for 10 bytes, 7 s for 20, and 9 s
    for 1000. D takes 1 s.
    """
    graph = _fork_and_join(volume)
    where = Machines(nodes=equal_machines(2).nodes, links=LinkSpeed(bandwidth=10.0))

    assert bound_with_moves(task_graph(work_of(graph)), where) == seconds
    assert judge(graph, where).bound_with_moves_s == seconds


def test_work_that_can_only_begin_late_counts() -> None:
    """A (10 s), then eight applications of 1 s on two cores, then B (10 s): 10 + 8 / 2 + 10 s, and not 28 / 2."""
    builder = GraphBuilder().app("A", weight=10).data("a").connect("A", "a").app("B", weight=10)
    for number in range(8):
        builder.app(f"m{number}", weight=1).data(f"d{number}")
        builder.connect("a", f"m{number}").connect(f"m{number}", f"d{number}").connect(f"d{number}", "B")
    graph = builder.build()
    verdict = judge(graph, equal_machines(1, cores=2))

    assert (verdict.lower_bound_s, verdict.bound_with_moves_s) == (21, 24)


@given(graph=work_graphs(most=5, producers=2), where=machines(most=3), contention=st.booleans())
@settings(max_examples=40)
def test_no_assignment_beats_the_bound(graph: PhysicalGraph, where: Machines, contention: bool) -> None:  # noqa: FBT001
    """Of all assignments of the tasks, none completes before the bound."""
    where = Machines(nodes=where.nodes, links=where.links, between_islands=where.between_islands, contention=contention)
    tasks = task_graph(work_of(graph))
    bound = bound_with_moves(tasks, where)

    for nodes in itertools.product(range(len(where.nodes)), repeat=tasks.tasks):
        part = tasks.expanded(np.array(nodes, dtype=np.int64))
        assert simulate(tasks.work, where, part).completion >= bound * (1 - 1e-9)
