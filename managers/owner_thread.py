"""The thread that owns the state of a manager.

It drains one inbox, lets a state machine decide, and carries the machine's actions out. Other threads post events, or
post calls and wait for the answer. What may block runs as a job in its own thread, and its result comes back as an
event. So no lock guards the machine: only one thread touches it. While there is nothing to do, the thread sleeps until
the machine's deadline.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, cast

from dropflow.clock import Clock
from dropflow.errors import InternalError, LinkError
from dropflow.execution.inbox import Inbox
from dropflow.failure import text_of
from managers.machine_calls import Answer, Arguments, Call, CallId, MachineOperation, Return

_log = logging.getLogger(__name__)

_LONGEST_WAIT = 3600.0
"""Seconds. A wait without end, or beyond what the platform's timers can count, is cut into waits of this length."""
_THREAD_RETRY = 1.0
"""Seconds until the system is asked again for a thread that it refused, which has no event."""
_IDLE = 5.0
"""Seconds that a thread waits for its next job before it ends."""

_Job = Callable[[], Any]
_Jobs = SimpleQueue[_Job | None]
"""The next job of a thread; None if it is to end."""


class Machine(Protocol):
    """A manager's state machine: decides, and does no I/O."""

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Process one event at monotonic time `now`, and return the actions to carry out, in order."""
        ...

    def tick(self, now: float) -> Sequence[Any]:
        """Return the actions that are due at `now`."""
        ...

    def deadline(self) -> float:
        """Return the monotonic time of the next `tick`; infinity if none is needed."""
        ...


class MachineOwner(Protocol):
    """The methods of the owner of a machine that effects call: of an `Owner`, or a simulated one."""

    def post(self, event: Any) -> None:
        """Give an event to the machine. For any thread."""
        ...

    def work(self, job: Callable[[], Any], *, is_long: bool = False) -> None:
        """Run a job that may block, and give its result to the machine. Others do not wait for long jobs."""
        ...


class Owner:
    """Runs one machine in its own thread.

    Parameters
    ----------
    machine : Machine
        The state machine that decides. Only this thread calls it.
    name : str
        Name of the manager, for the thread and for messages.
    clock : Clock
        Tells the time.
    jobs, long_jobs : int
        Most jobs at a time, and most long jobs.
    idle : float
        Seconds after which a thread without a job ends.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        clock: Clock,
        jobs: int = 8,
        long_jobs: int = 8,
        idle: float = _IDLE,
    ) -> None:
        self._machine = machine
        self._effects: dict[type, Callable[[Any], None]] = {Return: self._return}
        self._name = name
        self._clock = clock
        self._idle_seconds = idle
        self._inbox: Inbox[Any] = Inbox()
        self._calls: dict[int, Future[Any]] = {}
        self._last_call = 0
        self._short_jobs, self._long_jobs = _JobQueue(jobs), _JobQueue(long_jobs)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=f"owner-{name}", daemon=True)

    def start(self, effects: Mapping[type, Callable[[Any], None]]) -> None:
        """Start the thread. What was posted before is handled first.

        Parameters
        ----------
        effects : mapping of type to callable
            Carries out the actions of each type but `Return`, in the owner's thread. An effect must not block: what may
            block is given to `work`.
        """
        self._effects.update(effects)
        self._thread.start()

    # For any thread.

    def post(self, event: Any) -> None:
        """Give an event to the machine. Does not wait. After `close`, the event is dropped."""
        self._inbox.put([event])

    def submit(
        self,
        operation: MachineOperation[Answer, Arguments],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> "Future[Answer]":
        """Call an operation of the machine in its thread, and return the future of its answer."""
        future: Future[Answer] = Future()
        call: partial[Any] = partial(cast(Callable[..., Any], operation), *arguments, **named)
        self._inbox.put([_Submitted(call, future)])
        if self._is_over:
            # The thread may have ended before it saw this call; if it did see it, the future has its answer.
            self._refuse(future)
        return future

    def call(
        self,
        operation: MachineOperation[Answer, Arguments],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Call an operation of the machine in its thread, and wait for its answer.

        Raises
        ------
        DropflowError
            The error that the machine returned.
        LinkError
            The manager is closed.
        """
        return self.submit(operation, *arguments, **named).result()

    def close(self) -> None:
        """End the thread. Calls that are not answered yet raise LinkError; jobs end by themselves. Idempotent."""
        self._inbox.put([_Close()])
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # For effects, in the owner's thread.

    def work(self, job: _Job, *, is_long: bool = False) -> None:
        """Run `job` in another thread as soon as one is free.

        Its result is given to the machine as an event, unless it is None. A job must not raise: an error that the
        machine should know of is part of the event.

        Parameters
        ----------
        is_long : bool
            Whether it may take minutes. Long jobs have threads of their own, so that others do not wait for them.
        """
        waiting = self._long_jobs if is_long else self._short_jobs
        # Threads are kept for a while: `Thread.start` waits until the new thread runs, and events wait meanwhile.
        if waiting.idle:
            waiting.idle.pop().put(job)
        else:
            waiting.jobs.append(job)
            self._start_waiting_job(waiting)

    def _start_waiting_job(self, waiting: "_JobQueue") -> None:
        if self._needs_thread(waiting):
            jobs: _Jobs = SimpleQueue()
            arguments = [jobs, waiting]
            try:
                threading.Thread(target=self._run_jobs, args=arguments, name=f"job-{self._name}", daemon=True).start()
            except RuntimeError as error:
                _log.warning("a job of manager %s waits: %s", self._name, error)
            else:
                waiting.threads += 1
                jobs.put(waiting.jobs.popleft())

    def _needs_thread(self, waiting: "_JobQueue") -> bool:
        return bool(waiting.jobs) and waiting.threads < waiting.most

    # The thread.

    def _run(self) -> None:
        try:
            while self._step(self._inbox.drain(self._patience())):
                pass
        finally:
            self._is_over = True
            for item in self._inbox.drain(0):
                if isinstance(item, _Submitted):
                    self._refuse(item.future)
                elif isinstance(item, _JobDone):
                    item.waiting.idle.append(item.jobs)
            for jobs in (*self._short_jobs.idle, *self._long_jobs.idle):
                jobs.put(None)
            for future in self._calls.values():
                self._refuse(future)

    def _patience(self) -> float:
        wait = self._machine.deadline() - self._clock.monotonic()
        needs_thread = self._needs_thread(self._short_jobs) or self._needs_thread(self._long_jobs)
        return min(max(wait, 0.0), _THREAD_RETRY if needs_thread else _LONGEST_WAIT)

    def _step(self, items: Sequence[Any]) -> bool:
        """Process `items`, and return whether to continue."""
        self._start_waiting_job(self._short_jobs)
        self._start_waiting_job(self._long_jobs)
        now = self._clock.monotonic()
        for position, item in enumerate(items):
            if isinstance(item, _Close):
                self._inbox.put(items[position + 1 :])  # calls among them are refused at the end
                return False
            self._take(item, now)
        if self._machine.deadline() <= now:
            self._decide(self._machine.tick, now)
        return True

    def _take(self, item: Any, now: float) -> None:
        event = item
        if isinstance(item, _JobDone):
            if item.waiting.jobs:
                item.jobs.put(item.waiting.jobs.popleft())
            else:
                item.waiting.idle.append(item.jobs)
            if item.event is None:
                return
            event = item.event
        elif isinstance(item, _Idle):
            if item.jobs in item.waiting.idle:  # otherwise a job is on its way
                item.waiting.idle.remove(item.jobs)
                item.waiting.threads -= 1
                item.jobs.put(None)
            return
        elif isinstance(item, _Submitted):
            self._last_call += 1
            self._calls[self._last_call] = item.future
            event = Call(CallId(self._last_call), item.operation)
        error = self._decide(self._machine.handle, event, now)
        if error is not None and isinstance(event, Call) and event.id in self._calls:
            text = f"manager {self._name} failed: {text_of(error)}"
            self._return(Return(event.id, error=InternalError(text, hint="look at its log")))

    def _decide(self, decide: Callable[..., Sequence[Any]], *arguments: Any) -> Exception | None:
        """Let the machine decide, and carry its actions out; return what it raised, which it never should."""
        try:
            actions = decide(*arguments)
        except Exception as error:  # noqa: BLE001 - the manager continues
            _log.exception("the state machine of manager %s failed: this is a bug of dropflow", self._name)
            return error
        for action in actions:
            try:
                self._effects[type(action)](action)
            except Exception:  # noqa: BLE001 - the manager continues: other sessions have no part in this action
                _log.exception(
                    "manager %s could not carry out %s: this is a bug of dropflow", self._name, type(action).__name__
                )
        return None

    def _return(self, action: Return) -> None:
        future = self._calls.pop(action.id)
        if action.error is not None:
            future.set_exception(action.error)
        else:
            future.set_result(action.value)

    def _refuse(self, future: "Future[Any]") -> None:
        with suppress(InvalidStateError):  # answered already
            future.set_exception(LinkError(f"manager {self._name} is stopping"))

    # Jobs.

    def _run_jobs(self, jobs: "_Jobs", waiting: "_JobQueue") -> None:
        while (job := self._next_job(jobs, waiting)) is not None:
            self._run_job(job, jobs, waiting)
            del job  # it refers to sessions
            if self._is_over:
                return  # otherwise the owner has the end of the job in its inbox, and sees it

    def _next_job(self, jobs: "_Jobs", waiting: "_JobQueue") -> _Job | None:
        try:
            return jobs.get(timeout=self._idle_seconds)
        except Empty:
            self._inbox.put([_Idle(jobs, waiting)])
            return jobs.get()

    def _run_job(self, job: _Job, jobs: "_Jobs", waiting: "_JobQueue") -> None:
        event = None
        try:
            event = job()
        except Exception:  # noqa: BLE001 - the owner must learn that the job has ended
            _log.exception("a job of manager %s failed: this is a bug of dropflow", self._name)
        finally:
            self._inbox.put([_JobDone(event, jobs, waiting)])


class _JobQueue:
    """Jobs that wait for one of at most `most` threads, and threads that wait for a job."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.jobs: deque[_Job] = deque()
        self.idle: list[_Jobs] = []
        """Queues of the threads that wait for a job; the last one has worked last."""
        self.threads = 0
        """Number of threads, with those that are at work."""


class _Submitted(NamedTuple):
    """A call that has no number yet."""

    operation: partial[Any]
    future: "Future[Any]"


class _JobDone(NamedTuple):
    """A job has ended; its thread waits for the next one."""

    event: Any
    jobs: _Jobs
    waiting: _JobQueue


class _Idle(NamedTuple):
    """A thread has waited long enough for a job."""

    jobs: _Jobs
    waiting: _JobQueue


class _Close(NamedTuple):
    """The thread is to end."""
