"""Processes are killed and stopped in the middle of sessions: what can continue continues, the rest is reported.

The processes and the signals are real. Nodes are lost after three seconds here, fifteen by default.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from dropflow.api.client import Client
from dropflow.api.drop_records import DropQuery
from dropflow.errors import DropflowError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from tests.e2e.cluster import (
    Cluster,
    content,
    expected_end,
    finished,
    pipeline,
    placed,
    port_of,
    scattered,
    submit,
    underway,
    until,
)
from tests.nightly import nightly
from tests.processes import Running, gone
from tests.recovery_graphs import replacing

pytestmark = pytest.mark.slow

_ANSWER = 60.0
"""Seconds after which a request fails: a manager waits two of them for a silent child, and a busy host takes more."""


@dataclass
class Three:
    """Three nodes under an island."""

    cluster: Cluster
    nodes: dict[str, Running]
    island: Running
    client: Client


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    """Three nodes under an island; a test may kill any of them."""
    with Cluster(tmp_path) as cluster:
        nodes = dict(zip("abc", cluster.nodes(*"abc"), strict=True))
        island = cluster.island(*nodes.values())
        yield Three(cluster, nodes, island, cluster.client(island))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the result of the pipeline in one process."""
    return expected_end(tmp_path_factory.mktemp("alone") / "session")


def kill(running: Running) -> list[psutil.Process]:
    """Kill a process with SIGKILL, and return its former children."""
    children = running.family()[1:]
    running.process.kill()
    running.process.wait()
    return children


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "killed",
    [*nightly("island", "master"), "island and master"],
)
def test_managers_above_may_be_killed(killed: str, tmp_path: Path, expected: bytes) -> None:
    """Sessions run to their end while islands and masters are dead, and these show all of them after a restart."""
    with Cluster(tmp_path) as cluster:
        a, b = cluster.nodes("a", "b")
        island = cluster.island(a, b)
        master = cluster.master(island)
        submit(cluster.client(master), scattered(pipeline(), ["a", "b"], 1), "s")
        assert underway(cluster.client(master), "s")
        for victim in (island, master):
            if victim.ready["role"] in killed:
                kill(victim)
        parts = [finished(cluster.client(node), "s") for node in (a, b)]
        if "island" in killed:
            island = cluster.island(a, b, port=port_of(island))
        if "master" in killed:
            master = cluster.master(island, port=port_of(master))
        above = cluster.client(master)
        assert until(lambda: [info.status for info in above.sessions()] == ["FINISHED"])
        detail = above.session("s")

        assert [part.status for part in parts] == ["FINISHED", "FINISHED"]
        assert (detail.drops, detail.settled, detail.states) == (26, 26, {"COMPLETED": 26})
        assert len(detail.logical) == 26
        assert above.drops("s", DropQuery(limit=100)).total == 26
        assert [result.oid for result in above.results("s").results] == ["pipeline_end_0"]
        assert content(above, "s") == expected


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, id="killed"), *nightly(stopped=signal.SIGSTOP)])
def test_sessions_go_on_after_the_loss_of_a_node(number: signal.Signals, three: Three, tmp_path: Path) -> None:
    """Sessions with drops on a lost node finish on the others within bounded time, with the same results.

    If it comes back and removes its part of a session, an attempt that reads a directory there is repeated.
    """
    slow = pipeline(seconds=1.0, length=8)
    submit(three.client, placed(slow, {"S0-3": "a", "d0-3": "a", "S1-2": "a"}, "b"), "with-a")
    submit(three.client, scattered(pipeline(seconds=0.5, length=10), ["b", "c"], 2), "without-a")
    if number is signal.SIGSTOP:
        submit(three.client, _reads_in_place(tmp_path / "mark"), "reads")
        assert until((tmp_path / "mark").exists)
    assert underway(three.client, "with-a", 1)
    victim = three.nodes["a"]
    family = victim.family()
    victim.process.send_signal(number)
    _ask_everything(three)
    detail = finished(three.client, "with-a")
    _ask_everything(three)

    assert (detail.status, detail.failures) == ("FINISHED", ())
    assert (detail.drops, detail.states) == (34, {"COMPLETED": 34})
    assert (detail.view, detail.members) == (1, ("b", "c"))
    assert content(three.client, "with-a") == expected_end(tmp_path / "alone", length=8)
    found = three.client.results("with-a")
    assert ([result.oid for result in found.results], found.missing) == (["pipeline_end_0"], ())
    assert finished(three.client, "without-a").status == "FINISHED"
    if number is signal.SIGKILL:
        assert gone(family)
    else:
        _continue_node(three)
        reads = finished(three.client, "reads")
        assert (reads.status, content(three.client, "reads", "inplace_used_0")) == ("FINISHED", b"whole\n"), reads
        reasons = three.client.drop("reads", "inplace_USE_0").reasons
        assert any(
            "infrastructure fault: the content of input inplace_made_0 was removed" in reason for reason in reasons
        )


