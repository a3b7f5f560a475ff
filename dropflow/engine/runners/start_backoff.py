"""When to start worker processes, after starts that failed."""

from dropflow.errors import WorkerStartError
from dropflow.failure import Failure

__all__ = ["StartBackoff"]

_MOST = 6
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
_LONGEST_WAIT = 1.0
"""The longest pause while attempts wait and there is no process."""


class StartBackoff:
    """Counts the starts that failed in a row: processes that ended before they ran an attempt. Does no I/O.

    The end of a process that was ready and had no attempt is no failed start, however many end.
    """

    def __init__(self) -> None:
        self.failed = 0
        self.not_before = 0.0
        """When the next start may be tried."""
        self.failure: Failure | None = None
        """Why worker processes cannot be started, once enough starts have failed."""

    def note_failure(self, how: str, now: float) -> None:
        """Count a failed start: the next one waits twice as long."""
        self.not_before = now + min(_FIRST_PAUSE * 2**self.failed, _LONGEST_PAUSE)
        self.failed += 1
        if self.failed >= _MOST:
            self.failure = Failure.of(
                WorkerStartError(
                    f"worker processes cannot be started, {self.failed} starts failed in a row: the last one {how}",
                    hint="correct the cause that the process printed, or use --runner threads",
                )
            )

    def shorten_pause(self, now: float) -> None:
        """Try the next start soon, because attempts wait and there is no process."""
        self.not_before = min(self.not_before, now + _LONGEST_WAIT)

    def note_success(self) -> None:
        """Forget the failed starts: a process has run an attempt."""
        self.failed, self.not_before, self.failure = 0, 0.0, None
