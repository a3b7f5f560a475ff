"""Ray clusters of several nodes on this machine: places of a graph, and the loss of a node."""

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.execution.session import Session
from dropflow.graph.physical import PhysicalGraph
from dropflow.runners.external import ExternalRunner
from dropflow.states import SessionState
from dropflow.testing.conformance import RunnerConformance
from tests.e2e.cluster import until
from tests.runners.external.command_graphs import Drawing
from tests.runners.external.elsewhere import EXAMPLES, NAMES, LostWorker, run, run_graph
from tests.runners.external.mount_namespaces import needs_namespaces, without

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


ray = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
NODE = (
    r"""p=$$; while [ $p -gt 1 ]; do tr '\0' '\n' < /proc/$p/cmdline | grep -e '^--node-name=' | cut -d= -f2; """
    r"""p=$(awk '{print $4}' /proc/$p/stat); done | head -1"""
)
"""Prints the name of the Ray node that a command runs on."""


class Nodes:
    """A Ray cluster whose head has no processors; the nodes ``left`` and ``right`` have one each."""

    def __init__(self, base: Path) -> None:
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - needs Ray

        (base / "sessions").mkdir()
        self.head = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), *sys.path])}
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self.runner = f"ray={self.head.address}"

    def start(self, name: str, hidden: Path | None = None) -> None:
        """Start a node, which does not see what is in the directory `hidden`, and wait for it."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={self.head.address}"]
        # Any ports: by default, two nodes of one machine take the same.
        command += [f"--node-name={name}", "--num-cpus=1", "--min-worker-port=0", "--max-worker-port=0"]
        self.started[name] = subprocess.Popen(
            command if hidden is None else without(hidden, command),
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert until(lambda: name in [node["NodeName"] for node in self.head.global_state.node_table()], 180)

    def kill(self, name: str) -> None:
        """End a node, with all that runs there, as if its power had failed."""
        process = self.started.pop(name)
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            each.send_signal(signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End all nodes."""
        for name in tuple(self.started):
            self.kill(name)
        self.head.shutdown()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """A cluster without nodes."""
    ray.shutdown()  # a runner uses the cluster to which its process is connected
    before = signal.getsignal(signal.SIGTERM)
    made = Nodes(tmp_path)
    try:
        yield made
    finally:
        made.close()
        signal.signal(signal.SIGTERM, before)
        # What Ray has left open is a warning here, and not at the end of all tests.
        del made
        gc.collect()


def placed(graph: PhysicalGraph, place_of: Callable[[str], int]) -> PhysicalGraph:
    """Return a graph with each drop at the place of its node's name: 0 is ``left``, 1 is ``right``."""
    part = [place_of(graph.templates[row].name) for row in graph.template]
    return dataclasses.replace(graph, part=np.array(part, dtype=np.int32), places=("left", "right"))


def meeting(directory: Path, pairs: int) -> PhysicalGraph:
    """Return a graph of pairs of commands that wait for each other: one at the left, and one at the right.

    The last one at the left waits for a file, writes where it runs, and reads what the others have written.
    """
    drawing = Drawing()
    for number in range(pairs):
        for side, other in (("l", "r"), ("r", "l")):
            wait = f"touch {side}{number}; while [ ! -e {other}{number} ]; do sleep 0.05; done; {NODE} > %o[0]"
            wait += r"; head -c 2000000 /dev/zero | tr '\0' '\n' >> %o[0]"  # large enough for a store
            drawing.bash(f"{side}A{number}", f"cd {directory}; {wait}")
            drawing.file(f"{side}f{number}")
            drawing.connect(f"{side}A{number}", f"{side}f{number}")
    wait = f"{NODE} >> {directory}/began; while [ ! -e {directory}/let-go ]; do sleep 0.05; done"
    drawing.bash("lHeld", f"{wait}; cat %i[0] | grep . > %o[0]; {NODE} >> %o[0]")
    for number in range(pairs):
        drawing.connect(f"lf{number}", "lHeld")
        drawing.connect(f"rf{number}", "lHeld")
    drawing.file("lend", "end.txt")
    drawing.connect("lHeld", "lend")
    return placed(drawing.build(), lambda name: int(name[0] == "r"))


class LostNode:
    """Kills the node ``left`` while the last command runs there."""

    def __init__(self, nodes: Nodes, directory: Path) -> None:
        self._nodes, self._began, self._go = nodes, directory / "began", directory / "let-go"

    def watch(self, session: Session) -> None:
        """Kill in another thread."""
        threading.Thread(target=self._lose, args=[session], daemon=True).start()

    def _lose(self, session: Session) -> None:
        try:
            assert until(lambda: self._began.exists() and bool(self._began.read_text().strip()), 120)
            self._nodes.kill("left")
            assert until(lambda: session.failure_table.fault_count > 0, 120)
        finally:
            self._go.touch()


def assert_plan_is_kept(nodes: Nodes, base: Path, contents: str = "") -> None:
    """Run pairs at their places, lose a node, and look where everything has run."""
    meet = base / "meet"
    meet.mkdir()
    run = base / "sessions" / "ray"
    found = run_graph(meeting(meet, 4), run, nodes.runner + contents, LostNode(nodes, meet).watch)

    assert found.status is SessionState.FINISHED, found.failures
    assert found.infrastructure_faults == 1
    assert (meet / "began").read_text().split() == ["left", "right"]
    *where, last = (run / "files" / "end.txt").read_text().split()
    assert sorted(where) == ["left"] * 4 + ["right"] * 4
    assert last == "right"


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_places_are_ray_nodes_and_one_that_is_lost_is_replaced(nodes: Nodes, tmp_path: Path) -> None:
    """Attempts run on the node that the plan names. What runs there when it is killed is a fault, and is repeated."""
    nodes.start("left")
    nodes.start("right")
    assert_plan_is_kept(nodes, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@needs_namespaces
@pytest.mark.parametrize("contents", ["", ",contents=file://{}/store"])
def test_contents_go_to_a_ray_node_without_the_directory(contents: str, nodes: Nodes, tmp_path: Path) -> None:
    """Also then the plan is kept, and the loss of that node loses no content. The store is empty at the end."""
    nodes.start("left", hidden=tmp_path / "sessions")
    nodes.start("right")
    assert_plan_is_kept(nodes, tmp_path, contents.format(tmp_path))
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


# The runner of Ray keeps the promises of all runners. Skipped where Ray is not installed: it is large.


@pytest.fixture
def _cluster() -> None:
    """A Ray cluster of two processors on this machine, to which this process is connected."""
    if not ray.is_initialized():
        before = signal.getsignal(signal.SIGTERM)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module", autouse=True)
def _no_cluster_later() -> Iterator[None]:
    yield
    ray.shutdown()


@pytest.mark.usefixtures("_cluster")
class TestRay(RunnerConformance):
    """Actors of Ray."""

    def make(self, spec: ExecutorSpec, factory: str) -> Runner:
        """Return a new one."""
        from dropflow.runners.ray_engine import RayEngine  # noqa: PLC0415 - needs Ray

        return ExternalRunner(RayEngine("auto", 2), spec, factory=factory)


def _is_actor(process: psutil.Process) -> bool:
    return any("HostActor" in word for word in process.cmdline())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.exhaustive
@pytest.mark.usefixtures("_cluster")
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
