"""Graphs that are written and read again."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from dropflow.failure import Severity
from tests.corpus import corpus_files, needs_corpus
from tests.eagle_rules import wrong_edges, wrong_nodes
from tests.translator.documents import graph_of, small, wide
from tests.translator.random_graphs import logical_graphs
from translator.formats import Family, read_logical
from translator.formats.dump import dump
from translator.logical import LogicalGraph
from translator.validate import validate

FAMILIES = (Family.OJS_ID, Family.V4)


def without_places(graph: LogicalGraph) -> LogicalGraph:
    """Return a graph without its family and its pointers into a document."""
    nodes = [
        replace(node, pointer="", fields=tuple(replace(field, pointer="") for field in node.fields))
        for node in graph.nodes
    ]
    configurations = tuple(
        replace(one, values=tuple((*value[:3], "") for value in one.values)) for one in graph.configurations
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


@pytest.mark.parametrize("family", FAMILIES)
@given(graph=logical_graphs())
@settings(max_examples=50)
def test_any_graph_is_read_as_the_same(family: Family, graph: LogicalGraph) -> None:
    """A second reading changes nothing: names, kinds and ids are canonical after the first."""
    once = again(graph, family)
    assert without_places(again(once, family)) == without_places(once)
    assert [link.target for link in once.links] == [link.target for link in graph.links]


@needs_corpus
@pytest.mark.parametrize("path", corpus_files(), ids=lambda path: path.name)
def test_graphs_of_the_community_are_read_as_the_same(path: Path) -> None:
    """Every logical graph of the corpus is the same after it was written, in both families."""
    graph = read_logical(path.read_bytes(), name="g").graph
    if graph is None or any(one.code == "LG006" for one in validate(graph) if one.severity is Severity.ERROR):
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
