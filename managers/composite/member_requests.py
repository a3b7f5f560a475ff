"""Operations of a composite that change the members of sessions below it."""

from typing import cast

from dropflow.rest.log_records import LAST_LINES, LogPage, LogQuery
from dropflow.rest.manager_log import ManagerLog
from dropflow.rest.node_history import NodeHistory
from dropflow.rest.operation_records import MemberRequest
from dropflow.rest.schema import Download, SessionInfo
from managers.composite.content_queries import ContentQueries
from managers.deployment import Deployment, deployment_download

__all__ = ["MemberRequests"]


class MemberRequests(ContentQueries):
    """Asks the children for changes of members, in the threads of the callers."""

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

    def node_history(self, node: str) -> NodeHistory:
        """Return the load of a node below during the last hour."""
        return cast(NodeHistory, self._owner.call("node_history", node=node))

    def manager_log(self, node: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of this manager, or of a node or child below."""
        if node == self._manager_log.name:
            return self._manager_log.page(query)
        return cast(LogPage, self._owner.call("manager_log", node=node, query=query))
