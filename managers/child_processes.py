"""Processes that this process starts, for ``dropflow up`` and for the daemon.

One thread starts them, reads their ready lines and collects their exit statuses: it sleeps in `select` on their pipes
and on descriptors of their ends. Each process gets the reading end of a pipe whose writing end only this process
holds. When this process ends, for whatever reason, that pipe closes, and the processes end themselves.
"""

import logging
import os
import queue
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import IO, Any, TypeVar, cast

import msgspec
import psutil

from dropflow.clock import SystemClock
from dropflow.errors import WorldError
from dropflow.host.descendants import exit_descriptor

_log = logging.getLogger("dropflow.child_processes")
_CHUNK = 64 * 1024
"""Bytes of one read: all that a pipe can hold."""
_LONGEST_LINE_BYTES = 1024 * 1024
"""Bytes of the first line of a child, its address, after which no end of the line is waited for."""
_STOPPED = "no process can be started: the child processes have been stopped"
_HINT = "see its messages in the log"
_MOST_WAITS = 10
"""Times that the wait for a child that is still starting is repeated."""
_STARTING = 0.01
"""Share of a processor that a process uses while it starts, at least: one of a hundred that do gets as much."""

Command = Callable[[int], Sequence[str]]
"""Returns a command line, given the file descriptor of the pipe that closes when this process ends."""

Value = TypeVar("Value")


class _FirstLine(msgspec.Struct, frozen=True):
    """The first line that a process prints: it is ready, or why it is not."""

    ready: bool = False
    url: str = ""
    error: dict[str, object] = {}


class ChildProcess:
    """A process that prints a line of JSON when it is ready. It changes in the thread of its `ChildProcesses` only.

    Parameters
    ----------
    role, name : str
        Its kind, such as ``node``, and its name in messages.
    changed : callable
        Called in the thread of `ChildProcesses` when the process is ready, failed to start, or ended.

    Attributes
    ----------
    url : str
        Its address; empty until it is ready.
    error : WorldError or None
        Why it did not get ready.
    status : int or None
        Its exit status, or the negative number of the signal that ended it; None while it runs.
    ready, ended : Future
        Done when `url` or `error`, and when `status` is there; after `changed` was called.
    """

    def __init__(
        self, role: str, name: str, popen: subprocess.Popen[bytes], changed: "Callable[[ChildProcess], None]"
    ) -> None:
        self.role = role
        self.name = name
        self.pid = popen.pid
        self.url = ""
        self.error: WorldError | None = None
        self.status: int | None = None
        self.ready: Future[str] = Future()
        self.ended: Future[int] = Future()
        self._popen = popen
        self._changed = changed
        self._line = b""
        if popen.stdin is not None:
            os.set_blocking(popen.stdin.fileno(), False)

    def read(self, descriptor: int) -> bool:
        """Read what it printed, without waiting; return whether there may be more."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not self.ready.done():
            self._line += data
            if b"\n" in self._line or len(self._line) > _LONGEST_LINE_BYTES:
                self._take(self._line.partition(b"\n")[0])
        return bool(data)

    def collect(self) -> None:
        """Read the exit status of the process, after its `exit_descriptor` became readable."""
        status = self._popen.wait()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        if self._line:
            self._take(self._line)
        self.fail(f"it ended with status {status}")
        self.status = status
        self._changed(self)
        self.ended.set_result(status)

    def fail(self, reason: str, hint: str = "") -> None:
        """Stop waiting for the ready line of the process."""
        if not self.ready.done():
            self.error = WorldError(f"the {self.role} cannot be started: {reason}", where=self.name, hint=hint or _HINT)
            self._changed(self)
            self.ready.set_exception(self.error)

    def processor_seconds(self) -> float:
        """Return the processor time that it has used; 0 if it has ended."""
        try:
            return sum(psutil.Process(self.pid).cpu_times()[:2])
        except psutil.Error:
            return 0.0

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process; no error if it has ended."""
        self._popen.send_signal(number)

    def write(self, data: bytes) -> None:
        """Write to its standard input without waiting; no error if it does not read."""
        with suppress(OSError, ValueError):
            os.write(cast(IO[bytes], self._popen.stdin).fileno(), data)

    def request_end(self) -> None:
        """Request its end: by the end of its standard input if it has one, as a process on another host needs it."""
        if self._popen.stdin is None:
            self.send(signal.SIGTERM)
        else:
            self._popen.stdin.close()

    def _take(self, line: bytes) -> None:
        if self.ready.done():
            return
        try:
            first = msgspec.json.decode(line, type=_FirstLine)
        except msgspec.DecodeError:
            first = _FirstLine()
        if first.ready:
            self.url = first.url
            self._changed(self)
            self.ready.set_result(first.url)
        else:
            printed = line.decode(errors="replace").strip()[:200]
            self.fail(str(first.error.get("text") or f"it printed {printed!r}"), str(first.error.get("hint") or ""))


