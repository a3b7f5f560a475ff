"""Carries out the decisions of `NodeMachine` about the sessions of a node, and passes on messages of other nodes."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dropflow.errors import BadFileError, ConflictError, DropflowError, GoneError, InternalError, LinkError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.continuation import FrozenSession
from dropflow.failure import summary_of
from dropflow.graph.codec import parse
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, empty_slice, slice_for, with_placement
from dropflow.ids import session_directory_name
from managers.deployment import Deployment
from managers.links import ContentSource, LinkChange, LinkEvent, ReceivedMessage
from managers.messages import CopyMessage, Events, Message, PartDone, RankMessage, SessionDone, StopSession, ViewMessage
from managers.node.copy_effects import CopyEffects
from managers.node.decisions.events import (
    AddNote,
    AllowFailure,
    Build,
    Built,
    CancelRecorded,
    CancelSession,
    Continued,
    ContinueSession,
    FinishSession,
    FreezeSession,
    LinkRefused,
    Log,
    LoseNode,
    NotBuilt,
    NotConnected,
    NotPlanned,
    PeerChanged,
    PeerEvent,
    PeerRestarted,
    PeerSent,
    PeersProbed,
    PeersRead,
    PeerStopped,
    Planned,
    PlanNextView,
    ProbePeers,
    ReadPeers,
    RecordCancel,
    Removed,
    RemoveSession,
    Retired,
    RetireSession,
    ShowWaiting,
    ShowWitness,
    SilenceSession,
    StartSession,
    WithdrawSession,
)
from managers.node.decisions.sessions import SessionTable
from managers.node.directory import SessionDirectory
from managers.node.finished_sessions import recover
from managers.node.hosted_session import HostedSession
from managers.node.resources import SessionResources
from managers.node.view_states import Beginning, held_copies, nothing_before
from managers.owner_thread import MachineOwner
from managers.recovery.records import decode_decision, unpack_column
from managers.recovery.replan import decide
from managers.recovery.vote import ConnectPeers, SendToPeer

_log = logging.getLogger(__name__)

_IS_DOWN: Mapping[LinkEvent, bool] = {LinkEvent.UP: False, LinkEvent.DOWN: True}


class SessionHost:
    """Builds, starts, stops and removes the sessions of a node, as its machine decides.

    Parameters
    ----------
    name : str
        Name of the node.
    table : SessionTable
        The table of sessions of the machine.
    directory : Path
        Directory of the sessions' directories.
    owner : MachineOwner
        The owner of the machine.
    resources : SessionResources
        Resources that sessions share.
    """

    def __init__(
        self, name: str, table: SessionTable, *, directory: Path, owner: MachineOwner, resources: SessionResources
    ) -> None:
        self._name = name
        self._table = table
        self._directory = directory
        self._owner = owner
        self._links = resources.links
        self._resources = resources

    @property
    def sessions(self) -> Mapping[str, Any]:
        """The instance of each visible session: hosted, finished or damaged. A snapshot."""
        return self._table.visible

    def effects(self) -> dict[type, Callable[[Any], None]]:
        """Return the functions that carry out the actions, by type, in the owner's thread."""
        return {
            Build: self._build,
            ConnectPeers: self._connect_peers,
            ReadPeers: self._read_peers,
            ProbePeers: lambda action: self._owner.work(lambda: PeersProbed(self._links.refused(action.addresses))),
            StartSession: lambda action: action.hosted.start(),
            RecordCancel: self._record_cancel,
            CancelSession: lambda action: action.hosted.cancel(action.request, has_thread=action.has_thread),
            LoseNode: lambda action: action.hosted.lose(action.node, action.failure, has_thread=action.has_thread),
            SendToPeer: lambda action: self._send(action.peer, action.message),
            FreezeSession: lambda action: action.hosted.freeze(action.shared, has_thread=action.has_thread),
            PlanNextView: self._plan,
            ContinueSession: self._continue,
            FinishSession: self._finish,
            ShowWaiting: lambda action: action.hosted.show_waiting(action.text, action.seconds),
            ShowWitness: lambda action: action.hosted.show_witness(is_lacking=action.is_lacking),
            SilenceSession: lambda action: action.hosted.silence(),
            AddNote: lambda action: action.hosted.note(action.text),
            AllowFailure: lambda action: action.fail(),
            RemoveSession: self._remove,
            WithdrawSession: self._withdraw,
            RetireSession: self._retire,
            Log: self._write_log,
            **CopyEffects(self._owner, self._send).effects(),
        }

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
            return Built(name, epoch, hosted, (*hosted.exchange.neighbours, *hosted.ranks.others()))

        self._owner.work(job, is_long=True)  # it may pull images

    def _hosted(self, deployment: Deployment) -> HostedSession:
        """Build a session, which takes seconds for millions of drops. In the thread of a job."""
        directory = SessionDirectory(self._directory / session_directory_name(deployment.session))
        if deployment.is_continuation:
            return self._continued(directory, deployment)
        directory.make()
        try:
            graph = _saved(directory, deployment)
            return HostedSession(
                (empty_slice if deployment.is_joining else slice_for)(graph, self._name),
                deployment,
                directory,
                resources=self._resources,
                report=self._owner.post,
            )
        except BaseException:
            directory.discard()
            raise

    def _continued(self, directory: SessionDirectory, deployment: Deployment) -> HostedSession:
        """Build a session that was over, from its directory. Until it begins, the files there stay."""
        decision = decode_decision(deployment.decision)
        graph, is_new = parse(deployment.dfg, where=deployment.session), not directory.path.exists()
        directory.next.settle()
        try:
            before, frozen, copies = self._before(directory, deployment, graph)
            if is_new:
                directory.make()
                directory.save(deployment)
            directory.next.discard()
            directory.remove_cancel()
            placed = with_placement(
                graph, unpack_column(decision.placement, np.uint16).astype(np.int32), decision.places
            )
            return HostedSession(
                directory.save_next(decision, placed, before, None if is_new else deployment),
                deployment,
                directory,
                resources=self._resources,
                report=self._owner.post,
                beginning=Beginning(decision, frozen, copies),
            )
        except BaseException:
            directory.next.discard()
            if is_new:
                directory.discard()
            raise

    def _before(
        self, directory: SessionDirectory, deployment: Deployment, graph: PhysicalGraph
    ) -> tuple[Slice, FrozenSession, dict[int, Handle]]:
        """Return the slice and the state with which a session continues on this node.

        Return also the copies of contents of other nodes, unless this node never began the latest view.
        """
        version = deployment.copies.get(self._name)
        if version is None:
            return (*nothing_before(graph, self._name), {})
        stopped = directory.stopped(self._name, ignore_damage=True)
        if stopped.version != version:
            raise ConflictError(
                f"session {deployment.session!r} was continued on node {self._name} meanwhile", hint="try again"
            )
        is_latest = version == max(deployment.copies.values())
        return stopped.piece, stopped.frozen, held_copies(stopped) if is_latest else {}

    def _send(self, peer: str, message: Message) -> None:
        """Send a message about the views or copies of a session. If the node is lost, the peer monitor finds that."""
        try:
            self._links.send(peer, message)
        except (LinkError, UsageError) as error:
            _log.info("node %s could not be sent %s: %s", peer, type(message).__name__, error)

    def _plan(self, action: PlanNextView) -> None:
        def job() -> Planned | NotPlanned:
            try:
                decision = decide(action.hosted.directory.graph_in_view(), action.plan)
            except Exception as error:  # noqa: BLE001 - the machine decides whether the session ends with it
                return NotPlanned(action.session, action.epoch, error)
            return Planned(action.session, action.epoch, action.plan.ballot, decision)

        self._owner.work(job)

    def _continue(self, action: ContinueSession) -> None:
        def job() -> Continued | None:
            try:
                action.hosted.continue_in(action.decision, action.copies, action.held)
            except Exception as error:  # noqa: BLE001 - the session ends with it
                context = {"session": action.session}
                _log.exception("session %s cannot go on after a loss", action.session, extra=context)
                action.hosted.end(error)
                return None
            return Continued(action.session, action.epoch, action.decision.view.number)

        self._owner.work(job)

    def _finish(self, action: FinishSession) -> None:
        action.hosted.ends = action.ends
        if action.has_thread:
            action.hosted.finish(has_thread=True)
        else:
            self._owner.work(lambda: action.hosted.finish(action.error))

    def _connect_peers(self, action: ConnectPeers) -> None:
        try:
            for place in action.places:
                self._links.connect(place.node, place.address, place.incarnation)
        except DropflowError as error:
            self._owner.post(NotConnected(action.session, action.epoch, error))

    def _read_peers(self, action: ReadPeers) -> None:
        del action
        self._owner.post(PeersRead(self._links.last_seen()))

    def _write_log(self, action: Log) -> None:
        level = logging.WARNING if action.is_warning else logging.INFO
        _log.log(level, "%s", action.text, extra={"session": action.session} if action.session else None)

    def _record_cancel(self, action: RecordCancel) -> None:
        def job() -> CancelRecorded:
            try:
                action.instance.directory.write_cancel(action.request)
            except Exception as error:  # noqa: BLE001 - the session is cancelled all the same
                text = "the cancellation of session %s was not written, so a restart of this node forgets it: %s"
                _log.warning(text, action.session, error, extra={"session": action.session})
            return CancelRecorded(action.session, action.epoch, action.call, action.request)

        self._owner.work(job)

    def _withdraw(self, action: WithdrawSession) -> None:
        def job() -> Removed:
            try:
                action.hosted.withdraw()
            except Exception as error:  # noqa: BLE001 - calls wait until it is withdrawn
                context = {"session": action.session}
                _log.warning("files of session %s were not removed: %s", action.session, error, extra=context)
            return Removed(action.session, action.epoch)

        self._owner.work(job)

    def _remove(self, action: RemoveSession) -> None:
        def job() -> Removed:
            try:
                action.instance.directory.remove()
            except Exception as error:  # noqa: BLE001 - `delete` raises it
                return Removed(action.session, action.epoch, error)
            self._links.close_content(action.session)
            return Removed(action.session, action.epoch)

        self._owner.work(job)

    def _retire(self, action: RetireSession) -> None:
        def job() -> Retired:
            try:
                finished = recover(action.hosted.directory, self._name)
            except Exception as error:  # noqa: BLE001 - whatever it is, the session is served from memory
                context = {"session": action.session}
                _log.warning("session %s stays in memory: %s", action.session, error, extra=context)
                finished = None
            return Retired(action.session, action.epoch, finished)

        self._owner.work(job)


