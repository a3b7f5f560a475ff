"""The exit statuses of the command."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses. Ends by a signal follow the shell's convention of 128 plus its number."""

    FINISHED = 0
    FAILED = 1
    BAD_INPUT = 2
    UNKNOWN = 3
    """A manager or a node cannot be reached, or the state of a session cannot be known."""
    PAUSED = 4
    """A run was stopped at its walltime (``--until``); ``dropflow resume`` goes on with it."""
    NO_MANAGER = 5
    """No manager was named, and none runs on this host: start one, and repeat the command."""
    INTERNAL_ERROR = 70
    """``EX_SOFTWARE`` of BSD's sysexits."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


def exit_for_status(status: str) -> Exit:
    """Return the exit status for a session with this status; a session that still runs has not failed."""
    from dropflow.states import UNKNOWN, SessionState  # msgspec, which help does without

    if status == UNKNOWN:
        return Exit.UNKNOWN
    return Exit.FAILED if status in (SessionState.FAILED.name, SessionState.CANCELLED.name) else Exit.FINISHED
