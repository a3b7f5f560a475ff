"""Whole clusters on virtual time: a master, two islands, six nodes, their links and sessions, in one thread."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropflow.execution.content_location import Handle
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.stopping import kill_after, stopped_after
from managers.machine_calls import Answered, Unanswered
from managers.node.decisions.view_changes import MAJORITY_SECONDS
from managers.node.stream_copies import StreamCopy
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.network import NetworkFaults
from managers.simulation.simulated_node import Workload
from tests.managers.simulation.faults import DisturbanceRates, disturb
from tests.managers.simulation.graphs import fan
from tests.nightly import nightly
from tests.streaming_graphs import FILE, bash

pytestmark = pytest.mark.slow

_BAD_NETWORK = NetworkFaults(lose=0.02, duplicate=0.02, reorder=0.05, cut=0.005)
_DISTURBED = DisturbanceRates(cuts=0.5, blocks=0.3, pauses=0.3, longest=1.0)
_CRASHING = DisturbanceRates(cuts=0.5, blocks=0.3, pauses=0.3, crashes=0.2, longest=1.0)
_STREAMED = Workload(content=lambda task, drop: b"%d-%d " % (task.attempt, drop) * 1000)


def _streams(width: int, parts: int = 6) -> PhysicalGraph:
    """Return filters in rows, over streaming links; applications and data are on all nodes in turn."""
    builder = GraphBuilder("streams").app("join", tries=3).data("end").connect("join", "end")
    for row in range(width):
        builder.app(f"make{row}", **bash("StreamingOutputBashApp", "true", tries=3))  # type: ignore[arg-type]
        for name in ("filter", "take"):
            builder.app(f"{name}{row}", **bash("StreamingInputOutputBashApp", "true", tries=3))  # type: ignore[arg-type]
        builder.data(f"a{row}", component=FILE).data(f"b{row}", component=FILE).data(f"c{row}")
        builder.connect(f"make{row}", f"a{row}").connect(f"a{row}", f"filter{row}", streaming=True)
        builder.connect(f"filter{row}", f"b{row}").connect(f"b{row}", f"take{row}", streaming=True)
        builder.connect(f"take{row}", f"c{row}").connect(f"c{row}", "join")
    graph = builder.build()
    # Neighbours are on one node, on the next one, or further away.
    part = (np.arange(graph.drops, dtype=np.int32) * 2 // 3) % parts
    return replace(graph, part=part, places=tuple(f"#{number}" for number in range(parts)))


def _run(seed: int, directory: Path) -> str:
    """Run one session with streams in a disturbed cluster, and return what happened in one line."""
    cluster = SimulatedCluster(seed, directory, faults=_BAD_NETWORK, workload=_STREAMED)
    cluster.wait_for_nodes()
    disturb(cluster, _CRASHING)
    answer = cluster.submit(_streams(2), "s")
    ended = cluster.finish("s", seconds=60.0)
    return f"{answer!r} {ended!r} {cluster.simulation.events} {cluster.simulation.digest:08x}"


def test_a_session_finishes_on_all_nodes(tmp_path: Path) -> None:
    """Without faults, a graph over six nodes of two islands finishes, with every drop completed."""
    cluster = SimulatedCluster(1, tmp_path)
    assert cluster.wait_for_nodes()

    assert isinstance(cluster.submit(fan(8), "s"), Answered)
    ended = cluster.finish("s")

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})
    assert len(ended.nodes) == 6


def test_a_failure_on_one_node_fails_the_session_everywhere(tmp_path: Path) -> None:
    """The drops that depend on a failed application are in ERROR on all nodes, with one root cause, no other text."""
    failing = Workload(fails=lambda task, node: node == "n1-1" and task.drop == 0)
    cluster = SimulatedCluster(2, tmp_path, workload=failing)
    assert cluster.wait_for_nodes()
    cluster.submit(fan(2), "s")

    ended = cluster.finish("s")

    assert ended is not None
    assert ended.status == "FAILED"
    (cause,) = ended.failures
    assert cause.kind == "SimulatedError"
    assert ended.text == ""


@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_attempts_of_dead_workers_are_repeated_in_virtual_time(seed: int, tmp_path: Path) -> None:
    """The first three attempts of every third drop lose their workers, on all nodes and in streams; nothing is lost."""
    dying = Workload(content=_STREAMED.content, dies=lambda task, _node: task.drop % 3 == 0 and task.attempt <= 3)
    graph = _streams(2)
    cluster = SimulatedCluster(seed, tmp_path, workload=dying)
    assert cluster.wait_for_nodes()
    cluster.submit(graph, "s")
    ended = cluster.finish("s")

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": graph.drops})
    notes = [note.partition(":")[0] for note in ended.notes if "infrastructure fault" in note]
    assert len(set(notes)) == len(notes) > 1, "one for each node that had faults"


@pytest.mark.parametrize(("stopping", "seconds"), [(0.0, 0.0), (2.0, 2.0), (1e6, kill_after(4.0))])
def test_a_cancel_ends_a_session_on_all_nodes_within_its_bound(stopping: float, seconds: float, tmp_path: Path) -> None:
    """The nodes stop their attempts at the same time, so many nodes take no longer than one."""
    cluster = SimulatedCluster(3, tmp_path, workload=Workload(seconds=1e6, stopping=stopping))
    assert cluster.wait_for_nodes()
    cluster.submit(fan(8), "s")
    begun = cluster.simulation.time
    answer = cluster.call("cancel", session="s", reason="enough", grace=4.0)
    ended = cluster.finish("s")
    took = cluster.simulation.time - begun

    assert isinstance(answer, Answered)
    assert answer.value.status in ("CANCELLING", "CANCELLED")
    assert ended is not None
    assert (ended.status, ended.text) == ("CANCELLED", "cancelled: enough")
    assert seconds <= took < seconds + 2.0 < stopped_after(4.0) + 2.0


def test_a_session_is_paused_on_all_nodes_in_virtual_time(tmp_path: Path) -> None:
    """Nothing is settled any more while it is paused; then it finishes."""
    cluster = SimulatedCluster(4, tmp_path, workload=Workload(seconds=1.0))
    assert cluster.wait_for_nodes()
    cluster.submit(fan(8), "s")
    cluster.call("pause", session="s")
    cluster.simulation.wait(10.0)
    before = cluster.call("session", session="s")
    cluster.simulation.wait(100.0)
    after = cluster.call("session", session="s")
    cluster.call("unpause", session="s")
    ended = cluster.finish("s")

    assert isinstance(before, Answered)
    assert isinstance(after, Answered)
    assert (before.value.status, before.value.settled) == (after.value.status, after.value.settled)
    assert (after.value.status, after.value.running) == ("PAUSED", 0)
    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 36})


@pytest.mark.parametrize("seed", [0, *nightly(1, 2, 3)])
def test_cuts_blocks_and_pauses_lose_nothing(seed: int, tmp_path: Path) -> None:
    """Without crashes, every accepted session finishes."""
    cluster = SimulatedCluster(seed, tmp_path, faults=_BAD_NETWORK)
    cluster.wait_for_nodes()
    disturbances = disturb(cluster, _DISTURBED)

    answer = cluster.submit(fan(4), "s")
    ended = cluster.finish("s", seconds=120.0)

    if isinstance(answer, Unanswered):
        assert getattr(answer.error, "retryable", False), answer.error
    else:
        assert ended is not None
        assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 20})
    disturbances.stop()
    _check_nothing_runs(cluster)


def test_streams_are_copied_while_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without faults, the content of each streaming drop is fetched once by each node that reads it, as a stream."""
    copied: list[tuple[int, bool]] = []
    take = StreamCopy.take

    def record(copy: StreamCopy, content: Handle) -> Handle | None:
        taken = take(copy, content)
        copied.append((content.size, taken is not None))
        return taken

    monkeypatch.setattr(StreamCopy, "take", record)
    cluster = SimulatedCluster(1, tmp_path, workload=_STREAMED)
    assert cluster.wait_for_nodes()
    cluster.submit(_streams(2), "s")
    ended = cluster.finish("s")

    assert ended is not None
    assert ended.status == "FINISHED"
    assert len(copied) >= 4
    assert all(size > 1000 and is_whole for size, is_whole in copied)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, *nightly(1, 2, 3)])
