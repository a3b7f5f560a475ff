"""Chains of attempts that a runner gets as one task: the first attempt, with the following ones in `Task.then`.

A runner runs them one after another in one place. Each gets the output of the attempt before it as it was written,
before it is committed (`with_input`). A chain ends at an attempt that fails, is aborted, or skips its output. The later
attempts are answered with `not_begun`. A runner may also end a chain early, because it is held, or because other
attempts should begin first. A session submits the attempts that were not begun again if they are still needed.
"""

from collections.abc import Iterable

import msgspec

from dropflow.errors import DropflowError
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.failure import Failure
from dropflow.graph.templates import ResourceNeeds
from dropflow.states import DropState

LONG_SECONDS = 0.05
"""Seconds: attempts that take longer are given to a worker one by one, so that their order is exact."""
_CHAINED_TASKS_KIND = "NotBegun"
_CHAINED_TASKS_FAILURE = Failure(
    code=DropflowError.code,
    kind=_CHAINED_TASKS_KIND,
    text="the attempt was not begun, because the chain before it has ended",
)


def members(task: Task) -> tuple[Task, ...]:
    """Return the attempts of a task, in their order."""
    return (task, *task.then)


def with_input(task: Task, before: AttemptResult) -> Task | None:
    """Return a task with its input from the attempt that it follows; None if that attempt has no output for it."""
    (edge,) = task.inputs
    if before.failure is not None or edge.drop in before.skipped:
        return None
    filled = msgspec.structs.replace(edge, state=DropState.COMPLETED, handle=before.handles.get(edge.drop))
    return msgspec.structs.replace(task, inputs=(filled,))


def not_begun(tasks: Iterable[Task]) -> list[AttemptResult]:
    """Return the answers for attempts that were not begun. They do not count as attempts."""
    return [AttemptResult(task.drop, task.attempt, failure=_CHAINED_TASKS_FAILURE) for task in tasks]


def rest_not_begun(tasks: Iterable[Task]) -> list[AttemptResult]:
    """Return the answers for the followers of `tasks`, if a runner gives these tasks back."""
    return not_begun(follower for task in tasks for follower in task.then)


def is_not_begun(result: AttemptResult) -> bool:
    """Return whether an attempt was not begun."""
    return result.failure is not None and result.failure.kind == _CHAINED_TASKS_KIND


def largest_needs(needs: Iterable[ResourceNeeds]) -> ResourceNeeds:
    """Return the resources of a chain: of each resource, the most that one of its attempts needs."""
    all_needs = tuple(needs)
    return ResourceNeeds(*(max(amounts) for amounts in zip(*all_needs, strict=True)))
