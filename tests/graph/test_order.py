import numpy as np
import pytest
from hypothesis import given

from dropflow.errors import BadGraphError
from dropflow.graph import order
from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from tests.graph.shapes import chain, edges_of, graphs, scatter


def _longest(graph: PhysicalGraph, cost: list[float]) -> list[float]:
    """Return the largest sum of costs over all paths that end at each drop, by repeated relaxation."""
    best = list(cost)
    for _ in range(graph.drops):
        for source, _, target in edges_of(graph):
            best[target] = max(best[target], best[source] + cost[target])
    return best


@given(graphs())
def test_a_level_is_the_length_of_the_longest_path_to_a_drop(graph: PhysicalGraph) -> None:
    """Levels are equal to those found by repeated relaxation of all edges."""
    assert order.levels(graph).tolist() == [length - 1 for length in _longest(graph, [1] * graph.drops)]


@given(graphs())
def test_every_drop_comes_after_its_predecessors(graph: PhysicalGraph) -> None:
    """A topological order has every drop once, sources before targets."""
    place = {drop: at for at, drop in enumerate(order.topological_order(graph).tolist())}

    assert sorted(place) == list(range(graph.drops))
    assert all(place[source] < place[target] for source, _, target in edges_of(graph))


@given(graphs())
def test_the_critical_path_is_a_longest_path(graph: PhysicalGraph) -> None:
    """Its length is the maximum over all paths, its drops are joined by edges, and their seconds add up to it."""
    cost = [one.weight if one.kind is Kind.APP else 0.0 for one in graph.templates]
    seconds = [cost[row] for row in graph.template.tolist()]
    path = order.critical_path(graph)

    assert path.length == max(_longest(graph, seconds))
    assert sum(seconds[drop] for drop in path.drops) == path.length
    joined = {(source, target) for source, _, target in edges_of(graph)}
    assert joined.issuperset(zip(path.drops, path.drops[1:], strict=False))


@given(graphs())
def test_roots_and_leaves_have_nothing_before_and_after_them(graph: PhysicalGraph) -> None:
    """Roots are the target of no edge, leaves the source of no edge."""
    everything = set(range(graph.drops))

    assert order.roots(graph).tolist() == sorted(everything - {target for _, _, target in edges_of(graph)})
    assert order.leaves(graph).tolist() == sorted(everything - {source for source, _, _ in edges_of(graph)})


@given(graphs(acyclic=False))
def test_a_cycle_is_found_exactly_when_there_is_one(graph: PhysicalGraph) -> None:
    """The result is a simple cycle of the graph; if there is none, levels can be computed."""
    cycle = order.find_cycle(graph)
    if cycle is None:
        assert order.levels(graph).min() == 0
        return
    joined = {(source, target) for source, _, target in edges_of(graph)}
    assert len(set(cycle)) == len(cycle)
    assert joined.issuperset(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    with pytest.raises(BadGraphError, match=f"LG050 {len(cycle)} drops wait for each other"):
        order.levels(graph)


def test_a_cycle_is_reported_by_names() -> None:
    """The message lists the drops on the cycle, and not those that only depend on it."""
    drawing = GraphBuilder("g").data("start").app("A").data("b").app("C").data("d").app("Behind")
    for ends in (("start", "A"), ("A", "b"), ("b", "C"), ("C", "d"), ("d", "A"), ("d", "Behind")):
        drawing.connect(*ends)
    with pytest.raises(BadGraphError, match="LG050") as caught:
        order.refuse_cycle(drawing.build())

    finding = caught.value.problems[0]
    assert finding.code == "LG050"
    assert "g_A_0 -> g_b_0 -> g_C_0 -> g_d_0 -> g_A_0" in finding.text
    assert "Behind" not in finding.text


def test_a_long_cycle_is_abbreviated() -> None:
    """A cycle of ten thousand drops is reported in one short line."""
    graph = _closed(chain(10_000))
    with pytest.raises(BadGraphError, match="10000 drops wait") as caught:
        order.levels(graph)

    assert len(str(caught.value)) < 400


def _closed(graph: PhysicalGraph) -> PhysicalGraph:
    source = np.arange(graph.drops)
    return from_columns(
        name="ring",
        prefix="ring",
        templates=graph.templates,
        links=graph.links,
        template=graph.template,
        instance=graph.instance,
        source=source,
        target=(source + 1) % graph.drops,
        link=source % 2,
    )


@pytest.mark.parametrize("graph", [scatter(3000), chain(3000)], ids=["wide", "narrow"])
def test_wide_and_narrow_graphs_give_the_same_kind_of_answer(graph: PhysicalGraph) -> None:
    """Whole-array steps and drop-by-drop steps agree with the length of the known longest path."""
    level = order.levels(graph)

    assert level.max() == (3 if graph.name == "scatter" else 2999)
    assert order.critical_path(graph).length == (6.0 if graph.name == "scatter" else 3000.0)


def test_a_graph_that_widens_and_narrows() -> None:
    """The sweep changes from one way of stepping to the other and back within one graph."""
    drawing = GraphBuilder().app("Split").app("Join").data("end").app("Last").connect("end", "Last")
    for copy in range(200):
        drawing.data(f"a{copy}").app(f"B{copy}").data(f"c{copy}")
        for ends in (("Split", f"a{copy}"), (f"a{copy}", f"B{copy}"), (f"B{copy}", f"c{copy}"), (f"c{copy}", "Join")):
            drawing.connect(*ends)
    graph = drawing.connect("Join", "end").build()

    assert order.levels(graph)[:5].tolist() == [0, 4, 5, 6, 1]
    assert order.critical_path(graph).length == 4.0


def test_a_graph_without_drops_has_an_order() -> None:
    """A graph without drops has no levels, no cycle and an empty critical path."""
    graph = GraphBuilder().build()

    assert len(order.levels(graph)) == len(order.topological_order(graph)) == 0
    assert order.find_cycle(graph) is None
    assert order.critical_path(graph) == order.CriticalPath(0.0, ())
