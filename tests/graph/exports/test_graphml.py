"""Graphs as GraphML, read again by the parser of the standard library."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given

from dropflow.errors import BadGraphError
from dropflow.graph.exports import write_graphml
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids
from dropflow.testing.drawing import draw
from tests.graph.exports.export_graphs import graphs

_SPACE = "{http://graphml.graphdrawing.org/xmlns}"


def _read(graph: PhysicalGraph) -> ET.Element:
    stream = BytesIO()
    write_graphml(graph, stream)
    return ET.fromstring(stream.getvalue())  # noqa: S314 - we have just written it


def _values(element: ET.Element) -> dict[str, str]:
    return {str(one.get("key")).partition("_")[2]: one.text or "" for one in element.findall(f"{_SPACE}data")}


def _xml(text: str) -> str:
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text)


@given(graphs())
def test_every_value_is_read_again(graph: PhysicalGraph) -> None:
    """Names, components, weights, parts, nodes, priorities, ports and streams come back, and only those that exist."""
    root = _read(graph)
    is_parted = graph.parts > 1 or bool(graph.places) or graph.priority is not None
    for row, (node, name) in enumerate(zip(root.iter(f"{_SPACE}node"), oids(graph, range(graph.drops)), strict=True)):
        template, part, found = graph.templates[graph.template[row]], int(graph.part[row]), _values(node)
        is_app = template.kind is Kind.APP
        wanted = {"oid": _xml(name), "kind": "application" if is_app else "data", "name": _xml(template.name)}
        wanted |= {"component": _xml(template.component), "weight": repr(template.weight)}
        wanted |= {"part": str(part)} if is_parted else {}
        wanted |= {"node": _xml(graph.places[part])} if graph.places and graph.places[part] else {}
        wanted |= {"priority": str(graph.priority[row])} if is_app and graph.priority is not None else {}
        assert node.get("id") == f"n{row}"
        assert found == wanted
    for place, edge in enumerate(root.iter(f"{_SPACE}edge")):
        link = graph.links[graph.successors.link[place]]
        wanted = {"source_port": _xml(link.source_port), "target_port": _xml(link.target_port)}
        wanted |= {"streaming": "true" if link.streaming else ""}
        assert (edge.get("source"), edge.get("target")) == (f"n{link.source}", f"n{link.target}")
        assert _values(edge) == {key: value for key, value in wanted.items() if value}


@given(graphs())
def test_every_key_is_declared(graph: PhysicalGraph) -> None:
    """Each key of a node, an edge or the graph is declared for it, once."""
    root = _read(graph)
    declared = [(key.get("for"), key.get("id")) for key in root.findall(f"{_SPACE}key")]

    assert len(set(declared)) == len(declared)
    for what in ("node", "edge", "graph"):
        used = {one.get("key") for element in root.iter(_SPACE + what) for one in element.findall(f"{_SPACE}data")}
        assert used <= {key for kind, key in declared if kind == what}


def test_weights_that_are_not_finite_are_spelled_as_xml_does() -> None:
    """XML Schema spells infinity INF, and has no inf."""
    graph = draw("A", A={"weight": float("inf")})

    assert [_values(node)["weight"] for node in _read(graph).iter(f"{_SPACE}node")] == ["INF"]


def test_half_of_a_surrogate_pair_is_refused() -> None:
    """UTF-8 cannot have it, and the error names the graph."""
    with pytest.raises(BadGraphError, match="half of a surrogate pair"):
        _read(replace(draw("A"), oids=("\ud800",)))
