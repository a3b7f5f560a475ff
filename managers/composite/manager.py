"""An island or a master: a manager whose sessions are those of its children.

It stores no sessions. It answers from what its children answer now and, for children that do not answer, from
`managers.composite.session_cache`. `managers.composite.machine` decides, in the thread of a
`managers.owner_thread.Owner`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, cast

from dropflow.api.contents import Download
from dropflow.api.logs import LAST_LINES, LogPage, LogQuery, ManagerLog
from dropflow.api.records import (
    Child,
    ManagerInfo,
    ManagerStatus,
    NodeHistory,
    NodeInfo,
    SessionDetail,
    SessionInfo,
    SubmitQuery,
    manager_info,
)
from dropflow.api.requests import DrainReply, DrainRequest, MemberRequest, ResumeRequest, RetryRequest
from dropflow.clock import Clock, SystemClock
from dropflow.errors import ConflictError, DropflowError, LinkError
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import SessionState
from dropflow.stopping import GRACE_SECONDS
from managers.api import Manager
from managers.composite.children import canonical
from managers.composite.connections import ChildConnections, Job, WitnessLinks
from managers.composite.content_queries import ContentQueries
from managers.composite.machine import ChildConfigured, ChildDeparted, CompositeMachine
from managers.deployment import Deployment, deployment_download
from managers.discovery import Announcement, Discovery
from managers.keys import ClusterKey
from managers.membership import LOST_AFTER, SUSPECT_AFTER
from managers.messages import PROTOCOL
from managers.owner_thread import Owner

__all__ = [
    "Composite",
    "MemberRequests",
    "discover_children",
]


# Operations of a composite that change the members, or the results, of sessions below it.

_LONG = 30.0
"""Seconds to wait until children have removed many files."""


class MemberRequests(ContentQueries):
    """Asks the children for changes of members and results, in the threads of the callers."""

    _manager_log: ManagerLog

    def deployment(self, session: str) -> Download:
        """Return what another node needs to join a session."""
        return deployment_download(cast(Deployment, self._owner.call("deployment", session=session)))

    def add_member(self, session: str, member: MemberRequest) -> None:
        """Have a node that is prepared become a member of a session."""
        self._owner.call("add_member", session=session, member=member)

    def rebalance(self, session: str) -> SessionInfo:
        """Have the members of a session end at about the same time."""
        return cast(SessionInfo, self._owner.call("rebalance", session=session))

    def force_continue(self, session: str) -> SessionInfo:
        """Have the members of a session that are left go on without a majority."""
        return cast(SessionInfo, self._owner.call("force_continue", session=session))

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove results of a session that is FINISHED, on all children that answer.

        Raises
        ------
        ConflictError
            The session is not FINISHED.
        LinkError
            A child with a part of the session did not answer. It was done on the others.
        """
        status = self._owner.call("session", session=session).status
        if status != SessionState.FINISHED.name:
            raise ConflictError(f"session {session!r} is {status}, and not FINISHED: its results are not released")
        found = self._ask(session, "release", _LONG, rows=tuple(rows))
        found.replies.raise_unless_answered(f"session {session!r}")
        if found.replies.refusals:
            raise found.replies.refusals[0][1]
        if found.missing:
            names = ", ".join(found.missing)
            raise LinkError(f"the results are released, but not on {names}, which did not answer", where=session)

    def node_history(self, node: str) -> NodeHistory:
        """Return the load of a node below during the last hour."""
        return cast(NodeHistory, self._owner.call("node_history", node=node))

    def manager_log(self, node: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of this manager, or of a node or child below."""
        if node == self._manager_log.name:
            return self._manager_log.page(query)
        return cast(LogPage, self._owner.call("manager_log", node=node, query=query))


_JOBS = 32
"""Requests to children that are under way at a time; each has a thread while it is."""


class Composite(MemberRequests):
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
        Makes a client of the manager at a URL: anything with the methods of `managers.api.Manager`. Must not block.
    clock : Clock, optional
        The system's unless given.
    url : str
        Its own URL; see `set_url`.
    key : ClusterKey or None
        The cluster key.
    links_bind, links_advertise : str
        Where nodes reach it as a witness of sessions, ``tcp://HOST:PORT`` (see `managers.links.Links`); without
        `links_bind` it is none.
    suspect_after, lost_after, every : float
        Seconds without an answer after which a child is suspect, and lost; and between two status requests to it.
    deploy_seconds : float
        How long a deployment may take.
    log : Path, optional
        Its log (`dropflow.api.logs`).

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
        connections = ChildConnections(name, connect, self._clock, work=self._work)
        self._witness = WitnessLinks(name, clock=self._clock)
        effects = {**connections.effects(), **self._witness.effects()}
        self._owner = Owner(machine, effects, name=name, clock=self._clock, jobs=_JOBS)
        self._connections = connections
        if links_bind:
            self._witness.listen(links_bind, links_advertise, key, post=self._owner.post)
        super().__init__(self._owner)

    def _work(self, job: Job) -> None:
        self._owner.work(job)

    def open(self) -> None:
        """Start to ask the children."""
        self._owner.start()
        for url in self._first:
            self._owner.post(ChildConfigured(url))

    def set_url(self, url: str) -> None:
        """Set its own URL, once its server has one."""
        self._url = url

    def close(self) -> None:
        """Stop all requests to the children. Their sessions continue. Idempotent."""
        self._owner.close()
        self._connections.close()
        self._witness.close()

    # The manager and its children.

    def info(self) -> ManagerInfo:
        """Return the record of the manager itself."""
        return manager_info(
            self._name,
            self._role,
            url=self._url,
            started=self._started,
            clock=self._clock,
            protocol=PROTOCOL,
            key="" if self._key is None else self._key.fingerprint,
        )

    def status(self) -> ManagerStatus:
        """Return what a parent asks once per period, from the last answers of the children."""
        nodes, sessions = self._owner.call("status")
        return ManagerStatus.of(self.info(), nodes, sessions)

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Return all nodes below, from the last answers of the children."""
        return cast(tuple[NodeInfo, ...], self._owner.call("nodes"))

    def children(self) -> tuple[Child, ...]:
        """Return all children, sorted by name."""
        return cast(tuple[Child, ...], self._owner.call("children"))

    def add_child(self, url: str) -> Child:
        """Add the manager at `url` as a child, whether it answers already or not; again is no error.

        Raises
        ------
        UsageError
            It is not the URL of a manager, or of one that cannot be a child of this one.
        """
        return cast(Child, self._owner.call("add_child", url=url))

    def remove_child(self, url: str) -> None:
        """Remove a child. Sessions that run there continue.

        Raises
        ------
        NotFoundError
            It is not a child.
        """
        self._owner.call("remove_child", url=url)

    def drain(self, node: str, request: DrainRequest) -> DrainReply:
        """Have a node below give its sessions to their other nodes, and end."""
        return cast(DrainReply, self._owner.call("drain", node=node, request=request))

    def child_left(self, url: str, reason: str = "said goodbye") -> None:
        """Note that a child is announced no more: it is removed once it is lost and has no unfinished sessions."""
        self._owner.post(ChildDeparted(url, reason))

    # Deployment.

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Deploy a whole graph and start it; see `managers.api.Manager.submit`."""
        return cast(SessionInfo, self._owner.call("submit", graph=graph, options=options))

    def prepare(self, deployment: Deployment, *, seconds: float) -> None:
        """Forward the graph to the children of the nodes that the deployment names."""
        self._owner.call("prepare", deployment=deployment, seconds=seconds)

    def start(self, session: str, epoch: int) -> None:
        """Start what was prepared below."""
        self._owner.call("start", session=session, epoch=epoch)

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Undo a deployment below."""
        self._owner.call("undo", session=session, epoch=epoch, reason=reason)

    # Sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all sessions of the children, the youngest first."""
        return cast(tuple[SessionInfo, ...], self._owner.call("sessions"))

    def session(self, session: str) -> SessionDetail:
        """Return one session as it is now, as far as the children answer."""
        return cast(SessionDetail, self._owner.call("session", session=session))

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Return the session once its version is not `version`, or after `seconds`; immediately if it is over."""
        return cast(SessionDetail, self._owner.call("watch", session=session, version=version, seconds=seconds))

    def cancel(self, session: str, reason: str = "", grace: float = GRACE_SECONDS) -> SessionInfo:
        """Cancel a session on all children that answer."""
        return cast(SessionInfo, self._owner.call("cancel", session=session, reason=reason, grace=grace))

    def resume(self, session: str, request: ResumeRequest) -> SessionInfo:
        """Continue a session that was stopped, on those of its nodes that answer."""
        return cast(SessionInfo, self._owner.call("resume", session=session, request=request))

    def retry(self, session: str, request: RetryRequest) -> SessionInfo:
        """Run failed drops of a session again."""
        return cast(SessionInfo, self._owner.call("retry", session=session, request=request))

    def remains(self, session: str, *, ignore_damage: bool = False) -> tuple[bytes, ...]:
        """Return what all nodes below have of a session."""
        return cast(tuple[bytes, ...], self._owner.call("remains", session=session, ignore_damage=ignore_damage))

    def delete(self, session: str, *, epoch: int | None = None) -> None:
        """Delete a session everywhere; on children that do not answer, as soon as they do.

        Raises
        ------
        LinkError
            It was deleted elsewhere, but a child that is not lost did not answer.
        """
        self._owner.call("delete", session=session, epoch=epoch)


# Children that zeroconf finds: those with the same cluster key, as they come and go.

_LOG = logging.getLogger("dropflow.composite")


def discover_children(composite: Composite, discovery: Discovery) -> None:
    """Let `composite` take what `discovery` finds: an island nodes, a master islands; until `discovery` is closed."""
    own = composite.info()

    def joined(found: Announcement) -> None:
        if found.key != own.key:
            _LOG.info("%s %s at %s has another cluster key", found.role, found.name, found.url)
            return
        try:
            composite.add_child(found.url)
        except DropflowError as error:
            _LOG.warning("%s %s was found but not added: %s", found.role, found.name, error)
        else:
            _LOG.info("%s %s at %s has joined", found.role, found.name, found.url)

    def left(found: Announcement) -> None:
        if found.key == own.key:
            composite.child_left(found.url)

    discovery.browse("island" if own.role == "master" else "node", joined, left)
