"""Applications of constructs become nodes, and links end on them."""

from typing import Any

import pytest

from tests.translator.documents import document, field, graph_of, link, node, port, scatter, small
from translator.logical import LogicalGraph, Role


def _two(links: list[dict[str, Any]]) -> LogicalGraph:
    """A construct with both applications, whose ports are named in the links, and one node inside and one outside."""
    construct = node(
        "M",
        "MKN",
        inputApplicationName="one",
        inputApplicationType="DALiuGEApp",
        outputApplicationName="two",
        outputApplicationType="PyFuncApp",
        inputApplicationId="I",
        outputApplicationId="O",
        inputAppFields=[port("i1", "a", "InputPort"), port("i2", "b", "OutputPort")],
        outputAppFields=[port("o1", "c", "InputPort"), port("o2", "d", "OutputPort")],
    )
    nodes = [construct, node("in", "Memory", parentId="M"), node("out", "Memory")]
    return graph_of(document(nodes, links))


def test_the_first_application_has_the_id_of_its_construct() -> None:
    """Its drops are named after the construct; it keeps its own name beside."""
    graph = graph_of(small())
    application = graph.by_id["A"]

    assert (application.key, application.name, application.app_name) == ("S", "name of S", "Split")
    assert (application.embedded_in, application.role, application.parent) == ("S", Role.INPUT, None)


def test_the_first_application_has_the_parameters_of_its_construct() -> None:
    """Its own fields come first, then those of the construct, such as the number of copies."""
    fields = [found.name for found in graph_of(small()).by_id["A"].fields]

    assert fields == ["whole", "piece", "dropclass", "num_of_copies"]


def test_the_construct_wins_where_names_are_equal() -> None:
    """A parameter that the construct and its application both have is the construct's; ports are not touched."""
    construct = scatter()
    construct["inputAppFields"] += [field("num_of_copies", 99), port("n", "num_of_copies", "OutputPort")]
    application = graph_of(document([construct])).by_id["A"]

    assert application.value("num_of_copies") == 3
    assert [found.id for found in application.fields if found.name == "num_of_copies"] == ["n", "F-num_of_copies"]


def test_a_second_application_has_a_key_of_its_own() -> None:
    """Only one application can stand for the construct; the other keeps its id, name and fields."""
    graph = _two([])

    assert [(app.id, app.key, app.name, app.role.value) for app in graph.embedded["M"]] == [
        ("I", "M", "name of M", "input"),
        ("O", "O", "two", "output"),
    ]


@pytest.mark.parametrize(
    ("source", "source_port", "target", "target_port", "expected"),
    [
        ("out", "", "M", "i1", ("out", "I")),
        ("M", "i2", "in", "", ("I", "in")),
        ("in", "", "M", "o1", ("in", "O")),
        ("M", "o2", "out", "", ("O", "out")),
        ("out", "", "M", "", ("out", "I")),
        ("M", "", "in", "", ("I", "in")),
        ("in", "", "M", "", ("in", "O")),
        ("M", "", "out", "", ("O", "out")),
        ("out", "", "O", "o1", ("out", "O")),
    ],
)
def test_links_are_attached_to_the_right_application(
    source: str, source_port: str, target: str, target_port: str, expected: tuple[str, str]
) -> None:
    """The application is chosen by its id, by the port, or by the side of the construct with the other end."""
    edge = _two([link(source, source_port, target, target_port)]).links[0]

    assert (edge.source, edge.target) == expected


@pytest.mark.parametrize("category", ["None", "", "Unknown", "UnknownApplication", None])
def test_placeholders_are_not_applications(category: str | None) -> None:
    """Links stay on a construct without application."""
    gather = node("G", "Gather", inputApplicationType=category, inputApplicationName="x", inputApplicationId="X")
    graph = graph_of(document([gather, node("a", "Memory")], [link("a", "", "G", "")]))

    assert list(graph.by_id) == ["G", "a"]
    assert graph.links[0].target == "G"


def test_ports_of_an_unusable_application_are_the_usable_ones() -> None:
    """A gather that writes through a port of its unknown output application writes through its input application."""
    gather = node(
        "G",
        "Gather",
        inputApplicationType="DALiuGEApp",
        inputApplicationId="A",
        inputAppFields=[port("i", "in", "InputPort")],
        outputApplicationType="UnknownApplication",
        outputApplicationId="U",
        outputAppFields=[port("o", "out", "OutputPort"), field("unused")],
    )
    graph = graph_of(document([gather, node("a", "Memory")], [link("G", "o", "a", ""), link("U", "o", "a", "")]))

    assert [edge.source for edge in graph.links] == ["A", "A"]
    assert [found.name for found in graph.by_id["A"].fields] == ["in", "out"]


def test_the_old_exit_application_is_the_output_application() -> None:
    """Files with exitApplication... mean the output application."""
    construct = node(
        "M", "MKN", exitApplicationType="DALiuGEApp", exitApplicationName="exit", exitAppFields=[field("x", 1)]
    )
    application = graph_of(document([construct])).embedded["M"][0]

    assert (application.id, application.role, application.app_name) == ("M-output", Role.OUTPUT, "exit")
    assert application.value("x") == 1


def test_an_application_never_takes_the_id_of_another_node() -> None:
    """An application whose id is used elsewhere gets one made of its construct's."""
    construct = {**scatter(), "inputApplicationId": "D"}
    graph = graph_of(document([node("D", "Memory"), construct]))

    assert graph.embedded["S"][0].id == "S-input"
    assert graph.by_id["D"].category == "Memory"


def test_only_constructs_have_applications() -> None:
    """An application in the attributes of a node that is not a construct is not a node, but its ports can be linked."""
    odd = node("a", "Memory", inputApplicationType="DALiuGEApp", inputAppFields=[port("p", "x", "InputPort")])
    graph = graph_of(document([odd]))

    assert list(graph.by_id) == ["a"]
    assert "p" in graph.by_id["a"].by_id
