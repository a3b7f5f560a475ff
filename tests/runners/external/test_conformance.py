"""Every runner keeps the promises of `dropflow.testing.conformance`."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.runners.engine import EngineEvents
from dropflow.runners.external import ExternalRunner
from dropflow.runners.in_process import InlineRunner, ThreadRunner
from dropflow.runners.worker_pool import ProcessRunner
from dropflow.testing.attempts import ScriptedExecutor
from dropflow.testing.conformance import RunnerConformance
from tests.e2e.cluster import until
from tests.runners.external.elsewhere import NAMES, LostWorker, run

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Iterator["distributed.LocalCluster"]:
    """A Dask cluster of two worker processes, which are started again if they end."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # not port 8787, which other tests may have
        silence_logs=60,
    ) as made:
        yield made


class TestInline(RunnerConformance):
    """One attempt after another in this thread."""

    survives_loss = False

    def make(self, spec: ExecutorSpec, factory: str) -> Runner:
        """Return a new one."""
        del factory
        return InlineRunner(ScriptedExecutor(spec))


class TestThreads(RunnerConformance):
    """Threads of this process."""

    survives_loss = False

    def make(self, spec: ExecutorSpec, factory: str) -> Runner:
        """Return a new one."""
        del factory
        return ThreadRunner(ScriptedExecutor(spec), threads=3)


class TestProcesses(RunnerConformance):
    """Worker processes."""

    def make(self, spec: ExecutorSpec, factory: str) -> Runner:
        """Return a new one."""
        return ProcessRunner(spec, workers=2, factory=factory)


class TestDask(RunnerConformance):
    """The workers of a Dask cluster."""

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: "distributed.LocalCluster") -> None:
        self.address = cluster.scheduler_address

    def make(self, spec: ExecutorSpec, factory: str) -> Runner:
        """Return a new one."""
        from dropflow.runners.dask_engine import DaskEngine  # noqa: PLC0415 - needs distributed

        return ExternalRunner(DaskEngine(self.address, 2), spec, factory=factory)


def test_clusters_of_this_process_listen_on_this_host_only(tmp_path: Path) -> None:
    """Two of them, whose HTTP servers take no fixed port. A warning about a port would be an error here."""
    from dropflow.runners.dask_engine import DaskEngine  # noqa: PLC0415 - needs distributed

    def listening() -> set[tuple[str, int]]:
        found = psutil.Process().net_connections()
        return {(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN}

    for name in ("files", "logs", "tmp"):
        (tmp_path / name).mkdir()
    spec = ExecutorSpec(session="s", directory=str(tmp_path), templates=(), links=())
    events = EngineEvents(lambda *_: None, lambda *_: None, lambda *_: None, lambda *_: None)
    before = listening()
    engines = [DaskEngine("", 1) for _ in range(2)]
    try:
        for engine in engines:
            engine.start(spec, "dropflow.testing.attempts:build", events)
        found = listening() - before
        assert found
        assert {(host, port == 8787) for host, port in found} == {("127.0.0.1", False)}
    finally:
        for engine in engines:
            engine.close()


def assert_same_without_a_worker(name: str, directory: Path, cluster: "distributed.LocalCluster") -> None:
    """Compare a run that loses a Dask worker with a run in one process."""

    def worker_of(found: list[psutil.Process]) -> psutil.Process:
        pids = {nanny.pid for nanny in cluster.workers.values()}
        return next(one for one in found if one.pid in pids)

    lost = LostWorker(directory / "dask", worker_of)
    found = run(name, directory / "dask", f"dask={cluster.scheduler_address}", lost)

    assert found.infrastructure_faults == 1
    assert found.without_faults() == run(name, directory / "inline", "inline")
    # A cluster that is closed while it starts a worker again may wait forever.
    assert until(lambda: len(cluster.scheduler.workers) == 2, 60)
    assert until(lambda: not any(psutil.pid_exists(step) for step in lost.steps))


def test_an_example_gives_the_same_on_dask_and_loses_a_worker(
    cluster: "distributed.LocalCluster", tmp_path: Path
) -> None:
    """States, root causes and contents are those of a run in one process, although a Dask worker is killed.

    The attempt that runs there ends with all that it has started, counts as one fault, and is repeated elsewhere.
    """
    assert_same_without_a_worker("error-threshold", tmp_path, cluster)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_all_examples_give_the_same_on_dask(name: str, cluster: "distributed.LocalCluster", tmp_path: Path) -> None:
    """As above, for each example."""
    assert_same_without_a_worker(name, tmp_path, cluster)
