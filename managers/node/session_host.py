"""Hosts the sessions of a node: carries out what `NodeMachine` decides."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dropflow.clock import Clock
from dropflow.engine.runners.pool import WorkerPool
from dropflow.errors import DropflowError, GoneError, InternalError, LinkError, UsageError
from dropflow.exception_text import summary_of
from dropflow.graph.slice_codec import parse_slice
from dropflow.ids import session_directory_name
from managers.deployment import Deployment
from managers.links import ContentSource, LinkChange, LinkEvent, Links, ReceivedMessage
from managers.messages import Events, StopSession
from managers.node.events import (
    Build,
    Built,
    CancelSession,
    ConnectPeers,
    LinkRefused,
    Log,
    LoseNode,
    NotBuilt,
    NotConnected,
    PeerChanged,
    PeerRestarted,
    PeersHeard,
    PeerStopped,
    ReadPeers,
    Removed,
    RemoveSession,
    Retired,
    RetireSession,
    StartSession,
)
from managers.node.fetch_pool import FetchPool
from managers.node.file_watcher import FileWatcher
from managers.node.hosted_session import HostedSession
from managers.node.machine import NodeMachine
from managers.node.session_recovery import recover
from managers.owner import Owner

__all__ = ["SessionHost"]

_log = logging.getLogger(__name__)


class SessionHost:
    """The machine of a node, the thread that owns it, and what its sessions share.

    Parameters
    ----------
    machine : NodeMachine
        Decides. Belongs to the host from now on.
    name : str
        Name of the node.
    sessions : Path
        Directory of the sessions' directories.
    open_links : callable
        Opens the links of this process, given `on_message`, `on_change` and `open_content` of `managers.links.Links`.
    pool : WorkerPool
        Worker processes, shared by the sessions.
    runner : str
        Where applications run, one of `dropflow.apps.runner_factory.RUNNERS`.
    in_place : bool
        Whether to read files of other nodes where they lie, if they are seen from here.
    clock : Clock
        Time.
    """

    def __init__(
        self,
        machine: NodeMachine,
        name: str,
        *,
        sessions: Path,
        open_links: Callable[..., Links],
        pool: WorkerPool,
        runner: str,
        in_place: bool,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._name = name
        self._directory = sessions
        self._pool = pool
        self._runner = runner
        self._in_place = in_place
        self._clock = clock
        self._file_watcher = FileWatcher()
        effects: Mapping[type, Callable[[Any], None]] = {
            Build: self._build,
            ConnectPeers: self._connect_peers,
            ReadPeers: self._read_peers,
            StartSession: lambda action: action.hosted.start(),
            CancelSession: lambda action: action.hosted.cancel(action.reason),
            LoseNode: lambda action: action.hosted.lose(action.node, action.failure),
            RemoveSession: self._remove,
            RetireSession: self._retire,
            Log: self._write_log,
        }
        self._owner = Owner(machine, effects, name=name, clock=clock)
        self.links = open_links(on_message=self._on_message, on_change=self._on_change, open_content=self._open)
        self._fetch_pool = FetchPool(self.links)
        self._owner.start()

    @property
    def sessions(self) -> Mapping[str, Any]:
        """The instance of each session that can be seen: hosted, finished or damaged. A snapshot."""
        return self._machine.table.visible

    def call(self, operation: str, /, **arguments: Any) -> Any:
        """Call an operation of the machine, and wait for its answer.

        Raises
        ------
        DropflowError
            See the operation.
        """
        return self._owner.call(operation, **arguments)

    def close(self) -> None:
        """Cancel all sessions, wait for their ends, tell the peers, and stop. Idempotent."""
        with suppress(LinkError):  # when it was closed before
            self._owner.call("close")
        self._owner.close()
        self._pool.close()
        self.links.flush(2.0)
        self.links.close()
        self._fetch_pool.close()
        self._file_watcher.close()

    # Effects, in the owner's thread.

    def _build(self, action: Build) -> None:
        deployment = action.deployment

        def job() -> Built | NotBuilt:
            name, epoch = deployment.session, deployment.epoch
            try:
                hosted = self._hosted(deployment)
            except Exception as error:  # noqa: BLE001 - `prepare` raises it
                return NotBuilt(name, epoch, error)
            except BaseException as error:  # noqa: BLE001 - a module that is imported may exit
                return NotBuilt(name, epoch, InternalError(f"session {name!r} cannot be built: {summary_of(error)}"))
            return Built(name, epoch, hosted, tuple(hosted.exchange.neighbours))

        self._owner.work(job)

    def _hosted(self, deployment: Deployment) -> HostedSession:
        """Build a session, which takes seconds for millions of drops. In the thread of a job."""
        piece = parse_slice(deployment.slices[self._name], where=deployment.session)
        if piece.node != self._name:
            raise UsageError(f"the slice is for node {piece.node}, not for {self._name}")
        return HostedSession(
            piece,
            deployment,
            self._directory / session_directory_name(deployment.session),
            links=self.links,
            fetch_pool=self._fetch_pool,
            file_watcher=self._file_watcher,
            clock=self._clock,
            runner=self._runner,
            pool=self._pool,
            in_place=self._in_place,
            report=self._owner.post,
        )

    def _connect_peers(self, action: ConnectPeers) -> None:
        try:
            for peer, address in action.addresses.items():
                self.links.connect(peer, address)
        except DropflowError as error:
            self._owner.post(NotConnected(action.session, action.epoch, error))

    def _read_peers(self, action: ReadPeers) -> None:
        del action
        self._owner.post(PeersHeard(self.links.last_seen()))

    def _write_log(self, action: Log) -> None:
        level = logging.WARNING if action.is_warning else logging.INFO
        _log.log(level, "%s", action.text, extra={"session": action.session} if action.session else None)

    def _remove(self, action: RemoveSession) -> None:
        def job() -> Removed:
            try:
                action.instance.directory.remove()
            except Exception as error:  # noqa: BLE001 - `delete` raises it
                return Removed(action.session, action.epoch, error)
            self.links.close_content(action.session)
            return Removed(action.session, action.epoch)

        self._owner.work(job)

    def _retire(self, action: RetireSession) -> None:
        def job() -> Retired:
            try:
                finished = recover(action.hosted.directory, self._name, self._clock)
            except Exception as error:  # noqa: BLE001 - whatever it is, the session is served from memory
                context = {"session": action.session}
                _log.warning("session %s stays in memory: %s", action.session, error, extra=context)
                finished = None
            return Retired(action.session, action.epoch, finished)

        self._owner.work(job)

    # The links' side, in their threads.

    def _on_message(self, received: ReceivedMessage) -> None:
        message = received.message
        if isinstance(message, StopSession):
            stopped = PeerStopped(
                received.peer, message.session, message.epoch, message.reason, message.node, message.failure
            )
            self._owner.post(stopped)
        elif isinstance(message, Events):
            hosted = self.sessions.get(message.session)
            if isinstance(hosted, HostedSession) and hosted.epoch == message.epoch:
                hosted.exchange.receive(received.peer, message)
            else:
                _log.debug("node %s sent events of session %s, which is not here", received.peer, message.session)

    def _on_change(self, change: LinkChange) -> None:
        match change.event:
            case LinkEvent.REFUSED:
                self._owner.post(LinkRefused(change.peer, change.text))
            case LinkEvent.RESTARTED:
                self._owner.post(PeerRestarted(change.peer, change.incarnation))
            case _:
                if change.event is LinkEvent.DOWN:
                    _log.info("the link to node %s is down: %s", change.peer, change.text)
                self._owner.post(PeerChanged(change.peer))

    def _open(self, session: str, drop: int, attempt: int, producer: int) -> ContentSource:
        hosted = self.sessions.get(session)
        if not isinstance(hosted, HostedSession):
            raise GoneError(f"session {session!r} is not on node {self._name} any more")
        return hosted.exchange.source(drop, attempt, producer)
