"""An island or a master: a manager whose sessions are those of its children.

It stores no sessions. It answers from what its children answer now and, for children that do not answer, from
`managers.composite.session_cache`. `managers.composite.machine` decides, in the thread of a
`managers.owner_thread.Owner`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from dropflow.api import operations
from dropflow.api.contents_answer import Download
from dropflow.api.logs import LogPage, LogQuery, ManagerLog
from dropflow.api.manager import Manager
from dropflow.api.node_records import ManagerInfo, ManagerStatus, manager_info
from dropflow.api.operations import Operation
from dropflow.api.requests import MOST_NEEDS, SubmitQuery
from dropflow.api.session_records import SessionInfo
from dropflow.apps.needs import host_needs
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError
from dropflow.graph.physical import PhysicalGraph
from managers.composite.children import canonical
from managers.composite.connections import ChildConnections, WitnessLinks
from managers.composite.content_queries import ContentQueries
from managers.composite.machine import ChildConfigured, ChildDeparted, CompositeMachine
from managers.deployment import deployment_download
from managers.discovery import Announcement, Discovery
from managers.keys import ClusterKey
from managers.membership import LOST_AFTER, SUSPECT_AFTER
from managers.messages import PROTOCOL
from managers.owner_thread import Owner

_Answer = TypeVar("_Answer")
_JOBS, _LONG_JOBS = 32, 256
"""Most requests to children that are under way at a time, and most that may take minutes; each takes a thread."""
_log = logging.getLogger("dropflow.composite")


class Composite(Manager):
    """A data island manager (of nodes) or a master manager (of islands, and nodes without one).

    Parameters
    ----------
    name : str
        Its name.
    role : str
        ``island`` or ``master``.
    children : iterable of str
        URLs of its first children.
    connect : callable
        Makes a client of the manager at a URL. Must not block.
    clock : Clock, optional
        The system's unless given.
    url : str
        Its own URL; see `set_url`.
    key : ClusterKey or None
        The cluster key.
    links_bind, links_advertise : str
        Addresses ``tcp://HOST:PORT`` at which it listens to nodes as a witness of sessions, and which it gives to them
        (see `managers.links.Links`); with an empty `links_bind` it is not a witness.
    suspect_after, lost_after, every : float
        Seconds without an answer after which a child is suspect, and lost; and between two status requests to it.
    deploy_seconds : float
        Seconds that a deployment may take.
    log : Path, optional
        File of its log (`dropflow.api.logs`); None for no log.

    Raises
    ------
    UsageError
        One of `children` is not a URL.
    """

    def __init__(
        self,
        name: str,
        role: Literal["island", "master"],
        *,
        children: Iterable[str] = (),
        connect: Callable[[str], Manager],
        clock: Clock | None = None,
        url: str = "",
        key: ClusterKey | None = None,
        links_bind: str = "",
        links_advertise: str = "",
        suspect_after: float = SUSPECT_AFTER,
        lost_after: float = LOST_AFTER,
        every: float = 1.0,
        deploy_seconds: float = 60.0,
        log: Path | None = None,
    ) -> None:
        self._name = name
        self._manager_log = ManagerLog(name, log)
        self._role: Literal["island", "master"] = role
        self._clock = clock or SystemClock()
        self._url = url
        self._key = key
        self._started = self._clock.now()
        self._first = tuple(canonical(child) for child in children)
        machine = CompositeMachine(
            name,
            role,
            suspect_after=suspect_after,
            lost_after=lost_after,
            every=every,
            deploy_seconds=deploy_seconds,
            offset=self._clock.now() - self._clock.monotonic(),
        )
        self._machine = machine
        self._owner = Owner(machine, name=name, clock=self._clock, jobs=_JOBS, long_jobs=_LONG_JOBS)
        self._connections = ChildConnections(name, connect, self._clock, owner=self._owner)
        self._witness = WitnessLinks(name, clock=self._clock)
        if links_bind:
            self._witness.listen(links_bind, links_advertise, key, post=self._owner.post)
        queries = ContentQueries(self._owner, machine)
        self._handlers: Mapping[str, Callable[..., Any]] = {
            **queries.handlers(),
            operations.INFO.name: self._info,
            operations.STATUS.name: self._status,
            operations.DEPLOYMENT.name: self._deployment,
            operations.SUBMIT.name: self._submit,
            operations.MANAGER_LOG.name: self._read_log,
        }

    def open(self) -> None:
        """Start to ask the children."""
        self._owner.start({**self._connections.effects(), **self._witness.effects()})
        for url in self._first:
            self._owner.post(ChildConfigured(url))

    def set_url(self, url: str) -> None:
        """Set its own URL, which is known once its server listens."""
        self._url = url

    def close(self) -> None:
        """Stop all requests to the children. Their sessions continue. Idempotent."""
        self._owner.close()
        self._connections.close()
        self._witness.close()

    def child_left(self, url: str, reason: str = "left") -> None:
        """Note that a child is not announced any more: it is removed once it is lost and has no unfinished sessions."""
        self._owner.post(ChildDeparted(url, reason))

    # Operations.

    def call(self, operation: Operation[_Answer], /, **arguments: Any) -> _Answer:
        """Carry out an operation in the thread of the caller, or have the state machine do it."""
        handler = self._handlers.get(operation.name)
        if handler is not None:
            return operation.answered(handler(**arguments))
        return operation.answered(self._owner.call(self._machine.operations[operation.name], **arguments))

    def graph(self, session: str) -> PhysicalGraph:
        """Return the graph, from the first child that can read it: each of them has the whole graph."""
        return self._owner.call(self._machine.sessions.graph, session)

    def _info(self) -> ManagerInfo:
        return manager_info(
            self._name,
            self._role,
            url=self._url,
            started=self._started,
            clock=self._clock,
            protocol=PROTOCOL,
            key="" if self._key is None else self._key.fingerprint,
        )

    def _status(self) -> ManagerStatus:
        """Return the answer to a parent, once per period, from the last answers of the children."""
        nodes, sessions = self._owner.call(self._machine.status)
        return ManagerStatus.of(self._info(), nodes, sessions)

    def _submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Deploy a graph. Its needs are found here, in the thread of the caller."""
        needs = sorted({need for needs in host_needs(graph.templates).values() for need in needs})[:MOST_NEEDS]
        return self._owner.call(self._machine.sessions.submit, graph, options, tuple(needs))

    def _deployment(self, session: str) -> Download:
        return deployment_download(self._owner.call(self._machine.members.deployment, session))

    def _read_log(self, node: str, query: LogQuery) -> LogPage:
        """Return a page of the log of this manager, or of a node or child below."""
        if node == self._name:
            return self._manager_log.page(query)
        return self._owner.call(self._machine.forward, operations.MANAGER_LOG, node, query=query)


# Children that zeroconf finds: those with the same cluster key, as they come and go.


def discover_children(composite: Composite, discovery: Discovery) -> None:
    """Add the children that `discovery` finds, nodes to an island and islands to a master, until it is closed."""
    own = composite.info()

    def joined(announcement: Announcement) -> None:
        if announcement.key != own.key:
            _log.info("%s %s at %s has another cluster key", announcement.role, announcement.name, announcement.url)
            return
        try:
            composite.add_child(announcement.url)
        except DropflowError as error:
            _log.warning("%s %s was found but not added: %s", announcement.role, announcement.name, error)
        else:
            _log.info("%s %s at %s has joined", announcement.role, announcement.name, announcement.url)

    def left(announcement: Announcement) -> None:
        if announcement.key == own.key:
            composite.child_left(announcement.url)

    discovery.browse("island" if own.role == "master" else "node", joined, left)
