"""An engine in this process whose workers have directories of their own, as on hosts without a common file system.

It is strict: what it gets and gives is encoded, and no path of the session's directory may reach a worker.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil

from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.errors import StorageError, WorkerStartError
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.execution.session import Session, Watch
from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind
from dropflow.runners.carried_contents import ContentRelay, OwnDirectory
from dropflow.runners.engine import (
    AttemptKey,
    Batch,
    Blob,
    EngineEvents,
    Piece,
    WorkerView,
    decode_answer,
    decode_answers,
    encode,
)
from dropflow.runners.executor import LocalExecutor
from dropflow.runners.external import ExternalRunner
from dropflow.runners.external_host import Host
from dropflow.runners.external_store import ContentStore
from dropflow.runners.in_process import MixedRunner, ThreadRunner
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.sessions.make_session import make_session
from dropflow.testing.conformance import RunOutcome, outcome_of
from tests.e2e.cluster import until
from translator.pipeline import translate

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
STREAMS = "live-receiver"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.graph") if path.stem != STREAMS)

# A worker of an engine is killed in the middle of any graph, so that exactly one infrastructure fault is counted.
#
# The graph gets one more application, which ends only when it is told. The worker that runs it is killed while the rest
# of the graph runs. If the application had others beside it in its batch, no fault is counted, and it is repeated
# alone: then it is killed once more.


_HELD = "[ -e let-go ] && exit 0; echo $$ > new; mv new began; while [ ! -e let-go ]; do sleep 0.1; done"


def with_held_step(graph: PhysicalGraph) -> PhysicalGraph:
    """Return a graph with one more application, which waits for a file, and its output. Nothing else depends on it."""
    builder = GraphBuilder("held")
    argument = Argument(name="command", value=_HELD, parameter_type="ComponentParameter")
    builder.app("held", component="dlg.apps.bash_shell_app.BashShellApp", category="BashShellApp", arguments=[argument])
    held = builder.data("end").connect("held", "end").build()
    drops, templates = graph.drops, len(graph.templates)
    links = [
        type(link)(source=link.source + templates, target=link.target + templates, source_port="", target_port="")
        for link in held.links
    ]
    sources = [np.repeat(np.arange(one.drops), np.diff(one.successors.ptr)) for one in (graph, held)]
    return from_columns(
        name=graph.name,
        prefix=graph.prefix,
        templates=[*graph.templates, *held.templates],
        links=[*graph.links, *links],
        template=np.append(graph.template, held.template + templates),
        instance=np.append(graph.instance, held.instance),
        source=np.append(sources[0], sources[1] + drops),
        target=np.append(graph.successors.neighbour, held.successors.neighbour + drops),
        link=np.append(graph.successors.link, held.successors.link + len(graph.links)),
        meta=graph.meta,
    )


def let_go(directory: Path) -> None:
    """Have the application end at once, in a run without a loss."""
    (directory / "files" / "let-go").touch()


class LostWorker:
    """Kills the worker that runs the application, until a fault is counted; then the application may end.

    Parameters
    ----------
    directory : Path
        Of the session.
    worker_of : callable
        Returns the process of the engine's worker among those that started the application.
    """

    def __init__(self, directory: Path, worker_of: Callable[[list[psutil.Process]], psutil.Process]) -> None:
        self._files = directory / "files"
        self._worker_of = worker_of
        self.steps: list[int] = []
        """Processes of the application whose workers were killed."""

    def watch(self, session: Session) -> None:
        """Kill in another thread, as the session goes on."""
        threading.Thread(target=self._lose, args=[session], daemon=True).start()

    def _lose(self, session: Session) -> None:
        try:
            while self._begins_again(session):
                self.steps.append(self._step())
                worker = self._worker_of(psutil.Process(self.steps[-1]).parents())
                noted = self._faults(session)
                os.kill(worker.pid, signal.SIGKILL)
                # Dask may begin the attempt again before the session has heard of the loss, and cancels that.
                assert until(lambda noted=noted: self._faults(session) > noted, 240)  # type: ignore[misc]
        finally:
            let_go(self._files.parent)

    def _begins_again(self, session: Session) -> bool:
        """Wait for the first or next attempt; return whether its worker must be killed, as no fault is counted yet."""
        # A fault is counted before the attempt is repeated.
        assert until(lambda: self._step() not in (0, *self.steps[-1:]), 240)
        return session.failure_table.fault_count == 0

    @staticmethod
    def _faults(session: Session) -> int:
        return sum(map(len, tuple(session.failure_table.faults.values())))

    def _step(self) -> int:
        began = self._files / "began"
        return int(began.read_text()) if began.exists() else 0


class Elsewhere:
    """Workers ``w0``, ``w1``... with one attempt at a time, in threads.

    Parameters
    ----------
    base : Path
        Where workers have their directories.
    workers : int
        How many.
    """

    name = "Elsewhere"

    def __init__(self, base: Path, workers: int = 2) -> None:
        self.base = base
        self.count = workers
        self.hosts: dict[str, Host] = {}
        self.busy: dict[str, set[int]] = {}
        self.batches: list[tuple[str, Batch]] = []
        self.put_pieces: list[bytes] = []
        self.received: list[Piece] = []
        """Pieces of outputs."""
        self.on_put: Callable[[], None] = lambda: None
        self.on_run: Callable[[str], None] = lambda _worker: None
        self.events: EngineEvents | None = None
        self.is_closed = False

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents, *, store: str = "") -> Sequence[WorkerView]:
        """Make the hosts."""
        self.events, self.forbidden = events, spec.directory
        for number in range(self.count):
            name = f"w{number}"
            try:
                own = OwnDirectory(str(self.base / name), store)
            except StorageError as error:
                raise WorkerStartError(f"worker {name} cannot begin: {error.where}: {error.text}") from error
            self.busy[name] = set()
            self.hosts[name] = Host(spec, workers=1, name=name, factory=factory, own=own, open_runner=_threads)
        return self.views()

    def views(self) -> list[WorkerView]:
        """The workers that there are."""
        return [WorkerView(name, 1, (name,), is_detached=True) for name in self.hosts]

    def put(self, data: bytes) -> object:
        """Keep bytes."""
        self.on_put()
        self.put_pieces.append(data)
        return len(self.put_pieces) - 1

    def submit(self, batch: Batch, name: str, workers: Sequence[str], pieces: Sequence[object] = ()) -> None:
        """Run a batch in a thread, on the worker with the fewest batches."""
        assert name
        assert self.events is not None
        found = [self.put_pieces[piece] if isinstance(piece, int) else piece for piece in pieces]
        assert all(isinstance(one, (bytes, Blob)) for one in found)
        data = encode(batch)
        assert self.forbidden.encode() not in data
        if not self.hosts:
            self.events.lost(batch.number, "no worker is left")
            return
        worker = min(self.hosts, key=lambda host: (len(self.busy[host]), host not in workers))
        self.busy[worker].add(batch.number)
        self.batches.append((worker, batch))
        threading.Thread(target=self._run, args=[worker, batch.number, data, found], daemon=True).start()

    def _run(self, worker: str, number: int, data: bytes, pieces: Sequence[Piece]) -> None:
        assert self.events is not None
        try:
            host = self.hosts[worker]
            self.on_run(worker)
            answer = decode_answer(host.run(data, pieces))
        except Exception as error:  # noqa: BLE001 - as an engine does
            self.busy[worker].discard(number)
            self.events.lost(number, f"{worker}: {error}")
        else:
            self.received += [piece for _, many in answer.contents for piece in many]
            self.busy[worker].discard(number)
            self.events.answered(answer, True)

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Abort on all workers."""
        for host in tuple(self.hosts.values()):
            host.abort(attempts, grace)

    def recall(self, numbers: Sequence[int]) -> None:
        """Recall from all workers."""
        assert self.events is not None
        for host in tuple(self.hosts.values()):
            for answer in decode_answers(host.recall(numbers)):
                self.events.answered(answer, False)

    def discard(self, number: int) -> None:
        """Discard on all workers."""
        for host in tuple(self.hosts.values()):
            host.discard(number)

    def want(self, seconds: float) -> None:
        """Have no more workers."""

    def ping(self) -> None:
        """Ping all workers."""
        for host in tuple(self.hosts.values()):
            host.ping()

    def lose(self, worker: str) -> None:
        """End a worker, as if its host had failed."""
        assert self.events is not None
        host = self.hosts.pop(worker)
        self.events.workers(self.views())
        host.close()

    def close(self) -> None:
        """Close all."""
        for host in self.hosts.values():
            host.close()
        self.is_closed = True


