"""Keeping standard output free for what a command prints for programs."""

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STDOUT, _STDERR = 1, 2

# Descriptors belong to the whole process: two threads must not move them at the same time.
_moving = threading.Lock()


def reserve() -> None:
    """Move `sys.stdout` to a descriptor of its own, and redirect descriptor 1 to standard error.

    What the encoding of the terminal does not have is written as escapes. Compiled libraries print to descriptor 1,
    whatever `sys.stdout` is: METIS does so when it cannot bisect a graph. Call this once, before the process has
    threads, in a command whose output programs read.
    """
    if sys.stdout is None or sys.stderr is None:  # closed by the caller
        # A file that is opened later must not get the descriptor of a stream, and what is printed to it.
        sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
        return
    sys.stdout.flush()
    answer = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    sys.stdout = open(answer, "w", encoding=sys.stdout.encoding, errors="backslashreplace")  # noqa: SIM115, PTH123


@contextmanager
def native_output_on_stderr() -> Iterator[None]:
    """Redirect descriptor 1 to standard error while a compiled library works that may print.

    For libraries that hold the global interpreter lock: other threads that print meanwhile would print there, too. It
    has no effect if one of the two is closed.
    """
    with _moving:
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
            kept = os.dup(_STDOUT)
        except (OSError, ValueError):
            yield
            return
        try:
            _flush_c_streams()
            os.dup2(_STDERR, _STDOUT)
        except OSError:
            pass  # standard error is closed
        try:
            yield
        finally:
            _flush_c_streams()  # what the library has printed is in a buffer of the C library
            os.dup2(kept, _STDOUT)
            os.close(kept)


def _flush_c_streams() -> None:
    ctypes.CDLL(None).fflush(None)
