"""What comes of an attempt that was aborted before it began."""

from dropflow.engine.api import AttemptResult, Task
from dropflow.failure import Failure

__all__ = ["aborted"]

_FAILURE = Failure(code="DF200", kind="Aborted", text="the attempt was aborted before it began")


def aborted(task: Task) -> AttemptResult:
    """The result of `task`, which nobody wants any more: whoever counts attempts gets one for each."""
    return AttemptResult(task.drop, task.attempt, failure=_FAILURE)
