"""Exports: tables, DOT and GraphML have all drops and edges of a graph, also with hostile names."""

import csv
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from io import BytesIO, StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from dropflow.errors import BadGraphError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.exports import (
    DROP_COLUMNS,
    EDGE_COLUMNS,
    Writer,
    write_csv_drops,
    write_csv_edges,
    write_dot,
    write_graphml,
)
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids
from dropflow.testing.drawing import draw
from tests.regular_graphs import fan

HOSTILE = st.text(
    st.one_of(
        st.sampled_from("\"\\&<>',;=\n\r\t\x00\x01 ]-{}|é\ufffe\U0001f600"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=12,
)


@st.composite
def graphs(draw: st.DrawFn) -> PhysicalGraph:
    """Draw a graph of applications with an input and an output each, some of them streams."""
    builder = GraphBuilder(draw(HOSTILE) or "g")
    parts = draw(st.integers(1, 3))
    count = draw(st.integers(1, 3))
    for number in range(count):
        for kind in ("in", "app", "out"):
            add = builder.app if kind == "app" else builder.data
            fields = {"component": draw(HOSTILE), "weight": draw(st.floats(0, 1e12))}
            add(f"{kind}{number}", part=draw(st.integers(0, parts - 1)), **fields)
        ports = {"source_port": draw(HOSTILE), "target_port": draw(HOSTILE)}
        builder.connect(f"in{number}", f"app{number}", streaming=draw(st.booleans()), **ports)
        builder.connect(f"app{number}", f"out{number}")
    graph = builder.build()
    graph = replace(graph, templates=tuple(replaced(template, name=draw(HOSTILE)) for template in graph.templates))
    if draw(st.booleans()):
        graph = replace(graph, priority=np.arange(graph.drops, dtype=np.int32))
    if draw(st.booleans()):
        graph = replace(graph, places=tuple(draw(HOSTILE) for _ in range(graph.parts)))
    if draw(st.booleans()):
        names = draw(st.lists(HOSTILE, min_size=graph.drops, max_size=graph.drops))
        graph = replace(graph, oids=tuple(names))
    return graph


# Graphs as tables of comma-separated values, read again by the parser of the standard library.


def _read(write: Writer, graph: PhysicalGraph) -> list[list[str]]:
    stream = BytesIO()
    write(graph, stream)
    return list(csv.reader(StringIO(stream.getvalue().decode(), newline=""), strict=True))


@given(graphs())
def test_every_value_of_the_tables_is_read_again(graph: PhysicalGraph) -> None:
    """The table of drops has one line for each, with what exists, and that of edges the text ids of their ends."""
    names, is_planned = oids(graph, range(graph.drops)), graph.priority is not None
    is_parted = graph.parts > 1 or bool(graph.places) or is_planned
    drops = []
    for row, name in enumerate(names):
        template, part = graph.templates[graph.template[row]], int(graph.part[row])
        is_app = template.kind is Kind.APP
        priority = str(graph.priority[row]) if is_app and graph.priority is not None else ""
        kind, node = "application" if is_app else "data", graph.places[part] if graph.places else ""
        first = [name, kind, template.name, template.component, repr(template.weight)]
        drops.append([*first, str(part) if is_parted else "", node, priority])
    links = [graph.links[link] for link in graph.successors.link]
    edges = [
        [names[one.source], names[one.target], one.source_port, one.target_port, str(one.streaming).lower()]
        for one in links
    ]

    assert _read(write_csv_drops, graph) == [list(DROP_COLUMNS), *drops]
    assert _read(write_csv_edges, graph) == [list(EDGE_COLUMNS), *edges]


def test_lines_end_as_the_standard_says() -> None:
    """RFC 4180: lines end in carriage return and line feed."""
    stream = BytesIO()
    write_csv_drops(draw("A"), stream)

    assert (
        stream.getvalue().splitlines(keepends=True)[1]
        == b"drawing_A_0,application,A,dlg.apps.simple.NullBarrierApp,1.0,,,\r\n"
    )


@pytest.mark.slow
def test_graphs_of_several_blocks_are_whole() -> None:
    """Drops and edges are written in blocks; none is lost or repeated between them."""
    graph = fan(40_000)
    drops, edges = _read(write_csv_drops, graph)[1:], _read(write_csv_edges, graph)[1:]

    assert [line[0] for line in drops] == oids(graph, range(graph.drops))
    assert len({(line[0], line[1]) for line in edges}) == len(edges) == graph.edges


# Graphs as DOT, read again by a small reader of its grammar.


# The tokens of https://graphviz.org/doc/info/lang.html that may occur: names, numbers, quoted texts, and signs.
_TOKEN = re.compile(r'\s*(?:([A-Za-z_]\w*|-?\d+)|"((?:[^"\\\n]|\\.)*)"|(->|[\[\]{};=,]))')


class DotReader:
    """Reads statements of DOT: nodes, edges, attributes and subgraphs."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        place, text = 0, text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            assert found is not None, text[place : place + 40]
            self._tokens.append(found[3] or found[1] or f'"{found[2]}')
            place = found.end()
        self._next = 0
        self.nodes: dict[str, dict[str, str]] = {}
        self.edges: list[tuple[str, str, bool]] = []
        self.clusters: dict[str, list[str]] = {}
        self.labels: dict[str, str] = {}
        self._expect("digraph")
        self.name = self._value()
        self._block("")
        assert self._next == len(self._tokens)

    def _expect(self, sign: str) -> None:
        assert self._take() == sign

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1]

    def _value(self) -> str:
        token = self._take()
        assert token not in {"->", *"[]{};=,"}
        return re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], token.removeprefix('"'))

    def _block(self, cluster: str) -> None:
        self._expect("{")
        while (token := self._take()) != "}":
            if token == "subgraph":
                name = self._value()
                self.clusters[name] = []
                self._block(name)
                continue
            self._statement(token, cluster)
            self._expect(";")

    def _statement(self, first: str, cluster: str) -> None:
        if self._tokens[self._next] == "=":
            self._take()
            assert first == "label"
            self.labels[cluster] = self._value()
        elif self._tokens[self._next] == "->":
            self._take()
            target = self._value()
            self.edges.append((first, target, self._attributes() == {"style": "dashed"}))
        else:
            assert first not in self.nodes
            self.nodes[first] = self._attributes()
            if cluster:
                self.clusters[cluster].append(first)

    def _attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self._tokens[self._next] != "[":
            return found
        while self._take() != "]":
            name = self._value()
            self._expect("=")
            found[name] = self._value()
            if self._tokens[self._next] == "]":
                continue
            assert self._tokens[self._next] == ","
        return found


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\ufffd")


@given(graphs())
def test_every_value_in_dot_is_read_again(graph: PhysicalGraph) -> None:
    """Nodes, edges and clusters come back; a label is shown as it is, and other ends of lines become line feeds."""
    stream = BytesIO()
    write_dot(graph, stream)
    found = DotReader(stream.getvalue().decode())
    for row, name in enumerate(oids(graph, range(graph.drops))):
        template, values = graph.templates[graph.template[row]], found.nodes[f"n{row}"]
        assert values["label"] == _plain(name)
        assert (values["name"], values["component"]) == (_plain(template.name), _plain(template.component))
        assert float(values["weight"]) == template.weight
        assert ("priority" in values) == (graph.priority is not None and values["kind"] == "application")
    links = [graph.links[link] for link in graph.successors.link]

    assert found.name == _plain(graph.name)
    assert len(found.nodes) == graph.drops
    assert found.edges == [(f"n{one.source}", f"n{one.target}", one.streaming) for one in links]


@pytest.mark.slow
@given(graphs())
def test_parts_are_clusters(graph: PhysicalGraph) -> None:
    """Each part with drops is a cluster, with the name of its node; a graph without parts has none."""
    stream = BytesIO()
    write_dot(graph, stream)
    found = DotReader(stream.getvalue().decode())
    parts: dict[str, list[str]] = {}
    labels = {}
    if graph.parts > 1 or graph.places or graph.priority is not None:
        for row, part in enumerate(graph.part.tolist()):
            parts.setdefault(f"cluster_{part}", []).append(f"n{row}")
            node = graph.places[part] if graph.places else ""
            labels[f"cluster_{part}"] = _plain(f"part {part} on {node}" if node else f"part {part}")

    assert found.clusters == parts
    assert found.labels == labels


# Graphs as GraphML, read again by the parser of the standard library.


_SPACE = "{http://graphml.graphdrawing.org/xmlns}"


def _read_graphml(graph: PhysicalGraph) -> ET.Element:
    stream = BytesIO()
    write_graphml(graph, stream)
    return ET.fromstring(stream.getvalue())  # noqa: S314 - we have just written it


def _values(element: ET.Element) -> dict[str, str]:
    return {str(one.get("key")).partition("_")[2]: one.text or "" for one in element.findall(f"{_SPACE}data")}


def _xml(text: str) -> str:
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text)


@given(graphs())
def test_every_value_in_graphml_is_read_again(graph: PhysicalGraph) -> None:
    """Names, components, weights, parts, nodes, priorities, ports and streams come back, and only those that exist."""
    root = _read_graphml(graph)
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
    root = _read_graphml(graph)
    declared = [(key.get("for"), key.get("id")) for key in root.findall(f"{_SPACE}key")]

    assert len(set(declared)) == len(declared)
    for what in ("node", "edge", "graph"):
        used = {one.get("key") for element in root.iter(_SPACE + what) for one in element.findall(f"{_SPACE}data")}
        assert used <= {key for kind, key in declared if kind == what}


def test_weights_that_are_not_finite_are_spelled_as_xml_does() -> None:
    """XML Schema spells infinity INF, and has no inf."""
    graph = draw("A", A={"weight": float("inf")})

    assert [_values(node)["weight"] for node in _read_graphml(graph).iter(f"{_SPACE}node")] == ["INF"]


def test_half_of_a_surrogate_pair_is_refused() -> None:
    """UTF-8 cannot have it, and the error names the graph."""
    with pytest.raises(BadGraphError, match="half of a surrogate pair"):
        _read_graphml(replace(draw("A"), oids=("\ud800",)))
