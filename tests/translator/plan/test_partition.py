import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dropflow
from dropflow.errors import BadGraphError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph, without_fusion
from dropflow.graph.templates import Axis, Kind
from dropflow.testing.drawing import draw
from tests.graph.shapes import chain, edges_of, graphs, scatter
from translator.options import PartitionOptions
from translator.plan.metis import cut_evenly, depth_first_order, filled
from translator.plan.planner import grouped_in_islands, island_of, place
from translator.plan.quality import quality_of
from translator.plan.refine import PartLimits, evenest
from translator.plan.registry import ALGORITHMS as ALGORITHMS_BY_NAME
from translator.plan.registry import check_partition, partition

ALGORITHMS = ("blocks", "metis")


def _cut(graph: PhysicalGraph, parts: int, algorithm: str = "metis", **more: Any) -> PhysicalGraph:
    return partition(graph, PartitionOptions(algorithm=algorithm, parts=parts, **more))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(graph=graphs(), parts=st.integers(1, 50))
@settings(max_examples=50)
def test_no_part_is_empty(algorithm: str, graph: PhysicalGraph, parts: int) -> None:
    """Every algorithm makes the given number of parts (at most the number of drops), numbered from 0 without gaps."""
    made = _cut(graph, parts, algorithm)

    assert sorted(set(made.part.tolist())) == list(range(min(parts, graph.drops)))
    assert (made.template is graph.template, made.successors is graph.successors) == (True, True)
    assert not made.part.flags.writeable


@given(graphs(), st.integers(4, 12))
def test_parts_that_metis_leaves_empty_arefilled(graph: PhysicalGraph, parts: int) -> None:
    """The heaviest parts are halved until none is empty; no drop joins a part that it was not split from."""
    wanted = min(parts, graph.drops)
    before = np.minimum(graph.part, wanted - 1).astype(np.int32)
    after = filled(graph, before, wanted, np.arange(graph.drops, dtype=np.int32))

    assert sorted(set(after.tolist())) == list(range(wanted))
    moved = after != before
    assert set(after[moved].tolist()).isdisjoint(before.tolist())
    origins = {(int(new), int(old)) for new, old in zip(after, before, strict=True)}
    assert len(origins) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_load_is_balanced(algorithm: str) -> None:
    """On a wide graph of equal work no part has much more to do than the mean."""
    for parts in (2, 3, 8, 16):
        quality = quality_of(_cut(scatter(2000), parts, algorithm))
        assert quality.imbalance <= 5.0
        assert len(quality.loads) == len(quality.drops) == parts


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_chains_of_a_scatter_are_not_cut(algorithm: str) -> None:
    """Chains inside a scatter stay in one part: only the inputs of the gather are transferred."""
    parts = 4
    quality = quality_of(_cut(scatter(1000), parts, algorithm))

    assert quality.cut_edges <= 1000 * (parts - 1) / parts * 1.02 + parts


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_chain_in_four_parts_has_three_cuts(algorithm: str) -> None:
    """No more edges of a chain are cut than necessary."""
    assert quality_of(_cut(chain(1000), 4, algorithm)).cut_edges == 3


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_request_gives_the_same_parts(algorithm: str) -> None:
    """Partitioning is repeatable for one seed."""
    assert (
        _cut(scatter(500), 7, algorithm, seed=3).part.tolist() == _cut(scatter(500), 7, algorithm, seed=3).part.tolist()
    )


@pytest.mark.slow
@given(graphs(), st.integers(1, 12))
def test_blocks_depend_on_each_other_in_one_direction(graph: PhysicalGraph, parts: int) -> None:
    """Blocks of a topological order can run one after the other."""
    made = _cut(graph, parts, "blocks")

    assert quality_of(made).acyclic
    assert all(made.part[source] <= made.part[target] for source, _, target in edges_of(made))


@given(graphs())
def test_the_depth_first_order_is_topological(graph: PhysicalGraph) -> None:
    """Every drop comes once, after all of its predecessors."""
    place_of = {drop: at for at, drop in enumerate(depth_first_order(graph).tolist())}

    assert sorted(place_of) == list(range(graph.drops))
    assert all(place_of[source] < place_of[target] for source, _, target in edges_of(graph))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.data())
