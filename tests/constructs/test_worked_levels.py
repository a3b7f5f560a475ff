"""Worked examples of scatters, gathers, group-bys, loops, ExclusiveForceNodes, branches and MPI jobs.

Also of Start, End and comments, which leave no drops.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from tests.constructs.worked import Worked, run_here, run_on_nodes, unrolled
from tests.managers.node.conftest import Cluster
from tests.translator.documents import document, link, node
from tests.translator.unrolled import codes, edges
from translator.logical import Field
from translator.pipeline import examine

Make = Callable[..., Cluster]


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


WORKED = (corner_turn, looped, exclusive, loops_in_scatters, branched, ranks)

RESULTS = {
    "corner_turn": ["End(" + " ".join(["Group(" + " ".join(["Cell(Row(Begin))"] * 2) + ")"] * 3) + ")"],
    "looped": ["End(Next(Step(Next(Step(Next(Step(Begin)))))))"],
    "exclusive": ["Last(Alone(First))"] * 3,
    "branched": ["Short(Take(Yes(Begin)))"] * 2,
    "ranks": ["Take(0 of 3\n1 of 3\n2 of 3\n)"] * 2,
    "loops_in_scatters": ["End(" + " ".join(["Take(Step(Step(Begin)))"] * 2) + ")"],
}


@pytest.mark.parametrize("draw", WORKED, ids=lambda draw: draw.__name__)
def test_they_run(draw: Callable[[], Worked], tmp_path: Path) -> None:
    """The content of each leaf shows the way of the data through the drawing."""
    assert codes(draw()) == []
    assert run_here(unrolled(draw()), tmp_path / "run") == RESULTS[draw.__name__]


@pytest.mark.slow
def test_they_run_alike_on_three_nodes(make_cluster: Make) -> None:
    """With every drop on a random one of three nodes, the results are those of a run in one process."""
    cluster = make_cluster(3)
    found = {draw.__name__: run_on_nodes(unrolled(draw()), cluster, seed=7, session=draw.__name__) for draw in WORKED}

    assert found == RESULTS


def test_start_end_and_comments_leave_no_drops() -> None:
    """A graph with them, linked as old editors did, has the drops and edges of the graph without; notes tell so."""
    nodes = [node("a", "DALiuGEApp"), node("m", "Memory"), node("b", "DALiuGEApp")]
    links = [link("a", "", "m", ""), link("m", "", "b", "")]
    notes = [node("s", "Start"), node("e", "End"), node("c", "Comment"), node("d", "Description")]
    around = [link("s", "", "a", ""), link("b", "", "e", ""), link("m", "", "c", "")]
    plain = examine(json.dumps(document(nodes, links)).encode()).plan
    found = examine(json.dumps(document([*notes, *nodes], [*around, *links])).encode())

    assert plain is not None
    assert found.plan is not None
    assert [one.key for one in found.plan.templates] == [one.key for one in plain.templates]
    assert len(found.plan.links) == len(plain.links) == 2
    noted = {problem.code: problem.severity.value for problem in found.problems if problem.code in ("LG031", "LG003")}
    assert "error" not in noted.values()
    assert "LG031" in noted
