"""Worker processes that several sessions share: started once, fed in batches, replaced when they die.

One thread owns all sockets and all bookkeeping; the other methods only leave it a command and wake it. A worker gets
as many attempts ahead as it works off in a few milliseconds, and one at a time when they are long, so that small ones
cost little and long ones are spread evenly; runners take turns. What waits behind an attempt that turns out to be long
is taken back as soon as another worker has nothing to do. An attempt that takes part in a stream waits for a
worker that has nothing to do, and has it to itself: while it waits, nobody is given anything ahead.

The death of a worker fails the one attempt that it was at (the marker in shared memory says which); what it had been
given ahead goes back into the queue. The pool notices a death by a descriptor of the process itself, not by the end of
the socket, which a descendant of the worker may hold, and then ends those descendants. A worker that a signal has
stopped is given nothing, and replaced if it does not continue.

Starts of workers that fail are tried again after a pause (`dropflow.engine.runners.starts`). If several have failed in
a row and there is no worker, each further one that fails also fails the attempts that waited for it. Attempts that
come later wait for the next start.

See `dropflow.engine.runners.worker` for the other side.
"""

import contextlib
import itertools
import logging
import math
import selectors
import socket
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path

import msgspec

from dropflow.clock import SystemClock
from dropflow.engine.api import AttemptResult, ExecutorSpec, ResultSink, StreamOpened, Task
from dropflow.engine.drop_log import DropLog
from dropflow.engine.runners.aborted import aborted
from dropflow.engine.runners.marker import IDLE
from dropflow.engine.runners.starts import Starts
from dropflow.engine.runners.wire import (
    AbortTask,
    CloseExecutor,
    ExecutorFailed,
    FromWorker,
    OpenExecutor,
    OutputOpened,
    Returned,
    TaskResults,
    WorkerReady,
    frame,
)
from dropflow.engine.runners.worker_process import MOST_AHEAD, SLOW_SECONDS, WorkerProcess, lasts
from dropflow.engine.time_limit import time_limit, timed_out
from dropflow.errors import InternalError, WorkerDiedError
from dropflow.exception_text import summary_of
from dropflow.failure import Failure

__all__ = ["PooledRunner", "WorkerPool"]

_LOG = logging.getLogger(__name__)

_READ = 1 << 20
_GRACE_SECONDS = 2.0
_CLOSE_SECONDS = 1.0
_LOG_LIMIT = 1_000_000
_LOOK_SECONDS = 1.0
_OVERDUE_SECONDS = 5.0
"""How long a worker is given to stop an attempt by itself that takes longer than its limit."""
_STOPPED_SECONDS = 30.0
"""How long a worker may be stopped by a signal while there are attempts."""
_LATE_SECONDS = 0.5


