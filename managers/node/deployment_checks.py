"""Checks of deployments that reach a node, and what is answered if they are of no use."""

from dropflow.errors import ConflictError, GoneError, RestartedError, UsageError
from dropflow.rest.operation_records import CancelRequest
from managers.deployment import Deployment
from managers.node.peer_monitor import PeerMonitor
from managers.node.session_table import Phase, SessionRecord

__all__ = ["cancelled_early", "is_connecting", "refuse_other_process", "to_continue"]


def refuse_other_process(deployment: Deployment, node: str, incarnation: int) -> None:
    """Refuse a deployment that is for another process.

    Raises
    ------
    UsageError
        It is not for this node.
    RestartedError
        It is for an earlier process of this node.
    """
    own = next((place for place in deployment.places if place.node == node), None)
    if own is None:
        raise UsageError(
            f"the deployment of {deployment.session!r} is not for node {node}",
            hint=f"it is for {', '.join(sorted(place.node for place in deployment.places)) or 'no node'}",
        )
    if own.incarnation != incarnation:
        raise RestartedError(
            f"node {node} was restarted after session {deployment.session!r} was planned for it",
            hint="submit the graph again",
        )


def to_continue(record: SessionRecord, deployment: Deployment) -> SessionRecord:
    """Return the session of a name that is there, if it is over and the deployment continues it.

    Raises
    ------
    ConflictError
        It is another session, it is not over, or it was deployed later.
    """
    if not deployment.is_continuation:
        raise ConflictError(
            f"there is a session {record.name!r} already, {record.status.name}",
            hint="delete it, or give the new one another name",
        )
    if not record.phase.is_quiet and record.phase not in (Phase.ENDING, Phase.RETIRING):
        raise ConflictError(
            f"session {record.name!r} cannot be continued: it is {record.status.name}",
            hint="try again when it is over",
        )
    if record.epoch >= deployment.epoch:
        raise ConflictError(f"session {record.name!r} was deployed again meanwhile", hint="look at its status")
    return record


def is_connecting(record: SessionRecord, peers: PeerMonitor) -> bool:
    """Return whether a session waits for peers that have never answered: if it is cancelled, nothing is left."""
    return record.phase is Phase.CONNECTING and bool(peers.missing(record.peers))


def cancelled_early(session: str, request: CancelRequest) -> GoneError:
    """Return what the deployer of a session gets that was cancelled while it was prepared."""
    why = f": {request.reason}" if request.reason else ""
    return GoneError(f"session {session!r} was cancelled before it started{why}")
