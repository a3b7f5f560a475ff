"""Index arithmetic against the slow oracle, on random nested constructs."""

import re
from typing import Any

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
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
from translator.options import UnrollOptions
from translator.problem_codes import CODES
from translator.unroll import outline_of, unroll

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
    made = outline_of(graph)
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
    made = outline_of(graph)
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
    problems = outline_of(keyed(graph, node.id, key)).problems
    findings = [finding for finding in problems if finding.code in ("LG080", "LG083") and finding.where == node.pointer]
    assert [finding.code for finding in findings] == {0: ["LG080"], 1: []}.get(len(answering), ["LG083"])
    for finding in findings:
        for offered in re.findall(r"'(\w+)'", finding.hint):
            (level,) = oracle.answering(offered, levels)
            assert level in (answering or levels)


# Outlining never raises: every graph has an outline, with problems if it cannot be used.


IDS = [f"n{number}" for number in range(7)]
CATEGORIES = {
    NodeKind.DATA: ["Memory", "File", "Odd"],
    NodeKind.APP: ["DALiuGEApp", "Mpi", "Branch"],
    NodeKind.CONSTRUCT: [
        "Scatter",
        "Gather",
        "GroupBy",
        "Loop",
        "SubGraph",
        "ExclusiveForceNode",
        "MKN",
        "Service",
        "Odd",
    ],
    NodeKind.NOTE: ["Comment"],
    NodeKind.GLOBALS: ["GlobalVariables"],
}
NAMES = [
    "num_of_copies",
    "num_of_iter",
    "num_of_inputs",
    "group_key",
    "group_start",
    "group_end",
    "num_of_procs",
    "m",
    "k",
    "n",
    "zip_with",
]
VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 3, "2", "n0", "n0,n1", True, False, None, "", -1, 1.5, [], {}, "x", [1, "n2"]]),
    st.integers(-5, 10**20),
    st.text(max_size=3),
)


@st.composite
def wild_graphs(draw: Any) -> LogicalGraph:
    """Draw random nodes and links: missing parents and ends, cycles, any value in any field."""
    any_node = st.sampled_from([*IDS, "missing"])
    nodes = []
    for name in draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True)):
        kind = draw(st.sampled_from([*NodeKind]))
        embedded = draw(st.one_of(st.none(), st.none(), any_node)) if kind is NodeKind.APP else None
        values = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
        nodes.append(
            LogicalNode(
                id=name,
                name=name,
                category=draw(st.sampled_from(CATEGORIES[kind])),
                kind=kind,
                parent=draw(st.one_of(st.none(), any_node)),
                embedded_in=embedded,
                role=draw(st.sampled_from(Role)) if embedded else Role.NONE,
                fields=tuple(Field(id=key, name=key, value=value) for key, value in values.items()),
            )
        )
    link = st.builds(LogicalLink, source=any_node, target=any_node, loop_aware=st.booleans(), closes_loop=st.booleans())
    return LogicalGraph(name="wild", family="wild", nodes=tuple(nodes), links=tuple(draw(st.lists(link, max_size=10))))


@settings(max_examples=500, deadline=None)
@given(wild_graphs(), st.booleans(), st.booleans(), st.sampled_from(["all", "innermost"]))
def test_every_graph_has_a_plan(
    graph: LogicalGraph,
    zip_scatters: bool,  # noqa: FBT001 - drawn
    adapters: bool,  # noqa: FBT001 - drawn
    loop_aware: Any,
) -> None:
    """Every finding has a known code; an outline without errors unrolls to exactly what it predicts."""
    options = UnrollOptions(max_drops=5000, zip_scatters=zip_scatters, adapters=adapters, loop_aware=loop_aware)
    made = outline_of(graph, options)
    assert all(finding.code in CODES for finding in made.problems)
    assert len({template.key for template in made.templates}) == len(made.templates)
    if all(finding.severity is not Severity.ERROR for finding in made.problems):
        unrolled = unroll(made)
        assert (unrolled.drops, unrolled.edges) == (made.drops, made.edges)
