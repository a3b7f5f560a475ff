"""Resources that hosted sessions need of their process: links, threads, places for applications; its load."""

import logging
import os
import secrets
import threading
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import psutil

from dropflow.api.node_records import LoadSample, NodeHistory, NodeInfo
from dropflow.clock import Clock
from dropflow.data.repository import LocalRepository
from dropflow.data.storage_errors import storage_errors
from dropflow.data.workspace import SHARED_MEMORY
from dropflow.errors import DropflowError
from dropflow.execution.decisions.continuation import Continuation
from dropflow.execution.session import Session, Watch
from dropflow.files import force_to_disk
from dropflow.graph.physical import PhysicalGraph
from dropflow.reuse.plan import ReuseChoices, reuse_spec
from dropflow.reuse.result_store import ResultStore, store_place
from dropflow.runners.engine import EngineCapacity
from dropflow.runners.make_runner import capacity_notes, make_runner
from dropflow.runners.runner_choice import RunnerChoice
from dropflow.runners.worker_pool import WorkerPool
from dropflow.sessions.make_session import make_session
from managers.deployment import Deployment
from managers.links import Links
from managers.node.exchange import ExchangeResources, NodeExchange
from managers.node.fetch_pool import FetchPool, JobThreads
from managers.node.stream_copies import FileWatcher

OnStop = Callable[[Exception | None], None]
"""Called in the session's thread when it is over or frozen, with the exception of its execution or None."""
_log = logging.getLogger(__name__)
_LOAD_SECONDS = 5.0
"""Seconds between two samples of the load."""
_KEPT_SAMPLES = 720
"""Samples of the load that are kept: with the default interval, those of one hour."""
_SAMPLE_SECONDS = 0.1
"""Seconds in which psutil measures the processor, if the last measurement is too recent or too old."""
_FILE = "incarnation"
_SLOT = 512
"""Bytes of one of the two slots: the smallest sector that a disk writes."""
_NO_COUNTER = -1
"""The counter of a slot of the file that has none, or is damaged."""
_RANDOM_BITS = 20
"""Random bits at the end of an incarnation: two processes with one counter still differ."""
_MOST = (1 << 53 - _RANDOM_BITS) - 1
"""Largest counter with which an incarnation is exact in JSON."""
_LATEST = _MOST // 2
"""Latest time in seconds that counts, in 2106: a clock that is wrong by more leaves room for starts."""


class SessionResources(ExchangeResources, Protocol):
    """Makes the parts of hosted sessions, and executes them."""

    @property
    def workers(self) -> int:
        """Number of attempts of a session that run at a time."""
        ...

    @property
    def shared_memory(self) -> Path | None:
        """Parent of the sessions' directories in shared memory; None if attempts run on other hosts."""
        ...

    def make_session(
        self,
        graph: PhysicalGraph,
        repository: LocalRepository,
        exchange: NodeExchange,
        deployment: Deployment,
        *,
        watch: Watch,
        continuation: Continuation | None,
        before: Session | None,
    ) -> Session:
        """Return a session that has not begun.

        Parameters
        ----------
        before : Session or None
            The session in the view before, which is frozen: its runner and inbox are used again.
        """
        ...

    def execute(self, session: Session, name: str, on_stop: OnStop) -> None:
        """Execute a session until it is over or frozen. Does not wait.

        Raises
        ------
        RuntimeError
            The system cannot start another thread.
        """
        ...


