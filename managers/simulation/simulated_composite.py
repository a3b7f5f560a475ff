"""An island or master on virtual time: the state machine of the product, with simulated calls."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from dropflow.errors import UsageError
from dropflow.rest.manager_info import manager_info
from dropflow.rest.manager_records import ManagerInfo, ManagerStatus
from managers.composite.child_connections import answer_plan
from managers.composite.composite_machine import ChildConfigured, CompositeMachine, Disconnect, LogWarning
from managers.composite.waiting_operations import ComputePlan, Discard
from managers.composite.witness import SendVote, VoterSent, WitnessListens
from managers.deployment import Place
from managers.links import ReceivedMessage
from managers.machine_calls import Ask
from managers.messages import PROTOCOL, PartDone, SessionDone, ViewMessage
from managers.simulation.manager_calls import ManagerCalls
from managers.simulation.network import SimulatedNetwork
from managers.simulation.simulated_links import SimulatedLinks
from managers.simulation.simulated_owner import OnReturn, SimulatedOwner
from managers.simulation.virtual_time import SimulatedProcess

__all__ = ["SimulatedComposite"]


class SimulatedComposite:
    """One process of an island or master. It keeps nothing: after a crash, a new one asks its children.

    Parameters
    ----------
    name, role : str
        Of the manager.
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
            SendVote: self._send_vote,
        }
        self.machine = CompositeMachine(name, role)
        self.owner = SimulatedOwner(self.machine, effects, process=self.process)
        self.links = SimulatedLinks(
            name, network, on_message=self._on_message, incarnation=incarnation, process=self.process
        )
        self.owner.post(WitnessListens(Place(name, self.links.address, incarnation)))
        self.children = tuple(children)
        """URLs of its children."""
        for child in self.children:
            self.owner.post(ChildConfigured(child))

    def answer(self, operation: str, arguments: Mapping[str, Any], on_return: OnReturn) -> None:
        """Call an operation of `managers.api.Manager`."""
        if operation == "status":
            self.owner.submit("status", partial(self._return_status, on_return))
        else:
            self.owner.submit(operation, on_return, **arguments)

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

    def _send_vote(self, action: SendVote) -> None:
        with suppress(UsageError):  # there is no link
            self.links.send(action.peer, action.message)

    def _plan(self, action: ComputePlan) -> None:
        self.owner.work(partial(answer_plan, action, self._simulation))


def _ignore(action: object) -> None:
    """Do nothing: there are no connections and downloads to close, and the trace has every action."""
    del action
