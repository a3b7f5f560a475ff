"""A shell command that can be stopped with all its children."""

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, BinaryIO

import psutil

from dropflow.clock import Clock, SystemClock
from dropflow.errors import AppError, Interrupted
from dropflow.stopping import GRACE_SECONDS

_BLOCK_BYTES = 1 << 16
"""Bytes that are read at once from a pipe, or from the input of a command."""
_SHELL = "/bin/bash"
_GROUP_CHECK_SECONDS = 0.02
"""Seconds between two checks whether a group has members left."""


def program_path() -> str:
    """Return PATH of commands. Programs beside this Python come last, so a virtual environment need not be active."""
    return f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}"


# A thread that passes a growing content on to the standard input of a command.


class StdinFeeder:
    """A thread between a stream and a pipe. It closes both at the end.

    Parameters
    ----------
    source : file object
        Read to its end with ``read1``, or with ``read`` if it has no ``read1``. A method ``stop``, if it has one, ends
        a waiting read.
    pipe : file object
        Standard input of a process, which may close it before the end.
    """

    def __init__(self, source: BinaryIO, pipe: IO[bytes]) -> None:
        self.error: BaseException | None = None
        """Why `source` could not be read to its end; None if it could."""
        self._source = source
        self._pipe = pipe
        self._ending = False
        # After the process ended, a child of it may still hold the pipe open while it is full.
        os.set_blocking(pipe.fileno(), False)
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads
            os.close(self._wake)
            os.close(self._woken)
            raise

    def end(self) -> None:
        """Stop after the process has ended, and close the source."""
        self._ending = True
        os.write(self._wake, b"!")
        stop = getattr(getattr(self._source, "raw", None), "stop", None)
        if stop is not None:
            stop()
        self._thread.join()
        os.close(self._wake)
        os.close(self._woken)
        self._source.close()

    def _run(self) -> None:
        read = getattr(self._source, "read1", self._source.read)
        try:
            # A process may close its standard input early.
            with contextlib.suppress(BrokenPipeError), self._pipe:
                while not self._ending and (block := read(_BLOCK_BYTES)):
                    self._push(block)
        except BaseException as error:  # noqa: BLE001 - raised again by `Command.run`; includes cancellation
            self.error = error

    def _push(self, block: bytes) -> None:
        pipe = self._pipe.fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLOUT)
        poll.register(self._woken, select.POLLIN)
        left = memoryview(block)
        while left and not self._ending:
            try:
                left = left[os.write(pipe, left) :]
            except BlockingIOError:
                poll.poll()


_ENDED, _STOP = b"e", b"s"


