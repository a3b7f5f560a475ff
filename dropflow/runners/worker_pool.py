"""Worker processes that several sessions share: started once, fed in batches, replaced when they die.

One thread owns all sockets and all bookkeeping; other threads only queue a command for it and wake it. Which worker
gets which attempts is decided in `dropflow.runners.dispatcher`.

The death of a worker fails its current attempt, or else its last one: the marker in shared memory has its number.
Attempts that were over, but whose results had not been sent, fail as innocent. What the worker had been given ahead
goes back into the queue. The pool notices a death by a descriptor of the process itself, and not by the end of the
socket, which a descendant of the worker may hold. Then it ends the descendants. Workers that hang are killed
(`dropflow.runners.worker_process`).

Starts of workers that fail are tried again after a pause. If several have failed in a row and there is no worker, each
further one that fails also fails the attempts that waited for it. Attempts that come later wait for the next start.

See `dropflow.runners.worker` for the other side.
"""

import contextlib
import itertools
import logging
import math
import selectors
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.errors import (
    DropflowError,
    InternalError,
    OutOfMemoryError,
    ResultLostError,
    WorkerDiedError,
    WorkerStartError,
)
from dropflow.execution.drop_log import DropLog
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, ResultSink, Task, discard_results
from dropflow.failure import Failure, summary_of
from dropflow.host.memory import counter_files, host_memory
from dropflow.runners.backlog import MOST_AHEAD, PoolClock
from dropflow.runners.capacity import judge_memory
from dropflow.runners.dispatcher import Dispatcher, RunnerQueue
from dropflow.runners.worker_messages import (
    BUILD_EXECUTOR,
    IDLE,
    ExecutorFailed,
    FromWorker,
    Outdated,
    OutputOpened,
    Returned,
    TaskResults,
    WorkerReady,
)
from dropflow.runners.worker_process import (
    SLOW_SECONDS,
    Assigned,
    OomKiller,
    WorkerEnd,
    WorkerMonitor,
    WorkerProcess,
)
from dropflow.stopping import GRACE_SECONDS, stopped_after

_MOST_FAILED_STARTS = 6
"""Failed starts in a row, after which attempts fail."""
_FIRST_PAUSE_SECONDS = 0.1
"""Seconds before a start that follows a failed one; they double with each failure."""
_LONGEST_PAUSE_SECONDS = 30.0
"""Longest seconds before a start that follows a failed one."""
_LONGEST_WAIT = 1.0
"""Longest pause in seconds while attempts wait and there is no process."""
_LOG_BYTES = 1_000_000
"""Bytes of the log of a worker with its output outside of attempts."""
_log = logging.getLogger(__name__)
_SENT_BYTES = 1 << 20
"""Bytes that are sent to a worker at once."""
_WAKES = 4096
"""Most bytes of wake-ups that are read together. A read of up to 1 MiB costs 20 us more, even for few bytes."""
_STARTS = 8
"""Most workers that are started in one turn: commands wait meanwhile."""
_PAUSE_SECONDS = 0.2
"""Seconds between two checks of memory while attempts wait for it. The end of an attempt wakes the pool at once."""
_POOL_CLOSE_SECONDS = 1.0
"""Seconds in which workers must end when the pool is closed; then they are killed."""
_KILL_SECONDS = 5.0
"""Seconds to wait for the end of a killed worker when the pool is closed."""
_ANSWER_SECONDS = 5.0
"""Seconds that a session waits for the thread of the pool."""

# The times at which worker processes are started again after failed starts.


