"""Files of all generations give the same graph."""

from typing import Any

import pytest
from msgspec.structs import asdict

from tests.translator.documents import codes, document, field, graph_of, link, node, port, read, small
from translator.formats import Family
from translator.logical import LogicalGraph, NodeKind


def _pair(identity: str, one: Any, other: Any, **more: Any) -> dict[str, Any]:
    """Memory and an application that reads it, identified by `identity`."""
    return document(
        [
            {identity: one, "name": "data", "category": "Memory", "fields": [port("p", "io", "InputOutput")]},
            {identity: other, "name": "work", "category": "DALiuGEApp", "fields": [port("q", "in", "InputPort")]},
        ],
        [link(one, "p", other, "q", **more)],
    )


@pytest.mark.parametrize(
    ("identity", "one", "other", "ids"),
    [
        ("id", "a", "b", ("a", "b")),
        ("oid", 7, 8, ("7", "8")),
        ("oid", "x-1", "x-2", ("x-1", "x-2")),
        ("key", -1, -2, ("k-1", "k-2")),
    ],
)
def test_links_find_their_nodes_by_any_identity(identity: str, one: Any, other: Any, ids: tuple[str, str]) -> None:
    """Ids, oids and keys all become ids as text, at nodes and at links."""
    graph = graph_of(_pair(identity, one, other))

    assert tuple(graph.by_id) == ids
    assert [(edge.source, edge.target) for edge in graph.links] == [ids]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("1", True), (1, True), (True, True), ("True", True), ("0", False), (0, False), (False, False), (None, False)],
)
def test_flags_of_links_are_read_in_all_spellings(written: Any, meant: bool) -> None:  # noqa: FBT001 - the expectation
    """Flags may be truth values, numbers or texts."""
    edge = graph_of(_pair("id", "a", "b", loop_aware=written, closesLoop=written)).links[0]

    assert (edge.loop_aware, edge.closes_loop) == (meant, meant)


def _before_ojs() -> LogicalGraph:
    """A file from before the OJS family: keys, groups, texts, lists of ports and of arguments, old names."""
    return graph_of(
        {
            "class": "go.GraphLinksModel",
            "copiesArrays": True,
            "modelData": {"fileType": "graph"},
            "nodeDataArray": [
                {
                    "key": -1,
                    "text": "in",
                    "category": "memory",
                    "categoryType": "DataDrop",
                    "outputPorts": [{"Id": "o", "IdText": "event"}],
                    "precious": True,
                    "fields": [{"name": "Data volume", "text": "Data volume", "value": "5"}],
                },
                {
                    "key": -2,
                    "text": "split",
                    "category": "SplitData",
                    "isGroup": True,
                    "application": "Component",
                    "inputAppName": "splitter",
                    "appFields": [{"name": "appclass", "value": "dfms.apps.simple.CopyApp"}],
                    "inputPorts": [{"Id": "i", "IdText": "whole"}],
                    "inputLocalPorts": [{"Id": "l", "IdText": "piece", "event": True}],
                    "fields": [{"name": "num_of_splits", "value": "3"}],
                },
                {
                    "key": -3,
                    "group": -2,
                    "text": "work",
                    "category": "Component",
                    "inputPorts": [{"Id": "w", "IdText": "read"}],
                    "applicationArgs": [{"name": "depth", "value": "2"}],
                    "fields": [
                        {"name": "Execution time", "value": "7"},
                        {"name": "appclass", "value": "test.graphsRepository"},
                    ],
                },
            ],
            "linkDataArray": [
                {"from": -1, "fromPort": "o", "to": -2, "toPort": "i"},
                {"from": -2, "fromPort": "piece", "to": -3, "toPort": "w"},
            ],
        }
    )


def test_the_oldest_files_are_migrated() -> None:
    """Keys, groups, texts and old categories become ids, parents, names and the categories of today."""
    graph = _before_ojs()

    assert graph.family == Family.GOJS.value
    assert [(n.id, n.name, n.category, n.kind.value, n.parent) for n in graph.nodes] == [
        ("k-1", "in", "Memory", "data", None),
        ("k-2", "split", "Scatter", "construct", None),
        ("k-2-input", "split", "DALiuGEApp", "app", None),
        ("k-3", "work", "DALiuGEApp", "app", "k-2"),
    ]


def test_lists_of_ports_become_fields_of_the_right_application() -> None:
    """Outer and inner ports of a construct go to its application, with direction and kind."""
    application = _before_ojs().by_id["k-2-input"]

    ports = [(port.id, port.name, port.usage, port.type) for port in application.fields if port.is_port]
    assert ports == [("i", "whole", "InputPort", "Object"), ("l", "piece", "OutputPort", "Event")]
    assert application.app_name == "splitter"
    assert application.value("dropclass") == "dlg.apps.simple.CopyApp"


