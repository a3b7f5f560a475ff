"""What a graph will become, compared with the unrolled graph."""

import numpy as np
import pytest
from hypothesis import given, settings

from dropflow.errors import BadGraphError
from dropflow.graph.order import critical_path, longest_before
from dropflow.graph.templates import Kind
from tests.constructs.test_worked import WORKED
from tests.translator.drawing import Drawing
from tests.translator.random_graphs import logical_graphs
from translator.logical import LogicalGraph
from translator.preview import preview
from translator.unroll import plan, unroll


def drawn(copies: int = 4, iterations: int = 3) -> Drawing:
    """Return 2 s -> copies of 3 s -> iterations of 5 s -> 7 s, with 10 units of data between."""
    drawing = Drawing()
    drawing.app("First", execution_time=2).data("a", data_volume=10)
    with drawing.scatter("S", copies):
        drawing.app("Work", execution_time=3, num_cpus=2).data("b", data_volume=10)
    drawing.app("Join", execution_time=0).data("c", data_volume=10)
    with drawing.loop("L", iterations):
        drawing.app("Step", execution_time=5, group_start=True).data("d", data_volume=10, group_end=True)
    drawing.app("Last", execution_time=7)
    drawing.link("First", "a", "Work", "b", "Join", "c").link("c", "Step", aware=True).link("Step", "d")
    return drawing.link("d", "Step", closes=True).link("d", "Last", aware=True)


def test_drops_that_wait_for_each_other_have_no_preview() -> None:
    """The plan does not show them. The error has the code of that problem, and names the drops."""
    drawing = Drawing().app("Out")
    with drawing.loop("L", 2):
        drawing.data("x", group_end=True).app("In", group_start=True).data("y")
    drawing.link("Out", "x", aware=True).link("x", "In", closes=True)  # the first x makes the second y
    graph = drawing.link("In", "y").link("y", "Out", aware=True).graph()

    with pytest.raises(BadGraphError, match="4 drops wait for each other") as found:
        preview(graph, plan(graph))
    assert [one.code for one in found.value.problems] == ["LG050"]


def test_a_preview_on_paper() -> None:
    """Four copies, three iterations.

    Drops: First, a; Work, b 4 + 4; Join, c; Step, d 3 + 3; Last: 19. Edges: 1 + 4 + 4 + 4 + 1 + first 1 + 3 + carries
    2 + last 1 = 21. Volume 10 x (1 + 4 + 1 + 3) = 90. Work 2 + 4 x 3 x 2 + 3 x 5 + 7 = 48 core seconds. Critical path
    2 + 3 + 0 + 3 x 5 + 7 = 27 s, in which 1, 4, then 1 applications run.
    """
    graph = drawn().graph()
    found = preview(graph, plan(graph))

    assert (found.drops, found.data_drops, found.app_drops, found.edges) == (19, 9, 10, 21)
    assert (found.volume, found.work, found.critical_path) == (90, 48, 27)
    assert [(one.start, one.end, one.running, one.cores) for one in found.phases] == [
        (0, 2, 1, 1),
        (2, 5, 4, 8),
        (5, 10, 1, 1),
        (10, 15, 1, 1),
        (15, 20, 1, 1),
        (20, 27, 1, 1),
    ]
    assert (found.most_running, found.most_cores) == (4, 8)


def compare(graph: LogicalGraph) -> None:
    """Compare a preview with what is computed from the unrolled graph."""
    planned = plan(graph)
    found = preview(graph, planned)
    whole = unroll(planned)
    apps = [one for one in planned.templates if one.kind is Kind.APP]
    assert (found.drops, found.edges) == (whole.drops, whole.edges)
    assert found.critical_path == pytest.approx(critical_path(whole).length if whole.drops else 0)
    seconds = np.array([one.weight if one.kind is Kind.APP else 0.0 for one in whole.templates])[whole.template]
    assert found.work == pytest.approx(seconds.sum()) or any(one.cpus > 1 for one in apps)
    areas = sum((one.end - one.start) * one.running for one in found.phases)
    assert areas == pytest.approx(seconds.sum())
    if whole.drops:
        start = longest_before(whole, seconds)
        for one in found.phases:
            middle = (one.start + one.end) / 2
            assert one.running == int(((start < middle) & (start + seconds > middle)).sum())


@pytest.mark.parametrize("draw", WORKED, ids=lambda draw: draw.__name__)
def test_worked_examples(draw: object) -> None:
    """Counts, critical path and parallelism are those of the unrolled graph."""
    compare(draw().graph())  # type: ignore[operator]


@given(logical_graphs())
@settings(max_examples=60)
def test_counts_are_those_of_the_unrolled_graph(graph: LogicalGraph) -> None:
    """For any graph: numbers of drops and edges, and the sum of execution times."""
    planned = plan(graph)
    found, whole = preview(graph, planned), unroll(planned)

    assert (found.drops, found.edges) == (whole.drops, whole.edges)
    assert found.critical_path is not None
    if whole.drops:
        assert found.critical_path <= critical_path(whole).length + 1e-9


def test_a_huge_graph_is_previewed_without_unrolling_it() -> None:
    """A billion copies: the counts are exact, and all run at once."""
    graph = drawn(copies=10**9).graph()
    found = preview(graph, plan(graph))

    assert found.drops == 2 * 10**9 + 11
    assert (found.most_running, found.critical_path) == (10**9, 27)


def test_a_loop_that_is_too_long_has_no_times() -> None:
    """With ten million iterations the counts are exact, and the critical path is not computed."""
    graph = drawn(iterations=10**7).graph()
    found = preview(graph, plan(graph))

    assert (found.drops, found.critical_path, found.phases) == (2 * 10**7 + 13, None, ())