def test_rows_are_cut_evenly(load: list[float], data: st.DataObject) -> None:
    """Blocks are consecutive, none is empty, and none exceeds the mean by more than the heaviest row."""
    parts = data.draw(st.integers(1, len(load)))
    part = cut_evenly(np.array(load), parts).tolist()

    assert part == sorted(part)
    assert set(part) == set(range(parts))
    heaviest = max(sum(weight for weight, at in zip(load, part, strict=True) if at == block) for block in range(parts))
    assert heaviest <= (sum(load) / parts + max(load)) * 1.001


def test_a_cycle_cannot_be_partitioned() -> None:
    """A graph with a cycle raises an error."""
    drawing = GraphBuilder().data("a").app("B").data("c").connect("a", "B").connect("B", "a").connect("c", "B")
    for algorithm in ALGORITHMS:
        with pytest.raises(BadGraphError, match="LG050"):
            _cut(drawing.build(), 2, algorithm)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "none"])
def test_an_empty_graph_can_be_partitioned(algorithm: str) -> None:
    """A graph without drops is returned without drops."""
    assert _cut(GraphBuilder().build(), 3, algorithm).parts == 1


def test_none_makes_one_part() -> None:
    """`none` undoes a partition and its placement."""
    placed = place(_cut(scatter(10), 4), tuple("abcd"))
    undone = _cut(placed, 4, "none")

    assert (undone.parts, undone.places) == (1, ())


def test_weights_decide_where_the_cut_is() -> None:
    """One heavy application balances many light ones; float weights count as they are."""
    drawing = GraphBuilder().data("in").app("Heavy", weight=10.0).connect("in", "Heavy")
    for number in range(10):
        drawing.app(f"Light{number}", weight=0.999).connect("in", f"Light{number}")
    graph = drawing.build()
    for algorithm in ALGORITHMS:
        made = _cut(graph, 2, algorithm)
        heavy = made.part[1]
        assert np.count_nonzero(made.part[2:] == heavy) <= 1


@pytest.mark.parametrize("algorithm", ["metis", "heft", "breadth_first", "blocks", "auto"])
def test_measured_weights_count_beside_an_exclusive_drop(algorithm: str) -> None:
    """What shares its node with no other drop does not hide what earlier runs have measured of the others."""
    builder = GraphBuilder()
    for number in range(4):
        builder.app(f"a{number}", weight=1.0).data(f"d{number}").connect(f"a{number}", f"d{number}")
    graph = builder.app("alone", weight=1.0, axes=(Axis("X", "X", "exclusive", 1),)).build()
    weight = np.array([3.0] + [1.0] * (graph.drops - 1))

    made = _cut(replace(graph, weight=weight), 3, algorithm)

    assert sorted(quality_of(made).loads) == [1.0, 3.0, 3.0]


def test_large_data_stays_where_it_is_made() -> None:
    """Between equal loads, the partitioner cuts small volumes and keeps large ones inside."""
    drawing = GraphBuilder()
    for side in "lr":
        drawing.app(f"Make{side}").data(f"big{side}", weight=1000).app(f"Use{side}")
        drawing.connect(f"Make{side}", f"big{side}").connect(f"big{side}", f"Use{side}").data(f"small{side}", weight=1)
    drawing.connect("Makel", "smalll").connect("smalll", "User").connect("Maker", "smallr").connect("smallr", "Usel")

    assert quality_of(_cut(drawing.build(), 2)).volume_moved == 2.0


def _problems(graph: PhysicalGraph, **options: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.where) for problem in check_partition(graph, PartitionOptions(**options))]