class StartBackoff:
    """Counts the starts that failed in a row: processes that ended before they ran an attempt. Does no I/O.

    If a process was ready and had no attempt, its end is not a failed start.
    """

    def __init__(self) -> None:
        self.failed = 0
        self.not_before = 0.0
        """Time from which on the next start may be tried."""
        self.failure: Failure | None = None
        """Why worker processes cannot be started, once enough starts have failed; else None."""

    def note_failure(self, how: str, now: float) -> None:
        """Count a failed start: the next one waits twice as long."""
        # Without the limit of the exponent, the 1,025th failure would be too large for a float.
        self.not_before = now + min(_FIRST_PAUSE_SECONDS * 2 ** min(self.failed, 16), _LONGEST_PAUSE_SECONDS)
        self.failed += 1
        if self.failed >= _MOST_FAILED_STARTS:
            self.failure = Failure.of(
                WorkerStartError(
                    f"worker processes cannot be started, {self.failed} starts failed in a row: the last one {how}",
                    hint="correct the cause that the process printed, or use --runner threads",
                )
            )

    def shorten_pause(self, now: float) -> None:
        """Try the next start soon, because attempts wait and there is no process."""
        self.not_before = min(self.not_before, now + _LONGEST_WAIT)

    def note_success(self) -> None:
        """Forget the failed starts: a process has run an attempt."""
        self.failed, self.not_before, self.failure = 0, 0.0, None


# Output of worker processes that Python did not write: it goes to the logs of attempts, or of the worker.


class OutputLogs:
    """Writes the output of workers to files. Used by the pool's thread.

    Parameters
    ----------
    directory : Path
        Directory of the logs ``worker-<n>.log`` for output outside of attempts.
    dispatcher : Dispatcher
        The dispatcher that has the runners.
    clock : Clock
        Gives the times of lines.
    """

    def __init__(self, directory: Path, dispatcher: Dispatcher, clock: Clock) -> None:
        self._directory = directory
        self._dispatcher = dispatcher
        self._clock = clock

    def add_line(self, number: int, task: Task, text: str) -> None:
        """Add a line about the end of its worker process to the log of an attempt of a runner."""
        runner = self._dispatcher.find(number)
        if runner is not None:
            log = DropLog(f"{runner.spec.directory}/logs", task.oid, runner.spec.log_limit)
            log.line("ERROR", text, self._clock.now())
            log.close()

    def write(self, worker: WorkerProcess, *, running: int | None = None) -> None:
        """Write the output of a worker to the logs of its attempts, or to its own log outside of attempts.

        The log of the attempt that is `running` belongs to the worker until the attempt is over.
        """
        for number, content in worker.output.take(but=running):
            folder, name, limit = str(self._directory), f"worker-{worker.number}", _LOG_BYTES
            if number in worker.assigned:
                at, task = worker.assigned[number]
                runner = self._dispatcher.find(at)
                if runner is not None:
                    folder, name, limit = f"{runner.spec.directory}/logs", task.oid, runner.spec.log_limit
            log = DropLog(folder, name, limit)
            log.write_bytes(content)
            log.close()


