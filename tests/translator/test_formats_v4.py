"""V4 files have the same content in another structure."""

from typing import Any

from msgspec.structs import asdict

from tests.translator.documents import field, graph_of, port, read, small
from translator.formats import Family
from translator.logical import LogicalGraph


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