def _reads_in_place(mark: Path) -> PhysicalGraph:
    """Return a directory that is made on ``a`` and read on ``b``, by an attempt that first waits until it is gone."""

    def command(value: str) -> dict[str, Any]:
        arguments = (Argument(name="command", value=value),)
        return {"component": "dlg.apps.bash_shell_app.BashShellApp", "arguments": arguments}

    waits = f"if [ ! -e {mark} ]; then touch {mark}; while [ -e %i0/part ]; do sleep 0.05; done; fi; "
    builder = GraphBuilder("inplace")
    builder.app("MAKE", **command("mkdir %o0; echo whole > %o0/part"))
    builder.data("made", component="dlg.data.drops.directory.DirectoryDROP")
    builder.app("USE", **command(waits + "cat %i0/part > %o0")).data("used")
    builder.connect("MAKE", "made").connect("made", "USE").connect("USE", "used")
    return placed(builder.build(), {"MAKE": "a", "made": "a"}, "b")


@pytest.mark.exhaustive
@pytest.mark.parametrize("deployed_by", ["island", "master"])
def test_one_of_two_nodes_goes_on_with_the_vote_of_a_manager(deployed_by: str, tmp_path: Path) -> None:
    """The island or master that deployed votes: after the loss of one of two nodes, the other finishes the session."""
    with Cluster(tmp_path) as cluster:
        a, b = cluster.nodes("a", "b")
        above = cluster.island(a, b)
        client = cluster.client(above if deployed_by == "island" else cluster.master(above))
        slow = pipeline(seconds=0.5, length=8)
        submit(client, placed(slow, {"S0-3": "a", "d0-3": "a", "S1-2": "a"}, "b"), "s")
        assert underway(client, "s", 1)
        kill(a)
        detail = finished(client, "s")

        assert (detail.status, detail.states) == ("FINISHED", {"COMPLETED": 34})
        assert (detail.view, detail.members) == (1, ("b",))
        assert content(client, "s") == expected_end(tmp_path / "alone", length=8)


@pytest.mark.exhaustive
def test_one_of_two_nodes_waits_when_the_island_is_lost_as_well(tmp_path: Path) -> None:
    """It cannot know whether it is cut off: it waits, says so, and goes on if the other one answers again."""
    with Cluster(tmp_path) as cluster:
        a, b = cluster.nodes("a", "b")
        island = cluster.island(a, b)
        slow = pipeline(seconds=0.3, length=8)
        submit(cluster.client(island), placed(slow, {"S0-3": "a", "d0-3": "a", "S1-2": "a"}, "b"), "s")
        client = cluster.client(b)
        kill(island)
        a.process.send_signal(signal.SIGSTOP)
        assert until(lambda: "waiting for a majority: 1 of 3 voters" in client.session("s").text)
        assert client.session("s").status == "RUNNING"
        a.process.send_signal(signal.SIGCONT)

        assert finished(client, "s").status == "FINISHED"


def _ask_everything(three: Three) -> None:
    """Send all requests to all managers except node a; one that waited for it would not be answered."""
    with (
        Client(three.nodes["b"].ready["url"], token=three.nodes["b"].ready["token"], timeout=_ANSWER) as node,
        Client(three.island.ready["url"], token=three.island.ready["token"], timeout=_ANSWER) as island,
    ):
        for client in (node, island):
            for question in (
                client.info,
                client.nodes,
                client.sessions,
                lambda client=client: client.session("with-a"),
                lambda client=client: client.drops("with-a", DropQuery()),
                lambda client=client: client.failures("with-a"),
                lambda client=client: client.results("with-a"),
                lambda client=client: client.drop("with-a", "pipeline_S0-0_0"),
            ):
                question()


