"""An engine in this process whose workers have directories of their own, as on hosts without a common file system.

It is strict: what it gets and gives is encoded, no message may be larger than a piece allows, and no path of the
session's directory may reach a worker.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import msgspec

from dropflow.apps.execute import LocalExecutor
from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.data.shm_directory import WorkspaceParts
from dropflow.engine.api import ExecutorSpec, Runner
from dropflow.engine.session import Session
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.runners.content_relay import ContentRelay
from dropflow.runners.engine import AttemptKey, Batch, EngineEvents, WorkerView, decode_answer, decode_answers, encode
from dropflow.runners.external import ExternalRunner
from dropflow.runners.external_host import Host, OwnDirectory
from dropflow.runners.external_store import ContentStore
from dropflow.runners.inline import MixedRunner
from dropflow.runners.threads import ThreadRunner
from dropflow.runners.worker_files import PIECE_BYTES, Put, Request
from dropflow.sessions.factory import make_session

__all__ = ["Elsewhere", "run_elsewhere", "session_elsewhere"]

_decode_requests = msgspec.msgpack.Decoder(tuple[Request, ...]).decode


class Elsewhere:
    """Workers ``w0``, ``w1``... with one attempt at a time, in threads.

    Parameters
    ----------
    base : Path
        Where workers have their directories.
    workers : int
        How many.
    room : int
        Bytes that each may keep.
    """

    name = "Elsewhere"

    def __init__(self, base: Path, workers: int = 2, room: int = 1 << 30) -> None:
        self.base, self.room = base, room
        self.count = workers
        self.hosts: dict[str, Host] = {}
        self.own: dict[str, OwnDirectory] = {}
        self.batches: list[tuple[str, Batch]] = []
        self.requests: list[tuple[str, Request]] = []
        self.before_call: Callable[[str, Sequence[Request]], None] = lambda _worker, _requests: None
        self.events: EngineEvents | None = None
        self.is_closed = False

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents) -> Sequence[WorkerView]:
        """Make the hosts."""
        self.events, self.forbidden = events, spec.directory
        for number in range(self.count):
            name = f"w{number}"
            own = self.own[name] = OwnDirectory(str(self.base / name))
            self.hosts[name] = Host(spec, workers=1, name=name, factory=factory, own=own, open_runner=_threads)
        return self.views()

    def views(self) -> list[WorkerView]:
        """The workers that there are."""
        return [WorkerView(name, 1, (name,), self.room) for name in self.hosts]

    def submit(self, batch: Batch, name: str, workers: Sequence[str], *, only: bool = False) -> None:
        """Run a batch in a thread."""
        assert name
        assert only
        (worker,) = workers
        data = encode(batch)
        assert self.forbidden.encode() not in data
        self.batches.append((worker, batch))
        threading.Thread(target=self._run, args=[worker, batch.number, data], daemon=True).start()

    def _run(self, worker: str, number: int, data: bytes) -> None:
        assert self.events is not None
        try:
            answer = decode_answer(self.hosts[worker].run(data))
        except Exception as error:  # noqa: BLE001 - as an engine does
            self.events.lost(number, f"{worker}: {error}")
        else:
            self.events.answered(answer, True)

    def call(self, worker: str, data: bytes) -> "Future[bytes]":
        """Serve a message in a thread."""
        requests = _decode_requests(data)
        assert sum(len(one.data) for one in requests if isinstance(one, Put)) <= PIECE_BYTES
        self.requests += [(worker, one) for one in requests]

        answer: Future[bytes] = Future()

        def serve() -> None:
            try:
                self.before_call(worker, requests)
                found: bytes | Exception = self.hosts[worker].serve(data)
            except Exception as error:  # noqa: BLE001 - as an engine does
                found = error
            if answer.set_running_or_notify_cancel():
                if isinstance(found, bytes):
                    answer.set_result(found)
                else:
                    answer.set_exception(found)

        threading.Thread(target=serve, daemon=True).start()
        return answer

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

    def sent(self) -> dict[str, int]:
        """How many bytes were sent to each worker."""
        found: dict[str, int] = {}
        for worker, one in self.requests:
            if isinstance(one, Put):
                found[worker] = found.get(worker, 0) + len(one.data)
        return found


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
            ContentRelay(engine, WorkspaceParts(workspace), store),
            spec,
            places=graph.places,
            place_of=graph.part if graph.places else None,
        ),
        waits=[template.kind is Kind.DATA for template in graph.templates],
    )
    return make_session(
        graph, repository, runner, clock=clock, infrastructure_retries=retries, check_invariants=True
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
