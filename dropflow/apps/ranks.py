"""The ranks of MPI jobs that have arrived in this process, and messages of other nodes about them.

Everything here is guarded by `CHANGED`: the attempts of ranks run in threads of one process and wait for each other,
which a queue cannot express. The messages between the nodes of a job are described in `dropflow.apps.mpi`.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from dropflow.errors import AppError, WorkerDiedError
from dropflow.host.processors import usable_cores

CHANGED = threading.Condition()
Key = tuple[str, str]
"""Directory of the session, and name of the job."""
HEARD: dict[Key, dict[str, str]] = {}
"""The last text of each node about each job. A head sends ``ready``, ``granted``, ``ended STATUS`` or ``left``; the
leader sends ``queued``, ``claim``, ``start COMMAND`` and ``end [lost|failed] OUTCOME``."""
_CLAIMS: dict[Key, int] = {}
"""Jobs that have processors of this host, or wait for them, in the order in which they came, and their processors."""


class JobNodes(Protocol):
    """The nodes of a session that runs in this process."""

    node: str
    """Name of this node."""

    def of_ranks(self, key: str, outer: Sequence[int]) -> tuple[str, ...]:
        """Return the node of each rank of a job: key of its template, and position on the outer axes."""
        ...

    def send(self, node: str, job: str, text: str) -> None:
        """Send a text about a job to a node. A node that is lost gets none."""
        ...


NODES: dict[str, JobNodes] = {}


def join_nodes(directory: str, nodes: JobNodes) -> None:
    """Register the nodes of a session, by its ``files`` directory, for its jobs."""
    with CHANGED:
        NODES[directory] = nodes


def leave_nodes(directory: str) -> None:
    """Forget the nodes of a session that is over."""
    with CHANGED:
        NODES.pop(directory, None)
        for key in [key for key in HEARD if key[0] == directory]:
            del HEARD[key]


def deliver(directory: str, sender: str, name: str, text: str) -> None:
    """Take a message of a node of a session about a job. For any thread."""
    with CHANGED:
        if directory not in NODES:
            return
        HEARD.setdefault((directory, name), {})[sender] = text
        job = JOBS.get((directory, name))
        if job is not None and job.has_begun and text.startswith(("ready", "left")):
            job.lose(f"the ranks on node {sender} were stopped")
        elif job is not None and text.startswith("end "):
            job.stop()
        CHANGED.notify_all()


class Job:
    """The ranks of a job that have arrived on this node. All is guarded by `CHANGED`."""

    def __init__(self, key: Key, placed: Callable[[], tuple[str, ...]], here: str) -> None:
        self.key = key
        self.placed = placed
        """Returns the present node of each rank."""
        self.nodes = nodes = placed()
        self.here = [rank for rank, node in enumerate(nodes) if node == here]
        self.others = sorted(set(nodes) - {here})
        self.commands: dict[int, str] = {}
        self.left: set[int] = set()
        self.outcome: str | None = None
        """Why the job failed; empty if it has succeeded, None while it has not ended."""
        self.is_lost = False
        """Whether it ended because ranks on another node were lost, and not because of the program."""
        self.has_begun = False
        """Whether the attempts of all ranks must stay the same from now on, on all nodes."""
        self.pid: Path | None = None
        """File with the process of ``mpirun``, or of the daemon here."""

    def end(self, outcome: str, *, is_lost: bool = False) -> None:
        """Note how the job has ended, unless that is known."""
        if self.outcome is None:
            self.outcome, self.is_lost = outcome, is_lost
        CHANGED.notify_all()

    def raise_outcome(self) -> None:
        """Raise the error of the job, if it has ended and failed."""
        if self.outcome and self.is_lost:
            raise WorkerDiedError(f"the MPI job was stopped: {self.outcome}", hint="see the log of the first rank")
        if self.outcome:
            raise AppError(f"the MPI job failed: {self.outcome}", hint="see the log of the rank that started it")

    def lose(self, why: str) -> None:
        """End the job because ranks of it were lost, and stop its processes."""
        self.end(f"{why}, so that all ranks begin again", is_lost=True)
        self.stop()

    def stop(self) -> None:
        """Stop the processes of the job here, if there are any."""
        if self.pid is not None:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(self.pid.read_text()), signal.SIGTERM)


JOBS: dict[Key, Job] = {}


@contextlib.contextmanager
def claimed(job: Job, each: int, await_: Callable[[Callable[[], bool]], None]) -> Iterator[None]:
    """Wait for the processors of the ranks of a job here, and keep them: jobs get them in the order in which they came.

    A job that needs more processors than exist gets all.

    Parameters
    ----------
    each : int
        Processors of a rank.
    await_ : callable
        Waits until a condition holds.
    """
    total = usable_cores()
    with CHANGED:
        _CLAIMS[job.key] = min(len(job.here) * max(each, 1), total)
    try:
        await_(lambda: _claimed_until(job.key) <= total)
        yield
    finally:
        with CHANGED:
            del _CLAIMS[job.key]
            CHANGED.notify_all()


def _claimed_until(key: Key) -> int:
    """Return how many processors jobs have or wait for here, up to the job `key`."""
    total = 0
    for other, count in _CLAIMS.items():
        total += count
        if other == key:
            break
    return total
