"""A worker process: ``python -m dropflow.engine.runners.worker SOCKET MARKER`` (two inherited file descriptors).

It runs attempts of several sessions, whose executors it keeps until it is told that nothing follows. The main thread
runs attempts one after another. A second thread reads the socket, so that an abort gets through while an attempt runs;
a third sends the results of short attempts that wait behind a long one; a fourth beats in the marker, so that the pool
can tell a process that is stopped. The marker is a page of memory shared with the pool, where the number of the current
attempt stands: when this process dies, the pool knows which attempt to blame, even though results are sent in batches.

Descriptors 1 and 2 are a pipe that the pool reads. An attempt ends when its output has been read, so that the pool
knows which attempt wrote it.
"""

import contextlib
import ctypes
import fcntl
import importlib
import os
import signal
import socket
import sys
import termios
import threading
from collections import deque

import msgspec

from dropflow.clock import SystemClock
from dropflow.engine.api import AttemptResult, Executor, Task
from dropflow.engine.runners.aborted import aborted
from dropflow.engine.runners.descendants import adopt_orphans, end_descendants
from dropflow.engine.runners.marker import IDLE, Marker
from dropflow.engine.runners.wire import (
    AbortTask,
    Buffer,
    CloseExecutor,
    ExecutorFailed,
    ExecutorReady,
    FromWorker,
    OpenExecutor,
    OutputOpened,
    Recall,
    Returned,
    TaskResults,
    Tasks,
    ToWorker,
    WorkerReady,
    frame,
)
from dropflow.errors import StorageError
from dropflow.exception_text import name_of, summary_of
from dropflow.failure import Failure

__all__ = ["main"]

