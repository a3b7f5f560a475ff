"""With what a session continues that began in an earlier process, or with another placement."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from dropflow.engine.api import AttemptResult, Handle, StreamOpened
from dropflow.engine.drop_table import DropTable
from dropflow.engine.events import Cancel, CancelDrop, Continue, KnownStates, Lost, Pause
from dropflow.failure import Failure

__all__ = ["Continuation", "FrozenSession", "HandedOver", "Parts"]

HandedOver = AttemptResult | StreamOpened | Cancel | CancelDrop | Lost | Pause | Continue
"""What comes in for a session and is not about the exchange with other nodes."""

Parts = Mapping[int, Mapping[int, Handle]]
"""Parts that producers wrote and that are not contents yet: by producer, then by drop."""


class FrozenSession(msgspec.Struct, frozen=True):
    """What a session has when it is frozen, for the session that continues it in the same process.

    Attributes
    ----------
    drops : DropTable
        Its drops. It does not change any more.
    states : bytes
        Their `DropState`. WRITING only where an attempt is with the runner and will count.
    contents : mapping of int to Handle
        The contents of its drops, by drop.
    parts : mapping
        Parts of drops here with several producers, and parts that were written here of drops on other nodes.
    failures : mapping of int to Failure
        The last failure of each drop that failed here.
    in_flight : int
        Attempts with the runner, also those that will not count.
    aborted : frozenset of int
        Drops whose attempt was aborted because it was with the runner ahead of its inputs.
    is_paused : bool
        Whether it was paused.
    durations : mapping of int to (int, float)
        By template: attempts that have succeeded, and how many seconds they took together.
    items : tuple
        What attempts have delivered since the session was frozen, and requests of users.
    """

    drops: DropTable
    states: bytes
    contents: Mapping[int, Handle]
    parts: Parts
    failures: Mapping[int, Failure]
    in_flight: int
    aborted: frozenset[int] = frozenset()
    is_paused: bool = False
    durations: Mapping[int, tuple[int, float]] = {}
    items: tuple[HandedOver, ...] = ()


@dataclass(frozen=True)
class Continuation:
    """What a session takes over from its earlier process.

    Attributes
    ----------
    known : KnownStates
        The states of its drops.
    contents : mapping of int to Handle
        Contents that are still there, by drop, in the order of their commits.
    failures : mapping of int to Failure
        Why the drops in ERROR failed that started an error.
    frozen : FrozenSession or None
        The session that this one continues in the same process, with its runner; None after a restart.
    outdated : tuple of Handle
        Contents of drops that run again although their contents were there, to be removed.
    """

    known: KnownStates
    contents: Mapping[int, Handle]
    failures: Mapping[int, Failure]
    frozen: FrozenSession | None = None
    outdated: tuple[Handle, ...] = ()
