"""The status of a session: a state of the engine, or UNKNOWN."""

from dropflow.states import SessionState

__all__ = ["STATUSES", "STOPPED_AT_WALLTIME", "UNKNOWN", "is_over"]

UNKNOWN = "UNKNOWN"
"""Nodes with unfinished drops of the session do not answer. Only islands and masters report it."""

STOPPED_AT_WALLTIME = "stopped at its walltime"
"""Beginning of the reason for which a session is CANCELLED that was stopped at its walltime, and can be resumed."""

STATUSES = (*SessionState.__members__, UNKNOWN)
"""All names that `dropflow.rest.session_records.SessionInfo.status` can have."""


def is_over(status: str) -> bool:
    """Return whether a session with this status has ended; a status that this version does not know is not an end."""
    return status in SessionState.__members__ and SessionState[status].is_terminal
