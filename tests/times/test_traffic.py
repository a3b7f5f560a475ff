"""Bytes moved between nodes, as nodes counted them and as planned, against one content at a time."""

import dataclasses

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.testing.drawing import chains, fan
from dropflow.times.octets import NodeReceipts, PeerReceipts, TimesSection, pack_times, read_sections
from dropflow.times.statistics import NodeTraffic
from dropflow.times.traffic import planned_traffic, traffic_of, uncounted_nodes
from dropflow.web.views import traffic_grid
from tests.times.made_times import records_of

_VOLUME = 1000.0


def _placed(graph: PhysicalGraph, nodes: int, seed: int) -> PhysicalGraph:
    """Return the graph with volumes, and with each drop in one of more parts than there are nodes."""
    part = np.random.default_rng(seed).integers(0, nodes + 2, graph.drops).astype(np.int32)
    templates = tuple(
        msgspec.structs.replace(one, weight=_VOLUME + row) if one.kind is Kind.DATA else one
        for row, one in enumerate(graph.templates)
    )
    places = tuple(f"n{row % nodes}" for row in range(nodes + 2))
    return dataclasses.replace(graph, templates=templates, part=part, places=places)


def _slow(graph: PhysicalGraph) -> dict[tuple[str, str], int]:
    out, into = graph.successors, graph.predecessors
    found: dict[tuple[str, str], int] = {}
    for drop in np.flatnonzero(graph.kinds[graph.template] == Kind.DATA).tolist():
        home = int(graph.part[drop])
        makers = {int(graph.part[one]) for one in into.neighbour[into.ptr[drop] : into.ptr[drop + 1]]}
        users = {int(graph.part[one]) for one in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]]}
        for source, target in {(one, home) for one in makers} | {(home, one) for one in users}:
            pair = graph.places[source], graph.places[target]
            if pair[0] != pair[1]:
                found[pair] = found.get(pair, 0) + int(graph.templates[graph.template[drop]].weight)
    return found


@given(st.integers(0, 1), st.integers(1, 4), st.integers(0, 99))
def test_the_plan_is_the_sum_over_single_contents(which: int, nodes: int, seed: int) -> None:
    """Each content counts once for each part that has a producer or a consumer of it, on another node."""
    graph = _placed((fan(30), chains(36, 6))[which], nodes, seed)

    assert planned_traffic(graph) == _slow(graph)


def test_without_declared_volumes_nothing_is_planned() -> None:
    """The weight of new nodes is no estimate."""
    graph = dataclasses.replace(_placed(fan(30), 2, 1), templates=fan(30).templates)

    assert planned_traffic(graph) == {}


def _section(node: str, *received: PeerReceipts) -> TimesSection:
    receipts = NodeReceipts(node=node, received=received)
    return TimesSection(node=node, records=records_of([{"drop": 0}]), received=receipts)


def test_counts_of_nodes_are_put_together_with_the_plan() -> None:
    """They are part of the times that managers send; a node that did not answer has neither counts nor a plan."""
    graph = _placed(fan(30), 3, 5)
    sections = [
        _section("n0", PeerReceipts(node="n1", contents=2, size=70, shared_contents=1, shared_size=5)),
        _section("n1", PeerReceipts(node="n0", contents=1, size=80)),
        TimesSection(node="n2", records=records_of([]), missing="it did not answer", busy_with=("other",)),
    ]
    sent = list(read_sections([pack_times(section) for section in sections]))
    assert [section.busy_with for section in sent] == [(), (), ("other",)]
    assert uncounted_nodes(sent) == ("n2",)
    assert uncounted_nodes([*sent[:2], _section("n3", PeerReceipts(node="killed", contents=1, size=1))]) == ("killed",)
    found = {(one.source, one.target): one for one in traffic_of(graph, sent)}
    planned = planned_traffic(graph)

    one, other = found["n1", "n0"], found["n0", "n1"]
    assert (one.size, one.contents, one.shared_size, one.shared_contents) == (70, 2, 5, 1)
    assert (other.size, other.total) == (80, 80)
    assert {pair: each.planned for pair, each in found.items()} == {
        pair: planned[pair] for pair in planned if pair[1] != "n2"
    }
    assert [each.total for each in traffic_of(graph, sent)] == sorted(each.total for each in found.values())[::-1]


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 20), st.integers(0, 20)), st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1
    ),
    st.integers(2, 30),
)
def test_the_table_adds_up(pairs: dict[tuple[int, int], tuple[int, int]], most: int) -> None:
    """Also if nodes have one row together, because there are too many."""
    traffic = [
        NodeTraffic(source=f"n{one}", target=f"n{other}", size=size, shared_size=shared, contents=1)
        for (one, other), (size, shared) in pairs.items()
    ]
    grid = traffic_grid(traffic, most)
    cells = [cell for _, row, _ in grid.rows for cell in row if cell is not None]

    assert len(grid.nodes) <= most
    total = sum(size + shared for size, shared in pairs.values())
    assert grid.whole.total == total == sum(sent for _, _, sent in grid.rows) == sum(grid.received)
    assert sum(cell.contents for cell in cells) == len(pairs)
    assert all(1 <= grid.shade(cell.total, grid.most) <= 8 for cell in cells)
