"""A child of a composite as a dictionary: a node that deploys, changes, loses and deletes sessions at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dropflow.api.records import ManagerInfo, ManagerStatus, NodeInfo, SessionDetail
from dropflow.errors import ConflictError, GoneError, NotFoundError, RestartedError
from dropflow.states import is_over
from managers.deployment import Deployment

__all__ = ["HeldSession", "RestartableChild"]


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
