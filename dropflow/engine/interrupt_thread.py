"""Interrupting Python code in another thread of this process."""

import ctypes
import signal
import sys

WAKE_SIGNAL = signal.SIGURG
"""Ends a system call in which the main thread of a worker process waits, so that it sees a pending exception.

By default it is ignored, so it does no harm to an application that restores the default.
"""

_IMPORT_SYSTEM = "<frozen importlib"


def raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise `error` in the Python code of another thread at its next step."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def is_importing(thread: int) -> bool:
    """Return whether a thread imports a module. Compiled modules cannot be imported again after half an import."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented, and the only way to see another thread
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORT_SYSTEM):
            return True
        frame = frame.f_back
    return False
