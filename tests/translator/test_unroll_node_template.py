import pytest

from dropflow.graph.templates import Kind, Template
from tests.translator.drawing import Drawing
from tests.translator.unrolled import codes, planned
from translator.logical import Field


def template(drawing: Drawing) -> Template:
    """The first template of a drawing."""
    return planned(drawing).templates[0]


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
    assert len(planned(drawing).problems[0].text) < 200


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


def test_every_field_becomes_one_argument() -> None:
    """Values fall back on defaults; ports in and out of one name become one argument for both directions."""
    made = template(
        Drawing().app(
            "a",
            text=Field(id="1", name="text", value="", default="hello", parameter_type="ApplicationArgument"),
            into=Field(id="2", name="io", usage="InputPort", encoding="npy", type="Object.array"),
            out=Field(id="3", name="io", usage="OutputPort"),
        )
    )
    text, io = made.argument("text"), made.argument("io")
    assert text is not None
    assert (text.value, text.default, text.parameter_type, text.is_port) == (
        "hello",
        "hello",
        "ApplicationArgument",
        False,
    )
    assert io is not None
    assert (io.usage, io.encoding, io.type) == ("InputOutput", "npy", "Object.array")
    assert len({argument.name for argument in made.arguments}) == len(made.arguments)


def test_the_field_streaming_makes_links_stream() -> None:
    """The field `streaming` of data makes the links to their consumers streaming links."""
    plan = planned(Drawing().app("w").data("d", streaming="true").app("r").link("w", "d", "r"))
    assert [link.streaming for link in plan.links] == [False, True]


def test_axes_name_the_constructs_of_the_index_space() -> None:
    """A template names the constructs of its index space, outermost first."""
    drawing = Drawing()
    with drawing.scatter("S", 2), drawing.loop("L", 3):
        drawing.app("a", group_start=True).data("d", group_end=True)
    made = template(drawing.link("a", "d"))
    assert [(axis.name, axis.kind, axis.size) for axis in made.axes] == [("S", "scatter", 2), ("L", "loop", 3)]
