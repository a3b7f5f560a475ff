"""One worker process, as seen by the thread of its pool."""

import contextlib
import itertools
import math
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from dropflow.errors import DropflowError, OutOfMemoryError, WorkerDiedError
from dropflow.execution.chains import members
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.formatting import format_size
from dropflow.graph.components import timed_out
from dropflow.graph.templates import ResourceNeeds
from dropflow.host.descendants import WORKER_VARIABLE, end_worker, exit_descriptor
from dropflow.host.memory import count_kills, host_memory
from dropflow.host.processors import thread_variables
from dropflow.runners.backlog import NO_ROOM, Backlog, Room
from dropflow.runners.worker_messages import IDLE, Buffer, EndChain, Marker, Recall, SentContents, Tasks, frame
from dropflow.stopping import GRACE_SECONDS, kill_after

_BLOCK_BYTES = 1 << 16
"""Bytes of output that are read at once."""
_PIPE = 1 << 20
"""Most bytes that a pipe holds."""
_KEPT_BYTES = 1 << 16
"""Bytes at the end of the output of an attempt that are kept."""
_LAST_BYTES = 2000
"""Bytes at the end of the output of all attempts that the failure of a worker quotes."""
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS})
_KERNEL_LOG = Path("/dev/kmsg")
_RECORD = 8192
"""Bytes: a read of the kernel's log with less room than its record fails."""
_PLAIN = ResourceNeeds()
_NOTHING = ResourceNeeds(0)
SLOW_SECONDS = 0.25
"""Seconds after which the attempts that wait behind a running one go to another, idle worker."""
Assigned = tuple[int, Task]
"""The number of a runner, and an attempt of it."""
_CHECK_SECONDS = 1.0
"""Seconds between two checks for workers that hang."""
_OVERDUE_SECONDS = 5.0
"""Seconds that a worker has to stop by itself an attempt that takes longer than its limit."""
_STOPPED_SECONDS = 30.0
"""Seconds that a worker may be stopped by a signal while there are attempts."""
_UNKILLABLE_SECONDS = 10.0
"""Seconds that a killed worker may take to end."""

# Output that compiled code and child programs write to descriptors 1 and 2 of a worker process, without Python.
#
# The pool reads it from a pipe and keeps the end of the output of each attempt. It belongs to the current attempt of
# the worker: a worker begins the next attempt only when its pipe is empty (see `dropflow.runners.worker`).


class Tail:
    """The last `limit` bytes that were added, and the number of bytes before them."""

    def __init__(self, limit: int = _KEPT_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self._data += data
        if len(self._data) > 2 * self._limit:  # seldom, because it moves the bytes that are kept
            self._cut()

    def content(self) -> bytes:
        """Return the bytes that are kept, after a line with the number of missing bytes."""
        self._cut()
        note = b"[... %d bytes left out ...]\n" % self._dropped if self._dropped else b""
        return note + bytes(self._data)

    def _cut(self) -> None:
        surplus = len(self._data) - self._limit
        if surplus > 0:
            self._dropped += surplus
            del self._data[:surplus]


class WorkerOutput:
    """The reading end of the pipe of one worker process. Never blocks.

    Parameters
    ----------
    descriptor : int
        The reading end; closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.by_attempt: dict[int, Tail] = {}
        """Output by number of the attempt; `dropflow.runners.worker_messages.IDLE` outside of attempts."""
        self._last = Tail(_LAST_BYTES)

    def read(self, attempt: int) -> bool:
        """Read a block as the output of `attempt`; return False if there is none."""
        try:
            block = os.read(self.descriptor, _BLOCK_BYTES)
        except BlockingIOError:
            return False
        if block:
            self._last.add(block)
            tail = self.by_attempt.get(attempt)
            if tail is None:
                tail = self.by_attempt[attempt] = Tail()
            tail.add(block)
        return bool(block)

    def read_all(self, attempt: int) -> None:
        """Read the present content of the pipe, and no more than a pipe holds: child processes may go on writing."""
        for _ in range(_PIPE // _BLOCK_BYTES):
            if not self.read(attempt):
                break

    def take(self, *, but: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Remove and yield the kept output, attempt by attempt, except that of the attempt `but`."""
        for attempt in [attempt for attempt in self.by_attempt if attempt != but]:
            yield attempt, self.by_attempt.pop(attempt).content()

    @property
    def end(self) -> str:
        """The end of the output of all attempts."""
        return self._last.content()[-_LAST_BYTES:].decode(errors="replace").strip()

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.descriptor)


