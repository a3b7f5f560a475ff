"""The result of an attempt that was aborted before it began."""

from dropflow.engine.api import AttemptResult, Task
from dropflow.failure import Failure

__all__ = ["aborted"]

_FAILURE = Failure(code="DF200", kind="Aborted", text="the attempt was aborted before it began")


def aborted(task: Task) -> AttemptResult:
    """Return the result of an aborted task: a session counts one result for each attempt."""
    return AttemptResult(task.drop, task.attempt, failure=_FAILURE)