class WorkerPool:
    """A fixed number of worker processes.

    Parameters
    ----------
    workers : int
        Number of processes.
    logs : Path
        Directory for their output outside of attempts, ``worker-<n>.log``; must exist when the first runner starts.
    factory : str
        ``package.module:function`` that makes an `Executor` from a spec.
    """

    def __init__(self, workers: int, *, logs: Path, factory: str = BUILD_EXECUTOR) -> None:
        self.size = workers
        self._runner_numbers = itertools.count()
        self._workers: list[WorkerProcess] = []
        self._clock = SystemClock()
        self._time = PoolClock(self._clock)
        self._dispatcher = Dispatcher(self._workers, self._time, factory, memory=host_memory())
        self._monitor = WorkerMonitor(self._workers, self._dispatcher.limit_of, self._abandon)
        self._output_logs = OutputLogs(logs, self._dispatcher, self._clock)
        self._oom_killer = OomKiller(counter_files())
        self._backoff = StartBackoff()
        self._broken: Failure | None = None
        self._commands: deque[Callable[[Dispatcher], None]] = deque()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ, self._clear_wake)
        # Guards the start of the thread and the sockets against a close from another thread: the number of a closed
        # socket may already be that of another file.
        self._lock = threading.Lock()
        self._closing = False
        self._closed = False
        self._has_sockets = True
        self._thread = threading.Thread(target=self._serve, name="worker-processes", daemon=True)

    def runner(self, spec: ExecutorSpec) -> "PooledRunner":
        """Return a runner for one session. ``files`` and ``logs`` exist in its directory when it starts."""
        return PooledRunner(self, next(self._runner_numbers), spec)

    @property
    def gpus_taken(self) -> int:
        """Number of GPUs that attempts have now. From any thread."""
        return sum(len(worker.gpus) for worker in tuple(self._workers))

    def start(self) -> None:
        """Start the workers; they become ready while tasks already wait. A second call is not an error."""
        with self._lock:
            if self._thread.ident is None and not self._closed:
                self._thread.start()

    def close(self) -> None:
        """End the workers and the thread; idempotent. Workers get a second to stop their attempts."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._thread.ident is not None:
            self.command(self._begin_close)
            self._thread.join()
        self._oom_killer.close()
        self._selector.close()
        with self._lock:
            self._has_sockets = False
            self._wake.close()
            self._woken.close()

    def command(self, command: Callable[[Dispatcher], None]) -> bool:
        """Call `command` in the pool's thread; return False if the pool is closed. From any thread."""
        self._commands.append(command)
        with self._lock:
            if self._has_sockets:
                with contextlib.suppress(BlockingIOError):  # the thread has enough to wake up for
                    self._wake.send(b"!")
            return self._has_sockets

    # Everything below runs in the pool's thread.

    def _serve(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - sessions that wait for workers must not wait forever
                _log.exception("the thread of worker processes failed: this is a bug of dropflow")
                self._give_up(error)
        self._dispatcher.close()
        self._end_workers()

    def _turn(self) -> None:
        timeout = self._timeout()
        ready = self._selector.select(timeout)
        self._time.advance(timeout)
        for key, _ in ready:
            key.data()
        while self._commands:
            self._commands.popleft()(self._dispatcher)
        if not self._closing:
            now = self._time.now
            self._monitor.kill_aborted(now)
            if self._has_attempts and now >= self._monitor.next_check:
                self._monitor.kill_hanging(now)
                self._oom_killer.check()
            for worker in self._workers:
                if worker.is_retiring and not worker.assigned and not worker.is_killed:
                    worker.retire()
            self._start_missing(now)
            if self._broken is not None:
                self._dispatcher.fail_waiting(self._broken)
            self._dispatcher.assign(now)
            self._dispatcher.recall(now)
            for worker in self._workers:
                if worker.outgoing:
                    self._flush(worker)
        self._dispatcher.note_running()

    def _begin_close(self, _: Dispatcher) -> None:
        self._closing = True

    def _give_up(self, error: Exception) -> None:
        """Fail all attempts, those of the workers and those that wait, now and from now on."""
        self._broken = Failure.of(InternalError(f"the thread of worker processes failed: {summary_of(error)}"))
        workers = self._workers.copy()
        self._workers.clear()
        for worker in workers:
            self._unregister(worker.link, worker.exit, worker.output.descriptor)
            lost = [
                (number, AttemptResult(task.drop, task.attempt, failure=self._broken))
                for number, task in worker.assigned.values()
            ]
            worker.close()
            self._dispatcher.deliver(lost)
        self._dispatcher.fail_waiting(self._broken)
        self._dispatcher.remove_left()

    def _timeout(self) -> float | None:
        """Return the seconds until something is due without an event; None if nothing is due."""
        deadlines = [worker.deadline for worker in self._workers if worker.deadline is not None]
        if any(worker.is_idle for worker in self._workers):
            waiting = (worker for worker in self._workers if len(worker.assigned) > 1 and not worker.is_recalled)
            deadlines += [worker.since + SLOW_SECONDS for worker in waiting]
        if self._dispatcher.next_due < math.inf:
            deadlines.append(self._dispatcher.next_due)
        if self._dispatcher.is_paused:
            deadlines.append(self._time.now + _PAUSE_SECONDS)
        if self._may_start:
            deadlines.append(self._backoff.not_before)
        if self._has_attempts:
            deadlines.append(self._monitor.next_check)
        return max(0.0, min(deadlines) - self._time.now) if deadlines else None

    def _clear_wake(self) -> None:
        self._woken.recv(_WAKES)

    @property
    def _has_attempts(self) -> bool:
        """Whether attempts wait or are with a worker."""
        for worker in self._workers:  # not `any`, which is slower: this runs several times for each attempt
            if worker.assigned:
                return True
        return self._dispatcher.has_waiting

    # Starting workers.

    @property
    def _may_start(self) -> bool:
        """Whether workers are missing and one may be tried; after a failed start only one at a time."""
        if self._broken is not None or len(self._workers) >= self.size:
            return False
        return not self._backoff.failed or all(worker.is_started for worker in self._workers)

    def _start_missing(self, now: float) -> None:
        if not self._workers and self._dispatcher.has_waiting:
            self._backoff.shorten_pause(now)
        for _ in range(_STARTS):
            if not self._may_start or self._backoff.not_before > now:
                return
            try:
                numbers = {worker.number for worker in self._workers}  # one that has ended leaves its number
                worker = WorkerProcess(next(number for number in itertools.count() if number not in numbers))
            except OSError as error:
                self._note_failed_start(f"was refused by the system: {error.strerror or error}", now)
                return
            self._workers.append(worker)
            self._selector.register(worker.link, selectors.EVENT_READ, partial(self._receive, worker))
            self._selector.register(worker.exit, selectors.EVENT_READ, partial(self._reap, worker))
            self._selector.register(worker.output.descriptor, selectors.EVENT_READ, partial(self._read_output, worker))

    def _note_failed_start(self, how: str, now: float) -> None:
        """Count a failed start, and fail the attempts that waited for it if enough have failed in a row."""
        self._backoff.note_failure(how, now)
        if self._backoff.failure is not None and not self._workers:
            self._dispatcher.fail_waiting(self._backoff.failure)

    # Talking to workers.

    def _receive(self, worker: WorkerProcess) -> bool:
        """Process the data that a worker has sent; return False if there were none."""
        if worker not in self._workers or worker.is_garbled:
            return False
        try:
            is_open = worker.buffer.receive(worker.link)
        except BlockingIOError:
            return False
        except OSError:
            is_open = False
        if not is_open:
            # The worker has closed its end, so nothing can be sent to it.
            self._unregister(worker.link)
            worker.kill()
            return False
        for body in worker.buffer.frames():
            try:
                message = msgspec.msgpack.decode(body, type=FromWorker)
            except ValueError as error:  # from code of an application; the sessions of other workers go on
                worker.is_garbled, worker.seen = True, worker.marker.last
                worker.kill_reason = WorkerDiedError(f"the worker process sent an invalid message: {error}")
                self._unregister(worker.link)
                worker.kill()
                return False
            self._on_message(worker, message)
        return True

    def _on_message(self, worker: WorkerProcess, message: FromWorker) -> None:
        if isinstance(message, TaskResults):
            if worker.output.by_attempt:
                self._output_logs.write(worker, running=worker.current())
            self._backoff.note_success()
            self._dispatcher.take_results(worker, message.results)
            self._dispatcher.remove_left()
        elif isinstance(message, Returned):
            worker.is_recalled = False
            self._dispatcher.requeue(worker, message.numbers)
            self._dispatcher.remove_left()
        elif isinstance(message, WorkerReady):
            worker.is_started = True
        elif isinstance(message, OutputOpened):
            self._dispatcher.deliver_stream(message.runner, message.opened)
        elif isinstance(message, ExecutorFailed):
            self._dispatcher.fail_runner(message.runner, message.text)
        elif isinstance(message, Outdated):
            worker.is_retiring = True

    def _flush(self, worker: WorkerProcess) -> None:
        while worker.outgoing:
            try:
                sent = worker.link.send(memoryview(worker.outgoing)[:_SENT_BYTES])
            except BlockingIOError:
                break
            except OSError:
                worker.outgoing.clear()  # it is dead, or dying
                break
            del worker.outgoing[:sent]
        if worker.awaits_room != bool(worker.outgoing) and worker.link in self._selector.get_map():
            worker.awaits_room = bool(worker.outgoing)
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.outgoing else 0)
            self._selector.modify(worker.link, wanted, partial(self._receive, worker))

    def _read_output(self, worker: WorkerProcess) -> None:
        # The worker begins no other attempt while there is output in the pipe, so all of it belongs to this attempt.
        if worker in self._workers and not worker.output.read(worker.current()):
            self._unregister(worker.output.descriptor)  # all its ends are closed

    # The end of workers.

    def _reap(self, worker: WorkerProcess) -> None:
        """Fail the attempts that a dead worker had begun, and queue its other attempts again."""
        current = worker.current()
        worker.kill()  # kill also the processes that it has started
        while self._receive(worker):
            pass  # read what it had sent before
        worker.output.read_all(current)
        self._unregister(worker.link, worker.exit, worker.output.descriptor)
        self._workers.remove(worker)
        end = worker.reap(self._oom_killer)
        self._take_back(worker, end)
        worker.close()
        self._dispatcher.remove_left()

    def _abandon(self, worker: WorkerProcess) -> None:
        """Treat a worker that was killed and does not end as if it had ended."""
        self._unregister(worker.link, worker.exit, worker.output.descriptor)
        self._workers.remove(worker)
        self._take_back(worker, WorkerEnd(-signal.SIGKILL, is_over=False, output=worker.output.end))
        threading.Thread(target=worker.close, name=f"unkillable-{worker.number}", daemon=True).start()
        self._dispatcher.remove_left()

    def _take_back(self, worker: WorkerProcess, end: WorkerEnd) -> None:
        """Fail the attempts that a worker had begun, the last one with its end, and queue the others again."""
        begun, has_attempts = worker.begun(), bool(worker.assigned)
        self._output_logs.write(worker)
        failed = [worker.assigned.pop(number) for number in begun]
        self._dispatcher.requeue(worker, tuple(reversed(worker.assigned)))
        if failed:
            # The attempt that was the reason to kill it may have ended just before.
            if worker.kill_reason is not None and worker.seen == begun[-1]:
                self._fail_begun(failed, worker.kill_reason, worker.kill_reason.text)
            else:
                self._fail_begun(failed, end.error(), f"the worker process {end.reason}")
        elif not worker.is_started or has_attempts:
            # It did not begin its first attempt. Without a limit, this could repeat forever.
            self._note_failed_start(end.text, self._time.now)

    def _fail_begun(self, failed: Sequence[Assigned], error: DropflowError, reason: str) -> None:
        """Fail the attempts that a worker began: the last one with `error`, and those before it as innocent."""
        number, last = failed[-1]
        self._output_logs.add_line(number, last, reason)
        lost = Failure.of(ResultLostError(f"the result was lost before it was sent: {reason}"))
        results = [(at, AttemptResult(task.drop, task.attempt, failure=lost)) for at, task in failed[:-1]]
        failure, runner = Failure.of(error), self._dispatcher.find(number)
        if runner is not None and failure.code == OutOfMemoryError.code and runner.spec.retry_memory:
            failure = judge_memory(failure, last, runner.spec)
        results.append((number, AttemptResult(last.drop, last.attempt, failure=failure)))
        self._dispatcher.deliver(results)

    def _unregister(self, *watched: socket.socket | int) -> None:
        for each in watched:
            if each in self._selector.get_map():
                self._selector.unregister(each)

    def _end_workers(self) -> None:
        for worker in self._workers:
            self._unregister(worker.link, worker.exit, worker.output.descriptor)
            worker.link.close()
        deadline = self._clock.monotonic() + _POOL_CLOSE_SECONDS
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - self._clock.monotonic()))
            worker.output.read_all(IDLE)
            self._output_logs.write(worker)
            # In a thread: a process that waits for the kernel does not end, and must not delay the ends of others.
            closing = threading.Thread(target=worker.close, name=f"close-{worker.number}", daemon=True)
            closing.start()
            closing.join(_KILL_SECONDS)
        self._workers.clear()


