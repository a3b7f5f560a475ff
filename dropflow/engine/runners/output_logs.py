"""Where the output of worker processes goes that Python did not write: the logs of attempts, or of the worker."""

from pathlib import Path

from dropflow.clock import Clock
from dropflow.engine.api import Task
from dropflow.engine.drop_log import DropLog
from dropflow.engine.runners.dispatcher import Dispatcher
from dropflow.engine.runners.worker_process import WorkerProcess

__all__ = ["OutputLogs"]

_LOG_LIMIT = 1_000_000


class OutputLogs:
    """Writes the output of workers to files. Used by the pool's thread.

    Parameters
    ----------
    directory : Path
        For the output outside of attempts, ``worker-<n>.log``.
    dispatcher : Dispatcher
        Which runners there are.
    clock : Clock
        For the time of a line.
    """

    def __init__(self, directory: Path, dispatcher: Dispatcher, clock: Clock) -> None:
        self._directory = directory
        self._dispatcher = dispatcher
        self._clock = clock

    def add_line(self, number: int, task: Task, text: str) -> None:
        """Add a line about the end of its worker process to the log of an attempt of a runner."""
        runner = self._dispatcher.find(number)
        if runner is not None:
            log = DropLog(f"{runner.spec.directory}/logs", task.oid, runner.spec.log_limit)
            log.line("ERROR", text, self._clock.now())
            log.close()

    def write(self, worker: WorkerProcess, *, running: int | None = None) -> None:
        """Write what a worker has written to the logs of its attempts, or to its own outside of attempts.

        The log of the attempt that is `running` belongs to the worker until the attempt is over.
        """
        for number, content in worker.output.take(but=running):
            folder, name, limit = str(self._directory), f"worker-{worker.number}", _LOG_LIMIT
            if number in worker.assigned:
                at, task = worker.assigned[number]
                runner = self._dispatcher.find(at)
                if runner is not None:
                    folder, name, limit = f"{runner.spec.directory}/logs", task.oid, runner.spec.log_limit
            log = DropLog(folder, name, limit)
            log.write_bytes(content)
            log.close()
