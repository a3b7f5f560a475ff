"""The runner of Ray keeps the promises of all runners. Skipped where Ray is not installed: it is large."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dropflow.engine.api import ExecutorSpec, Runner
from dropflow.runners.external import ExternalRunner
from dropflow.testing.conformance import RunnerConformance
from tests.e2e.cluster import until
from tests.engine.external.lost_worker import LostWorker
from tests.engine.external.test_conformance import NAMES, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # Of Ray itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")


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
        from dropflow.runners.ray_engine import RayEngine  # noqa: PLC0415 - needs Ray

        return ExternalRunner(RayEngine("auto", 2), spec, factory=factory)


def _is_actor(process: psutil.Process) -> bool:
    return any("HostActor" in word for word in process.cmdline())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_all_examples_give_the_same_on_ray(name: str, tmp_path: Path) -> None:
    """States, root causes and contents are those of a run in one process, although an actor is killed.

    The attempt that runs there ends with all that it has started, counts as one fault, and is repeated elsewhere.
    """
    lost = LostWorker(tmp_path / "ray", lambda found: next(one for one in found if _is_actor(one)))
    found = run(name, tmp_path / "ray", "ray", lost)

    assert found.infrastructure_faults == 1
    assert found.without_faults() == run(name, tmp_path / "inline", "inline")
    assert until(lambda: not any(psutil.pid_exists(step) for step in lost.steps))
