import pytest

from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids
from tests.translator.drawing import Drawing, codes, counts, edges, errors, outlined, ports
from translator.logical import Field
from translator.unroll import unroll


def corner_turn(outer: int = 2, inner: int = 3, keys: str | None = None) -> Drawing:
    """Scatter around scatter, grouped by the inner one."""
    drawing = Drawing().data("d0")
    with drawing.scatter("S1", outer, app="A1"):
        drawing.data("m")
        with drawing.scatter("S2", inner, app="A2"):
            drawing.data("dA")
    with drawing.groupby("K", keys):
        drawing.app("ga").data("gd")
    return drawing.link("d0", "A1", "m", "A2", "dA", "K").link("ga", "gd")


def test_a_group_by_makes_a_corner_turn() -> None:
    """The worked example: [outer][inner] becomes [inner][outer], in 24 drops."""
    assert counts(corner_turn()) == (24, 26)
    assert edges(corner_turn(), "dA", "K") == [((i, j), (j,)) for i in range(2) for j in range(3)]
    assert edges(corner_turn(), "K-grp-data", "ga") == [((j,), (j,)) for j in range(3)]


@pytest.mark.parametrize("keys", [None, "S1", "S1,S2"])
def test_a_group_is_a_list(keys: str | None) -> None:
    """The application of a group-by gets a list, also of one value if every level is a key."""
    (grouping,) = [template for template in outlined(corner_turn(keys=keys)).templates if template.key == "K"]
    assert grouping.collects == ("",)


