"""Copies of contents on other nodes, and the loss of the nodes that own them, on virtual time."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropflow.data.read import read
from dropflow.execution.session import Session
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.graph.text_ids import oid
from managers.machine_calls import Answered
from managers.node.decisions.copies import ContentCopies
from managers.node.hosted_session import HostedSession
from managers.simulation.cluster import SimulatedCluster
from managers.simulation.simulated_node import SimulatedNode, Workload
from tests.managers.simulation.graphs import fan
from tests.nightly import nightly


class Runs:
    """Counts the attempts of each drop that have ended."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def workload(self, size: int = 10) -> Workload:
        """Return work that is counted, with contents of this size."""
        return Workload(seconds=1.0, content=lambda task, drop: self._content(task.oid, drop, size))

    def _content(self, oid: str, drop: int, size: int) -> bytes:
        self.count[oid] += 1
        return b"%d" % drop * size


def _copies(node: SimulatedNode) -> ContentCopies:
    record = node._host._table.get("s")
    assert record is not None
    assert record.member is not None
    return record.member.copies


def _hosted(node: SimulatedNode) -> HostedSession:
    hosted = node.sessions["s"]
    assert isinstance(hosted, HostedSession)
    return hosted


def _own_contents(node: SimulatedNode) -> dict[int, bytes]:
    """Return the contents of the drops of a node, by row."""
    hosted = _hosted(node)
    piece = hosted.piece
    contents = hosted.session.call(Session.contents)
    return {int(piece.drop[drop]): read(handle) for drop, handle in contents.items() if piece.is_own[drop]}


def _results(count: int, steps: int = 10) -> PhysicalGraph:
    """Return applications on six nodes in turn that each write a result, and a chain that waits for all of them."""
    builder = GraphBuilder("results").app("join")
    last, parts = "join", [0]
    for step in range(steps):
        builder.data(f"data{step}").app(f"step{step}")
        builder.connect(last, f"data{step}").connect(f"data{step}", f"step{step}")
        last, parts = f"step{step}", [*parts, 0, 0]
    for number in range(count):
        builder.app(f"make{number}").data(f"result{number}", persist=True)
        builder.connect(f"make{number}", f"result{number}").connect(f"result{number}", "join")
        parts += [number % 6] * 2
    return replace(builder.build(), part=np.array(parts, dtype=np.int32), places=tuple(f"#{n}" for n in range(6)))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, *nightly(3000)])
def test_contents_with_copies_are_not_computed_again(size: int, tmp_path: Path) -> None:
    """After the loss of their owner, the copies are the contents; small ones and ones that had to be fetched.

    Another copy of each is made on a node that is left.
    """
    runs = Runs()
    cluster = SimulatedCluster(5, tmp_path, workload=runs.workload(size))
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(_results(30), "s"), Answered)
    cluster.simulation.wait(2.5)
    lost = cluster.nodes["n1-2"]
    contents, copies = _own_contents(lost), _copies(lost)
    rows = list(contents)
    lost.owner._carry_out(copies.ask({"n1-1": rows[::2], "n2-3": rows[1::2]}))
    assert copies.waits_for(rows)
    cluster.simulation.wait(0.5)
    assert not copies.waits_for(rows)
    assert not copies.unsafe(rows)
    before = Counter(runs.count)
    lost.process.crash()
    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": 81})
    left = [node for node in cluster.nodes.values() if node is not lost]
    remaining = {row: content for node in left for row, content in _own_contents(node).items()}
    assert len(rows) > 2
    assert {row: remaining[row] for row in rows} == contents
    graph = _hosted(lost).directory.graph()
    assert all(runs.count[oid(graph, row - 1)] == before[oid(graph, row - 1)] == 1 for row in rows)
    held = [row for node in left for row in _copies(node).held]
    assert sorted(held) == sorted(rows), "each has a copy again"


@pytest.mark.slow
def test_copies_are_removed_when_their_contents_are_released(tmp_path: Path) -> None:
    """The member that holds a copy removes it after the last use of the content."""
    cluster = SimulatedCluster(6, tmp_path, workload=Runs().workload(3000))
    assert cluster.wait_for_nodes()
    assert isinstance(cluster.submit(fan(8), "s"), Answered)
    cluster.simulation.wait(3.0)
    held = 0
    for node in cluster.nodes.values():
        copies = _copies(node)
        others = [name for name in cluster.nodes if name != node.name]
        node.owner._carry_out(copies.ask(dict.fromkeys(others, _own_contents(node))))
    cluster.simulation.wait(0.3)
    held = len(list(tmp_path.rglob("copies/*/content")))
    ended = cluster.finish("s")

    assert ended is not None
    assert ended.status == "FINISHED"
    assert held
    assert not list(tmp_path.rglob("copies/*/content"))


def _holders(cluster: SimulatedCluster, lost: tuple[str, ...] = ()) -> dict[int, int]:
    """Return on how many nodes each result is."""
    holders: Counter[int] = Counter()
    for node in cluster.nodes.values():
        if node.name not in lost and "s" in node.sessions:
            holders.update(_own_contents(node).keys())
            holders.update(_copies(node).held.keys())
    return holders


