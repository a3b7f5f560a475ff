"""What a manager cannot know, it does not claim: pauses and cuts between managers end no session."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from dropflow.rest.client import Client
from dropflow.testing.proxy import Cruelty, HostileProxy
from tests.e2e.cluster import TIMES, Cluster, finished, pipeline, port_of, scattered, submit, underway, until
from tests.processes import Running, run

pytestmark = pytest.mark.slow

STUCK = Cruelty(rate=1)


def _told(client: Client, session: str) -> set[str]:
    """Every status that is told until the session is over."""
    found = {client.session(session).status}
    assert until(lambda: bool(found.add(client.session(session).status) or found & {"FINISHED", "FAILED"}))
    return found


def test_an_island_that_slept_tells_no_end_that_was_none(tmp_path: Path) -> None:
    """Stopped for longer than nodes may be silent, it finds its deadlines passed, and claims no failure."""
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
        assert _told(client, "s") <= {"RUNNING", "FINISHED"}


def test_a_cut_between_an_island_and_its_nodes_is_unknown_until_it_is_mended(tmp_path: Path) -> None:
    """The nodes go on; the island says that it cannot know, `watch` ends with 3, and then the true end is told."""
    with Cluster(tmp_path) as cluster, ExitStack() as stack:
        nodes = cluster.nodes("a", "b")
        proxies = [stack.enter_context(HostileProxy(("127.0.0.1", port_of(node)), 0, Cruelty())) for node in nodes]
        urls = ",".join(f"http://127.0.0.1:{proxy.port}" for proxy in proxies)
        island = stack.enter_context(Running(tmp_path, "island", "--port", 0, "--name", "i", "--nodes", urls, *TIMES))
        client = cluster.client(island)
        assert until(lambda: [node.state for node in client.nodes()] == ["alive"] * 2)
        submit(client, scattered(pipeline(seconds=0.6), ["a", "b"], 1), "s")
        assert underway(client, "s", 1)
        for proxy in proxies:
            proxy.cruelty = STUCK
        assert until(lambda: client.session("s").status == "UNKNOWN")
        seen = client.session("s")
        watched = run(tmp_path, "watch", "s", "--to", island.ready["url"], "--patience", 0)
        parts = [finished(cluster.client(node), "s").status for node in nodes]
        lost = until(lambda: [child.state for child in client.children()] == ["lost"] * 2)
        still = client.session("s").status
        for proxy in proxies:
            proxy.cruelty = Cruelty()
            proxy.cut()

        assert (seen.unknown, seen.finished) == (("a", "b"), 0.0)
        assert watched.returncode == 3, watched.stderr
        assert "the state of session s is not known" in watched.stderr
        assert parts == ["FINISHED", "FINISHED"]
        assert (lost, still) == (True, "UNKNOWN")
        # An answer that was stuck on its way may still say RUNNING.
        assert _told(client, "s") <= {"UNKNOWN", "RUNNING", "FINISHED"}
