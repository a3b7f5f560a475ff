"""One application with its drops, for tests of an executor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dropflow.apps.app_interface import App, Context
from dropflow.clock import SystemClock
from dropflow.data.repository import LocalRepository
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, Input, Output, Task
from dropflow.graph.templates import Kind, Link, Template
from dropflow.ids import drop_file_name
from dropflow.runners.executor import LocalExecutor
from dropflow.states import DropState

MEMORY = "dlg.data.drops.memory.InMemoryDROP"
APP, IN, OUT = 0, 1, 2


class FunctionApp(App):
    """An application that is given as a function."""

    def __init__(self, run: Callable[[Context], None]) -> None:
        self._run = run

    def run(self, context: Context) -> None:
        """Call the function."""
        self._run(context)


class Bench:
    """One application with one input drop and one output drop."""

    def __init__(self, directory: Path) -> None:
        self.repository = LocalRepository(directory, "trial", SystemClock())
        self.directory = Path(self.repository.workspace.directory)
        self.executor: LocalExecutor | None = None

    def build(self, **options: Any) -> LocalExecutor:
        """An executor; `source` and `target` are data classes, `fields` those of the application."""
        fields = options.pop("fields", ())
        target_fields = options.pop("target_fields", ())
        templates = (
            Template(key="a", name="the app", kind=Kind.APP, arguments=tuple(fields)),
            Template(key="i", name="the input", kind=Kind.DATA, component=options.pop("source", MEMORY)),
            Template(
                key="o",
                name="the output",
                kind=Kind.DATA,
                component=options.pop("target", MEMORY),
                arguments=tuple(target_fields),
            ),
        )
        links = (
            Link(source=IN, target=APP, target_port=options.pop("in_port", "in")),
            Link(source=APP, target=OUT, source_port=options.pop("out_port", "out")),
        )
        self.close()
        self.executor = LocalExecutor(
            ExecutorSpec(session="trial", directory=str(self.directory), templates=templates, links=links, **options)
        )
        return self.executor

    def run(self, function: Callable[[Context], None], *, given: Handle | None = None, **options: Any) -> AttemptResult:
        """One attempt that does `function`."""
        state, attempt = options.pop("state", DropState.COMPLETED), options.pop("attempt", 1)
        executor = self.executor if self.executor is not None and not options else self.build(**options)
        executor._apps[APP] = FunctionApp(function)
        return executor.execute(self.task(given=given, state=state, attempt=attempt))

    def task(
        self, *, given: Handle | None = None, state: DropState = DropState.COMPLETED, attempt: int = 1, drop: int = 0
    ) -> Task:
        """The task of that attempt."""
        return Task(
            drop, attempt, APP, f"g_a_{drop}", (drop,),
            (Input(100, "g_i_0", IN, 0, state, given or Handle()),),
            (Output(200 + drop, "g_o_0", OUT, 1),),
        )  # fmt: skip

    def log(self, oid: str = "g_a_0") -> str:
        """The log of a drop."""
        path = self.directory / "logs" / f"{drop_file_name(oid)}.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        """Restore the standard streams."""
        if self.executor is not None:
            self.executor.close()
