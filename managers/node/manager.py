"""The node manager: `managers.api.Manager` for the sessions of one host."""

import logging
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dropflow.api.contents import Download
from dropflow.api.logs import LAST_LINES, MANAGER_LOG, LogPage, LogQuery, ManagerLog
from dropflow.api.records import (
    Child,
    Load,
    ManagerInfo,
    ManagerStatus,
    NodeHistory,
    NodeInfo,
    Role,
    SessionDetail,
    SessionInfo,
    SubmitQuery,
    manager_info,
)
from dropflow.api.requests import CancelRequest, DrainReply, DrainRequest, MemberRequest, ResumeRequest, RetryRequest
from dropflow.clock import Clock, SystemClock
from dropflow.data import shm_directory
from dropflow.data.file import remove_part
from dropflow.engine.api import Handle
from dropflow.engine.host_memory import host_memory
from dropflow.errors import (
    ConflictError,
    LinkError,
    NotFoundError,
    StorageError,
    UsageError,
)
from dropflow.files import make_directories
from dropflow.graph.physical import PhysicalGraph
from dropflow.runners.pool import WorkerPool
from dropflow.states import SessionState
from dropflow.stopping import GRACE_SECONDS
from dropflow.version import __version__
from managers.deployment import Deployment, deployment_download
from managers.keys import ClusterKey
from managers.links import Links, LinkSettings
from managers.membership import LOST_AFTER, SUSPECT_AFTER
from managers.messages import PROTOCOL
from managers.node.copy_effects import CopyRecords, ReleasedContents, served_copies
from managers.node.fetch_pool import FetchPool
from managers.node.host import SessionHost
from managers.node.joining_deployment import joining_deployment
from managers.node.load import LoadHistory, ProcessorUse, next_incarnation, sample_of
from managers.node.machine import NodeMachine
from managers.node.over import DamagedSession, FinishedSession, recover_all
from managers.node.queries import NodeSession, SessionQueries
from managers.node.resources import ProcessResources
from managers.node.streams import FileWatcher
from managers.owner_thread import Owner
from managers.planning import plan_deployment
from managers.recovery.resume import newest_holders, plan_resumption

__all__ = [
    "MemberCalls",
    "NodeManager",
    "release_contents",
]


# Removal of results of a session that is FINISHED, when a client needs them no more.


def release_contents(found: NodeSession, rows: Sequence[int]) -> None:
    """Remove results of a session, and copies of those of other nodes, by the rows of their drops in the whole graph.

    Rows that have neither here are left out, and so are contents outside of the directory of the session.

    Raises
    ------
    ConflictError
        The session is not FINISHED.
    StorageError
        The directory cannot be written.
    """
    if isinstance(found, DamagedSession) or found.state is not SessionState.FINISHED:
        raise ConflictError(
            f"session {found.name!r} is {found.state.name}, and not FINISHED: its results are not released"
        )
    piece, directory = found.piece, found.directory.path
    local = {row: here for row in rows if (here := piece.local(row)) is not None and piece.is_own[here]}
    contents: dict[int, Handle | None] = found.session.call(
        lambda live: {row: live.content(here) for row, here in local.items()}
    )
    own = {row: content for row, content in contents.items() if content is not None and _is_inside(content, directory)}
    if own:
        # Recorded first: if this process ends in between, the files go with the session, and are not results.
        ReleasedContents(directory, found.epoch).add(own)
        forgotten = {local[row] for row in own}
        if isinstance(found, FinishedSession):
            found.forget(forgotten)
        else:
            found.session.call(lambda live: live.handover.forget(forgotten))
    for content in own.values():
        remove_part(content.location)
    copies = served_copies(found)
    for copy in (copies[row].handle for row in rows if row in copies):
        if _is_inside(copy, directory):
            CopyRecords(directory).forget(copy.location)
            remove_part(copy.location)


def _is_inside(content: Handle, directory: Path) -> bool:
    return content.kind in ("file", "directory") and Path(content.location).is_relative_to(directory)


# The operations of a node manager on the nodes and the results of sessions, in the thread of the
# caller.


class MemberCalls(SessionQueries):
    """`managers.node.members.MemberOperations` and others, as methods of `managers.api.Manager`."""

    _owner: Owner
    _history: LoadHistory
    _manager_log: ManagerLog

    def deployment(self, session: str) -> Download:
        """Return what another node needs to join a session."""
        return deployment_download(joining_deployment(self._find(session)))

    def add_member(self, session: str, member: MemberRequest) -> None:
        """Have a node that is prepared become a member of a session."""
        self._owner.call("add_member", session=session, member=member)

    def rebalance(self, session: str) -> SessionInfo:
        """Have the members of a session end at about the same time."""
        self._owner.call("rebalance", session=session)
        return self._find(session).info()

    def force_continue(self, session: str) -> SessionInfo:
        """Have the members of a session that are left go on without a majority."""
        self._owner.call("force_continue", session=session)
        return self._find(session).info()

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove results of a session that is FINISHED, and copies of those of other nodes."""
        release_contents(self._find(session), rows)

    def node_history(self, node: str) -> NodeHistory:
        """Return the load of this node during the last hour."""
        if node != self.name:
            raise NotFoundError(f"there is no node {node!r} here", where=self.name, hint="see 'dropflow nodes'")
        return self._history.read()

    def manager_log(self, node: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of this node manager."""
        if node != self.name:
            raise NotFoundError(f"there is no node {node!r} here", where=self.name, hint="see 'dropflow nodes'")
        return self._manager_log.page(query)