def _saved(directory: SessionDirectory, deployment: Deployment) -> PhysicalGraph:
    """Write the graph of a deployment to its directory, and return it, mapped from the file.

    So the memory of this process does not hold the whole graph.
    """
    directory.save(deployment)
    graph = directory.graph()
    if graph.drops != deployment.drops:
        text = f"the graph has {graph.drops} drops, and its deployment {deployment.drops}"
        raise BadFileError(text, where=deployment.session)
    return graph


class LinkHandlers:
    """Passes on what links receive: messages, changes of links, and requests for contents. For the threads of links.

    Parameters
    ----------
    name : str
        Name of the node.
    table : SessionTable
        The sessions.
    post : callable
        Gives an event to the machine.
    """

    def __init__(self, name: str, table: SessionTable, post: Callable[[PeerEvent], None]) -> None:
        self._name = name
        self._table = table
        self._post = post

    def on_message(self, received: ReceivedMessage) -> None:
        """Pass on a message of another node."""
        message = received.message
        if isinstance(message, StopSession):
            stopped = PeerStopped(
                received.peer, message.session, message.epoch, message.reason, message.node, message.failure
            )
            self._post(stopped)
        elif isinstance(message, ViewMessage | PartDone | SessionDone | CopyMessage):
            self._post(PeerSent(received.peer, received.incarnation, message))
        elif isinstance(message, Events | RankMessage):
            hosted = self._table.visible.get(message.session)
            if isinstance(hosted, HostedSession) and hosted.epoch == message.epoch:
                hosted.receive(received.peer, message)
            else:
                _log.debug(
                    "node %s sent events of session %s, which is not on this node", received.peer, message.session
                )

    def on_change(self, change: LinkChange) -> None:
        """Pass on a change of a link."""
        match change.event:
            case LinkEvent.REFUSED:
                self._post(LinkRefused(change.peer, change.text))
            case LinkEvent.RESTARTED:
                self._post(PeerRestarted(change.peer, change.incarnation))
            case _:
                if change.event is LinkEvent.DOWN:
                    _log.info("the link to node %s is down: %s", change.peer, change.text)
                self._post(PeerChanged(change.peer, _IS_DOWN.get(change.event)))

    def open_content(self, session: str, drop: int, attempt: int, producer: int) -> ContentSource:
        """Open a content that another node fetches.

        Raises
        ------
        GoneError
            The session or the content has been removed.
        """
        hosted = self._table.visible.get(session)
        if not isinstance(hosted, HostedSession):
            raise GoneError(f"session {session!r} is not on node {self._name} any more")
        return hosted.exchange.source(drop, attempt, producer)