def _continue_node(three: Three) -> None:
    """Continue node a: it receives that the others went on without it, removes its part, and takes new sessions."""
    victim = three.nodes["a"]
    victim.process.send_signal(signal.SIGCONT)
    awake = three.cluster.client(victim)

    assert until(lambda: "with-a" not in [info.session for info in awake.sessions()])
    assert until(lambda: awake.nodes()[0].load.busy == 0)
    assert three.client.session("with-a").status == "FINISHED"
    assert until(lambda: [node.state for node in three.client.nodes()] == ["alive"] * 3)
    submit(three.client, scattered(pipeline(seconds=0.0), ["a", "b", "c"], 3), "again")
    assert finished(three.client, "again").status == "FINISHED"


@pytest.mark.parametrize("retries", [1, *nightly(0)])
def test_a_killed_worker_ends_one_attempt(retries: int, tmp_path: Path) -> None:
    """The attempt of a killed worker is repeated, and a note counts it; without retries only its drop fails."""
    mark = tmp_path / "mark"
    with Cluster(tmp_path) as cluster:
        client = cluster.client(cluster.node("a"))
        submit(client, _one_waiting(mark), "s", retries=retries)
        assert until(lambda: mark.exists() and mark.read_text().endswith("\n"))
        os.kill(int(mark.read_text()), signal.SIGKILL)
        detail = finished(client, "s")
        attempts = {drop.name: drop.attempt for drop in client.drops("s", DropQuery(limit=100)).drops}
        reasons = client.drop("s", "alone_UNLUCKY_0").reasons

        assert detail.notes[-1].startswith("node a: 1 infrastructure fault")
        if retries == 0:
            (failure,) = detail.failures
            assert (detail.status, failure.code, failure.name, failure.count) == ("FAILED", "DF202", "UNLUCKY", 2)
            assert detail.states == {"COMPLETED": 8, "ERROR": 2}
        else:
            assert (detail.status, detail.states) == ("FINISHED", {"COMPLETED": 10})
            assert attempts["UNLUCKY"] == 2
            assert "attempt 1: infrastructure fault: the worker process was killed by signal 9 (SIGKILL)" in reasons[-1]


def _one_waiting(mark: Path) -> PhysicalGraph:
    """Return a function that writes its process id and waits at its first attempt, and four others."""
    code = f"""
def f():
    import os, pathlib, time
    mark = pathlib.Path({str(mark)!r})
    if not mark.exists():
        mark.write_text(str(os.getpid()) + chr(10))
        time.sleep(60)
    return 1
"""
    return _alone({"UNLUCKY": code} | {f"FINE{at}": "def f(): return 2" for at in range(4)})


def _alone(functions: dict[str, str]) -> PhysicalGraph:
    """Return functions called ``f``, each with one data drop, on node ``a``."""
    builder = GraphBuilder("alone")
    for name, text in functions.items():
        arguments = (Argument(name="func_name", value="f"), Argument(name="func_code", value=text))
        builder.app(name, component="dlg.apps.pyfunc.PyFuncApp", arguments=arguments).data(name.lower())
        builder.connect(name, name.lower(), source_port="out")
    return replace(builder.build(), places=("a",))


@pytest.mark.exhaustive  # half a minute; the losses around it stay in the CI
def test_sessions_go_on_at_once_without_a_node_that_is_started_again(tmp_path: Path) -> None:
    """The messages of the new process show the end of the old one before the deadline, and it takes new sessions."""
    patient = ("--suspect-after", 20, "--lost-after", 60)
    with Cluster(tmp_path) as cluster:
        a, b = cluster.node("a", *patient), cluster.node("b", *patient, "--links-port", 0)
        island = cluster.island(a, b)
        client = cluster.client(island)
        submit(client, scattered(pipeline(seconds=1.0, length=20), ["a", "b"], 1), "old")
        assert underway(client, "old", 1)
        port, links = port_of(b), client.nodes()[1].links.rpartition(":")[2]
        kill(b)
        b = cluster.node("b", *patient, "--port", port, "--links-port", links)
        detail = finished(client, "old")
        assert until(lambda: [node.state for node in client.nodes()] == ["alive", "alive"])
        submit(client, scattered(pipeline(seconds=0.0), ["a", "b"], 1), "new")

        assert (detail.status, detail.drops) == ("FINISHED", 82)
        assert any("node b is lost (" in note for note in detail.notes)
        assert finished(client, "new").status == "FINISHED"
        client.delete("old")
        assert until(lambda: list(tmp_path.rglob("sessions/old")) == [])
        submit(client, scattered(pipeline(seconds=0.0), ["a", "b"], 1), "old")
        assert finished(client, "old").status == "FINISHED"


