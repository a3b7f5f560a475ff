import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadGraphError, WorkerDiedError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.notes import processors_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from tests.graph.shapes import chain, scatter
from tests.nightly import nightly
from tests.translator.plan.drawn_plans import work_graphs
from translator.options import PartitionOptions
from translator.pipeline import translate
from translator.plan import registry
from translator.plan.heft import priorities, upward_ranks
from translator.plan.judge import simulate
from translator.plan.kahypar import has_kahypar
from translator.plan.machines import LinkSpeed, Machines, NodeCapacity, equal_machines
from translator.plan.metis import feasible_limits, least_movement
from translator.plan.move_bound import judge
from translator.plan.refine import limits_for, refined
from translator.plan.registry import (
    ALGORITHMS,
    check_partition,
    compared,
    machines_for,
    partition,
    plan,
    promised_imbalance,
)
from translator.plan.task_graph import TaskGraph, task_graph, work_of

DEFECTS = Path(__file__).parents[3] / "shared" / "graphs" / "defects"

PLANNERS = [name for name in ALGORITHMS if name != "kahypar"]


def _unequal(count: int) -> Machines:
    speeds, cores = (1.0, 2.0, 0.5), (1, 2, 4)
    nodes = tuple(
        NodeCapacity(name=f"n{k}", speed=speeds[k % 3], cores=cores[k % 3], island="ab"[k % 2]) for k in range(count)
    )
    return Machines(nodes=nodes, links=LinkSpeed(bandwidth=2.0), between_islands=LinkSpeed(bandwidth=1.0))


def _least_time(graph: PhysicalGraph, machines: Machines, orders: int = 1) -> float:
    """Return the completion time of the best assignment of tasks to nodes that fit, each in the order of its ranks."""
    work = work_of(graph)
    tasks = task_graph(work)
    best, allowed = float("inf"), tasks.allowed(machines)
    for nodes in product(range(len(machines.nodes)), repeat=tasks.tasks):
        if not allowed[range(tasks.tasks), nodes].all():
            continue
        part = tasks.expanded(np.array(nodes, dtype=np.int64))
        for _ in range(orders):
            order = priorities(upward_ranks(graph, work, machines, part), work)
            best = min(best, simulate(work, machines, part, order).completion)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", PLANNERS)
@given(graph=work_graphs(most=7, producers=2), parts=st.integers(1, 4), unequal=st.booleans())
@settings(max_examples=20)
def test_every_algorithm_assigns_every_drop(algorithm: str, graph: PhysicalGraph, parts: int, unequal: bool) -> None:  # noqa: FBT001
    """Each drop is on one of the machines, applications have different priorities, and the bound holds."""
    machines = _unequal(parts) if unequal else equal_machines(parts)
    made = plan(graph, PartitionOptions(algorithm=algorithm, parts=parts, steps=20), machines).graph

    assert 0 <= made.part.min() <= made.part.max() < parts
    assert made.priority is not None
    apps = work_of(graph).is_app
    assert (made.priority[apps] > 0).all()
    assert not made.priority[~apps].any()
    verdict = judge(made, machines)
    assert verdict.makespan_s >= verdict.lower_bound_s * (1 - 1e-9)


@pytest.mark.parametrize("algorithm", PLANNERS)
def test_the_same_request_gives_the_same_plan(algorithm: str) -> None:
    """Parts and priorities are repeatable for one seed."""
    options = PartitionOptions(algorithm=algorithm, parts=5, seed=3)
    first, second = (partition(scatter(60), options) for _ in range(2))

    assert first.part.tolist() == second.part.tolist()
    assert first.priority is not None
    assert second.priority is not None
    assert first.priority.tolist() == second.priority.tolist()