def test_cuts_blocks_and_pauses_lose_nothing_of_streams(seed: int, tmp_path: Path) -> None:
    """Data that are read on other nodes while they are written arrive completely, also from second attempts."""
    failing = Workload(content=_STREAMED.content, fails=lambda task, _node: task.drop % 3 == 0 and task.attempt == 1)
    graph = _streams(2)
    cluster = SimulatedCluster(seed, tmp_path, faults=_BAD_NETWORK, workload=failing)
    cluster.wait_for_nodes()
    disturbances = disturb(cluster, _DISTURBED)

    while isinstance(answer := cluster.submit(graph, "s"), Unanswered):
        assert getattr(answer.error, "retryable", False), answer.error
    ended = cluster.finish("s", seconds=120.0)

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": graph.drops})
    disturbances.stop()
    _check_nothing_runs(cluster)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, *nightly(1, 2, 3)])
def test_every_session_ends_when_managers_crash(seed: int, tmp_path: Path) -> None:
    """Nodes, islands and the master crash and restart; the session ends on every node, and the master reports that."""
    cluster = SimulatedCluster(seed, tmp_path, faults=_BAD_NETWORK)
    cluster.wait_for_nodes()
    disturbances = disturb(cluster, _CRASHING)

    graphs = {"s": fan(4), "streams": _streams(2)}
    for session, graph in graphs.items():
        cluster.submit(graph, session)
    cluster.simulation.wait(20.0)
    disturbances.stop()

    _check_nothing_runs(cluster)


def _check_nothing_runs(cluster: SimulatedCluster) -> None:
    """Check that no node has a running session when all waits are over, and that the master reports the same."""
    cluster.network.faults = NetworkFaults()
    cluster.simulation.wait(60.0 + MAJORITY_SECONDS)
    running = {
        node.name: session.state.name
        for node in cluster.nodes.values()
        for session in node.sessions.values()
        if not session.state.is_terminal
    }
    assert running == {}
    listed = cluster.call("sessions")
    assert isinstance(listed, Answered), listed
    assert all(info.is_over for info in listed.value), listed.value


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    """Two processes with different hash seeds and directories run the same to the byte; another seed does not."""

    def run(seed: int, hash_seed: str) -> str:
        directory = tmp_path / f"{seed}-{hash_seed}"
        directory.mkdir()
        code = "import sys, pathlib; from tests.managers.simulation.test_cluster import _run; "
        code += "print(_run(int(sys.argv[1]), pathlib.Path(sys.argv[2])))"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[3])}
        command = [sys.executable, "-c", code, str(seed), str(directory)]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    first = run(3, "1")

    assert run(3, "22") == first
    assert _run(4, tmp_path) != first