def test_results_outlive_the_death_of_their_node(tmp_path: Path) -> None:
    """Contents committed before kill -9 are served by the next process, also those of a session that was running."""
    with Cluster(tmp_path) as cluster:
        a = cluster.node("a")
        client, gate = cluster.client(a), tmp_path / "gate"
        wait = f"def f():\n    import os, time\n    while not os.path.exists({str(gate)!r}): time.sleep(0.05)"
        submit(client, _alone({"Early": "def f(): return 'early'", "Late": wait}), "running")
        submit(client, _alone({"Early": "def f(): return 'early'"}), "over")
        finished(client, "over")
        assert underway(client, "running", 2)
        before = content(client, "over", "alone_early_0")
        kill(a)
        client = cluster.client(cluster.node("a"))

        assert client.session("running").status == "FAILED"
        assert [content(client, session, "alone_early_0") for session in ("running", "over")] == [before, before]
        assert [result.oid for result in client.results("running").results] == ["alone_early_0"]
        gate.touch()


def test_a_node_that_does_not_answer_is_named_by_the_deployment(three: Three) -> None:
    """Submitting to a stopped node fails in bounded time, names it, and leaves nothing on any node."""
    submit(three.client, scattered(pipeline(seconds=0.5, length=10), ["b", "c"], 2), "fine")
    three.nodes["a"].process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(DropflowError, match=r"'a'|node a"):
            submit(three.client, scattered(pipeline(), ["a", "b", "c"], 1), "never")
    finally:
        three.nodes["a"].process.send_signal(signal.SIGCONT)

    assert "never" not in [info.session for name in "bc" for info in three.cluster.client(three.nodes[name]).sessions()]
    assert finished(three.client, "fine").status == "FINISHED"
    assert until(lambda: not list(three.cluster.home.rglob("sessions/never")))


@pytest.mark.exhaustive
def test_iterations_that_replace_one_file_survive_a_loss(three: Three, tmp_path: Path) -> None:
    """What a later iteration has replaced is made again from the first one, and the file is that of the last one."""
    marks, go = tmp_path / "marks", tmp_path / "go"
    graph = replacing(marks, 0.0)
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; echo > %o0"
    templates = (
        msgspec.structs.replace(template, arguments=(Argument(name="command", value=waits),))
        if template.name == "GATE"
        else template
        for template in graph.templates
    )
    graph = replace(graph, templates=tuple(templates))
    away = {f"{kind}{at}": "b" for at in (2, 3) for kind in ("log", "STEP", "sum")}
    submit(three.client, placed(graph, {**away, "GATE": "c"}, "a"), "s")
    assert until(lambda: three.client.session("s").states.get("COMPLETED") == 20)
    kill(three.nodes["b"])
    assert until(lambda: three.client.session("s").view == 1)
    go.touch()
    detail = finished(three.client, "s")
    go_on = local_run.run(
        replacing(tmp_path / "others", 0.0),
        local_run.prepare_directory(tmp_path / "alone"),
        RunOptions(runner="inline"),
    )

    assert (detail.status, detail.states) == ("FINISHED", {"COMPLETED": go_on.drops})
    assert detail.recomputed > 0
    assert (
        content(three.client, "s", "replacing_end_0")
        == next((tmp_path / "alone" / "results").glob("replacing_end_0*")).read_bytes()
    )
    assert content(three.client, "s", "replacing_log6_0") == (tmp_path / "alone" / "files" / "log.txt").read_bytes()
