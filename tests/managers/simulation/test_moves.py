"""Sessions whose drops move although no node is lost, in clusters on virtual time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropflow.errors import ConflictError
from dropflow.graph.builder import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from managers.machine_calls import Answered, Unanswered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload


def rows(count: int, parts: int) -> PhysicalGraph:
    """Return independent rows of two applications, in blocks on the first nodes."""
    builder = GraphBuilder("rows")
    part = []
    for number in range(count):
        builder.app(f"a{number}").data(f"b{number}").app(f"c{number}").data(f"d{number}")
        builder.connect(f"a{number}", f"b{number}").connect(f"b{number}", f"c{number}")
        builder.connect(f"c{number}", f"d{number}")
        part += [number * parts // count] * 4
    places = tuple(f"#{number}" for number in range(parts))
    return replace(builder.build(), part=np.array(part, dtype=np.int32), places=places)


def _seconds(directory: Path, *, rebalance: bool) -> float:
    directory.mkdir()
    workload = Workload(seconds=2.0, slowness={"n1-2": 6.0})
    cluster = SimulatedCluster(5, directory, islands=1, workload=workload)
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(rows(60, 3), "s"), Answered)
    cluster.simulation.wait(12.0)
    if rebalance:
        assert isinstance(cluster.call("rebalance", session="s"), Answered)
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 240})
    assert ended.view == int(rebalance)
    if rebalance:
        assert "drops had not begun and move to n1-1 (" in ended.notes[-1]
    return ended.seconds


@pytest.mark.slow
def test_a_rebalance_relieves_a_slow_node(tmp_path: Path) -> None:
    """What it has not begun goes to the others, which are faster, so that the session ends much sooner."""
    assert _seconds(tmp_path / "with", rebalance=True) < 0.6 * _seconds(tmp_path / "without", rebalance=False)


def test_a_session_that_is_over_is_not_rebalanced(tmp_path: Path) -> None:
    """The request is refused, at a node and through its managers."""
    cluster = SimulatedCluster(5, tmp_path, islands=1)
    assert cluster.wait_for_nodes()
    cluster.submit(rows(3, 3), "s")
    cluster.finish("s")
    for url in ("http://n1-1:8000", "http://i1:8000", "http://master:8002"):
        answer = cluster.call("rebalance", url=url, session="s")
        assert isinstance(answer, Unanswered)
        assert isinstance(answer.error, ConflictError)
        assert "is FINISHED" in answer.error.text
