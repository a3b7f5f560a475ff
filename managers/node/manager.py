"""The node manager: a manager of the sessions of one host."""

import logging
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dropflow.api import operations
from dropflow.api.logs import MANAGER_LOG, ManagerLog
from dropflow.api.manager import Manager
from dropflow.api.node_records import Lack, Load, ManagerInfo, ManagerStatus, NodeComponents, NodeInfo, manager_info
from dropflow.api.operations import Operation
from dropflow.api.requests import DrainReply, DrainRequest, ResumeRequest, RetryRequest, SubmitQuery
from dropflow.api.session_records import SessionInfo
from dropflow.apps.container_engine import container_engine
from dropflow.apps.needs import end_containers, refuse_need, registered_components
from dropflow.apps.registry import APPLICATIONS
from dropflow.clock import Clock, SystemClock
from dropflow.data.workspace import SHARED_MEMORY, sweep_shared_memory
from dropflow.errors import ConflictError, DropflowError, LinkError, NotFoundError, StorageError
from dropflow.files import make_directories
from dropflow.graph.physical import PhysicalGraph
from dropflow.host.gpus import host_gpus
from dropflow.host.memory import host_memory
from dropflow.host.processors import usable_cores
from dropflow.runners.runner_choice import RunnerChoice, parse_runner
from dropflow.runners.worker_pool import WorkerPool
from dropflow.version import __version__
from managers.keys import ClusterKey
from managers.links import Links, LinkSettings
from managers.membership import LOST_AFTER, SUSPECT_AFTER
from managers.messages import PROTOCOL
from managers.node.decisions.machine import NodeMachine
from managers.node.fetch_pool import FetchPool
from managers.node.finished_sessions import DamagedSession, FinishedSession, recover_all
from managers.node.host import LinkHandlers, SessionHost
from managers.node.operations import NodeOperations, NodeSession
from managers.node.resources import LoadHistory, ProcessorUse, ProcessResources, next_incarnation, sample_of
from managers.node.stream_copies import FileWatcher
from managers.owner_thread import Owner
from managers.planning import plan_deployment
from managers.recovery.resume import newest_holders, plan_resumption

if TYPE_CHECKING:
    from dropflow.runners.dask_engine import DaskCapacity
    from dropflow.runners.ray_engine import RayCapacity

_Answer = TypeVar("_Answer")
_DEPLOY_SECONDS = 60.0
"""Seconds in which this node must have prepared a session, if its deployment gives no other time."""
_KEPT = 20
"""Number of sessions that are over and stay in memory."""
_log = logging.getLogger(__name__)


