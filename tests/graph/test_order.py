import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadGraphError
from dropflow.graph import order
from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.completeness import missing_share
from dropflow.graph.order import Precedence, reached
from dropflow.graph.physical import Adjacency, PhysicalGraph
from dropflow.graph.templates import ORDER_PORT, Kind, Link
from dropflow.graph.text_ids import index_of
from dropflow.states import DropState
from tests.graph.shapes import chain, edges_of, graphs, scatter
from tests.regular_graphs import chain as long_chain
from tests.regular_graphs import chains, fan
from tests.translator.drawing import Drawing
from translator.unroll import outline_of, unroll


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
    cost = [template.weight if template.kind is Kind.APP else 0.0 for template in graph.templates]
    seconds = [cost[row] for row in graph.template.tolist()]
    path = order.critical_path(graph)

    assert path.length == max(_longest(graph, seconds))
    assert sum(seconds[drop] for drop in path.drops) == path.length
    joined = {(source, target) for source, _, target in edges_of(graph)}
    assert joined.issuperset(zip(path.drops, path.drops[1:], strict=False))


@given(graphs(), st.integers(0, 1 << 30))
def test_the_largest_mean_of_a_port_is_missing(graph: PhysicalGraph, seed: int) -> None:
    """Shares go along the graph as if inputs are averaged one by one, without those that are skipped or only order."""
    chosen = (DropState.COMPLETED, DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED)
    states = np.array(random.Random(seed).choices(chosen, k=graph.drops), np.uint8)
    missing: dict[int, float] = {}
    for drop in order.topological_order(graph).tolist():
        inputs: dict[str, list[float]] = {}
        before = [(source, link) for source, link, target in edges_of(graph) if target == drop]
        for source, link in before:
            if states[source] != DropState.SKIPPED and not _orders(graph.links[link]):
                share = 1.0 if states[source] == DropState.ERROR else missing.get(source, 0.0)
                inputs.setdefault(graph.links[link].target_port, []).append(share)
        share = max((sum(values) / len(values) for values in inputs.values()), default=0.0)
        if graph.templates[graph.template[drop]].kind is Kind.APP:
            assert missing_share(graph, drop, states, missing) == pytest.approx(share)
        else:  # a content has that of the application which wrote it
            writers = [missing_share(graph, source, states, missing) for source, _ in before]
            missing[drop] = max(writers, default=0.0)


def _orders(link: Link) -> bool:
    return ORDER_PORT in (link.source_port, link.target_port)


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


# Which drops are settled before others start.


def holds(graph: PhysicalGraph, first: tuple[str, Any], second: tuple[str, Any]) -> bool:
    """Whether the drop of that node and index is settled before the other one."""
    rows = {template.key: row for row, template in enumerate(graph.templates)}
    return Precedence(graph.templates, graph.links).holds(rows[first[0]], first[1], rows[second[0]], second[1])


def ancestors(graph: PhysicalGraph, drop: int) -> set[int]:
    """Every drop that a drop depends on, found by walking."""
    found: set[int] = set()
    rest = [drop]
    while rest:
        before = graph.predecessors
        row = rest.pop()
        new = set(before.neighbour[before.ptr[row] : before.ptr[row + 1]].tolist()) - found
        found |= new
        rest += new
    return found


def loop_in_scatter() -> Drawing:
    """In each copy of a scatter a loop writes ``f``; ``all`` gathers the copies and ``last`` is behind it."""
    drawing = Drawing()
    with drawing.scatter("S", 3):
        drawing.data("begin")
        with drawing.loop("L", 3):
            drawing.app("work", group_start=True).data("f", group_end=True)
        drawing.app("after").data("g")
    with drawing.gather("G", 0, app="gather"):
        drawing.data("all")
    drawing.app("end").data("last")
    with drawing.scatter("T", 2):
        drawing.app("again").data("h")
    drawing.link("begin", "work", aware=True).link("work", "f").link("f", "work", closes=True)
    drawing.link("f", "after", aware=True).link("after", "g", "gather").link("gather", "all", "end", "last")
    return drawing.link("last", "again", "h")


def scatter_in_loop() -> Drawing:
    """In each iteration of a loop a scatter writes ``f``, and ``sum`` gathers it for the next."""
    drawing = Drawing()
    with drawing.loop("L", 3):
        drawing.app("begin", group_start=True).data("b")
        with drawing.scatter("S", 2):
            drawing.app("work").data("f")
        with drawing.gather("G", 0, app="gather"):
            drawing.data("sum")
        drawing.app("end").data("e", group_end=True)
    drawing.link("begin", "b", "work", "f", "gather").link("gather", "sum", "end", "e")
    return drawing.link("e", "begin", closes=True)


@pytest.mark.parametrize("drawing", [loop_in_scatter(), scatter_in_loop()], ids=["loop in scatter", "scatter in loop"])
def test_the_order_is_that_of_the_drops(drawing: Drawing) -> None:
    """For every pair of drops, the templates give the same order as a walk along the edges."""
    outline = outline_of(drawing.graph())
    assert not [found for found in outline.problems if found.severity.value == "error"]
    graph = unroll(outline)
    order = Precedence(graph.templates, graph.links)
    for drop in range(graph.drops):
        before = ancestors(graph, drop)
        for other in range(graph.drops):
            found = order.holds(
                int(graph.template[other]), index_of(graph, other), int(graph.template[drop]), index_of(graph, drop)
            )
            assert found == (other in before), (graph.templates[graph.template[other]].key, other, drop)


def test_copies_of_a_scatter_do_not_wait_for_each_other() -> None:
    """Iterations of a loop wait for each other, separately in each copy of a scatter."""
    graph = unroll(outline_of(loop_in_scatter().graph()))

    assert holds(graph, ("f", (1, 0)), ("f", (1, 2)))
    assert not holds(graph, ("f", (1, 2)), ("f", (1, 0)))
    assert not holds(graph, ("f", (0, 0)), ("f", (1, 2)))
    assert holds(graph, ("f", (0, 0)), ("last", ()))


# The drops that are reached from others along edges.


def _walk(edges: Adjacency, starts: list[int], may_pass: list[bool]) -> list[tuple[int, int]]:
    """Return the distance and the row of what is reached, one edge at a time."""
    found, left = dict.fromkeys(starts, 0), list(starts)
    for drop in left:
        for near in edges.neighbour[edges.ptr[drop] : edges.ptr[drop + 1]].tolist():
            if may_pass[near] and near not in found:
                found[near] = found[drop] + 1
                left.append(near)
    return sorted((away, drop) for drop, away in found.items())


@pytest.mark.parametrize("graph", [chains(600, 20), fan(400), long_chain(300)], ids=["chains", "fan", "chain"])
@pytest.mark.parametrize("passed", [1, 7], ids=["all", "not every seventh"])
def test_the_nearest_come_first(graph: PhysicalGraph, passed: int) -> None:
    """From none, one or several drops, in both directions, in wide and in deep graphs, also around some drops."""
    last = graph.drops - 1
    may_pass = np.arange(graph.drops) % passed != passed - 1 if passed > 1 else np.ones(graph.drops, np.bool_)
    for edges in (graph.predecessors, graph.successors):
        for starts in ([], [0], [last], [last, 1, 1, last // 2]):
            rows, away = reached(edges, starts, may_pass)

            assert list(zip(away.tolist(), rows.tolist(), strict=True)) == _walk(edges, starts, may_pass.tolist())
    assert reached(graph.successors, [0])[0].tolist() == reached(graph.successors, [0], may_pass | True)[0].tolist()
