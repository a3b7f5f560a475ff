"""A composite's state machine with children that are dictionaries, on virtual time: no threads."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dropflow.api.node_records import ManagerInfo, ManagerStatus, NodeInfo
from dropflow.api.session_records import SessionDetail
from dropflow.errors import DropflowError, LinkError, NotFoundError
from managers.composite.machine import ChildConfigured, CompositeMachine, LogWarning
from managers.machine_calls import Answered, Ask, Call, CallId, Return, Unanswered


@dataclass
class Node:
    """A child: its sessions by name, as epoch, version and status. Its version is the count of its own drops' state."""

    name: str
    process: int = 1
    sessions: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return the address."""
        return f"http://{self.name}:8000"

    def detail(self, session: str) -> SessionDetail:
        """Return a session: the name of this node stands for a state, its version for the number of drops in it."""
        if session not in self.sessions:
            raise NotFoundError(f"there is no session {session!r}")
        epoch, version, status = self.sessions[session]
        return SessionDetail(
            session=session,
            graph="g",
            status=status,
            epoch=epoch,
            version=version,
            states={self.name: version},
            nodes=(self.name,),
        )

    def answer(self, ask: Ask) -> Any:
        """Carry out an operation."""
        session = ask.arguments.get("session", "")
        details = tuple(self.detail(name) for name in self.sessions)
        match ask.operation:
            case "status":
                info = ManagerInfo(
                    name=self.name,
                    role="node",
                    url=self.url,
                    version="0",
                    host="h",
                    process=self.process,
                    incarnation=1,
                    started=0.0,
                    time=0.0,
                    protocol=1,
                )
                return ManagerStatus.of(info, [NodeInfo(name=self.name)], details)
            case "nodes":
                return (NodeInfo(name=self.name),)
            case "sessions":
                return details
            case "session" | "watch" | "cancel":
                return self.detail(session)
            case "delete":
                epoch = ask.arguments["epoch"]
                if epoch is not None and self.detail(session).epoch > epoch:
                    raise NotFoundError(f"session {session!r} was deployed again")
                self.detail(session)
                del self.sessions[session]
                return None
            case _:
                raise LinkError(f"{ask.operation} is not for this node")


class MachineWorld:
    """A machine, its children, the requests to children and the calls that are not answered yet."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.now = 100.0
        self.machine = CompositeMachine("island", "island", **options)
        self.nodes = {f"http://{name}:8000": Node(name) for name in names}
        self.asked: dict[int, Ask] = {}
        self.calls: dict[int, tuple[str, dict[str, Any], float]] = {}
        self.returned: dict[int, Return] = {}
        self.log: list[str] = []
        for url in self.nodes:
            self.take(self.machine.handle(ChildConfigured(url), self.now))

    def call(self, operation: str, **arguments: Any) -> int:
        """Call an operation; its answer will be in `returned`, by this number."""
        number = len(self.calls) + 1
        self.calls[number] = (operation, arguments, self.now)
        self.take(
            self.machine.handle(
                Call(CallId(number), partial(self.machine.operations[operation], **arguments)), self.now
            )
        )
        return number

    def take(self, actions: list[Any]) -> None:
        """Store the requests, the returns and the log of the machine."""
        for action in actions:
            if isinstance(action, Ask):
                self.asked[action.id] = action
            elif isinstance(action, Return):
                assert action.id not in self.returned, f"call {action.id} is answered twice"
                self.returned[action.id] = action
            elif isinstance(action, LogWarning):
                self.log.append(action.text)

    def outcome(self, ask: Ask) -> Answered | Unanswered:
        """Carry out a request at the child; return its answer."""
        try:
            node = self.nodes.get(ask.url)
            if node is None:
                raise LinkError("nothing listens there")
            return Answered(ask.id, node.answer(ask))
        except DropflowError as error:
            return Unanswered(ask.id, error)

    def deliver(self, event: Answered | Unanswered) -> None:
        """Deliver an answer to the machine."""
        self.asked.pop(event.id, None)
        self.take(self.machine.handle(event, self.now))

    def open(self, *operations: str) -> Iterator[Ask]:
        """Yield the open requests of these operations, or all, including new ones."""
        while asks := [ask for ask in self.asked.values() if not operations or ask.operation in operations]:
            yield asks[0]

    def answer_all(self, *operations: str) -> None:
        """Answer all requests, or those of these operations."""
        for ask in self.open(*operations):
            self.deliver(self.outcome(ask))

    def advance(self, seconds: float) -> None:
        """Advance the virtual time."""
        end = self.now + seconds
        while (due := self.machine.deadline()) <= end:
            self.now = max(self.now, due)
            self.take(self.machine.tick(self.now))
        self.now = end
        self.take(self.machine.tick(self.now))
