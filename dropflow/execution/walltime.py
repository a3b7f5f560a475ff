"""The walltime of a session: the time by which attempts must end, or not be started."""

import math
from collections.abc import Sequence

from dropflow.errors import DropflowError
from dropflow.execution.tasks import AttemptResult
from dropflow.failure import Failure
from dropflow.graph.templates import Template

_WALLTIME_KIND = "Postponed"
_WALLTIME_FAILURE = Failure(
    code=DropflowError.code, kind=_WALLTIME_KIND, text="the attempt was not started, because it could not end in time"
)


def latest_starts(templates: Sequence[Template], until: float) -> tuple[float, ...]:
    """Return when attempts of each template may be started last, in seconds since the epoch.

    That is their field ``execution_time``, in seconds, before the walltime; the walltime itself without that field.

    Parameters
    ----------
    until : float
        The walltime, in seconds since the epoch; 0 for none.
    """
    return tuple(until - _execution_time(template) if until else math.inf for template in templates)


def ends_too_late(template: int, starts: Sequence[float], now: float) -> bool:
    """Return whether an attempt of a template cannot end in time if it is started now."""
    return now > starts[template]


def postponed(drop: int, attempt: int) -> AttemptResult:
    """Return the answer for an attempt that was not started because of the walltime. It does not count as one."""
    return AttemptResult(drop, attempt, failure=_WALLTIME_FAILURE)


def is_postponed(result: AttemptResult) -> bool:
    """Return whether an attempt was not started because of the walltime."""
    return result.failure is not None and result.failure.kind == _WALLTIME_KIND


def _execution_time(template: Template) -> float:
    field = template.argument("execution_time")
    try:
        seconds = 0.0 if field is None else float(field.value)
    except (TypeError, ValueError):  # it only estimates
        return 0.0
    return seconds if 0 < seconds < math.inf else 0.0