class Command:
    """One shell command.

    It runs in its own process group. Processes that are left in the background are killed when the command ends,
    because its outputs are committed then.

    Parameters
    ----------
    text : str
        Text for bash.
    directory : Path
        Its working directory.
    environment : mapping of str to str
        The whole environment.
    sink : callable
        Gets its output and errors in blocks.
    source : file object, optional
        Its standard input, passed on while it is being written, and closed at the end; empty by default.
    output : callable, optional
        Gets its standard output in blocks, in place of `sink`.
    clock : Clock
        Measures the grace period of `stop`.
    """

    def __init__(
        self,
        text: str,
        directory: Path,
        environment: Mapping[str, str],
        sink: Callable[[bytes], object],
        *,
        source: BinaryIO | None = None,
        output: Callable[[bytes], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._text = text
        self._directory = directory
        self._environment = environment
        self._sink = sink
        self._source = source
        self._output = output
        self._clock = clock or SystemClock()
        self._wake_read, self._wake_write = os.pipe()
        self._lock = threading.Lock()
        self._open = True
        self._stopped = self._is_unknown = False
        self._grace = GRACE_SECONDS

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Send SIGTERM to all processes of the command, and SIGKILL to those that run after `grace` seconds.

        May be called from any thread, at any time.
        """
        with self._lock:
            self._grace = grace
            if self._open:
                os.write(self._wake_write, _STOP)

    def run(self) -> int:
        """Run the command and return its exit status; 128 + the signal if it was killed.

        Raises
        ------
        Interrupted
            The command was stopped.
        AppError
            It cannot be started.
        """
        try:
            with self._start() as process:
                try:
                    status = self._follow(process)
                except BaseException:  # such as no more threads: the end of `with` waits for the process
                    _signal(process.pid, signal.SIGKILL)
                    raise
        finally:
            if self._source is not None:
                self._source.close()
            with self._lock:
                self._open = False
                os.close(self._wake_read)
                os.close(self._wake_write)
        if self._stopped:
            raise Interrupted
        if self._is_unknown:
            raise AppError(
                "the status of the command is not known, because this process ignores the ends of its children",
                hint="no function or library of the graph may have SIGCHLD ignored, or wait for all children",
            )
        return status if status >= 0 else 128 - status

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - running the command of the graph is what this is for
                [_SHELL, "-c", self._text],
                stdin=subprocess.DEVNULL if self._source is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if self._output is None else subprocess.PIPE,
                cwd=self._directory,
                env=dict(self._environment),
                process_group=0,  # same session as this process: killing a worker's session also kills its commands
            )
        except (OSError, ValueError) as error:
            raise AppError(
                f"the command cannot be started: {error}",
                hint=f"it needs {_SHELL}, the directory {self._directory}, and at most some 100 kB of text",
            ) from error

    def _follow(self, process: subprocess.Popen[bytes]) -> int:
        sinks = self._sinks(process)
        # Not pidfd_open(), which kernels before 5.3 (RHEL 8) do not have.
        waiter = threading.Thread(target=self._await, args=(process.pid,), daemon=True)
        with self._fed(process):
            waiter.start()
            try:
                deadline = self._watch(process.pid, dict(sinks))
                self._await_group(process.pid, sinks, deadline)
            finally:
                # Kills the rest of the group. The process is not reaped yet, so its id is not reused.
                _signal(process.pid, signal.SIGKILL)
                waiter.join()
        for pipe, sink in sinks.items():
            while _pass_on(pipe, sink, once=True):
                pass
        return process.wait()

    def _sinks(self, process: subprocess.Popen[bytes]) -> dict[int, Callable[[bytes], object]]:
        """Return the receiver of the output of each pipe."""
        assert process.stdout is not None  # it is a pipe
        sinks = {process.stdout.fileno(): self._output or self._sink}
        if process.stderr is not None:
            sinks[process.stderr.fileno()] = self._sink
        for pipe in sinks:
            os.set_blocking(pipe, False)
        return sinks

    @contextlib.contextmanager
    def _fed(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Pass the source on to the process while the context lasts.

        Raises
        ------
        DropflowError
            The source cannot be read.
        """
        if self._source is None or process.stdin is None:
            yield
            return
        feeder = StdinFeeder(self._source, process.stdin)
        try:
            yield
        finally:
            feeder.end()
        if feeder.error is not None:
            raise feeder.error

    def _watch(self, group: int, sinks: dict[int, Callable[[bytes], object]]) -> float | None:
        """Pass output on until the shell has ended; return when the rest of a stopped command is to be killed."""
        deadline = None
        with selectors.DefaultSelector() as selector:
            for pipe in (*sinks, self._wake_read):
                selector.register(pipe, selectors.EVENT_READ)
            ended = False
            while not ended:
                left = None if deadline is None else max(deadline - self._clock.monotonic(), 0.0)
                ready = {key.fd for key, _ in selector.select(left)}
                if not ready:
                    _signal(group, signal.SIGKILL)
                    deadline = None
                for pipe in ready & sinks.keys():
                    if not _pass_on(pipe, sinks[pipe]):
                        selector.unregister(pipe)
                if self._wake_read in ready:
                    notes = os.read(self._wake_read, _BLOCK_BYTES)
                    ended = _ENDED in notes
                    if _STOP in notes and not ended:
                        if not self._stopped:
                            _signal(group, signal.SIGTERM)
                        self._stopped = True
                        due = self._clock.monotonic() + self._grace
                        deadline = due if deadline is None else min(due, deadline)

        return deadline

    def _await_group(self, group: int, sinks: Mapping[int, Callable[[bytes], object]], deadline: float | None) -> None:
        """Give the processes that a stopped shell has left behind the rest of the grace period to clean up."""
        pause = threading.Event()
        while deadline is not None and self._clock.monotonic() < deadline and _has_members(group):
            for pipe, sink in sinks.items():
                _pass_on(pipe, sink, once=True)
            # No event reports the end of a process that is not a child of this process.
            pause.wait(_GROUP_CHECK_SECONDS)

    def _await(self, pid: int) -> None:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            self._is_unknown = True
        os.write(self._wake_write, _ENDED)


def _pass_on(pipe: int, sink: Callable[[bytes], object], *, once: bool = False) -> bool:
    """Pass one block on. Returns False at the end of the pipe, or with `once` if it is empty."""
    try:
        block = os.read(pipe, _BLOCK_BYTES)
    except BlockingIOError:
        return not once
    if block:
        sink(block)
    return bool(block)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended already
        os.killpg(group, number)


def _has_members(group: int) -> bool:
    """Return whether a process of a group still runs. Its leader has ended."""
    return any(_is_running_in(group, process) for process in psutil.process_iter())


def _is_running_in(group: int, process: psutil.Process) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):  # it has ended
        return False
