import msgspec
import pytest

from dropflow.graph.text_ids import oids
from tests.translator.drawing import Drawing, codes, counts, edges, errors, outlined
from translator.unroll import unroll


def nested() -> Drawing:
    """Two scatters in each other, 5 x 4, with an application each."""
    drawing = Drawing().data("d0")
    with drawing.scatter("S1", 5, app="A1"):
        drawing.data("dA")
        with drawing.scatter("S2", 4, app="A2"):
            drawing.data("dB").app("a").data("dC")
    return drawing.link("d0", "A1", "dA", "A2", "dB", "a", "dC")


def test_copies_of_nested_scatters_multiply() -> None:
    """The worked example of two nested scatters has 72 drops and 71 edges."""
    assert counts(nested()) == (72, 71)


def test_text_ids_are_those_of_daliuge() -> None:
    """The index of a drop counts its copies from the outermost, behind a leading zero."""
    graph = unroll(outlined(nested(), prefix="1"))
    names = oids(graph, range(graph.drops))
    assert names[:3] == ["1_d0_0", "1_A1_0", "1_dA_0-0"]
    assert names[-1] == "1_dC_0-4-3"


def test_drops_follow_the_order_of_the_file() -> None:
    """Templates come in the order of the file, and the instances of each row-major."""
    graph = unroll(outlined(nested()))
    assert [template.key for template in graph.templates] == ["d0", "A1", "dA", "A2", "dB", "a", "dC"]
    assert graph.template.tolist() == sorted(graph.template.tolist())
    assert graph.instance[:12].tolist() == [0, 0, *range(5), *range(5)]


def test_a_link_may_cross_several_levels() -> None:
    """A link from the top level to depth two reaches every copy; the reverse collects every copy."""
    drawing = Drawing().data("before").data("after")
    with drawing.scatter("S1", 2), drawing.scatter("S2", 3):
        drawing.app("in").app("out")
    drawing.link("before", "in").link("out", "after")
    everything = [(i, j) for i in range(2) for j in range(3)]
    assert edges(drawing, "before", "in") == [((), index) for index in everything]
    assert edges(drawing, "out", "after") == [(index, ()) for index in everything]


def test_a_consumer_collects_only_the_copies_of_its_own_context() -> None:
    """A consumer inside the outer scatter gets only the inner copies of its own outer copy."""
    drawing = Drawing()
    with drawing.scatter("S1", 2):
        drawing.app("sum")
        with drawing.scatter("S2", 3):
            drawing.data("part")
    drawing.link("part", "sum")
    assert edges(drawing, "part", "sum") == [((i, j), (i,)) for i in range(2) for j in range(3)]


def test_an_edge_to_the_application_in_a_gather_gets_a_hint() -> None:
    """The hint is to end the edge at the gather."""
    drawing = Drawing()
    with drawing.scatter("S", 3):
        drawing.data("one")
    with drawing.gather("G", 3):
        drawing.app("join")
    drawing.link("one", "join")
    hints = [problem.hint for problem in outlined(drawing).problems if problem.code == "LG070"]
    assert hints == ["end the edge at gather 'G', not at the application in it, or move 'join' into scatter 'S'"]


def test_scatters_beside_each_other_cannot_be_linked() -> None:
    """A link between two scatters is an error with a reason and a hint."""
    drawing = Drawing()
    with drawing.scatter("S1", 3):
        drawing.data("one")
    with drawing.scatter("S2", 3):
        drawing.app("other")
    drawing.link("one", "other")
    assert errors(drawing) == ["LG070"]
    (problem,) = outlined(drawing).problems
    assert "leads out of scatter 'S1' (3) and into scatter 'S2' (3)" in problem.text
    zipped = "set the field zip_with of scatter 'S2' to 'S1', to link their copies by number"
    assert problem.hint == f"{zipped}, or gather 'one' first, or move 'other' into scatter 'S1'"


def test_zipping_links_equal_scatters_copy_by_copy() -> None:
    """With zip_scatters, copy i is linked to copy i, where sizes are equal."""
    drawing = Drawing()
    with drawing.scatter("S1", 3):
        drawing.data("one")
    with drawing.scatter("S2", 3):
        drawing.app("other")
    with drawing.scatter("S3", 4):
        drawing.app("unequal")
    drawing.link("one", "other")
    assert edges(drawing, "one", "other", zip_scatters=True) == [((i,), (i,)) for i in range(3)]
    assert errors(drawing.link("one", "unequal"), zip_scatters=True) == ["LG070"]


def zipped(copies: int, other: int, name: str = "S1") -> Drawing:
    """Return scatters S1 and S2; S2 is zipped with another one by name."""
    drawing = Drawing()
    with drawing.scatter("S1", copies):
        drawing.data("one")
    with drawing.construct("Scatter", "S2", other, zip_with=name):
        drawing.app("other")
    return drawing.link("one", "other")


