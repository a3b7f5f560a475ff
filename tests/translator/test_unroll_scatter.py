import msgspec
import pytest

from dropflow.graph.text_ids import oids
from tests.translator.drawing import Drawing
from tests.translator.unrolled import codes, counts, edges, errors, planned
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
    graph = unroll(planned(nested(), prefix="1"))
    names = oids(graph, range(graph.drops))
    assert names[:3] == ["1_d0_0", "1_A1_0", "1_dA_0-0"]
    assert names[-1] == "1_dC_0-4-3"


def test_drops_follow_the_order_of_the_file() -> None:
    """Templates come in the order of the file, and the instances of each row-major."""
    graph = unroll(planned(nested()))
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


def test_scatters_beside_each_other_cannot_be_linked() -> None:
    """A link between two scatters is an error with a reason and a hint."""
    drawing = Drawing()
    with drawing.scatter("S1", 3):
        drawing.data("one")
    with drawing.scatter("S2", 3):
        drawing.app("other")
    drawing.link("one", "other")
    assert errors(drawing) == ["LG070"]
    (found,) = planned(drawing).problems
    assert "leads out of scatter 'S1' (3) and into scatter 'S2' (3)" in found.text
    zipped = "set the field zip_with of scatter 'S2' to 'S1', to link their copies by number"
    assert found.hint == f"{zipped}, or gather 'one' first, or move 'other' into scatter 'S1'"


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
    (found,) = planned(zipped(3, 4)).problems
    assert found.text.endswith("scatter 'S1' and scatter 'S2' are zipped, but have 3 and 4 copies")
    assert errors(zipped(3, 3, "S9")) == ["LG087", "LG070"]


def test_a_scatter_of_zero_copies_has_no_drops() -> None:
    """Its content has no drops, with a warning; the rest of the graph is unchanged."""
    drawing = Drawing().data("d0")
    with drawing.scatter("S", 0, app="split"):
        drawing.data("part")
    drawing.link("d0", "split", "part")
    assert counts(drawing) == (2, 1)
    assert [finding.code for finding in planned(drawing).problems] == ["LG021"]


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
    alone = next(template for template in planned(drawing).templates if template.key == "alone")
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
    assert planned(drawing).problems[0].hint


def test_constructs_inside_each_other_are_an_error() -> None:
    """A cycle of parents is LG005, and the translation does not hang."""
    drawing = Drawing()
    with drawing.scatter("S1", 2), drawing.scatter("S2", 2):
        drawing.data("part")
    parents = dict(zip(("S1", "S2", "part"), ("S2", "S1", "S2"), strict=True))
    drawing.nodes = [msgspec.structs.replace(node, parent=parents[node.id]) for node in drawing.nodes]
    assert "LG005" in codes(drawing)
