"""A descriptor for the end of a child process, which does not depend on the children that hold its pipes."""

import contextlib
import os
import threading

__all__ = ["exit_descriptor"]


def exit_descriptor(pid: int) -> int:
    """Return a descriptor that becomes readable when the child process `pid` ends; the caller closes it.

    The process is not reaped: no other process has its id until the caller waits for it.
    """
    # Kernels before 5.3 (RHEL 8) do not have the call, and some sandboxes refuse it.
    with contextlib.suppress(AttributeError, OSError):
        return os.pidfd_open(pid)
    reader, writer = os.pipe()

    def wait() -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writer)

    threading.Thread(target=wait, name=f"exit-{pid}", daemon=True).start()
    return reader
