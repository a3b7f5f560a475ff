"""Ends all processes that an attempt or a worker process has started, daemons included.

A process leaves its group and session with ``setsid``, and its parent by a double fork. It cannot leave a parent that
adopts orphans (a *subreaper*, which each worker process is). Processes of a dead worker are found by a variable of
their environment, which few programs remove.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterable

import psutil

from dropflow.clock import SystemClock

WORKER_VARIABLE = "DROPFLOW_WORKER"
"""Environment variable with the name of the worker process that a process descends from."""

_PR_SET_CHILD_SUBREAPER = 36
"""Number of an option of Linux's `prctl`: this process becomes the parent of orphans below it."""
_PATIENCE = 2.0
"""Seconds to wait for processes that cannot be killed: they hang in the kernel, or belong to another user."""
_KILL_PAUSE_SECONDS = 0.002
"""Seconds between two rounds that kill processes."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end, so that `end_descendants` finds all of them."""
    with contextlib.suppress(AttributeError, OSError):  # not Linux: children of living children are found anyway
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """Kill and reap all descendants of this process. Takes a microsecond if there are none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return

    def find() -> list[psutil.Process]:
        _reap_all()
        return descendants_of(os.getpid())

    _kill_until_gone(find)


def descendants_of(process: int) -> list[psutil.Process]:
    """Return the children of a process, their children, and so on.

    Unlike `psutil.Process.children`, it compares no times. That function leaves out children which seem older than
    their parent, because the clock of the system was set back by a second.
    """
    children: dict[int, list[psutil.Process]] = {}
    for each in psutil.process_iter(["ppid"]):
        children.setdefault(each.info["ppid"], []).append(each)
    descendants = children.get(process, [])
    for each in descendants:  # grows
        descendants += children.get(each.pid, [])
    return descendants


def end_worker(leader: int, name: str) -> None:
    """Kill a worker process and all processes that it has started; its own process is not reaped.

    Parameters
    ----------
    leader : int
        Process id of the worker, which leads its session. It has not been reaped, so no other process has this id.
    name : str
        Its value of `WORKER_VARIABLE`.
    """
    _kill_until_gone(lambda: [process for process in psutil.process_iter() if _belongs_to(process, leader, name)])


def _belongs_to(process: psutil.Process, leader: int, name: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return os.getsid(process.pid) == leader or process.environ().get(WORKER_VARIABLE) == name
    except (OSError, psutil.Error):  # it has ended, or belongs to another user
        return False


def _kill_until_gone(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill the processes that `find` returns, until it returns none: each may start others before it ends."""
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + _PATIENCE
    while (processes := list(find())) and clock.monotonic() < deadline:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        pause.wait(_KILL_PAUSE_SECONDS)


def _reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


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
