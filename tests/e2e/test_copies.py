"""Copies of contents on real nodes: what has a copy is not computed again when its node is killed."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dropflow.api.requests import ResumeRequest, SubmitQuery
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from tests.e2e.cluster import Cluster, content, finished, until

pytestmark = pytest.mark.slow

_FILE = "dlg.data.drops.file.FileDROP"


def _function(code: str) -> tuple[Argument, ...]:
    return (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))


def _graph(log: Path, gate: Path, path: Path) -> PhysicalGraph:
    """Return three functions on node a whose results are needed by one on node b, which waits for a gate.

    One result is small, one large, and one is a file with a path outside of the session, which all nodes see. Each
    attempt writes a line to a log.
    """
    builder = GraphBuilder("copied")
    sizes = {"small": 10, "large": 100_000, "file": 50_000}
    wait = f"""
def f(small, large, file):
    import os, time
    while not os.path.exists({str(gate)!r}): time.sleep(0.05)
    return small + large + file
"""
    builder.app("Join", component="dlg.apps.pyfunc.PyFuncApp", arguments=_function(wait), part=1)
    for name, size in sizes.items():
        code = f"""
def f():
    import time
    time.sleep(0.5)
    with open({str(log)!r}, "a") as lines: lines.write({name!r} + chr(10))
    return b"x" * {size}
"""
        file = (
            {"component": _FILE, "arguments": (Argument(name="filepath", value=str(path)),)} if name == "file" else {}
        )
        builder.app(f"Make-{name}", component="dlg.apps.pyfunc.PyFuncApp", arguments=_function(code))
        builder.data(name, persist=True, **file)  # type: ignore[arg-type]
        builder.connect(f"Make-{name}", name, source_port="out").connect(name, "Join", target_port=name)
    graph = builder.data("end", part=1).connect("Join", "end", source_port="out").build()
    return replace(graph, places=("a", "b"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_changed", [pytest.param(False, id="as it was"), pytest.param(True, id="changed")])
def test_a_file_that_other_nodes_see_is_not_lost_with_its_node(is_changed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """It is not computed again if it is as it was committed; nothing is copied for that. If it was changed, it is."""
    log, gate, path = tmp_path / "log", tmp_path / "gate", tmp_path / "data" / "out.bin"
    with Cluster(tmp_path) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        client = cluster.client(cluster.island(*nodes))
        client.submit(_graph(log, gate, path), SubmitQuery(session="s"))
        node = cluster.client(nodes[0])
        assert until(lambda: node.session("s").states.get("COMPLETED", 0) >= 6)
        nodes[0].process.kill()
        nodes[0].process.wait()
        if is_changed:  # to the same: the application that waits for the gate may read it
            path.write_bytes(path.read_bytes())
        assert until(lambda: client.session("s").view == 1)
        gate.touch()
        detail = finished(client, "s")

        assert (detail.status, detail.failures) == ("FINISHED", ())
        assert Counter(log.read_text().split()) == {"small": 2, "large": 2, "file": 2 if is_changed else 1}
        assert content(client, "s", "copied_end_0").count(b"x") == 150_010
        assert not list(tmp_path.rglob("copies/*"))


def _copied(tmp_path: Path) -> bool:
    """Return whether the three results have copies: each has a record as soon as it is complete."""
    return len({path.name for path in tmp_path.rglob("copies/*.msgpack") if path.stem.isdigit()}) == 3


@pytest.mark.exhaustive
def test_a_session_whose_nodes_were_all_killed_goes_on_with_copies(tmp_path: Path) -> None:
    """What took long has copies. The session is resumed without the node that had computed it, and repeats nothing."""
    log, gate, path = tmp_path / "log", tmp_path / "gate", tmp_path / "data" / "out.bin"
    with Cluster(tmp_path) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        client = cluster.client(cluster.island(*nodes))
        client.submit(_graph(log, gate, path), SubmitQuery(session="s", protect=0.2))
        node = cluster.client(nodes[0])
        assert until(lambda: node.session("s").states.get("COMPLETED", 0) >= 6)
        assert until(lambda: _copied(tmp_path))
        for each in nodes:
            each.process.kill()
            each.process.wait()
        later = cluster.nodes("b", "c")
        client = cluster.client(cluster.island(*later, name="later"))
        gate.touch()
        assert until(lambda: [session.session for session in client.sessions()] == ["s"])
        client.resume("s", ResumeRequest(without_missing=True))
        detail = finished(client, "s")

        assert (detail.status, detail.failures) == ("FINISHED", ()), detail
        assert Counter(log.read_text().split()) == {"small": 1, "large": 1, "file": 1}
        sizes = {name: content(client, "s", f"copied_{name}_0").count(b"x") for name in ("small", "large", "end")}
        assert sizes == {"small": 10, "large": 100_000, "end": 150_010}


@pytest.mark.exhaustive
def test_what_has_a_copy_is_not_computed_again(tmp_path: Path) -> None:
    """After kill -9 of the owner the session finishes with the copies, and every function has run once.

    After its end a second node is killed, and the last one serves the copies, also after it was started again.
    """
    log, gate, path = tmp_path / "log", tmp_path / "gate", tmp_path / "data" / "out.bin"
    with Cluster(tmp_path) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        client = cluster.client(cluster.island(*nodes))
        client.submit(_graph(log, gate, path), SubmitQuery(session="s", replicas=2))
        assert until(lambda: log.exists() and len(log.read_text().splitlines()) == 3)
        node = cluster.client(nodes[0])
        assert until(lambda: node.session("s").states.get("COMPLETED", 0) >= 6)
        assert until(lambda: _copied(tmp_path))
        nodes[0].process.kill()
        nodes[0].process.wait()
        assert until(lambda: client.session("s").view == 1)
        gate.touch()
        detail = finished(client, "s")

        assert (detail.status, detail.failures) == ("FINISHED", ())
        assert Counter(log.read_text().split()) == {"small": 1, "large": 1, "file": 1}
        sizes = {name: content(client, "s", f"copied_{name}_0").count(b"x") for name in ("small", "large", "end")}
        assert sizes == {"small": 10, "large": 100_000, "end": 150_010}
        assert path.read_bytes().count(b"x") == 50_000

        nodes[1].process.kill()
        nodes[1].process.wait()
        assert {name: content(client, "s", f"copied_{name}_0").count(b"x") for name in sizes} == sizes
        nodes[2].process.kill()
        nodes[2].process.wait()
        client = cluster.client(cluster.island(cluster.node("c"), nodes[1], name="later"))
        assert until(lambda: [session.session for session in client.sessions()] == ["s"])
        found = {result.name: (result.node, result.owner) for result in client.results("s").results}
        assert set(found) == {"small", "large", "end", "file"}
        assert {node for node, _ in found.values()} == {"c"}
        assert {owner for _, owner in found.values()} <= {"", "b"}
        assert {name: content(client, "s", f"copied_{name}_0").count(b"x") for name in sizes} == sizes
