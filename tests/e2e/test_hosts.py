"""Several hosts: temporary network failures, discovery, and full disks.

Hosts are network namespaces, so that most tests need root; they skip without it.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dropflow.api.client import Client
from dropflow.api.drop_records import DropQuery
from dropflow.api.session_records import SessionDetail
from dropflow.errors import BadGraphError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from tests.e2e.cluster import (
    Cluster,
    content,
    expected_end,
    finished,
    pipeline,
    placed,
    scattered,
    submit,
    underway,
    until,
)
from tests.e2e.network import Hosts, Network, missing
from tests.filling import fill
from tests.nightly import nightly
from tests.processes import Running

_WHY_NOT = missing("ip", "iptables")

pytestmark = pytest.mark.slow

needs_network = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "never")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts at one switch, on which nothing runs yet."""
    with Network(3) as network:
        made = Hosts(tmp_path, network)
        with made.stack:
            yield made


def _client(running: Running) -> Client:
    return Client(running.ready["url"], token=running.ready["token"])


@pytest.mark.exhaustive
@pytest.mark.netns
@needs_network
@pytest.mark.parametrize("trouble", ["a cable pulled for 5 s", *nightly("20 % of packets lost")])
def test_a_temporary_network_failure_changes_no_result(trouble: str, hosts: Hosts, tmp_path: Path) -> None:
    """A network failure in the middle of a session between two hosts changes no result; nothing runs twice."""
    nodes = [hosts.node(1, "a"), hosts.node(2, "b")]
    island = hosts.start(0, "island", "--nodes", ",".join(node.ready["url"] for node in nodes))
    master = hosts.start(0, "master", "--islands", island.ready["url"])

    def watch() -> tuple[SessionDetail, bytes, set[int]]:
        with _client(master) as client:
            submit(client, scattered(pipeline(length=12, seconds=0.4), ["a", "b"], 4), "s")
            assert underway(client, "s")
            if trouble.startswith("a cable"):
                hosts.network.pull(2)
                threading.Event().wait(5.0)  # that is how long the cable is out
                hosts.network.plug(2)
            else:
                hosts.network.lose(1, 0.2)
                hosts.network.lose(2, 0.2)
            detail = finished(client, "s")
            drops = client.drops("s", DropQuery(limit=1000)).drops
            return detail, content(client, "s"), {drop.attempt for drop in drops}

    detail, end, attempts = hosts.network.on(0, watch)

    assert (detail.status, detail.states) == ("FINISHED", {"COMPLETED": 50})
    assert end == expected_end(tmp_path / "alone", length=12)
    assert attempts == {1}
    if trouble.startswith("a cable"):
        assert detail.seconds > 5.0
    else:
        assert min(hosts.network.lost(1), hosts.network.lost(2)) > 20


@pytest.mark.exhaustive
@pytest.mark.netns
@needs_network
def test_sessions_go_on_without_a_disconnected_host(hosts: Hosts) -> None:
    """If a cable is unplugged, the session ends on the side of the island; the other side waits, and reports it.

    When it is plugged in again, that side removes its part.
    """
    times = ("--suspect-after", 1, "--lost-after", 3)
    nodes = [hosts.node(1, "a", *times), hosts.node(2, "b", *times)]
    island = hosts.start(0, "island", "--nodes", ",".join(node.ready["url"] for node in nodes), *times)

    def above() -> SessionDetail:
        with _client(island) as client:
            submit(client, scattered(pipeline(length=20, seconds=1.0), ["a", "b"], 4), "s")
            assert underway(client, "s", 1)
            hosts.network.pull(2)
            return finished(client, "s", 90.0)

    def there() -> SessionDetail:
        with _client(nodes[1]) as client:
            assert until(lambda: "majority" in client.session("s").text)
            return client.session("s")

    seen, cut_off = hosts.network.on(0, above), hosts.network.on(2, there)

    assert (seen.status, seen.states) == ("FINISHED", {"COMPLETED": 82})
    assert any("node b is lost" in note for note in seen.notes)
    assert cut_off.status == "RUNNING"
    assert "waiting for a majority: 1 of 3 voters answer" in cut_off.text

    def back() -> bool:
        with _client(nodes[1]) as client:
            return until(lambda: client.sessions() == (), 60.0)

    hosts.network.plug(2)
    assert hosts.network.on(2, back)


