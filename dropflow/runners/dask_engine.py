"""Batches as tasks of Dask, on a cluster that runs already, or on a cluster in this process.

Dask's scheduler decides which worker runs a batch, and shows it under the name of its node. A worker plugin holds the
`Host` of the session in each worker. Workers get the plugin after they have been checked. The scheduler does not give
it to new workers, because a worker that cannot load a plugin of the scheduler ends. Messages that are not batches
(aborts, recalls, pings) go around the queue of tasks, by ``Client.run``.

Dask repeats the tasks of a lost worker by itself. This would hide the loss from the session, and run one attempt twice.
Its scheduler reports the loss before it repeats anything: then the batch is cancelled, and the session decides.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import secrets
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from pydoc import locate
from typing import Any

import msgspec
from distributed import Client, LocalCluster, Worker, WorkerPlugin, get_worker
from distributed.comm import get_address_host
from distributed.core import rpc
from distributed.security import Security

from dropflow.errors import DropflowError, LinkError, WorkerStartError
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.failure import summary_of
from dropflow.graph.codec import pack
from dropflow.runners.carried_contents import OwnDirectory
from dropflow.runners.engine import (
    AttemptKey,
    Batch,
    BatchAnswer,
    EngineCapacity,
    EngineEvents,
    Piece,
    WorkerView,
    decode_answer,
    decode_answers,
    decode_batch,
    decode_spec,
    encode,
)
from dropflow.runners.external import refuse_silent
from dropflow.runners.external_host import (
    Host,
    HostView,
    look,
    probe_file,
    refuse_other_versions,
    share_directory,
    view_of,
)

_log = logging.getLogger(__name__)

_DASK_CONNECT_SECONDS = 10.0
"""Seconds in which a scheduler must accept a connection and answer."""
_WORKER_SECONDS = 60.0
"""Seconds that a cluster may take to have its first worker."""
_DASK_CLOSE_SECONDS = 8.0
"""Seconds of each step of the end: hosts, client, cluster."""
_CAPACITY_SECONDS = 2.0
"""Seconds between two requests for the capacity, as between those of a client of Dask that counts workers."""
_TASK_SECONDS = 0.5
"""Expected seconds of a task of a kind that has not run, by Dask's default."""
_MOST_WAITING = 1_000
"""Tasks that wait on the scheduler only to show an adaptive cluster how much work there is."""
_VERSION = "dropflow.version.__version__"


class SessionPlugin(WorkerPlugin):  # type: ignore[misc]
    """The host of one session in each worker of Dask.

    Parameters
    ----------
    name : str
        Name of the plugin.
    spec : bytes
        The `ExecutorSpec`.
    factory : str
        ``package.module:function`` that makes an `Executor` from it.
    is_shared : bool
        Whether workers use the session directory, or have directories of their own.
    store : str
        URL in a store for the outputs of workers with their own directories; empty for none.
    """

    def __init__(self, name: str, spec: bytes, factory: str, *, is_shared: bool, store: str) -> None:
        self.name = name
        self._spec, self._factory, self._is_shared, self._store = spec, factory, is_shared, store
        self.host: Host | None = None

    def setup(self, worker: Worker) -> None:
        """Make the host. Its processes start with the first batch."""
        self.host = Host(
            decode_spec(self._spec),
            workers=worker.state.nthreads,
            name=worker.address,
            factory=self._factory,
            own=None if self._is_shared else OwnDirectory(worker.local_directory, self._store),
        )

    async def teardown(self, worker: Worker) -> None:
        """Stop the attempts that run."""
        if self.host is not None:
            await asyncio.to_thread(self.host.close)


def _host(worker: Worker, name: str) -> Host:
    return worker.plugins[name].host  # type: ignore[no-any-return]


async def _begin(plugin: SessionPlugin, dask_worker: Worker) -> None:
    await dask_worker.plugin_add(plugin, name=plugin.name, catch_errors=False)


async def _leave(name: str, dask_worker: Worker) -> None:
    if name in dask_worker.plugins:
        await dask_worker.plugin_remove(name=name)


def _run(name: str, data: bytes, pieces: Sequence[Piece]) -> bytes:
    worker = get_worker()
    if name not in worker.plugins:  # the worker has come just now
        batch = decode_batch(data)
        return encode(BatchAnswer(batch.number, worker.address, (), batch.tasks))
    return _host(worker, name).run(data, pieces)