def _threads(spec: ExecutorSpec) -> tuple[Runner, Callable[[], None]]:
    runner = ThreadRunner(LocalExecutor(spec), threads=1)
    return runner, runner.close


def session_elsewhere(
    graph: PhysicalGraph, directory: Path, engine: Elsewhere, store: ContentStore | None = None, *, retries: int = 5
) -> tuple[Session, LocalRepository]:
    """Return a session whose attempts run on the workers of `engine`, with its repository."""
    clock = SystemClock()
    repository = LocalRepository(directory, directory.name, clock, graph, shared_memory=None)
    workspace = repository.workspace
    spec = ExecutorSpec(
        session=workspace.session,
        directory=workspace.directory,
        templates=graph.templates,
        links=graph.links,
        prefix=graph.prefix,
        tag=workspace.tag,
    )
    runner = MixedRunner(
        waiting=ThreadRunner(LocalExecutor(spec), threads=1),
        computing=ExternalRunner(
            ContentRelay(engine, workspace, store),
            spec,
            places=graph.places,
            place_of=graph.part if graph.places else None,
        ),
        waits=[template.kind is Kind.DATA for template in graph.templates],
    )
    return make_session(
        graph, repository, runner, clock=clock, infrastructure_retries=retries, watch=Watch(check_invariants=True)
    ), repository


def run_elsewhere(
    graph: PhysicalGraph, directory: Path, engine: Elsewhere, store: ContentStore | None = None, *, retries: int = 5
) -> Session:
    """Run a graph to its end on the workers of `engine`."""
    session, repository = session_elsewhere(graph, directory, engine, store, retries=retries)
    try:
        session.run()
    finally:
        repository.close()
    return session


def run_graph(
    graph: PhysicalGraph, directory: Path, runner: str, on_session: Callable[[Session], None] | None = None
) -> RunOutcome:
    """Run a graph in a new directory, and return what it gave."""
    sessions: list[Session] = []

    def note(session: Session) -> None:
        sessions.append(session)
        if on_session is not None:
            on_session(session)

    place = local_run.prepare_directory(directory, overwrite=True)
    local_run.run(graph, place, RunOptions(runner=runner, workers=2), hooks=RunHooks(on_session=note))
    return outcome_of(sessions[0])


def run(name: str, directory: Path, runner: str, lost: LostWorker | None = None) -> RunOutcome:
    """Return what an example with a held step gives; `lost` kills the worker of the engine that runs this step."""
    graph = with_held_step(translate(EXAMPLES / f"{name}.graph").graph)
    return run_graph(graph, directory, runner, (lambda _: let_go(directory)) if lost is None else lost.watch)
