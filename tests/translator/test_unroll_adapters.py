from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids
from tests.translator.drawing import Drawing
from tests.translator.unrolled import codes, counts, edges, errors, planned, ports
from translator.logical import Field
from translator.unroll import unroll


def test_between_applications_each_producer_gets_data() -> None:
    """If four applications feed one, each of the four gets a memory drop that the one reads."""
    drawing = Drawing()
    with drawing.scatter("S", 4):
        drawing.app("a")
    drawing.app("b").link("a", "b")
    assert counts(drawing) == (5 + 4, 4 + 4)
    assert edges(drawing, "a", "a-to-b") == [((i,), (i,)) for i in range(4)]
    assert edges(drawing, "a-to-b", "b") == [((i,), ()) for i in range(4)]


def test_between_data_each_consumer_gets_a_copy() -> None:
    """Four data into one: one copying application, so that the one has one producer; and the reverse."""
    drawing = Drawing()
    with drawing.scatter("S", 4):
        drawing.data("d")
    drawing.data("e").link("d", "e")
    assert counts(drawing) == (5 + 1, 4 + 1)
    drawing = Drawing().data("e")
    with drawing.scatter("S", 4):
        drawing.data("d")
    assert counts(drawing.link("e", "d")) == (5 + 4, 4 + 4)


def test_adapters_are_marked() -> None:
    """An adapter is artificial, names the link behind it, and is mentioned as LG041."""
    drawing = Drawing().app("a").app("b").data("c").data("d").link("a", "b").link("c", "d")
    assert codes(drawing) == ["LG041", "LG041"]
    memory, copy = (template for template in planned(drawing).templates if template.artificial)
    assert (memory.kind, memory.component, memory.origin) == (
        Kind.DATA,
        "dlg.data.drops.memory.InMemoryDROP",
        "/linkDataArray/0",
    )
    assert (copy.kind, copy.component, copy.name) == (Kind.APP, "dlg.apps.simple.CopyApp", "c to d")


def test_ports_stay_at_their_ends() -> None:
    """The source's port leads into the adapter, the target's out of it."""
    drawing = Drawing()
    drawing.app("a", port=Field(id="p", name="out", usage="OutputPort"))
    drawing.app("b", port=Field(id="q", name="in", usage="InputPort"))
    drawing.link("a", "b", ports=("p", "q"))
    assert ports(drawing, "a", "a-to-b") == [("out", "")]
    assert ports(drawing, "a-to-b", "b") == [("", "in")]


def test_an_adapter_between_event_ports_is_a_null_drop() -> None:
    """Events have no content, so that no memory drop is needed."""
    drawing = Drawing()
    drawing.app("a", port=Field(id="p", name="done", usage="OutputPort", type="Event"))
    drawing.app("b", port=Field(id="q", name="go", usage="InputPort", type="Event"))
    drawing.link("a", "b", ports=("p", "q"))
    assert planned(drawing).templates[-1].component == "dlg.data.drops.data_base.NullDROP"


def test_two_links_get_two_adapters() -> None:
    """Links between the same two nodes at different ports are two links, with ids of their own."""
    drawing = Drawing()
    drawing.app("a", one=Field(id="p", name="x", usage="OutputPort"), two=Field(id="r", name="y", usage="OutputPort"))
    drawing.app("b").link("a", "b", ports=("p", "")).link("a", "b", ports=("r", ""))
    graph = unroll(planned(drawing))
    assert oids(graph, range(graph.drops))[2:] == ["drawing_a-to-b_0", "drawing_a-to-b-2_0"]


def test_the_same_link_twice_is_kept_once() -> None:
    """A duplicate edge is LG042 and has no effect."""
    drawing = Drawing().data("d").app("a").link("d", "a").link("d", "a")
    assert counts(drawing) == (2, 1)
    assert codes(drawing) == ["LG042"]


def test_without_adapters_such_links_are_errors() -> None:
    """With adapters switched off, an edge between nodes of one kind is LG040."""
    drawing = Drawing().app("a").app("b").link("a", "b")
    assert errors(drawing, adapters=False) == ["LG040"]


def test_an_adapter_on_a_carry_serves_the_iterations_that_have_a_next() -> None:
    """Two applications that are joined by the carry of a loop of three have two drops between them, not three."""
    drawing = Drawing()
    with drawing.loop("L", 3):
        drawing.app("a").app("b")
    drawing.link("a", "b").link("b", "a", closes=True)
    assert edges(drawing, "b", "b-to-a") == [((0,), (0,)), ((1,), (1,))]
    assert edges(drawing, "b-to-a", "a") == [((0,), (1,)), ((1,), (2,))]
