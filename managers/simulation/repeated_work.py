"""How much of a session may run again because of losses, and how much did: counted by rules of its own."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from dropflow.engine.session import Session
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.states import DropState
from managers.node.hosted_session import HostedSession
from managers.recovery.records import ViewDecision, unpack_column
from managers.simulation.random_sessions import RandomGraph
from managers.simulation.recorder import Recorder

__all__ = ["RepeatedWork"]

_SETTLED = (int(DropState.COMPLETED), int(DropState.ERROR), int(DropState.SKIPPED))


class RepeatedWork:
    """The attempts of one session that have a reason to run again.

    A drop may run again once for each view that resets it, and for each in which it changes its node without being
    known to be settled. One whose failure is tried again has all of its tries again. No view may reset a drop whose
    content is there.

    Parameters
    ----------
    session : str
        Name of the session.
    drawn : RandomGraph
        Its graph.
    starts : mapping of (str, str) to int
        How often each task starts in a run without faults.
    """

    def __init__(self, session: str, drawn: RandomGraph, starts: Mapping[tuple[str, str], int]) -> None:
        self._session = session
        self._drawn = drawn
        self._starts = {drop: count for (name, drop), count in starts.items() if name == session}
        self._reasons: Counter[str] = Counter()

    @property
    def most(self) -> int:
        """How many attempts may have been repeated."""
        return sum(self._reasons.values())

    def decided(self, graph: PhysicalGraph, decision: ViewDecision, hosted: Mapping[str, HostedSession]) -> list[str]:
        """Take in a decision, before it is carried out anywhere; return what is wrong with it.

        Parameters
        ----------
        graph : PhysicalGraph
            The whole graph, as it is placed in the view that ends.
        hosted : mapping of str to HostedSession
            The session on each node that lives.
        """
        members = {place.node for place in decision.view.members}
        is_kept = np.array([place in members for place in graph.places], dtype=np.bool_)[graph.part]
        reset = unpack_column(decision.reset, np.int32).astype(np.int64)
        taken_over = unpack_column(decision.taken_over, np.uint8)
        settled = np.isin(taken_over, _SETTLED) if len(taken_over) else np.ones(graph.drops, dtype=np.bool_)
        again = ~is_kept & ~settled
        again[reset] = True
        self._reasons.update(oid(graph, row) for row in np.flatnonzero(again).tolist())
        for row in unpack_column(decision.repeated, np.int32).tolist():
            self._reasons[oid(graph, row)] += max(1, self._starts.get(oid(graph, row), 1))
        there: dict[int, str] = {}
        for node, one in hosted.items():
            if node in members:
                rows, is_own = one.piece.drop, one.piece.is_own
                contents = one.session.call(Session.contents)
                there |= {int(rows[row]): node for row in contents if is_own[row]}
        names = [f"{oid(graph, row)} on {there[row]}" for row in reset.tolist() if row in there]
        if not names:
            return []
        return [f"session {self._session}: view {decision.view.number} resets drops that are there: {', '.join(names)}"]

    def again(self, recorder: Recorder) -> int:
        """Return how many attempts were repeated."""
        return sum(max(0, self._count(recorder, drop) - count) for drop, count in self._starts.items())

    def excess(self, recorder: Recorder, *, may_fail: bool) -> list[str]:
        """Return which drops ran more often than they had a reason to.

        Parameters
        ----------
        may_fail : bool
            Whether attempts may have failed because of a full disk, and been tried again.
        """
        if may_fail or self._drawn.has_streams:
            return []  # attempts that read a stream start over with the one that writes it
        return [
            f"session {self._session}: {drop} started {self._count(recorder, drop)} times; "
            f"{count} without faults, and {self._reasons[drop]} reasons to run again"
            for drop, count in self._starts.items()
            # The last attempt of a drop that always fails may have no end, and so counts once.
            if self._count(recorder, drop) > count + self._reasons[drop] + (drop in self._drawn.failing)
        ]

    def _count(self, recorder: Recorder, drop: str) -> int:
        return recorder.starts[self._session, drop]