_READ = 1 << 20
_FLUSH_SECONDS = 0.002
_HELD_SECONDS = 0.02
_LEAVE_SECONDS = 0.8
_BEAT_SECONDS = 1.0
_UNREAD_SECONDS = (0.0, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""How long the pool is given to read the output of an attempt, again and again: 0.2 s in all."""
_LINE_BUFFERED = 1  # _IOLBF of C
_NOTHING = (-1, -1, -1)

_Attempt = tuple[int, int, Task]
"""Number, runner, and what to do."""


class _Worker:
    def __init__(self, link: socket.socket, marker: Marker) -> None:
        self._link = link
        self._marker = marker
        self._output = os.dup(1)
        self._unread = bytearray(4)
        self._decode = msgspec.msgpack.Decoder(ToWorker).decode
        self._queue: deque[_Attempt | CloseExecutor] = deque()
        self._queueing = threading.Lock()
        self._filled = threading.Event()
        self._executors: dict[int, Executor] = {}
        self._folders: dict[int, str] = {}
        self._folder = ""
        self._current = _NOTHING
        self._aborted: set[tuple[int, int, int]] = set()
        self._sending = threading.Lock()
        self._unsent: deque[AttemptResult] = deque()
        self._flushing = threading.Lock()
        self._has_unsent = threading.Event()
        self._pause = threading.Event()
        self._leaving = threading.Event()
        self._stopped = threading.Event()
        self._clock = SystemClock()

    def run(self) -> None:
        for work in (self._read, self._send_held, self._beat):
            threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()
        self._tell(WorkerReady())
        flushed = self._clock.monotonic()
        while True:
            if not self._queue:
                self._flush()
                self._filled.wait()
                self._filled.clear()
                continue
            with self._queueing:
                if not self._queue:
                    continue  # it was given back
                item = self._queue[0]
                if not isinstance(item, CloseExecutor):
                    # Current before it leaves the queue: `_abort` finds it in one of the two places.
                    _, runner, task = item
                    self._current = (runner, task.drop, task.attempt)
                self._queue.popleft()
            if isinstance(item, CloseExecutor):
                self._say_goodbye(item.runner)
                continue
            self._unsent.append(self._execute(item))
            now = self._clock.monotonic()
            if now - flushed > _FLUSH_SECONDS:
                self._flush()
                flushed = now
            elif not self._has_unsent.is_set():
                self._has_unsent.set()

    def _execute(self, attempt: "_Attempt") -> AttemptResult:
        number, runner, task = attempt
        key = self._current
        executor = self._executors.get(runner)
        if executor is None or key in self._aborted or self._leaving.is_set():
            self._current = _NOTHING
            self._aborted.discard(key)
            return aborted(task)
        self._marker.current = number
        failure = self._enter(self._folders[runner])
        result = executor.execute(task) if failure is None else AttemptResult(task.drop, task.attempt, failure=failure)
        self._current = _NOTHING
        if self._leaving.is_set():
            self._stopped.set()
        self._settle_output()
        self._marker.current = IDLE
        return result

    def _enter(self, folder: str) -> Failure | None:
        """Make `folder` the working directory, or return why it cannot be: somebody removed the session directory."""
        if folder != self._folder:
            try:
                # One attempt at a time runs here, and this process is ours alone: the directory is the attempt's.
                os.chdir(folder)  # noqa: TID251
            except OSError as error:
                reason = f"the working directory of the session cannot be entered: {error.strerror}"
                return Failure.of(StorageError(reason, where=folder))
            self._folder = folder
        return None

    def _settle_output(self) -> None:
        """Wait until the pool has read what was written to descriptors 1 and 2, and reopen closed ones."""
        for seconds in _UNREAD_SECONDS:
            fcntl.ioctl(self._output, termios.FIONREAD, self._unread)
            if not any(self._unread):
                break
            self._pause.wait(seconds)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)

    def _beat(self) -> None:
        """Show that this process runs, and end it when the pool's has ended without closing the socket."""
        parent = os.getppid()
        while os.getppid() == parent:
            self._marker.beat()
            self._pause.wait(_BEAT_SECONDS)
        self._leave()

    def _say_goodbye(self, runner: int) -> None:
        executor = self._executors.pop(runner, None)
        if executor is None:
            return
        if self._folders.pop(runner) == self._folder:
            os.chdir("/")  # noqa: TID251 - what is to be removed must not be anybody's working directory
            self._folder = ""
        for key in tuple(self._aborted):  # the other thread adds to it
            if key[0] == runner:
                self._aborted.discard(key)
        executor.close()

    def _send_held(self) -> None:
        """Send results that the main thread does not come to send, because it is at a long attempt."""
        while True:
            self._has_unsent.wait()
            self._pause.wait(_HELD_SECONDS)
            self._has_unsent.clear()
            self._flush()

    def _flush(self) -> None:
        with self._flushing:  # until they are sent: their order says what they are the results of
            results = []
            while self._unsent:
                results.append(self._unsent.popleft())
            if results:
                self._send(results)

    def _send(self, results: list[AttemptResult]) -> None:
        try:
            message = frame(TaskResults(tuple(results)))
        except Exception:  # noqa: BLE001 - whatever an application put into its result that cannot be sent
            message = frame(TaskResults(tuple(_sendable(result) for result in results)))
        self._put(message)

    def _tell(self, message: FromWorker) -> None:
        self._put(frame(message))

    def _put(self, message: bytes) -> None:
        try:
            with self._sending:
                self._link.sendall(message)
        except OSError:
            # A session can be over before this process has finished starting.
            self._leave()

    def _read(self) -> None:
        buffer = Buffer()
        while True:
            try:
                data = self._link.recv(_READ)
            except OSError:
                data = b""
            if not data:
                self._leave()
            buffer.add(data)
            for body in buffer.frames():
                self._take(self._decode(body))

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, OpenExecutor):
            self._build(message)
        elif isinstance(message, Tasks):
            runner = message.runner
            self._queue.extend((number, runner, task) for number, task in enumerate(message.tasks, message.first))
            self._filled.set()
        elif isinstance(message, CloseExecutor):
            self._queue.append(message)
            self._filled.set()
        elif isinstance(message, Recall):
            self._give_back(message.most)
        else:
            self._abort(message)

    def _give_back(self, most: int) -> None:
        """Attempts that wait behind a long one are run by another worker."""
        numbers: list[int] = []
        with self._queueing:
            kept: list[CloseExecutor] = []
            while self._queue and len(numbers) < most:
                item = self._queue.pop()
                if isinstance(item, CloseExecutor):
                    kept.append(item)
                else:
                    numbers.append(item[0])
                    self._aborted.discard((item[1], item[2].drop, item[2].attempt))
            self._queue.extend(reversed(kept))
        self._tell(Returned(tuple(numbers)))

    def _abort(self, message: AbortTask) -> None:
        key = (message.runner, message.drop, message.attempt)
        # Noted first: what leaves the queue from here on sees it, and what has left before is current or over.
        self._aborted.add(key)
        queued = (item for item in tuple(self._queue) if not isinstance(item, CloseExecutor))
        if any((runner, task.drop, task.attempt) == key for _, runner, task in queued):
            return
        executor = self._executors.get(message.runner)
        if key == self._current and executor is not None:
            executor.abort(message.drop, message.attempt)
        self._aborted.discard(key)

    def _build(self, message: OpenExecutor) -> None:
        try:
            module, _, function = message.factory.partition(":")
            executor = getattr(importlib.import_module(module), function)(message.spec)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the runner has to be told
            self._tell(ExecutorFailed(message.runner, summary_of(error)))
            return
        executor.on_stream_opened = lambda opened: self._tell(OutputOpened(message.runner, opened))
        self._folders[message.runner] = os.path.join(message.spec.directory, "files")  # noqa: PTH118 - for chdir
        self._executors[message.runner] = executor
        self._tell(ExecutorReady(message.runner))

    def _leave(self) -> None:
        """End soon: the pool is gone, or has closed the socket to say that it is done with us."""
        self._leaving.set()
        runner, drop, attempt = self._current
        executor = self._executors.get(runner)
        if executor is not None:
            executor.abort(drop, attempt)
            self._stopped.wait(_LEAVE_SECONDS)
        end_descendants()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _sendable(result: AttemptResult) -> AttemptResult:
    """The result, or a failure that says why it cannot be sent."""
    try:
        frame(TaskResults((result,)))
    except Exception as error:  # noqa: BLE001 - as above
        text = f"the result of the attempt cannot be sent: {summary_of(error)}"
        failure = Failure(code="DF105", kind=name_of(error), text=text)
        return AttemptResult(result.drop, result.attempt, failure=failure, seconds=result.seconds)
    return result


def main() -> None:
    """Serve the runner at the other end of the socket until it closes it."""
    # Ctrl-C goes to everybody in the terminal's process group; what to do about it is the session's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link, page = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    link.set_inheritable(False)  # programs that attempts start must not hold it
    marker = Marker(page)
    os.close(page)
    adopt_orphans()
    _buffer_lines()
    _Worker(link, marker).run()


def _buffer_lines() -> None:
    """Let C's standard output pass on each line: an attempt may end, or die, before a buffer is full."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # another C library has another name for it
        libc = ctypes.CDLL(None)
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, 0)


if __name__ == "__main__":
    main()
