"""The node manager: hosts sessions on this host, and links them to their parts on others."""

import logging
import os
import shutil
import socket
import threading
from functools import partial
from pathlib import Path

import psutil

from dropflow.clock import Clock, SystemClock
from dropflow.engine.api import Handle
from dropflow.engine.runners.pool import WorkerPool
from dropflow.errors import (
    ConflictError,
    DropflowError,
    GoneError,
    LinkError,
    NotFoundError,
    RestartedError,
    StorageError,
    UsageError,
)
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slice_codec import parse_slice
from dropflow.graph.slices import Slice, join
from dropflow.graph.text_ids import oid, row_of
from dropflow.ids import drop_file_name, session_directory_name
from dropflow.rest.content_records import MEDIA_TYPE as CONTENTS
from dropflow.rest.content_records import ContentsRequest, write_records
from dropflow.rest.find_drop import find_drop
from dropflow.rest.manager_info import manager_info
from dropflow.rest.operation_records import FailureList, ResultList
from dropflow.rest.schema import (
    FIRST_PAGE,
    Child,
    Download,
    DropDetail,
    DropPage,
    DropQuery,
    Load,
    ManagerInfo,
    NodeInfo,
    PageQuery,
    Role,
    SessionDetail,
    SessionInfo,
    SubmitQuery,
)
from dropflow.version import __version__
from managers.composite.deployment_plan import plan_deployment
from managers.deployment import Deployment
from managers.keys import ClusterKey
from managers.links import ContentSource, LinkChange, LinkEvent, Links, LinkSettings, ReceivedMessage
from managers.messages import PROTOCOL, Events, StopSession
from managers.node import session_views
from managers.node.batch_download import batch
from managers.node.downloads import content_download, file_download
from managers.node.fetch_pool import FetchPool
from managers.node.file_watcher import FileWatcher
from managers.node.finished_sessions import DamagedSession, FinishedSession, find, restored
from managers.node.hosted_session import HostedSession
from managers.node.incarnation import next_incarnation
from managers.node.watch import PeerWatch

__all__ = ["NodeManager"]

_log = logging.getLogger(__name__)

_DEPLOY_SECONDS = 60.0
_KEPT = 20
"""Sessions that are over of which the state stays in memory."""
_REMEMBERED = 1000
"""Deployments that were taken back and may still be on their way here."""


