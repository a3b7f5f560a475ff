"""DALiuGE's own client with real managers and real drops."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

COPY = "dlg.apps.simple.CopyApp"
MEMORY = "dlg.data.drops.memory.InMemoryDROP"


def _graph(first: str, second: str) -> list[dict[str, Any]]:
    """Return a graph that copies a value from one node to another."""
    return [
        {"oid": "A", "categoryType": "Data", "dropclass": MEMORY, "node": first, "pydata": "41", "consumers": ["B"]},
        {
            "oid": "B",
            "categoryType": "Application",
            "dropclass": COPY,
            "node": second,
            "inputs": ["A"],
            "outputs": ["C"],
        },
        {"oid": "C", "categoryType": "Data", "dropclass": MEMORY, "node": second, "producers": ["B"]},
        {},
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A master, an island and two nodes on this host, without tokens."""
    place = tmp_path_factory.mktemp("cluster")
    command = [str(Path(sys.executable).with_name("dropflow")), "up", "--nodes", "2", "--no-auth", "--port", "0"]
    command += ["--root", str(place / "root"), "--workers", "1"]
    environment = {"HOME": str(place), "PATH": "/usr/bin:/bin"}
    with (place / "errors").open("w") as errors:
        up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        try:
            assert up.stdout is not None
            line = up.stdout.readline()
            assert line, (place / "errors").read_text()
            found: dict[str, Any] = json.loads(line)
            yield found
        finally:
            up.terminate()
            up.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["node", "island", "master"])
def test_a_session_of_daliuges_client_runs_to_its_end(cluster: dict[str, Any], daliuge: Path, kind: str) -> None:
    """Each role of manager runs a session; islands and masters run one with an edge between two nodes."""
    nodes = [url.partition("//")[2] for url in cluster["nodes"]]
    url = cluster["nodes"][0] if kind == "node" else cluster[kind]
    name = f"session of {kind}"
    calls: list[list[object]] = [
        ["create_session", name],
        ["append_graph", name, _graph(*nodes)],
        ["deploy_session", name, ["A"]],
        ["until", 4, "session_status", name],
        ["graph_status", name],
        ["destroy_session", name],
        ["sessions"],
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("daliuge_calls.py")), kind, url.rpartition(":")[2]],
        input=json.dumps(calls),
        env={"PYTHONPATH": str(daliuge), "HOME": str(daliuge)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    created, appended, deployed, status, states, destroyed, left = json.loads(done.stdout)

    assert [created, appended, deployed, destroyed, left] == [None, None, None, None, []]
    assert status == 4
    assert states == {"A": {"status": 2}, "B": {"execStatus": 2, "status": 2}, "C": {"status": 2}}
