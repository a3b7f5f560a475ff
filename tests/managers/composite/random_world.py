"""A composite's machine and its children on virtual time. Answers are made and delivered in any order."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from dropflow.api.node_records import ManagerInfo, ManagerStatus, NodeInfo
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.errors import ConflictError, DropflowError, GoneError, LinkError, NotFoundError, RestartedError
from dropflow.states import is_over
from managers.composite.connections import answer_plan
from managers.composite.machine import ChildConfigured, ChildDeparted, CompositeMachine, Disconnect
from managers.composite.routines import ComputePlan, PlanDeployment
from managers.deployment import Deployment
from managers.machine_calls import Answered, Ask, Call, CallId, Return, Unanswered
from tests.managers.composite.composite_model import STEPS, CompositeModel, DeploymentRecord

# A child of a composite as a dictionary: a node that deploys, changes, loses and deletes sessions at once.


@dataclass(frozen=True)
class HeldSession:
    """The part of a session that a child has; `whole` counts the parts on all children."""

    epoch: int
    version: int = 1
    status: str = "DEPLOYING"
    whole: int = 1

    def become(self, status: str) -> "HeldSession":
        """Return the next version of it, with this status."""
        return replace(self, version=self.version + 1, status=status)


@dataclass
class RestartableChild:
    """A node. What it holds now is the truth that a composite must show once all is quiet."""

    name: str
    process: int = 1
    is_up: bool = True
    sessions: dict[str, HeldSession] = field(default_factory=dict)
    withdrawn: set[tuple[str, int]] = field(default_factory=set)
    past: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """The status of each session, epoch and version that it has told of."""

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://{self.name}:8000"

    def restart(self) -> None:
        """Start another process, which has only the sessions that were over."""
        self.process += 1
        self.withdrawn.clear()
        self.sessions = {name: held for name, held in self.sessions.items() if is_over(held.status)}

    def node(self) -> NodeInfo:
        """Return its record as a node."""
        return NodeInfo(name=self.name, url=self.url, links=f"tcp://{self.name}:1", incarnation=self.process)

    def detail(self, session: str) -> SessionDetail:
        """Return a session: the version of this child is the number of drops in the state of its name."""
        held = self.held(session)
        self.past[session, held.epoch, held.version] = held.status
        return SessionDetail(
            session=session,
            graph="g",
            status=held.status,
            epoch=held.epoch,
            version=held.version,
            drops=1,
            whole=held.whole,
            states={self.name: held.version},
            nodes=(self.name,),
        )

    def held(self, session: str) -> HeldSession:
        """Return its part of a session."""
        if session not in self.sessions:
            raise NotFoundError(f"there is no session {session!r}")
        return self.sessions[session]

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Carry out an operation of `dropflow.api.manager.Manager`."""
        if operation == "prepare":
            return self._prepare(arguments["deployment"])
        if operation in ("start", "undo"):
            change = self._start if operation == "start" else self._undo
            return change(arguments["session"], arguments["epoch"])
        if operation in ("session", "watch", "cancel", "delete"):
            if (epoch := arguments.get("epoch")) is not None and self.held(arguments["session"]).epoch > epoch:
                raise NotFoundError("it was deployed again")
            return self._answer_session(operation, arguments["session"])
        details = tuple(self.detail(name) for name in self.sessions)
        lists = {"status": ManagerStatus.of(self._info(), [self.node()], details), "nodes": (self.node(),)}
        return {**lists, "sessions": details}[operation]

    def _answer_session(self, operation: str, session: str) -> SessionDetail | None:
        held = self.held(session)
        if operation == "delete":
            del self.sessions[session]
            return None
        if operation == "cancel" and not is_over(held.status):
            self.sessions[session] = held.become("CANCELLED")
        return self.detail(session)

    def _start(self, session: str, epoch: int) -> None:
        held = self.held(session)
        if held.epoch != epoch:
            raise ConflictError(f"session {session!r} was deployed again")
        self.sessions[session] = held.become("RUNNING")

    def _undo(self, session: str, epoch: int) -> None:
        self.withdrawn.add((session, epoch))
        if session in self.sessions and self.sessions[session].epoch == epoch:
            del self.sessions[session]

    def _prepare(self, deployment: Deployment) -> None:
        name, epoch = deployment.session, deployment.epoch
        assert deployment.nodes == (self.name,), "a child is to prepare other nodes"
        own = next(place for place in deployment.places if place.node == self.name)
        if own.incarnation != self.process:
            raise RestartedError(f"node {self.name} was restarted")
        if (name, epoch) in self.withdrawn:
            raise GoneError(f"session {name!r} was undone before")
        if name in self.sessions and self.sessions[name].epoch != epoch:
            raise ConflictError(f"there is a session {name!r} already")
        self.sessions.setdefault(name, HeldSession(epoch, whole=len(deployment.places)))

    def _info(self) -> ManagerInfo:
        return ManagerInfo(
            name=self.name,
            role="node",
            url=self.url,
            version="0",
            host="h",
            process=self.process,
            incarnation=self.process,
            started=0.0,
            time=0.0,
            protocol=1,
        )


