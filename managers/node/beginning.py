"""How a session begins that was over, and how the files of a view take their places."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dropflow.engine.continuation import Continuation, FrozenSession
from dropflow.engine.events import Event
from dropflow.engine.instruments import Instrument
from dropflow.graph.slices import Slice
from managers.node.session_directory import SessionDirectory
from managers.node.view_states import continuation_in_view
from managers.recovery.records import ViewDecision

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
    """

    decision: ViewDecision
    frozen: FrozenSession

    def continuation(self, piece: Slice) -> Continuation:
        """Return the states and contents with which the session continues. No process of it is left."""
        return replace(continuation_in_view(self.frozen, self.decision, piece, {}), frozen=None)


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
