"""What a node reports about a session in which nothing is at work on it any more, for its continuation."""

import msgspec

from managers.deployment import Deployment
from managers.recovery.records import ViewDecision

__all__ = ["StoppedPart"]


class StoppedPart(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of a session on one node.

    Attributes
    ----------
    node : str
        Name of the node.
    status : str
        Name of the session's `dropflow.states.SessionState` on this node.
    finding : str
        Why the copy cannot be used; empty if it can. Then the other fields are not set.
    deployment : Deployment or None
        What was deployed, without its graph.
    view : int
        Number of the view that the journal is of.
    decision : ViewDecision or None
        What was decided about that view; None for the first one.
    report : bytes
        The encoded `MemberReport`. Empty if the session is not over on this node.
    paused : bool
        Whether the session was paused.
    recomputed : int
        Drops that this node reported as computed again because contents were lost.
    notes : tuple of str
        Notes about the session so far.
    missing_inputs, changed_inputs, replaced_inputs : tuple of int
        Rows: see `dropflow.repeated_drops.OutsideInputs`.
    """

    node: str
    status: str
    finding: str = ""
    deployment: Deployment | None = None
    view: int = 0
    decision: ViewDecision | None = None
    report: bytes = b""
    paused: bool = False
    recomputed: int = 0
    notes: tuple[str, ...] = ()
    missing_inputs: tuple[int, ...] = ()
    changed_inputs: tuple[int, ...] = ()
    replaced_inputs: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing of the session is at work on the node."""
        return bool(self.report)

    @property
    def version(self) -> tuple[int, int]:
        """Deployment and view: the copy with the greater ones is the later one."""
        return (0 if self.deployment is None else self.deployment.epoch), self.view
