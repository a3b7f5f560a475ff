"""The context of one attempt: its inputs, outputs and services while it runs, and its contents afterwards."""

import os
import shutil
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from dropflow.apps.api import InputData
from dropflow.apps.attempt_input import AttemptInput
from dropflow.apps.attempt_output import AttemptOutput
from dropflow.apps.command import Command
from dropflow.apps.interruption import Interruption
from dropflow.apps.streamed_input import StreamedInput
from dropflow.apps.template_cache import AppNode, TemplateCache, text_or_none
from dropflow.clock import Clock
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle, StreamOpened, Task
from dropflow.engine.drop_log import DropLog
from dropflow.engine.runners.capacity import thread_variables
from dropflow.errors import Interrupted
from dropflow.graph.templates import ORDER_PORT, Argument
from dropflow.states import DropState
from dropflow.stopping import GRACE_SECONDS

__all__ = ["AttemptContext"]


class AttemptContext:
    """`dropflow.apps.api.Context` of one task.

    Cheap to make: inputs, outputs, files and events are made when the application uses them.

    `lock` is that of `dropflow.apps.interruption.Interruption`.
    """

    __slots__ = (
        "_command",
        "_event",
        "_given_up",
        "_grace",
        "_inputs",
        "_log",
        "_outputs",
        "_scratch",
        "_skipped",
        "_wakers",
        "clock",
        "interruption",
        "on_stream_opened",
        "plan",
        "plans",
        "task",
        "workspace",
    )

    def __init__(  # noqa: PLR0917 - built once a task, by the executor only: keywords cost a microsecond
        self,
        task: Task,
        plan: AppNode,
        plans: TemplateCache,
        workspace: Workspace,
        clock: Clock,
        log: DropLog,
        on_stream_opened: Callable[[StreamOpened], None],
        lock: AbstractContextManager[object],
    ) -> None:
        self.task = task
        self.plan = plan
        self.plans = plans
        self.workspace = workspace
        self.clock = clock
        self.on_stream_opened = on_stream_opened
        self._log = log
        self._inputs: list[AttemptInput] | None = None
        self._outputs: list[AttemptOutput] | None = None
        self._skipped: set[int] | None = None
        self._scratch = ""
        self._grace = GRACE_SECONDS
        self.interruption = Interruption(lock)
        self._given_up = False
        self._event: threading.Event | None = None
        self._command: Command | None = None
        self._wakers: tuple[Callable[[], None], ...] = ()

    @property
    def oid(self) -> str:
        """Text id of the application drop."""
        return self.task.oid

    @property
    def name(self) -> str:
        """Name of its node."""
        return self.plan.name

    @property
    def index(self) -> tuple[int, ...]:
        """Position of the drop on each axis of its template."""
        return self.task.index

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return self.task.attempt

    @property
    def session(self) -> str:
        """Session id."""
        return self.workspace.session

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """Every field of the node by name."""
        return self.plan.arguments

    @property
    def directory(self) -> Path:
        """The session's ``files`` directory."""
        return self.workspace.files

    @property
    def inputs(self) -> Sequence[AttemptInput]:
        """The inputs, in the order of the graph, without those that only order drops."""
        if self._inputs is None:
            self._inputs = [
                StreamedInput(self, edge)
                if edge.state is DropState.WRITING and edge.handle
                else AttemptInput(self, edge)
                for edge in self.task.inputs
                if self.plans.links[edge.link].target_port != ORDER_PORT
            ]
        return self._inputs

    @property
    def outputs(self) -> Sequence[AttemptOutput]:
        """The outputs, in the order of the graph; one for each data drop and port."""
        if self._outputs is None:
            self._outputs = [
                AttemptOutput(self, edge, number)
                for number, edge in enumerate(self.task.outputs)
                if self.plans.links[edge.link].source_port != ORDER_PORT
            ]
        return self._outputs

    def input(self, port: str) -> AttemptInput | None:
        """The first input at `port`."""
        return next((found for found in self.inputs if found.port == port), None)

    def log(self, text: str, level: str = "INFO") -> None:
        """Add a line to the log of the drop."""
        # Otherwise a file that was opened just now would stay open until the garbage collector runs.
        with self.interruption.shielded():
            self._log.line(level, text, self.clock.now())

    def wait(self, seconds: float) -> None:
        """Sleep, but wake and raise `Interrupted` when the attempt is stopped."""
        if seconds > 0 and not self.interruption.is_requested:
            # `stop` sets the flag and then the event; here the event is made before the flag is read. So either this
            # thread sees the flag, or `stop` sees the event.
            self._event = self._event or threading.Event()
            if not self.interruption.is_requested:
                self._event.wait(seconds)
        self.check()

    def command(
        self,
        command: str,
        environment: Mapping[str, str],
        *,
        source: InputData | None = None,
        sink: Callable[[bytes], object] | None = None,
    ) -> int:
        """Run a shell command in `directory` and return its exit status; see `dropflow.apps.api.Context.command`.

        Its environment is that of this process with limits of threads, ``DLG_UID``, ``DLG_SESSION_ID`` and
        ``DLG_ROOT``, and `environment` on top.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        running = Command(
            command,
            self.directory,
            {**_environment(self.oid, self.session, self.plan.template.cpus), **environment},
            self._log.write_bytes,
            source=None if source is None else source.open(),
            output=sink,
            clock=self.clock,
        )
        with self.interruption.shielded():
            self._command = running
            if self.interruption.is_requested:
                running.stop(self._grace)
            try:
                return running.run()
            finally:
                self._command = None

    def check(self) -> None:
        """Raise `Interrupted` if the attempt is to stop."""
        if self.interruption.is_requested:
            raise Interrupted

    def stop(self, grace: float = GRACE_SECONDS) -> int | None:
        """Stop waits and commands, or interrupt the application. May be called from any thread.

        Returns
        -------
        int or None
            Thread in which an exception is pending now, 0 if there is none. None if the application cannot be
            interrupted now, because it imports a module.
        """
        self._grace = grace
        self.interruption.is_requested = True
        event, command = self._event, self._command
        if event is not None:
            event.set()
        if command is not None:
            command.stop(grace)
        for wake in self._wakers:
            wake()
        return self.interruption.request()

    def give_up(self) -> None:
        """Discard what the attempt writes: it was given up, and its failure is reported already."""
        self._given_up = True

    def on_stop(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the attempt is stopped (now if it is), so that a waiting thread wakes and calls `check`."""
        self._wakers = (*self._wakers, wake)
        if self.interruption.is_requested:
            wake()

    def skip(self, drop: int) -> None:
        """Skip an output."""
        self._skipped = self._skipped or set()
        self._skipped.add(drop)

    def scratch(self) -> str:
        """Return a temporary directory of this attempt, which is removed at its end."""
        if not self._scratch:
            name = self.workspace.part_name(self.task.drop, self.task.attempt, "in")
            self._scratch = self.workspace.part_directory(name)
        return self._scratch

    def given_name(self, link: int) -> str:
        """Return the file name that the application chose for an output; empty if it chose none.

        It is the value of the output port if that names a path. A connected input of that name has priority over the
        field.
        """
        argument = self.plan.naming(self.plans.links[link])
        if argument is None:
            return ""
        data = self.input(argument.name)
        if data is not None and data.ok and data.in_memory:
            return text_or_none(data.value("utf-8")) or ""
        return text_or_none(argument.value) or ""

    def finish(self) -> tuple[dict[int, Handle], tuple[int, ...]]:
        """Finish all outputs. Returns their contents by data drop, and the skipped drops."""
        if self._given_up:
            raise Interrupted
        skipped = self._skipped or ()
        handles: dict[int, Handle] = {}
        if self._outputs is None:
            store = self.plans.store
            for edge in self.task.outputs:
                unwritten = store(edge.template).unwritten
                if unwritten is None:
                    return _finish_outputs(self.outputs, skipped), tuple(skipped)
                handles[edge.drop] = unwritten
            return handles, ()
        return _finish_outputs(self.outputs, skipped), tuple(skipped)

    def abandon(self) -> None:
        """Discard what was written; never raises."""
        for output in self._outputs or ():
            output.abandon()

    def close(self) -> None:
        """Close inputs and remove the temporary directory."""
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
        for data in self._inputs or ():
            data.close()
        # Breaks the reference cycle: otherwise mapped contents would stay until the garbage collector runs.
        self._inputs = self._outputs = None


def _finish_outputs(outputs: Sequence[AttemptOutput], skipped: Collection[int]) -> dict[int, Handle]:
    """Finish all outputs but the skipped ones. Returns their contents by data drop."""
    handles: dict[int, Handle] = {}
    for output in outputs:
        if output.drop in skipped:
            output.abandon()
        else:
            handles[output.drop] = output.finish()
    return handles


def _environment(oid: str, session: str, cpus: int) -> dict[str, str]:
    """Return the environment of commands: that of this process, limits of threads, and the variables of DALiuGE."""
    threads = thread_variables(cpus, os.environ)
    return {"DLG_ROOT": str(Path.home() / "dlg"), **threads, **os.environ, "DLG_UID": oid, "DLG_SESSION_ID": session}
