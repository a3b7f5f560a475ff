"""Operations that change the members of the sessions of a node: part of `NodeMachine`. Pure decisions."""

from collections.abc import Callable
from itertools import count

from managers.node.session_table import SessionRecord
from managers.node.view_changes import ViewChanges
from managers.recovery.records import RequestedChange

__all__ = ["MemberOperations"]


class MemberOperations:
    """The operations of one node.

    Parameters
    ----------
    process : str
        Name and incarnation of the node, which no other process has.
    views : ViewChanges
        Asks for changes.
    visible : callable
        Returns the record of a session by its name, or raises `NotFoundError`.
    """

    def __init__(self, process: str, views: ViewChanges, visible: Callable[[str], SessionRecord]) -> None:
        self._process = process
        self._views = views
        self._visible = visible
        self._numbers = count(1)

    def rebalance(self, call: int, now: float, *, session: str) -> None:
        """Move what has not begun, so that all members end at about the same time; answered when that is decided."""
        self._views.request(self._visible(session), call, self._change(is_rebalancing=True), now)

    def _change(self, *, is_rebalancing: bool = False) -> RequestedChange:
        return RequestedChange(f"{self._process}:{next(self._numbers)}", is_rebalancing=is_rebalancing)
