"""Pauses of managers and broken connections between them end no session; its status is UNKNOWN meanwhile."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from dropflow.api.client import Client
from dropflow.testing.faults import ConnectionFaults, FaultyProxy
from tests.e2e.cluster import TIMES, Cluster, finished, pipeline, port_of, scattered, submit, underway, until
from tests.processes import Running, run

pytestmark = pytest.mark.slow

STUCK = ConnectionFaults(rate=1)


def _statuses(client: Client, session: str) -> set[str]:
    """Yield every status that is reported until the session is over."""
    found = {client.session(session).status}
    assert until(lambda: bool(found.add(client.session(session).status) or found & {"FINISHED", "FAILED"}))
    return found


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
        assert _statuses(client, "s") <= {"RUNNING", "FINISHED"}


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
        assert until(lambda: client.session("s").status == "UNKNOWN")
        seen = client.session("s")
        watched = run(tmp_path, "watch", "s", "--to", island.ready["url"], "--patience", 0)
        parts = [finished(cluster.client(node), "s").status for node in nodes]
        lost = until(lambda: [child.state for child in client.children()] == ["lost"] * 2)
        still = client.session("s").status
        for proxy in proxies:
            proxy.faults = ConnectionFaults()
            proxy.cut()

        assert (seen.unknown, seen.finished) == (("a", "b"), 0.0)
        assert watched.returncode == 3, watched.stderr
        assert "the state of session s is not known" in watched.stderr
        assert parts == ["FINISHED", "FINISHED"]
        assert (lost, still) == (True, "UNKNOWN")
        # A delayed answer may still have RUNNING.
        assert _statuses(client, "s") <= {"UNKNOWN", "RUNNING", "FINISHED"}