class WorkerPool:
    """A fixed number of worker processes.

    Parameters
    ----------
    workers : int
        How many processes.
    logs : Path
        Directory for what they print outside of attempts, ``worker-<n>.log``; must exist when the first runner starts.
    factory : str
        ``package.module:function`` that makes an `Executor` from a spec.
    """

    def __init__(self, workers: int, *, logs: Path, factory: str = "dropflow.apps.execute:build") -> None:
        self.size = workers
        self._logs = logs
        self._factory = factory
        self._numbers = itertools.count()
        self._runners: dict[int, PooledRunner] = {}
        self._turns: deque[PooledRunner] = deque()
        self._next: PooledRunner | None = None
        self._workers: list[WorkerProcess] = []
        self._numbers_of_workers = itertools.count()
        self._starts = Starts()
        self._broken: Failure | None = None
        self._commands: deque[Callable[[], None]] = deque()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ, self._clear_wake)
        self._clock = SystemClock()
        self._now, self._looked, self._read_clock = 0.0, -math.inf, self._clock.monotonic()
        self._lock = threading.Lock()
        self._closing = False
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="worker-processes", daemon=True)

    def runner(self, spec: ExecutorSpec) -> "PooledRunner":
        """A runner for one session. ``files`` and ``logs`` exist in its directory when it starts."""
        return PooledRunner(self, next(self._numbers), spec)

    def start(self) -> None:
        """Start the workers; they become ready while tasks already queue. Again is no error."""
        with self._lock:
            if self._thread.ident is None and not self._closed:
                self._thread.start()

    def close(self) -> None:
        """End the workers and the thread; idempotent. Workers get a second to stop what they do."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._thread.ident is not None:
            self.command(self._begin_close)
            self._thread.join()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    # For the runners of this pool.

    def command(self, command: Callable[[], None]) -> None:
        """Have something done by the pool's thread."""
        self._commands.append(command)
        self._wake.send(b"!")

    def enter(self, runner: "PooledRunner") -> None:
        """Give a runner its turns."""
        self._runners[runner.number] = runner
        self._turns.append(runner)

    def abort(self, runner: "PooledRunner", drop: int, attempt: int) -> None:
        """Stop an attempt, wherever it is; kill its worker when it does not stop."""

        def is_that(number: int, task: Task) -> bool:
            return (number, task.drop, task.attempt) == (runner.number, drop, attempt)

        for task in [task for task in runner.pending if is_that(runner.number, task)]:
            runner.pending.remove(task)
            runner.deliver([aborted(task)])
        for worker in self._workers:
            found = [at for at, (number, task) in worker.assigned.items() if is_that(number, task)]
            if found:
                worker.outgoing += frame(AbortTask(runner.number, drop, attempt))
                worker.doom(found, self._now + _GRACE_SECONDS)

    def leave(self, runner: "PooledRunner") -> None:
        """Forget a runner: nothing of it is started any more, and what runs is stopped within a second."""
        runner.pending.clear()
        runner.leaving = True
        for worker in self._workers:
            mine = {at: task for at, (number, task) in worker.assigned.items() if number == runner.number}
            for task in mine.values():
                worker.outgoing += frame(AbortTask(runner.number, task.drop, task.attempt))
            if mine:
                worker.doom(mine, self._now + _CLOSE_SECONDS)
                worker.recall()  # what waits behind an attempt of another runner would wait for the end of that
            if runner.number in worker.known:
                worker.known.discard(runner.number)
                worker.outgoing += frame(CloseExecutor(runner.number))
        self._let_go()

    # Everything below runs in the pool's thread.

    def _serve(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - whatever it is, see below
                # Sessions that wait for workers must not wait for ever, whatever happened to this thread.
                _LOG.exception("worker processes cannot be served any more: this is a bug of dropflow")
                self._give_up(error)
        for runner in self._runners.values():
            runner.gone.set()
        self._end_workers()

    def _turn(self) -> None:
        patience = self._patience()
        ready = self._selector.select(patience)
        self._advance(patience)
        for key, _ in ready:
            key.data()
        while self._commands:
            self._commands.popleft()()
        if not self._closing:
            now = self._now
            self._kill_overdue(now)
            self._look_at_workers(now)
            self._start_missing(now)
            self._assign(now)
            self._recall(now)
            for worker in self._workers:
                self._flush(worker)
        self._count_busy()

    def _count_busy(self) -> None:
        """Let each runner know how many workers are at an attempt of it: the first of those that they were given."""
        busy = Counter(next(iter(worker.assigned.values()))[0] for worker in self._workers if worker.assigned)
        for number, runner in self._runners.items():
            runner.busy = busy[number]

    def _advance(self, patience: float | None) -> None:
        """Let time pass, but for what this process has slept longer than it wanted: then it was stopped itself."""
        now = self._clock.monotonic()
        passed, self._read_clock = now - self._read_clock, now
        self._now += passed if patience is None else min(passed, patience + _LATE_SECONDS)

    def _give_up(self, error: Exception) -> None:
        """Fail everything that the workers have or wait for, now and from now on."""
        self._broken = Failure.of(InternalError(f"worker processes cannot be served any more: {summary_of(error)}"))
        workers, self._workers = self._workers, []
        for worker in workers:
            self._unregister(worker.link, worker.exit, worker.output.descriptor)
            lost = [
                (number, AttemptResult(t.drop, t.attempt, failure=self._broken))
                for number, t in worker.assigned.values()
            ]
            worker.dispose()
            self._hand_over(lost)
        for runner in self._turns:
            runner.fail_pending(self._broken)
        self._let_go()

    def _patience(self) -> float | None:
        deadlines = [worker.deadline for worker in self._workers if worker.deadline is not None]
        if any(worker.is_idle for worker in self._workers):
            waiting = (worker for worker in self._workers if len(worker.assigned) > 1 and not worker.is_recalled)
            deadlines += [worker.since + SLOW_SECONDS for worker in waiting]
        if self._may_start:
            deadlines.append(self._starts.not_before)
        if self._has_attempts:
            deadlines.append(self._looked + _LOOK_SECONDS)
        return max(0.0, min(deadlines) - self._now) if deadlines else None

    def _clear_wake(self) -> None:
        self._woken.recv(_READ)

    @property
    def _may_start(self) -> bool:
        """Whether workers are missing and one may be tried; after a failed start only one at a time."""
        if self._broken is not None or len(self._workers) >= self.size:
            return False
        return not self._starts.failed or all(worker.is_started for worker in self._workers)

    @property
    def _has_attempts(self) -> bool:
        """Whether attempts wait or are with a worker."""
        return self._has_waiting or any(worker.assigned for worker in self._workers)

    @property
    def _has_waiting(self) -> bool:
        return any(runner.pending for runner in self._turns)

    def _start_missing(self, now: float) -> None:
        if not self._workers and self._has_waiting:
            self._starts.shorten_pause(now)
        while self._may_start and self._starts.not_before <= now:
            try:
                worker = WorkerProcess(next(self._numbers_of_workers))
            except OSError as error:
                self._note_failed_start(f"was refused by the system: {error.strerror or error}", now)
                return
            self._workers.append(worker)
            self._selector.register(worker.link, selectors.EVENT_READ, partial(self._receive, worker))
            self._selector.register(worker.exit, selectors.EVENT_READ, partial(self._replace, worker))
            self._selector.register(worker.output.descriptor, selectors.EVENT_READ, partial(self._read_output, worker))

    def _note_failed_start(self, how: str, now: float) -> None:
        """Count a start that failed, and fail the attempts that waited for it if enough have failed in a row."""
        self._starts.note_failure(how, now)
        if self._starts.failure is not None and not self._workers:
            for runner in self._turns:
                runner.fail_pending(self._starts.failure)

    def _unregister(self, *watched: socket.socket | int) -> None:
        for each in watched:
            if each in self._selector.get_map():
                self._selector.unregister(each)

    def _receive(self, worker: WorkerProcess) -> bool:
        """Take in what a worker has sent; False when there is nothing, and nothing will come."""
        if worker not in self._workers:
            return False
        try:
            data = worker.link.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            # It has closed its end, and cannot be given anything any more.
            self._unregister(worker.link)
            worker.kill()
            return False
        worker.buffer.add(data)
        for body in worker.buffer.frames():
            self._take_in(worker, msgspec.msgpack.decode(body, type=FromWorker))
        return True

    def _read_output(self, worker: WorkerProcess) -> None:
        # The worker stays at this attempt while there is something in the pipe, so all of it is this attempt's.
        if worker in self._workers and not worker.output.read(worker.current()):
            self._unregister(worker.output.descriptor)  # all its ends are closed

    def _take_in(self, worker: WorkerProcess, message: FromWorker) -> None:
        if isinstance(message, TaskResults):
            if worker.output.by_attempt:
                self._log_output(worker, running=worker.current())
            self._starts.note_success()
            self._hand_over(tuple(worker.take(message.results, self._now)))
            self._let_go()
        elif isinstance(message, Returned):
            self._take_back(worker, message.numbers)
        elif isinstance(message, WorkerReady):
            worker.is_started = True
        elif isinstance(message, OutputOpened):
            runner = self._runners.get(message.runner)
            if runner is not None and not runner.leaving:
                runner.deliver([message.opened])
        elif isinstance(message, ExecutorFailed) and message.runner in self._runners:
            self._break(self._runners[message.runner], message.text)

    def _flush(self, worker: WorkerProcess) -> None:
        while worker.outgoing:
            try:
                sent = worker.link.send(memoryview(worker.outgoing)[:_READ])
            except BlockingIOError:
                break
            except OSError:
                worker.outgoing.clear()  # it is dead, or dying
                break
            del worker.outgoing[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.outgoing else 0)
        key = self._selector.get_map().get(worker.link)
        if key is not None and key.events != wanted:
            self._selector.modify(worker.link, wanted, key.data)

    def _assign(self, now: float) -> None:
        if self._broken is not None:
            for runner in self._turns:
                runner.fail_pending(self._broken)
        if not self._workers:
            return
        if self._next is not None and not self._next.wants_one_alone:
            self._next = None  # what waited for a worker was aborted, or its runner has left
        waiting = sum(bool(runner.pending) for runner in self._turns)
        while waiting:
            runner = self._next or self._take_turn()
            if not runner.pending:
                continue
            if runner.wants_one_alone:
                worker = next((worker for worker in self._workers if worker.is_idle), None)
                self._next = runner if worker is None else None
                room, count = int(worker is not None), 1
            else:
                room, worker = max(((one.room(now), one) for one in self._workers), key=itemgetter(0))
                # What is waiting is spread over the workers, and none of the runners fills them all.
                share = -(-len(runner.pending) // len(self._workers))
                count = min(max(room // waiting, 1), share)
            if worker is None or room <= 0:
                return
            if runner.number not in worker.known:
                worker.known.add(runner.number)
                worker.outgoing += frame(OpenExecutor(runner.number, self._factory, runner.spec))
            worker.give(runner.number, runner.take(count), now)
            waiting -= not runner.pending

    def _take_turn(self) -> "PooledRunner":
        self._turns.rotate(-1)
        return self._turns[-1]

    def _recall(self, now: float) -> None:
        """Where a worker has nothing to do, let no attempt wait behind a long one of another."""
        if any(worker.is_idle for worker in self._workers) and not self._has_waiting:
            for worker in self._workers:
                if worker.is_slow(now):
                    worker.recall()

    def _take_back(self, worker: WorkerProcess, numbers: Sequence[int]) -> None:
        """Queue again what a worker has given back."""
        worker.is_recalled = False
        for at in numbers:
            self._queue_again(worker, at)
        self._let_go()

    def _queue_again(self, worker: WorkerProcess, at: int) -> None:
        """Put an attempt that a worker was given first in its runner's queue, unless nobody wants it any more."""
        is_unwanted = worker.is_unwanted(at)
        number, task = worker.lose(at)
        if is_unwanted:
            self._hand_over([(number, aborted(task))])
        elif number in self._runners and not self._runners[number].leaving:
            self._runners[number].pending.appendleft(task)

    def _kill_overdue(self, now: float) -> None:
        for worker in self._workers:
            if worker.deadline is not None and worker.deadline <= now:
                worker.deadline = None
                if worker.is_stuck:
                    worker.kill()
                else:
                    worker.doom((), now + _GRACE_SECONDS)

    def _look_at_workers(self, now: float) -> None:
        """End workers that stay stopped, or are at an attempt whose limit they do not keep themselves.

        Workers without attempts are looked at too, so that attempts are not given to stopped ones, one after the other.
        """
        if now - self._looked < _LOOK_SECONDS or not self._has_attempts:
            return
        self._looked = now
        for worker in self._workers:
            if worker.verdict is not None:
                continue
            worker.look(now)
            limit = self._limit_of(worker)
            if limit and now - worker.since_current > limit + _OVERDUE_SECONDS:
                worker.verdict = timed_out(limit)
            elif worker.stopped_since is not None and now - worker.stopped_since >= _STOPPED_SECONDS:
                worker.verdict = WorkerDiedError(
                    f"the worker process was stopped by a signal and did not continue for {_STOPPED_SECONDS:g} s",
                    hint="something sent it SIGSTOP; to continue a stopped process, send it SIGCONT",
                )
            if worker.verdict is not None:
                worker.kill()

    def _limit_of(self, worker: WorkerProcess) -> float:
        """The limit of the attempt that a worker is at; 0 for none."""
        number, task = worker.assigned.get(worker.current(), (IDLE, None))
        runner = self._runners.get(number)
        return 0.0 if runner is None or task is None else runner.limits[task.template]

    def _replace(self, worker: WorkerProcess) -> None:
        """Fail the attempt that a dead worker was at, and queue again what it had been given ahead."""
        current = worker.current()
        worker.kill()  # what it has started, and left behind
        while self._receive(worker):
            pass  # what it had sent before
        worker.output.read_all(current)
        self._unregister(worker.link, worker.exit, worker.output.descriptor)
        self._workers.remove(worker)
        ended = worker.how_it_ended()
        guilty, has_attempts = worker.assigned.get(current), bool(worker.assigned)
        self._log_output(worker)
        worker.assigned.pop(current, None)
        for at in reversed(tuple(worker.assigned)):
            self._queue_again(worker, at)
        if guilty is not None:
            error = worker.verdict or WorkerDiedError(
                f"the worker process {ended}",
                hint="out of memory, a crash in compiled code, or an exit from the application's own code",
            )
            number, task = guilty
            self._hand_over([(number, AttemptResult(task.drop, task.attempt, failure=Failure.of(error)))])
        elif not worker.is_started or has_attempts:
            # It did not come to the first attempt that it was given. Without a limit that could go on for ever.
            self._note_failed_start(ended, self._now)
        worker.dispose()
        self._let_go()

    def _log_output(self, worker: WorkerProcess, *, running: int | None = None) -> None:
        """Write what a worker has written past Python to the logs of its attempts, or to its own outside of attempts.

        The log of the attempt that is `running` belongs to the worker until the attempt is over.
        """
        for at, content in worker.output.take(but=running):
            folder, name, limit = str(self._logs), f"worker-{worker.number}", _LOG_LIMIT
            if at in worker.assigned:
                number, task = worker.assigned[at]
                if number in self._runners:
                    spec = self._runners[number].spec
                    folder, name, limit = f"{spec.directory}/logs", task.oid, spec.log_limit
            log = DropLog(folder, name, limit)
            log.write_bytes(content)
            log.close()

    def _break(self, runner: "PooledRunner", why: str) -> None:
        """An executor cannot be built: none of the runner's attempts can be run."""
        failure = Failure.of(
            WorkerDiedError(f"worker processes cannot be started: {why}", hint="--runner threads does without them")
        )
        runner.broken = failure
        runner.fail_pending(failure)

    def _hand_over(self, results: Sequence[tuple[int, AttemptResult]]) -> None:
        for number, group in itertools.groupby(results, key=lambda pair: pair[0]):
            runner = self._runners.get(number)
            if runner is not None and not runner.leaving:
                found = [result for _, result in group]
                if runner.broken is not None:
                    found = [AttemptResult(one.drop, one.attempt, failure=runner.broken) for one in found]
                runner.deliver(found)

    def _let_go(self) -> None:
        """Say goodbye to runners that are leaving and of which no worker has anything any more."""
        for runner in [runner for runner in self._turns if runner.leaving]:
            if not any(number == runner.number for worker in self._workers for number, _ in worker.assigned.values()):
                self._turns.remove(runner)
                del self._runners[runner.number]
                runner.gone.set()

    def _begin_close(self) -> None:
        self._closing = True

    def _end_workers(self) -> None:
        for worker in self._workers:
            self._unregister(worker.link, worker.exit, worker.output.descriptor)
            worker.link.close()
        deadline = self._clock.monotonic() + _CLOSE_SECONDS
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - self._clock.monotonic()))
            worker.output.read_all(IDLE)
            self._log_output(worker)
            worker.dispose()
        self._workers.clear()


class PooledRunner:
    """`dropflow.engine.api.Runner` of one session, in the worker processes of a pool.

    Its fields without underscore belong to the pool's thread once it is started.
    """

    def __init__(self, pool: WorkerPool, number: int, spec: ExecutorSpec) -> None:
        self.window = 2 * MOST_AHEAD * pool.size
        self.number = number
        self.spec = spec
        self.busy = 0
        self.limits = tuple(time_limit(template) for template in spec.templates)
        self.pending: deque[Task] = deque()
        self.broken: Failure | None = None
        self.leaving = False
        self.gone = threading.Event()
        self.deliver: ResultSink = _nowhere
        self._pool = pool
        self._started = self._closed = False

    def start(self, deliver: ResultSink) -> None:
        """Take part in the pool."""
        self.deliver = deliver
        self._started = True
        self._pool.start()
        self._pool.command(lambda: self._pool.enter(self))

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue `tasks`."""
        batch = tuple(tasks)
        self._pool.command(lambda: self._take(batch))

    def abort(self, drop: int, attempt: int) -> None:
        """Forget an attempt that waits; if it runs, ask its worker to stop it, and kill that after two seconds."""
        self._pool.command(lambda: self._pool.abort(self, drop, attempt))

    def interrupt(self) -> None:
        """Nothing to do: the session's thread is free to take in its cancel, and aborts follow."""

    def close(self) -> None:
        """Leave the pool, once no worker has an attempt of this runner any more; idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._started:
            self._pool.command(lambda: self._pool.leave(self))
            self.gone.wait()

    @property
    def wants_one_alone(self) -> bool:
        """Whether what waits first is to have a worker to itself."""
        return bool(self.pending) and lasts(self.pending[0])

    def take(self, most: int) -> list[Task]:
        """Some of what waits, in order: up to an attempt that wants a worker to itself, or only that."""
        tasks = [self.pending.popleft()]
        while len(tasks) < most and not lasts(self.pending[0]):
            tasks.append(self.pending.popleft())
        return tasks

    def fail_pending(self, failure: Failure) -> None:
        """Answer everything that waits with a failure."""
        tasks, self.pending = self.pending, deque()
        if tasks:
            self.deliver([AttemptResult(task.drop, task.attempt, failure=failure) for task in tasks])

    def _take(self, batch: Sequence[Task]) -> None:
        self.pending.extend(batch)
        if self.broken is not None:
            self.fail_pending(self.broken)


def _nowhere(_: Sequence[StreamOpened | AttemptResult]) -> None:
    """Deliver to nobody: the runner has not been started."""
