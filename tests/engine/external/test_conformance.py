"""Every runner keeps the promises of `dropflow.testing.runner_conformance`."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dropflow import local
from dropflow.engine.api import ExecutorSpec, Runner
from dropflow.engine.external.external_runner import ExternalRunner
from dropflow.engine.runners.inline import InlineRunner
from dropflow.engine.runners.processes import ProcessRunner
from dropflow.engine.runners.threads import ThreadRunner
from dropflow.engine.session import Session
from dropflow.graph.builder import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.states import SessionState
from dropflow.testing.executors import ScriptedExecutor
from dropflow.testing.runner_conformance import RunnerConformance, RunOutcome, outcome_of
from tests.e2e.cluster import until
from translator.pipeline import translate

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
STREAMS = "live-receiver"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.graph") if path.stem != STREAMS)


@pytest.fixture(scope="module")
def cluster() -> Iterator["distributed.LocalCluster"]:
    """A Dask cluster of two worker processes, which are started again if they end."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=60
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
        from dropflow.engine.external.dask_engine import DaskEngine  # noqa: PLC0415 - needs distributed

        return ExternalRunner(DaskEngine(self.address, 2), spec, factory=factory)


def run_graph(
    graph: PhysicalGraph, directory: Path, runner: str, on_session: Callable[[Session], None] | None = None
) -> RunOutcome:
    """Run a graph in a new directory, and return what it gave."""
    sessions: list[Session] = []

    def note(session: Session) -> None:
        sessions.append(session)
        if on_session is not None:
            on_session(session)

    place = local.prepare_directory(directory)
    local.run(graph, directory=place, runner=runner, workers=2, on_session=note)
    return outcome_of(sessions[0])


def run(name: str, directory: Path, runner: str, kill: "Kill | None" = None) -> RunOutcome:
    """Return what an example gives; `kill` ends a worker of the engine in the middle."""
    return run_graph(
        translate(EXAMPLES / f"{name}.graph").graph, directory, runner, None if kill is None else kill.watch
    )


class Kill:
    """Ends a worker process of Dask with SIGKILL, once a session has completed some of its drops."""

    def __init__(self, cluster: "distributed.LocalCluster") -> None:
        self._cluster = cluster
        self.killed = 0

    def watch(self, session: Session) -> None:
        """Kill in another thread."""
        threading.Thread(target=self._kill, args=[session], daemon=True).start()

    def _kill(self, session: Session) -> None:
        assert until(lambda: len(session.runner.running) > 0)
        nanny = next(iter(self._cluster.workers.values()))
        self.killed = nanny.pid
        os.kill(nanny.pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["error-threshold"])
def test_examples_give_the_same_on_dask_and_lose_a_worker(
    name: str, cluster: "distributed.LocalCluster", tmp_path: Path
) -> None:
    """States, root causes and contents are those of a run in one process, although a Dask worker is killed."""
    kill = Kill(cluster)
    found = run(name, tmp_path / "dask", f"dask={cluster.scheduler_address}", kill)

    assert kill.killed
    assert found.without_faults() == run(name, tmp_path / "inline", "inline")


def test_the_loss_of_a_dask_worker_is_a_fault_that_is_repeated(
    cluster: "distributed.LocalCluster", tmp_path: Path
) -> None:
    """The attempt that runs there ends with all that it has started, and is repeated on another worker."""
    builder = GraphBuilder("long")
    command = "[ -e began ] && exit 0; echo $$ > new; mv new began; exec sleep 98765"
    arguments = (Argument(name="command", value=command, parameter_type="ComponentParameter"),)
    builder.app("A", component="dlg.apps.bash_shell_app.BashShellApp", category="BashShellApp", arguments=arguments)
    builder.data("b", component="dlg.data.drops.memory.InMemoryDROP", category="Memory")
    builder.connect("A", "b")
    began = tmp_path / "run" / "files" / "began"

    def kill() -> None:
        assert until(began.exists)
        shell = psutil.Process(int(began.read_text()))
        pids = {nanny.pid for nanny in cluster.workers.values()}
        os.kill(next(each.pid for each in shell.parents() if each.pid in pids), signal.SIGKILL)

    found = run_graph(
        builder.build(),
        tmp_path / "run",
        f"dask={cluster.scheduler_address}",
        lambda _: threading.Thread(target=kill, daemon=True).start(),
    )

    assert (found.status, found.infrastructure_faults) == (SessionState.FINISHED, 1)
    assert until(lambda: not psutil.pid_exists(int(began.read_text())))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_all_examples_give_the_same_on_dask(name: str, cluster: "distributed.LocalCluster", tmp_path: Path) -> None:
    """As above, for each example."""
    kill = Kill(cluster)
    found = run(name, tmp_path / "dask", f"dask={cluster.scheduler_address}", kill)

    assert kill.killed
    assert found.without_faults() == run(name, tmp_path / "inline", "inline")
