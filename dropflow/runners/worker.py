"""A worker process: ``python -m dropflow.runners.worker SOCKET MARKER NUMBER [VARIABLE ...]``.

The socket and the marker are inherited file descriptors. The variables limit threads of libraries; other variables of
this kind were set by the user.

It runs attempts of several sessions, with one executor for each. The main thread runs attempts one after another. A
second thread reads the socket, so that an abort is processed while an attempt runs; a third sends the results of short
attempts that wait behind a long one; a fourth writes heartbeats to the marker, by which the pool recognises a process
that is stopped. The marker is a page of memory shared with the pool, with the number of the current attempt. So the
pool can read which attempt ran when this process dies, although results are sent in batches.

Descriptors 1 and 2 are a pipe that the pool reads. An attempt ends after its output has been read, so that the pool can
assign the output to the attempt.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dropflow.apps.functions.loaded_modules import outdated_modules
from dropflow.clock import SystemClock
from dropflow.errors import AppError, StorageError
from dropflow.execution.chains import members, not_begun, with_input
from dropflow.execution.interfaces import Executor
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.failure import Failure, name_of, summary_of
from dropflow.graph.codec import read_extension
from dropflow.graph.templates import ResourceNeeds, needs_of
from dropflow.host.descendants import adopt_orphans, end_descendants
from dropflow.host.gpus import GPU_VARIABLE, lack_of_gpus
from dropflow.host.processors import THREAD_VARIABLES, thread_variables
from dropflow.runners.in_process import aborted
from dropflow.runners.worker_messages import (
    IDLE,
    AbortTask,
    Buffer,
    CloseExecutor,
    EndChain,
    ExecutorFailed,
    ExecutorReady,
    FromWorker,
    Marker,
    OpenExecutor,
    Outdated,
    OutputOpened,
    Recall,
    ReceivedContents,
    Returned,
    TaskResults,
    Tasks,
    ToWorker,
    WorkerReady,
    frame,
)
from dropflow.stopping import WAKE_SIGNAL

_FLUSH_SECONDS = 0.002
"""Seconds that results wait for further ones while short attempts run."""
_DELAY_SECONDS = 0.02
"""Seconds after which another thread sends results that wait while a long attempt runs."""
_EXIT_SECONDS = 0.8
"""Seconds that the current attempt may clean up when the pool has ended."""
_HEARTBEAT_SECONDS = 1.0
"""Seconds between two heartbeats."""
_UNREAD_SECONDS = (0.0, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Pauses in which the pool reads the output of an attempt: 0.2 s in all."""
_OOM_SCORE = "500"
_LINE_BUFFERED = 1  # _IOLBF of C
_NOTHING = (-1, -1, -1)

_Attempt = tuple[int, int, Task]
"""Number of the attempt, number of the runner, and task; its followers have the next numbers."""
_Key = tuple[int, int, int]
"""Number of the runner, drop and attempt."""


