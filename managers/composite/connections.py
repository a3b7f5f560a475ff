"""The connections of a composite to its children, which carry out the requests of its state machine."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from dropflow.api import operations
from dropflow.api.client import Client
from dropflow.api.contents_answer import Download
from dropflow.api.http_client import joined
from dropflow.api.manager import Manager
from dropflow.clock import Clock
from dropflow.errors import DropflowError, InternalError, LinkError, UsageError
from managers.composite.machine import Disconnect, LogWarning
from managers.composite.routines import ComputePlan, Discard, PlanResumption
from managers.composite.witness import VoterSent, WitnessListens
from managers.deployment import Place, unpack
from managers.keys import ClusterKey
from managers.links import Links, ReceivedMessage
from managers.machine_calls import Answered, Ask, Unanswered
from managers.messages import PartDone, SessionDone, ViewMessage
from managers.owner_thread import MachineOwner
from managers.planning import plan_deployment, usable_witness
from managers.recovery.resume import plan_resumption
from managers.recovery.vote import SendToPeer

_log = logging.getLogger("dropflow.composite")
_SHORTEST = 0.1
"""Timeout in seconds of a request whose deadline passed while it waited for a thread."""
_LONG_SECONDS = 15.0
"""Seconds above which the timeout of a request makes it a long job."""


class ChildConnections:
    """Clients of the children. Its methods are called in the thread of the owner.

    Parameters
    ----------
    name : str
        Name of the composite, for the log.
    connect : callable
        Makes a client of the manager at a URL.
    clock : Clock
        For deadlines.
    owner : MachineOwner
        Runs jobs in other threads and gives their results to the machine.
    """

    def __init__(self, name: str, connect: Callable[[str], Manager], clock: Clock, *, owner: MachineOwner) -> None:
        self._name = name
        self._connect = connect
        self._clock = clock
        self._work = owner.work
        self._managers: dict[str, Manager] = {}

    def effects(self) -> dict[type, Callable[[Any], None]]:
        """Return the functions that carry out the actions, by type."""
        return {
            Ask: self._ask,
            ComputePlan: self._plan,
            Disconnect: self._disconnect,
            Discard: self._discard,
            LogWarning: self._log,
        }

    def close(self) -> None:
        """Close all connections."""
        for url in list(self._managers):
            self._disconnect(Disconnect(url))

    def _ask(self, ask: Ask) -> None:
        try:
            if ask.url not in self._managers:
                self._managers[ask.url] = self._connect(ask.url)
        except Exception as error:  # noqa: BLE001 - the machine waits for an answer
            unanswered = Unanswered(ask.id, _own(ask, error))
            self._work(lambda: unanswered)
        else:
            # Children that work for minutes must not keep others from being asked whether they are alive.
            is_long = ask.deadline - self._clock.monotonic() > _LONG_SECONDS
            self._work(partial(self._answer, self._managers[ask.url], ask), is_long=is_long)

    def _plan(self, action: ComputePlan) -> None:
        self._work(partial(answer_plan, action, self._clock), is_long=True)

    def _disconnect(self, action: Disconnect) -> None:
        manager = self._managers.pop(action.url, None)
        # Closing a client ends its connections; closing a manager would end its sessions.
        if isinstance(manager, Client):
            manager.close()

    def _discard(self, action: Discard) -> None:
        # A download that came too late holds a connection until it is closed.
        if isinstance(action.value, Download):
            action.value.close()

    def _log(self, action: LogWarning) -> None:
        _log.warning("%s: %s", self._name, action.text)

    # In the thread of a job.

    def _answer(self, manager: Manager, ask: Ask) -> Answered | Unanswered:
        if isinstance(manager, Client):
            manager = manager.within(max(ask.deadline - self._clock.monotonic(), _SHORTEST))
        try:
            value = getattr(manager, ask.operation)(**ask.arguments)
            is_packed = ask.operation == operations.DEPLOYMENT.name
            return Answered(ask.id, unpack(joined(value.chunks)) if is_packed else value)
        except Exception as error:  # noqa: BLE001 - the machine waits for an answer
            return Unanswered(ask.id, _own(ask, error))


def answer_plan(action: ComputePlan, clock: Clock) -> Answered | Unanswered:
    """Compute a deployment for a machine. This takes seconds for millions of drops."""
    plan = action.plan
    try:
        if isinstance(plan, PlanResumption):
            deployment = plan_resumption(
                plan.graph,
                plan.parts,
                plan.request,
                plan.nodes,
                now=clock.now(),
                after=plan.after,
                witness=usable_witness(plan.nodes, plan.witness),
            )
        else:
            deployment = plan_deployment(
                plan.graph,
                plan.options,
                plan.nodes,
                clock=clock,
                after=plan.after,
                witness=plan.witness,
                components=plan.components,
            )
    except DropflowError as error:
        return Unanswered(action.id, error)
    except Exception as error:  # noqa: BLE001 - the machine waits for an answer
        _log.exception("a deployment could not be planned")
        return Unanswered(action.id, error)
    return Answered(action.id, deployment)


def _own(ask: Ask, error: Exception) -> DropflowError:
    """Return the error of a request as a `DropflowError`."""
    if isinstance(error, DropflowError):
        return error
    _log.error("%s of %s failed", ask.operation, ask.url, exc_info=error)
    wrapped = InternalError(f"the call failed: {type(error).__name__}: {error}", hint="please report it")
    wrapped.__cause__ = error
    return wrapped


# The links of an island or master, over which it votes about the views of sessions.


class WitnessLinks:
    """Passes votes between the nodes and the machine of a composite.

    Parameters
    ----------
    name : str
        Name of the island or master.
    clock : Clock
        Tells the time.
    """

    def __init__(self, name: str, *, clock: Clock) -> None:
        # A node may have the name of the composite, and links are known by name.
        self._name = f"{name} (witness)"
        self._clock = clock
        self._links: Links | None = None

    def listen(self, bind: str, advertise: str, key: ClusterKey | None, *, post: Callable[[object], None]) -> None:
        """Listen to nodes, and give the machine its place and their messages by `post`.

        Raises
        ------
        UsageError
            The address is malformed, or leaves this host without a key.
        LinkError
            The address cannot be listened on.
        """

        def on_message(received: ReceivedMessage) -> None:
            message = received.message
            if isinstance(message, ViewMessage | PartDone | SessionDone):
                post(VoterSent(received.peer, received.incarnation, message))

        self._links = links = Links(
            self._name, bind=bind, advertise=advertise, key=key, on_message=on_message, clock=self._clock
        )
        post(WitnessListens(Place(self._name, links.address, links.incarnation)))

    def effects(self) -> dict[type, Callable[[Any], None]]:
        """Return what carries out the actions of each type."""
        return {SendToPeer: self._send}

    def close(self) -> None:
        """Close the links. Idempotent."""
        if self._links is not None:
            self._links.close()

    def _send(self, action: SendToPeer) -> None:
        if self._links is None:
            return
        try:
            self._links.send(action.peer, action.message)
        except (LinkError, UsageError) as error:
            _log.info("node %s could not be sent a vote: %s", action.peer, error)
