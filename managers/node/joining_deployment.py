"""What a node needs to join a session that runs here."""

import msgspec

from dropflow.errors import ConflictError
from dropflow.graph.codec import dump
from managers.deployment import Deployment
from managers.node.hosted_session import HostedSession
from managers.node.over import DamagedSession, FinishedSession
from managers.recovery.records import FEWEST_VOTERS

__all__ = ["joining_deployment"]


def joining_deployment(found: HostedSession | FinishedSession | DamagedSession) -> Deployment:
    """Return the session with its graph as it is placed now, and its members.

    Raises
    ------
    ConflictError
        The session does not run, or its nodes cannot change.
    GoneError
        Its files cannot be read.
    """
    node = found.piece.node
    if not isinstance(found, HostedSession) or found.state.is_terminal:
        raise ConflictError(f"session {found.name!r} is {found.state.name}: no node can join it", where=node)
    view = found.view
    if not view.members or len(view.members) + 1 + len(view.witnesses) < FEWEST_VOTERS:
        text = f"session {found.name!r} would have fewer than {FEWEST_VOTERS} voters: no node can join it"
        raise ConflictError(text, where=node)
    with found.directory.gone_if_unreadable(node):
        dfg = b"".join(dump(found.directory.graph_in_view()))
    return msgspec.structs.replace(
        found.deployment,
        view=view.number,
        places=view.members,
        witnesses=view.witnesses,
        nodes=(),
        notes=(),
        decision=b"",
        copies={},
        is_joining=False,
        dfg=dfg,
    )