@dataclass(frozen=True)
class ProcessResources:
    """Sessions in threads of this process, linked to other nodes over ZeroMQ.

    Attributes
    ----------
    links : Links
        Links of this process.
    fetch_pool : FetchPool
        Threads that fetch contents from other nodes.
    file_watcher : FileWatcher
        Watches files that grow while other nodes read them.
    clock : Clock
        Tells the time.
    runner : RunnerChoice
        Kind of runner.
    pool : WorkerPool
        Worker processes, shared by the sessions of this node. With the runner ``threads``, only their number is used.
    in_place : bool
        Whether to read files of other nodes in place, if they can be seen from here.
    shared_memory : Path or None
        Parent of the sessions' directories in shared memory; None if attempts run on other hosts.
    most : int or None
        Most attempts of a session that an engine gets at a time; None for no limit.
    capacity : callable or None
        Returns the present capacity of an engine; None if attempts run here.
    """

    links: Links
    fetch_pool: FetchPool
    file_watcher: FileWatcher
    clock: Clock
    runner: RunnerChoice
    pool: WorkerPool
    in_place: bool
    shared_memory: Path | None = SHARED_MEMORY
    most: int | None = None
    capacity: Callable[[], EngineCapacity] | None = None

    @property
    def workers(self) -> int:
        """Number of attempts of a session that run at a time."""
        if self.capacity is None:
            return self.pool.size
        slots = self.capacity().slots
        return slots if self.most is None else min(slots, self.most)

    @property
    def stream_pool(self) -> JobThreads:
        """Threads that fetch streams while they grow."""
        return JobThreads(self.links)

    def make_session(
        self,
        graph: PhysicalGraph,
        repository: LocalRepository,
        exchange: NodeExchange,
        deployment: Deployment,
        *,
        watch: Watch,
        continuation: Continuation | None,
        before: Session | None,
    ) -> Session:
        """Return a session that has not begun."""
        if before is None:
            if self.runner.is_engine:
                self.runner.refuse_unusable(graph)
            reuse = None
            if deployment.reuse:
                choices = ReuseChoices(deployment.verify_reuse, deployment.trust_times)
                reuse = reuse_spec(graph, ResultStore(store_place()), repository.workspace.directory, choices)
            runner = make_runner(
                graph,
                repository.workspace,
                self.runner,
                self.pool.size if self.capacity is None else self.most,
                pool=self.pool,
                until=deployment.until,
                parts=np.unique(np.delete(graph.part, exchange.remote)).tolist(),
                reuse=reuse,
                retry_memory=deployment.retry_memory,
                report_locals=deployment.report_locals,
            )
        else:
            runner = before.runner
        session = make_session(
            graph,
            repository,
            runner,
            clock=self.clock,
            exchange=exchange,
            epoch=deployment.epoch,
            view=exchange.view,
            watch=watch,
            infrastructure_retries=deployment.infrastructure_retries,
            inbox=None if before is None else before.inbox,
            continuation=continuation,
            until=deployment.until,
            retry_memory=deployment.retry_memory,
        )
        if before is None:
            session.notes += capacity_notes(graph, self.runner, self.pool.size)
        return session

    def execute(self, session: Session, name: str, on_stop: OnStop) -> None:
        """Execute a session in its own thread, until it is over or frozen."""

        def run() -> None:
            try:
                session.advance()
                on_stop(None)
            except Exception as error:  # noqa: BLE001 - the node must learn that the session is over
                on_stop(error)

        threading.Thread(target=run, name=f"session-{name}", daemon=True).start()


# The load of the host during the last hour.


class LoadHistory:
    """Samples the load of a node in a separate thread. May be read from any thread.

    Parameters
    ----------
    node : str
        Name of the node.
    sample : callable
        Returns the present load.
    every : float
        Seconds between two samples.
    kept : int
        Number of samples that are kept.
    """

    def __init__(
        self, node: str, sample: Callable[[], LoadSample], *, every: float = _LOAD_SECONDS, kept: int = _KEPT_SAMPLES
    ) -> None:
        self._node = node
        self._sample = sample
        self._every = every
        self._samples: deque[LoadSample] = deque(maxlen=kept)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load of {node}", daemon=True)

    def start(self) -> None:
        """Take the first sample as soon as that takes no waiting, and then one every few seconds."""
        self._thread.start()

    def read(self) -> NodeHistory:
        """Return the samples, the oldest one first."""
        return NodeHistory(node=self._node, every=self._every, samples=tuple(self._samples))

    def close(self) -> None:
        """Stop taking samples. Idempotent."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.wait(self._every if self._samples else _SHORTEST):
            try:
                self._samples.append(self._sample())
            except (OSError, DropflowError) as error:  # the disk is gone, or a session does not answer in time
                _log.warning("the load of this host cannot be measured: %s", error)


def sample_of(node: NodeInfo, now: float) -> LoadSample:
    """Return a sample of the load: of this host, and the figures in `node`."""
    counters = psutil.net_io_counters(pernic=True)
    network = [counter for name, counter in counters.items() if not name.startswith("lo")]
    return LoadSample(
        time=now,
        processor=node.load.processor,
        memory=node.load.memory - node.load.memory_free,
        disk=node.load.disk - node.load.disk_free,
        received=sum(counter.bytes_recv for counter in network),
        sent=sum(counter.bytes_sent for counter in network),
        sessions=node.sessions,
        running=node.load.busy,
    )


# The use of the processors of this host, near real time.

_SHORTEST, _LONGEST = 0.5, 10.0
"""Shortest and longest seconds of an average: clocks of processors are too coarse for less, and more is outdated."""


class ProcessorUse:
    """Measures how busy the processors are. May be called from any thread.

    `psutil.cpu_percent` counts from the last call in the same thread, and so returns 0 to most threads of a server.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Replaced as a whole: two threads that measure at the same time get about the same figure, without a lock.
        self._last: tuple[float, float, float, float | None] = (clock.monotonic(), *_seconds(), None)

    def percent(self) -> float:
        """Return the use of all processors in per cent, averaged over at most the last ten seconds.

        At first, and after a longer pause, it takes a tenth of a second.
        """
        measured, busy, total, percent = self._last
        now = self._clock.monotonic()
        is_recent = now - measured < _SHORTEST
        if is_recent and percent is not None:
            return percent
        more_busy, more_total = _seconds()
        if is_recent or now - measured > _LONGEST or more_total <= total:
            return self._keep(now, psutil.cpu_percent(interval=_SAMPLE_SECONDS))
        return self._keep(now, min(max(100.0 * (more_busy - busy) / (more_total - total), 0.0), 100.0))

    def _keep(self, now: float, percent: float) -> float:
        percent = round(percent, 1)
        self._last = (now, *_seconds(), percent)
        return percent