class NodeManager(Manager):
    """The manager of one host.

    Parameters
    ----------
    name : str
        Name of this node, unique in the cluster.
    root : Path
        Parent of the session directories; no other process uses it.
    links_bind, links_advertise : str
        Addresses ``tcp://HOST:PORT`` at which links listen, and at which others reach them (see
        `managers.links.Links`).
    key : ClusterKey or None
        Key of the cluster; may be None on loopback.
    runner : str
        Runner of applications, see `dropflow.runners.runner_choice.parse_runner`. Dask needs the address of a cluster,
        whose capacity is the capacity of the node.
    workers : int or None
        Number of worker processes, which sessions share, or of threads of each session; one per core by default. For
        Dask, the most attempts of a session at a time; by default as many as its workers take.
    suspect_after, lost_after : float
        Seconds of silence after which another node is suspect, and lost.
    in_place : bool
        Whether to read files of other nodes in place, if they can be seen from here.
    on_drained : callable
        Ends the process. Called in another thread when no session is left after `drain`, or its time is over.
    clock : Clock
        Tells the time.

    Raises
    ------
    LinkError
        The address of the links cannot be listened on, or no cluster of Dask or Ray answers.
    MissingDependencyError
        The package of Dask or Ray is not installed.
    StorageError
        `root` cannot be made or written.
    """

    def __init__(
        self,
        name: str,
        *,
        root: Path,
        links_bind: str = "tcp://127.0.0.1:0",
        links_advertise: str = "",
        key: ClusterKey | None = None,
        runner: str = "processes",
        workers: int | None = None,
        suspect_after: float = SUSPECT_AFTER,
        lost_after: float = LOST_AFTER,
        in_place: bool = True,
        on_drained: Callable[[], None] = lambda: None,
        link_settings: LinkSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._root = root.absolute()
        self._manager_log = ManagerLog(name, self._root / MANAGER_LOG)
        choice = parse_runner(runner)
        choice.refuse_missing()
        self._cluster = _cluster(choice)
        self._engine = choice.address if choice.is_engine else ""
        self._key = key
        self._url = ""
        self._is_disk_full = False
        self._last_acks = (link_settings or LinkSettings()).last_acks
        self._started = self._clock.now()
        sessions = self._root / "sessions"
        finished = _recovered(sessions, name)
        incarnation = next_incarnation(self._root, self._clock)
        self._on_drained = on_drained
        machine = NodeMachine(
            name,
            incarnation,
            finished,
            suspect_after=suspect_after,
            lost_after=lost_after,
            kept=_KEPT,
            now=self._clock.monotonic(),
        )
        self._machine = machine
        self._owner = Owner(machine, name=name, clock=self._clock)
        handlers = LinkHandlers(name, machine.table, self._owner.post)
        self._links = Links(
            name,
            bind=links_bind,
            advertise=links_advertise,
            key=key,
            on_message=handlers.on_message,
            on_change=handlers.on_change,
            open_content=handlers.open_content,
            incarnation=incarnation,
            settings=link_settings,
            clock=self._clock,
        )
        self._resources = ProcessResources(
            links=self._links,
            fetch_pool=FetchPool(self._links),
            file_watcher=FileWatcher(),
            clock=self._clock,
            runner=choice,
            pool=WorkerPool(workers or usable_cores(), logs=self._root),
            # The workers of an engine may not see the files that this host sees.
            in_place=in_place and self._cluster is None,
            shared_memory=SHARED_MEMORY if self._cluster is None else None,
            most=workers,
            capacity=None if self._cluster is None else self._cluster.read,
        )
        self._host = host = SessionHost(
            name, machine.table, directory=sessions, owner=self._owner, resources=self._resources
        )
        self._operations = NodeOperations(name, lambda: host.sessions)
        self._processor_use = ProcessorUse(self._clock)
        self._history = LoadHistory(name, lambda: sample_of(self.nodes()[0], self._clock.now()))
        self._handlers = self._operations.handlers() | self._own_handlers()
        self._owner.start(host.effects())
        self._history.start()

    def _own_handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the functions for operations about this node, and for operations that make a deployment."""
        return {
            operations.INFO.name: self._info,
            operations.STATUS.name: self._status,
            operations.NODES.name: self._nodes,
            operations.COMPONENTS.name: self._components,
            operations.DRAIN.name: self._drain,
            operations.NODE_HISTORY.name: lambda **_: self._history.read(),
            operations.MANAGER_LOG.name: lambda query, **_: self._manager_log.page(query),
            operations.SUBMIT.name: self._submit,
            operations.RESUME.name: self._resume,
            operations.RETRY.name: self._retry,
        }

    @property
    def links_address(self) -> str:
        """The address of the links of this node."""
        return self._links.address

    def set_url(self, url: str) -> None:
        """Set the URL of the REST server of this manager."""
        self._url = url

    def call(self, operation: Operation[_Answer], /, **arguments: Any) -> _Answer:
        """Carry out an operation here, in the thread of the caller, or have the state machine do it."""
        if operation.to == "node" and arguments["node"] != self.name:
            text = f"there is no node {arguments['node']!r} here"
            raise NotFoundError(text, where=self.name, hint="see 'dropflow nodes'")
        handler = self._handlers.get(operation.name)
        if handler is not None:
            return operation.answered(handler(**arguments))
        value = self._owner.call(self._machine.operations[operation.name], **arguments)
        return operation.answered(self._operations.decided(operation.name, value, **arguments))

    def graph(self, session: str) -> PhysicalGraph:
        """Return the whole graph of a session."""
        return self._operations.graph(session)

    # About itself.

    def _info(self) -> ManagerInfo:
        return manager_info(
            self.name,
            "node",
            url=self._url,
            started=self._started,
            clock=self._clock,
            protocol=PROTOCOL,
            incarnation=self._links.incarnation,
            key=self._key.fingerprint if self._key is not None else "",
            root=str(self._root),
            findings=tuple(session.finding for session in self._host.sessions.values() if session.finding),
        )

    def _status(self) -> ManagerStatus:
        return ManagerStatus.of(self.info(), self.nodes(), self.sessions())

    def _nodes(self) -> tuple[NodeInfo, ...]:
        sessions = tuple(self._host.sessions.values())
        load = self._load(sessions)
        if load.is_disk_full != self._is_disk_full:
            self._is_disk_full = load.is_disk_full
            change = "is full: no session is deployed here" if load.is_disk_full else "has room again"
            _log.warning("the disk of %s %s", self._root, change)
        return (
            NodeInfo(
                name=self.name,
                url=self._url,
                state=self._machine.draining.state,
                links=self._links.address,
                incarnation=self._links.incarnation,
                version=__version__,
                host=self._engine or socket.gethostname(),
                sessions=sum(not session.state.is_terminal for session in sessions),
                started=self._started,
                load=load,
            ),
        )

    def _components(self, needs: Sequence[str]) -> tuple[NodeComponents, ...]:
        """Return the components of this node, and which of the needs it lacks."""
        lacks = [Lack(need=need, text=why.text, hint=why.hint) for need in needs if (why := _refusal(need)) is not None]
        return (
            NodeComponents(
                node=self.name,
                python=platform.python_version(),
                environment=sys.prefix,
                applications=len(APPLICATIONS),
                engine="" if _refusal("container:engine") else container_engine().command[0],
                registered=registered_components(),
                lacks=tuple(lacks),
            ),
        )

    def _drain(self, node: str, request: DrainRequest) -> DrainReply:
        """Give all sessions to their other nodes, and end the process when none is left."""
        draining = self._machine.draining
        reply = self._owner.call(draining.drain, node=node, request=request)
        self._owner.submit(draining.drained).add_done_callback(lambda _: self._on_drained())
        return reply

    def drain_before_end(self, seconds: float) -> None:
        """Give all sessions to their other nodes before `close`, within these seconds.

        Sessions without other nodes are cancelled at once.
        """
        if seconds > 0:
            with suppress(LinkError):  # when it was closed before
                request = DrainRequest(grace=seconds)
                self._owner.call(self._machine.draining.drain, node=self.name, request=request, is_ending=True)
                self._owner.call(self._machine.draining.drained)

    # Sessions.

    def _submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Run a whole graph on this node."""
        deployment = plan_deployment(graph, options, self.nodes(), clock=self._clock)
        self.prepare(deployment, seconds=deployment.seconds(_DEPLOY_SECONDS))
        self.start(deployment.session, deployment.epoch)
        return self.session(deployment.session)

    def _resume(self, session: str, request: ResumeRequest) -> SessionInfo:
        """Continue a session that was stopped, on this node."""
        part = self._operations.part_of(session, ignore_damage=request.ignore_damage)
        newest_holders(session, [part])
        deployment = plan_resumption(
            self.graph(session),
            [part],
            request,
            self.nodes(),
            now=self._clock.now(),
            after=self._operations.find(session).epoch,
        )
        self.prepare(deployment, seconds=deployment.seconds(_DEPLOY_SECONDS))
        self.start(session, deployment.epoch)
        return self.session(session)

    def _retry(self, session: str, request: RetryRequest) -> SessionInfo:
        """Run failed drops of a session again, while it runs or after its end; after its end, also other drops."""
        if not request.start and not self._operations.find(session).state.is_terminal:
            self._owner.call(self._machine.members.retry, session=session, request=request)
            return self._operations.find(session).info()
        if request.if_running:
            raise ConflictError(f"session {session!r} is over", where=self.name)
        return self.resume(session, request)

    def close(self) -> None:
        """Cancel all sessions, and stop. Idempotent."""
        self._history.close()
        self._operations.close()
        with suppress(LinkError):  # when it was closed before
            self._owner.call(self._machine.closing.close)
        self._owner.close()
        self._resources.pool.close()
        self._links.flush(self._last_acks)
        self._links.close()
        if self._cluster is not None:
            self._cluster.close()
        self._resources.fetch_pool.close()
        self._resources.file_watcher.close()

    def _load(self, sessions: tuple[NodeSession, ...]) -> Load:
        disk = shutil.disk_usage(self._root)
        busy = sum(session.info().running for session in sessions if not session.state.is_terminal)
        if self._cluster is not None:
            capacity = self._cluster.read()
            return Load(
                cores=capacity.slots,
                workers=self._resources.workers,
                busy=busy,
                # Dask measures its own processes, and not the worker processes of attempts.
                processor=100.0 * min(busy / max(capacity.slots, 1), 1.0),
                memory=capacity.memory,
                memory_free=capacity.memory,
                disk=disk.total,
                disk_free=disk.free,
                received=self._links.statistics().fetched,
            )
        memory, gpus = host_memory(), len(host_gpus())
        return Load(
            cores=usable_cores(),
            workers=self._resources.workers,
            busy=busy,
            processor=self._processor_use.percent(),
            memory=int(memory.limit.bytes),
            memory_free=int(memory.free()),
            disk=disk.total,
            disk_free=disk.free,
            received=self._links.statistics().fetched,
            gpus=gpus,
            gpus_free=gpus - self._resources.pool.gpus_taken,
        )


def _recovered(sessions: Path, node: str) -> dict[str, FinishedSession | DamagedSession]:
    """Make the directory `sessions`, and return its sessions; end sessions that an earlier process left running."""
    try:
        make_directories(sessions)
        recovered = recover_all(sessions, node)
    except OSError as error:
        raise StorageError(f"cannot be made: {error.strerror}", where=str(sessions.parent)) from error
    sweep_shared_memory()
    end_containers(sessions)
    return recovered


def _cluster(choice: RunnerChoice) -> "DaskCapacity | RayCapacity | None":
    if not choice.is_engine:
        return None
    if choice.kind == "ray":
        from dropflow.runners.ray_engine import RayCapacity  # noqa: PLC0415 - an extra

        return RayCapacity(choice.address)
    from dropflow.runners.dask_engine import DaskCapacity  # noqa: PLC0415 - an extra

    return DaskCapacity(choice.address)


def _refusal(need: str) -> DropflowError | None:
    """Return why this host does not meet a need; None if it does."""
    try:
        refuse_need(need)
    except DropflowError as error:
        return error
    return None