@pytest.mark.slow
def test_results_are_on_as_many_nodes_as_asked_before_the_session_ends(tmp_path: Path) -> None:
    """Also those of the last application."""
    cluster = SimulatedCluster(7, tmp_path, workload=Runs().workload(3000))
    assert cluster.wait_for_nodes()
    cluster.submit(_results(6), "s", replicas=3)
    ended = cluster.finish("s")

    assert ended is not None
    assert (ended.status, ended.text) == ("FINISHED", "")
    assert set(_holders(cluster).values()) == {3}
    assert len(_holders(cluster)) == 6


@pytest.mark.slow
@pytest.mark.parametrize("number", ["-1", "300"])
def test_a_number_of_copies_that_no_node_may_ask_for_fails_nothing(tmp_path: Path, number: str) -> None:
    """Data in memory whose number of nodes is below 0 or above 100 has as many copies as are possible."""
    cluster = SimulatedCluster(3, tmp_path, workload=Runs().workload())
    assert cluster.wait_for_nodes()
    builder = GraphBuilder("one").app("make")
    builder.data("made", arguments=(Argument(name="replicas", value=number, type="Integer"),)).connect("make", "made")
    answer = cluster.submit(builder.build(), "s")

    assert isinstance(answer, Answered), answer
    ended = cluster.finish("s")
    assert ended is not None
    assert ended.status == "FINISHED"


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, *nightly(3)])
def test_lost_copies_are_made_anew(replicas: int, tmp_path: Path) -> None:
    """After losses one by one, results are on as many nodes as before, and each was computed once."""
    runs = Runs()
    cluster = SimulatedCluster(8, tmp_path, workload=runs.workload(3000))
    assert cluster.wait_for_nodes()
    graph = _results(12, steps=60)
    cluster.submit(graph, "s", replicas=replicas, join=False)
    cluster.simulation.wait(2.5)
    cluster.nodes["n2-2"].process.crash()
    cluster.simulation.wait(20.0)
    cluster.nodes["n1-3"].process.crash()
    ended = cluster.finish("s", seconds=300.0)

    assert ended is not None
    assert (ended.status, ended.view) == ("FINISHED", 2)
    assert set(_holders(cluster, ("n2-2", "n1-3")).values()) == {replicas}
    again = [name for number in range(12) if runs.count[name := f"results_make{number}_0"] > 1]
    assert not again


@pytest.mark.slow
def test_protected_contents_are_not_computed_again(tmp_path: Path) -> None:
    """What took longer than the limit is on a second node, also if it is no result; what was quick is not."""
    runs = Runs()
    cluster = SimulatedCluster(9, tmp_path, workload=runs.workload())
    assert cluster.wait_for_nodes()
    cluster.submit(_results(30, steps=30), "s", protect=1.0)
    cluster.simulation.wait(2.5)
    held = {row for node in cluster.nodes.values() for row in _copies(node).held}
    lost = cluster.nodes["n1-2"]
    names = {row: oid(_hosted(lost).directory.graph(), row - 1) for row in _own_contents(lost)}
    lost.process.crash()
    ended = cluster.finish("s", seconds=200.0)

    assert ended is not None
    assert ended.status == "FINISHED"
    assert held & names.keys()
    assert names.keys() - held
    assert all(runs.count[name] == (1 if row in held else 2) for row, name in names.items())


@pytest.mark.slow
def test_a_node_of_the_graph_says_how_many_replicas_it_wants(tmp_path: Path) -> None:
    """Its field overrides what the session asks for; 1 means no copies."""
    builder = GraphBuilder("fields").app("make").data("other").connect("make", "other")
    for name, replicas in {"two": 2, "one": 1}.items():
        builder.data(name, arguments=(Argument(name="replicas", value=replicas),)).connect("make", name)
    cluster = SimulatedCluster(10, tmp_path, workload=Runs().workload())
    assert cluster.wait_for_nodes()
    cluster.submit(builder.build(), "s", replicas=3)
    assert cluster.finish("s") is not None

    assert _holders(cluster) == {1: 3, 2: 2, 3: 1}


@pytest.mark.slow
def test_contents_are_protected_by_the_time_of_a_producer_on_another_node(tmp_path: Path) -> None:
    """How long an attempt took goes with what it wrote to drops of other nodes."""
    builder = GraphBuilder("apart")
    for number in range(12):
        builder.app(f"make{number}").data(f"made{number}", part=1).connect(f"make{number}", f"made{number}")
    graph = replace(builder.build(), places=("n1-1", "n1-2"))
    cluster = SimulatedCluster(9, tmp_path, islands=1, workload=Workload(seconds=4.0))
    assert cluster.wait_for_nodes()
    cluster.submit(graph, "s", protect=2.0)
    assert cluster.finish("s", seconds=200.0) is not None
    holders = Counter(_holders(cluster).values())

    assert set(holders) == {1, 2}, "some attempts took less than two seconds"
    assert holders.total() == 12
