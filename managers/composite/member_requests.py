"""Operations of a composite that change the members, or the results, of sessions below it."""

from collections.abc import Sequence
from typing import cast

from dropflow.errors import ConflictError, LinkError
from dropflow.logs.manager_log import ManagerLog
from dropflow.logs.records import LAST_LINES, LogPage, LogQuery
from dropflow.rest.download import Download
from dropflow.rest.node_history import NodeHistory
from dropflow.rest.operation_records import MemberRequest
from dropflow.rest.session_records import SessionInfo
from dropflow.states import SessionState
from managers.composite.content_queries import ContentQueries
from managers.deployment import Deployment, deployment_download

__all__ = ["MemberRequests"]

_LONG = 30.0
"""Seconds to wait until children have removed many files."""


class MemberRequests(ContentQueries):
    """Asks the children for changes of members and results, in the threads of the callers."""

    _manager_log: ManagerLog

    def deployment(self, session: str) -> Download:
        """Return what another node needs to join a session."""
        return deployment_download(cast(Deployment, self._owner.call("deployment", session=session)))

    def add_member(self, session: str, member: MemberRequest) -> None:
        """Have a node that is prepared become a member of a session."""
        self._owner.call("add_member", session=session, member=member)

    def rebalance(self, session: str) -> SessionInfo:
        """Have the members of a session end at about the same time."""
        return cast(SessionInfo, self._owner.call("rebalance", session=session))

    def force_continue(self, session: str) -> SessionInfo:
        """Have the members of a session that are left go on without a majority."""
        return cast(SessionInfo, self._owner.call("force_continue", session=session))

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove results of a session that is FINISHED, on all children that answer.

        Raises
        ------
        ConflictError
            The session is not FINISHED.
        LinkError
            A child with a part of the session did not answer. It was done on the others.
        """
        status = self._owner.call("session", session=session).status
        if status != SessionState.FINISHED.name:
            raise ConflictError(f"session {session!r} is {status}, and not FINISHED: its results are not released")
        found = self._ask(session, "release", _LONG, rows=tuple(rows))
        found.replies.raise_unless_answered(f"session {session!r}")
        if found.replies.refusals:
            raise found.replies.refusals[0][1]
        if found.missing:
            names = ", ".join(found.missing)
            raise LinkError(f"the results are released, but not on {names}, which did not answer", where=session)

    def node_history(self, node: str) -> NodeHistory:
        """Return the load of a node below during the last hour."""
        return cast(NodeHistory, self._owner.call("node_history", node=node))

    def manager_log(self, node: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of this manager, or of a node or child below."""
        if node == self._manager_log.name:
            return self._manager_log.page(query)
        return cast(LogPage, self._owner.call("manager_log", node=node, query=query))
