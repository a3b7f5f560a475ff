"""One worker process, as the thread of its pool sees it."""

import itertools
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from dropflow.engine.api import Outcome, Task
from dropflow.engine.runners.wire import Buffer, Recall, Tasks, frame

__all__ = ["MOST_AHEAD", "SLOW_SECONDS", "Assigned", "WorkerProcess", "kill_session", "lasts"]

_MARKER = struct.Struct("<q")
_IDLE = -1
_AHEAD_SECONDS = 0.02
_LONG_SECONDS = 0.05
SLOW_SECONDS = 0.25
"""How long an attempt may take before others do not wait behind it, if there is another worker for them."""
MOST_AHEAD = 512
"""Attempts that a worker is given ahead at most."""
_TAIL = 2000

Assigned = tuple[int, Task]
"""An attempt, and the number of the runner that it is for."""


class WorkerProcess:
    """A process that runs attempts of any runner of its pool, one at a time.

    Parameters
    ----------
    number : int
        Of the worker.
    logs : Path
        Where what the process prints outside of attempts goes.
    """

    def __init__(self, number: int, logs: Path) -> None:
        self.number = number
        self.log = logs / f"worker-{number}.log"
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
        self._suspect = _IDLE
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
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def room(self, now: float) -> int:
        """How many more attempts it should be given now, by any runner."""
        is_alone = any(lasts(task) for _, task in itertools.islice(self.assigned.values(), 1))
        if is_alone or self.deadline is not None:
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
        """Whether it has nothing to do."""
        return not self.assigned and self.deadline is None

    def give(self, runner: int, tasks: Sequence[Task], now: float) -> None:
        """Send it attempts of a runner that it knows."""
        if not self.assigned:
            self.since = now
        self.outgoing += frame(Tasks(runner, self.next_number, tuple(tasks)))
        for task in tasks:
            self.assigned[self.next_number] = (runner, task)
            self.next_number += 1

    def take(self, outcomes: Sequence[Outcome], now: float) -> Iterator[tuple[int, Outcome]]:
        """Cross off what it has done, which comes in the order of the tasks; each with the number of its runner."""
        self.since = now
        for outcome, number in zip(outcomes, list(self.assigned), strict=False):
            self._unwanted.discard(number)
            yield self.assigned.pop(number)[0], outcome
            spent = outcome.seconds
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
        return int(_MARKER.unpack_from(self.marker, 0)[0])

    def kill(self) -> None:
        """End the process and all that it started, now."""
        kill_session(self.process.pid)
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


def lasts(task: Task) -> bool:
    """Whether an attempt takes part in a stream: it may last as long as that, and nothing is to wait behind it."""
    if task.is_ahead:
        return True
    for output in task.outputs:  # noqa: SIM110 - asked of every attempt: a generator would treble the price
        if output.streams:
            return True
    return False


def kill_session(leader: int) -> None:
    """Kill every process but this one of the session that `leader` leads: a worker, and the commands that it runs."""
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.pid != os.getpid():
                process.kill()
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