class ChildProcesses:
    """Starts processes and notices when they are ready and when they end, in one thread.

    Parameters
    ----------
    stop_seconds : float
        How long processes that are stopped together may take to end before they are killed.
    cancel : int, optional
        File descriptor that becomes readable when processes need not get ready any more: waiting for their ready lines
        ends with `concurrent.futures.CancelledError`.
    """

    def __init__(self, *, stop_seconds: float = 15.0, cancel: int | None = None) -> None:
        self._stop_seconds = stop_seconds
        self._clock = SystemClock()
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._is_over = False
        self._processes: list[ChildProcess] = []
        self._is_cancelled = False
        self._is_closed = False
        self._parent_reader, self._parent_writer = os.pipe()
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._run_calls)
        if cancel is not None:
            self._selector.register(cancel, selectors.EVENT_READ, partial(self._cancel, cancel))
        self._thread = threading.Thread(target=self._run, name="child-processes", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Value]) -> Value:
        """Run `function` in the thread of `ChildProcesses` and return what it returns.

        Raises
        ------
        WorldError
            The thread has ended.
        """
        done: Future[Value] = Future()
        self._calls.put((done, function))
        if self._is_over:  # set before the thread answers what is left of the queue, so that no call is missed
            raise WorldError(_STOPPED)
        os.write(self._wake_writer, b"x")
        return done.result()

    def launch(
        self,
        role: str,
        name: str,
        command: Command,
        changed: Callable[[ChildProcess], None],
        *,
        first: bytes = b"",
    ) -> ChildProcess:
        """Start a process; only from the thread of `ChildProcesses` (see `call`).

        Parameters
        ----------
        first : bytes
            What its standard input begins with, at most what a pipe holds; it stays open then. Without, it is empty.

        Raises
        ------
        WorldError
            There is no such program.
        """
        try:
            popen = subprocess.Popen(  # noqa: S603 - our own command, no shell
                command(self._parent_reader),
                stdin=subprocess.PIPE if first else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=[self._parent_reader],
                process_group=0,  # Ctrl-C reaches this process alone, which stops the others in order
            )
        except OSError as error:
            text = f"the {role} cannot be started: {error.strerror}"
            raise WorldError(text, where=name, hint="is it installed?") from error
        process = ChildProcess(role, name, popen, changed)
        if first:
            process.write(first)
        if self._is_cancelled:
            process.ready.cancel()
        self._processes.append(process)
        assert popen.stdout is not None  # it is a pipe
        output = popen.stdout.fileno()
        os.set_blocking(output, False)
        descriptor = exit_descriptor(popen.pid)
        self._selector.register(output, selectors.EVENT_READ, partial(self._read, process, output))
        self._selector.register(descriptor, selectors.EVENT_READ, partial(self._end, process, descriptor, popen.stdout))
        return process

    def wait_ready(self, process: ChildProcess, seconds: float) -> str:
        """Wait until a process is ready and return its URL.

        On a busy machine a start takes long. The wait goes on while the process uses processor time, for at most ten
        times `seconds`.

        Raises
        ------
        WorldError
            It ended, printed something else, or is not ready within `seconds` and does nothing.
        CancelledError
            See `cancel`.
        """
        used = 0.0
        for turn in range(1, _MOST_WAITS + 1):
            with suppress(TimeoutError):
                return process.ready.result(seconds)
            before, used = used, process.processor_seconds()
            if used - before <= _STARTING * seconds or turn == _MOST_WAITS:
                self.call(partial(process.fail, f"it was not ready within {turn * seconds:g} s"))
                break
        return process.ready.result()

    def stop(self, *processes: ChildProcess) -> None:
        """Stop processes, the first one first, and wait for their ends; those that do not end in time are killed."""
        for process in processes:
            process.request_end()
        until = self._clock.monotonic() + self._stop_seconds
        for process in processes:
            try:
                process.ended.result(max(until - self._clock.monotonic(), 0.0))
            except TimeoutError:
                _log.warning("%s did not end within %g s and is killed", process.name, self._stop_seconds)
                process.send(signal.SIGKILL)
                process.ended.result()

    def close(self) -> None:
        """Stop all processes, the last one first, and the thread. Idempotent."""
        if self._is_closed:
            return
        with suppress(WorldError):  # a fault has ended the thread; the processes end with the pipe
            self.stop(*reversed(self.call(lambda: list(self._processes))))
        self._is_closed = True
        os.write(self._wake_writer, b"x")
        self._thread.join()
        self._selector.close()
        for descriptor in (self._parent_reader, self._parent_writer, self._wake_reader, self._wake_writer):
            os.close(descriptor)

    # In the thread.

    def _run(self) -> None:
        try:
            while not self._is_closed:
                for key, _ in self._selector.select():
                    # The end of a process takes its output out of the selector.
                    if self._selector.get_map().get(key.fd) is key:
                        key.data()
        finally:
            self._is_over = True
            while not self._calls.empty():
                self._calls.get()[0].set_exception(WorldError(_STOPPED))

    def _run_calls(self) -> None:
        os.read(self._wake_reader, _CHUNK)
        while not self._calls.empty():
            done, function = self._calls.get()
            try:
                done.set_result(function())
            except Exception as error:  # noqa: BLE001 - it is raised where `call` was called
                done.set_exception(error)

    def _cancel(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        self._is_cancelled = True
        for process in self._processes:
            process.ready.cancel()

    def _read(self, process: ChildProcess, output: int) -> None:
        if not process.read(output):
            self._selector.unregister(output)

    def _end(self, process: ChildProcess, descriptor: int, output: Any) -> None:
        # Another process that it started may hold its output open: what it printed itself is there by now.
        process.read(output.fileno())
        for number in {descriptor, output.fileno()} & set(self._selector.get_map()):
            self._selector.unregister(number)
        os.close(descriptor)
        output.close()
        self._processes.remove(process)
        process.collect()
