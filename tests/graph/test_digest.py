from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import digest, dump, parse
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from tests.graph.shapes import graphs, scatter

GRAPH = scatter(2)


@pytest.mark.slow
@given(graphs(detailed=True))
@settings(max_examples=30)
def test_a_copy_has_the_same_digest(graph: PhysicalGraph) -> None:
    """A graph has the same digest after it was written and read."""
    assert digest(parse(b"".join(dump(graph)))) == digest(graph)


@pytest.mark.parametrize(
    "changed",
    [
        replace(GRAPH, prefix="other"),
        replace(GRAPH, links=GRAPH.links[::-1]),
        replace(GRAPH, part=np.ones(7, dtype=np.int32)),
        replace(GRAPH, places=("node",)),
        replace(GRAPH, oids=tuple("abcdefg")),
        replace(GRAPH, templates=(msgspec.structs.replace(GRAPH.templates[0], weight=4.0), *GRAPH.templates[1:])),
        scatter(3, name="scatter"),
    ],
    ids=["prefix", "links", "part", "places", "oids", "weight", "size"],
)
def test_changes_of_a_graph_change_its_digest(changed: PhysicalGraph) -> None:
    """Ids, parameters, edges and places count."""
    assert digest(changed) != digest(GRAPH)


def test_names_and_notes_do_not_change_a_digest() -> None:
    """The name of a graph and its notes are not part of the digest."""
    assert digest(replace(GRAPH, name="copy of x", meta={"from": "x"})) == digest(GRAPH)


def test_the_order_of_keys_in_a_value_does_not_count() -> None:
    """The order of keys in JSON objects does not change the digest."""
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    graphs = [GraphBuilder().data("d", arguments=(Argument(name="x", value=value),)).build() for value in (one, other)]

    assert digest(graphs[0]) == digest(graphs[1])


def test_the_digest_of_a_fixed_graph_does_not_change() -> None:
    """Digests are compared between hosts and versions, so the algorithm must not change."""
    assert digest(GRAPH) == "93e2cd4c5b958d935f2e174ddb760480e3bd6ed46a02d6afc2ce9a128b872608"
