"""Nodes are asked for what a graph needs, and get what they can run."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dropflow.api.client import Client
from tests.cli.graph_documents import document, link, node
from tests.e2e.cluster import TIMES
from tests.processes import Running, run

pytestmark = pytest.mark.slow


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Running]:
    """An island over two nodes; only the second has the program ``only-there``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "only-there"
    program.write_text("#!/bin/sh\necho done by $0\n", encoding="utf-8")
    program.chmod(0o755)
    with ExitStack() as stack:
        urls = []
        for name, path in (("n1", ""), ("n2", f"{folder}:")):
            more = ("--name", name, "--port", 0, "--links-port", 0, "--workers", 1, *TIMES)
            before = ("env", f"PATH={path}{os.environ['PATH']}")
            urls.append(stack.enter_context(Running(tmp_path, "node", *more, before=before)).ready["url"])
        yield stack.enter_context(Running(tmp_path, "island", "--port", 0, "--nodes", ",".join(urls), *TIMES))


def _graph(path: Path, *programs: str) -> Path:
    nodes = [node(program, "BashShellApp", command=f"{program} > {{io}}") for program in programs]
    nodes += [node(f"out {program}", "File") for program in programs]
    path.write_bytes(document(nodes, [link(program, f"out {program}") for program in programs]))
    return path


def test_what_one_node_has_runs_there(island: Running, tmp_path: Path) -> None:
    """It runs on that node, also if a plan would give it to the other; what no node has is refused as one table."""
    url, token = island.ready["url"], island.ready["token"]
    known = {"DROPFLOW_URL": url, "DROPFLOW_TOKEN": token}
    graph = _graph(tmp_path / "g.graph", "only-there", "hostname", "date", "uname")

    shown = run(tmp_path, "nodes", "--components", graph, **known)
    done = run(tmp_path, "submit", graph, "--name", "s", "--wait", **known)

    assert shown.returncode == 0
    assert "the program 'only-there' is not on PATH" in shown.stdout
    assert [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("only-there")] == ["n1"]
    assert done.returncode == 0, done.stdout + done.stderr
    with Client(url, token=token) as client:
        ran = {drop.name: drop.node for drop in client.drops("s").drops}
    assert ran["only-there"] == "n2"

    refused = run(tmp_path, "submit", _graph(tmp_path / "h.graph", "no-such-program-here"), "--name", "t", **known)
    assert refused.returncode == 2
    for text in ("no-such-program-here on n1", "no-such-program-here on n2", "install no-such-program-here"):
        assert text in refused.stderr
