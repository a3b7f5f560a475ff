"""An engine whose workers cannot use the directory of the session: contents go through the engine.

`ContentRelay` stands between the runner and an engine. If all workers can use the session directory, it passes
everything on. Otherwise each worker has a directory of its own (`dropflow.runners.worker_files`), and then

* the relay decides which worker gets a batch: one with the fewest batches, and among these one that has its inputs;
* before the worker gets it, what it has not yet of the inputs is sent there in pieces;
* when the batch is answered, outputs and logs are fetched in pieces, and stand under temporary names where the session
  commits them. They are held on the worker for the attempts that read them;
* if there is a store that all of them reach (`dropflow.runners.external_store`), large contents go through it.

So the session's journal and directory are complete at any time, and the loss of a worker loses no content.
"""

import collections
import contextlib
import itertools
import logging
import stat
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from dropflow.engine.api import AttemptResult, ExecutorSpec, members, not_begun
from dropflow.errors import DropflowError, StorageError, TransferError, WorkerDiedError, WorkerStartError
from dropflow.failure import Failure, summary_of
from dropflow.runners.engine import AttemptKey, Batch, BatchAnswer, Engine, EngineEvents, WorkerView
from dropflow.runners.external_contents import FetchedParts, FetchedResults, HeldContents, SentInputs, identities_of
from dropflow.runners.external_store import ContentStore
from dropflow.runners.inline import aborted
from dropflow.runners.listed_content import ContentEntry
from dropflow.runners.worker_files import FilesReply, LoadBlob, Remove, Request, SaveBlob

__all__ = [
    "ContentRelay",
    "SerialJobs",
]


# Jobs in a few threads. Those with one key run one after another, in their order.


