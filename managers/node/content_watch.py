"""Watches the contents of a session that other members hold copies of."""

from collections.abc import Callable, Sequence

from dropflow.engine.content_table import kept_drops
from dropflow.engine.events import Action, Event, Release
from dropflow.engine.instruments import Instrument
from dropflow.graph.slices import Slice
from managers.node.copy_events import CopiesReleased, ViewBegun
from managers.node.exchange import NodeExchange

__all__ = ["ContentWatch"]


class ContentWatch(Instrument):
    """Reports when the session has begun in its view, and which contents with copies are released.

    Contents that outlive the session are never released.

    Parameters
    ----------
    session, epoch :
        Name and deployment of the session.
    piece : Slice
        The drops of this node.
    exchange : NodeExchange
        Offers the contents.
    copied : set of int
        Rows of the whole graph whose contents have copies; changed in the session's thread.
    report : callable
        Takes the events.
    """

    def __init__(
        self,
        session: str,
        epoch: int,
        piece: Slice,
        exchange: NodeExchange,
        *,
        copied: set[int],
        report: Callable[[ViewBegun | CopiesReleased], None],
    ) -> None:
        self._session = session
        self._epoch = epoch
        self._rows: Sequence[int] = piece.drop.data
        self._kept = kept_drops(piece.graph)
        self._exchange = exchange
        self._copied = copied
        self._report = report
        self._has_begun = False

    def on_events(self, events: Sequence[Event]) -> None:
        """Report the first ones: the contents of earlier views are there."""
        del events
        if not self._has_begun:
            self._has_begun = True
            self._report(ViewBegun(self._session, self._epoch, self._exchange.view))

    def on_actions(self, actions: Sequence[Action]) -> None:
        """Report releases."""
        if not self._copied:
            return
        drops = [action.drop for action in actions if isinstance(action, Release) and not self._kept[action.drop]]
        released = tuple(row for drop in drops if (row := self._rows[drop]) in self._copied)
        if released:
            self._copied.difference_update(released)
            self._exchange.contents.withdraw_for_copies(released)
            self._report(CopiesReleased(self._session, self._epoch, released))
