"""Nodes are asked for what a graph needs, and get what they can run."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from dropflow.api.client import Client
from dropflow.errors import BadGraphError
from dropflow.failure import Problem
from tests.cli.graph_documents import document, link, node
from tests.e2e.cluster import TIMES
from tests.processes import Running, run
from translator.pipeline import translate

pytestmark = pytest.mark.slow


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Running]:
    """An island over two nodes; only the second has the program ``only-there``, and GPUs, as a stand-in says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    gpus = "GPU 0: Stand-in (UUID: GPU-1)\\nGPU 1: Stand-in (UUID: GPU-2)"
    for name, does in (("only-there", "echo done by $0"), ("nvidia-smi", f'[ "$1" = -L ] && printf "{gpus}"')):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        program.chmod(0o755)

    def start(name: str) -> Running:
        path = f"{folder}:{os.environ['PATH']}" if name == "n2" else os.environ["PATH"]
        more = ("--name", name, "--port", 0, "--links-port", 0, "--workers", 1, *TIMES)
        return Running(tmp_path, "node", *more, before=("env", f"PATH={path}"))

    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        urls = [stack.enter_context(one).ready["url"] for one in pool.map(start, ("n1", "n2"))]
        yield stack.enter_context(Running(tmp_path, "island", "--port", 0, "--nodes", ",".join(urls), *TIMES))


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

    assert [(one.node, [lack.need for lack in one.lacks]) for one in answers] == [
        ("n1", ["program:only-there"]),
        ("n2", []),
    ]
    assert ran["only-there"] == "n2"
    rows = [one for one in refused.value.problems if isinstance(one, Problem)]
    assert [row.where for row in rows] == ["no-such-program-here on n1", "no-such-program-here on n2"]
    assert all("install no-such-program-here" in row.hint for row in rows)


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

    with Client(url, token=token) as client:
        ran = {drop.name: drop.node for drop in client.drops("s").drops}
    assert (ran["A1"], ran["A2"]) == ("n2", "n2")
    assert "it needs 3 GPUs, and this host has 2" in refused.stderr
    assert "it needs 3 GPUs, and this host has none" in refused.stderr
    assert "2 of 2" in run(tmp_path, "nodes", **where).stdout