# The end of a worker process, in words: its signal or exit status, its peak memory, and its last output.


@dataclass(frozen=True)
class WorkerEnd:
    """The end of one worker process.

    Attributes
    ----------
    status : int
        Exit status, or minus the number of the signal that ended it.
    peak : int
        Peak memory of it, or of a process that it waited for, in bytes; 0 if that is not known.
    is_peak_exact : bool
        Whether `peak` is the peak of this process. If not, it is the memory of the parent process when it started this
        one, and this process used at most as much: Linux keeps the larger of the two.
    by_oom_killer : bool
        Whether the kernel killed it because memory was used up.
    output : str
        The end of its output.
    is_over : bool
        Whether it has ended. If not, it was killed and waits for the kernel.
    """

    status: int
    peak: int = 0
    is_peak_exact: bool = False
    by_oom_killer: bool = False
    output: str = ""
    is_over: bool = True

    @property
    def reason(self) -> str:
        """How it ended, to follow a subject: "was killed by signal 11 (SIGSEGV), after using 1.2 GB of memory"."""
        if not self.is_over:
            how = "was killed and does not end, because it waits for the kernel"
        elif self.by_oom_killer:
            how = "was killed by the kernel's OOM killer (SIGKILL)"
        elif self.status < 0:
            how = f"was killed by signal {-self.status}{_name(-self.status)}"
        else:
            how = f"ended with status {self.status}"
        if self.peak:
            how += f", after using {'' if self.is_peak_exact else 'at most '}{format_size(self.peak)} of memory"
        return how

    @property
    def text(self) -> str:
        """The reason, and its last output."""
        return f"{self.reason}; it printed last: {self.output}" if self.output else self.reason

    def error(self) -> WorkerDiedError:
        """Return the error for the attempt that it ran."""
        kind = OutOfMemoryError if self.by_oom_killer else WorkerDiedError
        return kind(f"the worker process {self.text}", hint=self._hint())

    def _hint(self) -> str:
        if not self.is_over:
            return "a file system or a device does not answer: look at its state, and at the kernel's log (dmesg)"
        if self.by_oom_killer:
            limit = host_memory().limit
            return (
                f"{limit.reason} allows {format_size(int(limit.bytes))} for all processes together: declare the need "
                "of the application in its field 'memory', run fewer attempts at a time (--workers), or allow more"
            )
        number = -self.status
        if number in _CRASHES:
            return "a crash in compiled code that the application calls; see the log of the drop"
        if number == signal.SIGKILL:
            return "another program killed it, or the kernel because memory was used up: see the kernel's log (dmesg)"
        if number > 0:
            return "another program, or the application itself, sent the signal"
        return "code of the application ended the process, as os._exit does; raise an exception instead"


def _name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""


# Whether the kernel killed a process because memory was used up (OOM killer), if the system shows it.
#
# Two places show it. The kernel's log names the process, but many systems let only root read it, and inside of a
# container the ids of processes differ from those in the log. The control group (cgroup) of this process, in which
# worker processes are too, counts how many of its processes were killed; version 1 counts in another file than version
# 2.


