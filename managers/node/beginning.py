"""How a session begins that was over, and how the files of a view take their places."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dropflow.data.repository import LocalRepository
from dropflow.engine.api import Handle
from dropflow.engine.continuation import Continuation, FrozenSession
from dropflow.engine.events import Event
from dropflow.engine.instruments import Instrument
from dropflow.graph.slices import Slice
from dropflow.states import DropState
from managers.node.copy_records import CopyRecords
from managers.node.session_directory import SessionDirectory
from managers.node.view_states import adopt_copies, continuation_in_view
from managers.recovery.records import ViewDecision, unpack_column

__all__ = ["Beginning", "NextViewBegins"]


@dataclass(frozen=True)
class Beginning:
    """With what a session continues that was over.

    Attributes
    ----------
    decision : ViewDecision
        Its next view.
    frozen : FrozenSession
        What this node has of it.
    copies : mapping of int to Handle
        The copies that it has of contents of other nodes, by row of the whole graph.
    """

    decision: ViewDecision
    frozen: FrozenSession
    copies: Mapping[int, Handle] = field(default_factory=dict)

    def _adoptable(self) -> dict[int, Handle]:
        """Return the copies that may become contents: those of drops that moved, and are kept."""
        states = unpack_column(self.decision.taken_over, np.uint8)
        reset = {*unpack_column(self.decision.reset, np.int32).tolist()}
        if not len(states):
            return {}
        return {
            row: copy for row, copy in self.copies.items() if states[row] == DropState.COMPLETED and row not in reset
        }

    def continuation(
        self, piece: Slice, repository: LocalRepository, directory: SessionDirectory
    ) -> tuple[Continuation, list[str]]:
        """Return the states and contents with which the session continues, and what went wrong with copies.

        No process of the session is left. Copies become the contents of drops that are now here; if the session does
        not begin, they are copies again.
        """
        adopted, problems = adopt_copies(repository, piece, self._adoptable())
        records = CopyRecords(directory.path)
        for drop, content in adopted.items():
            records.moved(int(piece.drop[drop]), content)
        return replace(continuation_in_view(self.frozen, self.decision, piece, adopted), frozen=None), problems


class NextViewBegins(Instrument):
    """Puts the files of a view in their place as soon as its journal has begun."""

    def __init__(self, directory: SessionDirectory) -> None:
        self._directory = directory
        self._is_done = False

    def on_events(self, events: Sequence[Event]) -> None:
        """Do it with the first events, which are in the journal now."""
        del events
        if not self._is_done:
            self._is_done = True
            self._directory.next.settle()
