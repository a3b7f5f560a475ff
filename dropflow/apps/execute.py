"""The executor: runs one attempt from its task to its result, in the calling process and thread.

It commits nothing. Contents are under temporary names when the result is returned; those of a failed attempt are
removed.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from dropflow.apps.api import App
from dropflow.apps.app_failure import failure_of
from dropflow.apps.attempt_context import AttemptContext
from dropflow.apps.borrowed_inputs import BorrowedInputs
from dropflow.apps.deadline import GRACE_SECONDS as LATE_GRACE_SECONDS
from dropflow.apps.deadline import Deadline
from dropflow.apps.log_router import LogRouter
from dropflow.apps.running_services import end_services
from dropflow.apps.template_cache import TemplateCache
from dropflow.apps.usage_meter import UsageMeter
from dropflow.clock import Clock, SystemClock
from dropflow.data.store import Slot
from dropflow.data.workspace import Workspace
from dropflow.engine.api import AttemptResult, ExecutorSpec, Handle, StreamOpened, Task, Usage
from dropflow.engine.drop_log import DropLog
from dropflow.engine.interrupt_thread import WAKE_SIGNAL
from dropflow.engine.runners.descendants import end_descendants
from dropflow.engine.time_limit import time_limit, timed_out
from dropflow.engine.walltime import ends_too_late, latest_starts, postponed
from dropflow.errors import DropflowError, Interrupted
from dropflow.failure import Failure
from dropflow.graph.templates import Kind
from dropflow.stopping import GRACE_SECONDS

__all__ = ["LocalExecutor", "build"]

_TAIL = 2000
_IMPORT_SECONDS = 0.05
"""Time between two attempts to interrupt an application that imports a module."""
_ROUTER = LogRouter()  # one per process, as the standard streams are


def build(spec: ExecutorSpec) -> "LocalExecutor":
    """Return the executor of a session in a worker process. Workers import this function by its dotted name."""
    return LocalExecutor(spec, owns_process=True)


class LocalExecutor:
    """Runs the attempts of one session, one at a time per calling thread.

    Parameters
    ----------
    spec : ExecutorSpec
        The session, its directory and its templates.
    clock : Clock, optional
        The clock; by default that of the system.
    owns_process : bool
        Whether all children of this process are those of attempts, which run here one after another. Then children are
        ended with their attempt.
    """

    def __init__(self, spec: ExecutorSpec, clock: Clock | None = None, *, owns_process: bool = False) -> None:
        self._spec = spec
        self._owns_process = owns_process
        self._process = os.getpid()
        self._clock = clock or SystemClock()
        self._workspace = Workspace(spec.directory, spec.session, spec.durable, spec.tag, spec.is_detached)
        self._plans = TemplateCache(spec.templates, spec.links)
        self._apps: dict[int, App] = {}
        self._running: dict[tuple[int, int], AttemptContext] = {}
        self._logs = f"{spec.directory}/logs"
        self._aborted: set[tuple[int, int]] = set()
        # An interrupt must not hit a thread that has gone on to other work. Reentrant: see `AttemptContext`.
        self._interrupting = threading.RLock()
        self._open = True
        self._limits: dict[int, float] = {}
        self._starts = latest_starts(spec.templates, spec.until) if spec.until else None
        self._meters = threading.local()
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
        found: UsageMeter | None = getattr(self._meters, "meter", None)
        if found is None:
            found = self._meters.meter = UsageMeter(owns_process=self._owns_process)
        return found

    def _result(
        self,
        task: Task,
        started: float,
        handles: dict[int, Handle] | None = None,
        skipped: tuple[int, ...] = (),
        failure: Failure | None = None,
    ) -> AttemptResult:
        """Return the result of an attempt that ends now."""
        seconds = self._clock.monotonic() - started
        processor, memory = self._meter().end(seconds)
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
            limit = self._limits[row] = time_limit(self._plans.templates[row])
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
            app = self._apps.get(task.template) or self._app(task.template)
            try:
                try:
                    attempt.interruption.enter()
                    app.run(attempt)
                finally:
                    attempt.interruption.leave()
            finally:
                self._end_children()
            borrowed.refuse_lost()
            handles, skipped = attempt.finish()
        except BaseException as error:
            attempt.abandon()
            if not isinstance(error, Interrupted):
                borrowed.refuse_lost()  # it failed because of that
            raise
        finally:
            del self._running[key]
            self._aborted.discard(key)
            attempt.close()
            borrowed.close()
        return self._result(task, started, handles, skipped)

    def _end_children(self) -> None:
        """End the processes that an attempt has started, because its outputs are committed now."""
        if os.getpid() != self._process:
            _leave_forked_child()
        if self._owns_process:
            end_descendants()

    def _materialise(self, task: Task, started: float) -> AttemptResult:
        slot = Slot(self._workspace, task.oid, task.drop, task.attempt, 0, self._clock.now())
        handle = self._plans.store(task.template).initial(slot)
        return self._result(task, started, {task.drop: handle})

    def _app(self, row: int) -> App:
        from dropflow.apps.registry import app_for  # noqa: PLC0415 - the catalogue of applications is large

        app = self._apps[row] = app_for(self._plans.templates[row])
        return app

    def _failed(self, task: Task, error: BaseException, log: DropLog, started: float) -> AttemptResult:
        failure = failure_of(error, log_tail=log.tail(_TAIL))
        if not isinstance(error, Interrupted):
            text = failure.text + (f" ({failure.hint})" if failure.hint else "")
            detail = failure.detail if failure.detail.startswith("Traceback") else ""
            log.line("ERROR", text, self._clock.now(), detail=detail)
        return self._result(task, started, failure=failure)


def _is_ctrl_c() -> bool:
    """Whether a KeyboardInterrupt in this thread can come from Ctrl-C, rather than from the application."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _leave_forked_child() -> NoReturn:
    """Exit in a child that an application forked and that returned here: the attempt belongs to the parent."""
    error = sys.exception()
    status = error.code if isinstance(error, SystemExit) else error is not None
    os._exit(status if isinstance(status, int) else 1)