class OomKiller:
    """Watches the OOM killer from the time when this object was made. Used by one thread.

    Parameters
    ----------
    counters : iterable of Path
        Files with a line ``oom_kill N``, from `counter_files`.
    kernel_log : Path
        The kernel's log, one record for each read.
    """

    def __init__(self, counters: Iterable[Path] = (), kernel_log: Path = _KERNEL_LOG) -> None:
        self._counters = tuple(counters)
        self._log = -1
        with contextlib.suppress(OSError):
            self._log = os.open(kernel_log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._log, 0, os.SEEK_END)
        self._known = self._recent = self._count()

    def check(self) -> None:
        """Forget kills that were counted before the last check: they ended processes that are not workers.

        Call this about once a second. The pool notices the end of a worker in less time.
        """
        self._known, self._recent = self._recent, max(self._recent, self._count())

    def has_killed(self, pid: int) -> bool:
        """Return whether a process that SIGKILL has just ended was killed by the OOM killer.

        Each counted kill is assigned to one process only.
        """
        if any(f"Killed process {pid} " in record for record in self._records()):
            is_killed = True
        else:
            is_killed = self._count() > self._known
        if is_killed:
            self._known += 1
            self._recent = max(self._recent, self._known)
        return is_killed

    def close(self) -> None:
        """Close the kernel's log. Idempotent."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _count(self) -> int:
        return count_kills(self._counters)

    def _records(self) -> Iterator[str]:
        while self._log >= 0:
            try:
                record = os.read(self._log, _RECORD)
            except BrokenPipeError:  # the oldest records were overwritten
                continue
            except OSError:  # no more records
                return
            if not record:
                return
            yield record.decode(errors="replace")


class WorkerProcess:
    """A process that runs attempts of any runner of its pool, one at a time.

    Parameters
    ----------
    number : int
        Number of the worker.

    Raises
    ------
    OSError
        The system has no free process, memory or descriptor.
    """

    gpus: tuple[str, ...] = ()
    """The GPUs of its attempt. No other worker gets them until this one has ended."""
    is_garbled = False
    """Whether it has sent something that is not a message: nothing of it is read any more."""
    awaits_room = False
    """Whether the pool waits until its socket takes more."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_started = False
        """Whether its first message has come: it takes attempts."""
        self.assigned: dict[int, Assigned] = {}
        self.executors: set[int] = set()
        """Numbers of the runners whose executors it has."""
        self._backlog = Backlog()
        """Expected cost of each attempt in `assigned`."""
        self.deadline: float | None = None
        self.buffer, self.outgoing, self.contents = Buffer(), bytearray(), SentContents()
        """Received bytes, bytes to send, and the contents that it keeps because many attempts read them."""
        self.next_number, self.since = 0, 0.0
        self._aborted: set[int] = set()
        self._suspect, self._needs = IDLE, _PLAIN
        self.since_current = 0.0
        """Time of the first check that found it at its current attempt."""
        self.stopped_since: float | None = None
        """Time of the first check that found it stopped by a signal; None if it was not stopped at the last check."""
        self.kill_reason: DropflowError | None = None
        """Why the pool has killed it; None if it has not."""
        self.is_recalled = self.is_retiring = self.is_killed = False
        self.killed_since: float | None = None
        """Time of the first check that found it killed and not ended; None if there was none."""
        self.seen, self._beats = IDLE, 0
        """Its attempt and its number of heartbeats at the last check."""
        self._name = f"{os.getpid()}-{number}-{secrets.token_hex(8)}"
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            self.link, their_link = socket.socketpair()
            ours.callback(self.link.close)
            theirs.callback(their_link.close)
            self.link.setblocking(False)
            reader, writer = os.pipe()
            theirs.callback(os.close, writer)
            self.output = WorkerOutput(reader)
            ours.callback(self.output.close)
            page = theirs.enter_context(tempfile.TemporaryFile())
            # Not by `truncate`: on a full disk, a write to a hole in a mapped file ends this process by SIGBUS.
            os.posix_fallocate(page.fileno(), 0, Marker.SIZE)
            self.marker = Marker(page.fileno())
            ours.callback(self.marker.close)
            self.marker.clear()
            self._inherited_peak = _peak(resource.getrusage(resource.RUSAGE_SELF))
            # -P keeps the working directory, with the user's files, off the front of the module path.
            command = [sys.executable, "-P", "-m", "dropflow.runners.worker", str(their_link.fileno())]
            threads = thread_variables(1, os.environ)
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(page.fileno()), str(number + 1), *threads],
                pass_fds=(their_link.fileno(), page.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                # If SSH_CLIENT is set, bash assumes that ssh has started it, and reads ~/.bashrc in each attempt.
                env={name: text for name, text in os.environ.items() if name != "SSH_CLIENT"}
                | {**threads, WORKER_VARIABLE: self._name},
                start_new_session=True,
            )
            ours.callback(self.process.wait)
            ours.callback(self.kill)
            self.exit = exit_descriptor(self.process.pid)
            """Becomes readable when the process ends."""
            ours.callback(os.close, self.exit)
            self._open = ours.pop_all()

    def room(self, now: float) -> Room:
        """Return how many attempts it can get now, from all runners together."""
        first = itertools.islice(self.assigned.values(), 1)
        is_alone = any(not self._needs.are_plain or needs_own_worker(task) for _, task in first)
        if is_alone or self.deadline is not None or self.stopped_since is not None or self.is_retiring:
            return NO_ROOM
        return NO_ROOM if self.is_slow(now) else self._backlog.room

    def is_long(self, now: float) -> bool:
        """Return whether it has an attempt that takes, or may take, so long that no other should wait behind it."""
        return self._backlog.has_long or self.is_slow(now)

    def is_slow(self, now: float) -> bool:
        """Return whether its attempt has run for so long that other attempts should not wait for it."""
        return bool(self.assigned) and now - self.since >= SLOW_SECONDS

    @property
    def is_idle(self) -> bool:
        """Whether it has no attempts and can get some."""
        return not self.assigned and self.deadline is None and self.stopped_since is None and not self.is_retiring

    @property
    def taken(self) -> ResourceNeeds:
        """The processors and the memory that it takes: one processor at least, unless it is idle."""
        if self.assigned:
            return self._needs
        return _NOTHING if self.is_idle else _PLAIN

    def assign(
        self,
        runner: int,
        tasks: Sequence[Task],
        now: float,
        *,
        cost: Callable[[int], float],
        needs: ResourceNeeds = _PLAIN,
    ) -> None:
        """Send attempts to the worker; it must have the executor of their runner.

        Parameters
        ----------
        cost : callable
            Returns the cost in seconds of an attempt of a template that waits with the worker.
        needs : ResourceNeeds
            The resources of each attempt. If they are more than one processor, there is only one attempt.
        """
        self._needs = needs
        if not self.assigned:
            self.since = now
        self.outgoing += frame(Tasks(runner, self.next_number, self.contents.without_known(runner, tasks)))
        for task in tasks:
            for member in members(task):
                self.assigned[self.next_number] = (runner, member)
                self._backlog.add(self.next_number, cost(member.template))
                self.next_number += 1

    def take_results(self, results: Sequence[AttemptResult], now: float) -> Iterator[tuple[Assigned, AttemptResult]]:
        """Remove the attempts that it has run, and yield each with its result.

        Results come in the order of the tasks.
        """
        self.since = now
        for result, number in zip(results, list(self.assigned), strict=False):
            yield self.unassign(number), result

    def recall(self) -> None:
        """Request that the worker returns the attempts that it has not begun."""
        if len(self.assigned) > 1 and not self.is_recalled:
            self.is_recalled = True
            self.outgoing += frame(Recall(len(self.assigned)))

    def last_follower(self) -> Assigned | None:
        """Return the last attempt of its current chain; None if it runs the last one, or no chain."""
        last = None
        for number, (runner, task) in self.assigned.items():
            if number > self.marker.last:
                if not task.follows:
                    break
                last = runner, task
        return last

    def end_chain(self) -> None:
        """Request that the worker begins no further attempt of its current chain."""
        self.outgoing += frame(EndChain())

    def unassign(self, number: int) -> Assigned:
        """Remove and return an attempt that has ended, or that the worker has not begun."""
        self._aborted.discard(number)
        if not self._aborted:
            self.deadline = None
        self._backlog.remove(number)
        return self.assigned.pop(number)

    def mark_aborted(self, numbers: Iterable[int], now: float, *, seconds: float) -> None:
        """Note that attempts were aborted. If it still runs the same one of them after `seconds`, it `is_stuck`."""
        deadline = now + seconds
        self._aborted.update(numbers)
        self._suspect = self.current()
        if self.deadline is None or deadline < self.deadline:
            self.deadline = deadline

    def is_aborted(self, number: int) -> bool:
        """Return whether an attempt that it was given has been aborted."""
        return number in self._aborted

    @property
    def is_stuck(self) -> bool:
        """Whether it still runs the attempt that it ran when attempts were last aborted, if that is one of them."""
        return self.current() == self._suspect and self._suspect in self._aborted

    def current(self) -> int:
        """Return the number of the attempt that it runs, or ran when it died."""
        return self.marker.current

    def begun(self) -> list[int]:
        """Return the numbers of the attempts that it began and whose results have not come, in order."""
        last = self.marker.last
        return [number for number in self.assigned if number <= last]

    @property
    def is_fresh(self) -> bool:
        """Whether it has not got an attempt yet."""
        return not self.next_number

    def retire(self) -> None:
        """End a worker without attempts: a new worker takes its place."""
        self.is_retiring = True
        self.kill()

    def check(self, now: float) -> None:
        """Note its current attempt, and whether it is stopped. Call this about once a second."""
        current, beats = self.current(), self.marker.beats
        if current != self.seen:
            self.seen, self.since_current = current, now
        if not self._is_stopped():
            self.stopped_since = None
        elif self.stopped_since is None or beats != self._beats:
            # A heartbeat since the last check means that it was continued, and then stopped again.
            self.stopped_since = now
        self._beats = beats

    def _is_stopped(self) -> bool:
        """Return whether a signal has stopped it. Heartbeats do not show that: compiled code holds them up, too."""
        try:
            return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False

    def kill(self) -> None:
        """End the process and all that it started. It is not reaped: `exit` becomes readable when it has ended."""
        self.is_killed = True
        if self.process.returncode is None:  # otherwise its id may belong to another process
            end_worker(self.process.pid, self._name)

    def reap(self, oom_killer: OomKiller) -> WorkerEnd:
        """Return how the process ended. It must have ended."""
        peak = 0
        if self.process.returncode is None:
            # Not Popen.wait: only wait4 returns the memory that the process used.
            with contextlib.suppress(ChildProcessError):
                _, status, usage = os.wait4(self.process.pid, 0)
                self.process.returncode, peak = os.waitstatus_to_exitcode(status), _peak(usage)
        status = self.process.wait()
        return WorkerEnd(
            status=status,
            peak=peak,
            is_peak_exact=peak > self._inherited_peak,
            by_oom_killer=status == -signal.SIGKILL
            and self.kill_reason is None
            and oom_killer.has_killed(self.process.pid),
            output=self.output.end,
        )

    def close(self) -> None:
        """End the process if it has not ended, and close its socket, pipe and memory."""
        self._open.close()