REQUESTS = ("plan", *STEPS, "status", "nodes", "sessions", "session", "cancel", "delete")
"""All operations that a composite requests of children, but for `watch`; and the plans of deployments."""
_EVENT_SECONDS = 0.002
"""Time that an event takes."""
_LATE = 0.3
"""Seconds, and twice as many, after which some connections fail later than at the deadline of the request."""


class _WorldClock:
    """`dropflow.clock.Clock` of a world."""

    def __init__(self, world: "RandomWorld") -> None:
        self._world = world

    def now(self) -> float:
        """Return the time in seconds."""
        return self._world.now

    monotonic = now


class RandomWorld:
    """The machine, its children, and the model that checks it.

    A request stays until its answer is delivered. At its deadline the connection fails, as that of the product does.
    """

    def __init__(self, *names: str) -> None:
        self.now = 100.0
        self.clock = _WorldClock(self)
        self.machine = CompositeMachine("island", "island", deploy_seconds=10.0)
        self.model = CompositeModel()
        self.nodes = {node.url: node for node in map(RestartableChild, names)}
        self.plans: dict[int, ComputePlan] = {}
        self.departed: set[str] = set()
        """URLs of the children that are announced no more."""
        self._calls = 0
        self._returns: dict[int, Return] = {}
        for url in self.nodes:
            self.configure(url)

    # Events.

    def configure(self, url: str) -> None:
        """Announce a child."""
        self._begin_event()
        self.departed.discard(url)
        self.model.add_child(url)
        self._handle(ChildConfigured(url))

    def depart(self, url: str) -> None:
        """Announce that a child leaves."""
        self._begin_event()
        if url in self.model.children:
            self.departed.add(url)
        self._handle(ChildDeparted(url, "left"))

    def call(self, operation: str, **arguments: Any) -> int:
        """Call an operation."""
        self._calls += 1
        self._begin_event()
        self.model.begin(self._calls, operation, arguments)
        if operation == "add_child":
            self.departed.discard(arguments["url"])
            self.model.add_child(arguments["url"])
        self._handle(Call(CallId(self._calls), partial(self.machine.operations[operation], **arguments)))
        return self._calls

    def open(self, *operations: str) -> list[int]:
        """Return the numbers of the plans and requests without an answer."""
        operation_of = {number: request.ask.operation for number, request in self.model.requests.items()}
        operation_of |= dict.fromkeys(self.plans, "plan")
        return [
            number for number, operation in sorted(operation_of.items()) if not operations or operation in operations
        ]

    def carry_out(self, number: int) -> Answered | Unanswered:
        """Carry out a request at its child, or compute a plan; return the answer."""
        if number in self.plans:
            return answer_plan(self.plans[number], self.clock)
        ask = self.model.requests[number].ask
        node = self.nodes[ask.url]
        if not node.is_up:
            return Unanswered(number, LinkError("nothing listens there"))
        try:
            return Answered(number, node.answer(ask.operation, ask.arguments))
        except DropflowError as error:
            return Unanswered(number, error)

    def deliver(self, event: Answered | Unanswered) -> None:
        """Deliver an answer, perhaps again."""
        self._begin_event()
        computed = self.plans.pop(event.id, None)
        if computed is not None and isinstance(event, Answered):
            plan = computed.plan
            assert isinstance(plan, PlanDeployment)
            deployment: Deployment = event.value
            urls = frozenset(node.url for node in self.nodes.values() if node.name in deployment.nodes)
            self.model.plan(plan.options, DeploymentRecord(deployment.session, deployment.epoch, urls))
        self.model.answer(event)
        self._handle(event)

    def answer(self, *operations: str) -> None:
        """Answer all requests of these operations, and those that follow."""
        while numbers := self.open(*operations):
            self.deliver(self.carry_out(numbers[0]))

    def advance(self, seconds: float, *prompt: str) -> None:
        """Advance the time; requests of the `prompt` operations are answered at once."""
        end = self.now + seconds
        due = -inf
        if prompt:
            self.answer(*prompt)
        while due < end:
            # A connection fails at the deadline of its request, or a moment later.
            deadlines = {
                number: request.ask.deadline + number % 3 * _LATE for number, request in self.model.requests.items()
            }
            due = min(self.machine.deadline(), *deadlines.values(), end)
            self._begin_event(due)
            for number in [number for number, deadline in deadlines.items() if deadline <= self.now]:
                self.deliver(Unanswered(number, LinkError("no answer in time")))
            self.model.note_slow()
            self._take(self.machine.tick(self.now), None)
            self.model.check_calls()
            if prompt:
                self.answer(*prompt)

    def pause(self, seconds: float) -> None:
        """Advance the time while the process of the composite does not run."""
        self.now += seconds
        for call in self.model.calls.values():
            call.time += seconds

    def _begin_event(self, time: float | None = None) -> None:
        self.now = max(self.now, time) if time is not None else self.now + _EVENT_SECONDS
        self.model.now = self.now
        self.model.event += 1

    def _handle(self, event: Any) -> None:
        self._take(self.machine.handle(event, self.now), event)

    def _take(self, actions: list[Any], cause: object) -> None:
        for action in actions:
            match action:
                case ComputePlan():
                    self.plans[action.id] = action
                case Disconnect():
                    self.departed.discard(action.url)
                    self.model.remove_child(action.url)
                case Return():
                    self._returns[action.id] = action
                    self.model.check_return(action, {self.nodes[url].name: url for url in self.model.children})
        self.model.check_asks([action for action in actions if isinstance(action, Ask)], cause)

    # At rest.

    def settle(self) -> None:
        """Start all children that are down, answer everything for a while, and check that all is shown as it is."""
        for node in self.nodes.values():
            node.is_up = True
        self.advance(20.0, *REQUESTS)
        self.advance(3.0, *REQUESTS, "watch")
        assert not self.model.calls, f"calls without an answer: {self.model.calls.values()}"
        assert not self.open(*(operation for operation in REQUESTS if operation != "status"))
        for (session, url), epoch in self.model.deletions.items():
            held = self.nodes[url].sessions.get(session)
            assert held is None or held.epoch > epoch, f"session {session} was deleted, but not on {url}"
        children = {node.name: node for node in self.nodes.values() if node.url in self.model.children}
        listed = {info.session: info for info in self._ask("sessions")}
        known = {info.session: info for info in self._ask("status")[1]}
        held_names = {session for node in children.values() for session in node.sessions}
        assert set(listed) == set(known) == held_names
        for session in held_names:
            for info in (listed[session], known[session], self._ask("session", session=session)):
                _check_exact(info, children)
        assert {child.url: child.state for child in self._ask("children")} == {
            node.url: "alive" for node in children.values()
        }
        nodes = {node.name: node.incarnation for node in self._ask("nodes")}
        assert nodes == {node.name: node.process for node in children.values()}

    def leave(self) -> None:
        """Put all children that are announced no more out of reach, and check that they are removed."""
        names = {name for node in self.nodes.values() for name in node.sessions}
        unfinished = [
            name for node in self.nodes.values() for (name, *_), status in node.past.items() if not is_over(status)
        ]
        leaving = set(self.departed)
        if not leaving or names.intersection(unfinished):
            return
        for url in leaving:
            self.nodes[url].is_up = False
        self.advance(25.0, *REQUESTS)
        assert not leaving & self.model.children.keys(), "a lost child that is announced no more is not removed"

    def _ask(self, operation: str, **arguments: Any) -> Any:
        """Call an operation while all children answer, and return its value."""
        number = self.call(operation, **arguments)
        self.answer(*REQUESTS)
        outcome = self._returns[number]
        assert outcome.error is None, outcome.error
        return outcome.value


def _check_exact(info: SessionInfo, children: Mapping[str, RestartableChild]) -> None:
    """Check that a session is shown as the children have it now; those that have lost their part, as they had it."""
    held = {name: node.sessions[info.session] for name, node in children.items() if info.session in node.sessions}
    epoch = max(part.epoch for part in held.values())
    present = {name: part for name, part in held.items() if part.epoch == epoch}
    assert info.epoch == epoch
    assert {name: info.states.get(name) for name in present} == {name: part.version for name, part in present.items()}
    statuses = {part.status for part in present.values()}
    for name in set(info.states) - set(present):
        status = children[name].past[info.session, epoch, info.states[name]]
        statuses.add(status if status in ("FINISHED", "CANCELLED") else "FAILED")
    if statuses <= {"FINISHED", "CANCELLED", "FAILED"}:
        expected = next(status for status in ("FAILED", "CANCELLED", "FINISHED") if status in statuses)
    else:
        expected = statuses.pop() if len(statuses) == 1 else "RUNNING"
    assert info.status == expected, (info.status, expected)