def _do_nothing(_: int) -> None:
    """Stand for attempts that wait."""


def _abort(name: str, attempts: Sequence[AttemptKey], grace: float, dask_worker: Worker) -> None:
    _host(dask_worker, name).abort([(drop, attempt) for drop, attempt in attempts], grace)


async def _recall(name: str, numbers: Sequence[int], dask_worker: Worker) -> bytes:
    return await asyncio.to_thread(_host(dask_worker, name).recall, numbers)


def _discard(name: str, number: int, dask_worker: Worker) -> None:
    _host(dask_worker, name).discard(number)


def _ping(name: str, dask_worker: Worker) -> None:
    _host(dask_worker, name).ping()


async def _look(path: str, token: str, dask_worker: Worker) -> Mapping[str, Any]:
    # Not as a `HostView`, whose fields may differ in another version.
    view = await asyncio.to_thread(look, path, token, str(dask_worker.name))
    return msgspec.structs.asdict(view)


class DaskEngine:
    """`dropflow.runners.engine.Engine` of Dask.

    Parameters
    ----------
    address : str
        Address of a scheduler, such as ``tcp://host:8786``; empty for a cluster in this process.
    workers : int
        Number of attempts that a cluster in this process runs at a time.
    """

    name = "Dask"

    def __init__(self, address: str, workers: int) -> None:
        self._address, self._count = address, workers
        self._plugin = f"dropflow-{secrets.token_hex(4)}"
        self._cluster: LocalCluster | None = None
        self._client: Any = None
        self._events: EngineEvents | None = None
        self._directory = ""
        self._closing = False
        self._is_shared = True
        self._session: SessionPlugin | None = None
        self._make_session: Callable[..., SessionPlugin]
        self._first = asyncio.Lock()
        # Of the thread of the client's loop.
        self._futures: dict[int, Any] = {}
        self._number_of: dict[str, int] = {}
        self._batches: dict[int, tuple[Batch, Collection[str]]] = {}
        """The batches that Dask has, by number, and the workers that may run each; empty for any worker."""
        self._views: dict[str, HostView] = {}
        self._slots: dict[str, int] = {}
        self._unusable: set[str] = set()
        self._tasks: set[Any] = set()
        self._waiting: list[Any] = []
        """Tasks that stand for attempts that wait; see `want`."""
        self._numbers = itertools.count()

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents, *, store: str = "") -> Sequence[WorkerView]:
        """Connect to the scheduler, or start a cluster, and check its workers."""
        self._events, self._directory = events, spec.directory
        self._connect()
        try:
            workers: Sequence[WorkerView] = self._call(
                self._prepare(spec, factory, store), _DASK_CONNECT_SECONDS + _WORKER_SECONDS
            )
        except TimeoutError as error:
            raise LinkError(
                f"the workers of the Dask cluster did not answer in {_WORKER_SECONDS:g} s", where=self._address
            ) from error
        return workers

    def _connect(self) -> None:
        if not self._address:
            # In this process: a worker in another process would import the script that calls this.
            self._cluster = LocalCluster(
                n_workers=1,
                threads_per_worker=self._count,
                processes=False,
                dashboard_address=None,
                # Without this, its HTTP servers listen on all interfaces, and warn if another cluster has port 8787.
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                worker_dashboard_address="127.0.0.1:0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            )
        else:
            refuse_silent("dask", self._address, _DASK_CONNECT_SECONDS)
        try:
            self._client = Client(self._cluster or self._address, timeout=_DASK_CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # also a TypeError, if an address needs what Dask is not configured for
            raise LinkError(
                f"there is no Dask scheduler that answers: {summary_of(error)}",
                where=self._address,
                hint="give the address that 'dask scheduler' prints, as in --runner dask=tcp://host:8786",
            ) from error

    async def _prepare(self, spec: ExecutorSpec, factory: str, store: str) -> Sequence[WorkerView]:
        """Check the workers, and give each a host; an adaptive cluster may have none before work waits for them."""

        def session(*, is_shared: bool) -> SessionPlugin:
            return SessionPlugin(self._plugin, pack(spec), factory, is_shared=is_shared, store=store)

        self._make_session = session
        self._client.subscribe_topic("all", self._on_event)
        if self._cluster is not None:
            await self._client.wait_for_workers(1, timeout=_WORKER_SECONDS)
        return await self._workers()

    async def _workers(self) -> Sequence[WorkerView]:
        """Return the workers that can be used now.

        Raises
        ------
        DropflowError
            The first workers cannot take part.
        """
        slots: Mapping[str, int] = await self._client.nthreads()
        async with self._first:
            if self._session is None:
                if not slots:
                    return []
                views = await _views_of(self._client, self._directory, ())
                if not views:
                    return []
                refuse_other_versions(self.name, views)
                self._is_shared = share_directory(views)
                self._session = self._make_session(is_shared=self._is_shared)
                self._views = await _begun(self._client, self._session, views)
        come = slots.keys() - self._views.keys() - self._unusable
        self._unusable |= come
        await asyncio.gather(*map(self._add, come))
        slots = await self._client.nthreads()  # the check may have taken long
        for address in self._views.keys() - slots.keys():
            del self._views[address]
        self._slots |= slots
        self._unusable = (self._unusable & slots.keys()) - self._views.keys()
        return [
            WorkerView(
                address,
                count,
                (get_address_host(address), self._views[address].host),
                not self._is_shared,
                self._views[address].alias,
            )
            for address, count in slots.items()
            if address in self._views
        ]

    async def _add(self, address: str) -> None:
        """Use a worker that has come, if it can take part."""
        assert self._session is not None  # `_prepare` has made it
        try:
            views = await _views_of(self._client, self._directory, [address])
            refuse_other_versions(self.name, views)
            if self._is_shared and not share_directory(views):
                raise WorkerStartError(f"{address} cannot use the session directory: {views[address].problem}")
            self._views |= await _begun(self._client, self._session, views)
        except DropflowError as error:
            _log.warning("a worker of Dask that has come is not used: %s", error.text)

    async def _on_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Process a report of the scheduler on its workers."""
        _, message = event
        action = message.get("action") if isinstance(message, Mapping) else None
        if self._closing or action not in ("add-worker", "remove-worker"):
            return
        if action == "remove-worker":
            self._on_removed(str(message["worker"]), (*message["processing-tasks"], *message["lost-computed-tasks"]))
        try:
            views = await self._workers()
        except DropflowError as error:
            self._report().broken(error.text)
        except Exception:  # noqa: BLE001 - it left again, or so did the scheduler: `ping` notices that
            return
        else:
            self._report().workers(views)

    def _on_removed(self, worker: str, keys: Sequence[str]) -> None:
        """Run the batches of a worker again that has left; `keys` are its tasks."""
        self._views.pop(worker, None)
        numbers = sorted(self._number_of[key] for key in keys if key in self._number_of)
        # A worker has one task more than it runs. An attempt that only waits there must not count as the reason.
        begun = self._slots.pop(worker, len(numbers))
        for number in numbers[:begun]:
            self._lose(number, f"the Dask worker {worker} has left the cluster")
        for number in numbers[begun:]:
            if number in self._batches:
                self._take_back(number, self._batches[number][0])
        for number, (batch, only) in tuple(self._batches.items()):
            if only and self._views.keys().isdisjoint(only):
                self._take_back(number, batch)

    def put(self, data: bytes) -> object:
        """Return a future for bytes that are in the memory of a worker."""
        return self._client.scatter(data, hash=False)

    def submit(self, batch: Batch, name: str, workers: Sequence[str], pieces: Sequence[object] = ()) -> None:
        """Make a batch a task of Dask."""
        key = f"{name}-{self._plugin[9:]}-{batch.number}"
        self._post(lambda: self._follow(batch, key, workers, pieces))

    async def _follow(self, batch: Batch, key: str, workers: Sequence[str], pieces: Sequence[object]) -> None:
        """Submit a batch, and report its answer."""
        number = batch.number
        chosen = [worker for worker in workers if worker in self._views]
        if not self._views:
            self._report().answered(BatchAnswer(number, "", (), batch.tasks), True)
            return
        is_hint = bool(chosen) and not self._unusable
        if not chosen and self._unusable:
            chosen = list(self._views)
        client = self._client
        try:
            future = client.submit(
                _run,
                self._plugin,
                encode(batch),
                list(pieces),
                key=key,
                pure=False,
                workers=chosen or None,
                allow_other_workers=is_hint,
            )
            self._futures[number], self._number_of[key] = future, number
            self._batches[number] = batch, () if is_hint else chosen
            answer = decode_answer(await future)
        except ImportError:
            # A new worker without dropflow got the batch before it was checked.
            self._take_back(number, batch)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - of Dask, or of the worker
            if not self._is_cut_off() and number in self._futures:
                self._lose(number, summary_of(error))
        else:
            if number in self._futures:
                self._report().answered(answer, True)
        finally:
            self._futures.pop(number, None)
            self._batches.pop(number, None)
            self._number_of.pop(key, None)

    def _take_back(self, number: int, batch: Batch) -> None:
        """Let the attempts of a batch wait again that no worker has begun."""
        future = self._futures.pop(number, None)
        if future is not None:
            self._batches.pop(number, None)
            self._spawn(future.cancel(force=True))
            self._report().answered(BatchAnswer(number, "", (), batch.tasks), True)

    def _lose(self, number: int, why: str) -> None:
        future = self._futures.pop(number, None)
        self._batches.pop(number, None)
        if future is not None:
            self._spawn(future.cancel(force=True))
            self._spawn(self._run_all(_discard, number))
        self._report().lost(number, why)

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Stop attempts, on any worker."""
        self._post(lambda: self._run_all(_abort, list(attempts), grace))

    def recall(self, numbers: Sequence[int]) -> None:
        """Ask the workers of batches for the attempts that have ended, and for those that have not begun."""
        if numbers:
            self._post(lambda: self._collect(list(numbers)))

    async def _collect(self, numbers: Sequence[int]) -> None:
        for data in (await self._run_all(_recall, numbers)).values():
            if isinstance(data, bytes):
                for answer in decode_answers(data):
                    self._report().answered(answer, False)

    def discard(self, number: int) -> None:
        """Cancel the task of a batch, and stop its attempts."""

        async def cancel() -> None:
            future = self._futures.pop(number, None)
            if future is not None:
                self._spawn(self._run_all(_discard, number))
                await future.cancel(force=True)

        self._post(cancel)

    def want(self, seconds: float) -> None:
        """Let tasks of this many seconds wait in Dask, so that an adaptive cluster starts more workers."""
        if self._cluster is None:
            self._post(lambda: self._wait_with(seconds))

    async def _wait_with(self, seconds: float) -> None:
        count = min(math.ceil(seconds / _TASK_SECONDS), _MOST_WAITING)
        for future in self._waiting[count:]:
            future.release()
        del self._waiting[count:]
        if more := count - len(self._waiting):
            # No worker has this resource: the tasks wait until they are released, and never run.
            keys = [f"dropflow waits-{self._plugin[9:]}-{next(self._numbers)}" for _ in range(more)]
            self._waiting += self._client.map(
                _do_nothing, range(more), key=keys, pure=False, resources={"dropflow-waits": 1}
            )

    def ping(self) -> None:
        """Send all workers a sign that the session is alive, and check the connection."""
        if not self._is_cut_off():
            self._post(lambda: self._run_all(_ping))

    def _is_cut_off(self) -> bool:
        """Return whether the scheduler is gone for good, and report that."""
        is_cut_off = self._client.status == "closed" and not self._closing
        if is_cut_off:
            self._report().broken(f"the connection to its scheduler at {self._address} was lost")
        return is_cut_off

    async def _run_all(self, function: Callable[..., Any], *arguments: Any) -> Mapping[str, Any]:
        """Call a function in the event loop of all workers that have a host."""
        if not self._views:
            return {}
        try:
            answers: Mapping[str, Any] = await self._client.run(
                function, self._plugin, *arguments, workers=list(self._views), on_error="return"
            )
        except Exception:  # noqa: BLE001 - the scheduler is away: `ping` notices that
            return {}
        return answers

    def _report(self) -> EngineEvents:
        assert self._events is not None  # it has been started
        return self._events

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _post(self, make: Callable[[], Awaitable[Any]]) -> None:
        """Run a coroutine in the thread of the client's loop, and do not wait for it."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._client.loop.add_callback(lambda: self._spawn(make()))

    def _call(self, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._client.loop.asyncio_loop).result(seconds)

    def close(self) -> None:
        """Stop all attempts, and leave the cluster; end it if `start` started it."""
        if self._closing:
            return
        self._closing = True
        if self._client is not None:
            with contextlib.suppress(Exception):  # the scheduler may be away
                self._call(self._leave(), _DASK_CLOSE_SECONDS)
            with contextlib.suppress(Exception):
                self._client.close(timeout=_DASK_CLOSE_SECONDS)
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=_DASK_CLOSE_SECONDS)

    async def _leave(self) -> None:
        if self._client.status == "running":
            self._client.unsubscribe_topic("all")
            for future in self._futures.values():
                self._spawn(future.cancel(force=True))
            self._futures.clear()
            await self._run_all(_leave)
        elif waiting := tuple(self._tasks):  # no scheduler answers: asyncio would print pending tasks at the end
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)


class DaskCapacity:
    """The capacity of a Dask cluster, which may grow, shrink, and be unreachable for a while.

    Parameters
    ----------
    address : str
        Address of its scheduler.

    Raises
    ------
    LinkError
        No scheduler answers there.
    """

    def __init__(self, address: str) -> None:
        refuse_silent("dask", address, _DASK_CONNECT_SECONDS)
        self._address = address
        self._now = EngineCapacity()
        self._is_known = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._watch())
        self._thread = threading.Thread(target=self._run, name="capacity of Dask", daemon=True)
        self._thread.start()
        self._is_known.wait(_DASK_CONNECT_SECONDS)

    def read(self) -> EngineCapacity:
        """Return the present capacity of its workers. From any thread."""
        return self._now

    def close(self) -> None:
        """Leave the scheduler. Idempotent."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(_DASK_CLOSE_SECONDS)

    def _run(self) -> None:
        with contextlib.closing(self._loop), contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    async def _watch(self) -> None:
        scheduler = rpc(self._address, connection_args=Security().get_connection_args("client"))
        try:
            while True:
                try:
                    identity = await asyncio.wait_for(scheduler.identity(n_workers=0), _DASK_CONNECT_SECONDS)
                    self._now = EngineCapacity(identity["total_threads"], identity["total_memory"])
                except (OSError, TimeoutError):
                    if self._now.slots:
                        _log.warning("the Dask scheduler at %s does not answer", self._address)
                    self._now = EngineCapacity()
                self._is_known.set()
                await asyncio.sleep(_CAPACITY_SECONDS)
        finally:
            await scheduler.close_rpc()


async def _quietly(work: Awaitable[Any]) -> None:
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await work


async def _views_of(client: Any, directory: str, workers: Collection[str]) -> dict[str, HostView]:
    """Return the views of workers: of these, or of all if there are none.

    Raises
    ------
    DropflowError
        A worker has no dropflow, or does not answer.
    """
    with probe_file(directory) as (path, token):
        answers: Mapping[str, Any] = await client.run(
            _look, path, token, workers=list(workers) or None, on_error="return"
        )
    # A worker with another version may lack `_look`; this function of Python exists everywhere.
    strange = [address for address, view in answers.items() if isinstance(view, Exception)]
    there = await client.nthreads() if strange else {}
    strange = [address for address in strange if address in there]
    versions = await client.run(locate, _VERSION, workers=strange, on_error="return") if strange else {}
    views = {}
    for address, view in answers.items():
        if isinstance(view, Exception) and address not in there:
            continue  # it has left meanwhile
        if isinstance(view, OSError):
            raise WorkerStartError(
                f"the Dask worker {address} does not answer: {summary_of(view)}", hint="see its log, or stop it"
            )
        views[address] = view_of(f"Dask worker {address}", view, versions.get(address))
    return views


async def _begun(client: Any, session: SessionPlugin, views: Mapping[str, HostView]) -> dict[str, HostView]:
    """Let workers make their hosts; return the views of the workers that have not left.

    Raises
    ------
    WorkerStartError
        A worker cannot make its host, such as for a lack of disk space.
    """
    if not views:
        return {}
    answers = await client.run(_begin, session, workers=list(views), on_error="return")
    for address, answer in answers.items():
        if isinstance(answer, Exception) and not isinstance(answer, OSError):
            raise WorkerStartError(
                f"the Dask worker {address} cannot begin: {summary_of(answer)}", hint="see its log, or stop it"
            )
    return {address: view for address, view in views.items() if address in answers and answers[address] is None}