class NodeManager:
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
        Where applications run, one of `dropflow.apps.runner_factory.RUNNERS`.
    workers : int or None
        Worker processes, which sessions share, or threads of each session; one per core by default.
    suspect_after, lost_after : float
        Seconds of silence after which another node is suspect, and lost.
    in_place : bool
        Whether to read files of other nodes where they lie, if they are seen from here.
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
        suspect_after: float = 3.0,
        lost_after: float = 15.0,
        in_place: bool = True,
        link_settings: LinkSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._root = root.absolute()
        self._workers = workers or len(os.sched_getaffinity(0))
        self._runner = runner
        self._in_place = in_place
        self._key = key
        self._url = ""
        self._started = self._clock.now()
        self._lock = threading.Lock()
        self._sessions: dict[str, HostedSession] = {}
        self._preparing: set[str] = set()
        self._undone: dict[tuple[str, int], None] = {}
        self._closed = False
        try:
            (self._root / "sessions").mkdir(parents=True, exist_ok=True)
            self._past = find(self._root / "sessions", name, self._clock)
        except OSError as error:
            raise StorageError(f"cannot be made: {error.strerror}", where=str(self._root)) from error
        incarnation = next_incarnation(self._root, self._clock)
        self._pool = WorkerPool(self._workers, logs=self._root)
        self._file_watcher = FileWatcher()
        self._links = Links(
            name,
            bind=links_bind,
            advertise=links_advertise,
            key=key,
            on_message=self._on_message,
            on_change=self._on_change,
            open_content=self._open,
            incarnation=incarnation,
            settings=link_settings,
            clock=self._clock,
        )
        self._fetch_pool = FetchPool(self._links)
        self._watch = PeerWatch(
            self._links, self._lost, suspect_after=suspect_after, lost_after=lost_after, clock=self._clock
        )
        psutil.cpu_percent()  # the next call says what happened in between

    @property
    def links_address(self) -> str:
        """Where other nodes reach this one."""
        return self._links.address

    def set_url(self, url: str) -> None:
        """Say where the REST server of this manager is."""
        self._url = url

    # About itself.

    def info(self) -> ManagerInfo:
        """About the manager itself."""
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
            findings=self._findings(),
        )

    def _findings(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(past.finding for past in self._past.values() if past.finding)

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Itself."""
        sessions = self._all()
        return (
            NodeInfo(
                name=self.name,
                url=self._url,
                links=self._links.address,
                incarnation=self._links.incarnation,
                version=__version__,
                host=socket.gethostname(),
                sessions=sum(not hosted.state.is_terminal for hosted in sessions),
                load=self._load(sessions),
            ),
        )

    def children(self) -> tuple[Child, ...]:
        """None."""
        return ()

    def add_child(self, url: str) -> Child:
        """Refuse."""
        raise UsageError(f"{self.name} is a node manager, which has no children", where=url, hint="ask an island")

    def remove_child(self, url: str) -> None:
        """Refuse."""
        raise UsageError(f"{self.name} is a node manager, which has no children", where=url, hint="ask an island")

    # Deployment.

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Run a whole graph on this node."""
        deployment = plan_deployment(graph, options, self.nodes(), clock=self._clock)
        self.prepare(deployment, seconds=_DEPLOY_SECONDS)
        self.start(deployment.session, deployment.epoch)
        return self.session(deployment.session)

    def prepare(self, deployment: Deployment, *, seconds: float) -> None:
        """Take the slice, build the session, connect to its neighbours; run nothing."""
        name = deployment.session
        data = deployment.slices.get(self.name)
        if data is None:
            raise UsageError(
                f"the deployment of {name!r} has no slice for node {self.name}",
                hint=f"it has {', '.join(sorted(deployment.slices)) or 'none'}",
            )
        own = next((place for place in deployment.places if place.node == self.name), None)
        if own is not None and own.incarnation != self._links.incarnation:
            raise RestartedError(
                f"node {self.name} was started again after session {name!r} was cut for it",
                hint="submit the graph again",
            )
        if not self._reserve(deployment):
            return
        try:
            # Takes seconds for millions of drops, in which others are answered.
            hosted = self._host(parse_slice(data, where=name), deployment)
            with self._lock:
                self._sessions[name] = hosted
        finally:
            with self._lock:
                self._preparing.discard(name)
        self._retire()
        try:
            self._watch.reach(
                hosted,
                {place.node: place for place in deployment.places if place.node in hosted.exchange.neighbours},
                seconds=seconds,
            )
        except DropflowError:
            self._forget(hosted)
            raise
        if hosted.state.is_terminal:
            self._watch.release(hosted)  # it ended before it was watched for
        if self._closed or (name, deployment.epoch) in self._undone:
            self._forget(hosted)
        if self._sessions.get(name) is not hosted:
            raise GoneError(f"session {name!r} was taken back while it was prepared", hint="submit the graph again")
        hosted.expect_start(seconds)

    def _reserve(self, deployment: Deployment) -> bool:
        """Take the name of a session for a deployment; False if that was prepared already."""
        name = deployment.session
        with self._lock:
            known = self._known(name)
            if self._closed:
                raise LinkError(f"node {self.name} is stopping")
            if isinstance(known, HostedSession) and known.epoch == deployment.epoch:
                return False
            if (name, deployment.epoch) in self._undone:
                raise GoneError(f"session {name!r} was taken back before it came", hint="submit the graph again")
            if known is not None or name in self._preparing:
                state = known.state.name if known is not None else "DEPLOYING"
                raise ConflictError(
                    f"there is a session {name!r} already, {state}", hint="delete it, or give the new one another name"
                )
            self._preparing.add(name)
        return True

    def start(self, session: str, epoch: int) -> None:
        """Run what was prepared."""
        hosted = self._find(session)
        if hosted.epoch != epoch:
            raise ConflictError(f"session {session!r} was deployed again", hint="look at its status")
        hosted.start()

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Take back a `prepare`."""
        with self._lock:
            hosted = self._sessions.get(session)
            # What is still on its way here must not come to life after this.
            self._undone[session, epoch] = None
            while len(self._undone) > _REMEMBERED:
                del self._undone[next(iter(self._undone))]
        if hosted is not None and hosted.epoch == epoch:
            _log.info("session %s is undone: %s", session, reason)
            self._forget(hosted)

    # Sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """All sessions, the youngest first."""
        with self._lock:
            past = tuple(self._past.values())
        found = [*(hosted.info() for hosted in self._all()), *(session.info() for session in past)]
        return tuple(sorted(found, key=lambda info: (-info.created, info.session)))

    def session(self, session: str) -> SessionDetail:
        """One session as it is now."""
        return self._find(session).detail()

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """One session, once it has changed."""
        return self._find(session).watch(version, seconds)

    def cancel(self, session: str, reason: str = "") -> SessionInfo:
        """Stop a session."""
        hosted = self._find(session)
        hosted.cancel(reason)
        return hosted.info()

    def delete(self, session: str) -> None:
        """Forget a session and remove everything it left behind."""
        found = self._find(session)
        if isinstance(found, HostedSession):
            self._forget(found)
            return
        found.remove()
        with self._lock:
            self._past.pop(session, None)

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """A page of the drops that match."""
        hosted = self._find(session)
        return session_views.page(hosted.session, hosted.piece, query, whole=hosted.whole)

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """One drop."""
        hosted, row = self._find(session), self._row(session, drop)
        return session_views.detail_of(hosted.session, hosted.piece, row, hosted.directory / "logs", query)

    def failures(self, session: str, query: PageQuery = FIRST_PAGE) -> FailureList:
        """A page of the root causes."""
        reports = self._find(session).session.call(lambda live: live.reports())
        return FailureList.page([session_views.failure_info(report, self.name) for report in reports], query)

    def log(self, session: str, drop: str) -> Download:
        """What a drop wrote to its log."""
        hosted = self._find(session)
        name = oid(hosted.piece.graph, self._row(session, drop))
        path = hosted.directory / "logs" / f"{drop_file_name(name)}.log"
        if not path.exists():
            raise NotFoundError(f"drop {name} has written no log", where=session)
        return file_download(path, f"{drop_file_name(name)}.log", "text/plain; charset=utf-8")

    def data(self, session: str, drop: str) -> Download:
        """Content of a data drop."""
        name, handle = self._content(session, self._row(session, drop))
        return content_download(handle, name)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Contents of many drops."""
        piece = self._find(session).piece
        if request.node != self.name:
            raise NotFoundError(f"this is node {self.name}, not {request.node}", where=session)

        def find(drop: int) -> tuple[str, Handle]:
            row = piece.local(drop)
            if row is None or not piece.is_own[row]:
                raise NotFoundError(f"the drop in row {drop} is not on node {self.name}", where=session)
            return self._content(session, row)

        chunks = write_records(batch(request.wanted, find))
        return Download(name=f"{session}-contents", content_type=CONTENTS, size=None, chunks=chunks)

    def _content(self, session: str, row: int) -> tuple[str, Handle]:
        """Return the name of a drop as part of a path, and its content."""
        hosted = self._find(session)
        name = oid(hosted.piece.graph, row)
        handle = hosted.session.call(lambda live: live.handle(row))
        if handle is None:
            state = hosted.session.call(lambda live: live.core.drops.state(row)).name
            if state == "COMPLETED" and isinstance(hosted, FinishedSession):
                raise GoneError(
                    f"the content of drop {name} {hosted.why_gone(row)}",
                    where=session,
                    hint="submit the graph again; set persist on its node to keep it",
                )
            if state == "COMPLETED":
                raise GoneError(
                    f"the content of drop {name} was released after its last consumer",
                    where=session,
                    hint="set persist on its node to keep it",
                )
            raise NotFoundError(f"drop {name} has no content: it is {state}", where=session)
        return drop_file_name(name), handle

    def results(self, session: str) -> ResultList:
        """What the session left for people."""
        hosted = self._find(session)
        held = hosted.session.call(lambda live: live.held())
        return ResultList(results=session_views.results(hosted.piece, held, hosted.directory))

    def journal(self, session: str) -> Download:
        """The journal."""
        hosted = self._find(session)
        return file_download(hosted.directory / "journal.dfj", f"{session}.dfj", "application/octet-stream")

    def graph(self, session: str) -> PhysicalGraph:
        """The drops that are here."""
        return join([self._find(session).piece])

    def slices(self, session: str) -> tuple[Slice, ...]:
        """What is here of the session's graph."""
        return (self._find(session).piece,)

    def close(self) -> None:
        """Cancel all sessions, say goodbye, and stop. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            hosted_sessions = tuple(self._sessions.values())
        for hosted in hosted_sessions:
            hosted.cancel(f"node {self.name} is stopping")
        for hosted in hosted_sessions:
            try:
                hosted.stop()
            except DropflowError as error:
                _log.warning("%s", error)
        self._pool.close()
        self._watch.close()
        self._links.flush(2.0)
        self._links.close()
        self._fetch_pool.close()
        self._file_watcher.close()

    # The links' side.

    def _on_message(self, delivery: ReceivedMessage) -> None:
        message = delivery.message
        if not isinstance(message, Events | StopSession):
            return
        hosted = self._sessions.get(message.session)
        if hosted is None or hosted.epoch != message.epoch:
            _log.debug("node %s speaks of session %s, which is not here", delivery.peer, message.session)
            return
        if isinstance(message, StopSession):
            if message.failure is None:
                hosted.cancel(message.reason or f"cancelled on node {delivery.peer}")
            else:
                hosted.lose(message.node, message.failure)
            return
        hosted.exchange.receive(delivery.peer, message)

    def _on_change(self, change: LinkChange) -> None:
        if change.event is LinkEvent.DOWN:
            _log.info("the link to node %s is down: %s", change.peer, change.text)
        self._watch.on_change(change)

    def _lost(self, peer: str, before: int, why: str) -> None:
        for hosted in self._all():
            if peer in hosted.exchange.neighbours:
                failure = Failure(
                    code=LinkError.code,
                    kind="NodeLost",
                    text=f"node {peer} is lost: {why}",
                    hint=f"look at the log of node {peer}; start it again, and submit the graph again",
                    retryable=True,
                )
                hosted.lose(peer, failure, before=before)

    def _open(self, session: str, drop: int, attempt: int, producer: int) -> ContentSource:
        hosted = self._sessions.get(session)
        if hosted is None:
            raise GoneError(f"session {session!r} is not on node {self.name} any more")
        return hosted.exchange.source(drop, attempt, producer)

    # Its sessions.

    def _host(self, piece: Slice, deployment: Deployment) -> HostedSession:
        if piece.node != self.name:
            raise UsageError(f"the slice is for node {piece.node}, not for {self.name}")
        return HostedSession(
            piece,
            deployment,
            self._root / "sessions" / session_directory_name(deployment.session),
            links=self._links,
            fetch_pool=self._fetch_pool,
            file_watcher=self._file_watcher,
            clock=self._clock,
            runner=self._runner,
            pool=self._pool,
            in_place=self._in_place,
            on_end=self._over,
        )

    def _over(self, hosted: HostedSession) -> None:
        self._watch.release(hosted)

    def _retire(self) -> None:
        """Let go of the state of older sessions that are over: their directories tell the same."""
        with self._lock:
            done = [hosted for hosted in self._sessions.values() if hosted.is_done]
        for hosted in done[: max(len(done) - _KEPT, 0)]:
            try:
                past = restored(hosted.directory, self.name, self._clock)
            except DropflowError as error:
                _log.warning("session %s stays in memory: %s", hosted.name, error, extra={"session": hosted.name})
                continue
            with self._lock:
                if self._sessions.get(hosted.name) is hosted:
                    del self._sessions[hosted.name]
                    self._past[hosted.name] = past

    def _forget(self, hosted: HostedSession) -> None:
        hosted.remove()
        with self._lock:
            if self._sessions.get(hosted.name) is hosted:
                del self._sessions[hosted.name]
        self._links.close_content(hosted.name)

    def _known(self, session: str) -> HostedSession | FinishedSession | DamagedSession | None:
        return self._sessions.get(session) or self._past.get(session)

    def _find(self, session: str) -> HostedSession | FinishedSession | DamagedSession:
        found = self._known(session)
        if found is None:
            raise NotFoundError(f"there is no session {session!r} on node {self.name}")
        return found

    def _row(self, session: str, drop: str) -> int:
        """Return the row in the slice of the drop that `drop` names."""
        piece = self._find(session).piece
        row = row_of(piece.graph, drop)
        if row is None:
            row = row_of(piece.graph, find_drop(partial(self.drops, session), drop, session=session).oid)
        if row is None or not piece.is_own[row]:
            raise NotFoundError(f"drop {drop!r} is not on node {self.name}", where=session)
        return row

    def _all(self) -> tuple[HostedSession, ...]:
        with self._lock:
            return tuple(self._sessions.values())

    def _load(self, sessions: tuple[HostedSession, ...]) -> Load:
        memory, disk = psutil.virtual_memory(), shutil.disk_usage(self._root)
        return Load(
            cores=len(os.sched_getaffinity(0)),
            workers=self._workers,
            busy=sum(hosted.info().running for hosted in sessions if not hosted.state.is_terminal),
            processor=psutil.cpu_percent(),
            memory=memory.total,
            memory_free=memory.available,
            disk=disk.total,
            disk_free=disk.free,
        )
