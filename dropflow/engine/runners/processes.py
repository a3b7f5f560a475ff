"""Attempts run in worker processes: started once, fed in batches, replaced when they die.

One thread owns all sockets and all bookkeeping; the other methods only leave it a command and wake it. A worker gets
as many attempts ahead as it works off in a few milliseconds, and one at a time when they are long, so that small ones
cost little and long ones are spread evenly.

The death of a worker fails the one attempt that it was at (the marker in shared memory says which); what it had been
given ahead goes back into the queue. See `dropflow.engine.runners.worker` for the other side.
"""

import mmap
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from dropflow.clock import SystemClock
from dropflow.engine.api import ExecutorSpec, Outcome, Task
from dropflow.engine.runners.wire import AbortTask, Buffer, FromWorker, Hello, Outcomes, Ready, Refused, Tasks, frame
from dropflow.errors import WorkerDiedError
from dropflow.failure import Failure

__all__ = ["ProcessRunner"]

_READ = 1 << 20
_MARKER = struct.Struct("<q")
_IDLE = -1
_AHEAD_SECONDS = 0.02
_LONG_SECONDS = 0.05
_MOST_AHEAD = 512
_GRACE_SECONDS = 2.0
_CLOSE_SECONDS = 1.0
_MOST_STILLBORN = 3
_TAIL = 2000


