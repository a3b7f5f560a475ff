"""The runner of Ray keeps the promises of all runners. Skipped where Ray is not installed: it is large."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dropflow.engine.api import ExecutorSpec, Runner
from dropflow.engine.external.external_runner import ExternalRunner
from dropflow.engine.session import Session
from dropflow.testing.runner_conformance import RunnerConformance
from tests.e2e.cluster import until
from tests.engine.external.test_conformance import EXAMPLES, NAMES, run_graph
from translator.pipeline import translate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # Of Ray itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dropflow[ray]'")


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """A Ray cluster of two processors on this machine, to which this process is connected."""
    before = signal.getsignal(signal.SIGTERM)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    signal.signal(signal.SIGTERM, before)
    yield
    ray.shutdown()


class TestRay(RunnerConformance):
    """Actors of Ray."""

    def make(self, spec: ExecutorSpec, factory: str) -> Runner:
        """Return a new one."""
        from dropflow.engine.external.ray_engine import RayEngine  # noqa: PLC0415 - needs Ray

        return ExternalRunner(RayEngine("auto", 2), spec, factory=factory)


def _kill_an_actor(session: Session) -> None:
    assert until(lambda: len(session.runner.running) > 0)
    names = [process for process in psutil.process_iter(["cmdline"]) if _is_actor(process)]
    os.kill(min(process.pid for process in names), signal.SIGKILL)


def _is_actor(process: psutil.Process) -> bool:
    return any("HostActor" in word for word in process.info["cmdline"] or ())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_all_examples_give_the_same_on_ray(name: str, tmp_path: Path) -> None:
    """States, root causes and contents are those of a run in one process, although an actor is killed."""
    graph = translate(EXAMPLES / f"{name}.graph").graph

    def watch(session: Session) -> None:
        threading.Thread(target=_kill_an_actor, args=[session], daemon=True).start()

    found = run_graph(graph, tmp_path / "ray", "ray", watch)

    assert found.without_faults() == run_graph(graph, tmp_path / "inline", "inline")
