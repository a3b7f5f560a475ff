"""The scheduler that dask calls: ``get``, and the context in which collections are computed by dropflow."""

import contextvars
import os
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import dask
from dask.base import get_scheduler, unpack_collections
from dask.core import convert_legacy_graph, flatten
from dask.task_spec import DataNode
from dask.utils import parse_bytes

from dropflow.api.patience import PATIENCE
from dropflow.clock import Clock, SystemClock
from dropflow.dask.callbacks import CallbackInstrument, active_callbacks, collecting, keep_printed
from dropflow.dask.lost_chunks import described, read_chunks, wanted_chunks, with_chunks_of
from dropflow.dask.object_contents import ObjectHandle, ObjectRepository, size_of
from dropflow.dask.persist import PersistedChunk, are_there_chunks
from dropflow.dask.portable import stores_here
from dropflow.dask.processes import WorkerProcesses, add_log
from dropflow.dask.translate import (
    TranslatedGraph,
    layer_chunks,
    layer_volumes,
    optimization_settings,
    switch,
    translate,
    with_annotations,
    with_fused_chains,
)
from dropflow.dask.values import ValueMemory, value_of
from dropflow.dask_tasks.fused_blocks import run_node
from dropflow.errors import BadParameterError, InternalError
from dropflow.execution.content_location import Handle
from dropflow.execution.interfaces import Runner
from dropflow.execution.session import Execution, Resources, Session, Watch
from dropflow.execution.tasks import AttemptResult, StreamOpened, Task
from dropflow.failure import Failure
from dropflow.formatting import last_lines
from dropflow.graph.physical import follower_column, without_fusion
from dropflow.graph.text_ids import oid
from dropflow.host.memory import host_memory
from dropflow.host.processors import usable_cores
from dropflow.runners.in_process import InlineRunner, ThreadRunner
from dropflow.stopping import GRACE_SECONDS

if TYPE_CHECKING:
    from dropflow.dask.remote import RemoteSessions
RUNNERS = ("threads", "inline", "processes")
"""Runners of tasks: threads of this process, the thread that calls, or worker processes."""


# Execution of dask's tasks in the threads of this process.