def test_old_links_may_name_ports() -> None:
    """A link that gives the name of a port ends at that port."""
    assert [(edge.target, edge.source_port) for edge in _before_ojs().links] == [("k-2-input", "o"), ("k-3", "l")]


def test_old_names_of_parameters_are_replaced() -> None:
    """Aliases become canonical names, arguments are marked as such, and a class that means none becomes empty."""
    graph = _before_ojs()
    work = graph.by_id["k-3"]

    assert graph.by_id["k-1"].value("data_volume") == "5"
    assert graph.by_id["k-1"].value("persist") is True
    assert graph.by_id["k-2"].value("num_of_copies") == "3"
    assert work.value("execution_time") == "7"
    assert work.by_name["depth"].parameter_type == "ApplicationArgument"
    assert work.value("dropclass", "none") == "none"


def test_migration_is_reported() -> None:
    """A file of an older family gives one LG002 that lists the migrations."""
    reading = read(_pair("key", -1, -2))

    assert codes(reading.problems) == ["LG002"]
    assert "identified by 'key'" in reading.problems[0].text


def test_sides_of_nodes_are_not_ports() -> None:
    """The side of a node in the oldest links is not a port."""
    nodes = [node("a", "Memory"), node("b", "DALiuGEApp")]

    edge = graph_of(document(nodes, [link("a", "B", "b", "T")])).links[0]
    assert (edge.source_port, edge.target_port) == ("", "")


def test_one_id_in_both_lists_is_a_port_for_both_ways() -> None:
    """A port in the lists of inputs and outputs has the usage InputOutput."""
    both = {"inputPorts": [{"Id": "x", "IdText": "io"}], "outputPorts": [{"Id": "x", "IdText": "io"}]}
    graph = graph_of(document([{**node("a", "Memory"), **both}]))

    assert [(port.name, port.usage) for port in graph.by_id["a"].fields] == [("io", "InputOutput")]


@pytest.mark.parametrize(
    ("given", "usage", "parameter_type"),
    [
        ({"fieldType": "ApplicationArgument"}, "NoPort", "ApplicationArgument"),
        ({"fieldType": "InputPort"}, "InputPort", "ApplicationArgument"),
        ({"fieldType": "InputPort", "usage": "OutputPort"}, "OutputPort", "ApplicationArgument"),
        ({"parameterType": "Constraint"}, "NoPort", "ConstraintParameter"),
        ({"parameterType": "Unknown"}, "NoPort", "ComponentParameter"),
        ({}, "NoPort", "ComponentParameter"),
    ],
)
def test_the_kind_of_a_field_is_read_in_all_spellings(given: dict[str, str], usage: str, parameter_type: str) -> None:
    """`fieldType`, `usage`, `parameterType` and V4's short forms all say whether a field is a port, and what for."""
    graph = graph_of(document([node("a", "DALiuGEApp", {"name": "x", "value": 1, **given})]))

    field_ = graph.by_id["a"].fields[0]
    assert (field_.usage, field_.parameter_type) == (usage, parameter_type)


def test_fields_without_ids_get_unique_ids() -> None:
    """Ids of fields are made where the file has none, and are unique in the graph."""
    graph = graph_of(document([node("a", "File", {"name": "x"}, {"name": "y"}), node("b", "File", {"name": "x"})]))

    ids = [field_.id for n in graph.nodes for field_ in n.fields]
    assert len(set(ids)) == 3


def test_pointers_lead_into_the_file() -> None:
    """Nodes, fields and links have JSON pointers to their places in the file."""
    graph = graph_of(_pair("id", "a", "b"))

    assert graph.by_id["b"].pointer == "/nodeDataArray/1"
    assert graph.by_id["b"].fields[0].pointer == "/nodeDataArray/1/fields/0"
    assert graph.links[0].pointer == "/linkDataArray/0"


def test_notes_and_control_nodes_are_removed_with_their_links() -> None:
    """Comments, Start and End nodes are notes; links that end on them are left out with a warning."""
    reading = read(
        document(
            [node("c", "Comment"), node("d", "Description"), node("s", "Start"), node("a", "DALiuGEApp")],
            [link("s", "", "a", ""), link("a", "", "c", "")],
        )
    )

    assert reading.graph is not None
    assert [n.kind for n in reading.graph.nodes] == [NodeKind.NOTE, NodeKind.NOTE, NodeKind.NOTE, NodeKind.APP]
    assert reading.graph.links == ()
    assert codes(reading.problems) == ["LG031", "LG031", "LG003"]


@pytest.mark.parametrize("other", [{"id": ""}, {"key": 3}])
def test_a_node_without_the_identity_of_the_others_is_an_error(other: dict[str, Any]) -> None:
    """No node is left out silently: LG007 names the first one without the identity that the file uses."""
    content = document([node("a", "Memory"), {**node("", "Memory", name="odd"), **other}, node("b", "Memory")])
    del content["nodeDataArray"][1]["id" if "key" in other else "name"]
    found = [finding for finding in read(content).problems if finding.code == "LG007"]

    assert [finding.where for finding in found] == ["/nodeDataArray/1"]
    assert "1 node without 'id'" in found[0].text


