"""Nodes are asked for what a graph needs, and get what they can run."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dropflow.api.client import Client
from dropflow.api.requests import SubmitQuery
from dropflow.errors import BadGraphError
from dropflow.failure import Problem
from tests.cli.graph_documents import document, link, node
from tests.e2e.cluster import TIMES, finished, underway, until
from tests.processes import Running, run
from translator.pipeline import translate

pytestmark = pytest.mark.slow


_FIRST = "[ -e {marker} ] || {{ : > {marker}; exec sleep 600; }}; echo done"
"""A program that hangs when it is first run."""


@contextmanager
def _island(home: Path, *names: str) -> Iterator[tuple[Running, list[Running]]]:
    """Start an island over nodes; all but the first have programs that it lacks, and GPUs, as a stand-in says."""
    folder = home / "bin"
    folder.mkdir()
    gpus = "GPU 0: Stand-in (UUID: GPU-1)\\nGPU 1: Stand-in (UUID: GPU-2)"
    hangs = _FIRST.format(marker=home / "marker")
    programs = {"only-there": "echo done by $0", "hangs-once": hangs, "nvidia-smi": f'[ "$1" = -L ] && printf "{gpus}"'}
    for name, does in programs.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        program.chmod(0o755)

    def start(name: str) -> Running:
        path = os.environ["PATH"] if name == names[0] else f"{folder}:{os.environ['PATH']}"
        more = ("--name", name, "--port", 0, "--links-port", 0, "--workers", 1, *TIMES)
        return Running(home, "node", *more, before=("env", f"PATH={path}"))

    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        nodes = [stack.enter_context(one) for one in pool.map(start, names)]
        urls = ",".join(str(one.ready["url"]) for one in nodes)
        yield stack.enter_context(Running(home, "island", "--port", 0, "--nodes", urls, *TIMES)), nodes


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Running]:
    """An island over two nodes."""
    with _island(tmp_path, "n1", "n2") as (found, _):
        yield found


def _graph(path: Path, *programs: str) -> Path:
    nodes = [node(program, "BashShellApp", command=f"{program} > {{io}}") for program in programs]
    nodes += [node(f"out {program}", "File") for program in programs]
    path.write_bytes(document(nodes, [link(program, f"out {program}") for program in programs]))
    return path


def test_what_one_node_has_runs_there(island: Running, tmp_path: Path) -> None:
    """It runs on that node, also if a plan would give it to the other; what no node has is refused for each node."""
    url, token = island.ready["url"], island.ready["token"]
    graph = _graph(tmp_path / "g.graph", "only-there", "hostname", "date", "uname")
    done = run(tmp_path, "submit", graph, "--name", "s", "--wait", DROPFLOW_URL=url, DROPFLOW_TOKEN=token)

    assert done.returncode == 0, done.stdout + done.stderr
    with Client(url, token=token) as client:
        answers = client.components(("program:only-there", "program:date"))
        ran = {drop.name: drop.node for drop in client.drops("s").drops}
        with pytest.raises(BadGraphError, match="no node can run all that it would get") as refused:
            client.submit(translate(_graph(tmp_path / "h.graph", "no-such-program-here")).graph)

    assert [(answer.node, [lack.need for lack in answer.lacks]) for answer in answers] == [
        ("n1", ["program:only-there"]),
        ("n2", []),
    ]
    assert ran["only-there"] == "n2"
    rows = [problem for problem in refused.value.problems if isinstance(problem, Problem)]
    assert [row.where for row in rows] == ["no-such-program-here on n1", "no-such-program-here on n2"]
    assert all("install no-such-program-here" in row.hint for row in rows)


@pytest.mark.exhaustive
def test_attempts_with_gpus_run_on_nodes_that_have_them(island: Running, tmp_path: Path) -> None:
    """Only n2 has GPUs, two, as a stand-in for nvidia-smi says: it gets what needs them, and three are refused."""
    url, token = island.ready["url"], island.ready["token"]
    where = {"DROPFLOW_URL": url, "DROPFLOW_TOKEN": token}

    def drawn(*gpus: int) -> Path:
        command = "echo $CUDA_VISIBLE_DEVICES > {io}"
        nodes = [node(f"A{count}", "BashShellApp", command=command, num_gpus=count) for count in gpus]
        path = tmp_path / f"gpus{len(gpus)}.graph"
        links = [link(f"A{count}", f"out {count}") for count in gpus]
        path.write_bytes(document([*nodes, *(node(f"out {count}", "File") for count in gpus)], links))
        return path

    done = run(tmp_path, "submit", drawn(0, 1, 2), "--name", "s", "--wait", **where)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = run(tmp_path, "submit", drawn(3), "--name", "t", **where)
    placed = run(tmp_path, "submit", drawn(3), "--name", "t", "--parts", 3, **where)

    with Client(url, token=token) as client:
        ran = {drop.name: drop.node for drop in client.drops("s").drops}
    assert (ran["A1"], ran["A2"]) == ("n2", "n2")
    assert "'A3' asks for 3 GPUs, and no node of the plan has more than 2, as n2 has" in refused.stderr
    assert "it needs 3 GPUs, and this host has 2" in placed.stderr
    assert "it needs 3 GPUs, and this host has none" in placed.stderr
    assert "2 of 2" in run(tmp_path, "nodes", **where).stdout


@pytest.mark.exhaustive
def test_what_a_lost_node_ran_goes_to_a_node_that_has_what_it_needs(tmp_path: Path) -> None:
    """The program runs on one of the two nodes that have it. When that is killed, it runs on the other one of them."""
    with _island(tmp_path, "n1", "n2", "n3") as (manager, nodes):
        url, token = manager.ready["url"], manager.ready["token"]
        graph = _graph(tmp_path / "g.graph", "hangs-once", "hostname", "date", "uname")
        with Client(url, token=token) as client:
            client.submit(translate(graph).graph, SubmitQuery(session="s", movable=True))
            assert underway(client, "s", 6), "all but the program that hangs"
            assert until((tmp_path / "marker").exists)
            (first,) = (drop.node for drop in client.drops("s").drops if drop.name == "hangs-once")
            nodes[int(first[1]) - 1].process.kill()
            detail = finished(client, "s", 60.0)
            ran = {drop.name: drop.node for drop in client.drops("s").drops}

    assert (detail.status, {first, ran["hangs-once"]}) == ("FINISHED", {"n2", "n3"})
