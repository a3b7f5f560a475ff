"""The executor: runs one attempt from its task to its result, in the calling process and thread.

It commits nothing. Contents are under temporary names when the result is returned; contents of a failed attempt are
removed.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

import msgspec

from dropflow.apps.app_interface import App
from dropflow.apps.attempt import AttemptContext
from dropflow.apps.failed_inputs import input_lines, local_lines
from dropflow.apps.missing_data import enter
from dropflow.apps.service import end_services
from dropflow.apps.template_cache import TemplateCache
from dropflow.clock import Clock, SystemClock
from dropflow.data.store import Slot
from dropflow.data.workspace import Workspace
from dropflow.errors import AppError, DropflowError, Interrupted, OutOfMemoryError
from dropflow.execution.content_location import Handle
from dropflow.execution.drop_log import DropLog
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, StreamOpened, Task, Usage
from dropflow.execution.walltime import ends_too_late, latest_starts, postponed
from dropflow.failure import Failure, sendable, trace_of
from dropflow.formatting import format_size
from dropflow.graph.components import time_limit, timed_out
from dropflow.graph.templates import Kind
from dropflow.host.descendants import end_descendants
from dropflow.runners.attempt_limits import LATE_GRACE_SECONDS, Deadline, UsageMeter
from dropflow.runners.borrowed_inputs import BorrowedInputs
from dropflow.runners.capacity import judge_memory
from dropflow.runners.log_router import LogRouter
from dropflow.stopping import GRACE_SECONDS, WAKE_SIGNAL

if TYPE_CHECKING:
    from dropflow.reuse.attempt import AttemptReuse

_HOME = str(Path(__file__).resolve().parents[1])
_FROZEN = "<frozen "

_HINTS: dict[type[BaseException], str] = {
    PermissionError: "give this user access to the file, or choose another place",
    FileNotFoundError: "relative paths are below the session's files directory; connect files through ports",
    MemoryError: "split the data into smaller pieces (a Scatter), or use fewer workers",
    RecursionError: "the function calls itself too deeply",
    ConnectionError: "the other side did not answer: try again, or check that it is running",
    TimeoutError: "the other side did not answer in time: try again, or allow more time",
}
RunApp = Callable[[App, AttemptContext], None]
"""Runs an application with its context."""
_TAIL_CHARACTERS = 2000
"""Characters at the end of the log that a failure quotes."""
_IMPORT_SECONDS = 0.05
"""Seconds between two tries to interrupt an application that imports a module."""
_ROUTER = LogRouter()  # one per process, as the standard streams are

# Conversion of an exception of an application into a `Failure`: what happened, where, and what to do.


def failure_of(error: BaseException, *, log_tail: str = "") -> Failure:
    """Return why an attempt failed.

    Parameters
    ----------
    error : BaseException
        The exception of its application.
    log_tail : str
        End of its log, as the detail of failures that have no traceback.
    """
    try:
        return _failure_of(error, log_tail)
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001 - attributes of a user's exception may raise anything
        return Failure.of(error)


def _failure_of(error: BaseException, log_tail: str) -> Failure:
    if isinstance(error, Interrupted):
        return Failure(code=DropflowError.code, kind="Interrupted", text="the attempt was stopped")
    if isinstance(error, DropflowError):
        cause = error.__cause__
        failure = Failure.of(error, detail=trace(cause) if cause is not None else log_tail)
        return (
            msgspec.structs.replace(failure, text=f"{sendable(error.where)}: {failure.text}")
            if error.where
            else failure
        )
    if isinstance(error, SystemExit):
        return Failure(
            code=AppError.code,
            kind="SystemExit",
            text=f"the application called sys.exit({'' if error.code is None else repr(error.code)})",
            hint="return from the function instead; raise an exception to fail",
            detail=trace(error),
        )
    failure = Failure.of(error, frames=_own(error.__traceback__))
    if isinstance(error, MemoryError):
        failure = msgspec.structs.replace(failure, code=OutOfMemoryError.code)
    return msgspec.structs.replace(failure, hint=_hint(error)) if not failure.hint else failure


def trace(error: BaseException) -> str:
    """Return the traceback of `error`, without the outer frames of dropflow."""
    return trace_of(error, _own(error.__traceback__))


def _own(frames: TracebackType | None) -> TracebackType | None:
    """Return the frames from the first one outside dropflow, or all frames."""
    here = frames
    while here is not None:
        file = here.tb_frame.f_code.co_filename
        if not file.startswith((_HOME, _FROZEN)):
            return here
        here = here.tb_next
    return frames


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        return f"install '{package}' in the environment that runs dropflow" if package else ""
    if isinstance(error, ImportError):
        return f"another version of '{error.name}' may be needed" if error.name else ""
    return next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")


def build_executor(spec: ExecutorSpec) -> "LocalExecutor":
    """Return the executor of a session in a worker process. Workers import this function by its dotted name."""
    return LocalExecutor(spec, owns_process=True)


class LocalExecutor:
    """Runs the attempts of one session, one at a time per calling thread.

    Parameters
    ----------
    spec : ExecutorSpec
        The session, its directory and its templates.
    owns_process : bool
        Whether all child processes of this process belong to attempts, which run here one after another. Then they are
        ended with their attempt.
    run_app : callable, optional
        Runs an application with its context, in place of `App.run`: for debuggers. Attempts have no time limit then.
    """

    def __init__(
        self,
        spec: ExecutorSpec,
        *,
        owns_process: bool = False,
        run_app: RunApp | None = None,
    ) -> None:
        self._spec = spec
        self._run_app = run_app
        self._owns_process = owns_process
        self._process = os.getpid()
        self._clock = SystemClock()
        self._workspace = Workspace(spec.directory, spec.session, spec.durable, spec.tag, spec.is_detached)
        self._plans = TemplateCache(spec.templates, spec.links)
        self._apps: dict[int, App] = {}
        self._running: dict[tuple[int, int], AttemptContext] = {}
        self._logs = f"{spec.directory}/logs"
        self._aborted: set[tuple[int, int]] = set()
        self._failed_inputs: dict[tuple[int, int], tuple[str, ...]] = {}
        """Lines about the inputs of attempts that have failed, until their failures are made."""
        # An interrupt must not hit a thread that has gone on to other work. Reentrant: see `AttemptContext`.
        self._interrupting = threading.RLock()
        self._open = True
        self._limits: dict[int, float] = {}
        self._starts = latest_starts(spec.templates, spec.until) if spec.until else None
        self._meters = threading.local()
        self._reuse = _reuse_of(spec, self._clock)
        self.worker = 0
        self.on_stream_opened: Callable[[StreamOpened], None] = lambda _: None
        self.on_overdue: Callable[[AttemptResult], None] = lambda _: None
        os.makedirs(self._logs, exist_ok=True)  # noqa: PTH103 - a session without a repository has none yet
        _ROUTER.install()

    def execute(self, task: Task) -> AttemptResult:
        """Run one attempt to its end.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C was pressed while the attempt ran in the main thread.
        """
        if self._starts is not None and ends_too_late(task.template, self._starts, self._clock.now()):
            return postponed(task.drop, task.attempt)
        started = self._clock.monotonic()
        self._meter()  # measures from here on
        log = DropLog(self._logs, task.oid, self._spec.log_limit)
        previous = _ROUTER.enter(log)
        try:
            if task.attempt > 1:
                log.begin_attempt(task.attempt, self._clock.now())
            if task.memory:
                text = f"it has {format_size(int(task.memory))} of memory, because an earlier attempt had too little"
                log.line("INFO", text, self._clock.now())
            limit = self._limit(task.template)
            result = self._attempt_within(limit, task, log, started) if limit else self._attempt(task, log, started)
        except (DropflowError, Interrupted) as error:  # a bad time limit, or an exception whose text raises
            result = self._failed(task, error, log, started)
        finally:
            _ROUTER.leave(previous)
            log.close()
        return result

    def _meter(self) -> UsageMeter:
        """Return the meter of this thread."""
        meter: UsageMeter | None = getattr(self._meters, "meter", None)
        if meter is None:
            meter = self._meters.meter = UsageMeter(owns_process=self._owns_process)
        return meter

    def _result(
        self,
        task: Task,
        started: float,
        handles: dict[int, Handle] | None = None,
        skipped: tuple[int, ...] = (),
        failure: Failure | None = None,
        *,
        used: int = 0,
    ) -> AttemptResult:
        """Return the result of an attempt that ends now; `used` is memory outside of this process and its children."""
        seconds = self._clock.monotonic() - started
        processor, memory = self._meter().end(seconds)
        memory = max(memory, used)
        read = written = 0
        for each in task.inputs:
            if each.handle is not None:
                read += each.handle.size
        for handle in handles.values() if handles else ():
            written += handle.size
        usage = Usage(self._clock.now(), processor, memory, read, written, self.worker)
        return AttemptResult(task.drop, task.attempt, handles or {}, skipped, failure, seconds, usage)

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Stop child processes and waits of a running attempt, or interrupt its code. May be called from any thread.

        In a worker process, code that waits in the system is woken. In another thread than the main one, and in
        compiled code, the exception is raised when the call returns.
        """
        # If the attempt is about to begin, either it sees the entry in `_aborted`, or this thread sees it in
        # `_running`.
        self._aborted.add((drop, attempt))
        self._interrupt((drop, attempt), grace)

    def _interrupt(self, key: tuple[int, int], grace: float) -> None:
        running = self._running.get(key)
        if running is None:
            return
        thread = running.stop(grace)
        if thread is None:
            retry = threading.Timer(_IMPORT_SECONDS, self._interrupt, [key, grace])
            retry.daemon = True
            retry.start()
        elif self._owns_process and thread == threading.main_thread().ident:
            signal.pthread_kill(thread, WAKE_SIGNAL)

    def close(self) -> None:
        """Restore the standard streams, and stop the services of the session in this process. Idempotent."""
        if self._open:
            self._open = False
            end_services(str(self._workspace.files))
            _ROUTER.remove()

    def _limit(self, row: int) -> float:
        limit = self._limits.get(row)
        if limit is None:
            limit = self._limits[row] = time_limit(self._plans.templates[row]) if self._run_app is None else 0.0
        return limit

    def _attempt_within(self, limit: float, task: Task, log: DropLog, started: float) -> AttemptResult:
        late = timed_out(limit)

        def give_up() -> None:
            running = self._running.get((task.drop, task.attempt))
            if running is not None:
                running.give_up()
            self.on_overdue(AttemptResult(task.drop, task.attempt, failure=failure_of(late), seconds=limit))

        deadline = Deadline(limit, lambda: self.abort(task.drop, task.attempt, LATE_GRACE_SECONDS), give_up)
        result = None
        try:
            with deadline:
                result = self._attempt(task, log, started)
        except Interrupted as error:  # interrupted while its exception made its text, or just after its end
            deadline.end()
            result = result or self._failed(task, error, log, started)
        self._aborted.discard((task.drop, task.attempt))
        return self._failed(task, late, log, started) if deadline.expired and result.failure is not None else result

    def _attempt(self, task: Task, log: DropLog, started: float) -> AttemptResult:
        try:
            if self._plans.templates[task.template].kind is Kind.DATA:
                return self._materialise(task, started)
            return self._run(task, log, started)
        except BaseException as error:  # applications may raise anything
            if isinstance(error, KeyboardInterrupt) and _is_ctrl_c():
                raise
            return self._failed(task, error, log, started)

    def _run(self, task: Task, log: DropLog, started: float) -> AttemptResult:
        plans, key = self._plans, (task.drop, task.attempt)
        borrowed = BorrowedInputs(task.inputs, self._workspace)
        attempt = AttemptContext(
            task,
            plans.app(task.template),
            plans,
            self._workspace,
            self._clock,
            log,
            self.on_stream_opened,
            self._interrupting,
        )
        self._running[key] = attempt
        if key in self._aborted:
            attempt.stop()
        try:
            stored = None if self._reuse is None else self._reuse.look_up(attempt)
            if stored is not None and self._reuse is not None and self._reuse.take(attempt, stored):
                return self._result(task, started, *attempt.finish())
            app = self._apps.get(task.template) or self._app(task.template)
            try:
                try:
                    attempt.interruption.enter()
                    enter(attempt)
                    if self._run_app is None:
                        app.run(attempt)
                    else:
                        self._run_app(app, attempt)
                finally:
                    enter(None)
                    attempt.interruption.leave()
            finally:
                self._end_children()
            borrowed.refuse_lost()
            attempt.refuse_changed_inputs()
            handles, skipped = attempt.finish()
            if stored is not None and self._reuse is not None:
                self._reuse.keep(attempt, stored, handles, skipped, self._clock.monotonic() - started)
        except BaseException as error:
            if not isinstance(error, Interrupted | MemoryError):
                given = input_lines(attempt, reads_formats=self._owns_process)
                self._failed_inputs[key] = given + (local_lines(error, given) if self._spec.report_locals else ())
            attempt.abandon()
            if not isinstance(error, Interrupted):
                borrowed.refuse_lost()  # the loss is the reason of the failure
            raise
        finally:
            del self._running[key]
            self._aborted.discard(key)
            attempt.close()
            borrowed.close()
        return self._result(task, started, handles, skipped, used=attempt.memory)

    def _end_children(self) -> None:
        """End the processes that an attempt has started, because its outputs are committed now."""
        if os.getpid() != self._process:
            _leave_forked_child()
        if self._owns_process:
            end_descendants()

    def _materialise(self, task: Task, started: float) -> AttemptResult:
        slot = Slot(self._workspace, task.oid, task.drop, task.attempt, 0, self._clock.now(), index=task.index)
        handle = self._plans.store(task.template).initial(slot)
        return self._result(task, started, {task.drop: handle})

    def _app(self, row: int) -> App:
        from dropflow.apps.registry import app_for  # noqa: PLC0415 - the catalogue of applications is large

        app = self._apps[row] = app_for(self._plans.templates[row])
        return app

    def _failed(self, task: Task, error: BaseException, log: DropLog, started: float) -> AttemptResult:
        failure = failure_of(error, log_tail=log.tail(_TAIL_CHARACTERS))
        if failure.code == OutOfMemoryError.code:
            failure = judge_memory(failure, task, self._spec)
        inputs = self._failed_inputs.pop((task.drop, task.attempt), ())
        if not isinstance(error, Interrupted):
            text = failure.text + (f" ({failure.hint})" if failure.hint else "")
            detail = failure.detail if failure.detail.startswith("Traceback") else ""
            detail += "".join(f"with {line}\n" for line in inputs)
            log.line("ERROR", text, self._clock.now(), detail=detail)
        return self._result(task, started, failure=msgspec.structs.replace(failure, inputs=inputs))


def _reuse_of(spec: ExecutorSpec, clock: Clock) -> "AttemptReuse | None":
    """Return the object that takes and stores results of a session; None if it reuses none."""
    if spec.reuse is None:
        return None
    from dropflow.reuse.attempt import AttemptReuse  # noqa: PLC0415 - most sessions need no store

    return AttemptReuse(spec, clock)


def _is_ctrl_c() -> bool:
    """Return whether a KeyboardInterrupt in this thread can come from Ctrl-C, rather than from the application."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _leave_forked_child() -> NoReturn:
    """Exit in a child that an application forked and that returned here: the attempt belongs to the parent."""
    error = sys.exception()
    status = error.code if isinstance(error, SystemExit) else error is not None
    os._exit(status if isinstance(status, int) else 1)
