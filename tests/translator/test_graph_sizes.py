"""What a graph will become, compared with the unrolled graph."""

import tracemalloc
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from dropflow.errors import BadGraphError
from dropflow.graph import codec
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.templates import Kind
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.cli.graph_documents import document, link, node
from tests.translator.drawing import Drawing, check_sizes, errors, outlined
from tests.translator.random_graphs import logical_graphs
from translator.graph_sizes import NodeEstimate, estimate, graph_sizes
from translator.logical import LogicalGraph
from translator.options import ComponentOptions, UnrollOptions
from translator.pipeline import examine, finish
from translator.unroll import outline_of, unroll


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


def test_drops_that_wait_for_each_other_have_no_sizes() -> None:
    """The outline does not show them. The error has the code of that problem, and names the drops."""
    drawing = Drawing().app("Out")
    with drawing.loop("L", 2):
        drawing.data("x", group_end=True).app("In", group_start=True).data("y")
    drawing.link("Out", "x", aware=True).link("x", "In", closes=True)  # the first x makes the second y
    graph = drawing.link("In", "y").link("y", "Out", aware=True).graph()

    with pytest.raises(BadGraphError, match="4 drops wait for each other") as refused:
        graph_sizes(graph, outline_of(graph))
    assert [problem.code for problem in refused.value.problems] == ["LG050"]


def test_sizes_on_paper() -> None:
    """Four copies, three iterations.

    Drops: First, a; Work, b 4 + 4; Join, c; Step, d 3 + 3; Last: 19. Edges: 1 + 4 + 4 + 4 + 1 + first 1 + 3 + carries
    2 + last 1 = 21. Volume 10 x (1 + 4 + 1 + 3) = 90. Work 2 + 4 x 3 x 2 + 3 x 5 + 7 = 48 core seconds. Critical path
    2 + 3 + 0 + 3 x 5 + 7 = 27 s, in which 1, 4, then 1 applications run.
    """
    graph = drawn().graph()
    sizes = graph_sizes(graph, outline_of(graph))

    assert (sizes.drops, sizes.data_drops, sizes.app_drops, sizes.edges) == (19, 9, 10, 21)
    assert (sizes.volume, sizes.work, sizes.critical_path) == (90, 48, 27)
    assert [(phase.start, phase.end, phase.running, phase.cores) for phase in sizes.phases] == [
        (0, 2, 1, 1),
        (2, 5, 4, 8),
        (5, 10, 1, 1),
        (10, 15, 1, 1),
        (15, 20, 1, 1),
        (20, 27, 1, 1),
    ]
    assert sizes.most_cores == 8


@pytest.mark.slow
@given(logical_graphs())
@settings(max_examples=60)
def test_sizes_are_those_of_the_unrolled_graph(graph: LogicalGraph) -> None:
    """For any graph: counts, critical path and parallelism."""
    check_sizes(graph)


def test_copies_of_an_application_that_start_at_different_times() -> None:
    """Only the first of two gathers waits for the application of the scatter, so the second runs beside it."""
    drawing = Drawing()
    with drawing.scatter("S", 2, app="split"):
        drawing.data("part")
    with drawing.gather("G", 1, app="join"):
        drawing.data("joined")

    check_sizes(drawing.link("split", "join").link("part", "join").graph())


def test_a_huge_graph_has_sizes_without_unrolling_it() -> None:
    """A billion copies: the counts are exact, and all run at once."""
    graph = drawn(copies=10**9).graph()
    sizes = graph_sizes(graph, outline_of(graph))

    assert sizes.drops == 2 * 10**9 + 11
    assert (max(phase.running for phase in sizes.phases), sizes.critical_path) == (10**9, 27)


def test_a_loop_that_is_too_long_has_no_times() -> None:
    """With ten million iterations the counts are exact, and the critical path is not computed."""
    graph = drawn(iterations=10**7).graph()
    sizes = graph_sizes(graph, outline_of(graph))

    assert (sizes.drops, sizes.critical_path, sizes.phases) == (2 * 10**7 + 13, None, ())


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
    outline = outlined(pyramid(3, 4, 5))
    estimated, graph = estimate(outline), unroll(outline)
    assert (estimated.drops, estimated.edges) == (graph.drops, graph.edges) == (120, 60)
    assert (estimated.data_drops, estimated.app_drops) == (60, 60)
    assert estimated.nodes == (NodeEstimate("d", "d", 60), NodeEstimate("a", "a", 60))
    columns = (graph.template, graph.instance, graph.part, graph.successors.ptr, graph.successors.neighbour)
    assert 0 <= sum(column.nbytes for column in (*columns, graph.successors.link)) - estimated.bytes <= 8


def test_the_largest_nodes_come_first() -> None:
    """Nodes are sorted by their number of drops."""
    drawing = pyramid(10).data("single")
    assert [node.drops for node in estimate(outlined(drawing)).largest] == [10, 10, 1]


