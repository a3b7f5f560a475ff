"""Which workers of Dask get batches: a real scheduler and real workers in this process, without worker processes.

And the death of a scheduler, with processes.
"""

import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from dropflow.errors import ConflictError, DropflowError, LinkError, MissingDependencyError, WorkerStartError
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.runners.engine import Batch, BatchAnswer, EngineEvents, Piece, WorkerView, decode_batch, encode
from dropflow.runners.external import workers_of_places
from dropflow.runners.external_host import HostView, look
from dropflow.states import SessionState
from dropflow.version import __version__
from tests.e2e.cluster import is_whole, until
from tests.runners.external.command_graphs import Drawing
from tests.runners.external.elsewhere import EXAMPLES, run_graph
from tests.runners.external.mount_namespaces import needs_namespaces, without
from translator.pipeline import translate

pytestmark = pytest.mark.slow


distributed = pytest.importorskip("distributed")
HELD = 99


class PlayedHost:
    """Answers batches with the address of its worker. One with the drop `HELD` ends with that, or when discarded."""

    def __init__(self, spec: ExecutorSpec, *, name: str, **_: object) -> None:
        del spec
        self.name = name
        self.over = threading.Event()

    def run(self, data: bytes, pieces: Sequence[Piece]) -> bytes:
        """Run a batch."""
        del pieces
        batch = decode_batch(data)
        if batch.tasks[0].drop == HELD:
            self.over.wait()
        results = tuple(AttemptResult(task.drop, task.attempt, {}) for task in batch.tasks)
        return encode(BatchAnswer(batch.number, self.name, results))

    def discard(self, number: int) -> None:
        """End what is held: Dask repeats the task of a lost worker before it is cancelled."""
        del number
        self.over.set()

    def close(self) -> None:
        """End what is held."""
        self.over.set()