def test_a_scatter_names_the_scatter_that_it_is_zipped_with() -> None:
    """With zip_with, copy i is linked to copy i; unequal numbers are LG070, a name without scatter is LG087."""
    assert edges(zipped(3, 3), "one", "other") == [((i,), (i,)) for i in range(3)]
    (problem,) = outlined(zipped(3, 4)).problems
    assert problem.text.endswith("scatter 'S1' and scatter 'S2' are zipped, but have 3 and 4 copies")
    assert errors(zipped(3, 3, "S9")) == ["LG087", "LG070"]


def test_a_scatter_of_zero_copies_has_no_drops() -> None:
    """Its content has no drops, with a warning; the rest of the graph is unchanged."""
    drawing = Drawing().data("d0")
    with drawing.scatter("S", 0, app="split"):
        drawing.data("part")
    drawing.link("d0", "split", "part")
    assert counts(drawing) == (2, 1)
    assert [finding.code for finding in outlined(drawing).problems] == ["LG021"]


@pytest.mark.parametrize("size", [None, -1, "many", 2.5, "", True, float("nan"), "9" * 5000])
def test_a_multiplicity_that_is_not_a_number_is_an_error(size: object) -> None:
    """Missing, negative, textual, fractional and absurd numbers of copies are LG020."""
    drawing = Drawing()
    with drawing.scatter("S", size):
        drawing.data("part")
    assert errors(drawing) == ["LG020"]


@pytest.mark.parametrize("size", [3, "3", " 3 ", 3.0, "3.0"])
def test_a_multiplicity_may_be_spelled_in_every_way(size: object) -> None:
    """Files of different versions have the number three as a number or as text."""
    drawing = Drawing()
    with drawing.scatter("S", size):
        drawing.data("part")
    assert counts(drawing) == (3, 0)


def test_applications_are_before_and_after_their_construct() -> None:
    """Input and output application of a scatter have one instance each, for any number of copies."""
    drawing = Drawing().data("d0").data("d1")
    with drawing.scatter("S", 4, app="in", out="out"):
        drawing.data("part")
    drawing.link("d0", "in", "part", "out", "d1")
    assert counts(drawing) == (8, 10)


def test_a_construct_without_application_is_not_an_end_of_a_link() -> None:
    """A link that ends on a scatter without application is LG032."""
    drawing = Drawing().data("d0")
    with drawing.scatter("S", 2):
        drawing.data("part")
    assert errors(drawing.link("d0", "S")) == ["LG032"]


def test_a_subgraph_is_transparent() -> None:
    """A SubGraph adds one level of one index, and links lead in and out of it freely."""
    drawing = Drawing().data("d0").app("end")
    with drawing.construct("SubGraph", "G", app="in", out="out"):
        drawing.data("inner")
    with drawing.construct("ExclusiveForceNode", "X"):
        drawing.app("alone")
    drawing.link("d0", "in", "inner", "out").link("inner", "alone")
    assert edges(drawing, "inner", "alone") == [((0,), (0,))]
    alone = next(template for template in outlined(drawing).templates if template.key == "alone")
    assert [axis.kind for axis in alone.axes] == ["exclusive"]


def test_mpi_adds_a_level_of_ranks() -> None:
    """Three ranks in two copies are six drops; data go to all ranks and come from all."""
    drawing = Drawing()
    with drawing.scatter("S", 2):
        drawing.data("d").app("m", category="Mpi", num_of_procs=3).data("e")
    drawing.link("d", "m", "e")
    assert counts(drawing) == (2 + 6 + 2, 6 + 6)
    assert edges(drawing, "m", "e") == [((i, j), (i,)) for i in range(2) for j in range(3)]


@pytest.mark.parametrize("category", ["Service"])
def test_categories_that_cannot_be_translated_are_refused(category: str) -> None:
    """Service is refused with a hint that names an alternative."""
    drawing = Drawing()
    with drawing.construct(category, "X"):
        drawing.data("inner")
    assert errors(drawing) == ["LG032"]
    assert outlined(drawing).problems[0].hint


def test_constructs_inside_each_other_are_an_error() -> None:
    """A cycle of parents is LG005, and the translation does not hang."""
    drawing = Drawing()
    with drawing.scatter("S1", 2), drawing.scatter("S2", 2):
        drawing.data("part")
    parents = dict(zip(("S1", "S2", "part"), ("S2", "S1", "S2"), strict=True))
    drawing.nodes = [msgspec.structs.replace(node, parent=parents[node.id]) for node in drawing.nodes]
    assert "LG005" in codes(drawing)


