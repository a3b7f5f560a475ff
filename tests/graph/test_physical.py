from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given

from dropflow.errors import InternalError, UsageError
from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.physical import Adjacency, PhysicalGraph, faults, follower_column, is_fused, without_fusion
from dropflow.graph.templates import Axis, Kind, Link, Template
from dropflow.testing.drawing import draw, row
from tests.graph.shapes import edges_of, graphs, scatter

DATA = Template(key="d", name="d", kind=Kind.DATA)
APP = Template(key="a", name="a", kind=Kind.APP)


def _columns(**changed: object) -> PhysicalGraph:
    columns = {
        "template": np.array([0, 1]),
        "instance": np.array([0, 0]),
        "source": np.array([0]),
        "target": np.array([1]),
        "link": np.array([0]),
    }
    given_columns: dict[str, object] = {**columns, **changed}
    return from_columns(name="x", prefix="x", templates=[DATA, APP], links=[Link(source=0, target=1)], **given_columns)


@given(graphs(acyclic=False))
def test_edges_in_any_order_end_up_sorted(graph: PhysicalGraph) -> None:
    """Successors are sorted by source, link and target, for any order of edges."""
    assert edges_of(graph) == sorted(edges_of(graph))
    assert faults(graph) == []


@given(graphs(acyclic=False))
def test_predecessors_are_the_same_edges_seen_from_their_targets(graph: PhysicalGraph) -> None:
    """Predecessors hold every edge once, sorted by target, link and source."""
    back = graph.predecessors
    found = [
        (drop, int(back.link[edge]), int(back.neighbour[edge]))
        for drop in range(graph.drops)
        for edge in range(back.ptr[drop], back.ptr[drop + 1])
    ]

    assert found == sorted((target, link, source) for source, link, target in edges_of(graph))


def test_columns_are_read_only() -> None:
    """The arrays of a graph cannot be changed, by any way of access."""
    graph = scatter(4)
    columns = [graph.template, graph.instance, graph.part]
    for edges in (graph.successors, graph.predecessors):
        columns += [edges.ptr, edges.neighbour, edges.link]

    assert not any(column.flags.writeable for column in columns)


def test_the_callers_arrays_stay_writable() -> None:
    """Building a graph does not freeze the arrays that it was given."""
    source = np.array([0], dtype=np.int32)
    _columns(source=source)
    source[0] = 1

    assert source[0] == 1


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"template": np.array([0, 2])}, "template refers to rows outside 0..1"),
        ({"source": np.array([-1])}, "source refers to rows outside"),
        ({"target": np.array([2])}, "target refers to rows outside"),
        ({"link": np.array([1])}, "link refers to rows outside 0..0"),
        ({"instance": np.array([0])}, "instance has 1 rows for 2 drops"),
        ({"oids": ["a"]}, "oids has 1 rows"),
        ({"link": np.array([0, 0])}, "columns of edges differ in length"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changed: dict[str, object], text: str) -> None:
    """A column of the wrong length, or a row that does not exist, is an internal error that names the column."""
    with pytest.raises(InternalError, match=text):
        _columns(**changed)


def test_a_graph_without_drops_can_be_built() -> None:
    """An empty graph can be built and read."""
    graph = GraphBuilder("empty").build()

    assert (graph.drops, graph.edges, graph.parts) == (0, 0, 1)
    assert len(graph.predecessors.neighbour) == 0
    assert faults(graph) == []


def test_a_drawing_becomes_a_graph() -> None:
    """Drops keep the order in which they are drawn, and edges their ports and marks."""
    drawing = GraphBuilder("hello").data("in", weight=2.5).app("Copy", tries=3, part=1)
    graph = drawing.connect("in", "Copy", source_port="o", target_port="i", streaming=True).build()

    assert [one.name for one in graph.templates] == ["in", "Copy"]
    assert (graph.templates[0].weight, graph.templates[1].tries, graph.parts) == (2.5, 3, 2)
    assert graph.links == (Link(source=0, target=1, source_port="o", target_port="i", streaming=True),)
    assert edges_of(graph) == [(0, 0, 1)]


def test_an_invalid_drawing_is_refused() -> None:
    """Unknown drops, names given twice and edges between drops of one kind are refused by name."""
    drawing = GraphBuilder().data("a").data("b")
    with pytest.raises(UsageError, match="no drop 'c'"):
        drawing.connect("a", "c")
    with pytest.raises(UsageError, match="two drops 'a'"):
        drawing.app("a")
    with pytest.raises(UsageError, match="'a' and 'b' are of the same kind"):
        drawing.connect("a", "b")


GRAPH = scatter(2)