def needs_own_worker(task: Task) -> bool:
    """Return whether no other attempt may wait behind this one.

    It takes part in a stream, and may last as long as the stream; or it is a suspect, and may end the process.
    """
    if task.is_ahead or task.is_suspect:
        return True
    for output in task.outputs:  # noqa: SIM110 - called for every attempt: a generator takes three times as long
        if output.streams:
            return True
    return False


def _peak(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * 1024


# The end of workers that hang: in an aborted attempt, past the time limit of an attempt, or stopped by a signal.
#
# A process that waits for the kernel, for example for a network file system that does not answer, does not end when it
# is killed. After a while the pool treats it as if it had ended: its attempts are repeated, and another process takes
# its place. If it continues, it ends immediately, so that it cannot disturb anything.


class WorkerMonitor:
    """Watches the workers of a pool. Used by the pool's thread.

    Parameters
    ----------
    workers : sequence of WorkerProcess
        The workers, as they are at any time.
    limit_of : callable
        Returns the time limit of the current attempt of a worker, in seconds; 0 for none.
    abandon : callable
        Removes a worker that was killed and does not end.
    """

    def __init__(
        self,
        workers: Sequence[WorkerProcess],
        limit_of: Callable[[WorkerProcess], float],
        abandon: Callable[[WorkerProcess], None],
    ) -> None:
        self._workers = workers
        self._limit_of = limit_of
        self._abandon = abandon
        self._checked = -math.inf

    @property
    def next_check(self) -> float:
        """Time of the next call of `kill_hanging`, while there are attempts."""
        return self._checked + _CHECK_SECONDS

    def kill_aborted(self, now: float) -> None:
        """Kill workers that still run an aborted attempt after its grace period."""
        for worker in self._workers:
            if worker.deadline is not None and worker.deadline <= now:
                worker.deadline = None
                if worker.is_stuck:
                    worker.kill()
                else:
                    worker.mark_aborted((), now, seconds=kill_after(GRACE_SECONDS))

    def kill_hanging(self, now: float) -> None:
        """Kill workers that stay stopped, or whose attempt exceeds its limit; abandon killed workers that do not end.

        Call this at `next_check` while there are attempts. Workers without attempts are checked too, so that attempts
        are not given to stopped workers, one after the other.
        """
        self._checked = now
        for worker in tuple(self._workers):
            if worker.is_killed:
                if worker.killed_since is None:
                    worker.killed_since = now
                elif now - worker.killed_since >= _UNKILLABLE_SECONDS:
                    self._abandon(worker)
                continue
            worker.check(now)
            limit = self._limit_of(worker)
            if limit and now - worker.since_current > limit + _OVERDUE_SECONDS:
                worker.kill_reason = timed_out(limit)
            elif worker.stopped_since is not None and now - worker.stopped_since >= _STOPPED_SECONDS:
                worker.kill_reason = WorkerDiedError(
                    f"the worker process was stopped by a signal and did not continue for {_STOPPED_SECONDS:g} s",
                    hint="something sent it SIGSTOP; to continue a stopped process, send it SIGCONT",
                )
            if worker.kill_reason is not None:
                worker.kill()