@pytest.mark.exhaustive
@pytest.mark.slow
@given(work_graphs(most=5), st.integers(2, 3))
@settings(max_examples=40)
def test_auto_is_near_the_best_of_all_assignments(graph: PhysicalGraph, parts: int) -> None:
    """On tiny graphs `auto` takes at most a tenth longer than the best assignment of all, and not more than HEFT.

    An application that fits on no node may be anywhere: then only the comparison with HEFT holds.
    """
    machines = _unequal(parts)
    makespan = judge(partition(graph, PartitionOptions(algorithm="auto", parts=parts), machines), machines).makespan_s
    heft = judge(partition(graph, PartitionOptions(algorithm="heft", parts=parts), machines), machines).makespan_s

    if parts <= graph.drops and task_graph(work_of(graph)).fits(machines).any(axis=1).all():
        assert makespan <= _least_time(graph, machines) * 1.1 + 1e-9
    assert makespan <= heft * (1 + 1e-9)


def _movement(tasks: TaskGraph, part: list[int]) -> float:
    nets = tasks.nets
    pieces = np.split(nets.task, nets.ptr[1:-1]) if len(nets.volume) else []
    return sum(
        volume * (len({part[task] for task in piece}) - 1)
        for volume, piece in zip(nets.volume.tolist(), pieces, strict=True)
    )


@given(work_graphs(most=7), st.integers(2, 3), st.sampled_from([0.0, 10.0, 50.0, 100.0]))
@settings(max_examples=60)
def test_a_feasible_imbalance_is_kept(graph: PhysicalGraph, parts: int, imbalance: float) -> None:
    """If an assignment of the tasks keeps the limits, `least_movement` returns one that does."""
    tasks = task_graph(work_of(graph))
    options = PartitionOptions(parts=parts, imbalance=imbalance)
    machines = equal_machines(parts)
    limits = limits_for(tasks, equal_machines(parts), imbalance)
    every = [np.array(part) for part in product(range(parts), repeat=tasks.tasks)]
    feasible = any(limits.excess(part) == 0 for part in every)

    tightest = feasible_limits(tasks, options, machines)
    part = least_movement(tasks, options, tightest, [np.zeros(tasks.tasks, dtype=np.int64)])

    if feasible:
        assert limits.excess(part) <= 1e-6


@given(work_graphs(most=8), st.integers(2, 4), st.data())
@settings(max_examples=60)
def test_refinement_counts_what_moves(graph: PhysicalGraph, parts: int, data: st.DataObject) -> None:
    """The bytes of a refined partition are those that the judge counts, and not more than before."""
    tasks = task_graph(work_of(graph))
    before = data.draw(st.lists(st.integers(0, parts - 1), min_size=tasks.tasks, max_size=tasks.tasks))
    limits = limits_for(tasks, equal_machines(parts), 1e6)

    after, moved = refined(tasks.nets, np.array(before, dtype=np.int64), limits)

    assert moved == pytest.approx(_movement(tasks, after.tolist()))
    if set(before) == set(range(parts)):
        assert moved <= _movement(tasks, before) + 1e-9
    verdict = judge(graph, equal_machines(parts), part=tasks.expanded(after))
    made = verdict.bytes_moved - verdict.bytes_given if tasks.nets.is_made.any() else verdict.bytes_moved
    assert moved == pytest.approx(made, rel=1e-4, abs=1e-4)


@given(work_graphs(most=8), st.integers(2, 4), st.sampled_from([0.0, 50.0, 1e6]), st.data())
@settings(max_examples=60)
def test_no_part_is_empty_after_refinement(
    graph: PhysicalGraph, parts: int, imbalance: float, data: st.DataObject
) -> None:
    """If there are as many tasks as parts, each part has one."""
    tasks = task_graph(work_of(graph))
    before = data.draw(st.lists(st.integers(0, parts - 1), min_size=tasks.tasks, max_size=tasks.tasks))
    limits = limits_for(tasks, equal_machines(parts), imbalance)

    after, _ = refined(tasks.nets, np.array(before, dtype=np.int64), limits)

    assert len(set(after.tolist())) >= min(parts, tasks.tasks)


