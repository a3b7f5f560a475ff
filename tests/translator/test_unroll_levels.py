"""Groups of nested group-bys: small graphs, each with its edges worked out by hand from the definition.

A level is a position in the index space of a node. A group-by without a key makes one group for each index of the
innermost level of its input; with keys, one for each combination of the levels that they name. Levels around both the
group-by and its input are shared; levels around the group-by alone repeat its groups.
"""

import dataclasses
from typing import Any

import msgspec
import pytest

from dropflow.errors import InternalError
from dropflow.graph.templates import TWO_PORTS, Kind, Template
from tests.translator.drawing import Drawing, codes, edges, errors, outlined
from translator.logical import Field
from translator.unroll import unroll

Index = tuple[int, ...]
Edges = list[tuple[Index, ...]]


def repeated(key: str | None, copies: int = 1, app: str = "") -> Drawing:
    """S1(2) is repeated by K5 and by K7 inside K5, both inside S4; K10 groups what K7 holds."""
    drawing = Drawing()
    with drawing.scatter("S1", 2):
        drawing.data("d2")
    with drawing.scatter("S4", copies), drawing.groupby("K5"), drawing.groupby("K7", app=app):
        drawing.data("d9")
    with drawing.groupby("K10", key):
        drawing.data("d12")
    return drawing.link("d2", "K5").link("d2", app or "K7").link("d9", "K10")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, [((0, 0, 0), (0,)), ((0, 0, 1), (1,)), ((0, 1, 0), (0,)), ((0, 1, 1), (1,))]),
        ("K7", [((0, 0, 0), (0,)), ((0, 0, 1), (1,)), ((0, 1, 0), (0,)), ((0, 1, 1), (1,))]),
        ("K5", [((0, 0, 0), (0,)), ((0, 0, 1), (0,)), ((0, 1, 0), (1,)), ((0, 1, 1), (1,))]),
        ("K5,K7", [((0, 0, 0), (0, 0)), ((0, 0, 1), (0, 1)), ((0, 1, 0), (1, 0)), ((0, 1, 1), (1, 1))]),
        ("K7,K5", [((0, 0, 0), (0, 0)), ((0, 0, 1), (0, 1)), ((0, 1, 0), (1, 0)), ((0, 1, 1), (1, 1))]),
        ("S4", [((0, 0, 0), (0,)), ((0, 0, 1), (0,)), ((0, 1, 0), (0,)), ((0, 1, 1), (0,))]),
        ("S4,K7", [((0, 0, 0), (0, 0)), ((0, 0, 1), (0, 1)), ((0, 1, 0), (0, 0)), ((0, 1, 1), (0, 1))]),
    ],
)
def test_two_levels_that_repeat_one_scatter_are_two(key: str | None, expected: Edges) -> None:
    """d9 has three levels, S4, K5 and K7; each key selects its own, and no key the innermost, K7."""
    drawing = repeated(key)
    assert edges(drawing, "d2", "K5") == [((0,), (0, 0)), ((1,), (0, 1))]
    assert edges(drawing, "d2", "K7") == [
        ((0,), (0, 0, 0)),
        ((0,), (0, 1, 0)),
        ((1,), (0, 0, 1)),
        ((1,), (0, 1, 1)),
    ]
    assert edges(drawing, "d9", "K10") == expected


def test_an_ambiguous_key_is_refused() -> None:
    """S1 is repeated by K5 and by K7, so that the key is ambiguous."""
    drawing = repeated("S1")
    assert errors(drawing) == ["LG083"]
    (problem,) = (problem for problem in outlined(drawing).problems if problem.code == "LG083")
    assert "'S1' of group-by 'K10' names several levels" in problem.text
    assert "'K5' or 'K7'" in problem.hint


def unequal(key: str | None) -> Drawing:
    """K5 repeats S1(2), K7 inside it repeats S2(3); their content is grouped again."""
    drawing = Drawing()
    with drawing.scatter("S1", 2), drawing.scatter("S2", 3):
        drawing.data("d")
    with drawing.groupby("K5", "S1"), drawing.groupby("K7", "S2"):
        drawing.data("e")
    with drawing.groupby("K10", key):
        drawing.data("f")
    return drawing.link("d", "K5").link("d", "K7").link("e", "K10")


