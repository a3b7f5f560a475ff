"""Cores of nodes in the middle of a session, and the reports of their nodes."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dropflow.api.session_records import SessionDetail
from dropflow.execution.decisions.events import Begin, Lost
from dropflow.execution.failure_table import FailureTable
from dropflow.execution.statistics import snapshot
from dropflow.graph.physical import PhysicalGraph
from dropflow.sessions import summaries
from tests.execution.decisions.core_cluster import BOOM, CoreCluster, Node, placed


def failing_cluster(graph: PhysicalGraph, seed: int, nodes: int) -> CoreCluster:
    """Return a cluster, some of whose drops fail, that has not begun."""
    chance = random.Random(seed)
    graph = placed(graph, chance, nodes)
    fails = {drop: chance.randrange(4) for drop in range(graph.drops) if chance.random() < 0.4}
    return CoreCluster(graph, chance, fails=fails)


def begin(graph: PhysicalGraph, seed: int, nodes: int, steps: int) -> CoreCluster:
    """Return a cluster, some of whose drops fail, after `steps` events."""
    cluster = failing_cluster(graph, seed, nodes)
    chance = random.Random(seed)
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
        counts=summaries.counts_of(statistics, running),
        states=statistics.states,
        logical=summaries.logical_nodes(statistics, running),
        nodes=(name,),
        failures=tuple(summaries.failure_info(report, name) for report in reports),
    )
