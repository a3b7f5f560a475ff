import pytest

from tests.translator.drawing import Drawing
from tests.translator.unrolled import codes, counts, edges, errors, planned
from translator.unroll import unroll


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


def nested(*, inside: bool) -> Drawing:
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
    within = edges(nested(inside=True), "dA", "g")
    assert within == [((i, j), (i, j // 2)) for i in range(3) for j in range(5)]
    assert len({target for _, target in within}) == 9
    flat = edges(nested(inside=False), "dA", "g")
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
        assert [(found.code, found.text) for found in planned(drawing).problems] == aware * [("LG064", text)]


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
    (found,) = planned(drawing.link("g", "out").link("d", "g", aware=True)).problems
    assert (found.code, found.severity.value) == ("LG062", "info")


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
    graph = unroll(planned(drawing))
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
        (collector,) = [template for template in planned(drawing).templates if template.key == "g"]
        assert collector.collects == (port,)
