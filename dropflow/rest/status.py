"""The status of a session as managers tell it: a state of the engine, or that the manager does not know it."""

from dropflow.states import SessionState

__all__ = ["STATUSES", "UNKNOWN", "is_over"]

UNKNOWN = "UNKNOWN"
"""Nodes that hold unfinished drops of the session do not answer. No node says this about itself."""

STATUSES = (*SessionState.__members__, UNKNOWN)
"""All names that `dropflow.rest.schema.SessionInfo.status` can have."""


def is_over(status: str) -> bool:
    """Whether a session with this status changes no more; a name that this version does not know is no end."""
    return status in SessionState.__members__ and SessionState[status].is_terminal
