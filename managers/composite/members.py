"""Changes of the nodes of running sessions: a composite asks a member for them, and adds new nodes.

The manager that deployed a session adds nodes to it whose processes were started since. It prepares the session on the
node, with the present places of its drops, and asks a member to have the node added. The node has no part in the
session until the members agree on a view that contains it. The manager also has a session rebalanced if its nodes would
end at very different times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import msgspec

from dropflow.api import operations
from dropflow.api.manager import Manager, call_of
from dropflow.api.node_records import NodeInfo
from dropflow.api.operations import OPERATIONS, Operation
from dropflow.api.requests import MemberRequest, RetryRequest
from dropflow.api.session_records import SessionDetail, SessionInfo
from dropflow.errors import ConflictError, DropflowError, LinkError, NotFoundError
from dropflow.states import DropState, SessionState
from managers.composite.children import Newest, Tries, nodes_of
from managers.composite.deployments import Deployments
from managers.composite.merging import SessionPart, as_info
from managers.composite.routines import Routine, Value
from managers.composite.sessions import Sessions
from managers.composite.shared import Shared
from managers.deployment import Deployment, Place

_LONGER = 30.0
"""Seconds by which the slowest part must exceed the mean: a rebalance stops all nodes for a moment."""
_FACTOR = 1.5
"""Ratio by which the slowest part must exceed the mean."""
_LASTS = 10.0
"""Seconds for which the slowest part must exceed both: rates vary."""
_REPEAT_SECONDS = 60.0
"""Seconds after a rebalance in which the session is not rebalanced again."""
_MOST_REBALANCES = 5
"""Rebalances of one epoch of a session."""
_REMEMBERED_EPOCHS = 1000
"""Epochs of sessions whose imbalance is remembered."""
_DECIDE_SECONDS = 65.0
"""Seconds that members may take to agree on a change."""
_JOIN_SECONDS = 60.0
"""Seconds in which a new node must have prepared its part of a session."""
_FEWEST_DROPS = 8
"""Open drops for each node, the new one included, that a session must have for a node to be added."""
_SHORTEST = 5.0
"""Seconds that a session must still last for a node to be added, if an estimate is known."""
_LOOK_SECONDS = 1.0
"""Seconds between two searches for nodes to add."""

# The rule by which a session is rebalanced if its nodes would end at very different times: pure, over their reports.


@dataclass(slots=True)
class _Notes:
    """The time since when a session is uneven, how often it was rebalanced, and when it may be rebalanced again."""

    since: float | None = None
    count: int = 0
    not_before: float = 0.0


class Imbalance:
    """Decides when sessions are rebalanced, from how long they have been uneven and how often they were rebalanced."""

    def __init__(self) -> None:
        self._notes = Newest[tuple[str, int], _Notes](_REMEMBERED_EPOCHS)
        """Notes by session and epoch."""

    def is_due(self, session: SessionDetail, parts: Sequence[SessionPart], now: float) -> bool:
        """Return whether a session is to be rebalanced now; if so, count it as rebalanced.

        Parameters
        ----------
        parts : sequence of SessionPart
            The last report of each child.
        now : float
            Monotonic seconds.
        """
        key = (session.session, session.epoch)
        notes = self._notes[key] = self._notes.get(key) or _Notes()
        is_uneven = _is_uneven(parts)
        if not is_uneven:
            notes.since = notes.since if is_uneven is None else None
            return False
        if notes.since is None:
            notes.since = now
        if now < max(notes.since + _LASTS, notes.not_before) or notes.count >= _MOST_REBALANCES:
            return False
        notes.since, notes.count, notes.not_before = None, notes.count + 1, now + _REPEAT_SECONDS
        return True


def _is_uneven(parts: Sequence[SessionPart]) -> bool | None:
    """Return whether the slowest child ends much later than the others; None if a child with open drops has no rate."""
    open_parts = [part.detail for part in parts if part.detail.settled < part.detail.drops]
    seconds = [detail.remaining for detail in open_parts if detail.remaining is not None]
    if len(parts) < 2 or not open_parts:
        return False
    if len(seconds) < len(open_parts):
        return None
    mean = sum(seconds) / len(parts)
    return max(seconds) > max(mean + _LONGER, _FACTOR * mean)


class MemberChanges:
    """Routines that change the members of sessions."""

    def __init__(self, shared: Shared, sessions: Sessions, deployments: Deployments) -> None:
        self._shared = shared
        self._sessions = sessions
        self._deployments = deployments
        self._looked = -_LOOK_SECONDS
        self._changing: set[str] = set()
        """Sessions that are being changed: one change at a time."""
        self._imbalance = Imbalance()
        self._tried = Tries[tuple[str, int, str, int]](shared.time)
        """Processes that were to be added to sessions."""

    def operations(self) -> Mapping[str, Callable[..., Routine[Any]]]:
        """Return the operations of `dropflow.api.manager.Manager` in this module, by name."""
        at_member = {
            operation.name: partial(self._at_member, operation) for operation in OPERATIONS if operation.to == "member"
        }
        return {**at_member, operations.DEPLOYMENT.name: self.deployment, operations.RETRY.name: self._retry}

    def wanted(self) -> list[tuple[str, NodeInfo | None]]:
        """Return the sessions to be changed now, each with the node to be added; None to rebalance the session."""
        if self._shared.time.now < self._looked + _LOOK_SECONDS:
            return []
        self._looked = self._shared.time.now
        # Most sessions are over: only the sessions that may be large enough are merged.
        cache = self._shared.cache
        large = [name for name in cache.sessions() if cache.open_drops(name) >= 2 * _FEWEST_DROPS]
        known = [self._sessions.merged(name) for name in large if name not in self._changing]
        growing = [session for session in known if session is not None and session.joined_by and _is_growing(session)]
        if not growing:
            return []
        nodes = nodes_of(self._shared.children.views(), role=self._shared.role)
        changes: list[tuple[str, NodeInfo | None]] = []
        for session in growing:
            new = [node for node in nodes if session.joined_by == self._shared.name and self._may_join(session, node)]
            if new:
                self._tried.note(_joining(session, new[0]))
                changes.append((session.session, new[0]))
            elif self._is_uneven(session):
                changes.append((session.session, None))
        return changes

    def _is_uneven(self, session: SessionDetail) -> bool:
        """Return whether a session is to be rebalanced. A master compares islands, an island its nodes."""
        parts = self._shared.cache.parts(session.session, self._shared.children.by_url())
        return self._imbalance.is_due(session, parts, self._shared.time.now)

    def rebalance(self, session: str) -> Routine[None]:
        """Let the members of a session share the drops that have not begun."""
        self._changing.add(session)
        try:
            yield from self._ask_member(partial(Manager.rebalance, session=session))
        finally:
            self._changing.discard(session)

    def join(self, session: str, node: NodeInfo) -> Routine[None]:
        """Prepare a session on a node, and have the node become a member of it.

        A node that does not become a member removes what it prepared by itself. Undoing it from here could remove it on
        a node that has become a member.
        """
        self._changing.add(session)
        try:
            yield from self._join(session, node)
        finally:
            self._changing.discard(session)

    def _join(self, session: str, node: NodeInfo) -> Routine[None]:
        deployment = yield from self.deployment(session)
        others = tuple(place for place in deployment.places if place.node != node.name)
        own = Place(node.name, node.links, node.incarnation)
        if own in deployment.places:
            return
        joining = msgspec.structs.replace(deployment, places=(*others, own), nodes=(node.name,), is_joining=True)
        yield from self._deployments.prepare(joining, seconds=_JOIN_SECONDS)
        yield from self._deployments.start(session, joining.epoch)
        workers = float(max(node.load.workers, 1))
        member = MemberRequest(node=node.name, links=node.links, incarnation=node.incarnation, workers=workers)
        yield from self.add_member(session, member)

    def _may_join(self, session: SessionDetail, node: NodeInfo) -> bool:
        """Return whether a node has come since a session was deployed, and is to be added to it now."""
        is_new = node.state == "alive" and node.name not in session.members and node.started > session.created
        return is_new and self._tried.may(_joining(session, node))

    # Operations.

    def _at_member(self, operation: Operation[object], session: str, **arguments: Any) -> Routine[Any]:
        """Let a member carry out an operation; return the whole session if it answers with its part of one."""
        answer = yield from self._ask_member(call_of(operation, session=session, **arguments))
        if operation.answer is not SessionInfo:
            return answer
        detail = yield from self._sessions.session(session)
        return as_info(detail)

    def _retry(self, session: str, request: RetryRequest) -> Routine[SessionInfo]:
        """Try failed drops again, in the running session, or by continuing a session that is over."""
        detail: SessionDetail = yield from self._sessions.session(session)
        if not detail.is_over and not request.start:
            if not any(detail.states.get(state.name) for state in (DropState.ERROR, DropState.CANCELLED)):
                raise ConflictError(f"no drop of session {session!r} has failed so far", where=self._shared.name)
            try:
                running = msgspec.structs.replace(request, if_running=True)
                yield from self._ask_member(partial(Manager.retry, session=session, request=running))
            except ConflictError:
                detail = yield from self._sessions.session(session)
                if not detail.is_over:
                    raise
            else:
                detail = yield from self._sessions.session(session)
                return as_info(detail)
        if request.if_running:
            raise ConflictError(f"session {session!r} is over", where=self._shared.name)
        info = yield from self._sessions.resume(session, request)
        return info

    def deployment(self, session: str) -> Routine[Deployment]:
        """Return the deployment with which another node can join a session."""
        reply = yield from self._ask_member(partial(Manager.deployment, session=session))
        return cast(Deployment, reply)  # unpacked already

    def add_member(self, session: str, member: MemberRequest) -> Routine[None]:
        """Add a prepared node to the members of a session, or make a manager its witness."""
        yield from self._ask_member(partial(Manager.add_member, session=session, member=member))

    def _ask_member(self, call: partial[Value]) -> Routine[Value]:
        """Ask the children that have members of the session of a call, one after the other, until one answers.

        Raises
        ------
        NotFoundError
            No child has the session.
        LinkError
            None of these children answers.
        DropflowError
            A member refuses.
        """
        yield from self._shared.requests.settle()
        session, views = call.keywords["session"], self._shared.children.by_url()
        current = self._shared.cache.holders(session) - self._shared.cache.former_holders(session)
        error: DropflowError = NotFoundError(f"there is no session {session!r}", hint="see the list of sessions")
        for url in sorted(url for url in current if url in views and views[url].is_asked):
            try:
                answer = yield from self._shared.requests.ask_one(url, call, _DECIDE_SECONDS)
            except (NotFoundError, LinkError) as silent:
                error = silent
            else:
                return answer
        raise error


def _joining(session: SessionDetail, node: NodeInfo) -> tuple[str, int, str, int]:
    return session.session, session.epoch, node.name, node.incarnation


def _is_growing(session: SessionDetail) -> bool:
    """Return whether a session has enough open drops for another node."""
    if session.status != SessionState.RUNNING.name or not session.members:
        return False
    is_short = session.remaining is not None and session.remaining < _SHORTEST
    return not is_short and session.drops - session.settled >= _FEWEST_DROPS * (len(session.members) + 1)