class _Worker:
    """One worker process, as the runner's thread sees it."""

    def __init__(self, number: int, spec: ExecutorSpec, factory: str) -> None:
        self.number = number
        self.log = Path(spec.directory, "logs", f"worker-{number}.log")
        self.assigned: dict[int, Task] = {}
        self.ready = False
        self.refusal = ""
        self.seconds: float | None = None
        self.deadline: float | None = None
        self.buffer = Buffer()
        self.outgoing = bytearray(frame(Hello(factory, spec)))
        self.next_number = 0
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.link = ours
        with tempfile.TemporaryFile() as page, theirs, self.log.open("ab") as output:
            page.truncate(mmap.PAGESIZE)
            self.marker = mmap.mmap(page.fileno(), mmap.PAGESIZE)
            _MARKER.pack_into(self.marker, 0, _IDLE)
            # -P keeps the working directory, with the user's files, off the front of the module path.
            command = [sys.executable, "-P", "-m", "dropflow.engine.runners.worker"]
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(theirs.fileno()), str(page.fileno())],
                pass_fds=(theirs.fileno(), page.fileno()),
                cwd=Path(spec.directory, "files"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def room(self) -> int:
        """How many more attempts it should be given now."""
        if not self.ready or self.deadline is not None:
            return 0
        if self.seconds is None or self.seconds >= _LONG_SECONDS:
            ahead = 1
        else:
            ahead = max(2, min(_MOST_AHEAD, int(_AHEAD_SECONDS / max(self.seconds, 1e-6))))
        return ahead - len(self.assigned)

    def give(self, tasks: Sequence[Task]) -> None:
        """Send it attempts."""
        self.outgoing += frame(Tasks(self.next_number, tuple(tasks)))
        for task in tasks:
            self.assigned[self.next_number] = task
            self.next_number += 1

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Cross off what it has done; they come in the order of the tasks."""
        for outcome, number in zip(outcomes, list(self.assigned), strict=False):
            del self.assigned[number]
            spent = outcome.seconds
            self.seconds = spent if self.seconds is None else 0.7 * self.seconds + 0.3 * spent
        self.deadline = None

    def current(self) -> int:
        """Number of the attempt that it is at, or was at when it died."""
        return int(_MARKER.unpack_from(self.marker, 0)[0])

    def kill(self) -> None:
        """End the process and all that it started, now."""
        _kill_session(self.process.pid)
        self.process.wait()

    def how_it_ended(self) -> str:
        """Exit status or signal, and the end of what it printed."""
        status = self.process.wait()
        text = f"was killed by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        tail = self.log.read_text(errors="replace")[-_TAIL:].strip() if self.log.exists() else ""
        return f"{text}; it printed last: {tail}" if tail else text

    def dispose(self) -> None:
        """Give back what belongs to it; its log stays when there is something in it."""
        self.link.close()
        self.marker.close()
        if self.log.exists() and not self.log.stat().st_size:
            self.log.unlink()


class ProcessRunner:
    """A fixed number of worker processes.

    Parameters
    ----------
    spec : ExecutorSpec
        What each worker builds its executor from. ``files`` and ``logs`` exist in its directory.
    workers : int
        How many processes.
    factory : str
        ``package.module:function`` that makes an `Executor` from the spec.
    """

    def __init__(self, spec: ExecutorSpec, *, workers: int, factory: str = "dropflow.apps.execute:build") -> None:
        self.window = 2 * _MOST_AHEAD * workers
        self._spec = spec
        self._factory = factory
        self._wanted = workers
        self._workers: list[_Worker] = []
        self._started = 0
        self._stillborn = 0
        self._broken: Failure | None = None
        self._pending: deque[Task] = deque()
        self._commands: deque[Callable[[], None]] = deque()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._deliver: Callable[[Sequence[Outcome]], None] | None = None
        self._clock = SystemClock()
        self._closing = False
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="worker-processes", daemon=True)

    def start(self, deliver: Callable[[Sequence[Outcome]], None]) -> None:
        """Start the workers; they become ready while tasks already queue."""
        self._deliver = deliver
        for _ in range(self._wanted):
            self._hire()
        self._thread.start()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue `tasks`."""
        batch = tuple(tasks)
        self._command(lambda: self._pending.extend(batch))

    def abort(self, drop: int) -> None:
        """Forget `drop` if it waits; if it runs, ask its worker to stop it, and kill the worker after two seconds."""
        self._command(lambda: self._abort(drop))

    def interrupt(self) -> None:
        """Nothing to do: the session's thread is free to take in its cancel, and aborts follow."""

    def close(self) -> None:
        """End the workers and the thread; idempotent. Workers get a second to stop what they do."""
        if self._closed:
            return
        self._closed = True
        if self._thread.ident is not None:
            self._command(self._begin_close)
            self._thread.join()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    # Everything below runs in the runner's thread, but for `_command` and the first `_hire`s.

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake.send(b"!")

    def _serve(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._woken:
                    self._woken.recv(_READ)
                else:
                    self._hear(key.data)
            while self._commands:
                self._commands.popleft()()
            if not self._closing:
                self._kill_overdue()
                self._assign()
                for worker in self._workers:
                    self._flush(worker)
        self._end_workers()

    def _patience(self) -> float | None:
        deadlines = [worker.deadline for worker in self._workers if worker.deadline is not None]
        return max(0.0, min(deadlines) - self._clock.monotonic()) if deadlines else None

    def _hire(self) -> None:
        worker = _Worker(self._started, self._spec, self._factory)
        self._started += 1
        self._workers.append(worker)
        self._selector.register(worker.link, selectors.EVENT_READ, worker)
        self._flush(worker)

    def _hear(self, worker: _Worker) -> None:
        if worker not in self._workers:
            return
        try:
            data = worker.link.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._bury(worker)
            return
        worker.buffer.add(data)
        for body in worker.buffer.frames():
            message = msgspec.msgpack.decode(body, type=FromWorker)
            if isinstance(message, Outcomes):
                self._stillborn = 0
                worker.take(message.outcomes)
                self._hand_over(message.outcomes)
            elif isinstance(message, Ready):
                worker.ready = True
            elif isinstance(message, Refused):
                worker.refusal = message.text

    def _flush(self, worker: _Worker) -> None:
        while worker.outgoing:
            try:
                sent = worker.link.send(memoryview(worker.outgoing)[:_READ])
            except BlockingIOError:
                break
            except OSError:
                worker.outgoing.clear()  # it is dead; reading will tell
                break
            del worker.outgoing[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.outgoing else 0)
        if self._selector.get_key(worker.link).events != wanted:
            self._selector.modify(worker.link, wanted, worker)

    def _assign(self) -> None:
        if self._broken is not None:
            self._fail_pending(self._broken)
            return
        while self._pending:
            worker = max(self._workers, key=_Worker.room, default=None)
            room = worker.room() if worker is not None else 0
            if worker is None or room <= 0:
                return
            share = -(-len(self._pending) // len(self._workers))
            count = min(room, share)
            worker.give([self._pending.popleft() for _ in range(count)])

    def _abort(self, drop: int) -> None:
        self._pending = deque(task for task in self._pending if task.drop != drop)
        for worker in self._workers:
            if any(task.drop == drop for task in worker.assigned.values()):
                worker.outgoing += frame(AbortTask(drop))
                task = worker.assigned.get(worker.current())
                if task is not None and task.drop == drop and worker.deadline is None:
                    worker.deadline = self._clock.monotonic() + _GRACE_SECONDS

    def _kill_overdue(self) -> None:
        now = self._clock.monotonic()
        for worker in self._workers:
            if worker.deadline is not None and worker.deadline <= now:
                worker.deadline = None
                _kill_session(worker.process.pid)  # its socket closes, and it is buried like any other

    def _bury(self, worker: _Worker) -> None:
        """Blame the attempt that a dead worker was at, queue again what it had been given ahead, and replace it."""
        self._selector.unregister(worker.link)
        self._workers.remove(worker)
        current = worker.current()
        _kill_session(worker.process.pid)
        ended = worker.how_it_ended()
        guilty = worker.assigned.pop(current, None)
        self._pending.extendleft(reversed(worker.assigned.values()))
        if guilty is not None:
            error = WorkerDiedError(
                f"the worker process {ended}",
                hint="out of memory, a crash in compiled code, or an exit from the application's own code",
            )
            self._hand_over([Outcome(guilty.drop, guilty.attempt, failure=Failure.of(error))])
        else:
            self._stillborn += 1
        worker.dispose()
        if self._stillborn >= _MOST_STILLBORN:
            self._broken = Failure.of(
                WorkerDiedError(
                    f"worker processes cannot be started: {worker.refusal or ended}",
                    hint="--runner threads does without them",
                )
            )
        else:
            self._hire()

    def _fail_pending(self, failure: Failure) -> None:
        tasks, self._pending = self._pending, deque()
        if tasks:
            self._hand_over([Outcome(task.drop, task.attempt, failure=failure) for task in tasks])

    def _hand_over(self, outcomes: Sequence[Outcome]) -> None:
        if self._deliver is not None:
            self._deliver(outcomes)

    def _begin_close(self) -> None:
        self._closing = True

    def _end_workers(self) -> None:
        for worker in self._workers:
            self._selector.unregister(worker.link)
            worker.link.close()
        deadline = self._clock.monotonic() + _CLOSE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - self._clock.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
            worker.dispose()
        self._workers.clear()


def _kill_session(leader: int) -> None:
    """Kill every process of the session that `leader` leads: a worker, and the commands that it started."""
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader:
                process.kill()
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