def test_a_trillion_drops_are_refused_without_memory() -> None:
    """With 10^12 drops, LG120 names the node that causes them, and planning takes little memory."""
    drawing = pyramid(1_000_000, 1_000_000)
    tracemalloc.start()
    outline = outlined(drawing)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outline.drops == 2 * 10**12
    assert [finding.code for finding in outline.problems] == ["LG071", "LG120", "LG120"]
    assert "2,000,000,000,000 drops" in outline.problems[1].text
    assert "'d'" in outline.problems[1].hint
    assert peak < 1_000_000


def test_sizes_beyond_64_bits_are_refused() -> None:
    """Predictions are Python integers: forty scatters of a million copies overflow nothing."""
    assert "LG120" in errors(pyramid(*[1_000_000] * 40))


def test_the_limit_can_be_raised_but_not_beyond_a_column() -> None:
    """`max_drops` is a choice up to the largest row number of a column."""
    assert errors(pyramid(100), max_drops=199) == ["LG120"]
    assert errors(pyramid(100), max_drops=200) == []
    assert "LG120" in errors(pyramid(100_000, 100_000), max_drops=10**15, max_edges=10**15)


# Rehearsals: placeholders replace applications and data.


REHEARSAL = UnrollOptions(rehearsal=True)


def rehearsal_drawn(precious: Path, touched: Path) -> bytes:
    """A scatter of shell applications, a shared library and a function, which write a file that is there already."""
    nodes = [
        node("start", "Memory"),
        node("s", "Scatter", num_of_copies=3),
        node("shell", "BashShellApp", parent="s", command=f"touch {touched}; false"),
        node("each", "File", parent="s", filepath=str(precious)),
        node("library", "DynlibApp", parent="s", libpath="libx.so"),
        node("stored", "S3", parent="s"),
        node("function", "PyFuncApp", func_name="nosuchmodule.f"),
        node("file", "File", filepath=str(precious)),
    ]
    names = ("start", "shell", "each", "library", "stored", "function", "file")
    return document(nodes, [link(source, target) for source, target in pairwise(names)])


def test_a_rehearsal_runs_no_application_and_writes_no_file(tmp_path: Path) -> None:
    """Every drop completes with any component; no application is run and no file of the user is written."""
    precious, touched = tmp_path / "precious.txt", tmp_path / "touched"
    precious.write_text("precious")
    checked = examine(
        rehearsal_drawn(precious, touched), unroll_options=REHEARSAL, component_options=ComponentOptions(here=True)
    )
    assert [(problem.code, problem.severity) for problem in checked.problems] == [("LG095", "info")]
    graph = finish(checked).graph
    plain = finish(examine(rehearsal_drawn(precious, touched))).graph

    result = local_run.run(graph, local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))

    assert result.status is SessionState.FINISHED, result.failures
    assert result.states["COMPLETED"] == result.drops == plain.drops
    assert precious.read_text() == "precious"
    assert not touched.exists()
    assert (graph.edges, graph.edges) == (plain.edges, plain.edges)


@pytest.mark.parametrize("form", ["dfg", "json"])
def test_physical_graphs_can_be_rehearsed(tmp_path: Path, form: str) -> None:
    """Graphs in a .dfg file and in DALiuGE's JSON can be rehearsed."""
    graph = finish(examine(rehearsal_drawn(tmp_path / "a", tmp_path / "b"))).graph
    path = tmp_path / f"g.{form}"
    if form == "dfg":
        codec.save(graph, path)
    else:
        with path.open("wb") as file:
            write_pg(graph, file)
    translation = finish(examine(path, unroll_options=REHEARSAL, component_options=ComponentOptions(here=True)))

    kinds = {(template.kind, template.component) for template in translation.graph.templates}
    assert kinds == {
        (Kind.APP, "dlg.apps.simple.SleepApp"),
        (Kind.DATA, "dlg.data.drops.memory.InMemoryDROP"),
    }
    assert "LG095" in {problem.code for problem in translation.problems}
    assert all(argument.is_port for template in translation.graph.templates for argument in template.arguments)


def test_both_sides_of_a_branch_are_rehearsed(tmp_path: Path) -> None:
    """The condition of a branch is not evaluated."""
    branch = node("branch", "Branch", dropclass="dlg.apps.branch.Branch", func_name="c", func_code="def c(x): 1 / 0")
    ways = [node("yes", "Memory"), node("no", "Memory")]
    graph = finish(
        examine(document([branch, *ways], [link("branch", "yes"), link("branch", "no")]), unroll_options=REHEARSAL)
    ).graph

    result = local_run.run(graph, local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))

    assert msgspec.to_builtins(result.states)["COMPLETED"] == 3
