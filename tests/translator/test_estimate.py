import tracemalloc

from tests.translator.drawing import Drawing
from tests.translator.unrolled import errors, planned
from translator.preview import NodeEstimate, estimate
from translator.unroll import unroll


def pyramid(*sizes: int) -> Drawing:
    """Scatters in each other, data and an application in the innermost."""
    drawing = Drawing()
    opened = [drawing.scatter(f"S{level}", size) for level, size in enumerate(sizes)]
    for scatter in opened:
        scatter.__enter__()
    drawing.data("d").app("a")
    for scatter in reversed(opened):
        scatter.__exit__(None, None, None)
    return drawing.link("d", "a")


def test_an_estimate_is_exact() -> None:
    """Predicted numbers are those of the unrolled graph, in total and node by node."""
    plan = planned(pyramid(3, 4, 5))
    found, graph = estimate(plan), unroll(plan)
    assert (found.drops, found.edges) == (graph.drops, graph.edges) == (120, 60)
    assert (found.data_drops, found.app_drops) == (60, 60)
    assert found.nodes == (NodeEstimate("d", "d", 60), NodeEstimate("a", "a", 60))
    columns = (graph.template, graph.instance, graph.part, graph.successors.ptr, graph.successors.neighbour)
    assert 0 <= sum(column.nbytes for column in (*columns, graph.successors.link)) - found.bytes <= 8


def test_the_largest_nodes_come_first() -> None:
    """Nodes are sorted by their number of drops."""
    drawing = pyramid(10).data("single")
    assert [node.drops for node in estimate(planned(drawing)).largest] == [10, 10, 1]


def test_a_trillion_drops_are_refused_without_memory() -> None:
    """With 10^12 drops, LG120 names the node that causes them, and planning takes little memory."""
    drawing = pyramid(1_000_000, 1_000_000)
    tracemalloc.start()
    plan = planned(drawing)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan.drops == 2 * 10**12
    assert [finding.code for finding in plan.problems] == ["LG071", "LG120", "LG120"]
    assert "2,000,000,000,000 drops" in plan.problems[1].text
    assert "'d'" in plan.problems[1].hint
    assert peak < 1_000_000


def test_sizes_beyond_64_bits_are_refused() -> None:
    """Predictions are Python integers: forty scatters of a million copies overflow nothing."""
    assert "LG120" in errors(pyramid(*[1_000_000] * 40))


def test_the_limit_can_be_raised_but_not_beyond_a_column() -> None:
    """`max_drops` is a choice up to the largest row number of a column."""
    assert errors(pyramid(100), max_drops=199) == ["LG120"]
    assert errors(pyramid(100), max_drops=200) == []
    assert "LG120" in errors(pyramid(100_000, 100_000), max_drops=10**15, max_edges=10**15)
