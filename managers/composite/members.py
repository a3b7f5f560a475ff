"""Changes of the nodes of sessions that run: a composite asks a member for them, and adds nodes that come.

The manager that deployed a session adds nodes to it whose processes were started since. It prepares the session on the
node, as it is placed now, and asks a member to have the node added. Until the members agree on a view that has it, the
node counts for nothing. It also has such sessions rebalanced whose nodes would end at very different times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from dropflow.api.records import NodeInfo, Role, SessionDetail, SessionInfo
from dropflow.api.requests import MemberRequest, RetryRequest
from dropflow.errors import ConflictError, DropflowError, LinkError, NotFoundError
from dropflow.states import DropState, SessionState
from managers.composite.children import Children, MachineTime, nodes_of
from managers.composite.deployments import Deployments
from managers.composite.merging import SessionPart, as_info
from managers.composite.operations import Gather, Question, Requests, Routine
from managers.composite.session_cache import SessionCache
from managers.composite.sessions import Sessions
from managers.deployment import Deployment, Place

__all__ = [
    "Imbalance",
    "MemberChanges",
]


# When a session whose nodes end at very different times is to be rebalanced: a pure rule over their
# reports.

_LONGER = 30.0
"""Seconds by which the slowest part must exceed the mean: a rebalance stops all nodes for a moment."""
_FACTOR = 1.5
"""How many times the mean the slowest part must take."""
_LASTS = 10.0
"""Seconds for which that must be so: rates vary."""
_IMBALANCE_AGAIN = 60.0
_MOST = 5
_IMBALANCE_REMEMBERED = 1000


@dataclass(slots=True)
class _Notes:
    """Since when a session has been uneven, how often it was rebalanced, and when that may be done again."""

    since: float | None = None
    count: int = 0
    not_before: float = 0.0


class Imbalance:
    """Notes for how long sessions have been uneven, and how often they were rebalanced."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, int], _Notes] = {}
        """By session and epoch."""

    def is_due(self, session: SessionDetail, parts: Sequence[SessionPart], now: float) -> bool:
        """Return whether a session is to be rebalanced now; then it counts as rebalanced.

        Parameters
        ----------
        parts : sequence of SessionPart
            The last report of each child.
        now : float
            Monotonic seconds.
        """
        key = (session.session, session.epoch)
        notes = self._notes.pop(key, None) or _Notes()
        self._notes[key] = notes  # the last one again: the first ones are forgotten
        while len(self._notes) > _IMBALANCE_REMEMBERED:
            del self._notes[next(iter(self._notes))]
        is_uneven = _is_uneven(parts)
        if not is_uneven:
            notes.since = notes.since if is_uneven is None else None
            return False
        if notes.since is None:
            notes.since = now
        if now < max(notes.since + _LASTS, notes.not_before) or notes.count >= _MOST:
            return False
        notes.since, notes.count, notes.not_before = None, notes.count + 1, now + _IMBALANCE_AGAIN
        return True


def _is_uneven(parts: Sequence[SessionPart]) -> bool | None:
    """Return whether the slowest child ends much later than the others; None if one with open drops has no rate now."""
    open_parts = [part.detail for part in parts if part.detail.settled < part.detail.drops]
    seconds = [detail.remaining for detail in open_parts if detail.remaining is not None]
    if len(parts) < 2 or not open_parts:  # noqa: PLR2004 - one has nothing to balance
        return False
    if len(seconds) < len(open_parts):
        return None
    mean = sum(seconds) / len(parts)
    return max(seconds) > max(mean + _LONGER, _FACTOR * mean)


_DECIDE_SECONDS = 65.0
"""How long members may take to agree on a change."""
_FETCH_SECONDS = 60.0
_PREPARE_SECONDS = 60.0
_FEWEST_DROPS = 8
"""Drops for each node, the new one included, that a session must have open for a node to be added."""
_SHORTEST = 5.0
"""Seconds that a session must still last, as far as that is known."""
_MEMBER_CHANGES_AGAIN = 30.0
"""Seconds until a node is added again after that failed."""
_TRIES = 3
_MEMBER_CHANGES_REMEMBERED = 10_000
_LOOK_SECONDS = 1.0
"""How often is looked for nodes to add."""


