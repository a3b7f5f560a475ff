"""``dropflow run`` is killed at random moments, and ``dropflow resume`` continues it: results are as without the kill.

``DROPFLOW_KILLS`` is the number of runs that are killed, 3 by default. The moments come from ``DROPFLOW_SEED``.
"""

import json
import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from dropflow.api.client import Client
from dropflow.api.drop_records import DropQuery
from dropflow.api.requests import ResumeRequest, RetryRequest, SubmitQuery
from dropflow.clock import SystemClock
from dropflow.errors import ConflictError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Template
from tests.e2e.cluster import PATIENT, Cluster, content, expected_end, finished, pipeline, scattered, until
from tests.e2e.cluster import submit as submit_graph
from tests.e2e.killed_run import Run, check_repeated, stopped_family, undisturbed
from tests.nightly import nightly
from tests.processes import Running, gone, run
from tests.recovery_graphs import GRAPHS, files

pytestmark = pytest.mark.slow


_KILLS = int(os.environ.get("DROPFLOW_KILLS", "3"))
_SEED = int(os.environ.get("DROPFLOW_SEED", "20261122"))
_SHELL = "dlg.apps.bash_shell_app.BashShellApp"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for undisturbed runs."""
    return tmp_path_factory.mktemp("resume")


@pytest.mark.parametrize("number", [0, *nightly(*range(1, _KILLS))])
def test_a_killed_run_ends_as_if_it_had_not_been(number: int, home: Path, tmp_path: Path) -> None:
    """After one to three kills at any moment, the results are the same, and only what must run again does so.

    Sometimes a file is removed or changed in between.
    """
    chance = random.Random(f"{_SEED}-{number}")
    kind = sorted(GRAPHS)[number % len(GRAPHS)]
    expected = undisturbed(kind, home)
    run = Run(kind, tmp_path)
    for _ in range(chance.choice((1, 1, 2, 3))):
        before, wanted = run.begun(), run.to_run()
        with_workers = chance.random() < 0.7
        seconds = chance.uniform(0.1, 0.8 + 1.2 * expected.seconds)
        run.kill("run" if wanted is None else "resume", seconds, with_workers=with_workers)
        if with_workers:
            check_repeated(run, before, wanted)
        if chance.random() < 0.3 and run.to_run():
            run.lose_content(chance)
    before, wanted = run.begun(), run.to_run()
    end = run.finish("run" if wanted is None else "resume")

    if with_workers:
        check_repeated(run, before, wanted)
    assert (end.status, end.states, end.causes) == (expected.status, expected.states, expected.causes)
    assert end.files == expected.files
    assert not (run.directory / "tmp").exists()
    assert not (run.directory / "lock").exists()


def test_workers_that_outlive_their_run_change_nothing(tmp_path: Path) -> None:
    """A worker that is at an attempt which its killed run had not recorded ends it while the next one runs it again."""
    run = Run("scatter", tmp_path / "run")
    first, second = tmp_path / "first", tmp_path / "second"

    def command(name: str, text: str, gate: Path) -> tuple[Argument, ...]:
        return (
            Argument(
                name="command", value=f"echo {name} >> {run.marks}; {text}; until [ -e {gate} ]; do sleep 0.05; done"
            ),
        )

    builder = GraphBuilder("outlived")
    builder.app("MAKE", component=_SHELL, arguments=command("MAKE", "echo made > %o0", first)).data("made")
    builder.app("USE", component=_SHELL, arguments=command("USE", "cat %i0 > %o0", second))
    builder.data(
        "used", component="dlg.data.drops.file.FileDROP", arguments=(Argument(name="filepath", value="used.txt"),)
    )
    save(builder.connect("MAKE", "made").connect("made", "USE").connect("USE", "used").build(), run.graph_file)

    killed = run.start("run")
    try:
        assert until(lambda: run.begun()["MAKE"] == 1)
        process = psutil.Process(killed.pid)
        process.suspend()  # it records nothing any more
        first.touch()
        assert until(lambda: run.begun()["USE"] == 1)
        workers = stopped_family(process)[1:]
    finally:
        killed.kill()
        killed.communicate()
    with ThreadPoolExecutor(1) as pool:
        finishing = pool.submit(run.finish, "resume")
        assert until(lambda: run.begun()["USE"] == 2)
        for each in workers:
            with suppress(psutil.NoSuchProcess):  # its parent, which goes on already, has ended it
                each.resume()
        assert gone(workers)
        second.touch()
        end = finishing.result()

    assert (end.status, end.files) == ("FINISHED", {"files/used.txt": b"made\n"})


# A whole cluster is killed in the middle of a session, started again, and continues the session.


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


def _completed(client: Client, graph: PhysicalGraph) -> tuple[list[str], list[str]]:
    """Return the completed applications: those whose outputs are there, and those whose outputs were being sent."""
    done = {drop.name for drop in client.drops("s", DropQuery(state="COMPLETED", limit=1000)).drops}
    names = [graph.templates[row].name for row in graph.template]
    out = graph.successors
    outputs = {
        name: {names[after] for after in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]]}
        for drop, name in enumerate(names)
        if name in done and graph.templates[graph.template[drop]].kind is Kind.APP
    }
    kept = [name for name in outputs if outputs[name] <= done]
    return kept, [name for name in outputs if name not in kept]


@pytest.mark.parametrize("seed", [2, *nightly(1)])
def test_a_killed_cluster_continues_its_session(seed: int, tmp_path: Path) -> None:
    """After kill -9 of everything and a new start, resume finishes the session and repeats nothing that has arrived."""
    graph, marks = _graph(tmp_path, seed)
    up = _up(tmp_path)
    with up, _client(up) as client:
        submit_graph(client, graph, "s")
        assert until(lambda: sum(_begun(marks).values()) >= 6)
        _kill(up)
    before = _begun(marks)
    with _up(tmp_path) as again, _client(again) as client:
        assert until(lambda: [node.name for node in client.nodes() if node.state == "alive"] == [*_NODES])
        # A node that sees that its parent has ended, before it is killed, cancels its sessions.
        assert until(lambda: [session.status for session in client.sessions()] in (["FAILED"], ["CANCELLED"]))
        kept, sent = _completed(client, graph)
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
    assert ("because contents are lost" in detail.notes[-1]) == bool(sent)


@pytest.mark.exhaustive
def test_a_session_on_several_nodes_stops_at_its_walltime(tmp_path: Path) -> None:
    """What runs then ends, the rest is CANCELLED on all nodes, and resume leads to the same results as one run."""
    with Cluster(tmp_path, times=PATIENT) as cluster:
        nodes = cluster.nodes("a", "b", "c")
        client = cluster.client(cluster.island(*nodes))
        for seconds in (5.0, 20.0, 80.0):  # a busy machine may complete nothing within the first
            slow = scattered(pipeline(seconds=seconds / 10, length=12), ["a", "b", "c"], 1)
            session = f"within-{seconds:g}-s"
            client.submit(slow, SubmitQuery(session=session, until=SystemClock().now() + seconds))
            stopped = finished(client, session)
            if "COMPLETED" in stopped.states:
                break
        client.resume(session, ResumeRequest())
        ended = finished(client, session)

        assert stopped.status == "CANCELLED"
        assert "stopped at its walltime" in stopped.text
        assert 0 < stopped.states["COMPLETED"] < slow.drops
        assert (ended.status, ended.states) == ("FINISHED", {"COMPLETED": slow.drops})
        assert content(client, session) == expected_end(tmp_path / "alone", length=12)


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
