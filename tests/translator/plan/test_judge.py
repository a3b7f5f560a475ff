import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from tests.translator.plan.core_on_virtual_time import CoreOnVirtualTime
from tests.translator.plan.drawn_plans import machines, plans, work_graphs
from translator.plan.judge import simulate
from translator.plan.machines import LinkSpeed, Machines, NodeCapacity, equal_machines
from translator.plan.move_bound import bound_with_moves, judge
from translator.plan.task_graph import task_graph, work_of


@pytest.mark.slow
@given(plans())
@settings(max_examples=100)
def test_the_simulation_agrees_with_the_core_on_virtual_time(
    plan: tuple[PhysicalGraph, Machines, list[int] | None],
) -> None:
    """Each application starts and ends when it does if the engine's core decides what is ready."""
    graph, machines, priority = plan
    column = None if priority is None else np.array(priority, dtype=np.int32)

    run = simulate(work_of(graph), machines, graph.part, column)
    slow = CoreOnVirtualTime(graph, machines, priority)
    completion = slow.run()

    assert run.completion == pytest.approx(float(completion))
    for app, start in slow.starts.items():
        assert (run.start[app], run.end[app]) == pytest.approx((float(start), float(slow.ends[app])))


def _pipeline() -> PhysicalGraph:
    """A writes 100 bytes, which B, C and D read."""
    builder = GraphBuilder().app("A", weight=1).data("a", weight=100)
    builder.connect("A", "a")
    for name in "BCD":
        builder.app(name, weight=2).connect("a", name)
    return builder.build()


def test_data_move_once_to_each_node() -> None:
    """Three readers on two other nodes make two moves; the bytes cut count each edge."""
    graph = replace(_pipeline(), part=np.array([0, 0, 1, 1, 2], dtype=np.int32))
    verdict = judge(graph, equal_machines(3))

    assert (verdict.bytes_moved, verdict.cut_bytes, verdict.nodes_used) == (200, 300, 3)


def test_moves_share_the_link_of_their_sender() -> None:
    """Two moves of 100 bytes over a link of 100 bytes a second take two seconds, and one second without contention."""
    graph = replace(_pipeline(), part=np.array([0, 0, 1, 2, 2], dtype=np.int32))
    machines = Machines(nodes=equal_machines(3, cores=2).nodes, links=LinkSpeed(bandwidth=100))
    alone = Machines(nodes=machines.nodes, links=machines.links, contention=False)

    assert judge(graph, machines).makespan_s == pytest.approx(1 + 2 + 2)
    assert judge(graph, alone).makespan_s == pytest.approx(1 + 1 + 2)


def test_priority_decides_which_ready_application_starts_first() -> None:
    """Of two ready applications on one core, the one with the higher priority starts first."""
    builder = GraphBuilder().app("A", weight=1).app("B", weight=2).data("b").app("C", weight=3)
    graph = builder.connect("B", "b").connect("b", "C").build()
    order = np.array([0, 1, 0, 0], dtype=np.int32)

    run = simulate(work_of(graph), equal_machines(1), graph.part, order)

    assert (run.start[1], run.start[0]) == (0, 2)


def test_processors_and_memory_are_never_exceeded() -> None:
    """An application that asks for two of two processors runs alone; so does one that asks for more than there are."""
    builder = GraphBuilder().app("A", weight=1, cpus=2).app("B", weight=1, cpus=9).app("C", weight=1)
    run = simulate(work_of(builder.build()), Machines(nodes=(NodeCapacity(name="n", cores=2),)), np.zeros(3, np.int32))

    assert sorted(run.start.tolist()) == [0, 1, 2]


def test_more_memory_than_there_is_takes_the_whole_node() -> None:
    """As in the runners, nothing runs beside an application that declares more memory than its node has."""
    memory = (Argument(name="memory", value="2 KiB"),)
    graph = GraphBuilder().app("A", weight=1, arguments=memory).app("B", weight=1).app("C", weight=1).build()
    machines = Machines(nodes=(NodeCapacity(name="n", cores=2, memory=1024),))

    assert simulate(work_of(graph), machines, np.zeros(3, np.int32)).start.tolist() == [0, 1, 1]


def test_gpus_are_never_exceeded_and_hold_up_no_others() -> None:
    """Of three applications with a GPU each on two GPUs, the last waits; what needs none overtakes it."""
    gpu = (Argument(name="num_gpus", value=1),)
    builder = GraphBuilder().app("A", weight=2, arguments=gpu).app("B", weight=1, arguments=gpu)
    graph = builder.app("C", weight=1, arguments=gpu).app("D", weight=1).build()
    machines = Machines(nodes=(NodeCapacity(name="n", cores=4, gpus=2),))

    assert simulate(work_of(graph), machines, np.zeros(4, np.int32)).start.tolist() == [0, 0, 1, 0]


@pytest.mark.slow
@given(plans())
@settings(max_examples=30)
def test_capacities_are_kept_at_all_times(plan: tuple[PhysicalGraph, Machines, list[int] | None]) -> None:
    """Whenever an application starts, those that run on its node fit; one that asks for more than all counts as all."""
    graph, machines, order = plan
    work = work_of(graph)
    priority = None if order is None else np.array(order, dtype=np.int32)
    run = simulate(work, machines, graph.part, priority)
    for app in work.apps.tolist():
        node = machines.nodes[int(graph.part[app])]
        here = work.apps[(graph.part[work.apps] == graph.part[app])]
        now = run.start[app]
        running = here[((run.start[here] <= now) & (now + 1e-9 < run.end[here])) | (here == app)]
        if run.end[app] > now:
            assert np.minimum(work.cpus[running], node.cores).sum() <= node.cores
            assert np.minimum(work.memory[running], node.memory).sum() <= node.memory
            assert np.minimum(work.gpus[running], node.gpus).sum() <= node.gpus


@pytest.mark.slow
@given(plans())
@settings(max_examples=30)
def test_no_plan_beats_the_lower_bound(plan: tuple[PhysicalGraph, Machines, list[int] | None]) -> None:
    """The completion time is at least the bounds, and loads add up to the work."""
    graph, machines, _ = plan
    verdict = judge(graph, machines)

    assert verdict.bound_with_moves_s >= verdict.lower_bound_s
    assert verdict.makespan_s >= verdict.bound_with_moves_s * (1 - 1e-9)
    speeds = [node.speed for node in machines.nodes]
    work = work_of(graph)
    assert sum(load * speed for load, speed in zip(verdict.loads, speeds, strict=True)) == pytest.approx(
        float(work.work.sum())
    )


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


@pytest.mark.slow
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