class _Worker:
    def __init__(self, link: socket.socket, marker: Marker, number: int, variables: Sequence[str]) -> None:
        self._number = number
        self._variables = frozenset(variables)
        self._cpus = 1
        """Processors that libraries in this process may use."""
        self._link = link
        self._marker = marker
        self._output = os.dup(1)
        self._unread = bytearray(4)
        self._decode = msgspec.msgpack.Decoder(ToWorker, ext_hook=read_extension).decode
        self._queue: deque[_Attempt | CloseExecutor] = deque()
        self._queueing = threading.Lock()
        self._filled = threading.Event()
        self._contents = ReceivedContents()
        self._executors: dict[int, Executor] = {}
        self._has_opened = False
        self._refused: set[int] = set()
        """Runners that began after the user edited a module that this process has loaded."""
        self._folders: dict[int, str] = {}
        self._declared: dict[int, tuple[ResourceNeeds, ...]] = {}
        """Resources that each template of a runner declares."""
        self._giving_gpus: set[int] = set()
        """Runners with templates that declare GPUs."""
        self._own_gpus = self._gpus = os.environ.get(GPU_VARIABLE)
        """Values of `GPU_VARIABLE`: when the process started, and now."""
        self._folder, self._inside = "", os.stat("/")  # noqa: PTH116 - as in `_enter`
        """The working directory, by its path and by what the path led to."""
        self._mask = os.umask(0)
        os.umask(self._mask)
        self._current = _NOTHING
        self._following: deque[_Key] = deque()
        """Attempts that follow the current one."""
        self._ends_chain = False
        self._aborted: set[_Key] = set()
        self._sending = threading.Lock()
        self._unsent: deque[AttemptResult] = deque()
        self._flushing = threading.Lock()
        self._has_unsent = threading.Event()
        self._pause = threading.Event()
        self._exiting = threading.Event()
        self._stopped = threading.Event()
        self._clock = SystemClock()

    def run(self) -> None:
        for work in (self._read, self._send_delayed, self._heartbeat):
            threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()
        self._send_message(WorkerReady())
        flushed = self._clock.monotonic()
        while True:
            if not self._queue:
                self._flush()
                self._filled.wait()
                self._filled.clear()
                continue
            with self._queueing:
                if not self._queue:
                    continue  # the item was recalled
                item = self._queue[0]
                if not isinstance(item, CloseExecutor):
                    # It becomes current before it leaves the queue, so that `_abort` finds it in one of the two places.
                    _, runner, task = item
                    self._following = deque((runner, follower.drop, follower.attempt) for follower in task.then)
                    self._current = (runner, task.drop, task.attempt)
                    self._ends_chain = False
                self._queue.popleft()
            if isinstance(item, CloseExecutor):
                self._close_executor(item.runner)
                continue
            for result in self._execute_chain(item):
                self._unsent.append(result)
                now = self._clock.monotonic()
                if now - flushed > _FLUSH_SECONDS:
                    self._flush()
                    flushed = now
                elif not self._has_unsent.is_set():
                    self._has_unsent.set()

    def _execute_chain(self, item: "_Attempt") -> Iterator[AttemptResult]:
        """Yield the results of an attempt and of its followers, as they end."""
        number, runner, task = item
        result = self._execute(number, runner, task)
        yield result
        for done, follower in enumerate(task.then):
            fed = None if self._ends_chain else with_input(follower, result)
            if fed is None:
                left = tuple(self._following)
                self._following.clear()
                self._aborted.difference_update(left)
                yield from not_begun(task.then[done:])
                return
            # It becomes current before it is removed from the followers, as above.
            self._current = self._following[0]
            self._following.popleft()
            result = self._execute(number + done + 1, runner, fed)
            yield result

    def _execute(self, number: int, runner: int, task: Task) -> AttemptResult:
        key = self._current
        executor = self._executors.get(runner)
        if executor is None or key in self._aborted or self._exiting.is_set():
            self._current = _NOTHING
            self._aborted.discard(key)
            return aborted(task.drop, task.attempt)
        self._marker.begin(number)
        needs = self._declared[runner][task.template]
        if needs.cpus != self._cpus:
            self._limit_threads(needs.cpus)
        self._show_gpus(",".join(task.gpus) if runner in self._giving_gpus else self._own_gpus)
        lacks = needs.gpus > len(task.gpus)
        failure = Failure.of(lack_of_gpus(needs.gpus, len(task.gpus))) if lacks else self._enter(self._folders[runner])
        result = executor.execute(task) if failure is None else AttemptResult(task.drop, task.attempt, failure=failure)
        self._current = _NOTHING
        if self._exiting.is_set():
            self._stopped.set()
        self._await_output_read()
        self._marker.current = IDLE
        return result

    def _enter(self, folder: str) -> Failure | None:
        """Set umask and working directory; return a failure if that is impossible: `folder` may have been removed."""
        os.umask(self._mask)
        try:
            # One attempt at a time runs in this process, so the working directory belongs to the attempt. The attempt
            # before it may have changed it.
            if folder != self._folder or not os.path.samestat(os.stat("."), self._inside):  # noqa: PTH116
                os.chdir(folder)  # noqa: TID251
                self._folder, self._inside = folder, os.stat(".")  # noqa: PTH116
        except OSError as error:
            reason = f"the working directory of the session cannot be entered: {error.strerror}"
            return Failure.of(StorageError(reason, where=folder))
        return None

    def _limit_threads(self, cpus: int) -> None:
        """Let libraries that are loaded later, and programs, use as many threads as an attempt declares processors.

        Libraries that are loaded already are limited by threadpoolctl, if it is installed and the user has set no
        limit.
        """
        self._cpus = cpus
        others = {name: value for name, value in os.environ.items() if name not in self._variables}
        wanted = thread_variables(cpus, others)
        os.environ.update(wanted)
        if len(wanted) == len(THREAD_VARIABLES):
            with contextlib.suppress(ImportError):
                importlib.import_module("threadpoolctl").threadpool_limits(int(wanted["OMP_NUM_THREADS"]))

    def _show_gpus(self, names: str | None) -> None:
        """Let libraries and programs see only these GPUs; with None, all GPUs of the host."""
        if names == self._gpus:
            return
        self._gpus = names
        if names is None:
            del os.environ[GPU_VARIABLE]
        else:
            os.environ[GPU_VARIABLE] = names

    def _await_output_read(self) -> None:
        """Wait until the pool has read what was written to descriptors 1 and 2, and reopen closed ones."""
        for seconds in _UNREAD_SECONDS:
            fcntl.ioctl(self._output, termios.FIONREAD, self._unread)
            if not any(self._unread):
                break
            self._pause.wait(seconds)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)

    def _heartbeat(self) -> None:
        """Show that this process runs. End it when the process of the pool has ended without closing the socket."""
        parent = os.getppid()
        while os.getppid() == parent:
            self._marker.beat()
            self._pause.wait(_HEARTBEAT_SECONDS)
        self._exit()

    def _close_executor(self, runner: int) -> None:
        executor = self._executors.pop(runner, None)
        if executor is None:
            return
        del self._declared[runner]
        self._giving_gpus.discard(runner)
        if self._folders.pop(runner) == self._folder:
            os.chdir("/")  # noqa: TID251 - a directory that is to be removed must not be in use
            self._folder = ""
        for key in tuple(self._aborted):  # the other thread adds to it
            if key[0] == runner:
                self._aborted.discard(key)
        executor.close()

    def _send_delayed(self) -> None:
        """Send results that wait because the main thread runs a long attempt."""
        while True:
            self._has_unsent.wait()
            self._pause.wait(_DELAY_SECONDS)
            self._has_unsent.clear()
            self._flush()

    def _flush(self) -> None:
        with self._flushing:  # held until they are sent: results are matched with tasks by their order
            results = []
            while self._unsent:
                results.append(self._unsent.popleft())
            if results:
                self._send_results(results)

    def _send_results(self, results: list[AttemptResult]) -> None:
        try:
            message = frame(TaskResults(tuple(results)))
        except Exception:  # noqa: BLE001 - an application put something into its result that cannot be sent
            message = frame(TaskResults(tuple(_sendable(result) for result in results)))
        self._put(message)

    def _send_message(self, message: FromWorker) -> None:
        self._put(frame(message))

    def _put(self, message: bytes) -> None:
        try:
            with self._sending:
                self._link.sendall(message)
        except OSError:
            # A session can be over before this process has finished starting.
            self._exit()

    def _read(self) -> None:
        buffer = Buffer()
        while True:
            try:
                is_open = buffer.receive(self._link)
            except OSError:
                is_open = False
            if not is_open:
                self._exit()
            for body in buffer.frames():
                self._on_message(self._decode(body))

    def _on_message(self, message: ToWorker) -> None:
        if isinstance(message, OpenExecutor):
            self._open_executor(message)
        elif isinstance(message, Tasks) and message.runner in self._refused:
            count = sum(1 + len(task.then) for task in message.tasks)
            self._send_message(Returned(tuple(range(message.first + count - 1, message.first - 1, -1))))
        elif isinstance(message, Tasks):
            runner = message.runner
            number = message.first
            for task in self._contents.with_known(runner, message.tasks):
                self._queue.append((number, runner, task))
                number += 1 + len(task.then)
            self._filled.set()
        elif isinstance(message, CloseExecutor):
            self._contents.forget(message.runner)
            self._queue.append(message)
            self._filled.set()
        elif isinstance(message, Recall):
            self._return_tasks(message.most)
        elif isinstance(message, EndChain):
            self._ends_chain = True
        else:
            self._abort(message)

    def _return_tasks(self, most: int) -> None:
        """Return attempts from the end of the queue: they wait behind a long one, and another worker runs them."""
        numbers: list[int] = []
        with self._queueing:
            kept: list[CloseExecutor] = []
            while self._queue and len(numbers) < most:
                item = self._queue.pop()
                if isinstance(item, CloseExecutor):
                    kept.append(item)
                else:
                    number, runner, task = item
                    numbers += range(number + len(task.then), number - 1, -1)
                    self._aborted.difference_update((runner, member.drop, member.attempt) for member in members(task))
            self._queue.extend(reversed(kept))
        self._send_message(Returned(tuple(numbers)))

    def _abort(self, message: AbortTask) -> None:
        key = (message.runner, message.drop, message.attempt)
        # Added before the search: an attempt that leaves the queue later finds it, and any other is current or over.
        self._aborted.add(key)
        queued = (item for item in tuple(self._queue) if not isinstance(item, CloseExecutor))
        if any((runner, member.drop, member.attempt) == key for _, runner, task in queued for member in members(task)):
            return
        if key in tuple(self._following):
            return
        executor = self._executors.get(message.runner)
        if key == self._current and executor is not None:
            executor.abort(message.drop, message.attempt, message.grace)
        self._aborted.discard(key)

    def _open_executor(self, message: OpenExecutor) -> None:
        is_outdated = bool(outdated_modules(self._clock)) and self._has_opened
        self._has_opened = True  # a new process refuses no runner: it has loaded the present code
        if self._refused or is_outdated:
            self._refused.add(message.runner)
            self._send_message(Outdated())
            return
        try:
            module, _, function = message.factory.partition(":")
            executor = getattr(importlib.import_module(module), function)(message.spec)
        except BaseException as error:  # noqa: BLE001 - the pool fails the attempts of this runner
            self._send_message(ExecutorFailed(message.runner, summary_of(error)))
            return
        executor.worker = self._number
        executor.on_stream_opened = lambda opened: self._send_message(OutputOpened(message.runner, opened))
        declared = tuple(needs_of(template) for template in message.spec.templates)
        self._declared[message.runner] = declared
        if any(needs.gpus for needs in declared):
            self._giving_gpus.add(message.runner)
        files = os.path.join(message.spec.directory, "files")  # noqa: PTH118 - for chdir
        self._folders[message.runner] = message.spec.folder or files
        self._executors[message.runner] = executor
        self._send_message(ExecutorReady(message.runner))

    def _exit(self) -> None:
        """End this process: the pool has ended, or has closed the socket."""
        self._exiting.set()
        runner, drop, attempt = self._current
        executor = self._executors.get(runner)
        if executor is not None:
            executor.abort(drop, attempt, _EXIT_SECONDS)
            self._stopped.wait(_EXIT_SECONDS)
        end_descendants()
        with contextlib.suppress(Exception):  # an attempt may have replaced them
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def _sendable(result: AttemptResult) -> AttemptResult:
    """Return the result, or a failure with the reason why it cannot be sent."""
    try:
        frame(TaskResults((result,)))
    except Exception as error:  # noqa: BLE001 - the pool fails the attempts of this runner
        text = f"the result of the attempt cannot be sent: {summary_of(error)}"
        failure = Failure(code=AppError.code, kind=name_of(error), text=text)
        return AttemptResult(result.drop, result.attempt, failure=failure, seconds=result.seconds)
    return result


def main() -> None:
    """Serve the runner at the other end of the socket until it closes it."""
    # Ctrl-C signals the whole process group of the terminal; the session decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A handler in Python, although it does nothing: system calls end, and pending exceptions are raised.
    signal.signal(WAKE_SIGNAL, lambda *_: None)
    link, page, number = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    link.set_inheritable(False)  # programs that attempts start must not hold it
    marker = Marker(page)
    os.close(page)
    with contextlib.suppress(OSError):  # not Linux
        # If memory is used up, the kernel should end this process and not the process of the sessions.
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
    adopt_orphans()
    _buffer_lines()
    _Worker(link, marker, number, sys.argv[4:]).run()


def _buffer_lines() -> None:
    """Buffer C's standard output by line: an attempt may end, or die, before a whole buffer is full."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # another C library has another name for it
        libc = ctypes.CDLL(None)
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, 0)


if __name__ == "__main__":
    main()