class MemberChanges:
    """Routines that change the members of sessions.

    Parameters
    ----------
    name, role : str
        Of the composite.
    children, requests, cache, sessions, deployments, time :
        The parts of the composite.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        *,
        children: Children,
        requests: Requests,
        cache: SessionCache,
        sessions: Sessions,
        deployments: Deployments,
        time: MachineTime,
    ) -> None:
        self._name = name
        self._role: Role = role
        self._children = children
        self._requests = requests
        self._cache = cache
        self._sessions = sessions
        self._deployments = deployments
        self._time = time
        self._looked = -_LOOK_SECONDS
        self._changing: set[str] = set()
        """Sessions that are being changed: one change at a time."""
        self._imbalance = Imbalance()
        self._tried: dict[tuple[str, int, str, int], tuple[int, float]] = {}
        """How often each process was to be added to each session, and when that may be done again."""

    def operations(self) -> Mapping[str, Callable[..., Routine[Any]]]:
        """Return the operations of `managers.api.Manager` that are here, by name."""
        return {
            "rebalance": partial(self._change, "rebalance"),
            "force_continue": partial(self._change, "force_continue"),
            "retry": self._retry,
            "deployment": self._deployment,
            "add_member": self.add_member,
        }

    def wanted(self) -> list[tuple[str, NodeInfo | None]]:
        """Return which sessions are to be changed now: with the node to be added, or without one to be rebalanced."""
        if self._time.now < self._looked + _LOOK_SECONDS:
            return []
        self._looked = self._time.now
        # Most sessions are over: only those that may be large enough are merged.
        large = [name for name in self._cache.sessions() if self._cache.open_drops(name) >= 2 * _FEWEST_DROPS]
        known = [self._sessions.merged(name) for name in large if name not in self._changing]
        growing = [one for one in known if one is not None and one.joined_by and _is_growing(one)]
        if not growing:
            return []
        nodes = nodes_of(self._children.views(), role=self._role)
        found: list[tuple[str, NodeInfo | None]] = []
        for session in growing:
            new = [node for node in nodes if session.joined_by == self._name and self._may_join(session, node)]
            if new:
                self._note_try(session, new[0])
                found.append((session.session, new[0]))
            elif self._is_uneven(session):
                found.append((session.session, None))
        return found

    def _is_uneven(self, session: SessionDetail) -> bool:
        """Return whether a session is to be rebalanced. A master sees whole islands, and each island its nodes."""
        parts = self._cache.parts(session.session, self._children.by_url())
        return self._imbalance.is_due(session, parts, self._time.now)

    def _note_try(self, session: SessionDetail, node: NodeInfo) -> None:
        key = (session.session, session.epoch, node.name, node.incarnation)
        self._tried[key] = self._tried.pop(key, (0, 0.0))[0] + 1, self._time.now + _MEMBER_CHANGES_AGAIN
        while len(self._tried) > _MEMBER_CHANGES_REMEMBERED:
            del self._tried[next(iter(self._tried))]

    def rebalance(self, session: str) -> Routine[None]:
        """Have the members of a session share what has not begun."""
        self._changing.add(session)
        try:
            yield from self._ask_member(session, "rebalance", _DECIDE_SECONDS)
        finally:
            self._changing.discard(session)

    def join(self, session: str, node: NodeInfo) -> Routine[None]:
        """Prepare a session on a node, and have the node become a member of it.

        A node that does not become one removes what was prepared by itself. Undoing it from here could hit a member.
        """
        self._changing.add(session)
        try:
            yield from self._join(session, node)
        finally:
            self._changing.discard(session)

    def _join(self, session: str, node: NodeInfo) -> Routine[None]:
        deployment: Deployment = yield from self._deployment(session)
        others = tuple(place for place in deployment.places if place.node != node.name)
        own = Place(node.name, node.links, node.incarnation)
        if own in deployment.places:
            return
        joining = msgspec.structs.replace(deployment, places=(*others, own), nodes=(node.name,), is_joining=True)
        yield from self._deployments.prepare(joining, seconds=_PREPARE_SECONDS)
        yield from self._deployments.start(session, joining.epoch)
        workers = float(max(node.load.workers, 1))
        member = MemberRequest(node=node.name, links=node.links, incarnation=node.incarnation, workers=workers)
        yield from self.add_member(session, member)

    def _may_join(self, session: SessionDetail, node: NodeInfo) -> bool:
        """Return whether a node has come since a session was deployed, and is to be added to it now."""
        count, until = self._tried.get((session.session, session.epoch, node.name, node.incarnation), (0, 0.0))
        is_new = node.state == "alive" and node.name not in session.members and node.started > session.created
        return is_new and count < _TRIES and until <= self._time.now

    # Operations.

    def _change(self, operation: str, session: str) -> Routine[SessionInfo]:
        """Have a member ask for another view, until it is decided."""
        yield from self._ask_member(session, operation, _DECIDE_SECONDS)
        detail = yield from self._sessions.session(session)
        return as_info(detail)

    def _retry(self, session: str, request: RetryRequest) -> Routine[SessionInfo]:
        """Try failed drops again: while the session runs, or else by continuing it."""
        found: SessionDetail = yield from self._sessions.session(session)
        if not found.is_over and not request.start:
            if not any(found.states.get(state.name) for state in (DropState.ERROR, DropState.CANCELLED)):
                raise ConflictError(f"no drop of session {session!r} has failed so far", where=self._name)
            try:
                running = msgspec.structs.replace(request, if_running=True)
                yield from self._ask_member(session, "retry", _DECIDE_SECONDS, request=running)
            except ConflictError:
                found = yield from self._sessions.session(session)
                if not found.is_over:
                    raise
            else:
                found = yield from self._sessions.session(session)
                return as_info(found)
        if request.if_running:
            raise ConflictError(f"session {session!r} is over", where=self._name)
        info = yield from self._sessions.resume(session, request)
        return info

    def _deployment(self, session: str) -> Routine[Deployment]:
        """Return what a node needs to join a session."""
        found: Deployment = yield from self._ask_member(session, "deployment", _FETCH_SECONDS)
        return found

    def add_member(self, session: str, member: MemberRequest) -> Routine[None]:
        """Have a node that is prepared become a member of a session, or a manager its witness."""
        yield from self._ask_member(session, "add_member", _DECIDE_SECONDS, member=member)

    def _ask_member(self, session: str, operation: str, seconds: float, **arguments: Any) -> Routine[Any]:
        """Ask one child after the other that has members of a session, until one answers.

        Raises
        ------
        NotFoundError
            No child has the session.
        LinkError
            None of them answers.
        DropflowError
            A member refuses.
        """
        yield from self._requests.settle()
        views = self._children.by_url()
        current = self._cache.holders(session) - self._cache.former_holders(session)
        error: DropflowError = NotFoundError(f"there is no session {session!r}", hint="see the list of sessions")
        for url in sorted(url for url in current if url in views and views[url].is_asked):
            outcomes = yield Gather((Question(url, operation, {"session": session, **arguments}),), seconds)
            outcome = outcomes[url]
            if outcome.error is None:
                return outcome.value
            error = outcome.error
            if not isinstance(error, NotFoundError | LinkError):
                break
        raise error


def _is_growing(session: SessionDetail) -> bool:
    """Return whether a session has enough to do that another node is of use."""
    if session.status != SessionState.RUNNING.name or not session.members:
        return False
    is_short = session.remaining is not None and session.remaining < _SHORTEST
    return not is_short and session.drops - session.settled >= _FEWEST_DROPS * (len(session.members) + 1)
