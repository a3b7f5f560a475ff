"""The cost of a drop in a cluster does not grow with the number of drops."""

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dropflow.api.records import SubmitQuery
from dropflow.clock import SystemClock
from dropflow.testing.drawing import triples
from managers.node.manager import NodeManager
from managers.planning import plan_deployment

pytestmark = pytest.mark.slow

SIZES = (1_000, 10_000, 100_000)
FACTOR = 3.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeManager]]:
    """Two node managers in this process, which run applications in threads."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(NodeManager(name, root=tmp_path / name, runner="inline"))) for name in "ab"]


def _run(nodes: list[NodeManager], drops: int, session: str) -> float:
    """Return seconds of processor time per drop, from the deployment to the end."""
    graph = triples(drops, len(nodes))
    gc.collect()
    started = time.process_time()
    deployment = plan_deployment(
        graph, SubmitQuery(session=session), [info for node in nodes for info in node.nodes()], clock=SystemClock()
    )
    for node in nodes:
        node.prepare(deployment, seconds=60.0)
    for node in nodes:
        node.start(session, deployment.epoch)
    for node in nodes:
        detail = node.session(session)
        while not detail.finished:
            detail = node.watch(session, version=detail.version, seconds=60.0)
        assert detail.status == "FINISHED"
    spent = time.process_time() - started
    for node in nodes:
        node.delete(session)
    return spent / graph.drops


def test_a_drop_costs_the_same_in_a_small_and_a_large_session(nodes: list[NodeManager]) -> None:
    """On two nodes, with half of the edges between them, a drop costs about the same among 1,000 and 100,000."""
    _run(nodes, 300, "warm")
    costs = [
        min(_run(nodes, size, f"s{size}-{turn}") for turn in range(3 if size < SIZES[-1] else 1)) for size in SIZES
    ]

    # A small session includes the cost of its directory and its thread, so only growth counts.
    assert costs[2] < FACTOR * costs[1]
    assert costs[1] < FACTOR * costs[0]