class TaskExecutor:
    """The `dropflow.execution.interfaces.Executor` of a dask graph.

    Parameters
    ----------
    tasks : TranslatedGraph
        The graph.
    clock : Clock
        For durations.
    context : contextvars.Context
        Context variables for the tasks: each runs in a copy.
    on_error : callable
        Called, in the thread of the last attempt of a task that has raised, with its drop, the exception, and the end
        of what the task has printed.
    memory : ValueMemory, optional
        Keeps values within a budget.
    """

    worker = 0

    def __init__(
        self,
        tasks: TranslatedGraph,
        clock: Clock,
        context: contextvars.Context,
        on_error: Callable[[int, BaseException, str], None],
        memory: ValueMemory | None = None,
    ) -> None:
        self._keys, self._nodes = tasks.keys, tasks.nodes
        self._tasks = tasks.tasks
        self._templates = tasks.graph.templates
        self._aliases = tasks.aliases
        self._clock = clock
        self._context = context
        self._on_error = on_error
        self._memory = memory
        self.on_stream_opened: Callable[[StreamOpened], None] = lambda _: None
        self.on_overdue: Callable[[AttemptResult], None] = lambda _: None

    def execute(self, task: Task) -> AttemptResult:
        """Compute the value of a task, or take that of a constant."""
        started = self._clock.monotonic()
        drop, handles = task.drop, dict[int, Handle]()
        failure = None
        printed: list[str] = []
        try:
            # Constants are their own output.
            target = task.outputs[0].drop if task.outputs else drop
            if drop < self._tasks:
                value = self._context.copy().run(_run, self._nodes[drop], self._values(task), printed)
                kept = value if self._memory is None else self._memory.keep(target, value)
            else:
                kept = value = self._nodes[drop - self._tasks].value
            handles[target] = ObjectHandle(kind="object", size=size_of(value), value=kept)
        except BaseException as error:  # noqa: BLE001 - a task may raise anything, which its caller gets
            failure = Failure.of(error)
            if not failure.retryable or task.attempt >= self._templates[task.template].tries:
                self._on_error(drop, error, "".join(printed))
        return AttemptResult(drop, task.attempt, handles, failure=failure, seconds=self._clock.monotonic() - started)

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Do nothing: a task in a thread runs to its end. Its result does not count."""

    def close(self) -> None:
        """Do nothing: there are no resources."""

    def _values(self, task: Task) -> dict[Any, Any]:
        """Return the values that a task needs, by the keys that it has for them."""
        keys, first = self._keys, self._tasks
        if self._memory is not None:
            self._memory.begin(task.drop, [each.drop for each in task.inputs])
        values = {}
        for each in task.inputs:
            assert isinstance(each.handle, ObjectHandle)  # all contents here are
            values[keys[each.drop - first]] = value_of(each.handle.value)
        for key in self._nodes[task.drop].dependencies:
            if key not in values:
                values[key] = values[self._aliases[key]]
        return values


def _run(node: Any, values: dict[Any, Any], printed: list[str]) -> Any:
    keep_printed(printed)
    return run_node(node, values)


# Computation of dask graphs in this process, where values are objects.


class Computation:
    """The session of one graph in this process. The first exception of a task ends it."""

    def __init__(
        self,
        tasks: TranslatedGraph,
        runner: str,
        workers: int,
        instrument: CallbackInstrument | None,
        memory: ValueMemory | None,
    ) -> None:
        self._tasks = tasks
        clock = SystemClock()
        executor = TaskExecutor(tasks, clock, contextvars.copy_context(), self._note_error, memory)
        place: Runner = InlineRunner(executor) if runner == "inline" else ThreadRunner(executor, threads=workers)
        self._error: BaseException | None = None
        chains = follower_column(tasks.graph, [1] * len(tasks.graph.templates))
        contents = ObjectRepository(tasks.results.values(), _nothing if memory is None else memory.release)
        self._session = Session(
            Execution(graph=tasks.graph, session=tasks.graph.name, directory="", chains=chains),
            Resources(repository=contents, runner=place, clock=clock),
            watch=Watch(instruments=() if instrument is None else (instrument,)),
        )
        if instrument is not None:
            instrument.content = self._session.content
            instrument.on_error = self._end

    def run(self) -> Mapping[Hashable, Any]:
        """Execute the graph, and return the values of its results by key."""
        session = self._session
        try:
            with collecting():
                session.advance()
        finally:
            session.close()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # otherwise the traceback would refer to itself, and keep the values of this graph
        values = {}
        for key, drop in self._tasks.results.items():
            handle = session.content(drop)
            if not isinstance(handle, ObjectHandle):
                reports = "; ".join(report.text for report in session.reports())
                raise InternalError(f"the value of {key!r} is missing at the end: {reports or 'without a reason'}")
            values[key] = value_of(handle.value)
        return values

    def _note_error(self, drop: int, error: BaseException, printed: str) -> None:
        """End the computation because a task has raised. Called in its thread."""
        if self._error is None:
            with suppress(Exception):  # the class of the exception may be anything
                error.add_note(f"raised by {oid(self._tasks.graph, drop)}, task {self._tasks.keys[drop]!r} of dask")
                add_log(error, last_lines(printed.encode(errors="replace")))
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """End the computation with an exception, unless it has one. Called in any thread."""
        if self._error is None:
            self._error = error
            self._session.freeze()


def _nothing(drop: int) -> None:
    """Do nothing when a value is released."""


class Scheduler:
    """Executes dask graphs, on this machine or on managers. As a context manager, it ends its worker processes.

    Parameters
    ----------
    runner : str, optional
        On this machine, one of `RUNNERS`; by default the first.
    workers : int, optional
        Number of threads or processes; by default dask's configuration ``num_workers``, or else one per core that this
        process may use.
    to : str, optional
        Address of a manager (node, island or master): each computation is a session there.
    token : str, optional
        Token of the manager; by default that of ``DROPFLOW_TOKEN``, or what this host knows of the manager.
    key : path, optional
        The cluster key, where there is no token.
    algorithm : str
        The algorithm that places the graph on nodes, as in ``dropflow submit --algorithm``.
    keep : bool
        Whether sessions stay at the manager. Otherwise they are deleted when the values are here.
    progress : bool
        Whether a notebook or a terminal shows the progress of a session of a manager.
    replicas : int
        On how many nodes of a manager the chunks of persisted collections are to be: with 2, they survive the loss of
        a node.
    recompute : bool, optional
        Whether chunks of persisted collections that are lost are computed again. Their tasks and constants are kept for
        that, as long as the chunks. By default ``dropflow.recompute`` of dask's configuration, or True.
    fuse_enabled : bool, optional
        Whether chains of tasks run as one unit; by default ``dropflow.fuse_enabled`` of dask's configuration, or True.
    memory_limit : int or str, optional
        Bytes of values that are in memory at a time, such as ``"4 GB"``; others are in files. By default
        ``dropflow.memory_limit`` of dask's configuration, or 60 % of the memory that is free for this process when the
        computation, or the first worker process, starts. At a manager, it is the limit of each node for each session,
        by default what the node may use.

    Raises
    ------
    BadParameterError
        There is no such runner, a number is not positive, or runner or workers are given for a manager.
    """

    def __init__(
        self,
        *,
        runner: str | None = None,
        workers: int | None = None,
        to: str | None = None,
        token: str | None = None,
        key: str | os.PathLike[str] | None = None,
        algorithm: str = "breadth_first",
        keep: bool = False,
        progress: bool = True,
        replicas: int = 1,
        recompute: bool | None = None,
        fuse_enabled: bool | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        if runner is not None and runner not in RUNNERS:
            raise BadParameterError(
                f"there is no runner {runner!r} for dask graphs", hint=f"one of {', '.join(RUNNERS)}"
            )
        if to is not None and (runner, workers) != (None, None):
            raise BadParameterError(
                f"runner and workers are those of the nodes at {to}",
                hint="leave them out, or leave out 'to'",
            )
        self._runner = runner or RUNNERS[0]
        self._workers = _checked(workers)
        self._fuse_enabled = fuse_enabled
        self._recompute = switch("recompute", recompute)
        self._memory_limit = _limit(memory_limit)
        self._remote: RemoteSessions | None = None
        if to is not None:
            # The client is not needed on this machine.
            from dropflow.dask import remote  # noqa: PLC0415

            self._remote = remote.RemoteSessions(
                to,
                token=token,
                key=key,
                algorithm=algorithm,
                keep=keep,
                progress=progress,
                replicas=replicas,
                recompute=self._recompute,
                memory_limit=self._given_limit() or 0,
                patience=_patience(dask.config.get("dropflow.patience", PATIENCE)),
            )
        self._lock = threading.Lock()
        """Guards the worker processes: several threads may compute at a time."""
        self._processes: WorkerProcesses | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes, and remove the chunks of persisted collections that are not in this process.

        The next computation starts new worker processes. Idempotent.
        """
        with self._lock:
            processes, self._processes = self._processes, None
        if processes is not None:
            processes.close()
        if self._remote is not None:
            self._remote.close()

    def get(
        self,
        dsk: Any,
        keys: Any,
        *,
        num_workers: int | None = None,
        callbacks: Any = None,
        fuse_enabled: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the values of keys of a dask graph; this is what dask calls.

        Parameters
        ----------
        dsk : mapping, or object with ``__dask_graph__``
            The graph.
        keys : key, or list of keys and lists
            Keys of the wanted values.
        num_workers : int, optional
            Number of threads of this computation. Worker processes keep their number: it is that of the first one.
        callbacks : sequence, optional
            As in dask; by default those that are registered.
        fuse_enabled : bool, optional
            As in `Scheduler`, for this computation.
        **kwargs
            ``retries`` and ``priority``, as in `dask.annotate`, for all tasks. Options of other schedulers, and of
            collections, which dask passes to all, are ignored.

        Returns
        -------
        object
            The value; a tuple of values for a list.

        Raises
        ------
        BadGraphError
            A key is not in the graph, or tasks wait for each other.
        BadParameterError
            Tasks are to run on certain workers, or to take resources that workers declare.
        BaseException
            The exception of a task, with a note that names its drop.
        """
        options = _Options(num_workers, callbacks, fuse_enabled, _annotations(dsk, kwargs))
        return _nested(keys, self._values(dsk, list(flatten([keys])), options, is_persisted=False))

    def persist(self, collections: Sequence[Any], *, optimize_graph: bool = True, **options: Any) -> tuple[Any, ...]:
        """Return collections whose chunks are computed; this is what ``dask.persist`` calls.

        With managers and worker processes, the chunks stay there, and the collections refer to them
        (`dropflow.dask.persist.PersistedChunk`); otherwise they have the values. Dask before 2026.3 does not call it:
        use `dropflow.dask.persist`.

        Parameters
        ----------
        collections : sequence
            The collections.
        optimize_graph : bool
            Whether dask optimizes their graph.
        **options
            As for `get`.

        Raises
        ------
        As `get`.
        """

        def computed(
            dsk: Any,
            keys: Any,
            *,
            num_workers: int | None = None,
            callbacks: Any = None,
            fuse_enabled: bool | None = None,
            **kwargs: Any,
        ) -> Any:
            annotations = _annotations(dsk, kwargs)
            persisted = self._values(
                dsk, keys, _Options(num_workers, callbacks, fuse_enabled, annotations), is_persisted=True
            )
            return [persisted[key] for key in keys]

        # Without `persist` of its own, this function is one of the schedulers whose values become the chunks.
        persisted: tuple[Any, ...] = dask.persist(
            *collections, traverse=False, optimize_graph=optimize_graph, scheduler=computed, **options
        )
        return persisted

    def _values(self, dsk: Any, wanted: list[Hashable], options: "_Options", *, is_persisted: bool) -> dict[Any, Any]:
        """Return the values of keys, or the chunks that refer to them."""
        nodes = convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        if not are_there_chunks():
            return dict(self._computed(dsk, nodes, wanted, options, is_persisted=is_persisted))
        known = wanted_chunks(nodes, wanted)
        left = [key for key in wanted if key not in known]
        if self._travels:
            nodes = with_chunks_of(self._address, nodes, left)
        stays = is_persisted and self._travels
        given = {key: chunk.renamed(key) for key, chunk in known.items()} if stays else read_chunks(known)
        return given | dict(self._computed(dsk, nodes, left, options, is_persisted=is_persisted))

    def _stored(
        self,
        dsk: Any,
        nodes: Mapping[Hashable, Any],
        here: Collection[Hashable],
        wanted: list[Hashable],
        options: "_Options",
    ) -> Mapping[Hashable, Any]:
        """Return the values of keys of a graph; this process has to compute those in `here`."""
        needed = [other for key in here for other in nodes[key].dependencies if other not in here]
        there = [key for key in dict.fromkeys([*needed, *wanted]) if key not in here]
        chunks = [key for key in there if not isinstance(nodes[key], DataNode | PersistedChunk)]
        others = {key: node for key, node in nodes.items() if key not in here}
        computed = self._computed(dsk, others, chunks, options, is_persisted=True) if chunks else {}
        left = {key: nodes[key] for key in [*there, *here]} | dict(computed)
        with active_callbacks(options.callbacks) as callbacks_given:
            tasks = translate(left, wanted, {})
            instrument = CallbackInstrument(callbacks_given, left, tasks) if callbacks_given else None
            return self._execute(tasks, self._threads(options.num_workers), instrument, is_here=True)

    @property
    def _travels(self) -> bool:
        """Whether values are in other processes."""
        return self._remote is not None or self._runner == "processes"

    @property
    def _address(self) -> str:
        """Places of the chunks of persisted collections; empty if there are none."""
        if self._remote is not None:
            return self._remote.chunks.address
        return "" if self._processes is None else self._processes.chunks.address

    def _computed(
        self,
        dsk: Any,
        nodes: Mapping[Hashable, Any],
        wanted: list[Hashable],
        options: "_Options",
        *,
        is_persisted: bool,
    ) -> Mapping[Hashable, Any]:
        """Return the values of keys of a graph, or chunks. None is known yet."""
        if self._travels:
            nodes, here = stores_here(nodes)
            if here:
                return self._stored(dsk, nodes, here, wanted, options)
        asked = options.fuse_enabled
        is_fused = switch("fuse_enabled", self._fuse_enabled if asked is None else asked)
        travels = self._travels
        with active_callbacks(options.callbacks) as callbacks_given:
            # Callbacks get the keys of all tasks, and annotations have them.
            if travels and is_fused and not callbacks_given and not options.annotations:
                # One task in the place of a chain: what goes from one of its tasks to the next is not pickled.
                nodes = with_fused_chains(nodes, wanted)
            tasks = translate(nodes, wanted, layer_volumes(dsk), runs_constants=travels)
            if options.annotations:
                tasks = with_annotations(
                    tasks, options.annotations.get("retries", {}), options.annotations.get("priority", {})
                )
            if not is_fused:
                tasks = replace(tasks, graph=without_fusion(tasks.graph))
            instrument = CallbackInstrument(callbacks_given, nodes, tasks) if callbacks_given else None
            values = self._execute(tasks, self._threads(options.num_workers), instrument, is_persisted=is_persisted)
        return described(values, layer_chunks(dsk)) if is_persisted and travels else values

    def _threads(self, asked: int | None) -> int:
        number = _checked(asked) or self._workers or _checked(dask.config.get("num_workers", None))
        return number or usable_cores()

    def _execute(
        self,
        tasks: TranslatedGraph,
        workers: int,
        instrument: CallbackInstrument | None,
        *,
        is_persisted: bool = False,
        is_here: bool = False,
    ) -> Mapping[Hashable, Any]:
        """Return the values of the results of a graph, or chunks, by key."""
        has_failed = True
        try:
            if instrument is not None:
                instrument.begin()
            if is_here:
                values = self._here(tasks, workers, instrument)
            elif self._remote is not None:
                values = self._remote.persist(tasks) if is_persisted else self._remote.compute(tasks)
            elif self._runner == "processes":
                pool = self._pool(workers)
                values = pool.persist(tasks, instrument) if is_persisted else pool.compute(tasks, instrument)
            else:
                values = self._here(tasks, workers, instrument)
            has_failed = False
        finally:
            if instrument is not None:
                instrument.end(has_failed=has_failed)
        return values

    def _here(
        self, tasks: TranslatedGraph, workers: int, instrument: CallbackInstrument | None
    ) -> Mapping[Hashable, Any]:
        with closing(ValueMemory(self._limit(), tasks)) as memory:
            return Computation(tasks, self._runner, workers, instrument, memory).run()

    def _limit(self) -> int:
        return self._given_limit() or host_memory().for_values()

    def _given_limit(self) -> int | None:
        return self._memory_limit or _limit(dask.config.get("dropflow.memory_limit", None))

    def _pool(self, workers: int) -> WorkerProcesses:
        with self._lock:
            if self._processes is None:
                self._processes = WorkerProcesses(workers, self._limit(), recompute=self._recompute)
            return self._processes


@dataclass(frozen=True)
class _Options:
    """Options of one computation."""

    num_workers: int | None
    callbacks: Any
    fuse_enabled: bool | None
    annotations: Mapping[str, Mapping[Hashable, int]]
    """Retries and priority of tasks, by their keys, where there are some."""


def _annotations(dsk: Any, options: Mapping[str, Any]) -> Mapping[str, Mapping[Hashable, int]]:
    """Return the retries and priorities that tasks are annotated with, or that are options of a computation.

    Raises
    ------
    BadParameterError
        One is not a number, or another annotation has an effect with distributed, and would have none here.
    """
    by_key = dsk.__dask_annotations__() if hasattr(dsk, "__dask_annotations__") else {}
    general = {**dask.get_annotations(), **{name: value for name, value in options.items() if value is not None}}

    def asked(name: str) -> list[Any]:
        return [value for value in (general.get(name), *by_key.get(name, {}).values()) if value]

    for name in ("resources", "workers"):
        if (wanted := asked(name)) and not (name == "workers" and asked("allow_other_workers")):
            raise BadParameterError(
                f"tasks are to have {name}={wanted[0]!r}, and dropflow cannot do that for tasks of dask",
                hint="leave it out" + (", or add allow_other_workers=True" if name == "workers" else ""),
            )
    annotations: dict[str, Mapping[Hashable, int]] = {}
    for name, least in (("retries", 0), ("priority", None)):
        for value in asked(name):
            if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
                raise BadParameterError(f"{name} of tasks is {value!r}", hint="give a whole number, such as 2")
        known = dict(by_key.get(name, {}))
        if everywhere := general.get(name):
            graph = dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__()
            known = dict.fromkeys(graph, everywhere) | known
        if any(known.values()):
            annotations[name] = known
    return annotations


def _checked(workers: int | None) -> int | None:
    if workers is not None and workers < 1:
        raise BadParameterError(
            f"the number of workers is {workers}", hint="give at least 1, or nothing for one per core"
        )
    return workers


def _limit(value: int | str | None) -> int | None:
    """Return a number of bytes."""
    try:
        size = None if value is None else int(parse_bytes(value))
    except (ValueError, TypeError, OverflowError) as problem:
        raise BadParameterError(
            f"memory_limit is {value!r}", hint="give bytes, such as 4_000_000_000 or '4 GB'"
        ) from problem
    if size is not None and size < 1:
        raise BadParameterError(
            f"memory_limit is {value!r}", hint="give at least 1 byte, or nothing for a share of the memory"
        )
    return size


def _patience(value: object) -> float:
    """Return a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise BadParameterError(
            f"dropflow.patience of dask's configuration is {value!r}", hint="give seconds, such as 60, or leave it out"
        )
    return float(value)


def _nested(keys: Any, values: Mapping[Hashable, Any]) -> Any:
    return tuple(_nested(key, values) for key in keys) if isinstance(keys, list) else values[keys]


def get(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Return the values of keys of a dask graph, computed in threads: `Scheduler.get` with its defaults.

    For ``x.compute(scheduler=dropflow.dask.get)`` and ``dask.config.set(scheduler=dropflow.dask.get)``.
    """
    return Scheduler().get(dsk, keys, **kwargs)


def persist(*collections: Any, **options: Any) -> tuple[Any, ...]:
    """Return collections, or containers of some, whose chunks are computed and stay where the scheduler has them.

    It is ``dask.persist``, which before dask 2026.3 fetches all chunks. Without a scheduler of dropflow it is dask's.

    Parameters
    ----------
    *collections
        Collections of dask, and lists, tuples and dictionaries with some.
    **options
        As for ``dask.persist``.
    """
    parts, repack = unpack_collections(*collections, traverse=options.pop("traverse", True))
    chosen = options.pop("scheduler", None)
    owner = getattr(get_scheduler(scheduler=chosen, collections=parts), "__self__", None)
    if parts and isinstance(owner, Scheduler):
        made: tuple[Any, ...] = repack(owner.persist(parts, **options))
        return made
    made = dask.persist(*collections, scheduler=chosen, **options)
    return tuple(made)


@contextmanager
def scheduler(
    *,
    runner: str | None = None,
    workers: int | None = None,
    to: str | None = None,
    token: str | None = None,
    key: str | os.PathLike[str] | None = None,
    algorithm: str = "breadth_first",
    keep: bool = False,
    progress: bool = True,
    optimize_tileable_graph: bool | None = None,
    optimize_chunk_graph: bool | None = None,
    replicas: int = 1,
    recompute: bool | None = None,
    fuse_enabled: bool | None = None,
    memory_limit: int | str | None = None,
) -> Iterator[Scheduler]:
    """Let dropflow compute all collections of dask meanwhile, in all threads of this process.

    Parameters
    ----------
    runner, workers, to, token, key, algorithm, keep, progress, replicas, recompute, fuse_enabled, memory_limit
        As in `Scheduler`.
    optimize_tileable_graph : bool, optional
        Whether dask optimizes the layers of arrays: operations block by block become one. By default
        ``dropflow.optimize_tileable_graph`` of dask's configuration, or True.
    optimize_chunk_graph : bool, optional
        Whether dask fuses tasks in a row; by default ``dropflow.optimize_chunk_graph`` of its configuration, or True.

    Examples
    --------
    >>> import dask.array as da
    >>> import dropflow.dask
    >>> with dropflow.dask.scheduler():
    ...     int(da.ones((4, 4), chunks=2).sum().compute())
    16
    """
    made = Scheduler(
        runner=runner,
        workers=workers,
        to=to,
        token=token,
        key=key,
        algorithm=algorithm,
        keep=keep,
        progress=progress,
        replicas=replicas,
        recompute=recompute,
        fuse_enabled=fuse_enabled,
        memory_limit=memory_limit,
    )
    settings = optimization_settings(
        tileable=switch("optimize_tileable_graph", optimize_tileable_graph),
        chunk=switch("optimize_chunk_graph", optimize_chunk_graph),
    )
    with made, dask.config.set({"scheduler": made.get, **settings}):
        yield made
