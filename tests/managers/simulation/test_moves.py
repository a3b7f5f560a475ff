"""Sessions whose drops move although no node is lost, in clusters on virtual time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropflow.api.records import SubmitQuery
from dropflow.errors import ConflictError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from managers.machine_calls import Answered, Unanswered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import Workload
from tests.nightly import nightly

pytestmark = pytest.mark.slow


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


def _seconds(directory: Path, *, rebalance: bool, is_automatic: bool = False) -> float:
    directory.mkdir()
    workload = Workload(seconds=2.0, slowness={"n1-2": 6.0})
    cluster = SimulatedCluster(5, directory, islands=1, workload=workload)
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(rows(36, 3), "s", join=is_automatic), Answered)
    cluster.simulation.wait(12.0)
    if rebalance:
        assert isinstance(cluster.call("rebalance", session="s"), Answered)
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 144})
    assert (ended.view > 0) == (rebalance or is_automatic)
    if rebalance:
        assert "drops had not begun and move to n1-1 (" in ended.notes[-1]
    return ended.seconds


def test_a_rebalance_relieves_a_slow_node(tmp_path: Path) -> None:
    """What it has not begun goes to the others, which are faster, so that the session ends much sooner."""
    assert _seconds(tmp_path / "with", rebalance=True) < 0.7 * _seconds(tmp_path / "without", rebalance=False)


@pytest.mark.exhaustive
def test_a_session_with_a_slow_node_is_rebalanced_by_itself(tmp_path: Path) -> None:
    """The manager that deployed a session has it rebalanced when one node would end much later than the others."""
    automatic = _seconds(tmp_path / "with", rebalance=False, is_automatic=True)

    assert automatic < 0.75 * _seconds(tmp_path / "without", rebalance=False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("island", ["i1", *nightly("i2")])
def test_a_node_that_comes_takes_its_share(island: str, tmp_path: Path) -> None:
    """A node that is started in the middle of a session becomes a member, gets drops, and runs some of them."""
    cluster = SimulatedCluster(6, tmp_path, workload=Workload(seconds=2.0), nodes=3)
    late = f"n{island[1:]}-3"
    cluster.nodes[late].process.crash()
    cluster.simulation.wait(20.0)
    graph = rows(100, 3)
    assert isinstance(cluster.submit(replace(graph, places=("n1-1", "n1-2", "n2-1")), "s"), Answered)
    cluster.simulation.wait(5.0)
    assert "s" not in cluster.nodes["n2-2"].sessions
    cluster.start_node(late)
    ended = cluster.finish("s", seconds=1000.0)

    assert ended is not None
    assert (ended.status, ended.states, ended.view) == ("FINISHED", {"COMPLETED": 400}, 1)
    assert late in ended.members
    assert "n2-2" not in ended.members, "it was there when the session was submitted"
    assert any(f"node {late} has joined; " in note for note in ended.notes)
    done = cluster.nodes[late].sessions["s"].info().states
    assert done.get("COMPLETED", 0) >= 20


def test_a_session_on_one_node_gets_another_one(tmp_path: Path) -> None:
    """The second node runs a part of it, and the session survives the loss of the first one then."""
    cluster = SimulatedCluster(6, tmp_path, workload=Workload(seconds=2.0), islands=1, nodes=2)
    cluster.nodes["n1-2"].process.crash()
    cluster.simulation.wait(20.0)
    assert isinstance(cluster.submit(rows(40, 1), "s"), Answered)
    cluster.simulation.wait(5.0)
    cluster.start_node("n1-2")
    cluster.simulation.wait(15.0)
    cluster.nodes["n1-1"].process.crash()
    ended = cluster.finish("s", seconds=1000.0)

    assert ended is not None
    assert (ended.status, ended.states, ended.view, ended.members) == ("FINISHED", {"COMPLETED": 160}, 2, ("n1-2",))
    assert any("node n1-2 has joined; " in note for note in ended.notes)


@pytest.mark.exhaustive
def test_a_node_that_was_lost_comes_back(tmp_path: Path) -> None:
    """A member that is killed and started again joins as empty; what its former process had is not used."""
    cluster = SimulatedCluster(7, tmp_path, workload=Workload(seconds=2.0), islands=1, nodes=4)
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(rows(120, 4), "s"), Answered)
    cluster.simulation.wait(5.0)
    cluster.nodes["n1-3"].process.crash()
    cluster.simulation.wait(3.0)
    cluster.start_node("n1-3")
    ended = cluster.finish("s", seconds=1000.0)

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 480})
    assert ended.members == ("n1-1", "n1-2", "n1-4", "n1-3")
    assert cluster.nodes["n1-3"].sessions["s"].info().states.get("COMPLETED", 0) >= 20


def test_sessions_can_be_kept_from_growing(tmp_path: Path) -> None:
    """With `join` off, a node that comes is not added."""
    cluster = SimulatedCluster(6, tmp_path, workload=Workload(seconds=1.0), islands=1, nodes=4)
    cluster.nodes["n1-4"].process.crash()
    cluster.simulation.wait(20.0)
    options = SubmitQuery(session="s", join=False)
    assert isinstance(cluster.call("submit", graph=rows(60, 3), options=options), Answered)
    cluster.simulation.wait(2.0)
    cluster.start_node("n1-4")
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    assert (ended.status, ended.view) == ("FINISHED", 0)


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
