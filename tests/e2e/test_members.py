"""Nodes join, leave, are killed or disconnected, and sessions are cancelled or paused, in real processes."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from dropflow.api.client import Client
from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import DrainRequest
from dropflow.errors import NotFoundError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from managers.simulation.history import Committed
from tests.e2e.cluster import (
    PATIENT,
    TIMES,
    Cluster,
    content,
    expected_end,
    finished,
    pipeline,
    port_of,
    scattered,
    submit,
    underway,
    until,
)
from tests.e2e.recorded_node import Decided, History, recorded
from tests.faulty_proxy import ConnectionFaults, FaultyProxy
from tests.managers.simulation.checked_history import Promised
from tests.nightly import nightly
from tests.processes import Running, gone, run
from tests.streaming_graphs import FILE, bash

pytestmark = pytest.mark.slow


_SHAPE = {"width": 12, "length": 6}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the result of the pipeline in one process."""
    return expected_end(tmp_path_factory.mktemp("alone") / "session", **_SHAPE)


def test_a_node_joins_a_session_that_runs_and_another_is_drained(tmp_path: Path, expected: bytes) -> None:
    """A fourth node that is started in the middle of a run of three runs some of its drops.

    The session goes on without the drained node and computes nothing again, and its process ends with status 0.
    """
    joined, leaving = tmp_path / "joined", tmp_path / "leaving"
    graph = pipeline(seconds=0.0, gates={1: joined, 5: leaving}, **_SHAPE)
    with Cluster(tmp_path, times=PATIENT) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        island = cluster.island(*nodes)
        master = cluster.client(cluster.master(island))
        submit(master, scattered(graph, ["a", "b", "c"], 3), "s")
        assert underway(master, "s", 5)
        cluster.client(island).add_child(cluster.node("d").ready["url"])
        assert until(lambda: any("node d has joined" in note for note in master.session("s").notes))
        joined.touch()
        assert until(lambda: master.drops("s", DropQuery(node="d", state="COMPLETED")).total >= 1)
        with pytest.raises(NotFoundError, match="node z is not below"):
            master.drain("z")
        reply = master.drain("b", DrainRequest(grace=60.0))
        assert [(session.session, session.text) for session in reply.sessions] == [("s", "it goes to a, c, d")]
        leaving.touch()
        assert nodes[1].process.wait(60.0) == 0
        assert not (tmp_path / "state" / "dropflow" / "b" / "sessions" / "s").exists()
        detail = finished(master, "s", 120.0)

        assert (detail.status, detail.states, detail.recomputed) == ("FINISHED", {"COMPLETED": 146}, 0)
        assert detail.members == ("a", "c", "d")
        assert any("node b has left, as was asked for" in note for note in detail.notes)
        assert content(master, "s") == expected


@pytest.mark.exhaustive
def test_a_session_is_rebalanced(tmp_path: Path, expected: bytes) -> None:
    """What one node has not begun goes to two that stand by, and the result is the same."""
    with Cluster(tmp_path, times=PATIENT) as cluster:
        island = cluster.client(cluster.island(*cluster.nodes("a", "b", "c")))
        submit(island, scattered(pipeline(seconds=0.5, **_SHAPE), ["a"], 3), "s")
        assert underway(island, "s", 5)
        assert island.rebalance("s").status == "RUNNING"
        detail = finished(island, "s", 90.0)

        assert (detail.status, detail.states) == ("FINISHED", {"COMPLETED": 146})
        assert sorted(detail.nodes) == ["a", "b", "c"]
        assert all(island.drops("s", DropQuery(node=node, state="COMPLETED")).total >= 20 for node in "abc")
        assert content(island, "s") == expected


@pytest.mark.exhaustive
def test_a_node_that_gets_a_signal_gives_its_sessions_away(tmp_path: Path, expected: bytes) -> None:
    """SIGTERM drains it within the time that it has for that."""
    with Cluster(tmp_path) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        island = cluster.client(cluster.island(*nodes))
        submit(island, scattered(pipeline(seconds=0.5, **_SHAPE), ["a", "b", "c"], 3), "s")
        assert underway(island, "s", 10)
        nodes[0].process.send_signal(signal.SIGTERM)
        assert nodes[0].process.wait(60.0) == 0
        detail = finished(island, "s", 90.0)

        assert (detail.status, detail.states, detail.recomputed) == ("FINISHED", {"COMPLETED": 146}, 0)
        assert detail.members == ("b", "c")
        assert content(island, "s") == expected


@pytest.mark.exhaustive
def test_a_second_signal_ends_a_node_that_drains(tmp_path: Path) -> None:
    """It does not wait for the attempts that run, and the others go on as after a loss."""
    with Cluster(tmp_path) as cluster:
        nodes = [cluster.node(name, "--drain-seconds", 600) for name in "abc"]
        island = cluster.client(cluster.island(*nodes))
        submit(island, scattered(pipeline(seconds=3.0, width=4, length=2), ["a", "b", "c"], 3), "s")
        assert underway(island, "s", 3)
        nodes[1].process.send_signal(signal.SIGTERM)
        assert until(lambda: any(node.name == "b" and node.state == "draining" for node in island.nodes()))
        nodes[1].process.send_signal(signal.SIGTERM)
        assert nodes[1].process.wait(60) == 128 + signal.SIGTERM
        assert finished(island, "s", 90.0).status == "FINISHED"


