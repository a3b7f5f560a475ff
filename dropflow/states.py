"""The states of drops, applications and sessions, with their integers on the wire (DALiuGE's)."""

from enum import IntEnum

__all__ = ["UNKNOWN_STATE", "AppState", "DropState", "SessionState"]

UNKNOWN_STATE = 255
"""In columns of states of drops: that of a drop whose node did not answer."""


class DropState(IntEnum):
    """State of any drop, data or application."""

    INITIALIZED = 0
    WRITING = 1
    """A data drop whose producers have begun to report; an application whose attempt is with a runner."""
    COMPLETED = 2
    ERROR = 3
    EXPIRED = 4
    DELETED = 5
    CANCELLED = 6
    SKIPPED = 7

    @property
    def is_terminal(self) -> bool:
        """Whether a drop in this state does not change any more within one epoch of its session."""
        return self not in (DropState.INITIALIZED, DropState.WRITING)


class AppState(IntEnum):
    """Execution state of an application drop, derived from its drop state for clients."""

    NOT_RUN = 0
    RUNNING = 1
    FINISHED = 2
    ERROR = 3
    CANCELLED = 4
    SKIPPED = 5


class SessionState(IntEnum):
    """State of a session. DALiuGE does not have the integers from 7 on: `managers.routes` maps them for its clients."""

    PRISTINE = 0
    BUILDING = 1
    DEPLOYING = 2
    RUNNING = 3
    FINISHED = 4
    CANCELLED = 5
    FAILED = 6
    CANCELLING = 7
    """It was cancelled, and attempts have not stopped yet."""
    PAUSED = 8
    """It starts nothing, until it is continued."""

    @property
    def is_terminal(self) -> bool:
        """Whether the session is over."""
        return self in _OVER


_OVER = (SessionState.FINISHED, SessionState.CANCELLED, SessionState.FAILED)
