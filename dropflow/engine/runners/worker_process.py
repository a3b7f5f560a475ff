"""One worker process, as the thread of its pool sees it."""

import contextlib
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import psutil

from dropflow.engine.api import AttemptResult, Task
from dropflow.engine.runners.descendants import WORKER_VARIABLE, end_worker
from dropflow.engine.runners.exit_watch import exit_descriptor
from dropflow.engine.runners.marker import IDLE, Marker
from dropflow.engine.runners.output import WorkerOutput
from dropflow.engine.runners.wire import Buffer, Recall, Tasks, frame
from dropflow.errors import DropflowError

__all__ = ["MOST_AHEAD", "SLOW_SECONDS", "Assigned", "WorkerProcess", "lasts"]

_AHEAD_SECONDS = 0.02
_LONG_SECONDS = 0.05
SLOW_SECONDS = 0.25
"""How long an attempt may take before others do not wait behind it, if there is another worker for them."""
MOST_AHEAD = 512
"""Attempts that a worker is given ahead at most."""

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
        """Whether it has said that it takes attempts."""
        self.assigned: dict[int, Assigned] = {}
        self.known: set[int] = set()
        self.seconds: float | None = None
        self.deadline: float | None = None
        self.buffer = Buffer()
        self.outgoing = bytearray()
        self.next_number = 0
        self.since = 0.0
        self.is_recalled = False
        self._unwanted: set[int] = set()
        self._suspect = IDLE
        self.since_current = 0.0
        """When it was first seen at its current attempt."""
        self.stopped_since: float | None = None
        """When it was first seen stopped by a signal, if it was so at the last look."""
        self.verdict: DropflowError | None = None
        """Why it is being killed."""
        self._seen, self._beats = IDLE, 0
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
            self.marker.current = IDLE
            # -P keeps the working directory, with the user's files, off the front of the module path.
            command = [sys.executable, "-P", "-m", "dropflow.engine.runners.worker"]
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(their_link.fileno()), str(page.fileno())],
                pass_fds=(their_link.fileno(), page.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                env={**os.environ, WORKER_VARIABLE: self._name},
                start_new_session=True,
            )
            ours.callback(self.process.wait)
            ours.callback(self.kill)
            self.exit = exit_descriptor(self.process.pid)
            """Becomes readable when the process ends."""
            ours.callback(os.close, self.exit)
            self._open = ours.pop_all()

    def room(self, now: float) -> int:
        """How many more attempts it should be given now, by any runner."""
        is_alone = any(lasts(task) for _, task in itertools.islice(self.assigned.values(), 1))
        if is_alone or self.deadline is not None or self.stopped_since is not None:
            return 0
        if self.seconds is None or self.seconds >= _LONG_SECONDS or self.is_slow(now):
            ahead = 1
        else:
            ahead = max(2, min(MOST_AHEAD, int(_AHEAD_SECONDS / max(self.seconds, 1e-6))))
        return ahead - len(self.assigned)

    def is_slow(self, now: float) -> bool:
        """Whether it has been at an attempt for so long that others should not wait behind it."""
        return bool(self.assigned) and now - self.since >= SLOW_SECONDS

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do and could do something."""
        return not self.assigned and self.deadline is None and self.stopped_since is None

    def give(self, runner: int, tasks: Sequence[Task], now: float) -> None:
        """Send it attempts of a runner that it knows."""
        if not self.assigned:
            self.since = now
        self.outgoing += frame(Tasks(runner, self.next_number, tuple(tasks)))
        for task in tasks:
            self.assigned[self.next_number] = (runner, task)
            self.next_number += 1

    def take(self, results: Sequence[AttemptResult], now: float) -> Iterator[tuple[int, AttemptResult]]:
        """Cross off what it has done, which comes in the order of the tasks; each with the number of its runner."""
        self.since = now
        for result, number in zip(results, list(self.assigned), strict=False):
            self._unwanted.discard(number)
            yield self.assigned.pop(number)[0], result
            spent = result.seconds
            self.seconds = spent if self.seconds is None else 0.7 * self.seconds + 0.3 * spent
        if not self._unwanted:
            self.deadline = None

    def recall(self) -> None:
        """Ask for the attempts that it has not begun; it does not answer for the one that it is at."""
        if len(self.assigned) > 1 and not self.is_recalled:
            self.is_recalled = True
            self.outgoing += frame(Recall(len(self.assigned)))

    def lose(self, number: int) -> Assigned:
        """Take an attempt away that it has not begun, and will not."""
        self._unwanted.discard(number)
        if not self._unwanted:
            self.deadline = None
        return self.assigned.pop(number)

    def doom(self, numbers: Iterable[int], deadline: float) -> None:
        """These attempts were aborted: if it is at the same one of them then as now, it `is_stuck`."""
        self._unwanted.update(numbers)
        self._suspect = self.current()
        if self.deadline is None or deadline < self.deadline:
            self.deadline = deadline

    def is_unwanted(self, number: int) -> bool:
        """Whether an attempt that it was given has been aborted."""
        return number in self._unwanted

    @property
    def is_stuck(self) -> bool:
        """Whether it has been at an attempt that was aborted since it was last told so."""
        return self.current() == self._suspect and self._suspect in self._unwanted

    def current(self) -> int:
        """Number of the attempt that it is at, or was at when it died."""
        return self.marker.current

    def look(self, now: float) -> None:
        """Note which attempt it is at, and whether it runs. For every second or so in which there are attempts."""
        current, beats = self.current(), self.marker.beats
        if current != self._seen:
            self._seen, self.since_current = current, now
        if not self._is_stopped():
            self.stopped_since = None
        elif self.stopped_since is None or beats != self._beats:
            # If it has beaten since the last look, it was continued, and then stopped again.
            self.stopped_since = now
        self._beats = beats

    def _is_stopped(self) -> bool:
        """Whether a signal has stopped it; computing outside of Python, which stops the heartbeat too, is not that."""
        try:
            return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False

    def kill(self) -> None:
        """End the process and all that it started. It is not reaped: `exit` tells when it has ended."""
        if self.process.returncode is None:  # else its id may be that of another process by now
            end_worker(self.process.pid, self._name)

    def how_it_ended(self) -> str:
        """Exit status or signal, and the end of what it printed."""
        status = self.process.wait()
        text = f"was killed by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        return f"{text}; it printed last: {self.output.end}" if self.output.end else text

    def dispose(self) -> None:
        """End it if it has not ended, and give back what belongs to it."""
        self._open.close()


def lasts(task: Task) -> bool:
    """Whether an attempt takes part in a stream: it may last as long as that, and nothing is to wait behind it."""
    if task.is_ahead:
        return True
    for output in task.outputs:  # noqa: SIM110 - asked of every attempt: a generator would treble the price
        if output.streams:
            return True
    return False


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
