"""Index arithmetic against the slow oracle, on random nested constructs."""

import re

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.failure import Severity
from dropflow.graph.order import find_cycle
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import index_of, oids
from tests.translator.oracle import Oracle
from tests.translator.random_graphs import logical_graphs
from translator.logical import Field, LogicalGraph
from translator.unroll import plan, unroll

pytestmark = pytest.mark.slow

Drop = tuple[str, tuple[int, ...]]
_REPEATING = ("Scatter", "Loop", "Gather", "GroupBy")


def drops_of(graph: PhysicalGraph) -> list[Drop]:
    """Key and indices of every drop."""
    return [(graph.templates[graph.template[drop]].key, index_of(graph, drop)) for drop in range(graph.drops)]


def edges_of(graph: PhysicalGraph) -> list[tuple[int, int]]:
    """Every edge as a pair of drops."""
    sources = np.repeat(np.arange(graph.drops), np.diff(graph.successors.ptr))
    return list(zip(sources.tolist(), graph.successors.neighbour.tolist(), strict=True))


def without_adapters(graph: PhysicalGraph) -> tuple[set[Drop], set[tuple[Drop, Drop]]]:
    """Drops and edges, with every adapter replaced by direct edges from its producers to its consumers."""
    drops, edges = drops_of(graph), edges_of(graph)
    adapter = [("-to-" in key) for key, _ in drops]
    plain = {(drops[a], drops[b]) for a, b in edges if not adapter[a] and not adapter[b]}
    into: dict[int, list[int]] = {}
    for source, target in edges:
        if adapter[target]:
            into.setdefault(target, []).append(source)
    plain |= {(drops[a], drops[c]) for b, c in edges if adapter[b] for a in into.get(b, ())}
    return {drop for drop, made in zip(drops, adapter, strict=True) if not made}, plain


@settings(max_examples=250, deadline=None)
@given(logical_graphs())
def test_index_arithmetic_equals_the_oracle(graph: LogicalGraph) -> None:
    """Drops and edges of random nested constructs are those that a comparison of all pairs of instances finds."""
    made = plan(graph)
    assert [finding for finding in made.problems if finding.severity is Severity.ERROR] == []
    drops, edges = without_adapters(unroll(made))
    oracle = Oracle(graph)
    assert drops == {(name, tuple(index for _, index in instance)) for name, instance in oracle.drops()}
    assert edges == {
        ((a, tuple(i for _, i in source)), (b, tuple(i for _, i in target)))
        for (a, source), (b, target) in oracle.edges()
    }


@settings(max_examples=150, deadline=None)
@given(logical_graphs())
def test_invariants_of_every_unrolled_graph(graph: LogicalGraph) -> None:
    """Predictions are exact; edges join data and application; ids are unique; no cycle; links have no double edge."""
    made = plan(graph)
    physical = unroll(made)
    assert (physical.drops, physical.edges) == (made.drops, made.edges)
    kinds = physical.kinds[physical.template]
    edges = edges_of(physical)
    assert all({kinds[source], kinds[target]} == {Kind.DATA, Kind.APP} for source, target in edges)
    names = oids(physical, range(physical.drops))
    assert len(set(names)) == physical.drops
    assert find_cycle(physical) is None
    rows = list(zip(edges, physical.successors.link.tolist(), strict=True))
    assert len(set(rows)) == len(rows)


def keyed(graph: LogicalGraph, groupby: str, key: str) -> LogicalGraph:
    """The graph with another key of one group-by."""
    fields = (Field(id="key", name="group_key", value=key),)
    nodes = (msgspec.structs.replace(node, fields=fields) if node.id == groupby else node for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


@settings(max_examples=250, deadline=None)
@given(logical_graphs(), st.data())
def test_a_key_selects_the_one_level_of_its_name(graph: LogicalGraph, data: st.DataObject) -> None:
    """An unknown key is LG080, an ambiguous one LG083; the keys in their hints are accepted."""
    oracle = Oracle(graph)
    groupbys = [node for node in graph.nodes if node.category == "GroupBy"]
    if not groupbys:
        return
    node = data.draw(st.sampled_from(groupbys))
    key = data.draw(st.sampled_from([other.id for other in graph.nodes if other.category in _REPEATING]))
    levels = oracle.own(oracle.entering(node.id)[0].source, node.id)
    answering = oracle.answering(key, levels)
    problems = plan(keyed(graph, node.id, key)).problems
    found = [finding for finding in problems if finding.code in ("LG080", "LG083") and finding.where == node.pointer]
    assert [finding.code for finding in found] == {0: ["LG080"], 1: []}.get(len(answering), ["LG083"])
    for finding in found:
        for offered in re.findall(r"'(\w+)'", finding.hint):
            (level,) = oracle.answering(offered, levels)
            assert level in (answering or levels)