def test_a_gather_behind_a_group_by_takes_groups() -> None:
    """Group-by, then gather by three: 26 drops; linked directly and by two: gathers of two and of one group."""
    drawing = corner_turn()
    with drawing.gather("G", 3, app="g"):
        drawing.data("out")
    assert counts(drawing.link("gd", "g", "out")) == (26, 26 + 3 + 1)
    drawing = corner_turn()
    with drawing.gather("G", 2, app="g"):
        drawing.data("out")
    drawing.link("K", "g", "out")
    assert edges(drawing, "K-grp-data", "g") == [((j,), (j // 2,)) for j in range(3)]


def test_groups_are_ordered_by_number_and_not_by_text() -> None:
    """With more than ten groups, group 2 still gets key 2."""
    assert edges(corner_turn(2, 12), "dA", "K") == [((i, j), (j,)) for i in range(2) for j in range(12)]


@pytest.mark.parametrize(
    ("keys", "levels"),
    [
        (None, (1,)),
        ("-1", (1,)),
        ("None", (1,)),
        ("S2", (1,)),
        ("S1", (0,)),
        ("S1,S2", (0, 1)),
        (" S2 , S1 ", (0, 1)),
    ],
)
def test_keys_name_scatters_in_any_order(keys: str | None, levels: tuple[int, ...]) -> None:
    """Keys are scatters by id or name; groups have one level a key, in the order of nesting."""
    everything = [(i, j) for i in range(2) for j in range(3)]
    expected = [(index, tuple(index[level] for level in levels)) for index in everything]
    assert edges(corner_turn(keys=keys), "dA", "K") == expected


def test_groups_can_be_grouped_again() -> None:
    """Group-bys can be chained if the key is a scatter among the levels of the groups."""
    drawing = corner_turn(keys="S1,S2")
    with drawing.groupby("K2", "S1"):
        drawing.app("again").data("end")
    drawing.link("gd", "K2").link("again", "end")
    assert edges(drawing, "gd", "K2") == [((i, j), (i,)) for i in range(2) for j in range(3)]


def test_a_group_by_inside_a_scatter_groups_in_each_copy() -> None:
    """Three levels, the outermost shared: six groups of two."""
    drawing = Drawing()
    with drawing.scatter("S0", 2):
        with drawing.scatter("S1", 2), drawing.scatter("S2", 3):
            drawing.data("d")
        with drawing.groupby("K"):
            drawing.app("a")
    drawing.link("d", "K")
    assert edges(drawing, "d", "K") == [((h, i, j), (h, j)) for h in range(2) for i in range(2) for j in range(3)]


def test_an_embedded_application_replaces_the_built_in_one() -> None:
    """An application that is embedded in a group-by is used instead of the built-in one."""
    drawing = Drawing()
    with drawing.scatter("S", 3):
        drawing.data("d")
    with drawing.groupby("K", app="mine"):
        drawing.app("a")
    drawing.link("d", "mine")
    assert edges(drawing, "d", "mine") == [((i,), (i,)) for i in range(3)]
    assert edges(drawing, "K-grp-data", "a") == [((i,), (i,)) for i in range(3)]
    assert "K" not in [template.key for template in outlined(drawing).templates]


def test_the_drops_of_a_group_by_have_names_and_volumes() -> None:
    """The application is named like the construct; the data of a group are artificial and as large as the group."""
    drawing = Drawing()
    with drawing.scatter("S1", 4), drawing.scatter("S2", 3):
        drawing.data("d", data_volume=5)
    with drawing.groupby("K"):
        drawing.app("a")
    graph = unroll(outlined(drawing.link("d", "K")))
    app, data = (template for template in graph.templates if template.key.startswith("K"))
    assert (app.name, app.component, app.artificial) == ("K", "dropflow.apps.GroupByApp", False)
    assert (data.name, data.artificial, data.weight, data.shape) == ("grpdata", True, 20.0, (3,))


def test_only_marked_children_take_the_group() -> None:
    """Children with group_start take the data of the group; without any, those that nothing else feeds."""
    drawing = Drawing()
    with drawing.scatter("S", 2):
        drawing.data("d")
    with drawing.groupby("K"):
        drawing.app("marked", group_start=True).app("other").data("first")
    drawing.link("d", "K")
    assert edges(drawing, "K-grp-data", "marked") != []
    assert edges(drawing, "K-grp-data", "other") == edges(drawing, "K", "first") == []


def test_a_group_of_data_begins_at_the_application() -> None:
    """Data that begin the content are written by the group-by itself: no adapter is needed."""
    drawing = Drawing()
    with drawing.scatter("S", 2):
        drawing.data("d")
    with drawing.groupby("K"):
        drawing.data("first")
    drawing.link("d", "K")
    assert edges(drawing, "K", "first") == [((i,), (i,)) for i in range(2)]


def test_invalid_group_bys_are_errors() -> None:
    """An unknown key is LG080, no scatter LG081, no input or two LG082."""
    assert errors(corner_turn(keys="S9")) == ["LG080"]
    drawing = Drawing().data("d")
    with drawing.groupby("K"):
        drawing.app("a")
    assert errors(drawing) == ["LG082"]
    assert errors(drawing.link("d", "K")) == ["LG081"]
    drawing = corner_turn()
    assert errors(drawing.link("m", "K")) == ["LG082"]


def looped_groups(keys: str | None = None, *, aware: bool = True) -> Drawing:
    """Scatter of 2 around a loop of 3, grouped."""
    drawing = Drawing()
    with drawing.scatter("S", 2), drawing.loop("L", 3):
        drawing.app("a", group_start=True).data("d", group_end=True, data_volume=5)
    with drawing.groupby("K", keys):
        drawing.app("ga").data("gd")
    return drawing.link("a", "d").link("ga", "gd").link("d", "K", aware=aware)


def test_a_loop_aware_edge_brings_the_last_iteration() -> None:
    """Each group holds the last iteration only, and is as large as that; not loop-aware, it holds all of them."""
    assert edges(looped_groups(), "d", "K") == [((i, 2), (i,)) for i in range(2)]
    assert edges(looped_groups(aware=False), "d", "K") == [((i, j), (i,)) for i in range(2) for j in range(3)]
    assert codes(looped_groups()) == codes(looped_groups(aware=False)) == []
    for aware, volume in ((True, 5), (False, 15)):
        (data,) = [
            template for template in outlined(looped_groups(aware=aware)).templates if template.name == "grpdata"
        ]
        assert data.weight == volume


def test_a_loop_that_a_key_names_keeps_its_iterations() -> None:
    """A group for each iteration: the edge leaves no loop, and the note LG062 mentions it."""
    drawing = looped_groups("L")
    assert edges(drawing, "d", "K") == [((i, j), (j,)) for i in range(2) for j in range(3)]
    assert codes(drawing) == ["LG062"]


def test_a_loop_aware_edge_enters_a_group_by_in_the_first_iteration() -> None:
    """A group-by in a loop groups data from outside in the first iteration only."""
    drawing = Drawing()
    with drawing.scatter("S", 2):
        drawing.data("d")
    with drawing.loop("L", 3):
        drawing.app("a", group_start=True).data("e", group_end=True).link("a", "e")
        with drawing.groupby("K"):
            drawing.app("ga").data("gd")
    drawing.link("ga", "gd").link("d", "K", aware=True)
    assert edges(drawing, "d", "K") == [((i,), (0, i)) for i in range(2)]
    assert codes(drawing) == []


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
    memory, copy = (template for template in outlined(drawing).templates if template.artificial)
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
    assert outlined(drawing).templates[-1].component == "dlg.data.drops.data_base.NullDROP"


def test_two_links_get_two_adapters() -> None:
    """Links between the same two nodes at different ports are two links, with ids of their own."""
    drawing = Drawing()
    drawing.app("a", one=Field(id="p", name="x", usage="OutputPort"), two=Field(id="r", name="y", usage="OutputPort"))
    drawing.app("b").link("a", "b", ports=("p", "")).link("a", "b", ports=("r", ""))
    graph = unroll(outlined(drawing))
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
