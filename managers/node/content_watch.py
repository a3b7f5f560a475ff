"""Watches the contents of a session that other members hold copies of."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dropflow.data.survival import replicas_of, wanted_copies
from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import kept_drops
from dropflow.execution.decisions.events import Action, Event, Release
from dropflow.execution.session import Instrument
from dropflow.graph.slices import Slice
from managers.deployment import Deployment
from managers.node.decisions.events import CopiesReleased, CopiesWanted, ViewBegun
from managers.node.exchange import NodeExchange


class ContentWatch(Instrument):
    """Reports when the session has begun in its view, and which contents concern other members.

    These contents need copies there, or can be read there in place, or are released. Contents that outlive the session
    are never released.

    Parameters
    ----------
    deployment : Deployment
        The session, and which of its contents need copies.
    piece : Slice
        The drops of this node.
    exchange : NodeExchange
        Offers the contents.
    copied : set of int
        Rows of the whole graph whose contents have copies; changed in the session's thread.
    report : callable
        Takes the events.
    drains : bool
        Whether the node gives its sessions away: then each result needs a copy elsewhere before the session ends.
    """

    def __init__(
        self,
        deployment: Deployment,
        piece: Slice,
        exchange: NodeExchange,
        *,
        copied: set[int],
        report: Callable[[ViewBegun | CopiesWanted | CopiesReleased], None],
        drains: bool = False,
    ) -> None:
        self._session = deployment.session
        self._epoch = deployment.epoch
        self._protect = deployment.protect
        self._rows: Sequence[int] = piece.drop.data
        self._kept = kept_drops(piece.graph)
        self._drains = drains
        wanted = wanted_copies(piece.graph, self._kept, deployment.replicas)
        self._wanted: Sequence[int] = wanted.data if wanted.any() else b""
        self._alone = [replicas_of(template) == 1 for template in piece.graph.templates]
        self._template_of: Sequence[int] = np.ascontiguousarray(piece.graph.template).data
        self._before: Sequence[int] = np.ascontiguousarray(piece.graph.predecessors.ptr).data
        self._exchange = exchange
        self._copied = copied
        self._report = report
        self._has_begun = False

    def on_events(self, events: Sequence[Event]) -> None:
        """Report the first events: then the contents of earlier views are in place."""
        del events
        if not self._has_begun:
            self._has_begun = True
            self._report(ViewBegun(self._session, self._epoch, self._exchange.view))

    def on_contents(self, contents: Mapping[int, Handle], seconds: Mapping[int, float]) -> None:
        """Report contents that need copies, or that other members may read in place."""
        if not (self._wanted or self._protect or self._drains or self._exchange.contents.in_place):
            return
        counts: dict[int, int] = {}
        for drop, content in contents.items():
            if content.kind == "null":
                continue
            count = self._count(drop, seconds.get(drop, 0.0))
            # A node that takes over a drop without producers finds its content again.
            if count or (self._exchange.contents.is_outside(content) and self._is_written(drop)):
                counts[self._rows[drop]] = count
        if counts:
            self._report(CopiesWanted(self._session, self._epoch, counts))

    def _is_written(self, drop: int) -> bool:
        return self._before[drop + 1] > self._before[drop]

    def _count(self, drop: int, seconds: float) -> int:
        """Return how many copies of a content are wanted, from the seconds of its computation."""
        count = self._wanted[drop] if self._wanted else 0
        is_long = 0 < self._protect < seconds and not self._alone[self._template_of[drop]]
        return max(count, int(is_long or (self._drains and self._kept[drop] > 0)))

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
