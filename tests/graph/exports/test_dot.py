"""Graphs as DOT, read again by a small reader of its grammar."""

import re
from io import BytesIO

from hypothesis import given

from dropflow.graph.exports import write_dot
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from tests.graph.exports.export_graphs import graphs

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
            if token == "subgraph":  # noqa: S105
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
def test_every_value_is_read_again(graph: PhysicalGraph) -> None:
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
