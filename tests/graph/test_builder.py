import numpy as np
import pytest
from hypothesis import given

from dropflow.errors import InternalError, UsageError
from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.physical import PhysicalGraph, faults
from dropflow.graph.templates import Kind, Link, Template
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
