"""The kind of a node follows from its category."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from dropflow.failure import Severity
from tests.corpus import corpus_files, needs_corpus, often
from tests.eagle_rules import wrong_edges, wrong_nodes
from tests.translator.documents import (
    codes,
    document,
    errors,
    field,
    graph_of,
    link,
    node,
    port,
    read,
    scatter,
    small,
    wide,
)
from tests.translator.random_graphs import logical_graphs
from translator.formats import Family, read_logical
from translator.formats.dump import dump
from translator.formats.vocabulary import KINDS, canonical_category, canonical_class, canonical_fields
from translator.logical import Field, LogicalGraph, NodeKind, Role
from translator.validate import validate


def _kinds(content: object) -> list[str]:
    """Return the kinds of the nodes of a document."""
    graph = read(content).graph
    assert graph is not None
    return [node_.kind.value for node_ in graph.nodes]


@pytest.mark.parametrize("category", ["Plasma", "PlasmaFlight", "RDBMS", "S3", "null", "json"])
def test_services_and_stores_hold_data(category: str) -> None:
    """Categories of data give data drops, independent of the type of the category."""
    assert _kinds(document([node("a", category, categoryType="Service")])) == ["data"]


def test_the_category_decides_and_not_its_type() -> None:
    """A wrong categoryType has no effect."""
    assert _kinds(document([node("a", "Memory", categoryType="Application")])) == ["data"]


def test_an_unknown_category_is_an_error_with_a_suggestion() -> None:
    """A misspelled category gives LG030 with its place and a similar name."""
    problems = read(document([node("a", "Scater")])).problems

    assert errors(problems) == ["LG030"]
    assert problems[0].where == "/nodeDataArray/0/category"
    assert "did you mean 'Scatter'?" in problems[0].hint


def test_all_unknown_categories_are_reported_together() -> None:
    """Each node of unknown category is named."""
    assert errors(read(document([node("a", "Foo"), node("b", "Bar"), node("c", "Memory")])).problems) == ["LG030"] * 2


@pytest.mark.parametrize("category", ["Unknown", "None", ""])
@pytest.mark.parametrize(
    ("more", "fields", "kind"),
    [
        ({"categoryType": "Data"}, [], "data"),
        ({"categoryType": "Application"}, [], "app"),
        ({}, [field("dropclass", "dlg.data.drops.memory.InMemoryDROP")], "data"),
        ({}, [field("appclass", "dlg.apps.simple.CopyApp")], "app"),
        ({}, [], "app"),
    ],
    ids=["type data", "type app", "class data", "class app", "neighbours"],
)
def test_an_undecided_category_is_guessed_with_a_warning(
    category: str, more: dict[str, str], fields: list[dict[str, object]], kind: str
) -> None:
    """Type, class and neighbours determine the kind of a node of category Unknown, with a finding."""
    reading = read(document([node("a", category, *fields, **more), node("b", "Memory")], [link("b", "", "a", "")]))

    assert reading.graph is not None
    assert reading.graph.by_id["a"].kind.value == kind
    assert codes(reading.problems) == ["LG030"]
    assert errors(reading.problems) == []


@pytest.mark.parametrize(("names", "count"), [("a", "1 node "), ("abc", "3 nodes ")])
def test_renamed_categories_are_reported_once_each(names: str, count: str) -> None:
    """One warning for all nodes of an old category, however many there are."""
    problems = read(document([node(name, "PythonApp") for name in names])).problems

    assert codes(problems) == ["LG031"]
    assert count in problems[0].text


def _named(category: str, *names: tuple[str, object]) -> dict[str, object]:
    """Names and values of fields after migration."""
    fields = tuple(Field(id=str(place), name=name, value=value) for place, (name, value) in enumerate(names))
    return {field.name: field.value for field in canonical_fields(fields, category, KINDS[category], {})}


@pytest.mark.parametrize(
    ("category", "old", "new"),
    [
        ("Scatter", "num_of_splits", "num_of_copies"),
        ("Scatter", "Number of copies", "num_of_copies"),
        ("Scatter", "Number of Splits", "num_of_copies"),
        ("Gather", "Number of inputs", "num_of_inputs"),
        ("GroupBy", "number_of_inputs", "num_of_inputs"),
        ("Loop", "Number of Iterations", "num_of_iter"),
        ("Loop", "Number loops", "num_of_iter"),
        ("DALiuGEApp", "Execution Time", "execution_time"),
        ("DALiuGEApp", "execution time", "execution_time"),
        ("DALiuGEApp", "No. of CPUs", "num_cpus"),
        ("DALiuGEApp", "Num CPUs", "num_cpus"),
        ("DALiuGEApp", "Number of CPUs", "num_cpus"),
        ("DALiuGEApp", "Number of effective inputs", "n_effective_inputs"),
        ("DALiuGEApp", "Input error threshold (0 and 100)", "input_error_threshold"),
        ("DALiuGEApp", "Group start", "group_start"),
        ("DALiuGEApp", "Application Class", "dropclass"),
        ("DALiuGEApp", "Appclass", "dropclass"),
        ("DALiuGEApp", "Number of tries", "n_tries"),
        ("DALiuGEApp", "Input error rate (%)", "input_error_threshold"),
        ("PyFuncApp", "Function Name", "func_name"),
        ("Memory", "Data volume", "data_volume"),
        ("Memory", "Data class", "dropclass"),
        ("Memory", "Group End", "group_end"),
        ("Memory", "Persist", "persist"),
        ("Memory", "Streaming", "streaming"),
        ("Mpi", "num_of_procs", "num_of_procs"),
        # Where a name means nothing it is the user's own.
        ("DALiuGEApp", "Number of copies", "Number of copies"),
        ("Memory", "Execution time", "Execution time"),
        ("DALiuGEApp", "Persist", "Persist"),
    ],
)
def test_old_names_are_replaced(category: str, old: str, new: str) -> None:
    """Case, blanks, dashes and old display names do not matter for what the translator reads."""
    assert _named(category, (old, 1)) == {new: 1}


def test_a_present_name_has_priority_over_an_old_one() -> None:
    """Where a node has both, the field with the canonical name stays."""
    assert _named("Scatter", ("Number of copies", 2), ("num_of_copies", 3)) == {"num_of_copies": 3}


def test_an_old_name_with_a_value_has_priority_over_an_empty_field() -> None:
    """A canonical field without value gives way to an older one that has one."""
    assert _named("DALiuGEApp", ("dropclass", ""), ("appclass", "my.App")) == {"dropclass": "my.App"}


def test_ports_keep_their_names() -> None:
    """The name of a port is not replaced, even if it is an old name of a parameter."""
    port = Field(id="p", name="Group start", usage="InputPort")

    assert canonical_fields((port,), "DALiuGEApp", NodeKind.APP, {}) == (port,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dfms.apps.simple.CopyApp", "dlg.apps.simple.CopyApp"),
        ("apps.simple.CopyApp", "dlg.apps.simple.CopyApp"),
        ("test.graphsRepository", ""),
        (" my.App ", "my.App"),
        ("dlg.apps.simple.CopyApp", "dlg.apps.simple.CopyApp"),
    ],
)
def test_old_classes_are_renamed(old: str, new: str) -> None:
    """Old prefixes are replaced, and placeholders of a missing class become empty."""
    assert canonical_class(old) == new


@pytest.mark.parametrize(
    ("old", "dropclass", "new"),
    [
        ("SplitData", "", "Scatter"),
        ("memory", "", "Memory"),
        ("Description", "", "Comment"),
        ("EnvironmentVariables", "", "GlobalVariables"),
        ("PythonApp", "dlg.apps.pyfunc.PyFuncApp", "PyFuncApp"),
        ("PythonApp", "my.App", "DALiuGEApp"),
        ("Component", "", "DALiuGEApp"),
        ("scatter", "", "Scatter"),
        ("NoSuchThing", "", "NoSuchThing"),
    ],
)
def test_old_categories_are_renamed(old: str, dropclass: str, new: str) -> None:
    """Old categories are renamed, general applications by their class; unknown ones stay."""
    assert canonical_category(old, dropclass) == new


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
    fields = [field_.name for field_ in graph_of(small()).by_id["A"].fields]

    assert fields == ["whole", "piece", "dropclass", "num_of_copies"]


def test_the_construct_wins_where_names_are_equal() -> None:
    """A parameter that the construct and its application both have is the construct's; ports are not touched."""
    construct = scatter()
    construct["inputAppFields"] += [field("num_of_copies", 99), port("n", "num_of_copies", "OutputPort")]
    application = graph_of(document([construct])).by_id["A"]

    assert application.value("num_of_copies") == 3
    assert [field_.id for field_ in application.fields if field_.name == "num_of_copies"] == ["n", "F-num_of_copies"]


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
    assert [field_.name for field_ in graph.by_id["A"].fields] == ["in", "out"]


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


