"""Figures of a session agree, on each node and merged: every drop in ERROR is counted for exactly one cause."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.records import FailureInfo, SessionDetail
from dropflow.engine.events import Begin, Lost
from dropflow.engine.failure_table import FailureTable
from dropflow.engine.statistics import snapshot
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.sessions import shown
from dropflow.testing.strategies import graphs
from managers.composite.merging import Freshness, SessionPart, merge
from tests.engine.test_core_slices import BOOM, Cluster, Node, _chance

_GONE = Failure(code="DF220", kind="NodeLost", text="node n0 is lost")


def _run(graph: PhysicalGraph, seed: int, nodes: int, steps: int | None) -> Cluster:
    """Return a cluster after `steps` events, or at its end."""
    if steps is not None:
        return begin(graph, seed, nodes, steps)
    cluster = _cluster(graph, seed, nodes)
    cluster.run()
    return cluster


def _cluster(graph: PhysicalGraph, seed: int, nodes: int) -> Cluster:
    chance = _chance(seed)
    part = np.array([chance.randrange(nodes) for _ in range(graph.drops)], dtype=np.int32)
    placed = replace(graph, part=part, places=tuple(f"n{at}" for at in range(nodes)))
    fails = {drop: chance.randrange(4) for drop in range(graph.drops) if chance.random() < 0.4}
    return Cluster(placed, chance, fails=fails)


def begin(graph: PhysicalGraph, seed: int, nodes: int, steps: int) -> Cluster:
    """Return a cluster, some of whose drops fail, after `steps` events."""
    cluster = _cluster(graph, seed, nodes)
    chance = _chance(seed)
    for node in cluster.nodes.values():
        cluster.step(node, Begin())
    for _ in range(steps):
        busy = [node for node in cluster.nodes.values() if node.waiting]
        if busy:
            node = chance.choice(busy)
            cluster.step(node, cluster.next(node))
    return cluster


def report(name: str, node: Node, lost: list[Lost]) -> SessionDetail:
    """Return the report of a node manager about its part."""
    piece = node.piece
    exchange: Any = SimpleNamespace(rows=piece.drop, on_node=lambda _: piece.ghosts.tolist())
    known = {drop: BOOM for drop in node.core.drops.error_causes().values() if drop >= 0 and piece.is_own[drop]}
    failures = FailureTable(piece.graph, node.core, str(Path()), exchange)
    failures.lost += lost
    for drop, failure in known.items():
        failures.add(drop, failure)
    reports = failures.reports()
    statistics = snapshot(node.core, 1.0)
    running = [0] * len(statistics.nodes)
    return SessionDetail(
        session="s",
        graph="g",
        status=node.core.status.name,
        drops=statistics.drops,
        settled=statistics.settled,
        counts=shown.counts_of(statistics, running),
        states=statistics.states,
        logical=shown.logical_nodes(statistics, running),
        nodes=(name,),
        failures=tuple(shown.failure_info(report, name) for report in reports),
    )


def _drops_of(failures: tuple[FailureInfo, ...]) -> tuple[int, int]:
    """Return the numbers of drops that failed because of causes, and of losses."""
    causes = sum(failure.count for failure in failures if failure.drop)
    return causes, sum(failure.count for failure in failures if not failure.drop)


@given(graphs(), st.integers(0, 2**32), st.integers(1, 4), st.none() | st.integers(0, 30))
def test_causes_add_up_to_the_drops_in_error(graph: PhysicalGraph, seed: int, nodes: int, steps: int | None) -> None:
    """At any moment, on each node and merged, the counts of all causes add up to the drops in ERROR."""
    cluster = _run(graph, seed, nodes, steps)
    parts = [report(name, node, []) for name, node in cluster.nodes.items()]
    merged = merge([SessionPart(name, part) for name, part in zip(cluster.nodes, parts, strict=True)], version=1)

    for detail in (*parts, merged):
        assert _drops_of(detail.failures) == (detail.states.get("ERROR", 0), 0)
    assert len({failure.row for failure in merged.failures}) == len(merged.failures)


@given(graphs(), st.integers(0, 2**32), st.integers(2, 4), st.integers(0, 30))
def test_losses_add_up_to_the_drops_that_were_given_up(graph: PhysicalGraph, seed: int, nodes: int, steps: int) -> None:
    """The count of a loss is the number of drops that were not settled, on the lost node and on the others."""
    cluster = _run(graph, seed, nodes, steps)
    parts = []
    for name, node in cluster.nodes.items():
        lost = []
        if name != "n0" and not node.core.status.is_terminal:
            lost.append(Lost("n0", _GONE))
            node.core.handle(lost)
        freshness = Freshness.LOST if name == "n0" else Freshness.CURRENT
        parts.append(SessionPart(name, report(name, node, lost), freshness))
    merged = merge(parts, version=1)
    states = Counter(merged.states)

    assert _drops_of(merged.failures) == (
        states["ERROR"],
        states["CANCELLED"] + states["INITIALIZED"] + states["WRITING"],
    )
