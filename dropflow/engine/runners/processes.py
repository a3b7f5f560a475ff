"""Attempts run in worker processes that belong to one session."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dropflow.engine.api import ExecutorSpec, ResultSink, Task
from dropflow.engine.runners.pool import WorkerPool
from dropflow.stopping import GRACE_SECONDS

__all__ = ["ProcessRunner"]


class ProcessRunner:
    """A runner with its own pool of worker processes.

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
        self._pool = WorkerPool(workers, logs=Path(spec.directory, "logs"), factory=factory)
        self._runner = self._pool.runner(spec)
        self.window = self._runner.window

    def start(self, deliver: ResultSink) -> None:
        """Start the workers; they become ready while tasks already queue."""
        self._runner.start(deliver)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue `tasks`."""
        self._runner.submit(tasks)

    @property
    def running(self) -> Mapping[int, int]:
        """The drops whose attempts workers run, and the numbers of these."""
        return self._runner.running

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Forget an attempt that waits, or have its worker stop it; that is killed after `grace` seconds."""
        self._runner.abort(drop, attempt, grace)

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`."""
        self._runner.hold(is_held=is_held)

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that no worker has been given."""
        return self._runner.give_back()

    def interrupt(self) -> None:
        """Do nothing: the session's thread is free to process its cancel, and aborts follow."""

    def close(self) -> None:
        """End the workers; idempotent. They get a second to stop what they do."""
        self._pool.close()