@pytest.mark.exhaustive
@pytest.mark.netns
@needs_network
def test_hosts_find_each_other(hosts: Hosts, tmp_path: Path) -> None:
    """By zeroconf a master finds two islands, which find their nodes, and a session runs on both."""
    nodes = [hosts.node(1, "a", "--discover"), hosts.node(2, "b", "--discover")]
    # An island adds every node that it finds, so the second one gets the address of its node.
    found = hosts.start(0, "island", "--name", "finder", "--discover")
    master = hosts.start(0, "master", "--discover")

    def scenario() -> tuple[list[str], bytes]:
        with _client(found) as island:
            assert until(lambda: [node.name for node in island.nodes()] == ["a", "b"]), found.errors
            island.remove_child(nodes[1].ready["url"])
        hosts.start(2, "island", "--name", "named", "--nodes", nodes[1].ready["url"], "--discover")
        with _client(master) as client:
            assert until(lambda: [child.name for child in client.children()] == ["finder", "named"]), master.errors
            assert until(lambda: [node.name for node in client.nodes() if node.state == "alive"] == ["a", "b"])
            submit(client, scattered(pipeline(seconds=0.0), ["a", "b"], 4), "s")
            finished(client, "s")
            return [node.island for node in client.nodes()], content(client, "s")

    islands, end = hosts.network.on(0, scenario)

    assert islands == ["finder", "named"]
    assert end == expected_end(tmp_path / "alone")


@pytest.mark.netns
@needs_network
def test_the_doctor_reports_a_firewall_between_two_other_nodes(hosts: Hosts) -> None:
    """The report is one finding with both ends and a hint."""
    nodes = [hosts.node(1, "a"), hosts.node(2, "b")]
    island = hosts.start(0, "island", "--nodes", ",".join(node.ready["url"] for node in nodes))
    with _client(island) as client:
        assert hosts.network.on(0, lambda: until(lambda: len(client.nodes()) == 2))
        (links,) = hosts.network.on(0, lambda: [node.links for node in client.nodes() if node.name == "b"])
    healthy, before = hosts.doctor(0, island)
    hosts.network.block(2, 1, int(links.rpartition(":")[2]))
    ill, after = hosts.doctor(0, island)

    assert (healthy, before.findings) == (0, ())
    assert before.notes == ("links between nodes: 2 of 2 connections succeeded",)
    assert ill == 1
    (finding,) = after.findings
    assert finding.where == nodes[0].ready["url"]
    text = f"node a cannot reach the links of node b at {links}: it does not answer within "
    assert finding.text.startswith(text)  # and the seconds that were left for it
    assert "firewall" in finding.hint
    assert after.notes == ("links between nodes: 1 of 2 connections succeeded",)


def test_a_full_disk_fails_the_session_that_filled_it(small_disk: Path, tmp_path: Path) -> None:
    """Failures on a full disk have a code, the node, the drop and a hint; sessions on other disks continue."""
    with Cluster(tmp_path) as cluster:
        full = cluster.node("full", "--root", small_disk / "root")
        roomy = cluster.node("roomy", "--root", tmp_path / "roomy")
        client = cluster.client(cluster.island(full, roomy))
        submit(client, scattered(pipeline(length=10), ["roomy"], 1), "fine")
        submit(client, _greedy(), "greedy")
        detail = finished(client, "greedy")
        failures = client.failures("greedy").failures
        other = finished(client, "fine")
        client.delete("greedy")
        submit(client, placed(pipeline(seconds=0.0), {"S0-1": "full"}, "roomy"), "after")

        assert detail.status == "FAILED"
        assert {(failure.code, failure.node) for failure in failures} == {("DF201", "full")}, failures
        assert all(failure.drop and "No space left" in failure.text for failure in failures)
        assert all("make room" in failure.hint for failure in failures)
        assert other.status == "FINISHED"
        assert finished(client, "after").status == "FINISHED"


def test_a_deployment_to_a_full_disk_is_refused(small_disk: Path, tmp_path: Path) -> None:
    """The error has the node and the reason; when there is room, the same name can be used."""
    with Cluster(tmp_path) as cluster:
        full = cluster.node("full", "--root", small_disk / "root")
        roomy = cluster.node("roomy", "--root", tmp_path / "roomy")
        client = cluster.client(cluster.island(full, roomy))
        filler = small_disk / "filler"
        fill(filler)
        graph = scattered(pipeline(seconds=0.0), ["full", "roomy"], 1)
        with pytest.raises(BadGraphError, match="'full' is suspect: its disk is full"):
            submit(client, graph, "s")
        nothing = [cluster.client(node).sessions() for node in (full, roomy)]
        filler.unlink()
        submit(client, graph, "s")

        assert nothing == [(), ()]
        assert finished(client, "s").status == "FINISHED"


def _greedy() -> PhysicalGraph:
    """Return a graph that writes eight files of a megabyte on node `full`."""
    builder = GraphBuilder("greedy")
    code = Argument(name="func_code", value="def f(): return bytes(1_000_000)")
    for at in range(8):
        builder.app(
            f"MAKE{at}",
            component="dlg.apps.pyfunc.PyFuncApp",
            arguments=(Argument(name="func_name", value="f"), code),
        )
        builder.data(f"file{at}", component="dlg.data.drops.file.FileDROP")
        builder.connect(f"MAKE{at}", f"file{at}", source_port="out")
    return replace(builder.build(), places=("full",))
