"""Streams across nodes of real processes, with kills, stops, disconnections and full disks."""

import json
import os
import signal
import threading
import urllib.request
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dropflow.api.client import Client
from dropflow.api.drop_records import DropQuery
from dropflow.graph.physical import PhysicalGraph
from managers.node.manager import NodeManager
from tests.e2e.cluster import PATIENT, Cluster, content, finished, placed, port_of, submit, until
from tests.e2e.conftest import FaultyCluster
from tests.faulty_proxy import ConnectionFaults
from tests.managers.node.conftest import Cluster as Together
from tests.processes import Running, gone, run
from tests.streaming_graphs import alone, filters, line, random_graph, scattered

pytestmark = pytest.mark.slow

_MB = 1 << 20
_ANSWER = 6.0
_BIG = 300_000_000


def _waiting(sign: Path, *, text: str = "one") -> str:
    """Return a producer that writes a word, waits for a file, and writes another word."""
    return f"echo {text}; until test -e {sign}; do sleep 0.05; done; echo two"


def _reading(sign: Path) -> str:
    """Return a consumer that makes a file when it has read a word, and passes everything on."""
    return f"read word; touch {sign}; echo $word; cat"


def _on(graph: PhysicalGraph, **places: str) -> PhysicalGraph:
    """Return the graph with its drops on these nodes."""
    return placed(graph, places, next(iter(places.values())))


def _two(make: str, take: str, producer: str = "a", consumer: str = "b", tries: int = 1) -> PhysicalGraph:
    """Return a line with its data on the node of the producer."""
    where = {"MAKE": producer, "data": producer, "TAKE": consumer, "result": consumer}
    return _on(line(make, take, (0, 0, 0), tries=tries), **where)


@pytest.mark.exhaustive
def test_no_process_grows_with_a_stream(tmp_path: Path) -> None:
    """300 MB pass through two nodes and a filter; their managers and workers never have more than a part in memory."""
    with Cluster(tmp_path, times=PATIENT) as cluster:
        nodes = cluster.nodes("a", "b")
        client = cluster.client(cluster.island(*nodes))
        graph = filters(f"head -c {_BIG} /dev/zero", "cat", "cksum", places=(0, 0, 0))
        submit(client, _on(graph, MAKE="a", d0="a", F1="b", d1="b", F2="a", d2="a"), "s")
        before = sum(_resident(node) for node in nodes)
        most, version, detail = 0, 0, client.session("s")
        while not detail.finished:
            detail = client.watch("s", version=version, seconds=0.2)
            version = detail.version
            most = max(most, sum(_resident(node) for node in nodes))
        received = content(client, "s", "filters_d2_0")

    assert detail.status == "FINISHED"
    assert received.split()[1] == str(_BIG).encode()
    assert most - before < 200 * _MB


def _resident(node: Running) -> int:
    """Return the resident memory of a node manager and its workers, in bytes."""
    total = 0
    for process in node.family():
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


@pytest.mark.exhaustive
@pytest.mark.parametrize("victim", ["producer", "consumer"])
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGSTOP, id="stopped")]
)
def test_streams_go_on_after_the_loss_of_a_node(number: signal.Signals, victim: str, tmp_path: Path) -> None:
    """Sessions whose producer or consumer is on a lost node start over elsewhere and finish; other streams continue."""
    signs = {name: tmp_path / name for name in ("lost", "fine", "go")}
    with Cluster(tmp_path) as cluster:
        nodes = dict(zip("abc", cluster.nodes(*"abc"), strict=True))
        client = cluster.client(cluster.island(*nodes.values()))
        ends = ("a", "b") if victim == "producer" else ("b", "a")
        submit(client, _two(_waiting(tmp_path / "end"), _reading(signs["lost"]), *ends), "lost")
        submit(client, _two(_waiting(signs["go"]), _reading(signs["fine"]), "b", "c"), "fine")
        assert until(lambda: signs["lost"].exists() and signs["fine"].exists())
        family = nodes["a"].family()
        nodes["a"].process.send_signal(number)
        (tmp_path / "end").touch()
        signs["go"].touch()
        details = [finished(client, session) for session in ("lost", "fine")]
        received = [content(client, session, "line_result_0") for session in ("lost", "fine")]
        removed = until(lambda: not [path for path in cluster.home.rglob("sessions/lost/tmp/*") if "/b/" in str(path)])
        nodes["a"].process.send_signal(signal.SIGCONT)
        is_gone = number is signal.SIGSTOP or gone(family)

    assert [detail.status for detail in details] == ["FINISHED", "FINISHED"]
    assert received == [b"one\ntwo\n"] * 2
    assert "a" not in details[0].members
    assert removed
    assert is_gone


