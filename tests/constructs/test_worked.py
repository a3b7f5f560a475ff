"""One worked example of each construct: numbers on paper, edges by index, and results of a run, here and on nodes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from tests.constructs.worked import Worked, run_here, run_on_nodes, unrolled
from tests.managers.node.conftest import Cluster
from tests.translator.documents import document, link, node
from tests.translator.drawing import Drawing, check_sizes, codes, edges
from translator.logical import Field
from translator.pipeline import examine

Make = Callable[..., Cluster]


def mkn() -> Worked:
    """Scatter(6){Part} -> MKN(m=2, k=3, n=2){Inner} -> End."""
    drawing = Worked()
    with drawing.scatter("S", 6):
        drawing.app("Part").data("part")
    with drawing.mkn("M", 2, 3, 2, app="In", out="Out"):
        drawing.data("given").app("Inner").data("made")
    drawing.data("output").app("End").data("result")
    drawing.link("Part", "part", "In", "given", "Inner", "made", "Out", "output", "End", "result")
    return drawing


def test_mkn_counts_and_edges() -> None:
    """M = 2 of 6 inputs, K = 3, N = 2.

    Drops: Part and part 6 + 6; In ceil(6 / 2) = 3; given, Inner and made 3 x 3 = 9 each; Out 3; output 3 x 2 = 6; End
    and result 1 + 1: 12 + 3 + 27 + 3 + 6 + 2 = 53. Edges: Part-part 6, part-In 6, In-given 9, given-Inner 9, Inner-made
    9, made-Out 9, Out-output 6, output-End 6, End-result 1: 61.
    """
    drawing = mkn()
    graph = unrolled(drawing)

    assert (graph.drops, graph.edges) == (53, 61)
    assert codes(drawing) == []
    assert edges(drawing, "part", "In") == [((i,), (i // 2,)) for i in range(6)]
    assert edges(drawing, "In", "given") == [((i,), (i, k)) for i in range(3) for k in range(3)]
    assert edges(drawing, "made", "Out") == [((i, k), (i,)) for i in range(3) for k in range(3)]
    assert edges(drawing, "Out", "output") == [((i,), (i, n)) for i in range(3) for n in range(2)]


def chained_mkn() -> Worked:
    """MKN(m=1, k=2, n=4) without inputs -> MKN(m=2, k=1, n=1), both in a scatter of 2."""
    drawing = Worked()
    with drawing.scatter("S", 2):
        with drawing.mkn("M", 1, 2, 4, app="Ina", out="Outa"):
            drawing.data("a").app("A").data("aa")
        drawing.data("ab")
        with drawing.mkn("N", 2, 1, 1, app="Inb", out="Outb"):
            drawing.data("b").app("B").data("bb")
        drawing.data("c").app("End").data("result")
    drawing.link("Ina", "a", "A", "aa", "Outa", "ab", "Inb", "b", "B", "bb", "Outb", "c", "End", "result")
    return drawing


def test_mkn_feeds_mkn_inside_a_scatter() -> None:
    """An MKN with 4 outputs feeds one with 2 inputs, in 2 copies.

    In each copy: Ina 1, a, A, aa 2 each, Outa 1, ab 4; Inb 4 / 2 = 2, b, B, bb 2 each, Outb 2, c, End and result 1
    each. Drops: 2 x (1 + 6 + 1 + 4 + 2 + 6 + 2 + 3) = 50. Edges: 2 x (2 + 2 + 2 + 2 + 4 + 4 + 2 + 2 + 2 + 2 + 2 + 2) =
    56.
    """
    drawing = chained_mkn()
    graph = unrolled(drawing)

    assert (graph.drops, graph.edges) == (50, 56)
    assert edges(drawing, "ab", "Inb") == [((s, 0, n), (s, n // 2)) for s in range(2) for n in range(4)]
    assert edges(drawing, "Outb", "c") == [((s, i), (s,)) for s in range(2) for i in range(2)]


@pytest.mark.parametrize("target", ["app", "elsewhere", "two"])
def test_several_outputs_of_an_mkn_need_data_of_their_own(target: str) -> None:
    """With n > 1, an output application is LG086 if it writes to an application, or to data elsewhere or of another."""
    drawing = Drawing()
    with drawing.mkn("M", 1, 2, 3, app="In", out="Out"):
        drawing.data("inner")
    if target == "elsewhere":
        with drawing.scatter("S", 2):
            drawing.data("beside")
    else:
        drawing.app("beside") if target == "app" else drawing.data("beside")
    drawing.link("In", "inner", "Out", "beside")
    if target == "two":
        with drawing.mkn("N", 1, 2, 2, app="In2", out="Out2"):
            drawing.data("inner2")
        drawing.link("In2", "inner2", "Out2", "beside")
    assert "LG086" in codes(drawing)


def subgraphs() -> Worked:
    """A SubGraph with both applications, in it another one, in it a loop; the same in a gather."""
    drawing = Worked()
    with drawing.scatter("S", 4):
        drawing.app("Part").data("part")
    with drawing.gather("G", 2, app="Take"):
        drawing.data("taken")
        with drawing.construct("SubGraph", "Outer", app="InOuter", out="OutOuter"):
            drawing.data("a")
            with drawing.construct("SubGraph", "Inner", app="InInner", out="OutInner"):
                drawing.data("b")
                with drawing.loop("L", 3):
                    drawing.app("Step", group_start=True).data("step", group_end=True)
            drawing.data("c")
        drawing.data("d").app("End").data("result")
    drawing.link("Part", "part", "Take", "taken", "InOuter", "a", "InInner", "b").link("b", "Step", aware=True)
    drawing.link("Step", "step").link("step", "Step", closes=True).link("step", "OutInner", aware=True)
    return drawing.link("OutInner", "c", "OutOuter", "d", "End", "result")


def test_subgraphs_are_inlined() -> None:
    """Two nested SubGraphs with applications in a gather of 2 chunks, around a loop of 3.

    Drops: Part and part 4 each; in each of 2 chunks Take, taken, InOuter, a, InInner, b, 3 x (Step, step), OutInner, c,
    OutOuter, d, End, result: 18; in all 8 + 36 = 44. Edges: 4 + 4, and in each chunk Take-taken-InOuter-a-InInner-b 5,
    b-Step 1, Step-step 3, carries 2, step-OutInner 1, OutInner-c-OutOuter-d-End-result 5: 17; in all 8 + 34 = 42.
    """
    graph = unrolled(subgraphs())

    assert (graph.drops, graph.edges) == (44, 42)


def gathered_twice() -> Worked:
    """Scatter(8) -> Gather(2) -> Gather(2) -> End."""
    drawing = Worked()
    with drawing.scatter("S", 8):
        drawing.app("Part").data("part")
    with drawing.gather("G", 2, app="First"):
        drawing.data("first")
    with drawing.gather("H", 2, app="Second"):
        drawing.data("second")
    drawing.app("End").data("result")
    return drawing.link("Part", "part", "First", "first", "Second", "second", "End", "result")


def test_gather_after_gather() -> None:
    """Eight values are gathered two at a time, and their results two at a time.

    Drops: 8 + 8, First and first 4 + 4, Second and second 2 + 2, End and result 1 + 1: 30. Edges: 8 + 8 + 4 + 4 + 2 + 2
    + 1 = 29.
    """
    drawing = gathered_twice()
    graph = unrolled(drawing)

    assert (graph.drops, graph.edges) == (30, 29)
    assert edges(drawing, "first", "Second") == [((i,), (i // 2,)) for i in range(4)]


def sequential() -> Worked:
    """Scatter(5), two copies at a time: a gather of 2 feeds back to the start of the scatter."""
    drawing = Worked()
    with drawing.scatter("S", 5):
        drawing.app("Begin", group_start=True).data("begun").app("Work").data("work")
    with drawing.gather("G", 2, app="Take"):
        drawing.data("taken")
    drawing.app("End").data("result")
    drawing.link("Begin", "begun", "Work", "work", "Take", "taken", "Begin")
    return drawing.link("taken", "End", "result")


def test_a_gather_runs_the_copies_of_its_scatter_chunk_by_chunk() -> None:
    """Of 5 copies, 0 and 1 run first, then 2 and 3, then 4.

    Drops: 4 x 5, Take and taken 3 + 3, End and result 2: 28. Edges: Begin-begun-Work-work 3 x 5, work-Take 5,
    Take-taken 3, taken-Begin 5 - 2 = 3, taken-End 3, End-result 1: 30.
    """
    drawing = sequential()
    graph = unrolled(drawing)

    assert edges(drawing, "taken", "Begin") == [((0,), (2,)), ((0,), (3,)), ((1,), (4,))]
    assert (graph.drops, graph.edges) == (28, 30)


def zipped() -> Worked:
    """Two scatters of 3, the second zipped with the first."""
    drawing = Worked()
    with drawing.scatter("S", 3):
        drawing.app("One").data("one")
    with drawing.construct("Scatter", "T", 3, zip_with="S"):
        drawing.app("Two").data("two")
    return drawing.link("One", "one", "Two", "two")


def test_zipped_scatters_are_linked_copy_by_copy() -> None:
    """Drops: 4 x 3 = 12. Edges: 3 x 3 = 9."""
    graph = unrolled(zipped())

    assert (graph.drops, graph.edges) == (12, 9)


def both_applications() -> Worked:
    """Scatter, Loop, Gather, GroupBy, ExclusiveForceNode and SubGraph, each with an input and an output application."""
    drawing = Worked()
    drawing.app("Begin").data("d0")
    with drawing.scatter("S", 2, app="InS", out="OutS"):
        drawing.data("a").app("A").data("aa")
    drawing.data("d1").data("b0")
    with drawing.loop("L", 2, app="InL", out="OutL"):
        drawing.app("B", group_start=True).data("bb", group_end=True)
    drawing.data("d2")
    with drawing.construct("ExclusiveForceNode", "X", app="InX", out="OutX"):
        drawing.data("x").app("C").data("xx")
    drawing.data("d3")
    with drawing.scatter("T", 4):
        drawing.app("D").data("dd")
    with drawing.gather("G", 2, app="InG", out="OutG"):
        drawing.data("g")
    drawing.data("d4").app("End").data("result")
    drawing.link("Begin", "d0", "InS", "a", "A", "aa", "OutS", "d1", "InL", "b0").link("b0", "B", aware=True)
    drawing.link("B", "bb").link("bb", "B", closes=True).link("bb", "OutL", aware=True)
    drawing.link("OutL", "d2", "InX", "x", "C", "xx", "OutX", "d3", "D", "dd", "InG", "g", "OutG", "d4", "End")
    return drawing.link("End", "result")


def test_every_construct_has_an_input_and_an_output_application() -> None:
    """An input application is before the content, an output application after it.

    Drops: Begin and d0 2; InS 1, content 2 x 3, OutS 1, d1 1: 9; InL 1, b0 1, content 2 x 2, OutL 1, d2 1: 8; InX 1, 3,
    OutX 1, d3 1: 6; content of T 4 x 2; InG 2, g 2, OutG 1, d4 1: 6; End and result 2. In all 41.

    The gather collects in its input application, two of four inputs at a time; its output application stands after it.
    """
    drawing = both_applications()
    graph = unrolled(drawing)

    assert graph.drops == 41
    assert edges(drawing, "dd", "InG") == [((i,), (i // 2,)) for i in range(4)]
    assert edges(drawing, "g", "OutG") == [((0,), ()), ((1,), ())]
    assert edges(drawing, "bb", "OutL") == [((1,), ())]


WORKED = (mkn, chained_mkn, subgraphs, gathered_twice, sequential, zipped, both_applications)


def made(name: str, source: str, times: int = 1) -> str:
    """Return the result of an application that reads the same text one or several times."""
    return f"{name}({' '.join([source] * times)})"


def chain(names: str, source: str) -> str:
    """Return the result of applications, the last of them first, one after the other."""
    for name in reversed(names.split()):
        source = made(name, source)
    return source


_FIRST = made("Take", "Work(Begin)", 2)
_SECOND = made("Take", f"Work(Begin({_FIRST}))", 2)
_BEFORE_D = chain("OutX C InX OutL B B InL", made("OutS", "A(InS(Begin))", 2))
RESULTS = {
    "mkn": [made("End", made("Out", "Inner(In(Part Part))", 3), 6)],
    "chained_mkn": [made("End", chain("Outb B", made("Inb", "Outa(A(Ina) A(Ina))", 2)), 2)] * 2,
    "subgraphs": [chain("End OutOuter OutInner Step Step Step InInner InOuter", "Take(Part Part)")] * 2,
    "gathered_twice": [made("End", made("Second", "First(Part Part)", 2), 2)],
    "sequential": [f"End({_FIRST} {_SECOND} Take(Work(Begin({_SECOND}))))"],
    "zipped": ["Two(One)"] * 3,
    "both_applications": [chain("End", made("OutG", made("InG", f"D({_BEFORE_D})", 2), 2))],
}


# Worked examples of scatters, gathers, group-bys, loops, ExclusiveForceNodes, branches and MPI jobs.
#
# Also of Start, End and comments, which leave no drops.


def corner_turn() -> Worked:
    """Scatter(2){Row; Scatter(3){Cell}} -> GroupBy by the inner scatter {Group} -> Gather(3){End}."""
    drawing = Worked()
    drawing.app("Begin").data("begun")
    with drawing.scatter("Rows", 2, app="Row"):
        drawing.data("row")
        with drawing.scatter("Cells", 3, app="Cell"):
            drawing.data("cell")
    with drawing.groupby("Turn"):
        drawing.app("Group", group_start=True).data("group")
    with drawing.gather("All", 3, app="End"):
        drawing.data("result")
    drawing.link("Begin", "begun", "Row", "row", "Cell", "cell").link("Group", "group", "End", "result")
    return drawing.link("cell", "Turn", ports=("cell.output", ""))


def test_a_corner_turn_has_a_group_for_each_inner_copy() -> None:
    """Rows of 2 with 3 cells each become 3 groups of 2.

    Drops: Begin and begun 2; Row 1, row 2; Cell 2, cell 2 x 3 = 6; the group-by 3 applications and 3 data; Group and
    group 3 + 3; End and result 1 + 1: 2 + 3 + 8 + 6 + 6 + 2 = 27.
    """
    drawing = corner_turn()

    assert unrolled(drawing).drops == 27
    assert edges(drawing, "cell", "Turn") == [((i, j), (j,)) for i in range(2) for j in range(3)]


def looped() -> Worked:
    """Begin -> Loop(3){Step -> Next -> ...} -> End, entered in the first iteration and left after the last."""
    drawing = Worked()
    drawing.app("Begin").data("begun")
    with drawing.loop("L", 3):
        drawing.app("Step", group_start=True).data("step").app("Next").data("next", group_end=True)
    drawing.app("End").data("result")
    drawing.link("Begin", "begun").link("Step", "step", "Next", "next").link("End", "result")
    return drawing.link("begun", "Step", aware=True).link("next", "End", aware=True)


def test_a_loop_has_two_carries_for_three_iterations() -> None:
    """Drops: Begin and begun 2; 4 x 3; End and result 2: 16. Edges: 1, entry 1, 3 x 3, carries 2, exit 1, 1: 15."""
    drawing = looped()
    graph = unrolled(drawing)

    assert (graph.drops, graph.edges) == (16, 15)
    assert edges(drawing, "next", "Step") == [((0,), (1,)), ((1,), (2,))]


def exclusive() -> Worked:
    """Scatter(3){First -> ExclusiveForceNode{Alone} -> Last}."""
    drawing = Worked()
    with drawing.scatter("S", 3):
        drawing.app("First").data("first")
        with drawing.construct("ExclusiveForceNode", "X"):
            drawing.app("Alone").data("alone")
        drawing.app("Last").data("last")
    return drawing.link("First", "first", "Alone", "alone", "Last", "last")


def test_an_exclusive_node_is_unrolled_in_place() -> None:
    """It changes where drops run, and not how many there are: 6 x 3 drops, 5 x 3 edges."""
    graph = unrolled(exclusive())

    assert (graph.drops, graph.edges) == (18, 15)


def loops_in_scatters() -> Worked:
    """Scatter(2){Loop(2){Step}} -> Gather(2){End}: each copy has iterations of its own."""
    drawing = Worked()
    with drawing.scatter("S", 2):
        drawing.app("Begin").data("begun")
        with drawing.loop("L", 2):
            drawing.app("Step", group_start=True).data("step", group_end=True)
        drawing.app("Take").data("taken")
    with drawing.gather("G", 2, app="End"):
        drawing.data("result")
    drawing.link("Begin", "begun").link("begun", "Step", aware=True).link("Step", "step")
    return drawing.link("step", "Take", aware=True).link("Take", "taken", "End", "result")


def test_loops_inside_scatters() -> None:
    """Drops: (2 + 2 x 2 + 2) x 2 and 2: 18. Edges: (1 + 1 + 2 + 1 carry + 1 + 1) x 2 + 2 + 1: 17."""
    graph = unrolled(loops_in_scatters())

    assert (graph.drops, graph.edges) == (18, 17)


def branched() -> Worked:
    """Scatter(2){Begin -> First -> Yes or No -> Take -> Second -> Long or Short}: true first, then false."""
    drawing = Worked()
    with drawing.scatter("S", 2):
        drawing.app("Begin").data("begun").branch("First", "x == 'Begin'").data("yes").data("no")
        drawing.app("Yes").data("left").app("No").data("right").app("Take", block_skip=True).data("taken")
        drawing.branch("Second", "len(x) > 1000").data("long").data("short").app("Long").data("result").app("Short")
        drawing.data("other")
    drawing.link("Begin", "begun").link("begun", "First", ports=("", "First.x"))
    drawing.link("First", "yes", ports=("First.true", "")).link("First", "no", ports=("First.false", ""))
    drawing.link("yes", "Yes", "left", "Take", "taken").link("no", "No", "right", "Take")
    drawing.link("taken", "Second", ports=("", "Second.x"))
    drawing.link("Second", "long", ports=("Second.true", "")).link("Second", "short", ports=("Second.false", ""))
    return drawing.link("long", "Long", "result").link("short", "Short", "other")


def test_branches_keep_both_sides() -> None:
    """All of a branch is unrolled, whichever side is taken: 18 drops and 18 edges in each of two copies.

    Applications: Begin, First, Yes, No, Take, Second, Long, Short: 8; data: begun, yes, no, left, right, taken, long,
    short, result, other: 10; 18 drops. Edges: to Take 11, from taken 7.
    """
    graph = unrolled(branched())

    assert (graph.drops, graph.edges) == (36, 36)


def ranks() -> Worked:
    """Scatter(2){Begin -> MPI job of 3 ranks -> Take}: each rank writes its number."""
    drawing = Worked()
    with drawing.scatter("S", 2):
        drawing.app("Begin").data("begun").mpi("Job", 3, 'echo "$DROPFLOW_RANK of $DROPFLOW_RANKS" > {out}')
        drawing.data("made", "File").app("Take").data("result")
    text = Field(id="Take.input", name="input", type="Object", usage="InputPort", encoding="utf-8")
    take = drawing.nodes.pop(next(k for k, node in enumerate(drawing.nodes) if node.id == "Take"))
    fields = tuple(text if field.id == text.id else field for field in take.fields)
    drawing.nodes.append(structs.replace(take, fields=fields))
    drawing.link("Begin", "begun").link_any("begun", "Job").link("Job", "made", ports=("Job.out", ""))
    return drawing.link("made", "Take", "result", ports=("", "Take.input"))


def test_an_mpi_job_has_an_application_for_each_rank() -> None:
    """In each of two copies: Begin, begun, 3 ranks, made, Take, result 8; edges 1 + 3 + 3 + 1 + 1 = 9."""
    graph = unrolled(ranks())

    assert (graph.drops, graph.edges) == (16, 18)


_MORE = (corner_turn, looped, exclusive, loops_in_scatters, branched, ranks)
RESULTS |= {
    "corner_turn": ["End(" + " ".join(["Group(" + " ".join(["Cell(Row(Begin))"] * 2) + ")"] * 3) + ")"],
    "looped": ["End(Next(Step(Next(Step(Next(Step(Begin)))))))"],
    "exclusive": ["Last(Alone(First))"] * 3,
    "branched": ["Short(Take(Yes(Begin)))"] * 2,
    "ranks": ["Take(0 of 3\n1 of 3\n2 of 3\n)"] * 2,
    "loops_in_scatters": ["End(" + " ".join(["Take(Step(Step(Begin)))"] * 2) + ")"],
}


@pytest.mark.parametrize("draw", WORKED, ids=lambda draw: draw.__name__)
def test_sizes_of_constructs_are_those_of_the_unrolled_graph(draw: Callable[[], Worked]) -> None:
    """Counts, critical path and parallelism are computed without unrolling."""
    check_sizes(draw().graph())


@pytest.mark.parametrize("draw", [*WORKED, *_MORE], ids=lambda draw: draw.__name__)
def test_constructs_run(draw: Callable[[], Worked], tmp_path: Path) -> None:
    """The content of each leaf shows the way of the data through the drawing."""
    assert codes(draw()) == {"sequential": ["LG022"]}.get(draw.__name__, [])
    assert run_here(unrolled(draw()), tmp_path / "run") == RESULTS[draw.__name__]


@pytest.mark.slow
def test_constructs_run_alike_on_three_nodes(make_cluster: Make) -> None:
    """With every drop on a random one of three nodes, the results are those of a run in one process."""
    cluster = make_cluster(3)
    drawings = (*WORKED, *_MORE)
    found = {
        drawing.__name__: run_on_nodes(unrolled(drawing()), cluster, seed=12, session=drawing.__name__)
        for drawing in drawings
    }

    assert found == RESULTS


def test_start_end_and_comments_leave_no_drops() -> None:
    """A graph with them, linked as old editors did, has the drops and edges of the graph without; notes tell so."""
    nodes = [node("a", "DALiuGEApp"), node("m", "Memory"), node("b", "DALiuGEApp")]
    links = [link("a", "", "m", ""), link("m", "", "b", "")]
    notes = [node("s", "Start"), node("e", "End"), node("c", "Comment"), node("d", "Description")]
    around = [link("s", "", "a", ""), link("b", "", "e", ""), link("m", "", "c", "")]
    plain = examine(json.dumps(document(nodes, links)).encode()).outline
    found = examine(json.dumps(document([*notes, *nodes], [*around, *links])).encode())

    assert plain is not None
    assert found.outline is not None
    assert [template.key for template in found.outline.templates] == [template.key for template in plain.templates]
    assert len(found.outline.links) == len(plain.links) == 2
    noted = {problem.code: problem.severity.value for problem in found.problems if problem.code in ("LG031", "LG003")}
    assert "error" not in noted.values()
    assert "LG031" in noted
