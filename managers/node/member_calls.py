"""The operations of a node manager on the nodes and the results of sessions, in the thread of the caller."""

from collections.abc import Sequence

from dropflow.errors import NotFoundError
from dropflow.logs.manager_log import ManagerLog
from dropflow.logs.records import LAST_LINES, LogPage, LogQuery
from dropflow.rest.download import Download
from dropflow.rest.node_history import NodeHistory
from dropflow.rest.operation_records import MemberRequest
from dropflow.rest.session_records import SessionInfo
from managers.deployment import deployment_download
from managers.node.joining_deployment import joining_deployment
from managers.node.load_history import LoadHistory
from managers.node.release import release_contents
from managers.node.session_queries import SessionQueries
from managers.owner_thread import Owner

__all__ = ["MemberCalls"]


class MemberCalls(SessionQueries):
    """`managers.node.member_operations.MemberOperations` and others, as methods of `managers.api.Manager`."""

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