def _seconds() -> tuple[float, float]:
    """Return the seconds that all processors were busy, and the seconds that have passed for all of them."""
    times = psutil.cpu_times()
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # counted in user and nice
    return total - times.idle - getattr(times, "iowait", 0.0), total


# The incarnation of a node: a number that grows with each start, kept in the node's directory.
#
# The upper bits of the number are the time of the start in seconds, or the next number after that of the last start,
# whichever is greater. The time alone would not do: after the clock of a host was set back, peers would take a new
# process for an earlier one, and refuse it. The count alone would not do either: the node may have started from another
# directory meanwhile. The lower bits are random: two nodes whose directories are copies of each other have different
# numbers.
#
# The file has a fixed size and is overwritten in place, so that a node whose disk is full can start again and serve its
# results. It has the counter twice, each time with a checksum and in a disk sector of its own. The two are written one
# after the other: a crash during a write damages one of them, and the other one has the number of the last start.


def next_incarnation(root: Path, clock: Clock) -> int:
    """Count one more start of the node whose directory is `root`, and return its incarnation.

    Parameters
    ----------
    clock : Clock
        Time in seconds, below which no counter is.

    Raises
    ------
    StorageError
        The counter cannot be read or written.
    """
    path = root / _FILE
    with storage_errors("keep the number of starts of this node in", path):
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as stream:
            content = stream.read(2 * _SLOT)
            slots = [_parsed(content[:_SLOT]), _parsed(content[_SLOT:])]
            counted = max(slots)
            if content and min(slots) == _NO_COUNTER:
                _log.warning("%s is damaged and is written again", path)
            counter = max(min(int(clock.now()), _LATEST), counted + 1)
            # The slot that is damaged or behind is written first: the other one stays whole until the new number is
            # stored.
            for index in sorted(range(2), key=slots.__getitem__):
                _write(stream, index, counter)
        force_to_disk(str(root))
    return counter << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)


def _slot(counter: int) -> bytes:
    """Return one slot: the counter and its checksum, as text that people can read."""
    digits = b"%d" % counter
    return (b"%s %08x" % (digits, zlib.crc32(digits))).ljust(_SLOT - 1) + b"\n"


def _parsed(slot: bytes) -> int:
    """Return the counter in a slot; `_NO_COUNTER` if it has none, or is damaged."""
    digits = slot[:20].partition(b" ")[0]
    counter = int(digits) if digits.isdigit() else _NO_COUNTER
    return counter if counter < _MOST and slot == _slot(counter) else _NO_COUNTER


def _write(stream: BinaryIO, index: int, counter: int) -> None:
    """Overwrite a slot, and wait until it is on the disk."""
    stream.seek(index * _SLOT)
    stream.write(_slot(counter))
    stream.flush()
    os.fsync(stream.fileno())