# Cancelling and pausing sessions on real node processes.


_DEAF = """
def f():
    open({mark!r}, "w").close()
    while True:
        try:
            while True: pass
        except BaseException:
            pass
"""


def _deaf(mark: Path) -> PhysicalGraph:
    """Return a function that never stops by itself, and makes a file when it begins."""
    code = _DEAF.format(mark=str(mark))
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    drawing = GraphBuilder("deaf").app("F", component="dlg.apps.pyfunc.PyFuncApp", arguments=fields)
    return drawing.data("out").connect("F", "out", source_port="out").build()


def _begun(client: Client, mark: Path) -> None:
    submit(client, _deaf(mark), "s")
    assert until(mark.exists)


def test_a_node_that_is_killed_right_after_the_answer_finds_the_session_cancelled(tmp_path: Path) -> None:
    """The next process of the node reports the reason, and nothing of the attempt is left."""
    with Cluster(tmp_path) as cluster:
        node = cluster.node("a")
        client, mark = cluster.client(node), tmp_path / "mark"
        _begun(client, mark)
        family = node.family()[1:]
        answer = client.cancel("s", "enough", grace=1000.0)
        node.process.kill()
        node.process.wait()
        again = cluster.client(cluster.node("a")).session("s")

        assert (answer.status, answer.text) == ("CANCELLING", "cancelled: enough")
        assert (again.status, again.text, again.states) == ("CANCELLED", "cancelled: enough", {"CANCELLED": 2})
        assert gone(family)


def test_a_second_cancel_kills_what_does_not_stop(tmp_path: Path) -> None:
    """The first one would wait for a thousand seconds."""
    with Cluster(tmp_path, times=PATIENT) as cluster:
        node = cluster.node("a")
        client, mark = cluster.client(node), tmp_path / "mark"
        _begun(client, mark)
        first = client.cancel("s", "enough", grace=1000.0)
        client.cancel("s", "now", grace=0.0)

        assert first.status == "CANCELLING"
        assert finished(client, "s").text == "cancelled: enough"


@pytest.mark.exhaustive
def test_an_island_pauses_and_continues_a_session_on_all_nodes(tmp_path: Path) -> None:
    """While it is paused nothing runs; then it finishes as if nothing had happened."""
    with Cluster(tmp_path, times=PATIENT) as cluster:
        nodes = cluster.nodes("a", "b")
        client = cluster.client(cluster.island(*nodes))
        submit(client, scattered(pipeline(length=20), ["a", "b"], 1), "s")
        assert underway(client, "s")
        paused = client.pause("s")
        parts = [cluster.client(node).session("s").status for node in nodes]
        # Results may still be on their way from one node to the other when nothing runs.
        assert until(lambda: client.session("s").running == 0 < client.session("s").ready)
        again = client.pause("s")
        continued = client.unpause("s")
        ended = finished(client, "s")

        assert (paused.status, parts) == ("PAUSED", ["PAUSED", "PAUSED"])
        assert (again.status, again.running) == ("PAUSED", 0)
        assert continued.status == "RUNNING"
        assert ended.status == "FINISHED"


# Nodes are killed while sessions run whose drops are not simple: the others finish them with the same results.


def _shared() -> PhysicalGraph:
    """Return applications that write parts of one data drop, one after the other."""
    builder = GraphBuilder("pipeline").data("end", component=FILE)
    for number in range(6):
        command = f"sleep {0.4 * (number + 1)}; seq {number} 1000 > %o0"
        builder.app(f"W{number}", **bash("BashShellApp", command)).connect(f"W{number}", "end")  # type: ignore[arg-type]
    return builder.build()


def _streamed() -> PhysicalGraph:
    """Return filters that read a stream of some seconds."""
    make = "for i in $(seq 30); do echo line $i; sleep 0.1; done"
    builder = GraphBuilder("pipeline").app("A", **bash("StreamingOutputBashApp", make, tries=3))  # type: ignore[arg-type]
    builder.app("B", **bash("StreamingInputOutputBashApp", "tr l L", tries=3))  # type: ignore[arg-type]
    builder.app("C", **bash("StreamingInputOutputBashApp", "sed s/i/I/", tries=3))  # type: ignore[arg-type]
    builder.data("a", component=FILE).data("b", component=FILE).data("end", component=FILE)
    builder.connect("A", "a").connect("a", "B", streaming=True).connect("B", "b")
    return builder.connect("b", "C", streaming=True).connect("C", "end").build()


_GRAPHS = {
    "shared": _shared,
    "streamed": _streamed,
    "large": lambda: pipeline(width=2, length=4, seconds=0.4, size=50_000_000),
}
_KINDS = {Committed, Decided, Promised}
"""What any loss of a node leaves in the history."""


