"""Nodes are killed while sessions run whose drops are not simple: the others finish them with the same results."""

from pathlib import Path

import pytest

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.sessions import local_run
from managers.simulation.history import Committed, Promised
from tests.e2e.cluster import Cluster, content, finished, pipeline, port_of, scattered, submit, underway, until
from tests.e2e.recorded_node import Decided, History, recorded
from tests.nightly import nightly
from tests.streaming_graphs import FILE, bash

pytestmark = pytest.mark.slow


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
    local_run.run(graph, directory=alone, runner="threads")
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
        detail = finished(client, "s", 60.0)

        assert (detail.status, detail.view, detail.members) == ("FINISHED", 1, ("a", "c"))
        assert content(client, "s") == expected
        assert history.violations("s") == []
        assert {type(one) for one in history.of("s")} >= _KINDS
        assert until(lambda: [node.state for node in client.nodes()] == ["alive"] * 3)
        client.delete("s")
        assert until(lambda: client.sessions() == ())
        assert until(lambda: not list(tmp_path.rglob("deployment.json")))
