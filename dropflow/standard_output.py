"""Keeping standard output free for what a command prints for programs."""

import os
import sys

__all__ = ["reserve"]

_STDOUT, _STDERR = 1, 2


def reserve() -> None:
    """Move `sys.stdout` to a descriptor of its own, and redirect descriptor 1 to standard error.

    Compiled libraries print to descriptor 1, whatever `sys.stdout` is: METIS does so when it cannot bisect a graph.
    Call this once, before the process has threads, in a command whose output programs read.
    """
    if sys.stdout is None or sys.stderr is None:
        return  # closed by the caller
    sys.stdout.flush()
    answer = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    sys.stdout = open(answer, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115, PTH123
