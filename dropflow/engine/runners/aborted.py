"""The result of an attempt that was aborted before it began."""

from dropflow.engine.api import AttemptResult
from dropflow.failure import Failure

__all__ = ["aborted"]

_FAILURE = Failure(code="DF200", kind="Aborted", text="the attempt was aborted before it began")


def aborted(drop: int, attempt: int) -> AttemptResult:
    """Return the result of an attempt that was aborted: a session counts one result for each attempt."""
    return AttemptResult(drop, attempt, failure=_FAILURE)