_log = logging.getLogger(__name__)

_DEPLOY_SECONDS = 60.0
_KEPT = 20
"""Sessions that are over whose engines stay in memory."""


class NodeManager(MemberCalls):
    """`managers.api.Manager` of one host.

    Parameters
    ----------
    name : str
        Of this node, one of its own in the cluster.
    root : Path
        Where sessions have their directories; used by no other process.
    links_bind, links_advertise : str
        Where links listen and where others reach them, ``tcp://HOST:PORT`` (see `managers.links.Links`).
    key : ClusterKey or None
        Of the cluster; may be missing on loopback.
    runner : str
        Where applications run, one of `dropflow.runners.choice.RUNNERS`.
    workers : int or None
        Worker processes, which sessions share, or threads of each session; one per core by default.
    suspect_after, lost_after : float
        Seconds of silence after which another node is suspect, and lost.
    in_place : bool
        Whether to read files of other nodes where they lie, if they are seen from here.
    on_drained : callable
        Called in another thread when no session is left after `drain`, or its time is over: the process is to end.
    clock : Clock
        Time.

    Raises
    ------
    LinkError
        The address of the links cannot be listened on.
    StorageError
        `root` cannot be made or written.
    """

    role: Role = "node"

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
        super().__init__(name)
        self._clock = clock or SystemClock()
        self._root = root.absolute()
        self._manager_log = ManagerLog(name, self._root / MANAGER_LOG)
        self._workers = workers or len(os.sched_getaffinity(0))
        self._key = key
        self._url = ""
        self._last_acks = (link_settings or LinkSettings()).last_acks
        self._started = self._clock.now()
        sessions = self._root / "sessions"
        try:
            make_directories(sessions)
            finished = recover_all(sessions, name)
        except OSError as error:
            raise StorageError(f"cannot be made: {error.strerror}", where=str(self._root)) from error
        shm_directory.sweep()
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
        self._draining = machine.draining
        self._host = host = SessionHost(name, machine.table, directory=sessions, clock=self._clock)
        self._owner = Owner(machine, host.effects(), name=name, clock=self._clock)
        host.owner = self._owner
        host.links = self._links = Links(
            name,
            bind=links_bind,
            advertise=links_advertise,
            key=key,
            on_message=host.on_message,
            on_change=host.on_change,
            open_content=host.open_content,
            incarnation=incarnation,
            settings=link_settings,
            clock=self._clock,
        )
        host.resources = self._resources = ProcessResources(
            links=self._links,
            fetch_pool=FetchPool(self._links),
            file_watcher=FileWatcher(),
            clock=self._clock,
            runner=runner,
            pool=WorkerPool(self._workers, logs=self._root),
            in_place=in_place,
        )
        self._owner.start()
        self._processor_use = ProcessorUse(self._clock)
        self._history = LoadHistory(name, lambda: sample_of(self.nodes()[0], self._clock.now()))
        self._history.start()

    @property
    def links_address(self) -> str:
        """The address of the links of this node."""
        return self._links.address

    def set_url(self, url: str) -> None:
        """Set where the REST server of this manager is."""
        self._url = url

    # About itself.

    def info(self) -> ManagerInfo:
        """Return the description of this manager."""
        return manager_info(
            self.name,
            self.role,
            url=self._url,
            started=self._started,
            clock=self._clock,
            protocol=PROTOCOL,
            incarnation=self._links.incarnation,
            key=self._key.fingerprint if self._key is not None else "",
            root=str(self._root),
            findings=tuple(found.finding for found in self._host.sessions.values() if found.finding),
        )

    def status(self) -> ManagerStatus:
        """Return the nodes and sessions that a parent requests once per period."""
        return ManagerStatus.of(self.info(), self.nodes(), self.sessions())

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Return the description of this node."""
        sessions = tuple(self._host.sessions.values())
        return (
            NodeInfo(
                name=self.name,
                url=self._url,
                state=self._draining.state,
                links=self._links.address,
                incarnation=self._links.incarnation,
                version=__version__,
                host=socket.gethostname(),
                sessions=sum(not found.state.is_terminal for found in sessions),
                started=self._started,
                load=self._load(sessions),
            ),
        )

    def children(self) -> tuple[Child, ...]:
        """Return nothing: a node has no children."""
        return ()

    def add_child(self, url: str) -> Child:
        """Raise `UsageError`: a node has no children."""
        raise UsageError(f"{self.name} is a node manager, which has no children", where=url, hint="ask an island")

    def remove_child(self, url: str) -> None:
        """Raise `UsageError`: a node has no children."""
        raise UsageError(f"{self.name} is a node manager, which has no children", where=url, hint="ask an island")

    def drain(self, node: str, request: DrainRequest) -> DrainReply:
        """Give all sessions to their other nodes, and have the process end when none is left."""
        if node != self.name:
            raise NotFoundError(f"there is no node {node!r} here", where=self.name, hint="see 'dropflow nodes'")
        reply: DrainReply = self._owner.call("drain", node=node, request=request)
        self._owner.submit("drained").add_done_callback(lambda _: self._on_drained())
        return reply

    def drain_before_end(self, seconds: float) -> None:
        """Give all sessions to their other nodes before `close`, within so many seconds.

        Sessions without other nodes are cancelled at once.
        """
        if seconds > 0:
            with suppress(LinkError):  # when it was closed before
                self._owner.call("drain", node=self.name, request=DrainRequest(grace=seconds), is_ending=True)
                self._owner.call("drained")

    # Deployment.

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Run a whole graph on this node."""
        deployment = plan_deployment(graph, options, self.nodes(), clock=self._clock)
        self.prepare(deployment, seconds=_DEPLOY_SECONDS)
        self.start(deployment.session, deployment.epoch)
        return self.session(deployment.session)

    def prepare(self, deployment: Deployment, *, seconds: float) -> None:
        """Build the session of the slice of this node, and connect to its neighbours; run nothing."""
        self._owner.call("prepare", deployment=deployment, seconds=seconds)

    def start(self, session: str, epoch: int) -> None:
        """Run what was prepared."""
        self._owner.call("start", session=session, epoch=epoch)

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Take back a `prepare`."""
        self._owner.call("undo", session=session, epoch=epoch, reason=reason)

    # Sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all sessions, the youngest first."""
        found = [session.info() for session in self._host.sessions.values()]
        return tuple(sorted(found, key=lambda info: (-info.created, info.session)))

    def session(self, session: str) -> SessionDetail:
        """Return one session as it is now."""
        return self._find(session).detail()

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Return one session once it has changed."""
        self._owner.call("watch", session=session, version=version, seconds=seconds)
        return self._find(session).detail()

    def cancel(self, session: str, reason: str = "", grace: float = GRACE_SECONDS) -> SessionInfo:
        """Stop a session."""
        found: NodeSession | None = self._owner.call("cancel", session=session, reason=reason, grace=grace)
        if found is None:  # it was being prepared, and nothing of it is left
            text = CancelRequest(reason=reason).text
            return SessionInfo(session=session, graph="", status=SessionState.CANCELLED.name, text=text)
        return found.info()

    def resume(self, session: str, request: ResumeRequest) -> SessionInfo:
        """Continue a session that was stopped, on this node."""
        part = self.part_of(session, ignore_damage=request.ignore_damage)
        newest_holders(session, [part])
        deployment = plan_resumption(
            self.graph(session), [part], request, self.nodes(), now=self._clock.now(), after=self._find(session).epoch
        )
        self.prepare(deployment, seconds=_DEPLOY_SECONDS)
        self.start(session, deployment.epoch)
        return self.session(session)

    def retry(self, session: str, request: RetryRequest) -> SessionInfo:
        """Run failed drops of a session again, while it runs or after it has ended; or other drops of one that has."""
        if not request.start and not self._find(session).state.is_terminal:
            self._owner.call("retry", session=session, request=request)
            return self._find(session).info()
        if request.if_running:
            raise ConflictError(f"session {session!r} is over", where=self.name)
        return self.resume(session, request)

    def delete(self, session: str, *, epoch: int | None = None) -> None:
        """Stop a session, and remove all of its files."""
        self._owner.call("delete", session=session, epoch=epoch)

    def close(self) -> None:
        """Cancel all sessions, and stop. Idempotent."""
        self._history.close()
        self._previews.close()
        with suppress(LinkError):  # when it was closed before
            self._owner.call("close")
        self._owner.close()
        self._resources.pool.close()
        self._links.flush(self._last_acks)
        self._links.close()
        self._resources.fetch_pool.close()
        self._resources.file_watcher.close()

    def _all(self) -> Mapping[str, NodeSession]:
        return self._host.sessions

    def _load(self, sessions: tuple[NodeSession, ...]) -> Load:
        memory, disk = host_memory(), shutil.disk_usage(self._root)
        return Load(
            cores=len(os.sched_getaffinity(0)),
            workers=self._workers,
            busy=sum(found.info().running for found in sessions if not found.state.is_terminal),
            processor=self._processor_use.percent(),
            memory=int(memory.limit.bytes),
            memory_free=int(memory.free()),
            disk=disk.total,
            disk_free=disk.free,
            received=self._links.statistics().fetched,
        )