class PooledRunner:
    """`dropflow.execution.interfaces.Runner` of one session, in the worker processes of a pool.

    Parameters
    ----------
    pool : WorkerPool
        Runs its attempts.
    number : int
        Number of the runner, unique in the pool.
    spec : ExecutorSpec
        Specification from which workers build its executor.
    """

    def __init__(self, pool: WorkerPool, number: int, spec: ExecutorSpec) -> None:
        self.window = 2 * MOST_AHEAD * pool.size
        self._pool = pool
        self._queue = RunnerQueue(number, spec, discard_results)
        self._started = self._closed = False

    @property
    def running(self) -> Mapping[int, int]:
        """The numbers of the workers, by the drops whose attempts they run."""
        return self._queue.running

    def start(self, deliver: ResultSink) -> None:
        """Take part in the pool."""
        self._queue.deliver = deliver
        self._started = True
        self._pool.start()
        self._pool.command(lambda dispatcher: dispatcher.enter(self._queue))

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue `tasks`; if there are none, wake the pool only if it waits for that."""
        batch = tuple(tasks)
        if not batch and self._queue.not_before == -math.inf:
            return  # set before the delivery of the results to which this call is the answer
        self._pool.command(lambda _: self._queue.add(batch))

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Remove an attempt that waits, or have its worker stop it; the worker is killed after `grace` seconds."""
        self._pool.command(lambda dispatcher: dispatcher.abort(self._queue, drop, attempt, grace))

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`; workers return attempts that they have not begun."""
        self._pool.command(lambda dispatcher: dispatcher.hold(self._queue, is_held=is_held))

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that no worker has; none if the thread of the pool is busy for seconds."""
        if self._closed or not self._started:
            return ()
        given: Future[tuple[Task, ...]] = Future()

        def answer(_: Dispatcher) -> None:
            if given.set_running_or_notify_cancel():
                given.set_result(self._queue.give_back())

        if not self._pool.command(answer):
            return ()
        try:
            return given.result(_ANSWER_SECONDS)
        except TimeoutError:
            return () if given.cancel() else given.result()

    def interrupt(self) -> None:
        """Do nothing: the session's thread is free to process its cancel, and aborts follow."""

    def close(self) -> None:
        """Leave the pool, once no worker has an attempt of this runner any more; idempotent.

        A worker that the system does not end, because it hangs in the kernel, is not waited for.
        """
        if self._closed:
            return
        self._closed = True
        if self._started and self._pool.command(lambda dispatcher: dispatcher.leave(self._queue)):
            self._queue.has_left.wait(stopped_after(_POOL_CLOSE_SECONDS))


# Attempts run in worker processes that belong to one session.


class ProcessRunner(PooledRunner):
    """A runner with its own pool of worker processes.

    Parameters
    ----------
    spec : ExecutorSpec
        Specification from which each worker builds its executor. ``files`` and ``logs`` exist in its directory.
    workers : int
        Number of processes.
    factory : str
        ``package.module:function`` that makes an `Executor` from the spec.
    """

    def __init__(self, spec: ExecutorSpec, *, workers: int, factory: str = BUILD_EXECUTOR) -> None:
        super().__init__(WorkerPool(workers, logs=Path(spec.directory, "logs"), factory=factory), 1, spec)

    def close(self) -> None:
        """End the workers; idempotent. They get a second to stop their attempts."""
        self._pool.close()