UNEQUAL: list[tuple[str | None, Edges]] = [
    (None, [((0, 0), (0,)), ((0, 1), (1,)), ((0, 2), (2,)), ((1, 0), (0,)), ((1, 1), (1,)), ((1, 2), (2,))]),
    ("S2", [((0, 0), (0,)), ((0, 1), (1,)), ((0, 2), (2,)), ((1, 0), (0,)), ((1, 1), (1,)), ((1, 2), (2,))]),
    ("K7", [((0, 0), (0,)), ((0, 1), (1,)), ((0, 2), (2,)), ((1, 0), (0,)), ((1, 1), (1,)), ((1, 2), (2,))]),
    ("S1", [((0, 0), (0,)), ((0, 1), (0,)), ((0, 2), (0,)), ((1, 0), (1,)), ((1, 1), (1,)), ((1, 2), (1,))]),
    ("K5", [((0, 0), (0,)), ((0, 1), (0,)), ((0, 2), (0,)), ((1, 0), (1,)), ((1, 1), (1,)), ((1, 2), (1,))]),
    ("S1,K7", [((i, j), (i, j)) for i in range(2) for j in range(3)]),
]


@pytest.mark.parametrize(("key", "expected"), UNEQUAL)
def test_a_scatter_that_one_level_repeats_names_that_level(key: str | None, expected: Edges) -> None:
    """Through a group-by, the scatter and the group-by are two names of one level."""
    drawing = unequal(key)
    assert edges(drawing, "d", "K5") == [
        ((0, 0), (0,)),
        ((0, 1), (0,)),
        ((0, 2), (0,)),
        ((1, 0), (1,)),
        ((1, 1), (1,)),
        ((1, 2), (1,)),
    ]
    assert sorted(edges(drawing, "d", "K7")) == sorted(
        [((a, j), (i, j)) for a in range(2) for i in range(2) for j in range(3)]
    )
    assert edges(drawing, "e", "K10") == expected


def chained(key: str | None) -> Drawing:
    """Groups of two keys are grouped by one, and these once more by `key`."""
    drawing = Drawing()
    with drawing.scatter("S1", 2), drawing.scatter("S2", 3):
        drawing.data("d")
    with drawing.groupby("K1", "S1,S2"):
        drawing.data("e")
    with drawing.groupby("K2", "S2"):
        drawing.data("f")
    with drawing.groupby("K3", key):
        drawing.data("g")
    return drawing.link("d", "K1").link("e", "K2").link("f", "K3")


@pytest.mark.parametrize("key", [None, "K2", "K1", "S2"])
def test_a_level_keeps_its_names_through_a_chain(key: str | None) -> None:
    """K2 repeats the level of K1 that repeats S2: one level, for which all three names are keys."""
    drawing = chained(key)
    assert edges(drawing, "d", "K1") == [((i, j), (i, j)) for i in range(2) for j in range(3)]
    assert edges(drawing, "e", "K2") == [((i, j), (j,)) for i in range(2) for j in range(3)]
    assert edges(drawing, "f", "K3") == [((0,), (0,)), ((1,), (1,)), ((2,), (2,))]


def test_a_level_that_was_grouped_away_is_not_a_key() -> None:
    """K2 makes no groups of S1, so that K3 cannot group by it; the hint lists the possible keys."""
    drawing = chained("S1")
    assert errors(drawing) == ["LG080"]
    assert "'K2'" in outlined(drawing).problems[-1].hint


def test_a_group_by_of_two_keys_has_two_levels() -> None:
    """Its own name is no key for one level; the names of the scatters that its levels repeat are."""
    drawing = Drawing()
    with drawing.scatter("S1", 2), drawing.scatter("S2", 3):
        drawing.data("d")
    with drawing.groupby("K1", "S1,S2"):
        drawing.data("e")
    with drawing.groupby("K2", "K1"):
        drawing.data("f")
    drawing.link("d", "K1").link("e", "K2")
    assert errors(drawing) == ["LG083"]
    assert "'S1' or 'S2'" in outlined(drawing).problems[-1].hint