# Graphs that are written and read again.


FAMILIES = (Family.OJS_ID, Family.V4)


def without_places(graph: LogicalGraph) -> LogicalGraph:
    """Return a graph without its family and its pointers into a document."""
    nodes = [
        replace(node, pointer="", fields=tuple(replace(field, pointer="") for field in node.fields))
        for node in graph.nodes
    ]
    configurations = tuple(
        replace(configuration, values=tuple((*value[:3], "") for value in configuration.values))
        for configuration in graph.configurations
    )
    return replace(
        graph,
        family="",
        nodes=tuple(sorted(nodes, key=lambda node: node.id)),
        links=tuple(replace(link, pointer="") for link in graph.links),
        configurations=configurations,
        description=graph.description.removeprefix(f"The graph {graph.name}."),  # what is written if there is none
    )


def again(graph: LogicalGraph, family: Family) -> LogicalGraph:
    """Return a graph that was written and read."""
    reading = read_logical(json.dumps(dump(graph, family)).encode(), name=graph.name)
    assert reading.family in (family, Family.EMPTY)
    assert reading.graph is not None
    return reading.graph


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("content", [small(), wide()], ids=["small", "wide"])
def test_a_graph_that_is_written_is_read_as_the_same(content: dict[str, object], family: Family) -> None:
    """Nodes, applications of constructs, fields, links and configurations are the same."""
    graph = graph_of(content)
    assert without_places(again(graph, family)) == without_places(graph)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@given(graph=logical_graphs())
