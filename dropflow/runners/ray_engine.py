"""Batches as calls of Ray actors, one for each processor, on a running cluster, or on a new one on this machine.

Each actor has the `Host` of the session with one worker process. Ray counts its processor as long as the actor exists:
until the session ends. In a node manager, whose sessions share a cluster, it exists as long as there is work for it.

An actor takes messages that stop one attempt and give it time to clean up; a task of Ray takes none. An actor that does
not react is killed and replaced.
"""

import contextlib
import itertools
import logging
import math
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dropflow.clock import SystemClock
from dropflow.errors import ConflictError, DropflowError, LinkError, WorkerDiedError, WorkerStartError
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.failure import summary_of
from dropflow.graph.codec import pack
from dropflow.runners.carried_contents import OwnDirectory
from dropflow.runners.engine import (
    ENOUGH_SECONDS,
    AttemptKey,
    Batch,
    BatchAnswer,
    EngineCapacity,
    EngineEvents,
    Piece,
    WorkerView,
    decode_answer,
    decode_answers,
    decode_spec,
    encode,
)
from dropflow.runners.external import refuse_silent
from dropflow.runners.external_host import (
    PYTHON,
    Host,
    HostView,
    look,
    probe_file,
    refuse_other_versions,
    share_directory,
    view_of,
)
from dropflow.standard_output import native_output_on_stderr

_log = logging.getLogger(__name__)

_START_SECONDS = 90.0
"""Seconds that Ray may take to start the first actor."""
_RAY_CONNECT_SECONDS = 10.0
"""Seconds in which a server of Ray must accept a connection."""
_RAY_CLOSE_SECONDS = 4.0
"""Seconds that the hosts in actors, and the thread that watches the cluster, are waited for at the end."""
_CALLS = 8
"""Most calls that an actor processes at a time: two batches, and messages besides."""
_MOST_REPLACED = 100
"""Most actors that are replaced if they end before they have run a batch."""
_IDLE_SECONDS = 10.0
"""Seconds without work after which an elastic engine ends an actor."""
_CAPACITY_SECONDS = 2.0
"""Seconds between two requests for the capacity of the cluster."""
_FEW_ACTORS, _MOST_ACTORS = 4, 10_000
_MONOTONIC = SystemClock().monotonic
_STARVED: set["RayEngine"] = set()
"""The elastic engines of this process that have no actor, and wait for one."""