def test_without_a_key_the_innermost_of_three_counts() -> None:
    """Three scatters: as many groups as copies of the innermost, each with all of the others, row by row."""
    drawing = Drawing()
    with drawing.scatter("S1", 2), drawing.scatter("S2", 1), drawing.scatter("S3", 3):
        drawing.data("d")
    with drawing.groupby("K"):
        drawing.data("e")
    assert edges(drawing.link("d", "K"), "d", "K") == [
        ((0, 0, 0), (0,)),
        ((0, 0, 1), (1,)),
        ((0, 0, 2), (2,)),
        ((1, 0, 0), (0,)),
        ((1, 0, 1), (1,)),
        ((1, 0, 2), (2,)),
    ]


@pytest.mark.parametrize(("key", "level"), [(None, 2), ("S2", 2), ("S1", 1)])
def test_levels_around_both_are_shared(key: str | None, level: int) -> None:
    """In a group-by inside S0, each copy of S0 makes its own groups."""
    drawing = Drawing()
    with drawing.scatter("S0", 2):
        with drawing.scatter("S1", 2), drawing.scatter("S2", 3):
            drawing.data("d")
        with drawing.groupby("K", key):
            drawing.data("e")
    expected = [((s, i, j), (s, (s, i, j)[level])) for s in range(2) for i in range(2) for j in range(3)]
    assert edges(drawing.link("d", "K"), "d", "K") == expected


def test_a_group_by_beside_a_nested_one_sees_the_groups_of_the_outer() -> None:
    """Data of K5 grouped inside K5: the level of K5 is shared, that of the scatter in it is grouped."""
    drawing = Drawing()
    with drawing.scatter("S1", 2):
        drawing.data("d")
    with drawing.groupby("K5"):
        drawing.data("e")
        with drawing.scatter("S2", 3):
            drawing.data("x")
        with drawing.groupby("K7"):
            drawing.data("f")
    drawing.link("d", "K5").link("x", "K7")
    assert codes(drawing) == []
    assert edges(drawing, "x", "K7") == [((i, j), (i, j)) for i in range(2) for j in range(3)]


def named(*names: str, key: str) -> Drawing:
    """Scatters of 2 and 3 inside each other, grouped; the scatters are called `names`."""
    drawing = Drawing()
    with drawing.scatter("S1", 2), drawing.scatter("S2", 3):
        drawing.data("d")
    with drawing.groupby("K", key):
        drawing.data("e")
    calls = dict(zip(("S1", "S2"), names, strict=True))
    drawing.nodes = [msgspec.structs.replace(node, name=calls.get(node.id, node.name)) for node in drawing.nodes]
    return drawing.link("d", "K")


def test_a_name_of_two_nodes_is_refused() -> None:
    """For two scatters of one name the hint has their ids."""
    drawing = named("Scatter", "Scatter", key="Scatter")
    assert errors(drawing) == ["LG083"]
    assert "'S1' or 'S2'" in outlined(drawing).problems[-1].hint


@pytest.mark.parametrize(("key", "level"), [("S1", 0), ("S2", 1)])
def test_ids_distinguish_nodes_of_one_name(key: str, level: int) -> None:
    """The keys in the hint of LG083 are accepted."""
    everything = [(i, j) for i in range(2) for j in range(3)]
    drawing = named("Scatter", "Scatter", key=key)
    assert edges(drawing, "d", "K") == [(index, (index[level],)) for index in everything]


def test_a_name_outside_of_the_input_is_not_ambiguous() -> None:
    """A scatter of the same name that is not around the input makes no key ambiguous."""
    drawing = named("Time", "Channel", key="Time")
    with drawing.scatter("Time", 5):
        drawing.data("other")
    assert edges(drawing, "d", "K") == [((i, j), (i,)) for i in range(2) for j in range(3)]