def _column(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def _edges(**changed: Any) -> PhysicalGraph:
    out = GRAPH.successors
    columns = {"ptr": out.ptr, "neighbour": out.neighbour, "link": out.link}
    return replace(GRAPH, successors=Adjacency(**{**columns, **changed}))


def _template(row: int, **changed: Any) -> PhysicalGraph:
    templates = list(GRAPH.templates)
    templates[row] = msgspec.structs.replace(templates[row], **changed)
    return replace(GRAPH, templates=tuple(templates))


@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        (replace(GRAPH, instance=_column(0)), "column instance has 1 rows, not 7"),
        (replace(GRAPH, oids=("a",)), "there are 1 text ids for 7 drops"),
        (replace(GRAPH, template=_column(0, 0, 1, 1, 2, 2, 4)), "a drop has a template that does not exist"),
        (replace(GRAPH, instance=_column(0, 2, 0, 1, 0, 1, 0)), "outside the index space of its template"),
        (_template(3, axes=(Axis("", "", "", 1 << 40),)), "outside the index space of its template"),
        (replace(GRAPH, instance=_column(0, 0, 0, 1, 0, 1, 0)), "two drops are the same instance of a template"),
        (replace(GRAPH, oids=("a",) * 7), "two drops have the same text id"),
        (replace(GRAPH, part=_column(0, 0, 0, 0, 0, 0, -1)), "a drop is in a part that does not exist"),
        (replace(GRAPH, part=_column(0, 0, 0, 0, 0, 0, 2), places=("a", "b")), "a part that does not exist"),
        (_edges(ptr=np.arange(7)), "the columns of the edges differ in length"),
        (_edges(link=_column(0)), "the columns of the edges differ in length"),
        (_edges(ptr=np.array([0, 2, 1, 3, 4, 5, 6, 6])), "the pointers to the edges are not ascending"),
        (_edges(ptr=np.array([0, 1, 2, 3, 4, 5, 6, 7])), "the pointers to the edges are not ascending"),
        (_edges(neighbour=_column(2, 3, 4, 5, 6, 7)), "an edge ends on a drop that does not exist"),
        (_edges(link=_column(0, 0, 1, 1, 2, 3)), "an edge belongs to a link that does not exist"),
        (_edges(neighbour=_column(2, 4, 4, 5, 6, 6)), "an edge joins drops of other templates than its link"),
        (_edges(ptr=np.array([0, 2, 2, 3, 4, 5, 6, 6]), neighbour=_column(3, 2, 4, 5, 6, 6)), "are not sorted"),
        (_template(1, kind=Kind.DATA), "a link joins two templates of the same kind"),
        (_template(1, error_threshold=float("nan")), "an error threshold that is not a number"),
        (replace(GRAPH, links=(Link(source=0, target=9),)), "a link ends on a template that does not exist"),
    ],
)
def test_every_rule_of_a_graph_is_checked(graph: PhysicalGraph, fault: str) -> None:
    """Each rule that a graph can break is checked, with a text."""
    assert any(fault in found for found in faults(graph))


def test_a_sound_graph_has_no_fault() -> None:
    """A valid graph has no faults, also if its drops are not grouped by template."""
    assert faults(GRAPH) == []
    assert faults(replace(GRAPH, oids=tuple("abcdefg"))) == []


def test_several_faults_are_reported_together() -> None:
    """A graph that breaks two rules gives both texts."""
    assert len(faults(replace(GRAPH, oids=("a",) * 7, part=_column(0, 0, 0, 0, 0, 0, -1)))) == 2


# Which application follows which in a chain that runs as one unit: the rule, case by case.


def pairs(graph: PhysicalGraph, **options: object) -> set[str]:
    """Return the pairs of applications, such as ``"A B"``, where one follows the other; all may be in one chain."""
    column = follower_column(graph, [1] * len(graph.templates), **options)  # type: ignore[arg-type]
    if column is None:
        return set()
    names = [graph.templates[one].name for one in graph.template]
    return {f"{names[drop]} {names[then]}" for drop, then in enumerate(column.tolist()) if then >= 0}


@pytest.mark.parametrize(
    ("drawing", "fields", "expected"),
    [
        ("A -> x -> B", {}, {"A B"}),
        ("r -> A -> x -> B -> y -> C -> z", {}, {"A B", "B C"}),
        ("r -> A, s -> A, A -> x -> B, B -> y, B -> z", {}, {"A B"}),  # what is before and after a chain may branch
        ("A -> x -> B, A -> y", {}, set()),  # A has two outputs
        ("A -> x -> B, x -> C", {}, set()),  # x has two consumers
        ("A -> x -> B, C -> x", {}, set()),  # x has two producers
        ("A -> x -> B, y -> B", {}, set()),  # B has two inputs
        ("A -> x -> B", {"x": {"persist": True}}, set()),  # x is a result
        ("A -> x -> B", {"B": {"error_threshold": 100.0}}, set()),  # B runs if A fails
        ("A -> x -> B", {"B": {"error_threshold": 99.0}}, {"A B"}),
        ("A -> x -> B", {"A": {"tries": 3}, "B": {"tries": 2}}, {"A B"}),  # each is tried again by itself
    ],
)
def test_the_rule(drawing: str, fields: dict[str, dict[str, object]], expected: set[str]) -> None:
    """An application follows another one if one output, read by it alone, is its only input."""
    assert pairs(draw(drawing, **fields)) == expected


def test_a_chain_is_in_one_place() -> None:
    """Applications on two nodes, or with their data on another one, are in no chain."""
    graph = draw("A -> x -> B -> y -> C")
    for drop, expected in (("x", {"B C"}), ("B", set()), ("C", {"A B"})):
        place = np.zeros(graph.drops, dtype=np.int32)
        place[row(graph, drop)] = 1
        assert pairs(graph, place=place) == expected


def test_templates_of_different_groups_are_in_no_chain() -> None:
    """Applications that run in threads do not follow those that run in processes; 0 is in no chain."""
    graph = draw("A -> x -> B -> y -> C -> z -> D")
    groups = [{"A": 1, "B": 1, "C": 2, "D": 0}.get(one.name, 1) for one in graph.templates]
    column = follower_column(graph, groups)
    assert column is not None
    assert np.flatnonzero(column >= 0).tolist() == [row(graph, "A")]
    assert follower_column(graph, [int(one.kind is Kind.APP) for one in graph.templates]) is None


def test_a_graph_can_ask_for_no_chains() -> None:
    """The note of `without_fusion` keeps every application apart."""
    graph = draw("A -> x -> B")
    assert is_fused(graph)
    assert not is_fused(without_fusion(graph))
    assert pairs(without_fusion(graph)) == set()
