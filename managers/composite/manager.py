"""An island or a master: a manager whose sessions are those of its children.

It stores no sessions. It answers from what its children answer now and, for children that do not answer, from
`managers.composite.session_cache`. Each request goes to all children in parallel and has a deadline. A child that
misses it is left out of further requests until it answers a health request; answers name the children that are missing.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Literal

from dropflow.clock import Clock, SystemClock
from dropflow.errors import ConflictError, LinkError, NotFoundError, RestartedError, UsageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.rest.client import Client
from dropflow.rest.content_records import ContentsRequest
from dropflow.rest.manager_info import manager_info
from dropflow.rest.operation_records import FailureList, ResultList
from dropflow.rest.schema import (
    FIRST_PAGE,
    Child,
    Download,
    DropDetail,
    DropPage,
    DropQuery,
    ManagerInfo,
    NodeInfo,
    PageQuery,
    SessionDetail,
    SessionInfo,
    SubmitQuery,
)
from managers.api import Manager
from managers.composite.asking import Asker
from managers.composite.children import Children, ChildView
from managers.composite.content_queries import ContentQueries
from managers.composite.deletion import Deletion
from managers.composite.deployment_plan import plan_deployment
from managers.composite.fanout import Fanout
from managers.composite.following import Followers
from managers.composite.forwarding import AGAIN_SECONDS, Forwarding
from managers.composite.merging import as_info
from managers.composite.nodes import nodes_of
from managers.composite.session_cache import SessionCache
from managers.deployment import Deployment
from managers.messages import PROTOCOL

__all__ = ["Composite"]

_CANCEL_SECONDS = 10.0
_RECUT_SECONDS = 5.0
"""How long to cut a graph anew because nodes were started again."""
_RECUT_PAUSE = 0.2


class Composite:
    """A data island manager (of nodes) or a master manager (of islands, and nodes without one).

    Parameters
    ----------
    name : str
        Its name.
    role : str
        ``island`` or ``master``.
    children : iterable of str
        Addresses of its first children.
    connect : callable
        Makes a client of the manager at an address: anything with the methods of `managers.api.Manager`.
    clock : Clock, optional
        The system's unless given.
    url : str
        Its own address; see `set_url`.
    key : str
        Fingerprint of its cluster key.
    suspect_after, lost_after, every : float
        Seconds without an answer after which a child is suspect, and lost; and between two questions for its health.
    deploy_seconds : float
        How long a deployment may take.

    Raises
    ------
    UsageError
        One of `children` is no address.
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
        key: str = "",
        suspect_after: float = 3.0,
        lost_after: float = 15.0,
        every: float = 1.0,
        deploy_seconds: float = 60.0,
    ) -> None:
        self._name = name
        self._role: Literal["island", "master"] = role
        self._clock = clock or SystemClock()
        self._url = url
        self._key = key
        self._deploy_seconds = deploy_seconds
        self._started = self._clock.now()
        self._first = tuple(children)
        self._cache = SessionCache(self._clock)
        self._fanout = Fanout(self._clock)
        self._followers = Followers(self._clock, self._cache.note)
        self._children = Children(
            name,
            role,
            connect,
            self._clock,
            heard=self._heard,
            mark=lambda: self._cache.told,
            changed=self._cache.wake,
            departed=self._departed,
            suspect_after=suspect_after,
            lost_after=lost_after,
            every=min(every, suspect_after / 3),  # who is asked more rarely than that is suspect now and then
        )
        self._asker = Asker(self._children, self._fanout)
        self._contents = ContentQueries(name, self._asker, self._children, self._cache)
        self._deletion = Deletion(self._asker, self._children, self._cache, self._fanout)
        self._forwarding = Forwarding(role, self._children, self._asker, self._fanout, self._clock)
        self._closing = threading.Event()

    def open(self) -> None:
        """Begin to ask the children."""
        self._children.start()
        for url in self._first:
            self._children.add(url)

    def set_url(self, url: str) -> None:
        """Its own address, once its server has one."""
        self._url = url

    def close(self) -> None:
        """Ask nobody any more. What runs below goes on. Idempotent."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._children.close()
        self._followers.close()
        self._fanout.close()
        self._cache.wake()
        for view in self._children.views():
            _disconnect(view.manager)

    # About itself and its children.

    def info(self) -> ManagerInfo:
        """About the manager itself."""
        return manager_info(
            self._name,
            self._role,
            url=self._url,
            started=self._started,
            clock=self._clock,
            protocol=PROTOCOL,
            key=self._key,
        )

    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes below, as their parents heard of them last."""
        self._children.settle(2.0)
        self._children.ask_again(AGAIN_SECONDS)
        return nodes_of(self._children.views(), role=self._role)

    def children(self) -> tuple[Child, ...]:
        """All children, sorted by name."""
        self._children.settle(2.0)
        return tuple(view.as_child() for view in self._children.views())

    def add_child(self, url: str) -> Child:
        """Take the manager at `url` as a child, whether it answers already or not; again is no error.

        Raises
        ------
        UsageError
            It is no address of a manager, or of one that cannot be a child of this one.
        """
        self._children.add(url)
        self._children.settle(2.0)
        view = self._children.view(url)
        if view.is_unfit:
            self._children.remove(url)
            raise UsageError(f"{url} {view.text}", where=self._name, hint="islands have nodes, masters have islands")
        return view.as_child()

    def remove_child(self, url: str) -> None:
        """Forget a child. Sessions that run there go on.

        Raises
        ------
        NotFoundError
            It is no child.
        """
        view = self._children.view(url)
        self._children.remove(url)
        self._cache.forget_child(view.url)
        self._fanout.release(view.url)
        _disconnect(view.manager)

    def child_left(self, url: str, reason: str = "said goodbye") -> None:
        """Nobody announces this child any more: it is forgotten once it is lost and no session depends on it."""
        self._children.left(url, reason)

    # Deployment.

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Deploy a whole graph and start it; see `managers.api.Manager.submit`."""
        if options.session:
            self._refuse_taken(options.session)
        deadline = self._clock.monotonic() + _RECUT_SECONDS
        after = max(self._cache.epoch_of(options.session), self._deletion.epoch_of(options.session))
        while True:
            deployment = plan_deployment(graph, options, self._forwarding.nodes(), clock=self._clock, after=after)
            after = deployment.epoch
            try:
                self._forwarding.deploy(deployment, seconds=self._deploy_seconds)
            except RestartedError:
                # What was known of the nodes was out of date, here or at an island below, which asks them every second.
                if self._clock.monotonic() > deadline or self._closing.wait(_RECUT_PAUSE):
                    raise
            else:
                return as_info(self.session(deployment.session))

    def prepare(self, deployment: Deployment, *, seconds: float) -> None:
        """Pass the slices on to the children whose they are."""
        self._forwarding.prepare(deployment, seconds=seconds)

    def start(self, session: str, epoch: int) -> None:
        """Start what was prepared below."""
        self._forwarding.start(session, epoch)

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Take a deployment back below."""
        self._forwarding.undo(session, epoch, reason)
        self._cache.forget(session)

    # Sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """All sessions of the children, the youngest first."""
        since = self._cache.told
        replies = self._asker.ask(lambda child: child.sessions())
        for view, infos in replies.values:
            self._cache.note_all(view, self._deletion.without_doomed(view, infos), since=since)
        views = self._views()
        told = [self._cache.merged(session, views) for session in self._cache.sessions()]
        found = [as_info(detail) for detail in told if detail is not None]
        return tuple(sorted(found, key=lambda info: (-info.created, info.session)))

    def session(self, session: str) -> SessionDetail:
        """One session as it is now, as far as the children answer."""
        since = self._cache.told
        replies = self._asker.ask(lambda child: child.session(session))
        for view, detail in replies.values:
            self._cache.note(view, detail)
        for view in replies.absent:
            self._cache.absent(session, view.url, since=since)
        found = self._cache.merged(session, self._views())
        if found is None:
            if not self._deletion.epoch_of(session):
                replies.raise_unless_answered(f"session {session!r}")
            raise NotFoundError(f"session {session!r} was deleted", hint="see the list of sessions")
        return found

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """As `session`, but waits for something newer than `version`; at once when it is over."""
        found: list[SessionDetail] = [self.session(session)]

        def is_newer() -> bool:
            views = self._views()
            now = self._cache.merged(session, views)
            if now is None or self._closing.is_set():
                return True
            found[0] = now
            if now.version != version or now.is_over:
                return True
            holders = self._cache.holders(session)
            held = [view for url, view in views.items() if url in holders and view.is_asked]
            self._followers.follow(session, [(view, self._cache.version_of(session, view.url)) for view in held])
            return False

        with self._followers.watching(session):
            self._cache.wait(is_newer, seconds=seconds)
        if found[0].is_over:
            # The list of sessions, which has no details, may have told of the end first.
            with suppress(NotFoundError):
                return self.session(session)
        return found[0]

    def cancel(self, session: str, reason: str = "") -> SessionInfo:
        """Stop a session on all children that answer."""
        replies = self._asker.ask(lambda child: child.cancel(session, reason), seconds=_CANCEL_SECONDS)
        if not self._cache.holders(session):
            replies.raise_unless_answered(f"session {session!r}")
        for view, info in replies.values:
            self._cache.note(view, info)
        if replies.refusals:
            raise replies.refusals[0][1]
        return as_info(self.session(session))

    def delete(self, session: str) -> None:
        """Forget a session everywhere; on children that do not answer, as soon as they do.

        Raises
        ------
        LinkError
            It was deleted elsewhere, but a child that is not lost did not answer.
        """
        self._deletion.delete(session)

    # What is in a session.

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """A page of the drops that match, child by child in the order of their names."""
        return self._contents.drops(session, query)

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """One drop, from the node that holds it."""
        return self._contents.drop(session, drop, query)

    def failures(self, session: str, query: PageQuery = FIRST_PAGE) -> FailureList:
        """A page of the root causes, the most harmful first; nodes that are lost among them."""
        return self._contents.failures(session, query)

    def log(self, session: str, drop: str) -> Download:
        """The log of a drop, from the node that holds it."""
        return self._contents.log(session, drop)

    def data(self, session: str, drop: str) -> Download:
        """Content of a data drop, from the node that holds it."""
        return self._contents.data(session, drop)

    def results(self, session: str) -> ResultList:
        """What the session left on the nodes that answer, and which do not."""
        return self._contents.results(session)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """ContentQueries of many drops on one node."""
        return self._contents.contents(session, request)

    def journal(self, session: str) -> Download:
        """The journals of all children in one tar file, or that of the only one."""
        return self._contents.journal(session)

    def graph(self, session: str) -> PhysicalGraph:
        """The graph, as far as the children that answer hold it."""
        return self._contents.graph(session)

    def slices(self, session: str) -> tuple[Slice, ...]:
        """The slices of the graph on the children that answer."""
        return self._contents.slices(session)

    # Inside.

    def _views(self) -> dict[str, ChildView]:
        return {view.url: view for view in self._children.views()}

    def _heard(self, view: ChildView, sessions: tuple[SessionInfo, ...], since: int) -> None:
        self._cache.note_all(view, self._deletion.without_doomed(view, sessions), since=since)

    def _departed(self, view: ChildView) -> None:
        if not self._cache.holds_unsettled(view.url):
            self.remove_child(view.url)

    def _refuse_taken(self, session: str) -> None:
        try:
            self.session(session)
        except (NotFoundError, LinkError):
            return  # a node that does not answer now refuses the name itself if it has it
        raise ConflictError(
            f"there is a session {session!r} already", where=self._name, hint="choose another name, or delete it"
        )


def _disconnect(manager: object) -> None:
    # Closing a client ends its connections; closing a manager would end its sessions.
    if isinstance(manager, Client):
        manager.close()