def test_empty_parts_get_what_costs_least() -> None:
    """An empty part gets the application with the smallest data, not half of the heaviest part."""
    builder = GraphBuilder("pairs")
    for number in range(12):
        volume = 1.0 if number == 7 else 1e9
        builder.app(f"a{number}", weight=1.0).data(f"d{number}", weight=volume).app(f"b{number}", weight=1.0)
        builder.connect(f"a{number}", f"d{number}").connect(f"d{number}", f"b{number}")
    tasks = task_graph(work_of(builder.build()))
    limits = limits_for(tasks, equal_machines(13), 1e6)

    after, moved = refined(tasks.nets, np.arange(24) // 2, limits)

    assert set(after.tolist()) == set(range(13))
    assert moved == 1.0


def test_a_partitioner_that_ends_early_has_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plans of the others are compared."""

    def die(*_: object) -> None:
        raise WorkerDiedError("it ended with exit status -9")

    monkeypatch.setattr(registry, "ALGORITHMS", {**registry.ALGORITHMS, "metis": die})
    found = {made.algorithm: made for made in compared(scatter(4), PartitionOptions(parts=2), tried=["metis", "heft"])}

    assert found["metis"].problem == "it ended with exit status -9"
    assert found["heft"].verdict is not None


@pytest.mark.slow
@pytest.mark.skipif(not has_kahypar(), reason="needs mtkahypar")
def test_kahypar_takes_the_largest_seed() -> None:
    """Mt-KaHyPar has 31 bits for the seeds that follow from the one that is given."""
    options = PartitionOptions(algorithm="kahypar", parts=2, seed=2**31 - 1)

    assert partition(scatter(12), options).parts == 2


@pytest.mark.slow
@pytest.mark.skipif(not has_kahypar(), reason="needs mtkahypar")
def test_kahypar_is_repeatable_and_moves_no_more_than_metis() -> None:
    """The same request gives the same parts, twice in one process; METIS alone does not move less."""
    graph, machines = scatter(200), equal_machines(4)
    options = PartitionOptions(algorithm="kahypar", parts=4)
    first, second = (plan(graph, options, machines).graph for _ in range(2))
    alone = plan(graph, msgspec.structs.replace(options, algorithm="metis"), machines).graph

    assert first.part.tolist() == second.part.tolist()
    assert judge(first, machines).bytes_moved <= judge(alone, machines).bytes_moved


@pytest.mark.skipif(not DEFECTS.is_dir(), reason="needs the graphs of the community")
def test_metis_keeps_an_imbalance_that_is_feasible() -> None:
    """A graph of weights 1 to 10 in three parts: with 44 % and 60 % allowed, METIS alone makes 69.6 %."""
    graph = translate(DEFECTS / "d11_weighted.graph").graph
    for allowed in (31.0, 44.0, 60.0):
        made = partition(graph, PartitionOptions(algorithm="metis", parts=3, imbalance=allowed))
        assert judge(made, equal_machines(3)).imbalance <= allowed


def test_min_parts_uses_as_few_nodes_as_the_deadline_allows() -> None:
    """24 applications of 5 seconds need six nodes in 20 seconds, and one node in 120."""
    builder = GraphBuilder()
    for number in range(24):
        builder.app(f"A{number}", weight=5)
    for deadline, nodes in ((20.0, 6), (40.0, 3), (120.0, 1)):
        made = plan(builder.build(), PartitionOptions(algorithm="min_parts", parts=8, deadline=deadline))
        assert judge(made.graph, equal_machines(8)).nodes_used == nodes
        assert str(nodes) in made.note


@pytest.mark.parametrize("algorithm", ["auto", "min_parts"])
def test_a_deadline_that_cannot_be_kept_is_an_error(algorithm: str) -> None:
    """PT011 has the time of the best plan."""
    with pytest.raises(BadGraphError, match=r"PT011 the best plan.* takes 1000 s, the deadline is 3 s"):
        partition(chain(1000), PartitionOptions(algorithm=algorithm, parts=4, deadline=3.0))


def test_every_algorithm_keeps_a_deadline_or_refuses() -> None:
    """An algorithm that does not plan for deadlines is refused with PT011 if its plan takes longer."""
    with pytest.raises(BadGraphError, match=r"PT011 the plan takes .* s, the deadline is 3 s"):
        partition(chain(1000), PartitionOptions(algorithm="blocks", parts=4, deadline=3.0))


def test_dop_limits_the_applications_of_an_island() -> None:
    """Nodes share the processors of their island: a plan takes as long as on nodes with those alone."""
    builder = GraphBuilder()
    for number in range(8):
        builder.app(f"A{number}", weight=1)
    graph = builder.build()

    assert judge(graph, equal_machines(1, cores=4)).makespan_s == 2
    made = plan(graph, PartitionOptions(algorithm="heft", parts=2, dop=4), equal_machines(2, cores=16)).graph
    assert judge(made, equal_machines(2, cores=2)).makespan_s == 2
    assert processors_of(made) == [2, 2]


@given(
    cores=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    islands=st.integers(1, 3),
    dop=st.integers(1, 12),
    least=st.integers(1, 4),
)
def test_shares_of_an_island_are_its_dop(cores: list[int], islands: int, dop: int, least: int) -> None:
    """Shares add up to the limit, or to all cores that its nodes have; none is too small for all that would fit."""
    described = [
        NodeCapacity(name=f"n{at}", cores=number, island=f"i{at % islands}") for at, number in enumerate(cores)
    ]

    limited = Machines(nodes=tuple(described)).limited(dop, 0, least=least)

    for island in Machines(nodes=tuple(described)).islands:
        inside = {capacity.name: capacity.cores for capacity in described if capacity.island == island}
        shares = {node.name: node.cores for node in limited.nodes if node.island == island}
        assert all(inside[name] >= share >= min(least, dop, inside[name]) for name, share in shares.items())
        assert sum(shares.values()) == min(dop, sum(sorted(inside.values())[-len(shares) :]))
    assert limited.limited(dop, 0, least=least) == limited


def test_a_plan_with_too_few_processors_uses_fewer_nodes() -> None:
    """One processor for two nodes of an island makes a part on one of them, with PT003."""
    options = PartitionOptions(parts=4, dop=1)
    nodes = tuple(NodeCapacity(name=f"n{at}", cores=8, island=f"i{at % 2}") for at in range(4))

    made = plan(scatter(12), options, Machines(nodes=nodes)).graph

    assert made.parts == 2
    assert processors_of(made) == [1, 1]
    assert [node.name for node in machines_for(made, options, Machines(nodes=nodes)).nodes] == ["n0", "n1"]
    assert "1 processors of an island are too few for 4 parts" in str(check_partition(made, options)[0])


def test_names_of_daliuge_select_algorithms() -> None:
    """`mysarkar`, `min_num_parts` and `pso` are accepted."""
    assert plan(scatter(4), PartitionOptions(algorithm="mysarkar", parts=2)).algorithm == "auto"
    assert plan(scatter(4), PartitionOptions(algorithm="min_num_parts", parts=2)).algorithm == "min_parts"
    assert plan(scatter(4), PartitionOptions(algorithm="pso", parts=2)).algorithm == "auto"


@pytest.mark.slow
def test_objectives_of_auto() -> None:
    """Time uses all nodes; nodes as few as the deadline allows; the note says which plan is best, and the bound."""
    graph = scatter(12)
    plans = {
        objective: plan(graph, PartitionOptions(parts=4, objective=objective, deadline=40.0))  # type: ignore[arg-type]
        for objective in ("time", "nodes", "movement", "balanced")
    }
    used = {name: judge(planned.graph, equal_machines(4)).nodes_used for name, planned in plans.items()}

    assert used["time"] == 4
    assert used["nodes"] == 2
    assert all("no plan takes less than" in planned.note for planned in plans.values())


def test_what_no_node_has_is_a_warning() -> None:
    """PT012 names the application; the plan has it run alone."""
    graph = GraphBuilder().app("A", weight=1, cpus=9).app("B", weight=1).build()
    options, machines = PartitionOptions(parts=1), equal_machines(1, cores=2)

    assert [(problem.code, problem.where) for problem in check_partition(graph, options, machines)] == [("PT012", "A")]
    assert judge(partition(graph, options, machines), machines).makespan_s == 2


def test_what_no_node_has_moves_nothing_to_an_empty_island() -> None:
    """A plan on one island stays as it is if an application asks for more processors than any node has."""
    builder = GraphBuilder().app("A", weight=1).data("d", weight=100).app("B", weight=1, cpus=9)
    graph = builder.connect("A", "d").connect("d", "B").build()
    machines = Machines(nodes=(NodeCapacity(name="a", island="x"), NodeCapacity(name="b", cores=2, island="y")))

    verdict = judge(plan(graph, PartitionOptions(parts=2), machines).graph, machines)

    assert (verdict.nodes_used, verdict.bytes_moved) == (1, 0)


def test_more_gpus_than_any_node_has_are_refused() -> None:
    """PT013 names the application and both numbers; nodes that the plan leaves out do not count."""
    graph, options = _declaring("num_gpus", 1, 4), PartitionOptions(parts=2)
    small, large = NodeCapacity(name="a", gpus=2), NodeCapacity(name="b", gpus=4)

    with pytest.raises(BadGraphError, match="'A1' asks for 4 GPUs, and no node of the plan has more than 2, as a has"):
        plan(graph, options, Machines(nodes=(small, NodeCapacity(name="c"), large)))
    with pytest.raises(BadGraphError, match="'A0' asks for 1 GPU, and no node of the plan has any"):
        plan(graph, PartitionOptions(parts=1), Machines(nodes=(NodeCapacity(name="c"),)))

    assert plan(graph, options, Machines(nodes=(small, large))).graph.part[1] == 1
    assert plan(graph, options).graph.parts == 2


def _declaring(field: str, *values: object) -> PhysicalGraph:
    """Return independent applications of one second, each with a value of a field."""
    builder = GraphBuilder()
    for number, value in enumerate(values):
        builder.app(f"A{number}", weight=1, arguments=(Argument(name=field, value=value),))
    return builder.build()


@pytest.mark.parametrize("algorithm", ["heft", "lookahead"])
@pytest.mark.parametrize("scarce", ["memory", "num_gpus"])
def test_list_schedules_know_the_memory_and_the_gpus_of_nodes(algorithm: str, scarce: str) -> None:
    """Node a has four cores, but what one of the applications needs at a time; b has one core: each gets two."""
    nodes = (NodeCapacity(name="a", cores=4, memory=8.0, gpus=1), NodeCapacity(name="b", memory=8.0, gpus=1))
    graph, machines = _declaring(scarce, *["6 B" if scarce == "memory" else 1] * 4), Machines(nodes=nodes)
    made = plan(graph, PartitionOptions(algorithm=algorithm, parts=2), machines).graph

    assert sorted(made.part.tolist()) == [0, 0, 1, 1]
    assert judge(made, machines).makespan_s == 2


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", PLANNERS)
def test_every_algorithm_puts_an_application_where_it_fits(algorithm: str) -> None:
    """What asks for more memory, processors or GPUs than the small node has is on the large one; `none` reports it."""
    small = NodeCapacity(name="small", cores=2, memory=4.0, gpus=1)
    large = NodeCapacity(name="large", cores=4, memory=8.0, gpus=2)
    builder = GraphBuilder()
    needs = [("6 B", 1, 0), ("3 B", 1, 0), ("6 B", 1, 0), ("3 B", 3, 0), ("3 B", 1, 1), ("1 B", 1, 0), ("1 B", 1, 2)]
    for number, (memory, cpus, gpus) in enumerate(needs):
        arguments = (Argument(name="memory", value=memory), Argument(name="num_gpus", value=gpus))
        builder.app(f"A{number}", weight=10, cpus=cpus, arguments=arguments)
    machines = Machines(nodes=(small, large))

    made = plan(builder.build(), PartitionOptions(algorithm=algorithm, parts=2), machines).graph

    misplaced = judge(made, machines).violations
    assert bool(misplaced) == (algorithm == "none")
    if misplaced:
        assert "'A3' (1 times) asks for 3 processors, its node small has 2 processors and 4 Bytes" in misplaced
        assert "'A6' (1 times) asks for 2 GPUs, its node small has 2 processors and 4 Bytes and 1 GPU" in misplaced
    else:
        assert set(made.part[[0, 2, 3, 6]].tolist()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_auto_does_not_depend_on_when_input_files_come(seed: int) -> None:
    """Also where inputs that no application makes are on all nodes at once, it takes no longer than HEFT."""
    builder, draw = GraphBuilder(), random.Random(seed)
    for number in range(70):
        builder.app(f"A{number}", weight=draw.lognormvariate(1, 1)).data(f"d{number}", weight=draw.uniform(1, 50))
        builder.connect(f"A{number}", f"d{number}").data(f"in{number}", weight=draw.uniform(0.1, 1))
        builder.connect(f"in{number}", f"A{number}")
        for before in {draw.randrange(max(number - 20, 0), number) for _ in range(2)} if number else set():
            builder.connect(f"d{before}", f"A{number}")
    graph, machines = builder.build(), Machines(nodes=equal_machines(4).nodes, links=LinkSpeed(bandwidth=100.0))
    times = []
    for algorithm in ("auto", "heft"):
        made = partition(graph, PartitionOptions(algorithm=algorithm, parts=4), machines)
        whole_work = work_of(graph)
        runs = [
            simulate(work, machines, made.part, made.priority)
            for work in (whole_work, whole_work.without_given())
            if work
        ]
        times.append(max(run.completion for run in runs))

    assert times[0] <= times[1] * (1 + 1e-9)


_TWELVE = (12, 26, 23, 27, 24, 21, 30, 17, 1, 27, 15, 25)


@pytest.mark.parametrize("algorithm", ["metis", "auto", *(["kahypar"] if has_kahypar() else [])])
def test_a_balance_that_is_hard_to_find_is_kept(algorithm: str) -> None:
    """Twelve tasks in four parts: a partition within 3.73 % exists, though the heaviest first gives 4.8 %."""
    builder = GraphBuilder()
    for number, seconds in enumerate(_TWELVE):
        builder.app(f"A{number}", weight=seconds).data(f"e{number}", weight=1000).connect(f"A{number}", f"e{number}")
    options = PartitionOptions(algorithm=algorithm, parts=4, imbalance=3.73, objective="movement")

    verdict = judge(partition(builder.build(), options), equal_machines(4), imbalance=3.73)

    assert verdict.imbalance <= 3.73
    assert verdict.violations == ()


def test_an_imbalance_that_cannot_be_kept_is_reported() -> None:
    """The least possible imbalance is taken, and the violation names it, what was allowed, and the application."""
    builder = GraphBuilder().app("giant", weight=30)
    for number in range(10):
        builder.app(f"A{number}", weight=1)
    options = PartitionOptions(algorithm="metis", parts=4, imbalance=3.0)

    verdict = judge(partition(builder.build(), options), equal_machines(4), imbalance=promised_imbalance(options))

    assert verdict.imbalance == pytest.approx(200)
    assert verdict.violations == (
        "the imbalance is 200 %, more than 3 %: 'giant' alone is 200 % above the share of a node",
    )
    assert promised_imbalance(PartitionOptions(algorithm="heft")) is None
    assert promised_imbalance(PartitionOptions(algorithm="heft", imbalance=3.0)) == 3.0


def test_an_imbalance_that_is_just_exceeded_is_shown_as_larger() -> None:
    """The number in the message has as many digits as it takes to be above what was allowed."""
    builder = GraphBuilder().app("A", weight=130.44).app("B", weight=69.56)
    graph = replace(builder.build(), part=np.array([0, 1], dtype=np.int32))

    (violation,) = judge(graph, equal_machines(2), imbalance=30.4).violations

    assert violation.startswith("the imbalance is 30.44 %, more than 30.4 %")


@pytest.mark.slow
def test_data_that_no_application_makes_decides_last() -> None:
    """Pairs joined by a small file stay together, though others read a large common input."""
    builder = GraphBuilder()
    for group in "xy":
        builder.data(f"in-{group}", weight=1e12)
    for number in range(8):
        builder.app(f"A{number}", weight=1).data(f"d{number}", weight=10.0).app(f"B{number}", weight=1)
        builder.connect(f"A{number}", f"d{number}").connect(f"d{number}", f"B{number}")
        builder.connect("in-x", f"A{number}").connect("in-y", f"B{number}")
    graph = builder.build()

    made = partition(graph, PartitionOptions(algorithm="auto", parts=2, objective="movement", imbalance=0.0))

    verdict = judge(made, equal_machines(2))
    assert verdict.bytes_moved == verdict.bytes_given == 2e12
    assert verdict.imbalance == 0


def test_declared_memory_is_not_balanced() -> None:
    """Memory limits what runs at a time, so one task with most of it hinders no balance of time."""
    graph = _declaring("memory", "90 B", *["1 B"] * 15)

    verdict = judge(partition(graph, PartitionOptions(algorithm="metis", parts=4, imbalance=0.0)), equal_machines(4))

    assert verdict.imbalance == 0


@pytest.mark.parametrize("described", [False, True])
def test_the_loads_of_any_two_islands_differ_by_the_imbalance_at_most(described: bool) -> None:  # noqa: FBT001
    """Parts may be 20 % above their share, and the lightest of three islands is within 20 % of the heaviest, too."""
    builder, draw = GraphBuilder(), random.Random(5)
    for number in range(90):
        builder.app(f"A{number}", weight=draw.uniform(1, 4)).data(f"d{number}", weight=draw.uniform(1, 100))
        builder.connect(f"A{number}", f"d{number}")
        if number:
            builder.connect(f"d{draw.randrange(max(number - 9, 0), number)}", f"A{number}")
    options = PartitionOptions(algorithm="metis", parts=6, imbalance=20.0, islands=1 if described else 3)
    islands = Machines(
        nodes=tuple(NodeCapacity(name=f"n{position}", island=f"i{position % 3}") for position in range(6))
    )
    machines = islands if described else None

    made = partition(builder.build(), options, machines)

    verdict = judge(made, machines_for(made, options, machines), imbalance=20.0)
    assert verdict.island_imbalance <= 20.0
    assert verdict.violations == ()


@pytest.mark.parametrize("algorithm", ["heft", "lookahead"])
def test_list_schedules_put_an_application_where_its_memory_is(algorithm: str) -> None:
    """Only the slow node has the memory for two of them, so these are there; one that no node can hold is PT012."""
    machines = Machines(
        nodes=(NodeCapacity(name="fast", cores=4, speed=2.0, memory=8.0), NodeCapacity(name="slow", memory=32.0))
    )
    graph = _declaring("memory", "20 B", "4 B", "20 B", "4 B")
    made = plan(graph, PartitionOptions(algorithm=algorithm, parts=2), machines).graph

    assert made.part.tolist() == [1, 0, 1, 0]
    options = PartitionOptions(algorithm=algorithm, parts=2)
    assert [problem.code for problem in check_partition(_declaring("memory", "40 B", "4 B"), options, machines)] == [
        "PT012"
    ]
