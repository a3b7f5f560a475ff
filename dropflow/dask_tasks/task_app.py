"""The application that runs tasks of dask where values travel: in worker processes, and on nodes.

It imports dask when it runs its first task: managers make it to check it, and keep no memory for dask.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from dropflow.apps.app_interface import App, Context
from dropflow.errors import MissingDependencyError, install_hint
from dropflow.graph.templates import Template

if TYPE_CHECKING:
    from dropflow.dask_tasks.run_task import TaskRunner

DASK_TASK = "dropflow.dask_tasks.task_app.DaskTask"
"""Component of the applications."""
TASKS_FIELD = "tasks"
"""Field with the tasks of a template, see `dropflow.dask_tasks.task_pages`."""
KEYS_FIELD = "keys"
"""Field with the first part of the keys of inputs, by the key of their template."""


class DaskTask(App):
    """Runs tasks of dask. The index of the drop is the number of the task in its template.

    Raises
    ------
    MissingDependencyError
        Dask is not installed here.
    """

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        if find_spec("dask") is None:
            raise MissingDependencyError("tasks of dask need dask where they run", hint=install_hint("dask"))
        self._runner: TaskRunner | None = None

    def run(self, context: Context) -> None:
        """Compute the value of the task, and write it to its output."""
        if self._runner is None:
            self._runner = self._made_runner()
        self._runner.run(context)

    def _made_runner(self) -> "TaskRunner":
        from dropflow.dask_tasks.run_task import TaskRunner  # noqa: PLC0415 - only workers need it

        fields = {argument.name: argument.value for argument in self.template.arguments}
        return TaskRunner(fields[TASKS_FIELD], fields[KEYS_FIELD], self.template)
