"""A whole cluster is killed in the middle of a session, started again, and continues the session."""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from dropflow.api.client import Client
from dropflow.api.records import DropQuery, SubmitQuery
from dropflow.api.requests import ResumeRequest, RetryRequest
from dropflow.clock import SystemClock
from dropflow.errors import ConflictError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Template
from tests.e2e.cluster import PATIENT, Cluster, content, expected_end, finished, pipeline, scattered, until
from tests.e2e.cluster import submit as submit_graph
from tests.nightly import nightly
from tests.processes import Running, gone, run
from tests.recovery_graphs import files

pytestmark = pytest.mark.slow

_NODES = ("node-1", "node-2", "node-3")


def _up(home: Path) -> Running:
    return Running(home, "up", "--nodes", 3, "--port", 0, "--workers", 2)


def _client(up: Running) -> Client:
    return Client(up.ready["master"], token=up.ready["token"])


def _kill(up: Running) -> None:
    """Kill all processes of a cluster at once."""
    family = up.family()
    for process in family:
        with suppress(psutil.NoSuchProcess):  # it ended with its parent
            process.kill()
    up.process.wait()
    assert gone([process for process in family if process.pid != up.process.pid])


def _graph(home: Path, seed: int) -> tuple[PhysicalGraph, Path]:
    marks = home / "marks"
    return scattered(files(marks, 0.4), _NODES, seed), marks


def _begun(marks: Path) -> Counter[str]:
    """Return how many attempts of each application have begun."""
    return Counter(marks.read_text().split() if marks.exists() else ())


@pytest.mark.parametrize("seed", [2, *nightly(1)])
def test_a_killed_cluster_continues_its_session(seed: int, tmp_path: Path) -> None:
    """After kill -9 of everything and a new start, resume finishes the session, and repeats nothing that was done."""
    graph, marks = _graph(tmp_path, seed)
    up = _up(tmp_path)
    with up, _client(up) as client:
        submit_graph(client, graph, "s")
        assert until(lambda: sum(_begun(marks).values()) >= 6)
        _kill(up)
    before = _begun(marks)
    with _up(tmp_path) as again, _client(again) as client:
        assert until(lambda: [one.name for one in client.nodes() if one.state == "alive"] == [*_NODES])
        # A node that sees that its parent has ended, before it is killed, cancels its sessions.
        assert until(lambda: [one.status for one in client.sessions()] in (["FAILED"], ["CANCELLED"]))
        kept = [drop.name for drop in client.drops("s", DropQuery(state="COMPLETED", limit=1000)).drops if drop.is_app]
        done = run(tmp_path, "resume", "s", "--to", again.ready["master"], "--wait", "--output", "json")
        reply = json.loads(done.stdout)
        detail = finished(client, "s")

    after = _begun(marks)
    assert (done.returncode, reply["status"], detail.status) == (0, "FINISHED", "FINISHED"), done.stdout
    assert detail.states == {"COMPLETED": graph.drops}
    assert kept
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert max(after.values()) <= 2
    assert "resumed at " in detail.notes[-1]
    assert "because contents are lost" not in detail.notes[-1]


def test_a_session_on_several_nodes_stops_at_its_walltime(tmp_path: Path) -> None:
    """What runs then ends, the rest is CANCELLED on all nodes, and resume leads to the same results as one run."""
    with Cluster(tmp_path, times=PATIENT) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        client = cluster.client(cluster.island(*nodes))
        slow = scattered(pipeline(seconds=0.5, length=12), ["a", "b", "c"], 1)
        client.submit(slow, SubmitQuery(session="s", until=SystemClock().now() + 3.0))
        stopped = finished(client, "s")
        client.resume("s", ResumeRequest())
        ended = finished(client, "s")

        assert stopped.status == "CANCELLED"
        assert "stopped at its walltime" in stopped.text
        assert 0 < stopped.states["COMPLETED"] < slow.drops
        assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": slow.drops})
        assert content(client, "s") == expected_end(tmp_path / "alone", length=12)


def test_failed_drops_of_a_cluster_are_tried_again_with_another_parameter(tmp_path: Path) -> None:
    """Only what failed runs again, on the node where it is, with the results of a run that never failed.

    Then it runs again from a drop that was completed: with what depends on it, and nothing else.
    """
    good = pipeline(seconds=0.0)
    broken = replace(good, templates=tuple(_broken(each) if each.name == "S0-3" else each for each in good.templates))
    with Cluster(tmp_path, times=PATIENT) as cluster:
        client = cluster.client(cluster.island(*cluster.nodes("a", "b")))
        submit_graph(client, scattered(broken, ["a", "b"], 1), "s")
        failed = finished(client, "s")
        code = next(each.argument("func_code") for each in good.templates if each.name == "S0-3")
        assert code is not None
        client.retry("s", RetryRequest(settings=(f"S0-3.func_code={code.value}",)))
        ended = finished(client, "s")

        assert (failed.status, ended.status) == ("FAILED", "FINISHED")
        assert ended.states == {"COMPLETED": good.drops}
        expected = expected_end(tmp_path / "alone")
        assert content(client, "s") == expected
        assert client.drop("s", "pipeline_S0-3_0").attempt == 2
        assert client.drop("s", "pipeline_S0-4_0").attempt == 1
        assert client.drop("s", "pipeline_S1-3_0").attempt == 1

        with pytest.raises(ConflictError, match="no drop of this session failed"):
            client.retry("s")
        client.retry("s", RetryRequest(start=("S0-4",)))
        again = finished(client, "s")

        assert (again.status, again.states) == ("FINISHED", {"COMPLETED": good.drops})
        assert content(client, "s") == expected
        attempts = {name: client.drop("s", f"pipeline_{name}_0").attempt for name in ("S0-4", "S0-5", "S1-4")}
        assert attempts == {"S0-4": 2, "S0-5": 2, "S1-4": 1}


def _broken(template: Template) -> Template:
    """Return a node whose function raises."""
    code = "def step(data=b'', salt='', size=10, seconds=0.0):\n    raise ValueError('not yet')"
    arguments = tuple(
        msgspec.structs.replace(each, value=code) if each.name == "func_code" else each for each in template.arguments
    )
    return msgspec.structs.replace(template, arguments=arguments)