def test_all_problems_of_a_request_are_reported_together() -> None:
    """Unknown algorithms, impossible numbers and weights each have their code and place."""
    weights = {"in": -1.0, "work": float("nan"), "out": float("inf")}
    templates = [
        msgspec.structs.replace(template, weight=weights.get(template.key, 1.0)) for template in scatter(2).templates
    ]
    graph = replace(scatter(2), templates=tuple(templates))

    assert _problems(graph, algorithm="magic", parts=0, imbalance=-1.0) == [
        ("PT001", "in"),
        ("PT001", "work"),
        ("PT001", "out"),
        ("PT002", "algorithm"),
        ("PT002", "parts"),
        ("PT002", "imbalance"),
    ]
    with pytest.raises(BadGraphError, match=r"PT001 .*\(and 5 more\)"):
        partition(graph, PartitionOptions(algorithm="magic", parts=0, imbalance=-1.0))


@pytest.mark.parametrize("algorithm", ["heft", "metis", "mysarkar"])
def test_weights_whose_sum_is_infinite_are_refused(algorithm: str) -> None:
    """The problem names the heaviest node."""
    templates = [msgspec.structs.replace(template, weight=1e308) for template in scatter(20).templates]
    graph = replace(scatter(20), templates=tuple(templates))

    with pytest.raises(BadGraphError, match=r"PT001 .* 1e\+308: weights of \d+ drops have no finite sum"):
        partition(graph, PartitionOptions(algorithm=algorithm, parts=2))


@pytest.mark.parametrize("call", [dropflow.translate, dropflow.run])
def test_no_parts_are_refused_in_python_too(call: Callable[..., object]) -> None:
    """0 is not taken for a graph that is not to be partitioned."""
    with pytest.raises(BadGraphError, match="PT002 0 parts"):
        call(draw("A -> x"), parts=0)


def test_an_unknown_algorithm_lists_the_others() -> None:
    """The hint has all names."""
    problems = check_partition(scatter(2), PartitionOptions(algorithm="magic"))

    assert [problem.code for problem in problems] == ["PT002"]
    assert all(name in problems[0].hint for name in ALGORITHMS_BY_NAME)


def test_more_parts_than_drops_is_a_warning() -> None:
    """With more parts than drops every drop is a part, and PT003 is a warning."""
    assert _problems(scatter(1), parts=9) == [("PT003", "parts")]
    assert _cut(scatter(1), 9).parts == 4


def _transfers(graph: PhysicalGraph) -> float:
    """Volume moved, counted transfer by transfer."""
    transfers = set()
    for source, _, target in edges_of(graph):
        is_data = graph.templates[graph.template[source]].kind is Kind.DATA
        data, other = (source, target) if is_data else (target, source)
        if graph.part[data] != graph.part[other]:
            transfers.add((data, is_data, int(graph.part[other])))
    return sum(graph.templates[graph.template[data]].weight for data, _, _ in transfers)


@given(graphs())
def test_the_reported_quality_is_exact(graph: PhysicalGraph) -> None:
    """Cuts, volume, loads and numbers of drops equal what counting one by one finds."""
    quality = quality_of(graph)
    work = [template.weight if template.kind is Kind.APP else 0.0 for template in graph.templates]
    loads = [
        sum(work[graph.template[row]] for row in np.flatnonzero(graph.part == part)) for part in range(graph.parts)
    ]

    assert quality.cut_edges == sum(graph.part[a] != graph.part[b] for a, _, b in edges_of(graph))
    assert quality.volume_moved == pytest.approx(_transfers(graph))
    assert sum(quality.drops) == graph.drops
    assert quality.loads == (pytest.approx(tuple(loads)) if any(loads) else tuple(map(float, quality.drops)))
    assert quality.edges == graph.edges


def test_a_data_drop_moves_once_to_each_part() -> None:
    """Ten consumers on one other node cost one transfer, not ten."""
    drawing = GraphBuilder().data("d", weight=7.0, part=0)
    for number in range(10):
        drawing.app(f"A{number}", part=1 + number % 2).connect("d", f"A{number}")
    quality = quality_of(drawing.build())

    assert (quality.cut_edges, quality.volume_moved) == (10, 14.0)


def test_parts_that_wait_for_each_other_are_a_cycle() -> None:
    """If a path leaves a part and returns to it, the graph of parts has a cycle."""
    graph = chain(6)

    assert not quality_of(replace(graph, part=np.array([0, 1, 0, 1, 1, 1], dtype=np.int32))).acyclic
    assert quality_of(replace(graph, part=np.array([1, 1, 1, 0, 0, 0], dtype=np.int32))).acyclic