@pytest.mark.parametrize("kind", ["streamed", *nightly("shared", "large")])
def test_a_killed_node_is_replaced_and_may_come_back(kind: str, tmp_path: Path) -> None:
    """The result is that of one process, also if the node is started again under its name; a delete removes it all.

    The history of commits, reads and promises of the real nodes has no violation.
    """
    graph = _GRAPHS[kind]()
    alone = local_run.prepare_directory(tmp_path / "alone")
    local_run.run(graph, alone, RunOptions(runner="threads"))
    (expected,) = (path.read_bytes() for path in alone.glob("*/*_end_0*") if path.parent.name in ("files", "results"))
    history = History(tmp_path / "history")
    with Cluster(tmp_path, node_program=recorded(history.path)) as cluster:
        nodes = dict(zip("abc", cluster.nodes(*"abc"), strict=True))
        client = cluster.client(cluster.island(*nodes.values()))
        submit(client, scattered(graph, "abc", 1), "s")
        # Nothing of a stream is completed before its end.
        if kind == "streamed":
            assert until(lambda: client.session("s").states.get("WRITING", 0) >= 2)
        else:
            assert underway(client, "s", 1)
        victim = nodes["b"]
        victim.process.kill()
        victim.process.wait()
        history.gone("b")
        cluster.node("b", port=port_of(victim))
        detail = finished(client, "s")

        assert (detail.status, detail.view, detail.members) == ("FINISHED", 1, ("a", "c"))
        assert content(client, "s") == expected
        assert history.violations("s") == []
        assert {type(one) for one in history.of("s")} >= _KINDS
        assert until(lambda: [node.state for node in client.nodes()] == ["alive"] * 3)
        client.delete("s")
        assert until(lambda: client.sessions() == ())
        assert until(lambda: not list(tmp_path.rglob("deployment.json")))


# Pauses of managers and broken connections between them end no session; its status is UNKNOWN meanwhile.


STUCK = ConnectionFaults(rate=1)


def _statuses(client: Client, session: str) -> set[str]:
    """Yield every status that is reported until the session is over."""
    found = {client.session(session).status}
    assert until(lambda: bool(found.add(client.session(session).status) or found & {"FINISHED", "FAILED"}))
    return found


@pytest.mark.exhaustive
def test_an_island_that_was_stopped_reports_no_failure(tmp_path: Path) -> None:
    """An island that was stopped for longer than the deadline of its nodes does not report a failure."""
    with Cluster(tmp_path) as cluster:
        a, b = cluster.nodes("a", "b")
        island = cluster.island(a, b)
        client = cluster.client(island)
        submit(client, scattered(pipeline(seconds=0.7), ["a", "b"], 1), "s")
        assert underway(client, "s", 1)
        island.process.send_signal(signal.SIGSTOP)
        parts = [finished(cluster.client(node), "s").status for node in (a, b)]
        island.process.send_signal(signal.SIGCONT)

        assert parts == ["FINISHED", "FINISHED"]
        assert _statuses(client, "s") <= {"UNKNOWN", "RUNNING", "FINISHED"}


@pytest.mark.exhaustive
def test_a_session_is_unknown_while_an_island_is_disconnected_from_its_nodes(tmp_path: Path) -> None:
    """Without its nodes the island reports UNKNOWN, and `watch` ends with 3; later both report the real end."""
    with Cluster(tmp_path) as cluster, ExitStack() as stack:
        nodes = cluster.nodes("a", "b")
        proxies = [
            stack.enter_context(FaultyProxy(("127.0.0.1", port_of(node)), 0, ConnectionFaults())) for node in nodes
        ]
        urls = ",".join(f"http://127.0.0.1:{proxy.port}" for proxy in proxies)
        island = stack.enter_context(Running(tmp_path, "island", "--port", 0, "--name", "i", "--nodes", urls, *TIMES))
        client = cluster.client(island)
        assert until(lambda: [node.state for node in client.nodes()] == ["alive"] * 2)
        submit(client, scattered(pipeline(seconds=0.6), ["a", "b"], 1), "s")
        assert underway(client, "s", 1)
        for proxy in proxies:
            proxy.faults = STUCK
        assert until(lambda: client.session("s").unknown == ("a", "b"))
        seen = client.session("s")
        watched = run(tmp_path, "watch", "s", "--to", island.ready["url"], "--patience", 0)
        parts = [finished(cluster.client(node), "s").status for node in nodes]
        lost = until(lambda: [child.state for child in client.children()] == ["lost"] * 2)
        still = client.session("s").status
        for proxy in proxies:
            proxy.faults = ConnectionFaults()
            proxy.cut()

        assert (seen.status, seen.finished) == ("UNKNOWN", 0.0)
        assert watched.returncode == 3, watched.stderr
        assert "the state of session s is not known" in watched.stderr
        assert parts == ["FINISHED", "FINISHED"]
        assert (lost, still) == (True, "UNKNOWN")
        # A delayed answer may still have RUNNING.
        assert _statuses(client, "s") <= {"UNKNOWN", "RUNNING", "FINISHED"}
