"""Bytes moved between nodes, against one content at a time."""

import dataclasses
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.testing.shapes import chains, fan
from dropflow.times.attempts import attempts_of
from dropflow.times.traffic import traffic_of
from managers.web.traffic_grid import traffic_grid
from tests.times.made_times import executed, sections_of


def _placed(graph: PhysicalGraph, nodes: int, seed: int) -> PhysicalGraph:
    """Return the graph with each drop on one of the nodes n0, n1, ..."""
    part = np.random.default_rng(seed).integers(0, nodes, graph.drops).astype(np.int32)
    return dataclasses.replace(graph, part=part, places=tuple(f"n{node}" for node in range(nodes)))


def _slow(graph: PhysicalGraph, attempts: Any) -> dict[tuple[str, str], tuple[float, int]]:
    ran, read, written = {}, {}, {}
    for row in range(len(attempts)):
        if not attempts.failed[row]:
            drop = int(attempts.drop[row])
            ran[drop] = attempts.nodes[attempts.node[row]]
            read[drop], written[drop] = attempts.records["read"][row], attempts.records["written"][row]
    out, into = graph.successors, graph.predecessors
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for drop in np.flatnonzero(graph.kinds[graph.template] == Kind.DATA).tolist():
        home = graph.places[graph.part[drop]]
        makers = into.neighbour[into.ptr[drop] : into.ptr[drop + 1]].tolist()
        users = out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist()
        size = sum(float(written[one]) / (out.ptr[one + 1] - out.ptr[one]) for one in makers if one in ran)
        alone = [float(read[one]) for one in users if one in ran and into.ptr[one + 1] - into.ptr[one] == 1]
        if not makers and alone:
            size = max(alone)
        pairs = {(home, ran[one]) for one in users if one in ran} | {(ran[one], home) for one in makers if one in ran}
        for pair in pairs:
            if pair[0] != pair[1] and set(pair) <= set(attempts.nodes):
                before = found.get(pair, (0.0, 0))
                found[pair] = (before[0] + size, before[1] + 1)
    return found


@given(st.integers(0, 1), st.integers(1, 4), st.integers(0, 99))
def test_sums_are_those_of_one_content_at_a_time(which: int, nodes: int, seed: int) -> None:
    """Each content counts once for each node that it was moved to, with its bytes; the table adds up."""
    graph = _placed((fan(30), chains(3, 6))[which], nodes, seed)
    sections = sections_of(executed(graph, seed, nodes=nodes))
    random = np.random.default_rng(seed)
    for section in sections:
        for column in ("read", "written"):
            section.records[column] = random.integers(0, 1000, len(section.records))
    attempts = attempts_of(sections)
    found = traffic_of(graph, attempts)
    slow = _slow(graph, attempts) if nodes > 1 else {}

    assert {(one.source, one.target): (one.size, one.contents) for one in found} == {
        pair: (round(size), count) for pair, (size, count) in slow.items()
    }
    assert [one.size for one in found] == sorted((one.size for one in found), reverse=True)
    grid = traffic_grid(found)
    assert grid.total == sum(sent for _, _, sent in grid.rows) == sum(grid.received)
