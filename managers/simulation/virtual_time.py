"""Virtual time: a clock and a heap of events, in one thread."""

import heapq
import itertools
import math
import random
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dropflow.errors import InternalError
from managers.machine_calls import Call, CallId, Return
from managers.owner_thread import Machine

_MOST_EVENTS = 1_000_000
"""Number of events after which a simulation that does not reach its end is a bug."""
_QUIET = 0.03
"""Seconds of the managers in which all that follows from the end of an attempt has happened."""
OnReturn = Callable[[Any, Exception | None], object]
"""Takes the value of a call, or its error."""


class Timer:
    """An event that has not happened yet."""

    __slots__ = ("_call", "time")

    def __init__(self, time: float, call: Callable[[], object]) -> None:
        self.time = time
        self._call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Prevent the event. Idempotent."""
        self._call = None

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled, or has happened."""
        return self._call is None

    def fire(self) -> None:
        """Call the function of the event."""
        call, self._call = self._call, None
        if call is not None:
            call()


class Simulation:
    """A clock that moves from event to event. Implements `dropflow.clock.Clock`.

    Parameters
    ----------
    seed : int
        Seed of `random`, from which everything that happens by chance is drawn.
    keep_trace : bool
        Whether to keep the lines of `record` in `trace`; `digest` has their CRC-32 in any case.
    """

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)  # noqa: S311 - not for secrets
        self.time = 0.0
        self.events = 0
        self.digest = 0
        self.trace: list[str] | None = [] if keep_trace else None
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def __repr__(self) -> str:
        return f"Simulation(seed={self.seed}, time={self.time:g}, events={self.events})"

    def now(self) -> float:
        """Return the seconds since the simulation began."""
        return self.time

    def monotonic(self) -> float:
        """Return the seconds since the simulation began."""
        return self.time

    def record(self, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self.time:.9f} {text}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        if self.trace is not None:
            self.trace.append(line)

    def call_at(self, time: float, call: Callable[[], object]) -> Timer:
        """Call `call` at `time`; events of the same time happen in the order of their `call_at`."""
        timer = Timer(max(time, self.time), call)
        self.add(timer)
        return timer

    def add(self, timer: Timer) -> None:
        """Let a timer fire at its time, or now if that is over."""
        heapq.heappush(self._heap, (max(timer.time, self.time), next(self._order), timer))

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call `call` after `seconds`."""
        return self.call_at(self.time + seconds, call)

    def step(self) -> bool:
        """Let the next event happen; return whether there was one."""
        return self._step(math.inf)

    def _step(self, end: float) -> bool:
        """Let the next event happen if its time is not after `end`; return whether there was one."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            time, _, timer = heapq.heappop(heap)
            if not timer.is_cancelled:
                self.time = time
                self.events += 1
                timer.fire()
                return True
        return False

    def run(self, until: Callable[[], bool], *, most_events: int = _MOST_EVENTS) -> None:
        """Let events happen until `until` returns true.

        Raises
        ------
        InternalError
            There are no more events, or it does not become true within `most_events`.
        """
        last = self.events + most_events
        while not until():
            if self.events >= last or not self.step():
                raise InternalError(f"the end of the simulation was not reached: {self!r}")

    def wait(self, seconds: float) -> None:
        """Let everything happen that happens in `seconds`."""
        end = self.time + seconds
        while self._step(end):
            pass
        self.time = end


class SteppedClock:
    """The clocks of a host: its wall clock can be set, its monotonic one cannot. Implements `dropflow.clock.Clock`."""

    def __init__(self, simulation: Simulation) -> None:
        self.ahead = 0.0
        """Seconds that the wall clock is ahead of the right time."""
        self._simulation = simulation

    def now(self) -> float:
        """Return the time of the wall clock."""
        return self._simulation.time + self.ahead

    def monotonic(self) -> float:
        """Return the seconds since the simulation began."""
        return self._simulation.time


