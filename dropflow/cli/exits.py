"""What the exit status of the command says."""

from enum import IntEnum

__all__ = ["Exit"]


class Exit(IntEnum):
    """Exit statuses. Ends by a signal follow the shell's convention of 128 plus its number."""

    FINISHED = 0
    FAILED = 1
    BAD_INPUT = 2
    INTERNAL_ERROR = 70
    """``EX_SOFTWARE`` of BSD's sysexits."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143