class Cluster:
    """Dask workers with names, and an engine on them.

    Parameters
    ----------
    directory : Path
        Of the session.
    """

    def __init__(self, directory: Path) -> None:
        options = {"nthreads": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
        self.worker = {"cls": distributed.Worker, "options": options}
        self.made = distributed.SpecCluster(
            workers=dict.fromkeys(("left", "right"), self.worker),
            scheduler={
                "cls": distributed.Scheduler,
                "options": {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1", "port": 0},
            },
            silence_logs=60,
        )
        self.spec = ExecutorSpec(session="s", directory=str(directory), templates=(), links=())
        self.answers: dict[int, BatchAnswer] = {}
        self.lost: dict[int, str] = {}
        self.views: dict[str, WorkerView] = {}
        module = importlib.import_module("dropflow.runners.dask_engine")
        self.engine = module.DaskEngine(self.made.scheduler_address, 1)

    def start(self) -> None:
        """Start the engine."""
        events = EngineEvents(
            lambda answer, _: self.answers.update({answer.number: answer}),
            lambda number, why: self.lost.update({number: why}),
            self._take,
            lambda _: None,
        )
        self._take(self.engine.start(self.spec, "", events))

    def _take(self, views: Sequence[WorkerView]) -> None:
        self.views = {view.alias: view for view in views}

    def run(self, number: int, place: str, drop: int = 0) -> None:
        """Have a batch run at a place."""
        chosen = workers_of_places([place], self.views.values())
        self.engine.submit(Batch(number, (Task(drop, 1, 0, "d", ()),)), "node", chosen.get(0, ()))

    def add(self, name: str) -> str:
        """Start one more worker; return its address when the scheduler has it."""
        self.made.sync(self._add, name)
        return str(self.made.workers[name].address)

    async def _add(self, name: str) -> None:
        self.made.worker_spec[name] = self.worker
        await self.made._correct_state()

    def end(self, name: str) -> None:
        """Stop a worker as its operator does."""
        self.made.sync(self.made.workers[name].close)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster with the workers ``left`` and ``right``."""
    monkeypatch.setattr("dropflow.runners.dask_engine.Host", PlayedHost)
    made = Cluster(tmp_path)
    yield made
    made.engine.close()
    made.made.close()


def test_a_place_with_the_name_of_a_worker_gets_this_worker(cluster: Cluster) -> None:
    """All its batches run there. When the worker has left, they run on another one; what it had is reported as lost."""
    cluster.start()
    assert set(cluster.views) == {"left", "right"}
    right = cluster.views["right"].name
    for number in range(4):
        cluster.run(number, "right")
    assert until(lambda: len(cluster.answers) == 4)
    assert {answer.worker for answer in cluster.answers.values()} == {right}

    cluster.run(4, "right", HELD)
    assert until(lambda: bool(cluster.made.workers["right"].state.executing_count))
    cluster.end("right")
    assert until(lambda: set(cluster.views) == {"left"})
    assert cluster.lost == {4: f"the Dask worker {right} has left the cluster"}
    cluster.run(5, "right")
    assert until(lambda: 5 in cluster.answers)
    assert cluster.answers[5].worker == cluster.views["left"].name


def test_a_batch_that_waits_on_a_worker_that_is_lost_has_no_fault(cluster: Cluster) -> None:
    """Dask gives a worker a task more than it runs. What has not begun there waits again."""
    cluster.start()
    right = cluster.views["right"].name
    cluster.run(1, "right", HELD)
    assert until(lambda: bool(cluster.made.workers["right"].state.executing_count))
    cluster.engine._unusable.add("tcp://another")  # so that no other worker may have it
    cluster.engine.submit(Batch(2, (Task(0, 1, 0, "d", ()),)), "node", [right])
    assert until(lambda: len(cluster.made.scheduler.workers[right].processing) == 2)
    cluster.end("right")
    assert until(lambda: bool(cluster.lost) and 2 in cluster.answers)

    assert set(cluster.lost) == {1}
    assert [task.drop for task in cluster.answers[2].returned] == [0]


def looking(problems: dict[str, Exception | dict[str, str]]) -> Callable[..., HostView]:
    """What workers find when they look; those with these names raise, or have something else."""

    def found(path: str, token: str, alias: str = "") -> HostView:
        problem = problems.get(alias, {})
        if isinstance(problem, Exception):
            raise problem
        return msgspec.structs.replace(look(path, token, alias), **problem)

    return found


OTHERS: dict[str, tuple[Any, type[DropflowError], str]] = {
    "bare": (
        ModuleNotFoundError("No module named 'dropflow'"),
        MissingDependencyError,
        "cannot import dropflow: No mod",
    ),
    "changed": (
        AttributeError("no attribute '_look'"),
        ConflictError,
        rf"has dropflow {re.escape(__version__)}, and cannot run this version of dropflow \(.*\): Attribute",
    ),
    "old": ({"version": "0.0"}, ConflictError, r"\(0\.0\) of Dask have another version of dropflow than this process"),
    "python": ({"python": "3.9.1"}, ConflictError, r"\(3\.9\.1\) of Dask have another version of Python than this"),
    "full": (OSError("no answer"), WorkerStartError, "does not answer: OSError: no answer"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_session_does_not_start_with_a_worker_that_cannot_take_part(
    name: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the worker, what is wrong with it, and what to do."""
    problem, kind, text = OTHERS[name]
    monkeypatch.setattr("dropflow.runners.dask_engine.look", looking({"right": problem}))
    with pytest.raises(kind, match=text) as caught:
        cluster.start()

    assert str(cluster.made.workers["right"].address) in caught.value.text
    assert caught.value.hint


def test_a_worker_that_comes_and_cannot_take_part_gets_no_batches(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays in the cluster, for other users of it; the log tells why. One that can take part is used."""
    problems = {name: problem for name, (problem, _, _) in OTHERS.items()}
    monkeypatch.setattr("dropflow.runners.dask_engine.look", looking(problems))
    cluster.start()
    others = {cluster.add(name) for name in OTHERS}
    good = cluster.add("good")
    assert until(lambda: set(cluster.views) == {"left", "right", "good"})
    cluster.end("left")
    cluster.end("right")
    assert until(lambda: set(cluster.views) == {"good"})
    for number in range(12):
        cluster.run(number, "left" if number % 2 else "good")
    assert until(lambda: len(cluster.answers) == 12)

    assert {answer.worker for answer in cluster.answers.values()} == {good}
    texts = [record.message for record in caplog.records if "is not used" in record.message]
    assert all(any(address in text for text in texts) for address in others)
    assert not cluster.lost
    cluster.end("good")
    assert until(lambda: not cluster.views)
    # Others are there. It waits here until a worker comes that can be used.
    cluster.run(12, "")
    assert until(lambda: 12 in cluster.answers)
    assert [task.drop for task in cluster.answers[12].returned] == [0]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a scheduler with one worker; its address is in scheduler.json."""
    dask = [sys.executable, "-m", "dask"]
    found = ["--scheduler-file", str(tmp_path / "scheduler.json"), "--no-dashboard"]
    with (tmp_path / "dask.log").open("wb") as log:
        made = subprocess.Popen([*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", *found], stderr=log)
        assert until(lambda: is_whole(tmp_path / "scheduler.json"))
        worker = subprocess.Popen([*dask, "worker", "--nthreads", "2", *found], stderr=log, cwd=tmp_path)
        yield made
        for process in (worker, made):
            process.terminate()
            process.wait(60)


def test_a_run_whose_scheduler_is_killed_is_resumed(scheduler: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """The run ends with the reason, and without asyncio's remarks; on this machine it goes on from what is there."""
    go, run, graph = tmp_path / "go", tmp_path / "run", tmp_path / "two.pg"
    commands = {"a": "echo a > %o0", "b": f"while [ ! -e {go} ]; do sleep 0.1; done; echo b > %o0"}
    rows: list[dict[str, Any]] = []
    for name, command in commands.items():
        app = {"oid": f"app-{name}", "categoryType": "Application", "dropclass": "dlg.apps.bash_shell_app.BashShellApp"}
        file = {"oid": name, "categoryType": "Data", "dropclass": "dlg.data.drops.file.FileDROP", "filepath": name}
        rows += [{**app, "command": command, "outputs": [name]}, {**file, "producers": [f"app-{name}"]}]
    graph.write_bytes(msgspec.json.encode(rows))
    address = msgspec.json.decode((tmp_path / "scheduler.json").read_bytes())["address"]
    command = [sys.executable, "-m", "dropflow", "run", str(graph), "--keep", str(run), "--runner", f"dask={address}"]
    environment = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as first:
        assert until((run / "files" / "a").exists)
        scheduler.kill()
        output, errors = first.communicate(timeout=120)
    go.touch()
    again = subprocess.run(
        [sys.executable, "-m", "dropflow", "resume", str(run)], capture_output=True, text=True, check=False, timeout=120
    )

    assert first.returncode == 1
    assert "the connection to its scheduler" in output, output
    assert "destroyed" not in errors
    assert again.returncode == 0, again.stderr
    assert (run / "files" / "b").read_text(encoding="utf-8") == "b\n"


# Engines on several hosts. One host does not see the session directory: it is a mount namespace of this machine.


@pytest.fixture(scope="module")
def blind_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a Dask scheduler with two workers, and a directory; one of them does not see its ``sessions``."""
    place = tmp_path_factory.mktemp("blind")
    (place / "sessions").mkdir()
    file = place / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), *sys.path])}
    started = []

    def start(command: list[str]) -> None:
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))

    python = [sys.executable, "-m"]
    scheduler = [*python, "distributed.cli.dask_scheduler", "--scheduler-file", str(file), "--no-dashboard"]
    start([*scheduler, "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"])
    try:
        assert until(lambda: is_whole(file))
        worker = [*python, "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-dashboard", "--no-nanny"]
        worker += ["--nthreads", "1", "--memory-limit", "0", "--local-directory"]
        start([*worker, str(place / "w0")])
        start(without(place / "sessions", [*worker, str(place / "w1")]))
        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            yield f"dask={client.scheduler.address}", place
    finally:
        for process in started:
            for each in (*psutil.Process(process.pid).children(recursive=True), process):
                each.send_signal(signal.SIGKILL)
            process.wait()


@pytest.mark.netns
@needs_namespaces
def test_contents_go_through_dask_to_a_worker_without_the_directory(
    blind_cluster: tuple[str, Path], tmp_path: Path
) -> None:
    """The results are those of a run in one process, and no file is left on the workers."""
    graph, (runner, place) = translate(EXAMPLES / "imaging.graph").graph, blind_cluster
    found = run_graph(graph, place / "sessions" / "dask", runner)

    assert found.status is SessionState.FINISHED
    assert found == run_graph(graph, tmp_path / "inline", "inline")
    assert until(lambda: not [*(place / "w0").rglob("contents"), *(place / "w1").rglob("contents")])


@pytest.mark.netns
@needs_namespaces
def test_large_contents_go_through_a_store(blind_cluster: tuple[str, Path], tmp_path: Path) -> None:
    """Both workers read what the command has stored there, and it is empty at the end."""
    (tmp_path / "in.dat").write_bytes(os.urandom(3_000_000))
    drawing = Drawing()
    drawing.file("in", str(tmp_path / "in.dat"))
    for number in range(4):
        drawing.bash(f"Copy{number}", f"cat %i[0] %i[0] > %o[0]; find {tmp_path}/store -type f >&2 || true")
        drawing.file(f"copy{number}", f"copy{number}.dat")
        drawing.connect("in", f"Copy{number}", f"copy{number}")
    graph, (runner, place) = drawing.build(), blind_cluster
    run = place / "sessions" / "stored"
    found = run_graph(graph, run, f"{runner},contents=file://{tmp_path}/store")
    logs = [path.read_text() for path in (run / "logs").glob("*Copy*.log")]

    assert found.status is SessionState.FINISHED, found.failures
    assert found == run_graph(graph, tmp_path / "inline", "inline")
    assert any(f"{tmp_path}/store/dropflow-" in text for text in logs)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def test_a_scheduler_that_needs_tls_is_an_error_in_words() -> None:
    """Dask itself raises a TypeError if it has no certificates."""
    engine = importlib.import_module("dropflow.runners.dask_engine").DaskEngine
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(LinkError, match="TLS configuration"):
        engine(f"tls://127.0.0.1:{listener.getsockname()[1]}", 1)._connect()