class SerialJobs:
    """Runs jobs.

    Parameters
    ----------
    threads : int
        How many jobs run at a time.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="content")
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}
        self._is_closed = False

    def add(self, key: Hashable, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, after those that were added with the same key; not after `close`."""
        with self._lock:
            if self._is_closed:
                return
            if key in self._waiting:
                self._waiting[key].append(job)
                return
            self._waiting[key] = deque([job])
            self._pool.submit(self._run, key)

    def close(self) -> None:
        """Forget the jobs that wait, and wait for those that run."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
        self._pool.shutdown(cancel_futures=True)

    def _run(self, key: Hashable) -> None:
        """Run the first job of a key, and have the next one run."""
        with self._lock:
            jobs = self._waiting.get(key)
            job = jobs.popleft() if jobs else None
        try:
            if job is not None:
                job()
        finally:
            with self._lock:
                if self._waiting.get(key):
                    self._pool.submit(self._run, key)
                else:
                    self._waiting.pop(key, None)


_LOG = logging.getLogger(__name__)

_CALL_SECONDS = 120.0
"""How long a worker may take for one piece."""
_JOBS = 8
"""How many contents are on their way at a time: as many pieces are in memory here."""
_encode = msgspec.msgpack.Encoder().encode
_decode_reply = msgspec.msgpack.Decoder(FilesReply).decode


class _RelayedBatch:
    """A batch that goes through the relay. What changes is guarded by the lock of the relay."""

    def __init__(self, batch: Batch, name: str, worker: str) -> None:
        self.number, self.name, self.worker = batch.number, name, worker
        self.tasks = batch.tasks
        self.left: list[str] = []
        """Outputs on the worker that are removed when it has ended."""
        self.is_submitted = self.is_over = False
        self.answered: set[AttemptKey] = set()


class ContentRelay:
    """`dropflow.runners.engine.Engine` that sends contents if that is necessary.

    Parameters
    ----------
    engine : Engine
        What runs batches.
    parts : FetchedParts
        Where outputs are written here.
    store : ContentStore, optional
        Through which large contents go.
    """

    def __init__(self, engine: Engine, parts: FetchedParts, store: ContentStore | None = None) -> None:
        self._engine, self._parts, self._store = engine, parts, store
        self.name = engine.name
        self._events: EngineEvents | None = None
        self._spec: ExecutorSpec | None = None
        self._numbers = itertools.count(1)
        self._jobs = SerialJobs(_JOBS)
        # Guards what is below: the thread of the runner, those of the engine and those of the jobs meet here.
        self._lock = threading.Lock()
        self._views: dict[str, WorkerView] = {}
        self._held = HeldContents()
        self._batches: dict[int, _RelayedBatch] = {}
        self._calls: set[Future[bytes]] = set()
        self._is_closed = False
        self.is_needed = False

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents) -> Sequence[WorkerView]:
        """Start the engine, and find out whether its workers can use the session directory."""
        self._events, self._spec = events, spec
        inner = EngineEvents(self._answered, self._lost, self._on_workers, events.broken)
        views = self._engine.start(spec, factory, inner)
        self._note(views)
        if self.is_needed:
            _LOG.warning(
                "workers of %s cannot use the session directory %s: contents go through %s",
                self.name,
                spec.directory,
                self.name if self._store is None else self._store.url,
            )
            if self._store is not None:
                _probe(self._store, views, self._ask)
        return views

    def submit(self, batch: Batch, name: str, workers: Sequence[str], *, only: bool = False) -> None:
        """Have a worker run a batch, after its inputs have been sent there."""
        if not self.is_needed:
            self._engine.submit(batch, name, workers, only=only)
            return
        # The file system is asked outside of the lock.
        identities = identities_of(batch.tasks)
        with self._lock:
            worker = self._choose(workers, identities)
            if worker:
                one = self._batches[batch.number] = _RelayedBatch(batch, name, worker)
        if worker:
            self._jobs.add(("send", worker), self._guarded(one, lambda: self._send(one)))
        else:
            self._report().lost(batch.number, f"{self.name} has no workers now")

    def call(self, worker: str, data: bytes) -> "Future[bytes]":
        """Pass a message on."""
        return self._engine.call(worker, data)

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Stop attempts. Those whose inputs are being sent, or outputs fetched, are answered immediately."""
        self._engine.abort(attempts, grace)
        if not self.is_needed:
            return
        wanted = set(attempts)
        with self._lock:
            found = [
                (one, task)
                for one in self._batches.values()
                for task in one.tasks
                if not one.is_submitted and (task.drop, task.attempt) in wanted - one.answered
            ]
            for one, task in found:
                one.answered.update((each.drop, each.attempt) for each in members(task))
        for one, task in found:
            results = (aborted(task.drop, task.attempt), *not_begun(task.then))
            self._report().answered(BatchAnswer(one.number, one.worker, results), False)

    def recall(self, numbers: Sequence[int]) -> None:
        """Have the workers of batches return what has not begun."""
        if self.is_needed:
            with self._lock:
                numbers = [at for at in numbers if at in self._batches and self._batches[at].is_submitted]
        if numbers:
            self._engine.recall(numbers)

    def discard(self, number: int) -> None:
        """Forget a batch, and stop what runs of it."""
        one = self._end(number)
        if one is None or one.is_submitted:
            self._engine.discard(number)

    def ping(self) -> None:
        """Tell all workers that the session is alive."""
        self._engine.ping()

    def close(self) -> None:
        """Stop what runs, and leave the engine."""
        with self._lock:
            self._is_closed = True
            calls = tuple(self._calls)
            for one in self._batches.values():
                one.is_over = True
            self._batches.clear()
        for call in calls:
            call.cancel()
        self._engine.close()
        self._jobs.close()
        if self._store is not None and self.is_needed:
            self._store.close()

    # To the workers.

    def _choose(self, wanted: Sequence[str], identities: Sequence[int]) -> str:
        """Return the worker for a batch; empty if there are none."""
        loads = dict.fromkeys(self._views, 0)
        for one in self._batches.values():
            if one.worker in loads:
                loads[one.worker] += 1

        def cost(worker: str) -> tuple[int, bool, int, float, str]:
            slots = max(self._views[worker].slots, 1)
            there = self._held.bytes_on(worker, identities)
            return loads[worker] // slots, worker not in wanted, -there, loads[worker] / slots, worker

        return min(self._views, key=cost, default="")

    def _send(self, one: _RelayedBatch) -> None:
        """Send the inputs of a batch, then the batch. In a thread of the jobs."""
        inputs = SentInputs(
            one,
            self._held,
            self._lock,
            self._numbers,
            lambda requests: self._ask(one.worker, requests),
            store=self._store,
        )
        try:
            tasks, failed = inputs.send()
        except WorkerDiedError as error:
            self._lose(one, f"its inputs could not be sent to the {self.name} worker {one.worker}: {error.text}")
            return
        except (StorageError, TransferError) as error:
            if self._store is not None:  # perhaps a blob is gone
                for identity in identities_of(one.tasks):
                    self._store.forget(identity)
            where = f"{error.where}: " if error.where else ""
            failure = Failure.of(TransferError(f"its inputs could not be sent: {where}{error.text}", hint=error.hint))
            tasks = []
            failed = [
                result
                for task in one.tasks
                for result in (AttemptResult(task.drop, task.attempt, failure=failure), *not_begun(task.then))
            ]
        with self._lock:
            failed = [result for result in failed if (result.drop, result.attempt) not in one.answered]
            one.answered.update((result.drop, result.attempt) for result in failed)
            tasks = [task for task in tasks if (task.drop, task.attempt) not in one.answered]
            if one.is_over:
                return
            one.is_submitted = bool(tasks)
        if failed or not tasks:
            self._report().answered(BatchAnswer(one.number, one.worker, tuple(failed)), not tasks)
        if tasks:
            self._engine.submit(Batch(one.number, tuple(tasks)), one.name, [one.worker], only=True)
        else:
            self._end(one.number)

    def _guarded(self, one: _RelayedBatch, job: Callable[[], None]) -> Callable[[], None]:
        """Return a job after whose failure a batch is lost: the session must not wait forever."""

        def run() -> None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 - as above
                _LOG.exception("the transfer of a content failed: this is a bug of dropflow")
                self._lose(one, summary_of(error))

        return run

    def _ask(self, worker: str, requests: Sequence[Request]) -> tuple[bytes, ...]:
        """Return what a worker answers to requests.

        Raises
        ------
        WorkerDiedError
            It does not answer.
        TransferError
            It cannot do one of them.
        """
        call = self._engine.call(worker, _encode(tuple(requests)))
        with self._lock:
            self._calls.add(call)
        try:
            reply = _decode_reply(call.result(0.0 if self._is_closed else _CALL_SECONDS))
        except Exception as error:
            raise WorkerDiedError(f"the {self.name} worker {worker} did not answer: {summary_of(error)}") from error
        finally:
            with self._lock:
                self._calls.discard(call)
        if reply.problem:
            raise TransferError(f"the {self.name} worker {worker}: {reply.problem}", hint=reply.hint)
        return reply.pieces

    # From the workers.

    def _answered(self, answer: BatchAnswer, is_last: bool) -> None:  # noqa: FBT001 - called by the engine
        if not self.is_needed:
            self._report().answered(answer, is_last)
            return
        with self._lock:
            one = self._batches.get(answer.number)
            if one is None:
                return
            new = tuple(result for result in answer.results if (result.drop, result.attempt) not in one.answered)
            one.answered.update((result.drop, result.attempt) for result in new)
            one.answered.update((task.drop, task.attempt) for task in answer.returned)
        if not answer.worker:  # no worker has begun it, and that which should may have left
            self._end(one.number)
            self._report().answered(answer, is_last)
            return
        answer = msgspec.structs.replace(answer, results=new)
        self._jobs.add(("fetch", one.worker), self._guarded(one, lambda: self._fetch(one, answer, is_last=is_last)))

    def _fetch(self, one: _RelayedBatch, answer: BatchAnswer, *, is_last: bool) -> None:
        """Fetch what attempts have written, and report their results. In a thread of the jobs."""
        assert self._spec is not None  # noqa: S101 - it has been started
        fetched = FetchedResults(
            self._spec,
            self._parts,
            lambda requests: self._ask(one.worker, requests),
            lambda: one.is_over,
            self._numbers,
            store=self._store,
        )
        for results, held in fetched.of(answer, one.left, is_last=is_last):
            with self._lock:
                for identity, path, size in held:
                    self._held.add(one.worker, identity, path, size)
                is_over = one.is_over
            if is_over:
                fetched.discard(results)
                return
            self._report().answered(BatchAnswer(one.number, answer.worker, tuple(results)), False)
        if is_last:
            self._end(one.number)
        if answer.returned or is_last:
            self._report().answered(BatchAnswer(one.number, answer.worker, (), answer.returned), is_last)
        if is_last and one.left:
            with contextlib.suppress(DropflowError):  # it removes them itself at the end
                self._ask(one.worker, [Remove(tuple(one.left))])

    def _lost(self, number: int, why: str) -> None:
        self._end(number)
        self._report().lost(number, why)

    def _lose(self, one: _RelayedBatch, why: str) -> None:
        if self._end(one.number) is not None:
            if one.is_submitted:
                self._engine.discard(one.number)
            self._report().lost(one.number, why)

    def _end(self, number: int) -> _RelayedBatch | None:
        """Forget a batch; return it if it was known."""
        with self._lock:
            one = self._batches.pop(number, None)
            if one is not None:
                one.is_over = True
                self._held.end(number)
            return one

    def _on_workers(self, views: Sequence[WorkerView]) -> None:
        self._note(views)
        with self._lock:
            gone = [one for one in self._batches.values() if self.is_needed and one.worker not in self._views]
        for one in gone:
            self._lose(one, f"the {self.name} worker {one.worker} has left the cluster")
        self._report().workers(views)

    def _note(self, views: Sequence[WorkerView]) -> None:
        with self._lock:
            self.is_needed = self.is_needed or any(view.room for view in views)
            self._views = {view.name: view for view in views}
            sharing = {view.hosts: sum(one.hosts == view.hosts for one in views) for view in views}
            self._held.set_workers({view.name: view.room // sharing[view.hosts] for view in views})

    def _report(self) -> EngineEvents:
        assert self._events is not None  # noqa: S101 - it has been started
        return self._events


def _probe(store: ContentStore, views: Sequence[WorkerView], ask: Callable[[str, Sequence[Request]], object]) -> None:
    """Raise if the session or a worker cannot use a store."""
    url, size = store.probe()
    load = LoadBlob("tmp/store-probe", 0, url, True, (ContentEntry("", stat.S_IFREG, size),))

    def try_one(number: int, view: WorkerView) -> None:
        try:
            # Each writes a blob of its own: others may read that of the session at this moment.
            ask(view.name, [load, SaveBlob(load.path, 0, size, f"{url}-{number}"), Remove((load.path,))])
        except (TransferError, WorkerDiedError) as error:
            raise WorkerStartError(error.text, hint=error.hint) from error

    with ThreadPoolExecutor(_JOBS) as pool:
        collections.deque(pool.map(try_one, itertools.count(1), views), maxlen=0)
