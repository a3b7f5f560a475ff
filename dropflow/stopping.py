"""How attempts are stopped: the interruption of Python code, and the bounds that the stages of a cancel add up to.

====================  ================================================================================
after the request     what happens
====================  ================================================================================
0                     Python code gets `dropflow.errors.Interrupted`, programs get SIGTERM
grace                 programs that still run get SIGKILL, with their process group
`kill_after`          the worker process of an attempt that still runs is killed, with all that it started
`stopped_after`       attempts that have not ended by then are abandoned: the kernel does not end their process
====================  ================================================================================
"""

import ctypes
import signal
import sys

GRACE_SECONDS = 5.0
"""Seconds that an attempt may take to clean up, unless the request has another period."""
MARGIN_SECONDS = 0.5
"""Seconds after its programs at which a worker process is killed, so that it can report their ends."""
KILL_SECONDS = 2.0
"""Seconds that the system may take to end processes that were killed."""
WAKE_SIGNAL = signal.SIGURG
"""Ends a system call in which the main thread of a worker process waits, so that it sees a pending exception.

By default it is ignored, so it does no harm to an application that restores the default.
"""
_IMPORT_SYSTEM = "<frozen importlib"


def kill_after(grace: float) -> float:
    """Return after how many seconds the worker process of an attempt is killed that has not stopped."""
    return grace + MARGIN_SECONDS


def stopped_after(grace: float) -> float:
    """Return after how many seconds no attempt is waited for any more: the bound of a cancel."""
    return kill_after(grace) + KILL_SECONDS


# Interrupting Python code in another thread of this process.


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