@settings(max_examples=50)
def test_any_graph_is_read_as_the_same(family: Family, graph: LogicalGraph) -> None:
    """A second reading changes nothing: names, kinds and ids are canonical after the first."""
    once = again(graph, family)
    assert without_places(again(once, family)) == without_places(once)
    assert [link.target for link in once.links] == [link.target for link in graph.links]


@needs_corpus
@pytest.mark.parametrize("path", often(corpus_files()), ids=lambda path: path.name)
def test_graphs_of_the_community_are_read_as_the_same(path: Path) -> None:
    """Every logical graph of the corpus is the same after it was written, in both families."""
    graph = read_logical(path.read_bytes(), name="g").graph
    if graph is None or any(
        finding.code == "LG006" for finding in validate(graph) if finding.severity is Severity.ERROR
    ):
        return
    for family in FAMILIES:
        assert without_places(again(graph, family)) == without_places(graph)


def test_only_new_families_are_written() -> None:
    """Other families are refused with the two that exist."""
    with pytest.raises(ValueError, match="use OJS-id or V4"):
        dump(graph_of(small()), Family.GOJS)


@pytest.mark.parametrize("path", sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.graph")), ids=str)
def test_a_graph_that_is_written_keeps_the_rules_of_eagle(path: Path) -> None:
    """Fields have all attributes that EAGLE checks, edges join ports of one type, and descriptions are kept."""
    graph = read_logical(path.read_bytes(), name=path.stem).graph
    assert graph is not None
    content = dump(graph)
    before = json.loads(path.read_bytes())

    assert wrong_nodes(content["nodeDataArray"]) == []
    assert wrong_edges(content) == []
    for here, there in zip(content["nodeDataArray"], before["nodeDataArray"], strict=True):
        assert set(here) >= set(there) - {"color", "drawOrderHint"}
        assert here["description"] == there["description"]
    assert content["modelData"]["shortDescription"]
    for name in ("detailedDescription", "numLGNodes"):
        assert content["modelData"][name] == before["modelData"][name]
    assert set(content["modelData"]) == set(before["modelData"])
    assert without_places(again(graph, Family.V4)) == without_places(graph)
