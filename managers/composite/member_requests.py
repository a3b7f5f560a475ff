"""Operations of a composite that change the members of sessions below it."""

from typing import cast

from dropflow.rest.schema import SessionInfo
from managers.composite.content_queries import ContentQueries
from managers.owner_thread import Owner

__all__ = ["MemberRequests"]


class MemberRequests(ContentQueries):
    """Asks the children for changes of members, in the threads of the callers.

    Parameters
    ----------
    owner : Owner
        Asks the children; see `managers.composite.composite_machine`.
    """

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self._member_owner = owner

    def rebalance(self, session: str) -> SessionInfo:
        """Have the members of a session end at about the same time."""
        return cast(SessionInfo, self._member_owner.call("rebalance", session=session))

    def force_continue(self, session: str) -> SessionInfo:
        """Have the members of a session that are left go on without a majority."""
        return cast(SessionInfo, self._member_owner.call("force_continue", session=session))
