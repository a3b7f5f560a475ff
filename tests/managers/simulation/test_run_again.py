"""Sessions of clusters that run again from some drops, also if nodes die in the middle; on virtual time."""

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropflow.api.records import SessionDetail
from dropflow.api.requests import ResumeRequest, RetryRequest
from dropflow.engine.api import Task
from dropflow.errors import ConflictError, LinkError
from dropflow.graph.physical import PhysicalGraph
from managers.machine_calls import Answered, Unanswered
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.history import content_bytes
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.test_cluster import _fan

pytestmark = pytest.mark.slow


class _Versions:
    """Contents that tell what their producers have read, and which version of a producer wrote them."""

    def __init__(self) -> None:
        self.version: dict[str, int] = {}
        self.written: dict[str, list[str]] = {}

    def content(self, task: Task, drop: int) -> bytes:
        """Return what an attempt writes."""
        read = sorted(b"" if one.handle is None else content_bytes(one.handle) for one in task.inputs)
        name = next((output.oid for output in task.outputs if output.drop == drop), task.oid)
        text = f"{name}:{self.version.get(task.oid, 0)}({b','.join(read).decode()})"
        self.written.setdefault(name, []).append(text)
        return text.encode()


def _cluster(tmp_path: Path, versions: _Versions, *, nodes: int, seed: int = 3) -> SimulatedCluster:
    workload = Workload(seconds=1.0, content=versions.content)
    cluster = SimulatedCluster(seed, tmp_path, islands=1, nodes=nodes, workload=workload)
    assert cluster.wait_for_nodes()
    return cluster


def _ended(cluster: SimulatedCluster) -> SessionDetail:
    ended = cluster.finish("s", seconds=1000.0)
    assert ended is not None
    return ended


def _graph(nodes: int, seed: int) -> PhysicalGraph:
    """Return eight branches of two applications between a start and an end, with each drop on a random node."""
    chance = random.Random(seed)  # noqa: S311 - the same each time
    graph = _fan(8)
    part = np.array([chance.randrange(nodes) for _ in range(graph.drops)], dtype=np.int32)
    return replace(graph, part=part, places=tuple(f"#{number}" for number in range(nodes)))


def _result(directory: Path) -> str:
    """Return the content of the last drop of the session: a node that is lost may still have an older one."""
    found = directory.rglob("s/results/fan_end_0*")
    return max(found, key=lambda path: path.stat().st_mtime_ns).read_text()


def test_a_session_runs_again_from_a_drop(tmp_path: Path) -> None:
    """What depends on it is made anew, on all nodes; the others do not run, as far as their contents are there."""
    versions = _Versions()
    cluster = _cluster(tmp_path, versions, nodes=3)
    assert isinstance(cluster.submit(_graph(3, 1), "s"), Answered)
    early = cluster.call("retry", session="s", request=RetryRequest(start=("c3",)))
    assert isinstance(early, Unanswered)
    assert "session 's' is not over" in str(early.error)
    assert _ended(cluster).status == "FINISHED"
    before, attempts = _result(tmp_path), {name: len(made) for name, made in versions.written.items()}
    versions.version["fan_c3_0"] = 1
    answer = cluster.call("retry", session="s", request=RetryRequest(start=("c3",)))
    assert isinstance(answer, Answered), answer
    ended = _ended(cluster)

    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
    assert _result(tmp_path) == before.replace("fan_d3_0:0", "fan_d3_0:1")
    again = {name for name, made in versions.written.items() if len(made) > attempts[name]}
    assert again == {"fan_d3_0", "fan_end_0"}
    assert "4 drops run again as was asked for" in ended.notes[-1]


def _trial(seed: int, tmp_path: Path) -> None:
    """Run again, and kill nodes in the middle: all, or one. Then resume until it is over; old and new never mix."""
    chance = random.Random(seed)  # noqa: S311 - the same each time
    versions, nodes = _Versions(), chance.choice((2, 3))
    cluster = _cluster(tmp_path, versions, nodes=nodes, seed=seed)
    assert isinstance(cluster.submit(_graph(nodes, seed), "s"), Answered)
    assert _ended(cluster).status == "FINISHED"
    before = _result(tmp_path)
    for name in ("root", "a1", "c2"):
        versions.version[f"fan_{name}_0"] = 1
    after = re.sub(r"fan_(start|b1|d2)_0:0", r"fan_\1_0:1", before)
    request = RetryRequest(start=("root", "a1", "c2"))
    cluster.master.answer("retry", {"session": "s", "request": request}, lambda _value, _error: None)
    cluster.simulation.wait(chance.choice((0.01, 0.02, 0.03, 0.05, 0.1, 0.5, 2.0, 3.5)))
    killed = list(cluster.nodes) if chance.random() < 0.5 else [chance.choice(list(cluster.nodes))]
    for name in killed:
        cluster.nodes[name].process.crash()
        cluster.simulation.wait(chance.choice((0.0, 0.01, 1.0)))
    for name in killed:
        cluster.start_node(name)
    assert cluster.wait_for_nodes()
    for _ in range(5):
        ended = _ended(cluster)
        answer = cluster.call("resume", session="s", request=ResumeRequest())
        if ended.status == "FINISHED":
            assert isinstance(answer, Unanswered), "nothing is left to run"
            break
        # It goes on already, or the island has not seen yet that the nodes are there again.
        assert isinstance(answer, Answered) or isinstance(answer.error, ConflictError | LinkError), answer
        cluster.simulation.wait(5.0)
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
    assert _result(tmp_path) in (before, after)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
def test_nodes_that_die_while_drops_run_again(seed: int, tmp_path: Path) -> None:
    """The session is then as it was, or goes on with the drops that run again: all results are old, or all new."""
    _trial(seed, tmp_path)