class HostActor:
    """The host of a session in a process of Ray.

    Parameters
    ----------
    name : str
        Name of the actor.
    spec : bytes
        The `ExecutorSpec`.
    factory : str
        ``package.module:function`` that makes an `Executor` from it.
    """

    def __init__(self, name: str, spec: bytes, factory: str) -> None:
        self._name, self._spec, self._factory = name, spec, factory
        self._host: Host | None = None

    def look(self, path: str, token: str) -> dict[str, Any]:
        """Return the result of `dropflow.runners.external_host.look`."""
        # Not as a `HostView`, whose fields may differ in another version.
        return msgspec.structs.asdict(look(path, token, alias=ray.get_runtime_context().get_node_id()))

    def begin(self, is_shared: bool, store: str) -> None:  # noqa: FBT001 - Ray passes it on
        """Make the host, which uses the session directory or its own directory. Called before the methods below."""
        own = None if is_shared else OwnDirectory(store=store)
        self._host = Host(decode_spec(self._spec), workers=1, name=self._name, factory=self._factory, own=own)

    def run(self, data: bytes, *pieces: Piece) -> bytes:
        """Run a batch. Ray replaces references among the arguments by their bytes."""
        return self._begun().run(data, pieces)

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Stop attempts."""
        self._begun().abort(attempts, grace)

    def recall(self, numbers: Sequence[int]) -> bytes:
        """Take back attempts that have not begun."""
        return self._begun().recall(numbers)

    def ping(self) -> None:
        """Note that the session is alive."""
        self._begun().ping()

    def close(self) -> None:
        """Stop everything."""
        if self._host is not None:
            self._host.close()

    def _begun(self) -> Host:
        if self._host is None:
            raise WorkerDiedError("the actor has not begun")
        return self._host


class _Actor:
    """An actor, in the process of the session."""

    def __init__(self, name: str, node: Mapping[str, Any], handle: Any) -> None:
        self.name = name
        self.node = node
        self.handle = handle
        self.batches: dict[int, Batch] = {}
        self.ended_in = 0
        """Number of the batch that it ran when it ended; 0 for none."""
        self.hosts: tuple[str, ...] = ()
        """Names of its host; empty before it has answered."""
        self.has_run = False
        self.alias = ""
        """The name of its node; empty if it has none."""
        self.idle_since = _MONOTONIC()
        """Monotonic time at which it was started or had its last batch."""
        self.is_leaving = False
        """Whether it gets no more batches, and ends after its present ones to free a processor for another session."""


class RayEngine:
    """`dropflow.runners.engine.Engine` of Ray.

    Parameters
    ----------
    address : str
        Address of a cluster: ``auto``, or ``host:6379``; empty for a new one on this machine. If this process has a
        connection already, that connection is used.
    workers : int or None
        Number of actors; None for one for each processor of the cluster.
    is_elastic : bool
        Whether actors are started only while work waits, so that Ray's autoscaler adds nodes for them. They end when
        they have no work, or when another engine of this process has no actor. If False, all are started at once.
    """

    name = "Ray"

    def __init__(self, address: str, workers: int | None, *, is_elastic: bool = False) -> None:
        self._address, self._count = address, workers
        self._is_elastic = is_elastic
        self._is_wanted = False
        self._events: EngineEvents | None = None
        self._is_ours = self._closing = False
        self._numbers = itertools.count(1)
        # Guards the attributes below: the thread of the runner and threads of Ray, which report ends, use them.
        self._lock = threading.RLock()
        self._actors: dict[str, _Actor] = {}
        self._actor_of: dict[int, _Actor] = {}
        self._replaced = 0
        self._spec, self._factory, self._directory = b"", "", ""
        self._is_shared: bool | None = None
        """Whether actors use the session directory; None before the first one has looked."""
        self._store = ""

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents, *, store: str = "") -> Sequence[WorkerView]:
        """Connect to the cluster, or start one, and start the actors."""
        self._events, self._directory = events, spec.directory
        self._spec, self._factory, self._store = pack(spec), factory, store
        self._is_ours = connect(self._address, self._count)
        if self._is_elastic:
            return []
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        if not nodes:
            raise WorkerStartError(
                "the Ray cluster has no processors", where=self._address, hint="start a node: ray start --address ..."
            )
        # By turns, so that fewer actors than processors are spread over the nodes.
        spread = [node for turn in _turns(nodes) for node in turn]
        with self._lock:
            started = [self._start_actor(node) for node in spread[: self._count or len(spread)]]
        self._check(started)
        return self._views()

    def _start_actor(self, node: Mapping[str, Any] | None) -> _Actor:
        """Start an actor, on this node if there is a free processor, or on any."""
        if node is None:
            node, strategy = {"NodeManagerAddress": "any"}, "SPREAD"
        else:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
        name = f"{node['NodeManagerAddress']}#{next(self._numbers)}"
        options = {"num_cpus": 1, "max_concurrency": _CALLS, "max_restarts": 0, "scheduling_strategy": strategy}
        handle = ray.remote(**options)(HostActor).remote(name, self._spec, self._factory)
        actor = self._actors[name] = _Actor(name, node, handle)
        return actor

    def _check(self, actors: Sequence[_Actor]) -> None:
        """Wait for actors, and refuse actors that cannot use the session directory.

        Ray may not have the processors for all of them now. An actor that starts later is checked then.
        """
        with probe_file(self._directory) as (path, token):
            looks = {actor.handle.look.remote(path, token): actor for actor in actors}
            ready, late = ray.wait(list(looks), num_returns=len(looks), timeout=_START_SECONDS / 9)
            if not ready:
                ready, late = ray.wait(late, num_returns=1, timeout=_START_SECONDS)
            views = {}
            for ref in ready:
                name = f"Ray actor {looks[ref].name}"
                try:
                    answer = ray.get(ref)
                except ray.exceptions.RayError as error:
                    answer = error
                views[looks[ref].name] = view_of(name, answer)
        if not views:
            raise WorkerStartError(
                f"Ray has not started an actor in {_START_SECONDS:g} s",
                where=self._address,
                hint="its processors may be taken by other programs: see ray status",
            )
        refuse_other_versions(self.name, views)
        self._is_shared = share_directory(views)
        try:
            ray.get(
                [looks[ref].handle.begin.remote(self._is_shared, self._store) for ref in ready], timeout=_START_SECONDS
            )
        except ray.exceptions.RayError as error:
            raise WorkerStartError(f"a Ray actor cannot make its directory: {summary_of(error)}") from error
        nodes = _nodes()
        for ref in ready:
            self._use(looks[ref], views[looks[ref].name], nodes)
        for ref in late:
            self._look_again(looks[ref])

    def _look_again(self, actor: _Actor) -> None:
        """Use an actor once it has started and can use the session directory."""
        probe = probe_file(self._directory)
        path, token = probe.__enter__()

        def looked(done: Any) -> None:
            with contextlib.suppress(OSError):
                probe.__exit__(None, None, None)
            try:
                view = view_of(f"Ray actor {actor.name}", done.result())
                refuse_other_versions(self.name, {actor.name: view})
                with self._lock:
                    if self._is_shared is None:
                        self._is_shared = share_directory({actor.name: view})
                if self._is_shared and view.problem:
                    raise WorkerStartError(view.problem)
            except (ray.exceptions.RayError, DropflowError) as error:
                # Ray may start it on a node that has ended a moment ago. A new actor is started on another node.
                has_ended = isinstance(error, ray.exceptions.RayActorError) and not error.actor_init_failed
                why = error.text if isinstance(error, DropflowError) else summary_of(error).partition("\n")[0]
                if not has_ended:
                    _log.warning("an actor of Ray that has started late is not used: %s", why)
                self._remove(actor, f"it cannot be used: {why}", replace=has_ended)
                return
            begun = actor.handle.begin.remote(self._is_shared, self._store).future()
            begun.add_done_callback(lambda done: self._begun(actor, view, done))

        actor.handle.look.remote(path, token).future().add_done_callback(looked)

    def _begun(self, actor: _Actor, view: HostView, done: Any) -> None:
        if done.exception() is not None:
            self._remove(actor, "it cannot be used", replace=False)
            return
        self._use(actor, view, _nodes())
        self._report().workers(self._views())

    def _use(self, actor: _Actor, view: HostView, nodes: Mapping[str, Mapping[str, Any]]) -> None:
        host = view.host
        # It is on another node than it was started for if that node has no free processor, or has ended.
        actor.node = nodes.get(view.alias, actor.node)
        address, name = str(actor.node["NodeManagerAddress"]), str(actor.node.get("NodeName", ""))
        actor.alias = "" if name == address else name  # Ray gives the address if there is no name
        actor.idle_since = _MONOTONIC()
        _STARVED.discard(self)
        actor.hosts = (address, host)
        if host == socket.gethostname():
            actor.hosts += ("localhost", "127.0.0.1")

    def _views(self) -> list[WorkerView]:
        with self._lock:
            return [
                WorkerView(actor.name, 1, actor.hosts, not self._is_shared, actor.alias)
                for actor in self._actors.values()
                if actor.hosts and not actor.is_leaving
            ]

    def put(self, data: bytes) -> object:
        """Return a reference to bytes in the object store."""
        return ray.put(data)

    def submit(
        self,
        batch: Batch,
        name: str,
        workers: Sequence[str],
        pieces: Sequence[object] = (),
    ) -> None:
        """Call an actor: the one with the fewest batches, among them one of `workers`."""
        with self._lock:
            usable = [candidate for candidate in self._actors.values() if candidate.hosts and not candidate.is_leaving]
            if not usable:
                self._report().lost(batch.number, "there is no Ray actor now")
                return
            wanted = [candidate for candidate in usable if candidate.name in workers]
            actor = min(usable, key=lambda candidate: (len(candidate.batches), candidate not in wanted))
            actor.batches[batch.number] = batch
            self._actor_of[batch.number] = actor
        future = actor.handle.run.remote(encode(batch), *pieces).future()
        future.add_done_callback(lambda done: self._ended(actor, batch.number, done))

    def _ended(self, actor: _Actor, number: int, done: Any) -> None:
        """Report how a call of an actor has ended. Called by threads of Ray."""
        error = done.exception()
        has_ended = isinstance(error, ray.exceptions.RayActorError)
        with self._lock:
            if has_ended and not actor.ended_in:
                actor.ended_in = min(actor.batches)
            batch = actor.batches.pop(number)
            actor.idle_since = _MONOTONIC()
            is_known = self._actor_of.pop(number, None) is not None
        if error is None:
            actor.has_run = True
            if is_known:
                self._report().answered(decode_answer(done.result()), True)
            return
        if has_ended:
            self._remove(actor, "its process has ended")
        if is_known and has_ended and number > actor.ended_in:
            # The batch was only waiting there, so its attempts are not the reason.
            self._report().answered(BatchAnswer(number, "", (), batch.tasks), True)
        elif is_known:
            why = summary_of(error).partition("\n")[0]
            self._report().lost(number, f"the Ray actor {actor.name} ended: {why}")

    def _remove(self, actor: _Actor, why: str, *, replace: bool = True) -> None:
        """Forget an actor that has ended, and start another one in its place."""
        with self._lock:
            if self._closing or self._actors.pop(actor.name, None) is None:
                return
            self._replaced = 0 if actor.has_run else self._replaced + 1
            other = None
            if replace and self._replaced < _MOST_REPLACED and not actor.is_leaving:
                with contextlib.suppress(Exception):  # the connection to Ray is lost
                    other = self._start_actor(None if self._is_elastic else actor.node)
            is_empty = not self._actors and not actor.is_leaving
        self._report().workers(self._views())
        if other is not None:
            self._look_again(other)
        elif is_empty:
            self._report().broken(f"the last actor cannot be replaced: {why}")

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Stop attempts, in any actor."""
        for actor in self._all():
            actor.handle.abort.remote(list(attempts), grace)

    def recall(self, numbers: Sequence[int]) -> None:
        """Ask the actors of batches for the attempts that have ended, and for those that have not begun."""
        with self._lock:
            actors = {
                self._actor_of[number].name: self._actor_of[number] for number in numbers if number in self._actor_of
            }
        for actor in actors.values():
            actor.handle.recall.remote(list(numbers)).future().add_done_callback(self._recalled)

    def _recalled(self, done: Any) -> None:
        if done.exception() is None:
            for answer in decode_answers(done.result()):
                self._report().answered(answer, False)

    def discard(self, number: int) -> None:
        """Kill the actor of a batch, which does not stop it, and replace it."""
        with self._lock:
            actor = self._actor_of.pop(number, None)
        if actor is not None:
            with contextlib.suppress(Exception):  # it has ended
                ray.kill(actor.handle)

    def want(self, seconds: float) -> None:
        """Start actors for work that waits, if the engine is elastic. Actors without a processor wait in Ray."""
        self._is_wanted = seconds > 0
        if not (self._is_elastic and self._is_wanted):
            return
        # At most twice the present processors, so that a cluster grows by steps. Asked without the lock: Ray answers in
        # the thread that reports the ends of calls.
        most = min(self._count or _MOST_ACTORS, max(_FEW_ACTORS, 2 * _capacity().slots))
        with self._lock:
            if self._closing or any(not candidate.hosts for candidate in self._actors.values()):
                return
            room = max(most - len(self._actors), 0)
            started = [self._start_actor(None) for _ in range(min(room, math.ceil(seconds / ENOUGH_SECONDS)))]
            if len(started) == len(self._actors):
                _STARVED.add(self)
        for actor in started:
            self._look_again(actor)

    def _end_idle(self) -> None:
        """End actors without work, and have one leave if another engine of this process has no actor."""
        now = _MONOTONIC()
        with self._lock:
            there = [candidate for candidate in self._actors.values() if candidate.hosts]
            if not self._is_wanted:
                for candidate in self._actors.values():
                    # Actors that have not started have no processor yet: they make a cluster grow.
                    candidate.is_leaving |= not candidate.batches and now >= candidate.idle_since + _IDLE_SECONDS
            elif _STARVED - {self} and sum(not candidate.is_leaving for candidate in there) > 1:
                next(candidate for candidate in there if not candidate.is_leaving).is_leaving = True
            ended = [candidate for candidate in self._actors.values() if candidate.is_leaving and not candidate.batches]
            has_changed = any(candidate.is_leaving for candidate in there)
        for actor in ended:
            self._remove(actor, "it has no work", replace=False)
            with contextlib.suppress(Exception):  # Ray may be away
                ray.kill(actor.handle)
        if has_changed:
            self._report().workers(self._views())

    def ping(self) -> None:
        """Send all actors a sign that the session is alive, and check the connection."""
        if not ray.is_initialized() and not self._closing:
            self._report().broken("the connection to it was closed")
            return
        if self._is_elastic:
            self._end_idle()
        for actor in self._all():
            actor.handle.ping.remote()

    def _all(self) -> list[_Actor]:
        with self._lock:
            return [actor for actor in self._actors.values() if actor.hosts]

    def _report(self) -> EngineEvents:
        assert self._events is not None  # it has been started
        return self._events

    def close(self) -> None:
        """Stop all attempts and end the actors; end the cluster if `start` started it."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            _STARVED.discard(self)
            actors = list(self._actors.values())
            self._actor_of.clear()
        if ray.is_initialized():
            with contextlib.suppress(Exception):  # Ray may be away
                calls = [actor.handle.close.remote() for actor in actors if actor.hosts]
                ray.wait(calls, num_returns=len(calls), timeout=_RAY_CLOSE_SECONDS)
            for actor in actors:
                with contextlib.suppress(Exception):
                    ray.kill(actor.handle)
            if self._is_ours:
                with _signal_handlers_kept():
                    ray.shutdown()


class RayCapacity:
    """The capacity of a Ray cluster, which may grow and shrink. This process is connected to it from then on.

    Parameters
    ----------
    address : str
        Address of the cluster.

    Raises
    ------
    ConflictError, LinkError
        As `connect`.
    """

    def __init__(self, address: str) -> None:
        connect(address, None)
        self._now = _capacity()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="capacity of Ray", daemon=True)
        self._thread.start()

    def read(self) -> EngineCapacity:
        """Return the present capacity of its nodes. From any thread."""
        return self._now

    def close(self) -> None:
        """Leave the cluster. Idempotent."""
        self._ended.set()
        self._thread.join(_RAY_CLOSE_SECONDS)
        with _signal_handlers_kept():
            ray.shutdown()

    def _watch(self) -> None:
        while not self._ended.wait(_CAPACITY_SECONDS):
            try:
                self._now = _capacity()
            except Exception as error:  # noqa: BLE001 - Ray raises anything when its head is away
                if self._now.slots:
                    _log.warning("the Ray cluster does not answer: %s", summary_of(error))
                self._now = EngineCapacity()


def _capacity() -> EngineCapacity:
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    return EngineCapacity(
        int(sum(amounts["CPU"] for amounts in resources)), int(sum(amounts.get("memory", 0) for amounts in resources))
    )


def connect(address: str, workers: int | None) -> bool:
    """Connect this process to a cluster, or start one; return whether the connection is new: a process has only one.

    Raises
    ------
    ConflictError
        The cluster has another version of Ray or Python.
    LinkError
        It does not answer.
    """
    if ray.is_initialized():
        return False
    # Connected by "auto" itself, Ray 2.60 ended the actors of a session on a cluster of two nodes.
    server = _resolved(address)
    if server:
        refuse_silent("ray", server, _RAY_CONNECT_SECONDS)
    quiet = {"log_to_driver": False, "configure_logging": False}
    try:
        # The output of Ray and its processes must not be part of the answer of a command.
        with _signal_handlers_kept(), contextlib.redirect_stdout(sys.stderr), native_output_on_stderr():
            if server:
                ray.init(address=server, **quiet)
            else:
                ray.init(num_cpus=workers, include_dashboard=False, **quiet)
    except Exception as error:  # Ray raises a plain `Exception` if its processes do not start in time
        where = address or "on this machine"
        if "Version mismatch" in str(error):
            versions = re.findall(r"(Ray|Python): (\S+)", str(error))[:2]
            raise ConflictError(
                f"the Ray cluster has {' and '.join(' '.join(version) for version in versions)}, and this process Ray "
                f"{ray.__version__} and Python {PYTHON}",
                where=where,
                hint="run the command in an environment with the versions of the cluster",
            ) from error
        raise LinkError(
            f"there is no Ray cluster that answers: {summary_of(error)}",
            where=where,
            hint="give the address that 'ray start' prints, as in --runner ray=host:6379, or ray=auto on its hosts",
        ) from error
    return True


def _resolved(address: str) -> str:
    """Return the host and port of a cluster; for ``auto``, of the cluster that was started last on this host."""
    if address != "auto":
        return address
    with contextlib.suppress(Exception):  # not a public function of Ray
        from ray._private.services import canonicalize_bootstrap_address  # noqa: PLC0415 - Ray

        return str(canonicalize_bootstrap_address(address) or address)
    return address


def _nodes() -> Mapping[str, Mapping[str, Any]]:
    """Return the nodes of the cluster, by their identifiers."""
    return {node["NodeID"]: node for node in ray.nodes()}


def _turns(nodes: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the nodes that have a first processor, then those that have a second one, and so on."""
    for turn in itertools.count(1):
        nodes_of_turn = [node for node in nodes if node["Resources"]["CPU"] >= turn]
        if not nodes_of_turn:
            return
        yield nodes_of_turn


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Keep the signal handlers of this process: Ray replaces the handler of SIGTERM by one that exits."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