def test_a_key_around_both_is_reported_as_such() -> None:
    """S1 is around the input, and around the group-by as well: the reason given is that, and the hint offers S2."""
    drawing = Drawing()
    with drawing.scatter("S1", 2):
        with drawing.scatter("S2", 3):
            drawing.data("x")
        with drawing.groupby("K", "S1"):
            drawing.data("e")
    drawing.link("x", "K")
    (problem,) = outlined(drawing).problems
    assert problem.code == "LG080"
    assert "around both" in problem.text
    assert problem.hint == "write 'S2'"


def test_data_from_outside_an_outer_group_by_are_warned_of() -> None:
    """Each group of K5 gets all groups of K7 over the same data, which is a warning."""
    problems: list[Any] = [problems for problems in outlined(unequal(None)).problems if problems.code == "LG084"]
    assert [problem.severity.value for problem in problems] == ["warning"]
    assert problems[0].text == "group-by 'K7' is in group-by 'K5', but its input is outside"


def test_levels_of_scatters_around_the_group_by_alone_repeat_its_groups() -> None:
    """K inside S4(2), its input not: both copies of S4 get every group."""
    drawing = Drawing()
    with drawing.scatter("S1", 3):
        drawing.data("d")
    with drawing.scatter("S4", 2), drawing.groupby("K"):
        drawing.data("e")
    assert sorted(edges(drawing.link("d", "K"), "d", "K")) == sorted(((j,), (s, j)) for s in range(2) for j in range(3))


def test_the_volume_of_a_group_is_the_sum_of_its_members() -> None:
    """Levels around the group-by that its input does not have do not reduce the volume of its groups."""
    drawing = Drawing()
    with drawing.scatter("S1", 4), drawing.scatter("S2", 3):
        drawing.data("d", data_volume=5)
    with drawing.scatter("S4", 2), drawing.groupby("K"):
        drawing.app("a")
    with drawing.groupby("K5", "S1"), drawing.groupby("K7", "S2"):
        drawing.app("b")
    made = outlined(drawing.link("d", "K").link("d", "K5").link("d", "K7"))
    weights = {group.key: group.weight for group in made.templates if group.name == "grpdata"}
    assert weights == {"K-grp-data": 20.0, "K5-grp-data": 15.0, "K7-grp-data": 20.0}


def test_an_invalid_plan_is_an_internal_error() -> None:
    """An index map that leads into another template raises InternalError."""
    made = outlined(Drawing().data("a").app("b").data("c").link("a", "b", "c"))
    stray = msgspec.structs.replace(made.maps[0], target_start=1)
    wrong = dataclasses.replace(made, maps=(stray, *made.maps[1:]))
    with pytest.raises(InternalError, match=r"'a' to 'b' lead outside their templates.*please report it"):
        unroll(wrong)


def template(drawing: Drawing) -> Template:
    """The first template of a drawing."""
    return outlined(drawing).templates[0]


def test_fields_become_settings_of_the_template() -> None:
    """What the engine and the partitioner need is read from fields by their canonical names."""
    made = template(
        Drawing().app(
            "a",
            execution_time=2.5,
            num_cpus=4,
            input_error_threshold=20,
            n_tries=3,
            n_effective_inputs=2,
            block_skip="1",
            dropclass=" my.App ",
        )
    )
    assert (made.key, made.name, made.kind, made.component) == ("a", "a", Kind.APP, "my.App")
    assert (made.weight, made.cpus, made.error_threshold) == (2.5, 4, 20.0)
    assert (made.tries, made.effective_inputs, made.block_skip) == (3, 2, True)


