"""Execution of dask's tasks in the threads of this process."""

import contextvars
from collections.abc import Callable
from typing import Any

from dropflow.clock import Clock
from dropflow.dask.object_contents import ObjectHandle, size_of
from dropflow.dask.printed_text import keep_printed
from dropflow.dask.translate import TranslatedGraph
from dropflow.dask.value_memory import ValueMemory, value_of
from dropflow.dask_tasks.fused_blocks import run_node
from dropflow.engine.api import AttemptResult, Handle, StreamOpened, Task
from dropflow.failure import Failure
from dropflow.stopping import GRACE_SECONDS

__all__ = ["TaskExecutor"]


class TaskExecutor:
    """The `dropflow.engine.api.Executor` of a dask graph.

    Parameters
    ----------
    tasks : TranslatedGraph
        The graph.
    clock : Clock
        For durations.
    context : contextvars.Context
        Context variables for the tasks: each runs in a copy.
    on_error : callable
        Called, in the thread of the last attempt of a task that has raised, with its drop, the exception, and the end
        of what the task has printed.
    memory : ValueMemory, optional
        Keeps values within a budget.
    """

    worker = 0

    def __init__(
        self,
        tasks: TranslatedGraph,
        clock: Clock,
        context: contextvars.Context,
        on_error: Callable[[int, BaseException, str], None],
        memory: ValueMemory | None = None,
    ) -> None:
        self._keys, self._nodes = tasks.keys, tasks.nodes
        self._tasks = tasks.tasks
        self._templates = tasks.graph.templates
        self._aliases = tasks.aliases
        self._clock = clock
        self._context = context
        self._on_error = on_error
        self._memory = memory
        self.on_stream_opened: Callable[[StreamOpened], None] = lambda _: None
        self.on_overdue: Callable[[AttemptResult], None] = lambda _: None

    def execute(self, task: Task) -> AttemptResult:
        """Compute the value of a task, or take that of a constant."""
        started = self._clock.monotonic()
        drop, handles = task.drop, dict[int, Handle]()
        failure = None
        printed: list[str] = []
        try:
            # Constants are their own output.
            target = task.outputs[0].drop if task.outputs else drop
            if drop < self._tasks:
                value = self._context.copy().run(_run, self._nodes[drop], self._values(task), printed)
                kept = value if self._memory is None else self._memory.keep(target, value)
            else:
                kept = value = self._nodes[drop - self._tasks].value
            handles[target] = ObjectHandle(kind="object", size=size_of(value), value=kept)
        except BaseException as error:  # noqa: BLE001 - a task may raise anything, which its caller gets
            failure = Failure.of(error)
            if not failure.retryable or task.attempt >= self._templates[task.template].tries:
                self._on_error(drop, error, "".join(printed))
        return AttemptResult(drop, task.attempt, handles, failure=failure, seconds=self._clock.monotonic() - started)

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Do nothing: a task in a thread runs to its end. Its result does not count."""

    def close(self) -> None:
        """Do nothing: there are no resources."""

    def _values(self, task: Task) -> dict[Any, Any]:
        """Return the values that a task needs, by the keys that it has for them."""
        keys, first = self._keys, self._tasks
        if self._memory is not None:
            self._memory.begin(task.drop, [each.drop for each in task.inputs])
        values = {}
        for each in task.inputs:
            assert isinstance(each.handle, ObjectHandle)  # noqa: S101 - all contents here are
            values[keys[each.drop - first]] = value_of(each.handle.value)
        for key in self._nodes[task.drop].dependencies:
            if key not in values:
                values[key] = values[self._aliases[key]]
        return values


def _run(node: Any, values: dict[Any, Any], printed: list[str]) -> Any:
    keep_printed(printed)
    return run_node(node, values)
