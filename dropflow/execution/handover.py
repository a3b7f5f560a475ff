"""The objects that a frozen session passes to the session that continues it in the same process."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import ContentTable
from dropflow.execution.decisions.continuation import FrozenSession, HandedOver, never_written
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Abort, KnownStates
from dropflow.execution.failure_table import FailureTable
from dropflow.execution.given_attempts import GivenAttempts
from dropflow.execution.interfaces import Exchange
from dropflow.execution.ready_attempts import ReadyRuns
from dropflow.execution.session_inputs import SessionInput, SessionInputs
from dropflow.states import DropState, SessionState


class Handover:
    """Collects the state of a frozen session from its objects. No thread may be at work in it.

    Parameters
    ----------
    core, contents, inputs, given, failures, ready, exchange :
        The objects of the session.
    known : KnownStates or None
        The states with which the session continues another one; None if it does not.
    """

    def __init__(
        self,
        core: Core,
        contents: ContentTable,
        inputs: SessionInputs,
        *,
        given: GivenAttempts,
        failures: FailureTable,
        ready: ReadyRuns,
        exchange: Exchange | None,
        known: KnownStates | None,
    ) -> None:
        self._known = known
        self._core = core
        self._contents = contents
        self._inputs = inputs
        self._given = given
        self._failures = failures
        self._ready = ready
        self._exchange = exchange

    def take_back(self) -> None:
        """Take back the attempts that the runner has not begun, so that another node may run them."""
        self._ready.take_back()

    def states(self) -> bytes:
        """Return the state of every drop: WRITING only if an attempt is with the runner and its result will count."""
        waiting, ahead = self._ready.drops | self._inputs.postponed, self._ahead()
        running = [drop for drop in self._core.drops.running if drop not in waiting and drop not in ahead]
        states = np.frombuffer(self._core.drops.states, dtype=np.uint8).copy()
        states[states == DropState.WRITING] = DropState.INITIALIZED
        states[running] = DropState.WRITING
        return states.tobytes()

    def parts(self) -> dict[int, dict[int, Handle]]:
        """Return the parts that are not contents yet, by producer and drop: of drops here, and on other nodes."""
        parts = self._contents.parts()
        for drop, producer, part in () if self._exchange is None else self._exchange.parts():
            parts.setdefault(producer, {})[drop] = part
        return parts

    def replaced(self) -> list[int]:
        """Return the drops here whose content another drop has replaced since."""
        return self._contents.replaced()

    def unwritten(self) -> npt.NDArray[np.bool_]:
        """Return the completed data drops to which nothing was ever written, so that they lack no content."""
        drops = self._core.drops
        written = np.frombuffer(self._contents.written, dtype=np.bool_)
        states = np.frombuffer(drops.states, dtype=np.uint8)
        is_unwritten = never_written(self._core.graph, states, written, self._known)
        is_unwritten[list(drops.remote)] = False
        return is_unwritten

    def forget(self, rows: Collection[int]) -> None:
        """Forget the contents of drops that a client has removed after the end."""
        for drop in rows:
            self._contents.contents.pop(drop, None)

    def durations(self) -> dict[int, tuple[int, float]]:
        """Return by template how many attempts have succeeded, and how many seconds they took together."""
        return dict(self._inputs.durations)

    def take(self, items: Sequence[SessionInput]) -> FrozenSession:
        """Return the state of the session, and abort the attempts that run or wait ahead of their inputs.

        Parameters
        ----------
        items : sequence of SessionInput
            Items that came in since the session was frozen. Events of other nodes are left out: they are sent again.
        """
        drops = self._core.drops
        states, parts = self.states(), self.parts()
        ahead = self._ahead()
        for drop in ahead:
            self._ready.abort(Abort(drop, drops.attempt(drop)))
        return FrozenSession(
            drops=drops,
            states=states,
            contents={drop: handle for drop, handle in self._contents.contents.items() if drop not in drops.remote},
            parts=parts,
            unwritten=frozenset(np.flatnonzero(self.unwritten()).tolist()),
            failures=self._failures.failures(),
            has_runner=True,
            in_flight=self._given.count,
            aborted=ahead,
            is_paused=self._core.status is SessionState.PAUSED,
            durations=self.durations(),
            items=tuple(item for item in items if isinstance(item, HandedOver)),
        )

    def _ahead(self) -> frozenset[int]:
        """Return the drops whose attempt is with the runner before its inputs are complete."""
        is_ahead = self._core.streaming.is_ahead
        return frozenset(drop for drop in self._core.drops.running if is_ahead(drop)) | self._given.ahead.keys()