@pytest.mark.parametrize(("values", "persist"), [({}, None), ({"persist": True}, True), ({"precious": "0"}, False)])
def test_persist_is_none_unless_the_graph_sets_it(values: dict[str, object], persist: bool | None) -> None:  # noqa: FBT001 - an expectation
    """`persist`, or `precious` in old graphs, sets `persist` of the template; without both it is None."""
    assert template(Drawing().data("d", **values)).persist is persist


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("execution_time", "long", "LG091"),
        ("execution_time", -1, "LG093"),
        ("execution_time", float("inf"), "LG093"),
        ("num_cpus", 0, "LG093"),
        ("num_cpus", 1.5, "LG091"),
        ("n_tries", "x" * 500, "LG091"),
        ("input_error_threshold", 101, "LG093"),
    ],
)
def test_invalid_values_are_replaced_with_a_warning(name: str, value: object, code: str) -> None:
    """A bad number gives the default and a short warning, and does not stop the translation."""
    drawing = Drawing().app("a", **{name: value})
    assert codes(drawing) == [code]
    made = template(drawing)
    assert (made.weight, made.cpus, made.tries, made.error_threshold) == (1.0, 1, 1, 0.0)
    assert len(outlined(drawing).problems[0].text) < 200


@pytest.mark.parametrize(
    ("category", "component"),
    [
        ("File", "dlg.data.drops.file.FileDROP"),
        ("Memory", "dlg.data.drops.memory.InMemoryDROP"),
        ("SharedMemory", "dlg.data.drops.memory.SharedMemoryDROP"),
        ("Whatever", "dlg.data.drops.memory.InMemoryDROP"),
    ],
)
def test_data_without_a_class_get_that_of_their_category(category: str, component: str) -> None:
    """Most data nodes of old graphs have no class; it follows from the category."""
    assert template(Drawing().data("d", category=category)).component == component


def test_an_application_without_class_sleeps_with_a_warning() -> None:
    """It becomes a SleepApp as in DALiuGE, with a warning."""
    drawing = Drawing().app("a", dropclass="")
    assert template(drawing).component == "dlg.apps.simple.SleepApp"
    assert codes(drawing) == ["LG093"]
    assert template(Drawing().app("a", category="BashShellApp", dropclass="")).component.endswith("BashShellApp")


@pytest.mark.parametrize(
    ("field", "value", "component"),
    [
        ("func_name", "is_large", "Branch"),
        ("func_code", "def is_large(x): return x > 9", "Branch"),
        ("func_name", "", "BranchApp"),
    ],
)
def test_a_branch_without_a_class_calls_its_function(field: str, value: str, component: str) -> None:
    """The class of old branches, which have none, would ignore it."""
    drawing = Drawing().app("a", category="Branch", dropclass=None, **{field: value})

    assert template(drawing).component == f"dlg.apps.branch.{component}"


def test_every_field_becomes_one_argument() -> None:
    """Values fall back on defaults; ports in and out of one name become one argument, which is not a port for both."""
    made = template(
        Drawing().app(
            "a",
            text=Field(id="1", name="text", value="", default="hello", parameter_type="ApplicationArgument"),
            into=Field(id="2", name="io", usage="InputPort", encoding="npy", type="Object.array"),
            out=Field(id="3", name="io", usage="OutputPort"),
            both=Field(id="4", name="both", usage="InputOutput"),
        )
    )
    text, io, both = made.argument("text"), made.argument("io"), made.argument("both")
    assert text is not None
    assert (text.value, text.default, text.parameter_type, text.is_port) == (
        "hello",
        "hello",
        "ApplicationArgument",
        False,
    )
    assert io is not None
    assert (io.usage, io.encoding, io.type) == (TWO_PORTS, "npy", "Object.array")
    assert both is not None
    assert both.usage == "InputOutput"
    assert len({argument.name for argument in made.arguments}) == len(made.arguments)


def test_the_field_streaming_makes_links_stream() -> None:
    """The field `streaming` of data makes the links to their consumers streaming links."""
    outline = outlined(Drawing().app("w").data("d", streaming="true").app("r").link("w", "d", "r"))
    assert [link.streaming for link in outline.links] == [False, True]


def test_axes_name_the_constructs_of_the_index_space() -> None:
    """A template names the constructs of its index space, outermost first."""
    drawing = Drawing()
    with drawing.scatter("S", 2), drawing.loop("L", 3):
        drawing.app("a", group_start=True).data("d", group_end=True)
    made = template(drawing.link("a", "d"))
    assert [(axis.name, axis.kind, axis.size) for axis in made.axes] == [("S", "scatter", 2), ("L", "loop", 3)]
