"""An island or master on virtual time: the state machine of the product, with simulated calls."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Protocol

from dropflow.api import operations
from dropflow.api.node_records import ManagerInfo, ManagerStatus, manager_info
from dropflow.errors import DropflowError, InternalError, LinkError, UsageError
from dropflow.failure import text_of
from managers.composite.connections import answer_plan
from managers.composite.machine import ChildConfigured, CompositeMachine, Disconnect, LogWarning
from managers.composite.routines import ComputePlan, Discard
from managers.composite.witness import VoterSent, WitnessListens
from managers.deployment import Place
from managers.links import ReceivedMessage
from managers.machine_calls import Answered, Ask, Unanswered
from managers.messages import PROTOCOL, PartDone, SessionDone, ViewMessage
from managers.recovery.vote import SendToPeer
from managers.simulation.network import SimulatedNetwork
from managers.simulation.simulated_links import SimulatedLinks
from managers.simulation.virtual_time import OnReturn, SimulatedOwner, SimulatedProcess

# Calls between managers on virtual time: what REST does, with delays, refusals and lost answers.


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


class SimulatedComposite:
    """One process of an island or master. It keeps nothing: after a crash, a new one asks its children.

    Parameters
    ----------
    name, role : str
        Name and role of the manager.
    url : str
        URL at which it is called.
    network : SimulatedNetwork
        Carries the packets of its links.
    calls : ManagerCalls
        Carries calls to the children.
    children : iterable of str
        URLs of its children.
    incarnation : int
        Incarnation of the process.
    """

    def __init__(
        self,
        name: str,
        role: Literal["island", "master"],
        url: str,
        *,
        network: SimulatedNetwork,
        calls: ManagerCalls,
        children: Iterable[str],
        incarnation: int,
    ) -> None:
        simulation = network.simulation
        self.name = name
        self.url = url
        self.process = SimulatedProcess(simulation, name)
        self.role: Literal["island", "master"] = role
        self._simulation = simulation
        self._calls = calls
        self._started = simulation.now()
        effects: dict[type, Callable[[Any], None]] = {
            Ask: self._ask,
            ComputePlan: self._plan,
            Disconnect: _ignore,
            Discard: _ignore,
            LogWarning: _ignore,
            SendToPeer: self._send_vote,
        }
        self.machine = CompositeMachine(name, role)
        self.owner = SimulatedOwner(self.machine, process=self.process)
        self.owner.start(effects)
        self.links = SimulatedLinks(
            name, network, on_message=self._on_message, incarnation=incarnation, process=self.process
        )
        self.owner.post(WitnessListens(Place(name, self.links.address, incarnation)))
        self.children = tuple(children)
        """URLs of its children."""
        for child in self.children:
            self.owner.post(ChildConfigured(child))

    def answer(self, operation: str, arguments: Mapping[str, Any], on_return: OnReturn) -> None:
        """Call an operation of `dropflow.api.manager.Manager`."""
        if operation == operations.STATUS.name:
            on_return = partial(self._return_status, on_return)
        self.owner.submit(self.machine.operations[operation], on_return, **arguments)

    def _return_status(self, on_return: OnReturn, value: Any, error: Exception | None) -> None:
        if error is not None:
            on_return(None, error)
        else:
            nodes, sessions = value
            on_return(ManagerStatus.of(self._info(), nodes, sessions), None)

    def _info(self) -> ManagerInfo:
        return manager_info(
            self.name,
            self.role,
            url=self.url,
            started=self._started,
            clock=self._simulation,
            protocol=PROTOCOL,
        )

    def _ask(self, ask: Ask) -> None:
        self._calls.ask(self.process, ask, self.owner.post)

    def _on_message(self, received: ReceivedMessage) -> None:
        message = received.message
        if isinstance(message, ViewMessage | PartDone | SessionDone):
            self.owner.post(VoterSent(received.peer, received.incarnation, message))

    def _send_vote(self, action: SendToPeer) -> None:
        with suppress(UsageError):  # there is no link
            self.links.send(action.peer, action.message)

    def _plan(self, action: ComputePlan) -> None:
        self.owner.work(partial(answer_plan, action, self._simulation))


def _ignore(action: object) -> None:
    """Do nothing: there are no connections and downloads to close, and the trace has every action."""
    del action