@pytest.mark.parametrize(
    ("victim", "retries"),
    [
        ("producer", 1),
        pytest.param("consumer", 0, marks=pytest.mark.exhaustive),
        pytest.param("producer", 0, marks=pytest.mark.exhaustive),
        pytest.param("consumer", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_killed_in_mid_stream_ends_one_attempt(victim: str, retries: int, tmp_path: Path) -> None:
    """The attempt of a killed worker is repeated, and its readers start over; without retries only its drop fails."""
    pid, sign = tmp_path / "pid", tmp_path / "sign"
    mark = f"test -e {pid} || echo $PPID > {pid}"
    make, take = _waiting(sign), _reading(tmp_path / "read")
    if victim == "producer":
        make = f"{make.split(';')[0]}; {mark}; {make.split(';', 1)[1]}"
    else:
        take = f"{mark}; {take}"
    graph = _two(make, take)
    with Cluster(tmp_path, times=PATIENT) as cluster:
        client = cluster.client(cluster.island(*cluster.nodes("a", "b")))
        submit(client, graph, "s", retries=retries)
        assert until(lambda: pid.exists() and pid.read_text().endswith("\n") and (tmp_path / "read").exists())
        os.kill(int(pid.read_text()), signal.SIGKILL)
        sign.touch()
        detail = finished(client, "s")
        removed = until(lambda: not [*tmp_path.rglob("sessions/s/tmp/*")])
        received = content(client, "s", "line_result_0") if retries else b""

    if retries:
        assert (detail.status, received) == ("FINISHED", b"one\ntwo\n")
    else:
        assert (detail.status, detail.failures[0].code) == ("FAILED", "DF202")
    assert removed


@pytest.mark.exhaustive
@pytest.mark.parametrize("killed", ["island", "master", "island and master"])
def test_managers_above_may_be_killed_in_mid_stream(killed: str, tmp_path: Path) -> None:
    """The stream continues to its end, and the managers show it after a restart."""
    sign, read = tmp_path / "sign", tmp_path / "read"
    with Cluster(tmp_path) as cluster:
        a, b = cluster.nodes("a", "b")
        island = cluster.island(a, b)
        master = cluster.master(island)
        submit(cluster.client(master), _two(_waiting(sign), _reading(read)), "s")
        assert until(read.exists)
        for victim in (island, master):
            if victim.ready["role"] in killed:
                victim.process.kill()
                victim.process.wait()
        if "island" in killed:
            island = cluster.island(a, b, port=port_of(island))
        if "master" in killed:
            master = cluster.master(island, port=port_of(master))
        client = cluster.client(master)
        assert until(lambda: [info.status for info in client.sessions()] == ["RUNNING"])
        sign.touch()
        detail = finished(client, "s")
        received = content(client, "s", "line_result_0")

    assert (detail.status, received) == ("FINISHED", b"one\ntwo\n")


# A bad network ---------------------------------------------------------------------------------------------------


_CRUELTIES = {
    "cuts": ConnectionFaults(cut_every=100_000),
    "large cuts": ConnectionFaults(cut_every=1_000_000),
    "stalls": ConnectionFaults(stall=0.3),
    "everything": ConnectionFaults(cut_every=800_000, delay=0.005, stall=0.1, rate=20_000_000),
}


@pytest.mark.parametrize(
    "faulty",
    [
        pytest.param(
            (faults, 300 + at),
            id=f"{name}, seed {300 + at}",
            marks=[] if name == "everything" else pytest.mark.exhaustive,
        )
        for at, (name, faults) in enumerate(_CRUELTIES.items())
    ],
    indirect=True,
)
def test_a_bad_network_changes_no_result_of_streams(faulty: FaultyCluster, tmp_path: Path) -> None:
    """Long streams through three nodes, and many random ones, have the results of one process."""
    long = filters("seq 300000", "sed s/1/one/", "tac", "cat", places=(0, 1, 2, 0))
    many = random_graph(7, 20, marks=tmp_path)
    graphs = {
        "long": placed(long, {"F1": "b", "d1": "b", "F2": "c", "d2": "c"}, "a"),
        "many": replace(scattered(many, 3, 7), places=("a", "b", "c")),
    }
    for name, graph in graphs.items():
        assert faulty.run(graph, name) == alone(graph, tmp_path / f"alone-{name}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("faulty", [pytest.param((ConnectionFaults(), 0), id="cut by hand")], indirect=True)
def test_a_link_that_is_down_for_seconds_in_mid_stream(faulty: FaultyCluster, tmp_path: Path) -> None:
    """If all connections break repeatedly during a transfer, all bytes arrive, once and in order."""
    make = "for number in $(seq 400); do seq $number 4000; sleep 0.005; done"
    graph = placed(filters(make, "cat", "cat", places=(0, 1, 2)), {"F1": "b", "d1": "b", "F2": "c", "d2": "c"}, "a")
    outcomes: list[object] = []
    runner = threading.Thread(target=lambda: outcomes.append(faulty.run(graph, "s")))
    runner.start()
    while runner.is_alive():
        for proxy in faulty.proxies.values():
            proxy.cut()
        runner.join(0.1)

    assert outcomes == [alone(graph, tmp_path / "alone")]


# A full disk -----------------------------------------------------------------------------------------------------


def test_a_full_disk_where_a_stream_is_read_is_reported(small_disk: Path, tmp_path: Path) -> None:
    """A copy that does not fit fails with the path and the free space, and is removed."""
    with ExitStack() as stack:
        roots = {"a": tmp_path / "a", "b": small_disk}
        cluster = Together(
            {
                name: stack.enter_context(
                    closing(NodeManager(name, root=root, runner="threads", workers=2, in_place=False))
                )
                for name, root in roots.items()
            }
        )
        ended = cluster.run(line("head -c 10000000 /dev/zero", "wc -c", (0, 0, 1)))
        failures = cluster["b"].failures("s").failures
        left = [*small_disk.rglob("tmp/*")]
        again = cluster.run(line("head -c 1000000 /dev/zero", "wc -c", (0, 0, 1)), "again")

    assert ended["b"].status == "FAILED"
    assert "space" in failures[0].text + failures[0].hint
    assert left == []
    assert {detail.status for detail in again.values()} == {"FINISHED"}


# Commands and pages ----------------------------------------------------------------------------------------------


def test_commands_and_pages_show_a_drop_that_is_being_written(tmp_path: Path) -> None:
    """While a stream is written, `dropflow watch --once` and the page show its data drop as WRITING."""
    sign, read = tmp_path / "sign", tmp_path / "read"
    with Running(tmp_path, "up", "--nodes", 2, "--port", 0) as up:
        with Client(up.ready["master"], token=up.ready["token"]) as client:
            first, second = sorted(node.name for node in client.nodes())
            submit(client, _two(_waiting(sign), _reading(read), first, second), "s")
            assert until(read.exists)
            # The result has no streaming consumer, so it is listed only when it is complete.
            assert until(lambda: client.session("s").states == {"WRITING": 3, "INITIALIZED": 1})
            states = {drop.name: drop.state for drop in client.drops("s", DropQuery()).drops}
        status = run(tmp_path, "watch", "s", "--once", "--output", "json")
        explained = run(tmp_path, "explain", "s", "line_data_0")
        page = _page(up, "sessions/s/drops/line_data_0")
        sign.touch()
        run(tmp_path, "watch", "s", "--output", "json")
        fetched = run(tmp_path, "fetch", "s", "-o", tmp_path / "fetched")

    assert states == dict.fromkeys(("MAKE", "data", "TAKE"), "WRITING") | {"result": "INITIALIZED"}
    assert json.loads(status.stdout)["session"]["states"] == {"WRITING": 3, "INITIALIZED": 1}
    assert "WRITING" in explained.stdout
    assert "WRITING" in page
    assert fetched.returncode == 0, fetched.stderr
    assert [path.read_text() for path in (tmp_path / "fetched").rglob("line_result_0*")] == ["one\ntwo\n"]


def _page(up: Running, path: str) -> str:
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{up.ready['master']}/{path}", headers={"Authorization": f"Bearer {up.ready['token']}", "Accept": "text/html"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - as above
        return str(answer.read().decode())
