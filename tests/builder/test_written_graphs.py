"""Graphs that are written in Python, saved and loaded: EAGLE's rules, the layout, and numbers of drops and edges."""

import json
from itertools import combinations
from math import hypot
from pathlib import Path

from hypothesis import HealthCheck, given, settings

import dropflow
from dropflow.builder.layout import placed
from dropflow.problems import Severity
from tests.builder.random_builders import WrittenGraph, written_graphs
from tests.eagle_rules import near_nodes, wrong_edges, wrong_nodes

_FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@_FEW
@given(written_graphs())
def test_a_saved_graph_has_the_drops_that_were_written(written: WrittenGraph) -> None:
    """Loaded and unrolled, a graph has as many drops and edges as multiplication says, in both schemas of EAGLE."""
    for schema in ("OJS", "V4"):
        translation = dropflow.translate(written.graph.document(schema), name="random")

        assert (translation.graph.drops, translation.graph.edges) == (written.drops, written.edges)
        assert [one for one in translation.problems if one.severity is Severity.ERROR] == []


@_FEW
@given(written_graphs())
def test_a_saved_graph_keeps_the_rules_of_eagle(written: WrittenGraph) -> None:
    """Fields, ids and edges are as EAGLE demands, and no two nodes overlap."""
    content = json.loads(written.graph.document())

    assert wrong_nodes(content["nodeDataArray"]) == []
    assert wrong_edges(content) == []
    assert near_nodes(content["nodeDataArray"]) == []
    assert min(node["x"] for node in content["nodeDataArray"]) > 0
    assert content["modelData"]["shortDescription"]
    assert content["modelData"]["numLGNodes"] == len(content["nodeDataArray"])


@_FEW
@given(written_graphs())
def test_constructs_enclose_their_nodes(written: WrittenGraph) -> None:
    """The circle of a construct contains the circles of its nodes, and those of nodes beside each other are apart."""
    drawing = written.graph.drawing
    drawn = placed(drawing)
    shown = [node for node in drawing.nodes if node.owner is None]
    for node in shown:
        own = drawn[node.id]
        if node.inside is not None:
            outer = drawn[node.inside.id]
            assert hypot(own.x - outer.x, own.y - outer.y) + own.radius < outer.radius
    for one, other in combinations(shown, 2):
        if one.inside is other.inside:
            first, second = drawn[one.id], drawn[other.id]
            assert hypot(first.x - second.x, first.y - second.y) > first.radius + second.radius


def test_the_same_calls_make_the_same_file(tmp_path: Path) -> None:
    """Ids follow from names, so that a script that is run again writes the same bytes."""

    def make(name: str) -> bytes:
        graph = dropflow.Graph("same", "Made twice.")
        graph.command("echo {word} > {out}", word="hello", outputs="out")
        return graph.save(tmp_path / name).read_bytes()

    assert make("one.graph") == make("two.graph")
