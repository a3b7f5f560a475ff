"""Which drops are settled before others start."""

from typing import Any

import pytest

from dropflow.graph.order import Precedence
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import index_of
from tests.translator.drawing import Drawing
from translator.unroll import plan, unroll


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
    planned = plan(drawing.graph())
    assert not [found for found in planned.problems if found.severity.value == "error"]
    graph = unroll(planned)
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
    graph = unroll(plan(loop_in_scatter().graph()))

    assert holds(graph, ("f", (1, 0)), ("f", (1, 2)))
    assert not holds(graph, ("f", (1, 2)), ("f", (1, 0)))
    assert not holds(graph, ("f", (0, 0)), ("f", (1, 2)))
    assert holds(graph, ("f", (0, 0)), ("last", ()))
