"""The effects on sessions of a node when other nodes stop, restart or are lost: part of `NodeMachine`.

`peer_monitor` finds the lost nodes. Each session that needs one of them goes on in another view, or fails.
"""

from collections.abc import Callable, Iterable

from dropflow.api.requests import CancelRequest
from managers.node.decisions.events import (
    Action,
    LinkRefused,
    Log,
    PeerChanged,
    PeerEvent,
    PeerRestarted,
    PeersProbed,
    PeersRead,
    PeerStopped,
    ReadPeers,
)
from managers.node.decisions.lifecycle import Lifecycle
from managers.node.decisions.members import MemberOperations
from managers.node.decisions.peer_monitor import Loss, PeerMonitor
from managers.node.decisions.sessions import Phase, SessionRecord, SessionTable
from managers.node.decisions.view_changes import ViewChanges
from managers.recovery.records import CAN_RESUME, node_lost


class PeerLosses:
    """Continues the sessions of one node, or lets them fail, when other nodes are lost.

    Parameters
    ----------
    table, peers, sessions, views, members, actions :
        The parts of its machine.
    stop : callable
        Cancels a session.
    """

    def __init__(
        self,
        *,
        table: SessionTable,
        peers: PeerMonitor,
        sessions: Lifecycle,
        views: ViewChanges,
        members: MemberOperations,
        stop: Callable[[SessionRecord, float, CancelRequest], None],
        actions: list[Action],
    ) -> None:
        self._table = table
        self._peers = peers
        self._sessions = sessions
        self._views = views
        self._members = members
        self._stop = stop
        self._actions = actions

    def on_peers(self, event: PeerEvent, now: float) -> None:
        """Take in an event about other nodes."""
        match event:
            case PeersRead():
                self._update_peers(event, now)
            case PeerChanged():
                self._peers.note_connection(event.peer, is_down=event.is_down)
                self._check_connecting()
            case LinkRefused():
                self._peers.note_refusal(event.peer, event.text)
                self._check_connecting()
            case PeerRestarted():
                if event.peer in self._peers.needed:
                    again = "its process was started again"
                    self.lose([Loss(event.peer, event.incarnation, again, is_final=True)], now)
                self._check_connecting()
            case PeersProbed():
                self.lose(self._peers.note_probes(event.refused, now), now)
            case PeerStopped():
                self._peer_stopped(event, now)

    def _peer_stopped(self, event: PeerStopped, now: float) -> None:
        """Another node gave up a session: it was cancelled there, or lost a node, or failed."""
        record = self._table.get(event.session, event.epoch)
        if record is None or (record.member is not None and event.peer not in record.peers):
            return  # the session goes on without that node
        if event.failure is None:
            self._stop(record, now, CancelRequest(reason=event.reason))
        elif event.node != event.peer or not self._views.lose(
            record, event.peer, event.failure.text, now, is_final=True
        ):
            self._sessions.fail(record, now, event.node, event.failure)

    def _check_connecting(self) -> None:
        if any(record.phase is Phase.CONNECTING for record in self._table):
            self._actions.append(ReadPeers())

    def _update_peers(self, event: PeersRead, now: float) -> None:
        paused = self._peers.paused
        losses = self._peers.update(event.last_received, now)
        if self._peers.needed and self._peers.paused > paused:
            self._actions.append(Log(f"this process was paused for {self._peers.paused - paused:.1f} s"))
        self.lose(losses, now)
        for record in self._table:
            if record.phase is not Phase.CONNECTING:
                continue
            missing = self._peers.find_missing(record.peers)
            trouble = self._peers.why_unreachable(missing)
            if not missing:
                self._sessions.prepared(record, now)
            elif trouble is not None:
                self._sessions.withdraw(record, now, trouble)

    def take(self, now: float) -> None:
        """Process the views that were adopted, and the losses that were found with them."""
        self._members.take_adopted(now)
        while self._views.losses:
            losses, self._views.losses = self._views.losses, []
            self.lose(losses, now)

    def lose(self, losses: Iterable[Loss], now: float) -> None:
        """Change the views of the sessions that need a process of a lost peer; sessions that cannot go on fail."""
        for loss in losses:
            self._actions.append(Log(f"node {loss.peer} is lost: {loss.reason}"))
            failure = node_lost(f"node {loss.peer} is lost: {loss.reason}", f"look at its log; {CAN_RESUME}")
            for record in self._table:
                place = record.peers.get(loss.peer) or record.witnesses.get(loss.peer)
                if place is None or place.incarnation >= loss.before:
                    continue
                goes_on = self._views.lose(record, loss.peer, loss.reason, now, is_final=loss.is_final)
                if not goes_on and loss.peer not in record.witnesses:
                    self._sessions.fail(record, now, loss.peer, failure)
