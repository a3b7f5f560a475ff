"""Sessions on nodes take results of earlier sessions."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dropflow.api.client import Client
from tests.drawn_graphs import data, draw, function
from tests.e2e.cluster import PATIENT
from tests.processes import Running, run

pytestmark = pytest.mark.slow


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Running]:
    """An island over two nodes, which share a store."""

    def start(name: str) -> Running:
        more = ("--name", name, "--port", 0, "--links-port", 0, "--workers", 1, *PATIENT)
        variables = (f"DROPFLOW_STORE={tmp_path / 'store'}", f"XDG_CONFIG_HOME={tmp_path / 'config'}")
        return Running(tmp_path, "node", *more, before=("env", f"PATH={os.environ['PATH']}", *variables))

    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        urls = [stack.enter_context(one).ready["url"] for one in pool.map(start, ("n1", "n2"))]
        yield stack.enter_context(Running(tmp_path, "island", "--port", 0, "--nodes", ",".join(urls), *PATIENT))


def _graph(path: Path, factor: int) -> Path:
    nodes = [function("Make", "def Make(input=0):\n    return 7")]
    nodes += [function("Twice", f"def Twice(input):\n    return {factor} * input")]
    nodes += [function("Show", "def Show(input):\n    return 'x' * 9000 + str(input)"), *map(data, ("a", "b", "text"))]
    return draw(path, nodes, "Make > a > Twice > b > Show > text")


def test_a_session_on_two_nodes_takes_what_an_earlier_one_computed(island: Running, tmp_path: Path) -> None:
    """Numbers of applications that ran and that were reused are in the answer, and the origin in the reasons."""
    url, token = island.ready["url"], island.ready["token"]

    store = {"DROPFLOW_STORE": str(tmp_path / "store"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def submit(name: str, factor: int, *more: str) -> dict[str, Any]:
        graph = _graph(tmp_path / "g.graph", factor)
        more = more or ("--name", name, "--wait", "--reuse", "--random", "1", "-n", "2")
        given = ("submit", graph, *more, "--output", "json")
        done = run(tmp_path, *given, DROPFLOW_URL=url, DROPFLOW_TOKEN=token, **store)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    answers = [submit(name, factor) for name, factor in (("s1", 2), ("s2", 2))]
    same, changed = (submit("", factor, "--dry-run") for factor in (2, 3))
    answers.append(submit("s3", 3))

    assert (same["runs"], same["waits"], same["reused"]) == (0, 0, 3)
    assert (changed["runs"], changed["waits"], changed["reused"]) == (1, 1, 1)
    assert changed["nodes"][1]["reasons"] == ["function `Twice`: line 2 changed: return 3 * input"]
    assert [(one["computed"], one["reused"]) for one in answers] == [(3, 0), (0, 3), (2, 1)]
    with Client(url, token=token) as client:
        shows = next(drop.oid for drop in client.drops("s2").drops if drop.name == "Show")
        assert any("reused: from session s1" in line for line in client.drop("s2", shows).reasons)
