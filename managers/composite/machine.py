"""An island or a master as a state machine: it owns children, sessions and deployments, and does no I/O."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from math import inf
from typing import Any, Generic, Literal

import msgspec

from dropflow.api import operations
from dropflow.api.manager import Manager, call_of
from dropflow.api.node_records import Child, ManagerStatus, NodeInfo
from dropflow.api.operations import OPERATIONS, Operation
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.errors import DropflowError, NotFoundError, UsageError
from dropflow.states import UNKNOWN
from managers.composite.children import Children, ChildView, MachineTime, StatusRequest, canonical, nodes_of
from managers.composite.deployments import Deployments
from managers.composite.members import MemberChanges
from managers.composite.merging import SessionPart, as_info
from managers.composite.resumptions import Resumptions
from managers.composite.routines import SECONDS, Replies, Requests, Routine, RoutineAction, Routines, Until, ask
from managers.composite.session_cache import SessionCache
from managers.composite.sessions import LongPoll, PendingDeletions, Sessions
from managers.composite.shared import Shared
from managers.composite.witness import VoterSent, Witness, WitnessListens
from managers.composite.witness_replacement import WitnessReplacement
from managers.machine_calls import Answer, Answered, Call, Return, Unanswered
from managers.membership import LOST_AFTER, SUSPECT_AFTER
from managers.recovery.vote import SendToPeer

_STATUS_SECONDS = 1.0
"""Seconds that the answer to a parent waits for the first answers of the children."""
_POLL_MARGIN = 5.0
"""Seconds that the answer to a long poll may take beyond its own timeout."""


class ChildConfigured(msgspec.Struct, frozen=True):
    """Event: add this child. It stays a child even if the manager there turns out to be unfit."""

    url: str


class ChildDeparted(msgspec.Struct, frozen=True):
    """Event: a child is not announced any more. It is removed once it is lost and has no unfinished sessions."""

    url: str
    reason: str


class Disconnect(msgspec.Struct, frozen=True):
    """Action: close the connections to a child that was removed."""

    url: str


class LogWarning(msgspec.Struct, frozen=True):
    """Action: write a warning to the log."""

    text: str


@dataclass(frozen=True)
class Gathered(Generic[Answer]):
    """The replies of children about a session, and the names of the children with a part of it that did not answer."""

    replies: Replies[Answer]
    missing: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    """Nodes that are members of the session and do not have it: their data directory was replaced."""


@dataclass(frozen=True)
class _Asked:
    """A status request or long poll that is under way, and the number of answers that had come when it was sent."""

    request: StatusRequest | LongPoll
    since: int


CompositeEvent = Call | Answered | Unanswered | ChildConfigured | ChildDeparted | VoterSent | WitnessListens
"""Inputs of a `CompositeMachine`."""
CompositeAction = Return | RoutineAction | Disconnect | SendToPeer | LogWarning
"""Outputs of a `CompositeMachine`."""


class CompositeMachine:
    """Decides what an island or master does; see `managers.owner_thread.Machine`.

    Other threads call its `operations`, and other routines of it and of its parts.

    Parameters
    ----------
    name, role : str
        Name and role of the island or master.
    suspect_after, lost_after, every : float
        Seconds without an answer after which a child is suspect, and lost; and between two status requests.
    deploy_seconds : float
        Seconds that a deployment may take.
    offset : float
        Seconds since the epoch minus the monotonic time.
    """

    def __init__(
        self,
        name: str,
        role: Literal["island", "master"],
        *,
        suspect_after: float = SUSPECT_AFTER,
        lost_after: float = LOST_AFTER,
        every: float = 1.0,
        deploy_seconds: float = 60.0,
        offset: float = 0.0,
    ) -> None:
        self._name = name
        self._role: Literal["island", "master"] = role
        self._period = suspect_after / 2
        self._ids = count(1)
        self._asked: dict[int, _Asked] = {}
        self._background: set[tuple[str, str, str]] = set()
        """Fetches and deletions that are under way: the kind, the session, and the URL of the child."""
        self._actions: list[CompositeAction] = []
        self._time = MachineTime(offset=offset, period=self._period)
        self._children = Children(
            name,
            role,
            self._time,
            suspect_after=suspect_after,
            lost_after=lost_after,
            every=min(every, suspect_after / 3),  # asked less often, a child would be suspect now and then
            log=self._log,
        )
        self._routines = Routines(
            self._time, signs=self._children.signs, why_lost=self._children.why_lost, next_id=partial(next, self._ids)
        )
        self._requests = Requests(self._children)
        self._witness = Witness()
        self._cache = SessionCache(self._time)
        shared = Shared(
            name,
            role,
            time=self._time,
            children=self._children,
            requests=self._requests,
            cache=self._cache,
            witness=self._witness,
            log=self._log,
        )
        deletions = PendingDeletions()
        self.deployments = Deployments(shared, deploy_seconds=deploy_seconds, undo_later=deletions.add)
        resumptions = Resumptions(shared, self.deployments)
        self.sessions = Sessions(
            shared,
            deployments=self.deployments,
            resumptions=resumptions,
            deletions=deletions,
            delete_at=self._delete_at,
        )
        self.members = MemberChanges(shared, self.sessions, self.deployments)
        self._witnesses = WitnessReplacement(shared, self.sessions, self.members)
        self.operations: Mapping[str, Callable[..., Routine[Any]]] = {
            **{operation.name: partial(self.forward, operation) for operation in OPERATIONS if operation.to == "node"},
            **self.members.operations(),
            operations.STATUS.name: self.status,
            operations.NODES.name: self.deployments.nodes,
            operations.COMPONENTS.name: self.deployments.components,
            operations.CHILDREN.name: self.list_children,
            operations.ADD_CHILD.name: self._add_child,
            operations.REMOVE_CHILD.name: self._remove_child,
            operations.SUBMIT.name: self.sessions.submit,
            operations.PREPARE.name: self.deployments.prepare,
            operations.START.name: self.deployments.start,
            operations.UNDO.name: self.sessions.undo,
            operations.SESSIONS.name: self.sessions.sessions,
            operations.SESSION.name: self.sessions.session,
            operations.WATCH.name: self.sessions.watch,
            operations.CANCEL.name: self.sessions.cancel,
            operations.PAUSE.name: self.sessions.pause,
            operations.UNPAUSE.name: self.sessions.unpause,
            operations.GRAPH.name: self.sessions.graph,
            operations.RESUME.name: self.sessions.resume,
            operations.REMAINS.name: resumptions.remains,
            operations.DELETE.name: self._delete,
        }
        """Operations of `dropflow.api.manager.Manager` by name, which other threads call."""

    def known(self, session: str) -> SessionDetail | None:
        """Return a session from the last answers of the children; None if no child has it."""
        return self.sessions.merged(session)

    # The three methods of a machine.

    def handle(self, event: CompositeEvent, now: float) -> list[CompositeAction]:
        """Process one event at monotonic time `now`, and return the actions to carry out, in order."""
        self._time.read(now)
        self._children.judge()
        match event:
            case Call():
                self._routines.begin(event.operation(), partial(self._return, event.id))
            case VoterSent():
                return [*self._witness.receive(event, now)]
            case WitnessListens():
                self._witness.place = event.place
            case ChildConfigured():
                self._children.add(event.url)
            case ChildDeparted():
                self._children.mark_departed(event.url, event.reason)
            case Answered() | Unanswered():
                pending = self._asked.pop(event.id, None)
                if pending is not None:
                    self._take(pending, event)
                else:
                    self._routines.take(event)
        return self._decide()

    def tick(self, now: float) -> list[CompositeAction]:
        """Return the actions that are due at `now`."""
        self._time.read(now)
        self._children.judge()
        return self._decide()

    def deadline(self) -> float:
        """Return the monotonic time of the next `tick`; infinity if none is needed."""
        due = min(
            self._children.deadline(),
            self._routines.deadline(),
            self.sessions.watched.deadline(),
        )
        # Time between two events counts only if it is short; see `managers.machine_calls`.
        return inf if due == inf else min(self._time.until(due), self._time.raw + self._period / 2)

    # What follows from an event.

    def _decide(self) -> list[CompositeAction]:
        for view in self._children.departed():
            if not self._cache.has_unfinished(view.url):
                self._remove(view.url)
        for session, node in self.members.wanted():
            if node is None:
                self._begin_background("rebalance", session, "its nodes", self.members.rebalance(session))
            else:
                self._begin_background("add a node to", session, node.url, self.members.join(session, node))
        for lacking in self._witnesses.wanted():
            name = lacking.session
            self._begin_background("replace the witness of", name, "its nodes", self._witnesses.replace(lacking))
        before = None
        while before != (before := (self._children.changes, self._cache.changes)):
            self._routines.tick()  # the end of one routine may make the condition of another true
        for request in self._children.due():
            self._ask(request, request.url, partial(Manager.status), request.seconds)
        for poll in self.sessions.watched.begin(self.sessions.wanted_polls()):
            version = self._cache.version_of(poll.session, poll.url)
            call = partial(Manager.watch, session=poll.session, version=version, seconds=poll.seconds)
            self._ask(poll, poll.url, call, poll.seconds + _POLL_MARGIN)
        actions, self._actions = [*self._actions, *self._routines.actions()], []
        return actions

    def _ask(self, request: StatusRequest | LongPoll, url: str, call: partial[Any], seconds: float) -> None:
        number = next(self._ids)
        self._asked[number] = _Asked(request, self._cache.answers)
        self._actions.append(ask(number, url, call, self._time.raw + seconds))

    def _return(self, call: int, value: Any, error: DropflowError | None) -> None:
        self._actions.append(Return(call, value, error))

    def _take(self, pending: _Asked, event: Answered | Unanswered) -> None:
        """Process the answer to a status request or long poll."""
        request = pending.request
        if isinstance(request, LongPoll):
            self.sessions.watched.end(request, is_answered=isinstance(event, Answered))
            view = self._children.by_url().get(request.url)
            if isinstance(event, Answered) and view is not None:
                self.sessions.note(view, event.value, since=pending.since)
        elif isinstance(event, Unanswered):
            text = event.error.text if isinstance(event.error, DropflowError) else f"cannot be asked: {event.error}"
            self._children.unanswered(request, text)
        else:
            view = self._children.answered(request, event.value)
            if view is not None:
                self._take_status(view, event.value, since=pending.since)

    def _take_status(self, view: ChildView, status: ManagerStatus, *, since: int) -> None:
        finished = [row for row in status.finished if not self.sessions.delete_if_wanted(view, row)]
        others = [row.session for row in finished]
        self.sessions.note_list(view, status.sessions, others, since=since)
        changed = [row.session for row in finished if not self._cache.is_current(view.url, row)]
        if not changed:
            # If the session is over here, its details contain the ends of parts whose nodes do not answer.
            old = [row.session for row in finished if self._cache.has_old_details(row.session, view.url)]
            unknown = (name for name in old if (detail := self.sessions.merged(name)) and detail.status == UNKNOWN)
            changed = list(islice(unknown, 1))
        if len(changed) == 1:
            self._begin_background("fetch", changed[0], view.url, self._fetch_one(view, changed[0]))
        elif changed:
            self._begin_background("fetch", "", view.url, self._fetch_all(view))

    # In the background.

    def _begin_background(self, what: str, session: str, url: str, routine: Routine[None]) -> None:
        """Start a routine without waiting for its result, unless the same is under way."""
        key = (what, session, url)
        if key in self._background:
            routine.close()
            return
        self._background.add(key)

        def finish(_: object, error: DropflowError | None) -> None:
            self._background.discard(key)
            if error is not None:
                self._log(f"could not {what} session {session!r} on {url}: {error}")

        self._routines.begin(routine, finish)

    def _fetch_one(self, view: ChildView, session: str) -> Routine[None]:
        """Get a session that is over from a child."""
        since = self._cache.answers
        with suppress(DropflowError):
            detail = yield from self._requests.ask_one(view.url, partial(Manager.session, session=session))
            self.sessions.note(view, detail, since=since)

    def _fetch_all(self, view: ChildView) -> Routine[None]:
        """Fetch all sessions of a child, because many are new or over."""
        since = self._cache.answers
        with suppress(DropflowError):
            infos = yield from self._requests.ask_one(view.url, partial(Manager.sessions))
            for info in infos:
                self.sessions.note(view, info, since=since)

    def _delete_at(self, session: str, url: str, epoch: int) -> None:
        self._begin_background("delete", session, url, self._delete_one(session, url, epoch))

    def _log(self, text: str) -> None:
        self._actions.append(LogWarning(text))

    def _delete_one(self, session: str, url: str, epoch: int) -> Routine[None]:
        """Delete a session on a child that did not answer when it was deleted; tried again with its next status.

        The request may arrive late, when a graph has been submitted under the same name: only `epoch` is meant.
        """
        with suppress(NotFoundError):
            yield from self._requests.ask_one(url, partial(Manager.delete, session=session, epoch=epoch))

    # Operations on children.

    def status(self) -> Routine[tuple[tuple[NodeInfo, ...], tuple[SessionInfo, ...]]]:
        """Return the nodes and the sessions, from the last answers of the children."""
        # Not for long: if two managers are children of each other, each waits for the first answer of the other.
        yield Until(self._children.is_settled, _STATUS_SECONDS)
        nodes = nodes_of(self._children.views(), role=self._role)
        return nodes, tuple(as_info(detail) for detail in self.sessions.all_merged())

    def _delete(self, session: str, epoch: int | None = None) -> Routine[None]:
        """Delete a session on all children, unless it was deployed again after `epoch`."""
        self._witness.forget(session, epoch)
        yield from self.sessions.delete(session, epoch)

    def list_children(self) -> Routine[tuple[Child, ...]]:
        """Return all children, sorted by name."""
        yield from self._requests.settle()
        return tuple(view.as_child() for view in self._children.views())

    def _add_child(self, url: str) -> Routine[Child]:
        """Add a child, whether it answers already or not."""
        self._children.add(url)
        yield Until(lambda: self._children.has_answer_after(canonical(url), 0), SECONDS)
        self._children.end_waiting()
        view = self._children.view(url)
        if view.is_unfit:
            self._remove(url)
            raise UsageError(f"{url} {view.text}", where=self._name, hint="islands have nodes, masters have islands")
        return view.as_child()

    def _remove_child(self, url: str) -> Routine[None]:
        """Remove a child. Sessions that run there go on."""
        self._remove(url)
        yield from ()

    def forward(self, operation: Operation[Answer], node: str, **arguments: Any) -> Routine[Answer]:
        """Call an operation on a node of the child through which the node is reached."""
        yield from self._requests.settle()
        view: ChildView = yield from self.holder(node)
        answer = yield from self._requests.ask_one(view.url, call_of(operation, node=node, **arguments))
        return answer

    def _remove(self, url: str) -> None:
        address = self._children.remove(url)
        self._routines.remove_child(address)
        self.sessions.forget_child(address)
        self._actions.append(Disconnect(address))

    # Operations for what is in a session; see `managers.composite.content_queries`.

    def ask_children(
        self, session: str, calls: partial[Answer] | Mapping[str, partial[Answer]], seconds: float = SECONDS
    ) -> Routine[Gathered[Answer]]:
        """Call a method of all children, or of some, by URL."""
        if isinstance(calls, partial):
            yield from self._requests.settle(seconds)
        views = self._children.by_url()
        former = self._cache.former_holders(session)
        each = {url: calls for url in views if url not in former} if isinstance(calls, partial) else calls
        wanted = {url: call for url, call in each.items() if url in views}
        replies = yield from self._requests.ask_each(wanted, views, seconds)
        silent = self._cache.silent_children(session, self._children.by_url())
        holders = {*self._cache.holders(session) - former, *(view.url for view in silent)}
        lacking = self._cache.lacking_nodes(session, replies.absent)
        return Gathered(
            replies, tuple(sorted(view.name for view, _ in replies.missing if view.url in holders)), lacking
        )

    def parts(self, session: str) -> Routine[list[SessionPart]]:
        """Return the parts of a session, from the last answers of the children."""
        yield from ()
        return self._cache.parts(session, self._children.by_url())

    def holder(self, node: str) -> Routine[ChildView]:
        """Return the child through which a node is reached, or that has this name itself."""
        yield from ()
        for view in self._children.views():
            if node in {view.name, *(info.name for info in view.nodes)}:
                return view
        raise NotFoundError(f"node {node} is not below {self._name}", hint="see 'dropflow nodes'")