def test_invalid_flags_are_reported() -> None:
    """A flag that is neither true nor false gives a warning with a pointer, and counts as false."""
    reading = read(document([node("a", "File", field("x", positional="perhaps"))]))

    assert [(p.code, p.severity.value, p.where) for p in reading.problems] == [
        ("LG007", "warning", "/nodeDataArray/0/fields/0/positional")
    ]


# V4 files have the same content in another structure.


def _by_id(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Fields as V4 stores them."""
    return {raw["id"]: raw for raw in fields}


def _v4() -> dict[str, Any]:
    """The graph of `small` as a V4 file."""
    copies = field("num_of_copies", 3, type="Integer", parameterType="Construct")
    inside = [
        port("in", "whole", "InputPort"),
        port("out", "piece", "OutputPort"),
        field("dropclass", "dlg.apps.simple.GenericScatterApp"),
    ]
    data = [port("d", "io", "InputOutput"), field("data_volume", 5, type="Float")]
    nodes = {
        "D": {"id": "D", "name": "name of D", "category": "Memory", "parentId": None, "fields": _by_id(data)},
        "S": {
            "id": "S",
            "name": "name of S",
            "category": "Scatter",
            "parentId": None,
            "inputApplicationId": "A",
            "outputApplicationId": None,
            "fields": _by_id([copies]),
        },
        "A": {"id": "A", "name": "Split", "category": "DALiuGEApp", "embedId": "S", "fields": _by_id(inside)},
        "P": {
            "id": "P",
            "name": "name of P",
            "category": "Memory",
            "parentId": "S",
            "fields": _by_id([port("p", "io", "InputOutput")]),
        },
    }
    edges = {
        "L1": {"srcNodeId": "D", "srcPortId": "d", "destNodeId": "A", "destPortId": "in", "loopAware": False},
        "L2": {"srcNodeId": "A", "srcPortId": "out", "destNodeId": "P", "destPortId": "p", "closesLoop": False},
    }
    configurations = small()["graphConfigurations"]
    about = {"schemaVersion": "V4", "type": "Graph"}
    return {"modelData": about, "nodes": nodes, "edges": edges, "graphConfigurations": configurations, "visuals": {}}


def _content(graph: LogicalGraph) -> Any:
    """Everything of a graph except its JSON pointers."""

    def bare(item: Any) -> Any:
        if isinstance(item, tuple | list):
            return [bare(part) for part in item]
        if hasattr(item, "__struct_fields__"):
            return {key: bare(value) for key, value in asdict(item).items() if key not in ("pointer", "family")}
        return item

    return bare((graph.nodes, graph.links))


def test_a_v4_file_gives_the_graph_of_the_ojs_file() -> None:
    """The same drawing in both formats is the same graph, field by field."""
    assert read(_v4()).family is Family.V4
    assert _content(graph_of(_v4())) == _content(graph_of(small()))


def test_pointers_lead_into_the_v4_file() -> None:
    """Nodes are found by their keys, which may contain slashes."""
    content = {"nodes": {"a/b": {"category": "Memory", "fields": {}}}, "edges": {}}

    assert graph_of(content).by_id["a/b"].pointer == "/nodes/a~1b"


def test_a_node_without_an_inner_id_is_around_no_others() -> None:
    """Nodes without a parent or a construct stay outside, also if the id of a construct is only its key."""
    nodes: dict[str, Any] = {
        "S": {"category": "Scatter", "parentId": None, "embedId": None, "fields": {}},
        "M": {"category": "Memory", "parentId": None, "embedId": None, "fields": {}},
    }
    graph = graph_of({"modelData": {"schemaVersion": "V4"}, "nodes": nodes, "edges": {}})

    assert [(entry.id, entry.parent, entry.embedded_in) for entry in graph.nodes] == [
        ("S", None, None),
        ("M", None, None),
    ]


def test_references_by_inner_id_are_found() -> None:
    """Where the key and the inner id of a node differ, both name it."""
    content = {
        "nodes": {"one": {"id": "x", "category": "Memory"}, "two": {"id": "y", "category": "DALiuGEApp"}},
        "edges": {"e": {"srcNodeId": "x", "destNodeId": "two"}},
    }

    assert [(edge.source, edge.target) for edge in graph_of(content).links] == [("one", "two")]


def test_applications_that_embed_each_other_stay_nodes() -> None:
    """Applications that embed each other in a cycle are kept as nodes."""
    content = {
        "nodes": {
            "a": {"category": "DALiuGEApp", "embedId": "b"},
            "b": {"category": "DALiuGEApp", "embedId": "a"},
        },
        "edges": {},
    }

    graph = read(content).graph
    assert graph is not None
    assert sorted(graph.by_id) == ["a", "b"]
