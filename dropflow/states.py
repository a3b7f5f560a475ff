"""The states of drops, applications and sessions, with their integers on the wire (DALiuGE's)."""

from enum import IntEnum

UNKNOWN_STATE = 255
"""Value in columns of states for a drop whose node did not answer."""
UNKNOWN = "UNKNOWN"
"""Nodes with unfinished drops of the session do not answer. Only islands and masters report it."""
STOPPED_AT_WALLTIME = "stopped at its walltime"
"""Beginning of the reason for which a session is CANCELLED that was stopped at its walltime, and can be resumed."""


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

    def __str__(self) -> str:
        return self.name

    @property
    def is_terminal(self) -> bool:
        """Whether a drop in this state does not change any more within one epoch of its session."""
        return self not in (DropState.INITIALIZED, DropState.WRITING)


KEPT_STATES = (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED)
"""States that drops keep when their session is continued; drops in other states begin anew."""


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

    def __str__(self) -> str:
        return self.name

    @property
    def is_terminal(self) -> bool:
        """Whether the session is over."""
        return self in _OVER


_OVER = (SessionState.FINISHED, SessionState.CANCELLED, SessionState.FAILED)


# The status of a session: a state of the session here, or UNKNOWN.


STATUSES = (*SessionState.__members__, UNKNOWN)
"""All names that `dropflow.api.session_records.SessionInfo.status` can have."""


def is_over(status: str) -> bool:
    """Return whether a session with this status has ended; a status that this version does not know is not an end."""
    return status in SessionState.__members__ and SessionState[status].is_terminal
