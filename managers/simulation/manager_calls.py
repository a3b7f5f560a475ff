"""Calls between managers on virtual time: what REST does, with delays, refusals and lost answers."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from dropflow.errors import DropflowError, InternalError, LinkError
from dropflow.exception_text import text_of
from managers.machine_calls import Answered, Ask, Unanswered
from managers.simulation.network import SimulatedNetwork
from managers.simulation.simulated_owner import OnReturn
from managers.simulation.virtual_time import SimulatedProcess

__all__ = ["ManagerCalls", "SimulatedManager"]


class SimulatedManager(Protocol):
    """A manager that can be called."""

    process: SimulatedProcess

    def answer(self, operation: str, arguments: Mapping[str, Any], on_return: OnReturn) -> None:
        """Call an operation; its value or error goes to `on_return`, now or later."""
        ...


class ManagerCalls:
    """Carries calls from one manager to another, by URL. Each is answered exactly once.

    Parameters
    ----------
    network : SimulatedNetwork
        Its delays and blocks hold for calls, too. Its chance of a cut is the chance that an answer is lost.
    """

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._simulation = network.simulation
        self._managers: dict[str, SimulatedManager] = {}

    def listen(self, url: str, manager: SimulatedManager) -> None:
        """Accept calls of `manager` at `url`, in place of any earlier one."""
        self._managers[url] = manager

    def ask(self, client: SimulatedProcess, ask: Ask, on_answer: Callable[[Answered | Unanswered], object]) -> None:
        """Carry out an `Ask` of a manager; the answer is handled in the process `client`."""
        call = _Exchange(client, ask, on_answer)
        client.call_at(ask.deadline, partial(call.fail, f"{ask.url} did not answer in time"))
        client.simulation.call_later(self._network.delay(), partial(self._arrive, call))

    def _arrive(self, call: "_Exchange") -> None:
        manager = self._managers.get(call.ask.url)
        if manager is None or not manager.process.is_alive:
            self._deliver(call, partial(call.fail, f"{call.ask.url} refuses connections"))
        elif not self._network.is_blocked(call.client.name, manager.process.name):
            # A paused process accepts the connection, and answers when it resumes.
            manager.process.call_later(0.0, partial(self._call, call, manager))
            manager.process.on_crash(partial(self._deliver, call, partial(call.fail, "the connection was closed")))

    def _call(self, call: "_Exchange", manager: SimulatedManager) -> None:
        ask = call.ask
        try:
            manager.answer(ask.operation, ask.arguments, partial(self._return, call, manager))
        except DropflowError as error:
            self._return(call, manager, None, error)

    def _return(self, call: "_Exchange", manager: SimulatedManager, value: Any, error: Exception | None) -> None:
        if self._network.is_blocked(manager.process.name, call.client.name):
            return
        if self._simulation.random.random() < self._network.faults.cut:
            self._deliver(call, partial(call.fail, "the connection was closed"))
        else:
            self._deliver(call, partial(call.end, value, error))

    def _deliver(self, call: "_Exchange", end: Callable[[], None]) -> None:
        self._simulation.call_later(self._network.delay(), lambda: call.client.call_later(0.0, end))


class _Exchange:
    """One call that is not answered yet."""

    def __init__(
        self, client: SimulatedProcess, ask: Ask, on_answer: Callable[[Answered | Unanswered], object]
    ) -> None:
        self.client = client
        self.ask = ask
        self._on_answer = on_answer
        self._is_over = False

    def end(self, value: Any, error: Exception | None) -> None:
        """Pass the answer on, if it is the first."""
        if self._is_over:
            return
        self._is_over = True
        if error is None:
            self._on_answer(Answered(self.ask.id, value))
        elif isinstance(error, DropflowError):
            self._on_answer(Unanswered(self.ask.id, error))
        else:
            self._on_answer(Unanswered(self.ask.id, InternalError(f"the call failed: {text_of(error)}")))

    def fail(self, why: str) -> None:
        """End without an answer."""
        self.end(None, LinkError(why, where=self.ask.url))
