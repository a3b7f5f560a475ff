"""Upgrades: each version reads what the last release wrote, and replaces it in a cluster while sessions run.

The last release is a wheel of the last tag ``v...``, or of the commit in ``DROPFLOW_UPGRADE_FROM``. It has an
environment of its own.
"""

import os
import re
import subprocess
import sys
import tarfile
import venv
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
from tests.processes import Running, run

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

_ROOT = Path(__file__).parents[2]
_SHAPE = {"width": 12, "length": 12}
_NODES = ("a", "b", "c")


@pytest.fixture(scope="module")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment in which the wheel of the last release is installed."""
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
    folder = tmp_path_factory.mktemp("release")
    archive, sources, built = folder / "release.tar", folder / "sources", folder / "built"
    subprocess.run(["git", "archive", "-o", archive, commit], cwd=_ROOT, check=True)
    with tarfile.open(archive) as packages:
        packages.extractall(sources, filter="data")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", built, sources], check=True)
    venv.create(folder / "environment", symlinks=True)
    python = folder / "environment" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "-q", *built.glob("*.whl")]
    subprocess.run(command, check=True)
    return python


def _is_member(client: Client, session: str, node: str) -> bool:
    return node in client.session(session).members


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("change", ["upgrade", "downgrade"])
def test_a_version_reads_what_the_other_wrote(change: str, tmp_path: Path, last_release: Path) -> None:
    """Graphs, finished and stopped runs, and managers by their commands; what the older one cannot read it tells."""
    is_upgrade, here = change == "upgrade", Path(sys.executable)
    writer, reader = (last_release, here) if is_upgrade else (here, last_release)
    graph = _ROOT / "examples" / "imaging.graph"
    wrote = [
        run(tmp_path, *command, python=writer)
        for command in (
            ("unroll", graph, "-o", "imaging.dfg"),
            ("run", graph, "--keep", "whole"),
            ("run", graph, "--keep", "stopped", "--until", "0.01s"),
        )
    ]
    assert [one.returncode for one in wrote] == [0, 0, 4]
    with Running(tmp_path, "up", "--nodes", 1, "--port", 0, python=writer):
        read = [
            run(tmp_path, *command, python=reader)
            for command in (
                ("run", "imaging.dfg", "--keep", "again"),
                ("times", "whole"),
                ("explain", "whole", "--origin"),
                ("resume", "stopped"),
                ("submit", "imaging.dfg", "--name", "mine", "--wait"),
                ("sessions",),
                ("fetch", "mine"),
            )
        ]
    for one in read:
        assert not one.returncode or (not is_upgrade and re.match(r"error DF\d+: .*version", one.stderr)), one

    for directory in ("again", "stopped", "mine") if is_upgrade else ():
        for file in ("catalogue.txt", "cube.npy"):  # the picture differs with the version of its library
            assert (tmp_path / directory / "files" / file).read_bytes() == (
                tmp_path / "whole/files" / file
            ).read_bytes()


@pytest.mark.timeout(1500)  # processes are started ten times in turn, of two versions
def test_a_cluster_is_upgraded_while_sessions_run(tmp_path: Path, last_release: Path) -> None:
    """Each node is drained and started again with this version, then the island: no session computes anything twice.

    Each node joins the session that it has left. Results, also of a session that ended before, are read from the new
    managers.
    """
    with Cluster(tmp_path, times=PATIENT) as cluster:
        cluster.python = last_release
        nodes = dict(zip(_NODES, cluster.nodes(*_NODES), strict=True))
        island = cluster.island(*nodes.values())
        cluster.python = sys.executable
        client = cluster.client(island)
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
