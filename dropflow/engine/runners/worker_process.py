"""One worker process, as seen by the thread of its pool."""

import contextlib
import itertools
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence

import psutil

from dropflow.engine.api import AttemptResult, Task
from dropflow.engine.chained_tasks import members
from dropflow.engine.runners.backlog import NO_ROOM, Backlog, Room
from dropflow.engine.runners.capacity import thread_variables
from dropflow.engine.runners.descendants import WORKER_VARIABLE, end_worker
from dropflow.engine.runners.exit_watch import exit_descriptor
from dropflow.engine.runners.marker import IDLE, Marker
from dropflow.engine.runners.oom_killer import OomKiller
from dropflow.engine.runners.reread_contents import SentContents
from dropflow.engine.runners.worker_end import WorkerEnd
from dropflow.engine.runners.worker_messages import Buffer, EndChain, Recall, Tasks, frame
from dropflow.engine.runners.worker_output import WorkerOutput
from dropflow.errors import DropflowError
from dropflow.graph.resource_needs import ResourceNeeds

__all__ = ["SLOW_SECONDS", "Assigned", "WorkerProcess", "needs_own_worker"]

_PLAIN = ResourceNeeds()
_NOTHING = ResourceNeeds(0)
SLOW_SECONDS = 0.25
"""How long an attempt may take before the attempts that wait for it run in another, idle worker."""

Assigned = tuple[int, Task]
"""An attempt, and the number of the runner that it is for."""


class WorkerProcess:
    """A process that runs attempts of any runner of its pool, one at a time.

    Parameters
    ----------
    number : int
        Of the worker.

    Raises
    ------
    OSError
        The system has no process, memory or descriptor to give.
    """

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
        """Received bytes, bytes to send, and what it has of the contents that many attempts read."""
        self.next_number, self.since = 0, 0.0
        self._aborted: set[int] = set()
        self._suspect, self._needs = IDLE, _PLAIN
        self.since_current = 0.0
        """When it was first seen at its current attempt."""
        self.stopped_since: float | None = None
        """When it was first seen stopped by a signal, if it was stopped at the last check."""
        self.kill_reason: DropflowError | None = None
        """Why it is killed, if the pool decided that."""
        self.is_recalled = self.is_retiring = self.is_killed = False
        self.killed_since: float | None = None
        """When it was first seen that it had been killed and had not ended."""
        self.seen, self._beats = IDLE, 0
        """The attempt that it was at when it was last checked, and its heartbeats."""
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
            page.truncate(Marker.SIZE)
            self.marker = Marker(page.fileno())
            ours.callback(self.marker.close)
            self.marker.clear()
            self._inherited_peak = _peak(resource.getrusage(resource.RUSAGE_SELF))
            # -P keeps the working directory, with the user's files, off the front of the module path.
            command = [sys.executable, "-P", "-m", "dropflow.engine.runners.worker"]
            threads = thread_variables(1, os.environ)
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(their_link.fileno()), str(page.fileno()), str(number + 1), *threads],
                pass_fds=(their_link.fileno(), page.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                env={**os.environ, **threads, WORKER_VARIABLE: self._name},
                start_new_session=True,
            )
            ours.callback(self.process.wait)
            ours.callback(self.kill)
            self.exit = exit_descriptor(self.process.pid)
            """Becomes readable when the process ends."""
            ours.callback(os.close, self.exit)
            self._open = ours.pop_all()

    def room(self, now: float) -> Room:
        """Return what it can be given now, by all runners together."""
        first = itertools.islice(self.assigned.values(), 1)
        is_alone = any(not self._needs.are_plain or needs_own_worker(task) for _, task in first)
        if is_alone or self.deadline is not None or self.stopped_since is not None or self.is_retiring:
            return NO_ROOM
        return NO_ROOM if self.is_slow(now) else self._backlog.room

    def is_long(self, now: float) -> bool:
        """Return whether it has an attempt that takes so long, or may, that no other one should wait behind it."""
        return self._backlog.has_long or self.is_slow(now)

    def is_slow(self, now: float) -> bool:
        """Return whether its attempt has run for so long that others should not wait for it."""
        return bool(self.assigned) and now - self.since >= SLOW_SECONDS

    @property
    def is_idle(self) -> bool:
        """Whether it has no attempts, and can be given some."""
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
            Returns what an attempt of a template counts among those that it is given ahead, in seconds.
        needs : ResourceNeeds
            What each of them takes. If that is more than one processor, there is one attempt.
        """
        self._needs = needs
        if not self.assigned:
            self.since = now
        self.outgoing += frame(Tasks(runner, self.next_number, self.contents.without_known(runner, tasks)))
        for task in tasks:
            for one in members(task):
                self.assigned[self.next_number] = (runner, one)
                self._backlog.add(self.next_number, cost(one.template))
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
        """Return the last attempt of the chain that it is at; None if it is at the last one, or at no chain."""
        found = None
        for number, (runner, task) in self.assigned.items():
            if number > self.marker.last:
                if not task.follows:
                    break
                found = runner, task
        return found

    def end_chain(self) -> None:
        """Request that the worker begins no further attempt of the chain that it is at."""
        self.outgoing += frame(EndChain())

    def unassign(self, number: int) -> Assigned:
        """Remove an attempt that has ended, or that it has not begun, and return it."""
        self._aborted.discard(number)
        if not self._aborted:
            self.deadline = None
        self._backlog.remove(number)
        return self.assigned.pop(number)

    def mark_aborted(self, numbers: Iterable[int], now: float, *, seconds: float) -> None:
        """Note that attempts were aborted. If it is at the same one of them at `deadline` as now, it `is_stuck`."""
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
        """Whether it is still at the aborted attempt that it was at when that was last noted."""
        return self.current() == self._suspect and self._suspect in self._aborted

    def current(self) -> int:
        """Return the number of the attempt that it is at, or was at when it died."""
        return self.marker.current

    def begun(self) -> list[int]:
        """Return the numbers of the attempts that it began and whose results have not come, in order."""
        last = self.marker.last
        return [number for number in self.assigned if number <= last]

    @property
    def is_fresh(self) -> bool:
        """Whether it has not been given an attempt yet."""
        return not self.next_number

    def retire(self) -> None:
        """End a worker without attempts: another one takes its place."""
        self.is_retiring = True
        self.kill()

    def check(self, now: float) -> None:
        """Note which attempt it is at, and whether it is stopped. To be called about once a second."""
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
        """Return how the process ended, which it has."""
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

    It takes part in a stream, and may last as long as that; or it is a suspect, and may end the process.
    """
    if task.is_ahead or task.is_suspect:
        return True
    for output in task.outputs:  # noqa: SIM110 - called for every attempt: a generator takes three times as long
        if output.streams:
            return True
    return False


def _peak(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * 1024
