"""An executor whose components are scripts, for tests of runners: see `build`."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from dropflow.engine.api import AttemptResult, ExecutorSpec, Handle, StreamOpened, Task
from dropflow.engine.chained_tasks import LONG_SECONDS
from dropflow.failure import Failure
from dropflow.stopping import GRACE_SECONDS

__all__ = ["ScriptedExecutor", "build", "refuse"]

_TRACK_SECONDS = 0.01


class ScriptedExecutor:
    """Components: ``fail`` fails, ``kill`` sends its process SIGKILL, ``exit`` ends it, ``hang`` waits for an abort.

    ``die-once`` sends its process SIGKILL in its first attempt.
    ``deaf`` waits forever and ignores aborts. ``mumble`` writes to a path that no message can encode. ``pid`` writes
    the id of its process. ``track`` works for a moment, and appends a line to ``files/track`` before and after that:
    ``begin`` or ``end``, and its row; ``track_long`` works for longer, and says so. Every other component copies its
    inputs to its outputs.
    """

    def __init__(self, spec: ExecutorSpec) -> None:
        self._spec = spec
        self.worker = 0
        self._aborts: dict[tuple[int, int], threading.Event] = {}
        self.on_stream_opened: Callable[[StreamOpened], None] = lambda _: None
        self.on_overdue: Callable[[AttemptResult], None] = lambda _: None

    def execute(self, task: Task) -> AttemptResult:
        """Run the script that the component names."""
        script = self._spec.templates[task.template].component
        if script == "fail":
            failure = Failure(code="DF105", kind="Scripted", text=f"{task.oid} is scripted to fail", retryable=True)
            return AttemptResult(task.drop, task.attempt, failure=failure)
        if script == "mumble":
            return AttemptResult(task.drop, task.attempt, {task.outputs[0].drop: Handle(location="\udcff")})
        if script == "kill" or (script == "die-once" and self._is_first(task)):
            os.kill(os.getpid(), signal.SIGKILL)
        if script == "exit":
            os._exit(7)
        if script in ("track", "track_long"):
            self._track(task, _TRACK_SECONDS if script == "track" else LONG_SECONDS)
        if script in ("hang", "deaf"):
            aborted = self._aborts.setdefault((task.drop, task.attempt), threading.Event())
            (aborted if script == "hang" else threading.Event()).wait()
            failure = Failure(code="DF105", kind="Aborted", text="aborted")
            return AttemptResult(task.drop, task.attempt, failure=failure)
        body = str(os.getpid()).encode() if script == "pid" else b"".join(_bodies(task))
        part = Handle(body=body, size=len(body))
        handles = {output.drop: part for output in task.outputs}
        return AttemptResult(task.drop, task.attempt, handles, seconds=LONG_SECONDS if script == "track_long" else 0.0)

    def _is_first(self, task: Task) -> bool:
        try:
            Path(self._spec.directory, "files", f"began-{task.drop}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _track(self, task: Task, seconds: float) -> None:
        # Lines that are appended to a file by single writes do not mix.
        with Path(self._spec.directory, "files", "track").open("a", buffering=1, encoding="ascii") as track:
            track.write(f"begin {task.drop}\n")
            threading.Event().wait(seconds)
            track.write(f"end {task.drop}\n")

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:  # noqa: ARG002 - one protocol
        """End an attempt that hangs."""
        self._aborts.setdefault((drop, attempt), threading.Event()).set()

    def close(self) -> None:
        """Do nothing."""


def _bodies(task: Task) -> list[bytes]:
    return [each.handle.body for each in task.inputs if each.handle is not None]


def build(spec: ExecutorSpec) -> ScriptedExecutor:
    """Return an executor; ``dropflow.testing.executors:build`` for worker processes."""
    return ScriptedExecutor(spec)


def refuse(spec: ExecutorSpec) -> ScriptedExecutor:
    """Raise, as an executor with a missing package would."""
    raise RuntimeError(f"no executor for {spec.session}")
