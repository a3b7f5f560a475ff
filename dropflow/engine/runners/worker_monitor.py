"""Ending workers that hang: at an aborted attempt, past the time limit of an attempt, or stopped by a signal.

A process that waits for the kernel, for example for a network file system that does not answer, does not end when it
is killed. After a while the pool treats it as if it had ended: its attempts are repeated, and another process takes its
place. If it continues, it ends immediately, so that it cannot disturb anything.
"""

import math
from collections.abc import Callable, Sequence

from dropflow.engine.runners.worker_process import WorkerProcess
from dropflow.engine.time_limit import timed_out
from dropflow.errors import WorkerDiedError
from dropflow.stopping import GRACE_SECONDS, kill_after

__all__ = ["WorkerMonitor"]

_CHECK_SECONDS = 1.0
_OVERDUE_SECONDS = 5.0
"""How long a worker is given to stop an attempt by itself that takes longer than its limit."""
_STOPPED_SECONDS = 30.0
"""How long a worker may be stopped by a signal while there are attempts."""
_UNKILLABLE_SECONDS = 10.0
"""How long a worker that was killed may take to end."""


class WorkerMonitor:
    """Watches the workers of a pool. Used by the pool's thread.

    Parameters
    ----------
    workers : sequence of WorkerProcess
        The workers, as they are at any time.
    limit_of : callable
        Returns the time limit of the attempt that a worker is at; 0 for none.
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
        """When to call `kill_hanging` next, while there are attempts."""
        return self._checked + _CHECK_SECONDS

    def kill_aborted(self, now: float) -> None:
        """Kill workers that are still at an attempt that was aborted, once its grace is over."""
        for worker in self._workers:
            if worker.deadline is not None and worker.deadline <= now:
                worker.deadline = None
                if worker.is_stuck:
                    worker.kill()
                else:
                    worker.mark_aborted((), now, seconds=kill_after(GRACE_SECONDS))

    def kill_hanging(self, now: float) -> None:
        """Kill workers that stay stopped, or are at an attempt whose limit they do not keep; abandon unkillable ones.

        To be called at `next_check` while there are attempts. Workers without attempts are checked too, so that
        attempts are not given to stopped ones, one after the other.
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