class SimulatedProcess:
    """A process whose events can be delayed by a pause (as SIGSTOP does) and ended by a crash (as SIGKILL does).

    Parameters
    ----------
    simulation : Simulation
        Its time.
    name : str
        For the trace.
    """

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self._delayed: list[Timer] = []
        self._on_crash: list[Callable[[], None]] = []

    def call_at(self, time: float, call: Callable[[], object]) -> Timer:
        """Call `call` at `time`, after a pause that lasts until then, and not at all after a crash."""
        timer = _ProcessTimer(time, call, self)
        self.simulation.add(timer)
        return timer

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call `call` after `seconds`, see `call_at`."""
        return self.call_at(self.simulation.time + seconds, call)

    def on_crash(self, call: Callable[[], None]) -> None:
        """Call `call` when the process crashes, for what the rest of the world notices of it."""
        self._on_crash.append(call)

    def pause(self) -> None:
        """Stop handling events until `resume`."""
        if self.is_alive and not self.is_paused:
            self.simulation.record(f"pause {self.name}")
            self.is_paused = True

    def resume(self) -> None:
        """Handle the events that were delayed, now and in their order."""
        if not self.is_paused:
            return
        self.simulation.record(f"resume {self.name}")
        self.is_paused = False
        delayed, self._delayed = self._delayed, []
        for timer in delayed:
            self.simulation.add(timer)

    def crash(self) -> None:
        """End the process. Idempotent."""
        if not self.is_alive:
            return
        self.simulation.record(f"crash {self.name}")
        self.is_alive = False
        self._delayed.clear()
        for call in self._on_crash:
            call()

    def delay(self, timer: Timer) -> None:
        """Let a timer fire after the pause."""
        self._delayed.append(timer)


class _ProcessTimer(Timer):
    """An event of a process."""

    __slots__ = ("_process",)

    def __init__(self, time: float, call: Callable[[], object], process: SimulatedProcess) -> None:
        super().__init__(time, call)
        self._process = process

    def fire(self) -> None:
        """Call the function of the event, after a pause of the process, and not at all after its crash."""
        if self._process.is_paused:
            self._process.delay(self)
        elif self._process.is_alive:
            super().fire()


class WorkTime:
    """The time of attempts: it passes as that of the managers does, and skips what they would wait for an attempt.

    While attempts run and nothing else happens, managers only send heartbeats. That would take nearly all of the
    processor time of a session of hours. To the managers, long attempts end sooner; to the work, they last as long as
    they do. Implements `dropflow.clock.Clock`.

    Parameters
    ----------
    simulation : Simulation
        The time of the managers.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._skipped = 0.0
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._next: Timer | None = None
        self._looks: Timer | None = None
        self.may_skip: Callable[[], bool] = lambda: True
        """Whether the managers have nothing to do but wait."""

    def now(self) -> float:
        """Return the seconds since the simulation began, with what was skipped."""
        return self._simulation.time + self._skipped

    monotonic = now

    def call_at(self, process: SimulatedProcess, time: float, call: Callable[[], object]) -> None:
        """Call `call` in a process at a time of the work."""
        begin: Callable[[], object] = partial(process.call_later, 0.0, call)
        heapq.heappush(self._heap, (time, next(self._order), begin))
        self._schedule()

    def _schedule(self) -> None:
        """Carry out the next call, and look for something to skip when it is quiet."""
        for timer in (self._next, self._looks):
            if timer is not None:
                timer.cancel()
        if self._heap:
            self._next = self._simulation.call_at(self._heap[0][0] - self._skipped, self._fire)
            self._looks = self._simulation.call_later(_QUIET, self._skip)

    def _fire(self) -> None:
        while self._heap and self._heap[0][0] - self._skipped <= self._simulation.time:
            heapq.heappop(self._heap)[2]()
        self._schedule()

    def _skip(self) -> None:
        if self._heap and self.may_skip():
            self._skipped += max(self._heap[0][0] - self.now() - _QUIET, 0.0)
        self._schedule()


class SimulatedOwner:
    """Runs one machine in a simulated process. A crash of the process ends it, a pause delays it.

    Parameters
    ----------
    machine : Machine
        Decides what is done.
    process : SimulatedProcess
        The process of the manager.
    on_action : callable
        Called with each action before it is carried out. It may crash the process: then the action is not carried out.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        process: SimulatedProcess,
        on_action: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.machine = machine
        self._effects: dict[type, Callable[[Any], None]] = {Return: self._return}
        self._process = process
        self._simulation = process.simulation
        self.job_seconds = 0.002
        """Mean virtual time that a job takes."""
        self._on_action = on_action
        self._numbers = itertools.count(1)
        self._calls: dict[int, OnReturn] = {}
        self._timer: Timer | None = None

    def start(self, effects: Mapping[type, Callable[[Any], None]]) -> None:
        """Let `effects` carry out the actions of each type but `Return`, from the first event on."""
        self._effects.update(effects)

    def post(self, event: Any) -> None:
        """Give an event to the machine, after the events that were posted before."""
        self._process.call_later(0.0, partial(self._handle, event))

    def submit(self, operation: Callable[..., Any], on_return: OnReturn, /, **arguments: Any) -> None:
        """Call an operation of the machine; its answer goes to `on_return`."""
        number = CallId[Any](next(self._numbers))
        self._calls[number] = on_return
        self.post(Call(number, partial(operation, **arguments)))

    def work(self, job: Callable[[], Any], *, is_long: bool = False) -> None:
        """Run `job` after a random time, and give its result to the machine, unless it is None."""
        del is_long  # any number of jobs run at a time
        seconds = 2 * self.job_seconds * self._simulation.random.random()
        self._process.call_later(seconds, partial(self._run_job, job))

    def _run_job(self, job: Callable[[], Any]) -> None:
        event = job()
        if event is not None:
            self._handle(event)

    def _handle(self, event: Any) -> None:
        self._simulation.record(f"{self._process.name} {_text(event)}")
        self._carry_out(self.machine.handle(event, self._simulation.time))

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self.machine.tick(self._simulation.time))

    def _carry_out(self, actions: Any) -> None:
        for action in actions:
            self._simulation.record(f"{self._process.name} > {_text(action)}")
            self._on_action(action)
            if not self._process.is_alive:
                return
            self._effects[type(action)](action)
        due = self.machine.deadline()
        if self._timer is not None and self._timer.time != due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and due < math.inf:
            self._timer = self._process.call_at(due, self._tick)

    def _return(self, action: Return) -> None:
        self._calls.pop(action.id)(action.value, action.error)


def _text(item: Any) -> str:
    """Return the type of an event or action, with the operation and the error that it may have."""
    parts = [type(item).__name__]
    for name in ("operation", "session", "url", "error"):
        value = getattr(item, name, None)
        if value:
            parts.append(f"{name}={value.func.__name__ if isinstance(value, partial) else value}")
    return " ".join(parts)
