"""Cancelling and pausing sessions on real node processes."""

from pathlib import Path

import pytest

from dropflow.api.client import Client
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from tests.e2e.cluster import PATIENT, Cluster, finished, pipeline, scattered, submit, underway, until
from tests.processes import gone

pytestmark = pytest.mark.slow

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
        ended = finished(client, "s", 60.0)

        assert (paused.status, parts) == ("PAUSED", ["PAUSED", "PAUSED"])
        assert (again.status, again.running) == ("PAUSED", 0)
        assert continued.status == "RUNNING"
        assert ended.status == "FINISHED"