def test_parts_go_to_nodes() -> None:
    """Part k is on the k-th node; nodes that are not needed are not named."""
    placed = place(_cut(scatter(10), 3), ["a", "b", "c", "d"])

    assert placed.places == ("a", "b", "c")


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (["a"], "3 parts cannot be placed on 1 nodes"),
        (["a", "b", "a"], "'a' is named more than"),
        (["", "b", "c"], "no name"),
    ],
)
def test_unsuitable_lists_of_nodes_are_refused(nodes: list[str], text: str) -> None:
    """Too few nodes, a node twice and a node without a name are problems."""
    with pytest.raises(BadGraphError, match=text):
        place(_cut(scatter(10), 3), nodes)


@given(graphs(), st.integers(1, 9), st.integers(1, 4))
def test_only_the_numbers_of_parts_change(graph: PhysicalGraph, parts: int, islands: int) -> None:
    """Drops that shared a part share one afterwards, and others do not."""
    part = np.arange(graph.drops, dtype=np.int32) % parts
    made = grouped_in_islands(graph, part, parts, islands)

    assert len(set(zip(part.tolist(), made.tolist(), strict=True))) == len(set(part.tolist()))
    assert set(made.tolist()) <= set(range(parts))
    sizes = [
        sum(island_of(position, parts, islands) == number for position in range(parts)) for number in range(islands)
    ]
    assert max(sizes) - min(sizes) <= 1


def test_parts_that_exchange_much_are_in_one_island() -> None:
    """Two pairs of parts with heavy traffic inside each pair become the two islands."""
    builder = GraphBuilder()
    for number, other in ((0, 2), (1, 3)):
        builder.app(f"A{number}", part=number).data(f"d{number}", weight=100, part=number)
        builder.app(f"A{other}", part=other)
        builder.connect(f"A{number}", f"d{number}").connect(f"d{number}", f"A{other}")
    graph = builder.build()
    made = grouped_in_islands(graph, graph.part, 4, 2).tolist()

    assert island_of(made[0], 4, 2) == island_of(made[2], 4, 2)
    assert island_of(made[0], 4, 2) != island_of(made[3], 4, 2)
    assert partition(graph, PartitionOptions(algorithm="blocks", parts=4, islands=2)).parts == 4


@pytest.mark.slow
def test_the_memory_for_islands_does_not_grow_with_the_square_of_the_parts() -> None:
    """Only parts that exchange data count, which each of thousands does with a few others."""
    graph, parts = scatter(4000), 4000
    part = np.arange(graph.drops, dtype=np.int32) % parts
    tracemalloc.start()
    made = grouped_in_islands(graph, part, parts, 4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(set(made.tolist())) == parts
    assert peak < parts * parts


# The quality of a partition counts the chains that run as one unit, and those that it divides.


def test_chains_of_a_plan_are_counted() -> None:
    """A -> B -> C -> D in two parts: B follows A, D follows C, and C would follow B in one part."""
    graph = draw("A -> x -> B -> y -> C -> z -> D")
    parted = replace(graph, part=np.array([0, 0, 0, 0, 1, 1, 1], dtype=np.int32))
    whole, divided, apart = quality_of(graph), quality_of(parted), quality_of(without_fusion(parted))

    assert (whole.fused, whole.divided) == (3, 0)
    assert (divided.fused, divided.divided) == (2, 1)
    assert (apart.fused, apart.divided) == (0, 0)


@pytest.mark.slow
def test_exchanges_of_many_tasks_take_little_memory() -> None:
    """Of parts with thousands of tasks some are compared for an exchange, and not all pairs."""
    load = np.random.default_rng(1).random(6_000)
    limits = PartLimits(
        load=load,
        most=np.full(2, load.sum() / 2),
        fits=None,
        island=np.zeros(2, dtype=np.int64),
        least_island=np.zeros(1),
        most_island=np.full(1, load.sum()),
    )
    tracemalloc.start()
    try:
        part = evenest(limits)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100e6
    assert limits.excess(part) < 1e-6
