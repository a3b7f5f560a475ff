"""Running a shell command that can be stopped, with all its children."""

import contextlib
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from dropflow.clock import Clock, SystemClock
from dropflow.errors import AppError, CancelledRunError

__all__ = ["GRACE", "Command"]

GRACE = 2.0
"""Seconds between asking the processes of a command to end (TERM) and making them (KILL)."""

_SHELL = "/bin/bash"
_BLOCK = 1 << 16
_ENDED, _STOP = b"e", b"s"


class Command:
    """One shell command, from its start to its end.

    It runs in a process group of its own. Processes that it leaves behind in the background are killed when it ends,
    because its outputs are committed then.

    Parameters
    ----------
    text : str
        What the shell runs.
    directory : Path
        Its working directory.
    environment : mapping of str to str
        All of its environment.
    sink : callable
        Takes its output and errors, as they come.
    clock : Clock
        Measures `GRACE`.
    """

    def __init__(
        self,
        text: str,
        directory: Path,
        environment: Mapping[str, str],
        sink: Callable[[bytes], None],
        clock: Clock | None = None,
    ) -> None:
        self._text = text
        self._directory = directory
        self._environment = environment
        self._sink = sink
        self._clock = clock or SystemClock()
        self._wake_read, self._wake_write = os.pipe()
        self._lock = threading.Lock()
        self._open = True
        self._stopped = False

    def stop(self) -> None:
        """End it soon; from any thread, at any time."""
        with self._lock:
            if self._open:
                os.write(self._wake_write, _STOP)

    def run(self) -> int:
        """Wait for its end: the exit status, 128 + the signal for a command that was killed.

        Raises
        ------
        CancelledRunError
            It was stopped.
        AppError
            It cannot be started.
        """
        try:
            with self._start() as process:
                status = self._follow(process)
        finally:
            with self._lock:
                self._open = False
                os.close(self._wake_read)
                os.close(self._wake_write)
        if self._stopped:
            raise CancelledRunError
        return status if status >= 0 else 128 - status

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - running the command of the graph is what this is for
                [_SHELL, "-c", self._text],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=dict(self._environment),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise AppError(
                f"the command cannot be started: {error}",
                hint=f"it needs {_SHELL}, the directory {self._directory}, and at most some 100 kB of text",
            ) from error

    def _follow(self, process: subprocess.Popen[bytes]) -> int:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        output = process.stdout.fileno()
        os.set_blocking(output, False)
        # Not pidfd_open(), which kernels before 5.3 (RHEL 8) do not have.
        waiter = threading.Thread(target=self._await, args=(process.pid,), daemon=True)
        waiter.start()
        try:
            self._watch(process.pid, output)
        finally:
            # What is left of the group. The process itself is not reaped yet, so its id means nobody else.
            _signal(process.pid, signal.SIGKILL)
            waiter.join()
        while self._pass_on(output, once=True):
            pass
        return process.wait()

    def _watch(self, group: int, output: int) -> None:
        deadline = None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            ended = False
            while not ended:
                left = None if deadline is None else max(deadline - self._clock.monotonic(), 0.0)
                ready = {key.fd for key, _ in selector.select(left)}
                if not ready:
                    _signal(group, signal.SIGKILL)
                    deadline = None
                if output in ready and not self._pass_on(output):
                    selector.unregister(output)
                if self._wake_read in ready:
                    notes = os.read(self._wake_read, _BLOCK)
                    ended = _ENDED in notes
                    if _STOP in notes and not ended and not self._stopped:
                        self._stopped = True
                        _signal(group, signal.SIGTERM)
                        deadline = self._clock.monotonic() + GRACE

    def _await(self, pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.write(self._wake_write, _ENDED)

    def _pass_on(self, output: int, *, once: bool = False) -> bool:
        """Hand on what has come; False at its end, or when `once` and there is nothing."""
        try:
            block = os.read(output, _BLOCK)
        except BlockingIOError:
            return not once
        if block:
            self._sink(block)
        return bool(block)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone already
        os.killpg(group, number)
