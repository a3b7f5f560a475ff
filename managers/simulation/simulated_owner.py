"""The owner of a manager's state machine on virtual time: as `managers.owner_thread`, without threads."""

import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from managers.machine_calls import Call, Return
from managers.owner_thread import Machine
from managers.simulation.virtual_time import SimulatedProcess, Timer

__all__ = ["OnReturn", "SimulatedOwner"]

OnReturn = Callable[[Any, Exception | None], object]
"""Takes the value of a call, or its error."""


class SimulatedOwner:
    """Runs one machine in a simulated process. A crash of the process ends it, a pause delays it.

    Parameters
    ----------
    machine : Machine
        Decides.
    effects : mapping of type to callable
        Carries out the actions of each type. `Return` needs no entry.
    process : SimulatedProcess
        The process of the manager.
    job_seconds : float
        Mean virtual time that a job takes.
    on_action : callable
        Called with each action before it is carried out. It may crash the process: then the action is not carried out.
    """

    def __init__(
        self,
        machine: Machine,
        effects: Mapping[type, Callable[[Any], None]],
        *,
        process: SimulatedProcess,
        job_seconds: float = 0.002,
        on_action: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.machine = machine
        self._effects: Mapping[type, Callable[[Any], None]] = {**effects, Return: self._return}
        self._process = process
        self._simulation = process.simulation
        self.job_seconds = job_seconds
        """Mean virtual time that a job takes."""
        self._on_action = on_action
        self._numbers = itertools.count(1)
        self._calls: dict[int, OnReturn] = {}
        self._timer: Timer | None = None

    def post(self, event: Any) -> None:
        """Give an event to the machine, after the events that were posted before."""
        self._process.call_later(0.0, partial(self._handle, event))

    def submit(self, operation: str, on_return: OnReturn, /, **arguments: Any) -> None:
        """Call an operation of the machine; its answer goes to `on_return`."""
        number = next(self._numbers)
        self._calls[number] = on_return
        self.post(Call(number, operation, arguments))

    def work(self, job: Callable[[], Any]) -> None:
        """Run `job` after a random time, and give its result to the machine, unless it is None."""
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
            parts.append(f"{name}={value}")
    return " ".join(parts)