def scattered(copies: int, width: object, *, inside: bool = False) -> Drawing:
    """Scatter of data, gathered; the result inside the gather or behind it."""
    drawing = Drawing().data("d0")
    with drawing.scatter("S", copies, app="A"):
        drawing.data("dA")
    with drawing.gather("G", width, app="g"):
        if inside:
            drawing.data("out")
    if not inside:
        drawing.data("out")
    return drawing.link("d0", "A", "dA", "g", "out")


def test_a_gather_takes_its_width_at_a_time() -> None:
    """Five inputs, two at a time: three gathers, the last with one; one result behind them, or one in each."""
    assert counts(scattered(5, 2)) == (11, 1 + 5 + 5 + 3)
    assert counts(scattered(4, 2, inside=True)) == (10, 1 + 4 + 4 + 2)
    assert edges(scattered(5, 2), "dA", "g") == [((i,), (i // 2,)) for i in range(5)]


def test_a_width_that_does_not_divide_is_a_warning() -> None:
    """LG022 warns that the last gather gets fewer inputs."""
    assert codes(scattered(5, 2)) == ["LG022"]
    assert codes(scattered(6, 2)) == []


@pytest.mark.parametrize("width", [None, 0, "0", 7, 2**31])
def test_without_width_a_gather_takes_everything(width: object) -> None:
    """No width, zero, and a width beyond the number of inputs give one gather."""
    assert counts(scattered(5, width))[0] == 1 + 1 + 5 + 1 + 1


def gathered_twice(*, inside: bool) -> Drawing:
    """Scatter(3) around Scatter(5), gathered by two: inside the outer scatter, or at the top level."""
    drawing = Drawing()
    with drawing.scatter("S1", 3):
        with drawing.scatter("S2", 5):
            drawing.data("dA")
        if inside:
            with drawing.gather("G", 2, app="g"):
                drawing.data("out")
    if not inside:
        with drawing.gather("G", 2, app="g"):
            drawing.data("out")
    return drawing.link("dA", "g", "out")


def test_chunks_respect_the_context() -> None:
    """A gather inside a scatter never mixes its copies; at the top level it counts through all of them."""
    within = edges(gathered_twice(inside=True), "dA", "g")
    assert within == [((i, j), (i, j // 2)) for i in range(3) for j in range(5)]
    assert len({target for _, target in within}) == 9
    flat = edges(gathered_twice(inside=False), "dA", "g")
    assert flat == [((i, j), ((5 * i + j) // 2,)) for i in range(3) for j in range(5)]
    assert len({target for _, target in flat}) == 8


def test_several_inputs_are_chunked_separately() -> None:
    """Two links of four inputs each, two at a time: two gathers with four inputs; the larger link decides."""
    drawing = Drawing()
    with drawing.scatter("S", 4):
        drawing.data("one").data("other")
    drawing.data("single")
    with drawing.gather("G", 2, app="g"):
        drawing.data("out")
    drawing.link("single", "g").link("one", "g").link("other", "g").link("g", "out")
    assert edges(drawing, "one", "g") == edges(drawing, "other", "g") == [((i,), (i // 2,)) for i in range(4)]
    assert edges(drawing, "single", "g") == [((), (0,))]


def test_a_gather_takes_all_iterations_of_a_loop() -> None:
    """Loop-aware or not, every iteration is an input, as in DALiuGE; LG064 warns that loop-aware changes nothing."""
    for aware in (False, True):
        drawing = Drawing()
        with drawing.loop("L", 3):
            drawing.app("a", group_start=True).data("d", group_end=True)
        with drawing.gather("G", 3, app="g"):
            drawing.data("out")
        drawing.link("a", "d").link("g", "out").link("d", "g", aware=aware)
        assert edges(drawing, "d", "g") == [((i,), (0,)) for i in range(3)]
        text = (
            "loop-aware is ignored on the edge from 'd' to 'g', because it enters gather 'G': "
            "the gather takes all iterations of loop 'L' (3)"
        )
        assert [(problem.code, problem.text) for problem in outlined(drawing).problems] == aware * [("LG064", text)]


def test_a_loop_aware_edge_into_a_gather_is_reported() -> None:
    """A gather in a loop that the edge enters is a warning; a loop of one iteration is none; no loop is a note."""
    drawing = Drawing().data("d")
    with drawing.loop("L", 2):
        drawing.app("a", group_start=True).data("e", group_end=True).link("a", "e")
        with drawing.gather("G", app="g"):
            drawing.data("out")
    drawing.link("g", "out").link("d", "g", aware=True)
    assert codes(drawing) == ["LG064"]
    drawing = Drawing()
    with drawing.loop("L", 1):
        drawing.app("a", group_start=True).data("e", group_end=True).link("a", "e")
    with drawing.gather("G", app="g"):
        drawing.data("out")
    assert codes(drawing.link("g", "out").link("e", "g", aware=True)) == []
    drawing = Drawing().data("d")
    with drawing.gather("G", app="g"):
        drawing.data("out")
    (problem,) = outlined(drawing.link("g", "out").link("d", "g", aware=True)).problems
    assert (problem.code, problem.severity.value) == ("LG062", "info")


def test_a_gather_without_application_feeds_the_first_applications_in_it() -> None:
    """Applications in it take the inputs directly."""
    drawing = Drawing()
    with drawing.scatter("S", 4):
        drawing.data("dA")
    with drawing.gather("G", 2):
        drawing.app("first").data("out").app("last")
    drawing.link("dA", "G").link("first", "out", "last")
    assert edges(drawing, "dA", "first") == [((i,), (i // 2,)) for i in range(4)]


def test_a_gather_without_application_copies_into_data() -> None:
    """Where data begin its content, or links leave it, a copying application collects, and is marked artificial."""
    drawing = Drawing()
    with drawing.scatter("S", 4):
        drawing.data("dA")
    with drawing.gather("G", 2):
        drawing.data("inner")
    drawing.data("outer").link("dA", "G").link("G", "outer")
    graph = unroll(outlined(drawing))
    made = next(template for template in graph.templates if template.key == "G")
    assert (made.artificial, made.component, made.shape) == (True, "dlg.apps.simple.CopyApp", (2,))
    assert edges(drawing, "G", "outer") == [((0,), ()), ((1,), ())]


def test_content_may_lead_back_to_the_application_of_its_gather() -> None:
    """In old graphs a second instance of the application is added after the gather, and links leave from there."""
    drawing = Drawing()
    with drawing.scatter("S", 4):
        drawing.data("dA")
    with drawing.gather("G", 2, app="g"):
        drawing.data("inner")
    drawing.data("out").link("dA", "g", "inner", "g", "out")
    assert counts(drawing) == (4 + 2 + 2 + 1 + 1, 4 + 2 + 2 + 1)
    assert edges(drawing, "inner", "g-exit") == [((0,), ()), ((1,), ())]


def test_gathers_can_be_nested() -> None:
    """Sums of sums: eight values, two at a time, and again two at a time."""
    drawing = Drawing()
    with drawing.scatter("S", 8):
        drawing.data("value")
    with drawing.gather("G1", 2, app="add"):
        drawing.data("sum")
    with drawing.gather("G2", 2, app="add2"):
        drawing.data("sum2")
    drawing.link("value", "add", "sum", "add2", "sum2")
    assert counts(drawing) == (8 + 4 + 4 + 2 + 2, 8 + 4 + 4 + 2)


def test_a_gather_without_input_is_a_warning() -> None:
    """LG072 warns; the gather has one instance in each context."""
    drawing = Drawing()
    with drawing.gather("G", 2, app="g"):
        drawing.data("out")
    drawing.link("g", "out")
    assert counts(drawing) == (2, 1)
    assert codes(drawing) == ["LG072"]


def test_gathers_that_need_each_other_are_an_error() -> None:
    """The sizes of two gathers that feed each other cannot be found: LG050, and no endless recursion."""
    drawing = Drawing()
    with drawing.gather("G1", 2, app="g1"):
        drawing.data("d1")
    with drawing.gather("G2", 2, app="g2"):
        drawing.data("d2")
    drawing.link("g1", "d1", "g2", "d2", "g1")
    assert "LG050" in errors(drawing)


def test_an_empty_gather_is_a_warning() -> None:
    """A gather with an input but without application and content gives LG072."""
    drawing = Drawing().data("d")
    with drawing.gather("G", 1):
        pass
    assert codes(drawing.link("d", "G")) == ["LG072"]
    assert counts(drawing) == (1, 0)


def test_the_data_of_a_group_enter_a_gather_without_application() -> None:
    """A group-by linked to such a gather hands over the data of its groups."""
    drawing = Drawing()
    with drawing.scatter("S", 4):
        drawing.data("d")
    with drawing.groupby("K"):
        drawing.app("a")
    with drawing.gather("G", 2):
        drawing.app("sum")
    drawing.link("d", "K").link("K", "G")
    assert edges(drawing, "K-grp-data", "sum") == [((i,), (i // 2,)) for i in range(4)]


@pytest.mark.parametrize("width", [1, 2, None])
def test_what_enters_a_gather_is_collected(width: object) -> None:
    """A Python function gets a list at the port of a gather, also a list of one, from a scatter or from one node."""
    alone = Drawing().data("d")
    with alone.gather("G", width, app="g"):
        pass
    for drawing, port in ((scattered(2, width), ""), (alone.link("d", "g"), "")):
        (collector,) = [template for template in outlined(drawing).templates if template.key == "g"]
        assert collector.collects == (port,)
