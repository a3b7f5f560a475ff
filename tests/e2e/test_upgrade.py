"""A cluster of the last release becomes one of this version, node by node, while sessions run.

The last release is the code of the last tag ``v...``, or of the commit in ``DROPFLOW_UPGRADE_FROM``; it runs with the
libraries of this environment.
"""

import os
import re
import subprocess
import tarfile
from functools import partial
from pathlib import Path

import pytest

from dropflow.api.client import Client
from dropflow.api.requests import DrainRequest
from tests.e2e.cluster import (
    PATIENT,
    Cluster,
    content,
    expected_end,
    finished,
    pipeline,
    port_of,
    scattered,
    submit,
    underway,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

_ROOT = Path(__file__).parents[2]
_SHAPE = {"width": 12, "length": 12}
_NODES = ("a", "b", "c")


@pytest.fixture
def last_release(tmp_path: Path) -> Path:
    """Return a directory with the packages of the last release."""
    found = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    commit = os.environ.get("DROPFLOW_UPGRADE_FROM") or found.stdout.strip()
    if not commit:
        pytest.skip("no release is tagged here: set DROPFLOW_UPGRADE_FROM to a commit")
    archive, directory = tmp_path / "release.tar", tmp_path / "release"
    subprocess.run(
        ["git", "archive", "-o", archive, commit, "dropflow", "managers", "palettes", "translator"],
        cwd=_ROOT,
        check=True,
    )
    with tarfile.open(archive) as packages:
        packages.extractall(directory, filter="data")
    return directory


def _is_member(client: Client, session: str, node: str) -> bool:
    return node in client.session(session).members


def _version(release: Path) -> str:
    return re.search(r'__version__ = "(.+)"', (release / "dropflow" / "version.py").read_text())[1]  # type: ignore[index]


@pytest.mark.timeout(1500)  # processes are started ten times in turn, of two versions
def test_a_cluster_is_upgraded_while_sessions_run(
    tmp_path: Path, last_release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node is drained and started again with this version, then the island: no session computes anything twice.

    Each node joins the session that it has left. Results, also of a session that ended before, are read from the new
    managers.
    """
    with Cluster(tmp_path, times=PATIENT) as cluster:
        monkeypatch.setenv("PYTHONPATH", str(last_release))
        nodes = dict(zip(_NODES, cluster.nodes(*_NODES), strict=True))
        island = cluster.island(*nodes.values())
        monkeypatch.delenv("PYTHONPATH")
        client = cluster.client(island)
        assert client.info().version == _version(last_release)
        submit(client, scattered(pipeline(**_SHAPE), _NODES, 1), "before")
        assert finished(client, "before").status == "FINISHED"

        for name in _NODES:
            submit(client, scattered(pipeline(seconds=1.5, **_SHAPE), _NODES, 3), f"without-{name}")
            assert underway(client, f"without-{name}", 5)
            client.drain(name, DrainRequest(grace=60.0))
            assert nodes[name].process.wait(90.0) == 0, nodes[name].errors
            nodes[name] = cluster.node(name, port=port_of(nodes[name]))
            assert until(partial(_is_member, client, f"without-{name}", name))
        assert island.stop() == 0
        client = cluster.client(cluster.island(*nodes.values(), port=port_of(island)))

        expected = expected_end(tmp_path / "alone", **_SHAPE)
        for session in ("before", *(f"without-{name}" for name in _NODES)):
            ended = finished(client, session, 120.0)
            assert (ended.status, ended.recomputed, content(client, session)) == ("FINISHED", 0, expected)
