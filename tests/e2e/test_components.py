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
    """An island over two nodes; only the second has the program ``only-there``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "only-there"
    program.write_text("#!/bin/sh\necho done by $0\n", encoding="utf-8")
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
