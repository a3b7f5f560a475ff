"""Everything that can happen in a session (events in) and everything it wants done (actions out).

Events are what the journal stores: replaying them through a fresh core gives the same state.
"""

import msgspec

from dropflow.failure import Failure
from dropflow.states import DropState, SessionState

__all__ = [
    "Abort",
    "Action",
    "Assemble",
    "Assembled",
    "Begin",
    "Cancel",
    "Event",
    "Failed",
    "Finish",
    "Finished",
    "Release",
    "Reported",
    "Run",
]


class Begin(msgspec.Struct, frozen=True, tag="begin", array_like=True):
    """Start the session: drops without producers or inputs become ready."""


class Finished(msgspec.Struct, frozen=True, tag="finished", array_like=True):
    """An attempt succeeded: an application ran, or a root data drop has its initial content.

    `skipped` are the outputs (drop ids) that the application chose to skip, as a Branch does. The contents of single-
    producer outputs are already committed when this event arrives.
    """

    drop: int
    attempt: int
    skipped: tuple[int, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """An attempt failed."""

    drop: int
    attempt: int
    failure: Failure


class Assembled(msgspec.Struct, frozen=True, tag="assembled", array_like=True):
    """The parts that several producers wrote to a data drop were put together, or could not be."""

    drop: int
    failure: Failure | None = None


class Reported(msgspec.Struct, frozen=True, tag="reported", array_like=True):
    """A drop that lives on another node reached a terminal state; `cause` is the drop that started an error, or -1."""

    drop: int
    state: DropState
    cause: int = -1
    attempt: int = 1


class Cancel(msgspec.Struct, frozen=True, tag="cancel", array_like=True):
    """Stop: whatever is not terminal becomes CANCELLED."""

    reason: str = ""


Event = Begin | Finished | Failed | Assembled | Reported | Cancel


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Hand this attempt to a runner: execute an application, or give a root data drop its initial content."""

    drop: int
    attempt: int


class Assemble(msgspec.Struct, frozen=True, array_like=True, tag="assemble"):
    """All producers of this data drop have reported and it has more than one: put their parts together."""

    drop: int


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """The last consumer of this data drop is done: its content may go, unless it is to persist."""

    drop: int


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """Nobody wants the result of this attempt any more: stop it if it can be stopped."""

    drop: int
    attempt: int


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """Every drop is terminal: the session is over with this state. Sent once, last."""

    state: SessionState


Action = Run | Assemble | Release | Abort | Finish
