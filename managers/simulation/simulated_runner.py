"""A runner whose attempts take virtual time: no thread, no process, no waiting."""

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import msgspec

from dropflow.clock import Clock
from dropflow.data.streams import StreamedWriter, StreamReader
from dropflow.errors import DropflowError, InternalError, ResultLostError
from dropflow.execution.chains import members, not_begun, rest_not_begun, with_input
from dropflow.execution.content_location import Handle
from dropflow.execution.tasks import AttemptResult, Output, ResultSink, StreamOpened, Task
from dropflow.failure import Failure
from dropflow.runners.in_process import aborted
from dropflow.stopping import GRACE_SECONDS, kill_after

_EMPTY = Handle(kind="null")
_PIECES = 4
"""Pieces in which a stream is written."""
_AGAIN = 0.01
"""Seconds after which an attempt looks again whether the streams that it reads have ended."""

OpenStream = Callable[[Task, Output, Callable[[Handle], None]], StreamedWriter | None]
"""Returns a writer for an output that is read while it is written."""


class SimulatedRunner:
    """Implements `dropflow.execution.interfaces.Runner` for a session that is stepped in one thread.

    Parameters
    ----------
    clock : Clock
        Virtual time.
    call_at : callable
        Calls a function at a time of `clock.monotonic()`, in the thread that steps the session.
    duration : callable
        Returns the seconds that an attempt takes.
    failure : callable, optional
        Returns why a task fails, or None if it succeeds.
    skips : callable, optional
        Returns the rows of the outputs that a task chooses to skip.
    content : callable, optional
        Returns the content that a task writes to one of its outputs, by the row of the output; empty by default.
    open_stream : callable, optional
        Returns a writer for an output of a task that is read while it is written, or None; its last argument is to be
        called with the stream.
    on_written : callable, optional
        Called after something was written to such outputs.
    stopping : callable, optional
        Returns the seconds that an attempt takes to stop when it is aborted. It is killed
        `dropflow.stopping.kill_after` its grace period; with infinity, it does not even end then.
    sends_late : callable, optional
        Returns whether the result of an attempt waits for that of the attempt which follows it in its chain. If that
        one dies, the result is lost.
    on_lost : callable, optional
        Called with each of these results.
    ready : callable, optional
        Returns when the inputs of an attempt are here, in time of `clock`; others may begin before it.
    cores : callable, optional
        Returns how many workers an attempt takes, at most all of them; one by default.
    workers : int
        How many attempts run at a time; others wait in the order in which they were submitted.
    """

    def __init__(
        self,
        clock: Clock,
        call_at: Callable[[float, Callable[[], None]], object],
        *,
        duration: Callable[[Task], float] = lambda _: 1.0,
        failure: Callable[[Task], Failure | None] = lambda _: None,
        skips: Callable[[Task], Collection[int]] = lambda _: (),
        content: Callable[[Task, int], Handle] = lambda _task, _drop: _EMPTY,
        open_stream: OpenStream = lambda _task, _output, _on_open: None,
        on_written: Callable[[], object] = lambda: None,
        stopping: Callable[[Task], float] = lambda _: 0.0,
        sends_late: Callable[[Task], bool] = lambda _: False,
        on_lost: Callable[[AttemptResult], object] = lambda _: None,
        ready: Callable[[Task], float] = lambda _: 0.0,
        cores: Callable[[Task], int] = lambda _: 1,
        workers: int = 4,
    ) -> None:
        self.window = 2 * workers
        self._clock = clock
        self._call_at = call_at
        self._duration = duration
        self._failure = failure
        self._skips = skips
        self._content = content
        self._open_stream = open_stream
        self._on_written = on_written
        self._stopping = stopping
        self._sends_late = sends_late
        self._on_lost = on_lost
        self._ready = ready
        self._cores = cores
        self._ready_at: dict[tuple[int, int], float] = {}
        """Times at which the inputs of attempts that wait for them are here."""
        self._is_held = False
        self._workers = workers
        self._waiting: deque[Task] = deque()
        self._running: dict[tuple[int, int], _Attempt] = {}
        self._deliver: ResultSink = lambda _: None

    @property
    def running(self) -> Mapping[int, int]:
        """The drops whose attempts run."""
        return {drop: 0 for drop, _ in tuple(self._running)}

    def start(self, deliver: ResultSink) -> None:
        """Remember where results go."""
        self._deliver = deliver

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queue attempts, and begin as many as there are workers."""
        self._waiting += tasks
        for task in tasks:
            if (due := self._ready(task)) > self._clock.monotonic():
                self._ready_at[task.drop, task.attempt] = due
                self._call_at(due, partial(self._arrive, task))
        self._begin()

    def _arrive(self, task: Task) -> None:
        self._ready_at.pop((task.drop, task.attempt), None)
        self._begin()

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """End an attempt as soon as it stops; it is answered as one that was aborted."""
        running = self._running.get((drop, attempt))
        if running is not None:
            seconds = self._stopping(running.task)
            if 0 < seconds < math.inf:
                due = self._clock.monotonic() + min(seconds, kill_after(grace))
                self._call_at(due, partial(self._stop, running))
            elif not seconds:
                self._stop(running)
            return
        self._abort_waiting(drop, attempt)

    def _abort_waiting(self, drop: int, attempt: int) -> None:
        """Answer an attempt that waits, alone or in a chain, with those that follow it."""
        for position, task in enumerate(self._waiting):
            for at, later in enumerate(members(task)):
                if (later.drop, later.attempt) == (drop, attempt):
                    if at:
                        self._waiting[position] = msgspec.structs.replace(task, then=task.then[: at - 1])
                    else:
                        del self._waiting[position]
                    self._deliver([aborted(drop, attempt), *not_begun(task.then[at:])])
                    return
        for running in self._running.values():
            for at, later in enumerate(running.following):
                if (later.drop, later.attempt) == (drop, attempt):
                    left, running.following = running.following[at + 1 :], running.following[:at]
                    self._deliver([aborted(drop, attempt), *not_begun(left)])
                    return

    def hold(self, *, is_held: bool) -> None:
        """Begin no attempts while `is_held`."""
        self._is_held = is_held
        self._begin()

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that wait and have not begun. They are not answered; those that follow them are."""
        tasks = tuple(self._waiting)
        self._waiting.clear()
        if rest := rest_not_begun(tasks):
            self._deliver(rest)
        return tasks

    def interrupt(self) -> None:
        """Do nothing: the session is stepped by its driver, and aborts follow."""

    def close(self) -> None:
        """Forget all attempts."""
        self._waiting.clear()
        for attempt in self._running.values():
            attempt.abandon()
        self._running.clear()

    def _begin(self) -> None:
        for task in [] if self._is_held else list(self._waiting):
            if (task.drop, task.attempt) in self._ready_at:
                continue
            free = self._workers - sum(self._taken(attempt.task) for attempt in self._running.values())
            if free < self._taken(task):
                return
            self._waiting.remove(task)
            self._start(task, task.then, [])

    def _taken(self, task: Task) -> int:
        return min(self._cores(task), self._workers)

    def _start(self, task: Task, following: Sequence[Task], unsent: list[AttemptResult]) -> None:
        """Begin an attempt: of a chain, with those that follow it, and the results before it that are not sent yet."""
        now, seconds = self._clock.monotonic(), self._duration(task)
        attempt = _Attempt(task, seconds, following, unsent)
        self._running[task.drop, task.attempt] = attempt
        for output in task.outputs:
            if output.streams and not output.shared:
                writer = self._open_stream(task, output, partial(self._opened, task, output.drop))
                if writer is not None:
                    attempt.writers[output.drop] = writer
        if attempt.writers:
            for piece in range(1, _PIECES):
                self._call_at(now + seconds * piece / _PIECES, partial(self._write, attempt, piece))
        self._call_at(now + seconds, partial(self._end, attempt))

    def _stop(self, attempt: "_Attempt") -> None:
        if self._is_running(attempt):
            task = attempt.task
            del self._running[task.drop, task.attempt]
            attempt.abandon()
            self._deliver([*attempt.unsent, aborted(task.drop, task.attempt), *not_begun(attempt.following)])
            self._begin()

    def _opened(self, task: Task, drop: int, stream: Handle) -> None:
        self._deliver([StreamOpened(task.drop, task.attempt, drop, stream)])

    def _write(self, attempt: "_Attempt", piece: int) -> None:
        """Write the next piece of each output that is a stream."""
        if self._is_running(attempt):
            try:
                for drop, writer in attempt.writers.items():
                    body = self._content(attempt.task, drop).body
                    writer.write(body[len(body) * (piece - 1) // _PIECES : len(body) * piece // _PIECES])
            except DropflowError as error:
                attempt.failure = attempt.failure or Failure.of(error)
            self._on_written()

    def _is_running(self, attempt: "_Attempt") -> bool:
        """Return whether an attempt was not aborted, and its session is not over."""
        return self._running.get((attempt.task.drop, attempt.task.attempt)) is attempt

    def _end(self, attempt: "_Attempt") -> None:
        if not self._is_running(attempt):
            return
        task = attempt.task
        failure = attempt.failure or self._failure(task)
        if failure is None:
            try:
                if not attempt.has_read_all():
                    self._call_at(self._clock.monotonic() + _AGAIN, partial(self._end, attempt))
                    return
            except DropflowError as error:
                failure = Failure.of(error)
        handles = {}
        skipped: Collection[int] = ()
        if failure is None:
            skipped = self._skips(task)
            self._write(attempt, _PIECES)
            written = [output.drop for output in task.outputs] if task.outputs or task.inputs else [task.drop]
            try:
                handles = {
                    drop: attempt.writers[drop].finish() if drop in attempt.writers else self._content(task, drop)
                    for drop in written
                    if drop not in skipped
                }
            except DropflowError as error:
                attempt.failure = attempt.failure or Failure.of(error)
            failure = attempt.failure
            self._on_written()
            if failure is None:
                attempt.writers.clear()
        attempt.abandon()
        del self._running[task.drop, task.attempt]
        if failure is not None:
            handles, skipped = {}, ()
        result = AttemptResult(task.drop, task.attempt, handles, tuple(skipped), failure, attempt.seconds)
        self._continue(attempt, result)
        self._begin()

    def _continue(self, attempt: "_Attempt", result: AttemptResult) -> None:
        """Send the result of an attempt, and begin the one that follows it."""
        unsent, following = attempt.unsent, attempt.following
        if result.failure is not None and result.failure.infrastructure:
            lost = Failure.of(ResultLostError("the result was lost before it was sent"))
            for earlier in unsent:
                self._on_lost(earlier)
            unsent = [AttemptResult(earlier.drop, earlier.attempt, failure=lost) for earlier in unsent]
        task = None if self._is_held or not following else with_input(following[0], result)
        if task is None:
            self._deliver([*unsent, result, *not_begun(following)])
        elif self._sends_late(attempt.task):
            self._start(task, following[1:], [*unsent, result])
        else:
            self._start(task, following[1:], [])
            self._deliver([*unsent, result])


class _Attempt:
    """An attempt that runs, with the streams that it reads and writes, and with what follows it."""

    def __init__(self, task: Task, seconds: float, following: Sequence[Task], unsent: list[AttemptResult]) -> None:
        self.task = task
        self.seconds = seconds
        self.following = following
        self.unsent = unsent
        self.failure: Failure | None = None
        """Why what it writes could not be stored."""
        self.writers: dict[int, StreamedWriter] = {}
        self._readers: dict[int, StreamReader] | None = None

    def has_read_all(self) -> bool:
        """Return whether the streams that it reads have ended.

        Raises
        ------
        StorageError
            A stream was removed.
        InternalError
            Less can be read than was written.
        """
        if self._readers is None:
            streams = {
                task_input.drop: task_input.handle
                for task_input in self.task.inputs
                if task_input.handle and task_input.handle.kind == "stream"
            }
            self._readers = {drop: StreamReader(handle.location) for drop, handle in streams.items()}
        if not all(reader.is_ended for reader in self._readers.values()):
            return False
        for drop, reader in self._readers.items():
            size = reader.wait_for_end().size
            count = len(reader.pread(0, size + 1))
            if count != size:
                raise InternalError(f"{count} bytes of the {size} of the stream of drop {drop} can be read")
        return True

    def abandon(self) -> None:
        """Discard what was written and not finished, and stop reading."""
        for writer in self.writers.values():
            writer.abandon()
        self.writers.clear()
        for reader in (self._readers or {}).values():
            reader.close()
        self._readers = {}
