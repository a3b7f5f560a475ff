"""Engines on several hosts. One host does not see the session directory: it is a mount namespace of this machine."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dropflow.states import SessionState
from tests.e2e.cluster import until
from tests.engine.external.test_conformance import EXAMPLES, run_graph
from tests.engine.external.test_content_relay import Drawing
from translator.pipeline import translate

pytestmark = [pytest.mark.slow, pytest.mark.netns, pytest.mark.timeout(180)]

distributed = pytest.importorskip("distributed")


def may_unshare() -> bool:
    """Whether this user may make mount namespaces."""
    command = ["unshare", "-m", "true"]
    return bool(shutil.which("unshare")) and not subprocess.run(command, capture_output=True, check=False).returncode


needs_namespaces = pytest.mark.skipif(not may_unshare(), reason="mount namespaces need the superuser")


def without(directory: Path, command: list[str]) -> list[str]:
    """Return a command that runs where `directory` is empty, as on a host that does not share it."""
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {directory} && exec "$0" "$@"', *command]


@pytest.fixture
def blind_cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a Dask scheduler with two workers; one of them does not see ``tmp_path/sessions``."""
    (tmp_path / "sessions").mkdir()
    file = tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), *sys.path])}
    started = []

    def start(command: list[str]) -> None:
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))

    python = [sys.executable, "-m"]
    scheduler = [*python, "distributed.cli.dask_scheduler", "--scheduler-file", str(file), "--no-dashboard"]
    start([*scheduler, "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"])
    try:
        assert until(file.exists)
        worker = [*python, "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-dashboard", "--no-nanny"]
        worker += ["--nthreads", "1", "--memory-limit", "0", "--local-directory"]
        start([*worker, str(tmp_path / "w0")])
        start(without(tmp_path / "sessions", [*worker, str(tmp_path / "w1")]))
        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            yield f"dask={client.scheduler.address}"
    finally:
        for process in started:
            for each in (*psutil.Process(process.pid).children(recursive=True), process):
                each.send_signal(signal.SIGKILL)
            process.wait()


@needs_namespaces
def test_contents_go_through_dask_to_a_worker_without_the_directory(blind_cluster: str, tmp_path: Path) -> None:
    """The results are those of a run in one process, and no file is left on the workers."""
    graph = translate(EXAMPLES / "imaging.graph").graph
    found = run_graph(graph, tmp_path / "sessions" / "dask", blind_cluster)

    assert found.status is SessionState.FINISHED
    assert found == run_graph(graph, tmp_path / "inline", "inline")
    assert until(lambda: not [*(tmp_path / "w0").rglob("contents"), *(tmp_path / "w1").rglob("contents")])


@needs_namespaces
def test_large_contents_go_through_a_store(blind_cluster: str, tmp_path: Path) -> None:
    """Both workers read what the command has stored there, and it is empty at the end."""
    (tmp_path / "in.dat").write_bytes(os.urandom(3_000_000))
    drawing = Drawing()
    drawing.file("in", str(tmp_path / "in.dat"))
    for number in range(4):
        drawing.bash(f"Copy{number}", f"cat %i[0] %i[0] > %o[0]; find {tmp_path}/store -type f >&2 || true")
        drawing.file(f"copy{number}", f"copy{number}.dat")
        drawing.connect("in", f"Copy{number}", f"copy{number}")
    graph = drawing.build()
    run = tmp_path / "sessions" / "dask"
    found = run_graph(graph, run, f"{blind_cluster},contents=file://{tmp_path}/store")
    logs = [path.read_text() for path in (run / "logs").glob("*Copy*.log")]

    assert found.status is SessionState.FINISHED, found.failures
    assert found == run_graph(graph, tmp_path / "inline", "inline")
    assert any(f"{tmp_path}/store/dropflow-" in text for text in logs)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
